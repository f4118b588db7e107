"""What FlopCounterMode would print: the same number as the real one, program by program, and what is missing in it by hand."""

from __future__ import annotations

import pickle
import threading

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import flop_counter
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

import flopkit as fk
from flopkit.counter import registry


def real(program):
    with FlopCounterMode(display=False) as counter:
        program()
    return counter.get_total_flops()


def ours(program):
    with fk.counting() as report:
        program()
    return report


def step(model, *shape, device="cpu", **kwargs):
    model = model.to(device)

    def run():
        x = torch.ones(*shape, device=device, requires_grad=True)
        out = model(x, **kwargs)
        (out[0] if isinstance(out, tuple) else out).sum().backward()

    return run


class Block(nn.Module):
    def __init__(self, kv_heads=4, causal=True):
        super().__init__()
        self.q, self.o = nn.Linear(32, 32), nn.Linear(32, 32)
        self.k, self.v = nn.Linear(32, 8 * kv_heads), nn.Linear(32, 8 * kv_heads)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)
        self.kv_heads, self.causal = kv_heads, causal

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, 8).transpose(1, 2) for f in (self.q, self.k, self.v))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal, enable_gqa=self.kv_heads != 4)
        x = x + self.o(a.transpose(1, 2).reshape(b, t, 32))
        return x + self.down(F.gelu(self.up(x)))


def products():
    a, b = torch.ones(3, 4, 5), torch.ones(3, 5, 6)
    torch.bmm(a, b)
    torch.baddbmm(torch.ones(3, 4, 6), a, b)
    a[0] @ b[0]
    torch.addmm(torch.ones(6), a[0], b[0])
    torch.mm(a[0], b[0], out=torch.empty(4, 6))
    torch.einsum("bij,bjk->ik", a, b)
    a[0] @ b[0][:, 0]
    torch.dot(a[0, 0], b[0, :, 0])
    torch.ones(4, 6).addmm_(a[0], b[0])
    torch.addbmm(torch.ones(4, 6), a, b)
    torch.mm(a[0].to(torch.complex64), b[0].to(torch.complex64))
    F.bilinear(torch.ones(2, 3), torch.ones(2, 4), torch.ones(5, 3, 4))
    torch.fft.fft(torch.ones(16))


def convolutions():
    for conv, shape in (
        (nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9)),
        (nn.Conv2d(4, 6, (3, 1), padding="same", dilation=2), (2, 4, 8, 9)),
        (nn.Conv2d(8, 8, 3, groups=8), (2, 8, 8, 9)),
        (nn.Conv2d(8, 12, 3, groups=4, bias=False), (8, 8, 9)),
        (nn.Conv3d(2, 4, 2), (1, 2, 4, 5, 6)),
        (nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1), (2, 4, 5, 6)),
        (nn.ConvTranspose2d(8, 4, 3, groups=4), (2, 8, 5, 6)),
        (nn.ConvTranspose1d(4, 6, 3), (2, 4, 5)),
    ):
        conv(torch.ones(shape, requires_grad=True)).sum().backward()
        conv(torch.ones(shape)).sum().backward()


def experts():
    torch._grouped_mm(
        torch.ones(16, 32, dtype=torch.bfloat16),
        torch.ones(4, 32, 64, dtype=torch.bfloat16),
        torch.tensor([4, 8, 12, 16], dtype=torch.int32),
    )
    torch.ones(4, 4) @ torch.ones(4, 4)


def own_operator():
    torch.ops.flopkit_tests.peer_product(torch.ones(3, 4), torch.ones(4, 5))
    torch.ones(3, 4) @ torch.ones(4, 5)


@torch.library.custom_op("flopkit_tests::peer_product", mutates_args=())
def peer_product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b


def other_thread():
    torch.ones(3, 4) @ torch.ones(4, 5)
    thread = threading.Thread(target=lambda: torch.ones(8, 8) @ torch.ones(8, 8))
    thread.start()
    thread.join()


def checkpointed():
    layer = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
    for reentrant in (True, False):
        checkpoint(layer, torch.ones(2, 8, requires_grad=True), use_reentrant=reentrant).sum().backward()


def inference(model, *shape):
    def run():
        with torch.inference_mode():
            model(torch.ones(shape))

    return run


def transforms():
    w = torch.ones(4, 5)
    torch.func.vmap(lambda x: x @ w)(torch.ones(3, 2, 4))
    torch.func.grad(lambda v: (torch.ones(3, 4) @ v).sum())(w)
    torch.func.jvp(lambda v: torch.ones(3, 4) @ v, (w,), (w,))


def attention(device="cpu", grad=True, dims=(8, 8), mask=None):
    def run():
        q, k = (torch.ones(2, 4, n, dims[0], device=device, requires_grad=grad) for n in (6, 10))
        v = torch.ones(2, 4, 10, dims[1], device=device, requires_grad=grad)
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        if grad:
            out.sum().backward()

    return run


def adam():
    model = nn.Linear(4, 4)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()


PROGRAMS = {
    "products": products,
    "convolutions": convolutions,
    "block, cpu": step(Block(), 2, 7, 32),
    "block, meta": step(Block(), 2, 7, 32, device="meta"),
    "block, grouped queries, cpu": step(Block(kv_heads=2), 2, 7, 32),
    "block, grouped queries, meta": step(Block(kv_heads=2), 2, 7, 32, device="meta"),
    "block, inference": inference(Block().eval(), 2, 7, 32),
    "attention, values of another size": attention(dims=(8, 4)),
    "attention, meta, values of another size": attention("meta", dims=(8, 4)),
    "attention, no grad": attention(grad=False),
    "attention, masked": attention(mask=torch.ones(6, 10, dtype=torch.bool)),
    "encoder layer, train": step(nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True), 2, 5, 32),
    "encoder layer, inference": inference(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).eval(), 2, 5, 32),
    "lstm": step(nn.LSTM(8, 16, 2), 5, 2, 8),
    "lstm, meta": step(nn.LSTM(8, 16, 2), 5, 2, 8, device="meta"),
    "dense, inference": inference(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3, bias=False)), 2, 3, 4),
    "dense, one vector, inference": inference(nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3, bias=False)), 4),
    "dense, one vector": step(nn.Linear(4, 8), 4),
    "gru, inference": inference(nn.GRU(8, 16), 5, 2, 8),
    "experts": experts,
    "own operator": own_operator,
    "another thread": other_thread,
    "checkpoints": checkpointed,
    "transforms": transforms,
    "optimiser": adam,
    "embedding": lambda: nn.Embedding(10, 4)(torch.arange(3)).sum().backward(),
}


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_the_same_number_as_the_real_one(name):
    if name == "experts" and not hasattr(torch, "_grouped_mm"):
        pytest.skip("torch 2.6 has no grouped products")
    program = PROGRAMS[name]
    expected = real(program)
    report = ours(program)
    seen = report.as_seen_by("torch")
    assert int(seen) == seen.value == expected
    assert sum(row["seen"] for row in seen.rows) == expected
    assert sum(row["flops"] for row in seen.rows) == seen.flops == report.flops
    after = pickle.loads(pickle.dumps(report)).as_seen_by("torch")
    assert after == seen


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v2", "vit_b_16", "swin_t", "convnext_tiny", "efficientnet_b0"])
def test_torchvision(name):
    models = pytest.importorskip("torchvision").models
    model = models.get_model(name).to("meta")
    program = step(model, 2, 3, 224, 224, device="meta")
    assert int(ours(program).as_seen_by("torch")) == real(program)


def test_depthwise_by_hand():
    """8 channels by themselves: the weight gradient is taken for one of a full convolution, 8 times as much."""
    conv = nn.Conv2d(8, 8, 3, groups=8, bias=False)
    seen = ours(lambda: conv(torch.ones(1, 8, 6, 6)).sum().backward()).as_seen_by("torch")
    once = 2 * 8 * 16 * 9
    assert (seen.value, seen.flops) == (once + 8 * once, 2 * once)
    assert len(seen.missed) == 0
    assert seen.too_many.rows == [{"operator": "convolution_backward", "calls": 1, "flops": once, "seen": 8 * once}]
    assert "4.5× the 4.608 kFLOPs" in repr(seen) and "convolution_backward" in seen._repr_html_()


FLASH = "_scaled_dot_product_flash_attention"
ON_CPU = f"{FLASH}_for_cpu"
aten = torch.ops.aten


def test_attention_on_cpu_by_hand(monkeypatch):
    """As up to 2.14, where torch has no formula for it."""
    monkeypatch.setattr(registry, "RULES", {})  # what was remembered of calls before
    monkeypatch.delitem(flop_counter.flop_registry, getattr(aten, ON_CPU), raising=False)
    seen = ours(attention(grad=False)).as_seen_by("torch")
    assert (seen.value, seen.flops, seen.share) == (0, 2 * 2 * 4 * 6 * 10 * 16, 0.0)
    assert seen.missed.rows == [{"operator": "scaled_dot_product_attention", "calls": 1, "flops": 15360, "seen": 0}]
    assert "FlopCounterMode would print 0 FLOPs, 0 % of the 15.36 kFLOPs" in repr(seen)
    assert "scaled_dot_product_attention" in seen._repr_html_()


def test_attention_on_cpu_with_a_formula(monkeypatch):
    """As since 2.15: forward it is counted right, backward with the scores that are recomputed."""
    monkeypatch.setattr(registry, "RULES", {})
    for end in ("", "_backward"):
        on_gpu = flop_counter.flop_registry[getattr(aten, f"{FLASH}{end}")]
        monkeypatch.setitem(flop_counter.flop_registry, getattr(aten, f"{ON_CPU}{end}"), on_gpu)
    forward, step = attention(grad=False), attention()
    assert int(ours(forward).as_seen_by("torch")) == real(forward) == 2 * 2 * 4 * 6 * 10 * 16
    assert int(ours(step).as_seen_by("torch")) == real(step) == 7 * 2 * 4 * 6 * 10 * 16


def test_a_formula_that_somebody_registered_with_torch():
    """What torch's registry has of an operator counts there, whether or not flopkit knows it."""
    op = torch.ops.flopkit_tests.peer_hidden
    flop_counter.register_flop_formula(op)(lambda a, b, *, out_shape, **_: 7 * a[0] * b[1])
    try:
        program = lambda: op(torch.ones(3, 4), torch.ones(4, 5))
        assert int(ours(program).as_seen_by("torch")) == real(program) == 7 * 3 * 5
        assert [row["operator"] for row in ours(program).uncounted] == ["flopkit_tests.peer_hidden"]
        theirs = flop_counter.flop_registry[op]  # as The counter in detail says
        fk.formula(op)(lambda *args, out: theirs(*args, out_val=out))
        assert fk.count(program, strict=True).flops == 7 * 3 * 5
    finally:
        registry.forget(op)
        del flop_counter.flop_registry[op]


@torch.library.custom_op("flopkit_tests::peer_hidden", mutates_args=())
def peer_hidden(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(a.numpy() @ b.numpy())


def test_where_its_formula_fails_there_is_no_number(monkeypatch):
    def fails(*shapes, **_):
        raise AssertionError("matmul: inner dimensions must match")

    monkeypatch.setitem(flop_counter.flop_registry, torch.ops.aten.mm, fails)
    report = ours(lambda: torch.ones(31, 17) @ torch.ones(17, 29))  # sizes that were not met before
    assert report.flops == 2 * 31 * 17 * 29
    with pytest.raises(ValueError, match="torch's own formula for mm fails"):
        report.as_seen_by("torch")
    monkeypatch.undo()
    assert int(ours(lambda: torch.ones(31, 18) @ torch.ones(18, 29)).as_seen_by("torch")) == 2 * 31 * 18 * 29


def test_another_tool_is_to_be_asked():
    with pytest.raises(ValueError, match=r"'fvcore'.*as_seen_by\('torch'\).*fk.ask\('fvcore', model, \*inputs\)"):
        ours(lambda: None).as_seen_by("fvcore")


def test_nothing_ran():
    seen = ours(lambda: None).as_seen_by("torch")
    assert (seen.value, seen.share, len(seen.missed), len(seen.too_many)) == (0, 1.0, 0, 0)
