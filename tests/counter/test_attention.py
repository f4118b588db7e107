"""scaled_dot_product_attention: truth by hand, pair by pair, on every device and under every kernel."""

import contextlib

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right, causal_upper_left

import flopkit as fk
from flopkit import tally
from flopkit.conventions import EXACT

B, H = 2, 4


def seen(q, kv, shift=0):
    """Pairs that a causal mask lets through: query i sees the keys up to i + shift."""
    return sum(j <= i + shift for i in range(q) for j in range(kv))


def forward(pairs, d, dv):
    return 2 * pairs * d + 2 * pairs * dv


def backward(pairs, d, dv, need=(True, True, True)):
    """Values' gradient; probabilities' where queries or keys need one; queries' and keys'."""
    q, k, v = need
    return 2 * pairs * (dv * v + dv * (q or k) + d * q + d * k)


def tensors(device, q=6, kv=6, d=8, dv=None, kv_heads=H, need=(True, True, True), dtype=torch.float32):
    shapes = ((B, H, q, d), (B, kv_heads, kv, d), (B, kv_heads, kv, dv or d))
    return [
        torch.randn(shape, device=device, dtype=dtype).requires_grad_(n) for shape, n in zip(shapes, need, strict=True)
    ]


def counted(qkv, attention="auto", **options):
    with fk.counting(strict=True, attention=attention) as report:
        out = F.scaled_dot_product_attention(*qkv, **options)
        if out.requires_grad:
            out.sum().backward()
    return report


def core(report, phase):
    """The rows of attention itself, without the sum that differentiates it."""
    return [
        row for row in report.by_op() if row["operator"] == "scaled_dot_product_attention" and row["phase"] == phase
    ]


CASES = {
    "plain": (dict(), dict()),
    "causal": (dict(), dict(is_causal=True)),
    "causal, fewer queries": (dict(q=3, kv=7), dict(is_causal=True)),
    "causal, more queries": (dict(q=9, kv=4), dict(is_causal=True)),
    "wider values": (dict(dv=12), dict(is_causal=True)),
    "narrower values": (dict(dv=4), dict()),
    "grouped heads": (dict(kv_heads=2), dict(is_causal=True, enable_gqa=True)),
    "decode": (dict(q=1, kv=9), dict()),
    "dropout": (dict(), dict(dropout_p=0.1)),
    "no keys": (dict(kv=0), dict()),
}


@pytest.mark.parametrize("attention", ["auto", "flash", "math"])
@pytest.mark.parametrize("device", ["cpu", "meta", "fake"])
@pytest.mark.parametrize("case", CASES)
def test_model_flops_are_the_same_whatever_ran(case, device, attention):
    sizes, options = CASES[case]
    with FakeTensorMode() if device == "fake" else contextlib.nullcontext():
        report = counted(tensors("cpu" if device == "fake" else device, **sizes), attention, **options)
    q, kv, d = sizes.get("q", 6), sizes.get("kv", 6), 8
    dv = sizes.get("dv", d)
    pairs = B * H * q * kv
    visible = B * H * seen(q, kv) if options.get("is_causal") else pairs
    assert report.model_flops == forward(pairs, d, dv) + backward(pairs, d, dv)
    assert report.under(EXACT).model_flops == forward(visible, d, dv) + backward(visible, d, dv)


NEEDS = [
    (True, False, False),
    (False, True, False),
    (False, False, True),
    (True, True, False),
    (False, True, True),
    (False,) * 3,
]


@pytest.mark.parametrize("need", NEEDS)
@pytest.mark.parametrize("dv", [8, 4], ids=["kernel", "products"])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_backward_follows_what_needs_a_gradient(device, dv, need):
    report = counted(tensors(device, dv=dv, need=need), is_causal=True)
    visible = B * H * seen(6, 6)
    assert report.under(EXACT).model_flops == forward(visible, 8, dv) + backward(visible, 8, dv, need)


@pytest.mark.parametrize("asked", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("leaves", [True, False])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_autograd_grad_for_some_of_the_three(device, leaves, asked):
    qkv = [t if leaves else t * 1 for t in tensors(device)]
    with fk.counting() as report:
        out = F.scaled_dot_product_attention(*qkv, is_causal=True)
        torch.autograd.grad(out.sum(), [qkv[i] for i in asked])
    visible = B * H * seen(6, 6)
    need = tuple(i in asked for i in range(3))
    assert report.under(EXACT).model_flops == forward(visible, 8, 8) + backward(visible, 8, 8, need)


def test_a_fused_kernel_executes_two_and_a_half_times_the_forward():
    for device in ("cpu", "meta"):
        report = counted(tensors(device, need=(True, False, False)), is_causal=True)
        for view, pairs in ((report, B * H * 36), (report.under(EXACT), B * H * seen(6, 6))):
            assert view.forward.flops == forward(pairs, 8, 8)
            assert view.backward.flops == 2 * forward(pairs, 8, 8)  # all gradients, whoever asked
            assert view.recompute.flops == 2 * pairs * 8
            assert view.hardware_flops == 3.5 * forward(pairs, 8, 8)


def test_products_compute_what_the_mask_hides():
    report = counted(tensors("cpu", dv=12), is_causal=True).under(EXACT)
    pairs = B * H * 36
    assert report.forward.flops == forward(pairs, 8, 12)
    assert report.backward.flops == backward(pairs, 8, 12)
    assert report.recompute.flops == 0
    assert {row["kernel"] for row in core(report, "forward")} == {"math"}


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("kernel", ["flash", "math"])
@pytest.mark.parametrize("mask", ["full", "causal"])
def test_the_formula_and_the_counter_agree(mask, kernel, device):
    sizes = dict(batch=3, q=5, kv=5, heads=4, head_dim=8, kv_heads=2)
    cost = fk.attention(**sizes, mask=mask, kernel=kernel, dtype="fp32")
    q, k, v = (torch.randn(3, heads, 5, 8, device=device) for heads in (4, 2, 2))
    with fk.counting(attention=kernel) as report:
        F.scaled_dot_product_attention(q, k, v, is_causal=mask == "causal", enable_gqa=True)
    exact = report.under(EXACT)
    assert exact.model_flops == cost.flops == tally.attention(**sizes, mask=mask).flops
    assert exact.bytes == cost.bytes
    assert report.flops == cost.under(fk.conventions.TORCH).flops
    if kernel == "flash" or mask == "full":  # math computes the hidden pairs, too
        assert exact.forward.flops == cost.flops
        assert exact.forward.vector_flops == cost.vector_flops


def test_bytes_by_hand():
    q, k, v, o, scores = B * H * 6 * 8, B * 2 * 7 * 8, B * 2 * 7 * 12, B * H * 6 * 12, B * H * 6 * 7
    for device, kernel in (("cpu", "math"), ("meta", "flash")):
        qkv = tensors(device, kv=7, dv=12, kv_heads=2, need=(False,) * 3, dtype=torch.bfloat16)
        report = counted(qkv, enable_gqa=True)
        assert report.bytes == 2 * (q + k + v + o) + (kernel == "math") * 2 * 4 * scores
    for device in ("cpu", "meta"):
        report = counted(tensors(device, dtype=torch.bfloat16))
        each = 2 * B * H * 6 * 8
        assert (
            sum(row["bytes"] for row in core(report, "backward")) == 8 * each
        )  # q, k, v, out and its gradient; three out
    qkv = tensors("cpu", dtype=torch.bfloat16)
    report = counted(qkv, attention="math")
    scores = 2 * B * H * 36
    assert sum(row["bytes"] for row in core(report, "backward")) == (
        scores + 2 * each + 2 * each + 4 * scores + 2 * (scores + 2 * each)
    )


def chunks(x):
    return x[:, :H], x[:, H : 2 * H], x[:, 2 * H :]


# How three arguments are made of three tensors; what a kernel reads of them, what the product of queries and keys reads.
ONES = {
    "three": (lambda a, b, c: (a, b, c), 3, 2),
    "one thrice": (lambda a, b, c: (a, a, a), 1, 1),
    "keys that are the values": (lambda a, b, c: (a, b, b), 2, 2),
    "queries that are the keys": (lambda a, b, c: (a, a, b), 2, 1),
    "queries that are the values": (lambda a, b, c: (a, b, a), 2, 2),
}


@pytest.mark.parametrize("made", ONES)
@pytest.mark.parametrize("device", ["cpu", "meta", "fake"])
def test_a_tensor_that_is_given_twice_is_read_once(device, made):
    make, kernel, product = ONES[made]
    each, scores = 4 * B * H * 6 * 8, 4 * B * H * 36
    with FakeTensorMode() if device == "fake" else contextlib.nullcontext():
        x = torch.randn(B, 3 * H, 6, 8, device="cpu" if device == "fake" else device, requires_grad=True)
        flash, math = counted(make(*chunks(x)), "flash"), counted(make(*chunks(x)), "math")
        after = counted(chunks(x), "flash")
    assert sum(row["bytes"] for row in core(flash, "forward")) == (kernel + 1) * each
    # Read with them: the output and its gradient. Written: three gradients.
    assert sum(row["bytes"] for row in core(flash, "backward")) == (kernel + 2 + 3) * each
    assert sum(row["bytes"] for row in core(math, "forward")) == (product + 1 + 1) * each + 4 * scores
    # No product of the backward pass has two of the three. Of one tensor's three gradients autograd makes two sums, of two one.
    if device == "cpu":
        sums = 3 * each * (3 - len(set(make(1, 2, 3))))
        assert sum(row["bytes"] for row in core(math, "backward")) == 8 * each + 7 * scores + sums
    assert sum(row["bytes"] for row in core(after, "forward")) == 4 * each  # of the same sizes


class Labelled(torch.Tensor):
    pass


def test_a_subclass_is_known_by_itself():
    x = torch.randn(B, H, 6, 8).as_subclass(Labelled)
    each = 4 * B * H * 6 * 8
    assert fk.count(F.scaled_dot_product_attention, x, x, x).bytes == 2 * each
    assert fk.count(F.scaled_dot_product_attention, x, x.view(x.shape), x.view(x.shape)).bytes == 4 * each


def test_what_autocast_casts_thrice_is_three_tensors():
    x = torch.randn(B, H, 6, 8) * 1
    with torch.autocast("cpu", torch.bfloat16):
        report = counted((x, x, x))
    assert sum(row["bytes"] for row in core(report, "forward")) == 4 * 2 * B * H * 6 * 8
    assert sum(row["calls"] for row in report.by_op() if row["operator"] == "_to_copy") == 3


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("dtype", [torch.bool, torch.float32])
def test_a_mask_in_a_tensor_counts_in_full_and_is_named(device, dtype):
    mask = torch.ones(6, 6, dtype=dtype, device=device)
    plain = counted(tensors(device), attn_mask=mask)
    report = plain.under(EXACT)
    pairs = B * H * 36
    assert report.model_flops == forward(pairs, 8, 8) + backward(pairs, 8, 8)
    said = (
        "the mask is in a tensor" if dtype is torch.bool else "attn_mask adds numbers to the scores, a bias or a mask"
    )
    assert report.notes == [f"{said}: every position counts as visible (1 call)"]
    assert report.notes[0] in str(report)
    assert plain.notes == plain.under("FVCORE").notes == []  # there every position counts by definition


def test_a_mask_that_needs_a_gradient():
    mask = torch.zeros(6, 6, requires_grad=True)
    report = counted(tensors("cpu", need=(False,) * 3), attn_mask=mask)
    pairs = B * H * 36
    assert report.model_flops == forward(pairs, 8, 8) + 2 * pairs * 8  # the probabilities' gradient


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_mask_that_says_what_it_is(device):
    for bias, shift in ((causal_upper_left, 0), (causal_lower_right, 2)):
        report = counted(tensors(device, q=5, kv=7), attn_mask=bias(5, 7)).under(EXACT)
        pairs = B * H * seen(5, 7, shift)
        assert report.model_flops == forward(pairs, 8, 8) + backward(pairs, 8, 8), bias
        assert not report.notes


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(
    ("q", "k"),
    [((6, 8), (6, 8)), ((3, 6, 8), (3, 6, 8)), ((1, 2, 4, 6, 8), (1, 2, 4, 6, 8)), ((2, 4, 6, 8), (1, 4, 6, 8)), ((2, 4, 6, 8), (1, 1, 6, 8)),
     ((1, 4, 6, 8), (2, 4, 6, 8)), ((2, 4, 6, 8), (4, 6, 8)), ((0, 4, 6, 8), (0, 4, 6, 8))],
)  # fmt: skip
def test_any_number_of_dimensions_and_broadcasting(device, q, k):
    query, key, value = (torch.randn(shape, device=device, requires_grad=True) for shape in (q, k, k))
    report = counted((query, key, value), is_causal=True)
    rows = torch.broadcast_shapes(q[:-2], k[:-2]).numel()
    for view, pairs in ((report, rows * 36), (report.under(EXACT), rows * seen(6, 6))):
        assert view.model_flops == forward(pairs, 8, 8) + backward(pairs, 8, 8)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_without_gradients(device, mode):
    with mode():
        report = counted(tensors(device), is_causal=True)
    assert report.under(EXACT).model_flops == report.under(EXACT).flops == forward(B * H * seen(6, 6), 8, 8)


def test_on_a_gpu_that_is_not_there():
    with FakeTensorMode():
        qkv = tensors("cuda", need=(False,) * 3, dtype=torch.bfloat16)
        try:
            F.scaled_dot_product_attention(*qkv, is_causal=True)
        except RuntimeError as error:
            pytest.skip(f"torch cannot either, a CUDA build that finds no driver: {str(error)[:80]}")
        with fk.counting() as report:
            out = F.scaled_dot_product_attention(*qkv, is_causal=True)
    assert out.device.type == "cuda"
    assert report.under(EXACT).flops == forward(B * H * seen(6, 6), 8, 8)
    assert all("flash" in row["kernel"] for row in core(report, "forward"))


def test_a_kernel_that_the_program_rules_out_is_not_assumed():
    with sdpa_kernel(SDPBackend.MATH):
        report = counted(tensors("meta"), is_causal=True).under(EXACT)
    assert report.forward.flops == forward(B * H * 36, 8, 8)
    assert report.recompute.flops == 0


def test_under_autocast_the_kernel_reads_half_the_bytes():
    with torch.autocast("cpu", torch.bfloat16):
        report = counted(tensors("cpu"), is_causal=True)
    each = B * H * 6 * 8
    assert sum(row["bytes"] for row in core(report, "forward")) == 4 * each * 2
    assert report.model_flops == 3 * forward(B * H * 36, 8, 8)
    assert report.hardware_flops == 3.5 * forward(B * H * 36, 8, 8)
    casts = [row for row in report.by_op() if row["operator"] == "_to_copy" and row["phase"] == "forward"]
    assert sum(row["bytes"] for row in casts) == 3 * each * (4 + 2)


def test_a_mask_for_all_sequences_and_heads_is_not_taken_for_none():
    """Shapes that were met are known: a call with such a mask tells that nobody sees what it hides, whichever call came first."""
    q, mask = torch.ones(2, 4, 7, 8), torch.ones(1, 1, 7, 7, dtype=torch.bool)
    for given, noted in ((None, False), (mask, True), (None, False)):
        report = fk.count(F.scaled_dot_product_attention, q, q, q, given).under(fk.conventions.EXACT)
        assert any("mask" in note for note in report.notes) == noted


def test_element_wise_work_of_a_flash_kernel_s_backward():
    q, k, v = (torch.empty(B, H, n, 8, device="meta", requires_grad=True) for n in (10, 12, 12))
    report = fk.count(lambda: F.scaled_dot_product_attention(q, k, v).sum().backward())
    vector = {
        row["phase"]: row["vector_flops"] for row in report.by_op() if row["operator"] == "scaled_dot_product_attention"
    }
    # Each row's sum of dO·O takes two an output number. Through softmax, from the recomputed probabilities: subtract it, multiply, scale.
    assert vector["backward"] == 3 * B * H * 10 * 12 + 2 * B * H * 10 * 8
    # The probabilities again, from the saved logarithm of each row's sum: scale, subtract, exponential.
    assert vector["recompute"] == 3 * B * H * 10 * 12
