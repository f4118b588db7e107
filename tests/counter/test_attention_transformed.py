"""`nn.MultiheadAttention` under `torch.func`, and with weights that are frozen."""

import pytest
import torch
from torch import nn

import flopkit as fk
from flopkit.conventions import EXACT

B, L, D, H = 3, 6, 16, 2
IN, OUT = 2 * B * L * D * 3 * D, 2 * B * L * D * D
FULL = 2 * 2 * B * L * L * D
SEEN = 2 * 2 * B * (L * (L + 1) // 2) * D
SAMPLES = 4
SLOW = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch runs the kernel once for each sample
DEVICES = pytest.mark.parametrize("device", ["cpu", "meta"])
BOTH = pytest.mark.parametrize("need_weights", [False, True])


def causal(device, need_weights):
    """A function of weights and tokens, the weights, and tokens."""
    layer = nn.MultiheadAttention(D, H, batch_first=True, device=device)
    how = {
        "need_weights": need_weights,
        "attn_mask": nn.Transformer.generate_square_subsequent_mask(L, device=device),
        "is_causal": True,
    }

    def call(weights, x):
        return torch.func.functional_call(layer, weights, (x, x, x), how)[0]

    weights = {name: p.detach() for name, p in layer.named_parameters()}
    return call, weights, torch.randn(B, L, D, device=device)


# How the layer is asked; how many projections of the input, of the output, and times attention that is. A gradient is one projection of
# each kind, and twice the attention.
PROGRAMS = {
    "as it is": (lambda call, w, x: call(w, x), 1, 1, 1),
    "vmap": (lambda call, w, x: torch.vmap(call, (None, 0))(w, torch.stack([x] * SAMPLES)), SAMPLES, SAMPLES, SAMPLES),
    "vmap of the weights": (
        lambda call, w, x: torch.vmap(call, (0, None))({name: torch.stack([p] * SAMPLES) for name, p in w.items()}, x),
        SAMPLES,
        SAMPLES,
        SAMPLES,
    ),
    "vmap in vmap": (
        lambda call, w, x: torch.vmap(torch.vmap(call, (None, 0)), (None, 0))(w, torch.stack([torch.stack([x] * 2)] * 3)),
        6,
        6,
        6,
    ),
    "grad, of the tokens": (lambda call, w, x: torch.func.grad(lambda x: call(w, x).sum())(x), 2, 2, 3),
    "grad, of the weights": (lambda call, w, x: torch.func.grad(lambda w: call(w, x).sum())(w), 2, 3, 3),
    "vjp": (lambda call, w, x: torch.func.vjp(lambda x: call(w, x), x)[1](x), 2, 2, 3),
    "gradients of each sample": (
        lambda call, w, x: torch.vmap(torch.func.grad(lambda x: call(w, x).sum()))(torch.stack([x] * SAMPLES)),
        2 * SAMPLES,
        2 * SAMPLES,
        3 * SAMPLES,
    ),
    "jacrev": (
        lambda call, w, x: torch.func.jacrev(lambda x: call(w, x).sum((0, 1)))(x),  # of D outputs
        1 + D,
        1 + D,
        1 + 2 * D,
    ),
}  # fmt: skip


@SLOW
@DEVICES
@BOTH
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_causal_layer_under_transforms(device, need_weights, name):
    call, weights, x = causal(device, need_weights)
    program, ins, outs, cores = PROGRAMS[name]
    report = fk.count(program, call, weights, x, strict=True)
    rest = ins * IN + outs * OUT
    assert report.model_flops == rest + cores * FULL
    exact = report.under(EXACT)
    # With weights the layer makes the products itself, under `torch.vmap` on meta torch does: the mask is not seen.
    written_out = need_weights or (device == "meta" and ("vmap" in name or name == "gradients of each sample"))
    assert exact.model_flops == rest + cores * (FULL if written_out else SEEN)
    assert [("hand-written" in note) for note in exact.notes] == [True] * written_out
    of_attention = [row for row in report.by_op() if "scaled_dot_product" in row["operator"]]
    assert bool(of_attention) is not written_out


@DEVICES
def test_a_fused_kernel_makes_the_scores_again(device):
    call, weights, x = causal(device, False)
    report = fk.count(torch.func.grad(lambda x: call(weights, x).sum()), x)
    assert report.recompute.flops == FULL // 2  # the scores


@DEVICES
def test_gradients_of_gradients_of_a_layer_with_weights(device):
    """Each product of the backward pass has two gradients itself, and those of the forward pass their two again."""
    call, weights, x = causal(device, True)
    x.requires_grad_()

    def run():
        (gradient,) = torch.autograd.grad(call(weights, x).square().sum(), x, create_graph=True)
        gradient.sum().backward()

    report = fk.count(run)
    # Projections by frozen weights: forward, backward; of the gradient, and forward again.
    rest = 4 * (IN + OUT)
    assert report.model_flops == rest + (1 + 2 + 4 + 2) * FULL


@SLOW
@BOTH
def test_results_under_vmap_are_those_that_are_not_counted(need_weights):
    call, weights, x = causal("cpu", need_weights)
    tokens = torch.stack([x] * SAMPLES)
    for dtype in (None, torch.bfloat16):
        with torch.autocast("cpu", dtype or torch.bfloat16, enabled=dtype is not None):
            plain = torch.vmap(call, (None, 0))(weights, tokens)
            with fk.counting():
                counted = torch.vmap(call, (None, 0))(weights, tokens)
            again = torch.vmap(call, (None, 0))(weights, tokens)
        assert plain.dtype == counted.dtype
        assert torch.equal(plain, counted)
        assert torch.equal(plain, again)


def test_torch_has_its_own_kernels_back():
    table = torch._C._dispatch_dump_table
    before = table("aten::scaled_dot_product_attention")
    layer, x = nn.MultiheadAttention(8, 2), torch.ones(5, 1, 8)
    with fk.counting():
        layer(x, x, x)
        assert table("aten::scaled_dot_product_attention") != before
    assert table("aten::scaled_dot_product_attention") == before
