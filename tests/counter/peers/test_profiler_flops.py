"""torch.profiler with FLOPs: forward and backward passes against the profiler itself, and by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.profiler import ProfilerActivity, profile

import flopkit as fk
from flopkit.peers.asking import sure


def trained(model, *shape):
    return lambda: model(torch.ones(shape, requires_grad=True)).sum().backward()


def elementwise():
    a, b = torch.ones(1, 8), torch.ones(8, 8)
    for x in (a + b, b + a, 2 * b, b - 1, 1 - b, b.mul(a), torch.add(b, 1), torch.tensor(2.0) * b, torch.arange(4) * 2):
        x.clone().mul_(2)
    a.repeat(2, 3, 1)


def products():
    x, w, v = torch.ones(2, 3, 8, requires_grad=True), torch.ones(8, 8), torch.ones(8)
    y = x.detach()
    (torch.bmm(x, y.transpose(1, 2)) @ y @ w).sum().backward()
    torch.baddbmm(x, x, w.expand(2, 8, 8))
    torch.einsum("bij,jk->bik", x, w)
    F.linear(v, w), F.linear(v, w, v), F.linear(w, w, v), w @ v


def convolutions():
    x = torch.ones(2, 4, 8, 8)
    F.conv2d(x, torch.ones(6, 2, 3, 3), stride=2, padding=1, dilation=2, groups=2)
    F.conv2d(x, torch.ones(6, 4, 3, 3), padding="same")
    F.conv2d(x[0], torch.ones(6, 4, 3, 3))
    F.conv1d(x[0], torch.ones(6, 8, 3))
    F.conv_transpose2d(x, torch.ones(4, 6, 3, 3))


def whole():
    with torch.inference_mode():
        nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3, bias=False))(torch.ones(2, 3, 4))
        nn.Linear(4, 8, bias=False)(torch.ones(4))


def dense(mode):
    """Some run as one product and sum, some as a product and a sum in place; what is added after them is neither."""
    x, layer, other = torch.ones(2, 3, 8), nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
    with mode():
        layer(layer(x.transpose(0, 1)).transpose(0, 1)) + layer.bias
        layer(x.view(6, 8)).view(2, 3, 8) + other(x) + layer.bias


def encoder(mode):
    with mode():
        nn.TransformerEncoderLayer(16, 4, 24, batch_first=True).eval()(torch.ones(2, 5, 16)) + torch.ones(16)


def grouped():
    a, b = (torch.ones(shape, dtype=torch.bfloat16) for shape in ((8, 16), (2, 16, 32)))
    torch._grouped_mm(a, b, offs=torch.tensor([4, 8], dtype=torch.int32))


def bilinear():
    x, y, w = (torch.ones(shape, requires_grad=True) for shape in ((2, 5, 4), (2, 5, 6), (3, 4, 6)))
    F.bilinear(x, y, w).sum().backward()
    F.bilinear(x[0], y[0, :, :1], w[:, :, :1], torch.ones(3))
    F.bilinear(x[0, :1], y[0, :1], w[:1]).sum().backward()
    F.bilinear(x.detach(), y.detach(), w).sum().backward()
    F.bilinear(x[:0], y[:0], w)
    torch._trilinear(x, y[..., :1], x, (), (), (), (2,), 1)


def distances():
    a, b = torch.ones(5, 1, 30, 8), torch.ones(3, 7, 8)
    torch.cdist(a, b)
    torch.cdist(b, b)
    torch.cdist(b, b, compute_mode="use_mm_for_euclid_dist")
    torch.cdist(a, a, compute_mode="donot_use_mm_for_euclid_dist")
    torch.cdist(a[0, 0], a[0, 0], p=1.0)
    torch.cdist(a[0, 0].requires_grad_(), b[0]).sum().backward()


PROGRAMS = {
    "bilinear": bilinear,
    "distances": distances,
    "element-wise": elementwise,
    "products": products,
    "convolutions": convolutions,
    "inference": whole,
    "dense layers of three dimensions": lambda: dense(torch.no_grad),
    "dense layers of three dimensions, inference": lambda: dense(torch.inference_mode),
    "encoder layer, inference": lambda: encoder(torch.no_grad),
    "grouped": grouped,
    "dense, trained": trained(nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 3)), 4, 8),
    "dense, three dimensions, trained": trained(nn.Linear(8, 8), 2, 4, 8),
    "convolution, trained": trained(nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()), 2, 3, 8, 8),
    "encoder layer, trained": trained(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, 5, 32),
    "root mean square": lambda: nn.RMSNorm(8)(torch.ones(2, 8)),
    "lstm": lambda: nn.LSTM(8, 6, 2, bidirectional=True)(torch.ones(5, 2, 8)),
    "lstm, no biases": lambda: nn.LSTM(8, 6, bias=False)(torch.ones(5, 2, 8)),
    "gru": lambda: nn.GRU(8, 6)(torch.ones(5, 2, 8)),
}


def real(program):
    with profile(activities=[ProfilerActivity.CPU], with_flops=True) as found:
        program()
    return sum(event.flops for event in found.key_averages())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_the_same_number_as_the_real_one(name):
    if not sure("torch.profiler"):
        pytest.skip("another torch than the one that was looked at")
    with fk.counting() as report:
        PROGRAMS[name]()
    seen = report.as_seen_by("torch.profiler")
    assert seen.value == real(PROGRAMS[name])
    assert sum(row.flops for row in seen.rows) == report.flops == seen.flops
    assert sum(row.seen for row in seen.rows) == seen.value


def test_by_hand():
    """A product of 2 · 4 · 3 and the two of its backward pass; a sum takes the numbers of its first part."""
    w = torch.ones(4, 3, requires_grad=True)
    x = torch.ones(2, 4, requires_grad=True)
    with fk.counting() as report:
        (x @ w + torch.ones(2, 3)).sum().backward()
    seen = report.as_seen_by("torch.profiler")
    assert (seen.value, seen.flops) == (3 * 48 + 6, 3 * 48)
    assert seen.reasons == ["it adds sums: +6 FLOPs"]


def test_distances_by_hand():
    """Thirty rows of eight, made longer by two, with thirty others, twice; 480 numbers are doubled before."""
    x = torch.ones(2, 30, 8)
    seen = fk.count(torch.cdist, x, x).as_seen_by("torch.profiler")
    assert seen.value == 2 * 2 * 30 * 30 * 10 + 480
    assert any("made of" in reason for reason in seen.reasons) and not any(
        "inside of" in reason for reason in seen.reasons
    )


def test_what_cannot_be_told_is_said():
    with fk.counting() as report:
        nn.MultiheadAttention(4, 2, batch_first=True)(*[torch.ones(2, 3, 4)] * 3)
        torch.ones(2, 2, device="meta") @ torch.ones(2, 2, device="meta")
        torch.linalg.solve(torch.eye(3), torch.ones(3))
        x = torch.ones(2, 2, requires_grad=True)
        (x * x.exp()).sum().backward()
    reasons = " ".join(report.as_seen_by("torch.profiler").reasons)
    for said in ("taken for biases", "sums of gradients", "on meta", "inside of themselves"):
        assert said in reasons


def test_what_ran_on_meta_before_is_no_matter():
    """Shapes are remembered from one count to the next; where they ran is not."""
    layer = torch.nn.Linear(3, 5, device="meta")
    assert any(
        "meta" in reason
        for reason in fk.count(layer, torch.ones(2, 3, device="meta")).as_seen_by("torch.profiler").reasons
    )
    here = fk.count(torch.nn.Linear(3, 5), torch.ones(2, 3)).as_seen_by("torch.profiler")
    assert not any("meta" in reason for reason in here.reasons)
