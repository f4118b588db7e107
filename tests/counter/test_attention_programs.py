"""Attention in programs that transform, trace, checkpoint, compile, fail or run beside others: the same count, nothing left behind."""

import threading

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import flopkit as fk
from flopkit.conventions import EXACT

B, H, L, D = 2, 4, 6, 8
FULL = 4 * B * H * L * L * D
SEEN = 4 * B * H * (L * (L + 1) // 2) * D
DEVICES = pytest.mark.parametrize("device", ["cpu", "meta"])
SLOW = pytest.mark.filterwarnings("ignore:There is a performance drop")  # torch runs the kernel once for each sample


def three(device="cpu", grad=True):
    return [torch.randn(B, H, L, D, device=device, requires_grad=grad) for _ in range(3)]


def causal(q, k, v):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def phases(report):
    return report.forward.flops, report.backward.flops, report.recompute.flops


def models(report):
    return report.model_flops, report.under(EXACT).model_flops


# -- checkpoints ----------------------------------------------------------------------------------------------


@DEVICES
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed(device, reentrant):
    q, k, v = three(device)
    report = fk.count(lambda: checkpoint(causal, q, k, v, use_reentrant=reentrant).sum().backward(), strict=True)
    assert models(report) == (3 * FULL, 3 * SEEN)
    assert phases(report) == (FULL, 2 * FULL, FULL + FULL // 2)  # the call again, and the kernel's own scores
    assert phases(report.under(EXACT)) == (SEEN, 2 * SEEN, SEEN + SEEN // 2)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_products_stop_as_early_as_they_do(reentrant):
    q, k, v = three()
    with sdpa_kernel(SDPBackend.MATH):
        report = fk.count(lambda: checkpoint(causal, q, k, v, use_reentrant=reentrant).sum().backward())
    assert models(report) == (3 * FULL, 3 * SEEN)
    # What the second product needs is there before it runs: without reentry it is not run again.
    assert phases(report) == (FULL, 2 * FULL, FULL if reentrant else FULL // 2)


def test_a_call_whose_result_was_kept_is_not_made_again():
    selective = pytest.importorskip("torch.utils.checkpoint").create_selective_checkpoint_contexts
    q, k, v = three()
    kept = [torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default]

    def run():
        out = checkpoint(lambda q: causal(q, k, v) * 2, q, use_reentrant=False, context_fn=lambda: selective(kept))
        out.sum().backward()

    for early in (True, False):
        with set_checkpoint_early_stop(early):
            report = fk.count(run)
        assert models(report) == (3 * FULL, 3 * SEEN)
        assert report.recompute.flops == FULL // 2  # the kernel's own


@DEVICES
def test_operators_around_a_checkpointed_call(device):
    q, k, v = three(device)

    def block(q, k, v):
        return causal(q * 2, k.clone(), v) + 1

    report = fk.count(lambda: checkpoint(block, q, k, v, use_reentrant=False).sum().backward(), strict=True)
    assert models(report) == (3 * FULL, 3 * SEEN)
    again = [row for row in report.by_op() if row["phase"] == "recompute" and row["operator"] in ("mul", "clone")]
    assert sorted((row["operator"], row["calls"]) for row in again) == [("clone", 1), ("mul", 1)]


# -- autograd -------------------------------------------------------------------------------------------------


@DEVICES
def test_backward_twice(device):
    q, k, v = three(device)

    def run():
        out = causal(q, k, v).sum()
        out.backward(retain_graph=True)
        out.backward()

    report = fk.count(run)
    assert models(report) == (5 * FULL, 5 * SEEN)
    assert phases(report) == (FULL, 4 * FULL, FULL)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_differentiated_twice(device):
    """Of the gradient of q alone: two products of the backward pass, each of which gives two gradients, and what the forward gives."""
    q, k, v = three(device)

    def run():
        with sdpa_kernel(SDPBackend.MATH):
            (gradient,) = torch.autograd.grad(causal(q, k, v).pow(2).sum(), q, create_graph=True)
            gradient.sum().backward()

    report = fk.count(run)
    half = FULL // 2
    # Forward: S = QK', O = PV. Once: dP = dO V', dQ = dS K. Twice: of dQ: dS, K; of dP: dO, V; of O: P, V; of S: Q, K.
    assert report.model_flops == FULL + 2 * half + 8 * half
    assert report.under(EXACT).model_flops == SEEN + 2 * SEEN // 2 + 8 * SEEN // 2
    assert report.recompute.flops == 0


def test_differentiated_twice_where_a_kernel_is_assumed():
    q, k, v = three("meta")

    def run():
        (gradient,) = torch.autograd.grad(causal(q, k, v).pow(2).sum(), q, create_graph=True)
        gradient.sum().backward()

    report = fk.count(run)
    assert models(report) == (FULL + 5 * FULL, SEEN + 5 * SEEN)
    # The kernel's backward runs in both passes, each time with the scores again; no kernel differentiates it: those are products.
    assert phases(report) == (FULL, 2 * 2 * FULL + 2 * FULL, 2 * FULL // 2)


@DEVICES
def test_only_the_backward_pass_is_counted_by_an_inner_count(device):
    q, k, v = three(device)
    with fk.counting() as outer:
        out = causal(q, k, v).sum()
        with fk.counting() as inner:
            out.backward()
    assert models(outer) == (3 * FULL, 3 * SEEN)
    assert inner.model_flops == 2 * FULL


@DEVICES
def test_counts_within_counts(device):
    q, k, v = three(device)
    with fk.counting() as outer:
        for _ in range(2):
            with fk.counting(attention="math") as inner:
                causal(q, k, v).sum().backward()
            assert models(inner) == (3 * FULL, 3 * SEEN)
            assert inner.recompute.flops == 0
    assert models(outer) == (6 * FULL, 6 * SEEN)
    assert outer.recompute.flops == FULL


# -- transformations ------------------------------------------------------------------------------------------


@SLOW
@DEVICES
@pytest.mark.parametrize("in_dims", [(0, 0, 0), (1, 1, 1), (0, None, None), (None, 0, 0)])
def test_under_vmap_the_operators_inside_count(device, in_dims):
    """The CPU's kernel runs once for each, and says what it hides; products that stand for one are attention written out, with a note."""
    qkv = [torch.ones(B, H, L, D, device=device) for _ in in_dims]
    qkv = [t if dim is None else torch.stack([t] * 3, dim) for t, dim in zip(qkv, in_dims, strict=True)]
    report = fk.count(torch.vmap(causal, in_dims=in_dims), *qkv, strict=True)
    assert models(report) == (3 * FULL, 3 * (SEEN if device == "cpu" else FULL))
    assert any("hand-written" in note for note in report.under(EXACT).notes) is (device == "meta")


@DEVICES
def test_under_torch_func_grad(device):
    q, k, v = three(device, grad=False)
    report = fk.count(torch.func.grad(lambda qkv: causal(*qkv).sum()), (q, k, v))
    assert models(report) == (3 * FULL, 3 * SEEN)
    assert phases(report) == (FULL, 2 * FULL, FULL // 2)


def several(device, *sizes, grad=True):
    return [torch.randn(size, device=device, requires_grad=grad) for size in sizes]


def of_attention(report, phase, what="bytes"):
    rows = report.by_op()
    return sum(r[what] for r in rows if r["operator"] == "scaled_dot_product_attention" and r["phase"] == phase)


@SLOW
@DEVICES
@pytest.mark.parametrize("kernel", ["auto", "flash", "math"])
def test_differentiated_after_vmap(device, kernel):
    """A kernel that ran says what it is; products stay products, whatever kernel is to be taken."""
    qkv = several(device, *3 * [(3, B, H, L, D)])
    with fk.counting(attention=kernel, strict=True) as report:
        torch.vmap(causal)(*qkv).sum().backward()
    assert report.model_flops == 9 * FULL
    assert report.recompute.flops == (3 * FULL // 2 if device == "cpu" else 0)


@SLOW
@DEVICES
@pytest.mark.parametrize(("argnums", "products"), [((0,), 2), ((2,), 1), ((0, 1, 2), 4)])
def test_gradients_of_each_sample(device, argnums, products):
    q, k, v = several(device, *3 * [(3, B, H, L, D)], grad=False)
    gradients = torch.func.grad(lambda *qkv: causal(*qkv).sum(), argnums=argnums)
    report = fk.count(torch.vmap(gradients), q, k, v, strict=True)
    assert report.model_flops == 3 * (FULL + products * FULL // 2)


@SLOW
@DEVICES
def test_gradients_of_each_sample_of_a_layer(device):
    """Twice the forward pass, but for the samples, which need no gradient: their projections' inputs."""
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device)
    weights = {name: p.detach() for name, p in layer.named_parameters()}

    def loss(weights, x):
        return torch.func.functional_call(layer, weights, (x[None],)).sum()

    x = torch.randn(3, 5, 16, device=device)
    report = fk.count(torch.vmap(torch.func.grad(loss), in_dims=(None, 0)), weights, x)
    linear = 2 * 3 * 5 * (16 * 48 + 16 * 16 + 2 * 16 * 32)
    assert report.model_flops == 3 * (linear + 4 * 3 * 5 * 5 * 16) - 2 * 3 * 5 * 16 * 48


@SLOW
@DEVICES
@pytest.mark.parametrize("dv", [D, 4])
@pytest.mark.parametrize("need", [(0, 1, 2), (0,), (2,)])
def test_many_output_gradients_at_once(device, dv, need):
    """The backward pass of each, of which a fused kernel makes three gradients and the scores again."""
    qkv = several(device, (B, H, L, D), (B, H, L, D), (B, H, L, dv))
    pairs = 2 * B * H * L * L
    with fk.counting(attention="auto" if dv == D else "flash") as report:
        out = causal(*qkv)
        wanted = [qkv[i] for i in need]
        torch.autograd.grad(out, wanted, torch.randn(6, *out.shape, device=device), is_grads_batched=True)
    products = dv * (2 in need) + dv * (need != (2,)) + D * (0 in need) + D * (1 in need)
    assert report.model_flops == pairs * (D + dv) + 6 * pairs * products
    assert report.hardware_flops == pairs * (D + dv) + 6 * pairs * (3 * D + 2 * dv)
    assert of_attention(report, "backward") == 6 * 4 * 4 * B * H * L * (D + dv)


@SLOW
@DEVICES
def test_a_jacobian_by_rows(device):
    (q,) = several(device, (B, H, L, D), grad=False)
    report = fk.count(torch.func.jacrev(lambda q: causal(q, q, q).sum((1, 3))), q)
    assert models(report) == (FULL + B * L * 2 * FULL, SEEN + B * L * 2 * SEEN)
    assert report.hardware_flops == FULL + B * L * FULL * 5 // 2


@pytest.mark.parametrize("n", [1, 6])
def test_many_gradients_of_a_gradient_where_a_kernel_is_assumed(n):
    """Where the output's gradient is a constant, the scores' node is the first of the call's: its products are of other sizes.

    Of dQ = dS K: dS, as a product. Of S = Q K': Q, where the kernel makes all there is.
    """
    q, k, v = several("meta", (B, H, L, 16), (B, H, L, 16), (B, H, L, 4))
    with fk.counting(strict=True) as report:
        (gradient,) = torch.autograd.grad(causal(q, k, v).sum(), q, create_graph=True)
        many = torch.ones(n, *gradient.shape, device="meta")
        torch.autograd.grad(gradient, q, many, is_grads_batched=True)
    pairs = 2 * B * H * L * L
    assert report.model_flops == pairs * (16 + 4) + pairs * (4 + 16) + n * pairs * (16 + 16)
    assert report.hardware_flops == pairs * (16 + 4) + pairs * (3 * 16 + 2 * 4) + n * pairs * (16 + 3 * 16 + 2 * 4)


def test_forward_mode():
    """Each product has a tangent of each of its sides that has one: here of q and so of the probabilities. They are attention written out."""
    q, k, v = three("meta", grad=False)
    report = fk.count(lambda: torch.func.jvp(lambda q: causal(q, k, v), (q,), (q,)))
    assert report.model_flops == report.forward.flops
    assert any("hand-written" in note for note in report.under(EXACT).notes)

    def dual():
        with torch.autograd.forward_ad.dual_level():
            causal(torch.autograd.forward_ad.make_dual(q, q), k, v)

    assert models(fk.count(dual)) == models(report)
    assert report.model_flops >= 2 * FULL


# -- programs that are stored ---------------------------------------------------------------------------------


def written(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


class Attention(torch.nn.Module):
    def forward(self, q, k, v):
        return causal(q, k, v)


@DEVICES
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")  # TorchScript is on its way out
@pytest.mark.parametrize("dv", [D, 4])
def test_torchscript(device, dv):
    scripted = torch.jit.script(written)
    q, k, v = three(device)
    v = v[..., :dv].detach().requires_grad_()
    share = (D + dv) / (2 * D)
    report = fk.count(lambda: scripted(q, k, v).sum().backward(), strict=True)
    assert models(report) == (3 * FULL * share, 3 * SEEN * share)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            assert models(fk.count(scripted, q, k, v)) == (FULL * share, SEEN * share)


@DEVICES
def test_exported(device):
    q, k, v = three(device)
    program = torch.export.export(Attention(), (q, k, v)).module()
    report = fk.count(lambda: program(q, k, v).sum().backward(), strict=True)
    assert models(report) == (3 * FULL, 3 * SEEN)
    assert phases(report.under(EXACT)) == (SEEN, 2 * SEEN, SEEN // 2)


def test_compiled():
    q, k, v = three()
    compiled = torch.compile(causal, backend="aot_eager")
    for _ in range(2):
        assert models(fk.count(lambda: compiled(q, k, v).sum().backward())) == (3 * FULL, 3 * SEEN)


# -- what may go wrong ----------------------------------------------------------------------------------------


@DEVICES
def test_a_call_that_fails_costs_nothing_and_leaves_nothing(device):
    q, k, v = three(device)
    with fk.counting() as report:
        with pytest.raises(RuntimeError):
            causal(q, k[..., :3], v)
        (q * 2).sum()
        causal(q, k, v)
    assert models(report) == (FULL, SEEN)
    assert {row["operator"] for row in report.by_op() if row["vector_flops"]} == {
        "mul",
        "sum",
        "scaled_dot_product_attention",
    }


# -- where no function mode is asked --------------------------------------------------------------------------


class Added(torch.Tensor):
    """A tensor whose sum is attention."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return causal(*THREE) if func is torch.add else func(*args, **(kwargs or {}))


THREE = three("meta")
ADDED = torch.ones(1).as_subclass(Added)
Disabled = torch._C.DisableTorchFunction


def without_functions():
    with torch._C.DisableTorchFunction():
        causal(*THREE)


def without_functions_by_another_name():  # as in an extension: told by the first operator
    with Disabled():
        causal(*(t + 1 for t in THREE))


def in_a_subclass():
    torch.add(ADDED, 1)


@pytest.mark.parametrize("program", [without_functions, without_functions_by_another_name, in_a_subclass])
def test_where_no_function_mode_is_asked(program):
    assert models(fk.count(program, strict=True)) == (FULL, SEEN)


def test_nothing_remains_in_torch():
    q, k, v = three()
    kernels = torch._C._dispatch_dump("aten::scaled_dot_product_attention")
    layer, x = torch.nn.MultiheadAttention(8, 2), torch.ones(5, 1, 8)
    with pytest.raises(ZeroDivisionError), fk.counting():
        layer.out_proj(x)
        layer(x, x, x)
        assert torch._C._dispatch_dump("aten::scaled_dot_product_attention") != kernels
        raise ZeroDivisionError
    assert torch._C._dispatch_dump("aten::scaled_dot_product_attention") == kernels
    assert causal(q, k, v).grad_fn.name().startswith("ScaledDotProductFlashAttentionForCpu")


def test_threads_beside_each_other():
    def work():
        q, k, v = three()
        for _ in range(5):
            causal(q, k, v).sum().backward()

    def run():
        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert models(fk.count(run)) == (4 * 5 * 3 * FULL, 4 * 5 * 3 * SEEN)


def test_the_same_call_many_times_is_one_line():
    q, k, v = three(grad=False)
    with fk.counting() as report:
        for _ in range(200):
            causal(q, k, v)
    assert models(report) == (200 * FULL, 200 * SEEN)
    assert [row["calls"] for row in report.by_op() if row["operator"] == "scaled_dot_product_attention"] == [200]
