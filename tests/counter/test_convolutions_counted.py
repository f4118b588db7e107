"""Convolutions: taps times channels of a group for every position, forward, and the same again for each gradient."""

import math

import pytest
import torch
import torch.nn.functional as F
from cases import WAYS, Table, call, g, t
from hypothesis import given, settings, strategies as st
from programs import PLACES, at, backward, count, leaf, passes, row

import flopkit as fk
from flopkit import tally
from flopkit.counter.calls import OpCall
from flopkit.counter.registry import FORMULAS

nn = torch.nn
CONV = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
AXES = {1: ("l",), 2: ("h", "w"), 3: ("d", "h", "w")}


def by_loops(image, c_out, result, groups, kernel, transposed=False):
    """Multiply-adds of N images: every output position of every channel and group, one tap and input channel after the other."""
    n, c_in, *inside = image
    positions = math.prod(inside if transposed else result)
    channels = (c_in, c_out // groups) if transposed else (c_out, c_in // groups)
    macs = 0
    for _ in range(n):
        for _ in range(channels[0]):
            for _ in range(positions):
                for _ in range(channels[1]):
                    macs += math.prod(kernel)
    return macs


LAYERS = {
    "plain": (2, dict(kernel_size=3)),
    "strided and padded": (2, dict(kernel_size=3, stride=2, padding=1)),
    "dilated": (2, dict(kernel_size=(3, 2), dilation=2)),
    "grouped": (2, dict(kernel_size=3, groups=2)),
    "depthwise": (2, dict(kernel_size=3, groups=4)),
    "pointwise": (2, dict(kernel_size=1, bias=False)),
    "same": (2, dict(kernel_size=(3, 4), padding="same")),
    "same, dilated, 1-D": (1, dict(kernel_size=4, padding="same", dilation=3)),
    "valid": (2, dict(kernel_size=3, padding="valid")),
    "circular": (2, dict(kernel_size=3, padding=1, padding_mode="circular")),
    "replicate": (1, dict(kernel_size=3, padding=1, padding_mode="replicate")),
    "1-D": (1, dict(kernel_size=3)),
    "3-D": (3, dict(kernel_size=(1, 2, 3))),
    "3-D depthwise": (3, dict(kernel_size=3, groups=4)),
}
IMAGES = {1: (2, 4, 13), 2: (2, 4, 10, 9), 3: (2, 4, 5, 6, 7)}


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("name", LAYERS)
def test_layers(name, place):
    dims, options = LAYERS[name]
    image = IMAGES[dims]
    with at(place) as device:
        layer = CONV[dims](4, 8, **options, device=device)
        x = leaf(*image, device=device)
        result = layer(x).shape[2:]
        macs = by_loops(image, 8, result, layer.groups, layer.kernel_size)
        assert passes(lambda: layer(x)) == (2 * macs, 4 * macs)
        with torch.no_grad():
            report = fk.count(layer, x)
    assert report.flops == 2 * macs
    found = row(report, "convolution")
    assert found["vector_flops"] == (layer.bias is not None) * 2 * 8 * math.prod(result)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [dict(stride=2), dict(groups=2, stride=2, output_padding=1), dict(dilation=2, padding=1)], ids=str
)
def test_transposed_layers(dims, options, place):
    """2·N·C_in·(input positions)·(C_out/groups)·taps."""
    image = IMAGES[dims]
    with at(place) as device:
        layer = TRANSPOSED[dims](4, 6, 3, **options, device=device)
        x = leaf(*image, device=device)
        macs = by_loops(image, 6, (), layer.groups, (3,) * dims, transposed=True)
        assert passes(lambda: layer(x)) == (2 * macs, 4 * macs)


@settings(max_examples=12, deadline=None)
@given(
    batch=st.integers(0, 3),
    groups=st.integers(1, 3),
    c_in=st.integers(1, 2),
    c_out=st.integers(1, 2),
    kernel=st.integers(1, 3),
    size=st.integers(3, 6),
    frozen=st.sampled_from(["", "image", "weight"]),
)
def test_each_gradient_is_as_much_as_the_forward_pass(batch, groups, c_in, c_out, kernel, size, frozen):
    x = leaf(batch, groups * c_in, size, size, grad=frozen != "image")
    w = leaf(groups * c_out, c_in, kernel, kernel, grad=frozen != "weight")
    macs = by_loops(x.shape, groups * c_out, (size - kernel + 1,) * 2, groups, (kernel, kernel))
    assert passes(lambda: F.conv2d(x, w, groups=groups)) == (2 * macs, 2 * macs * (2 - bool(frozen)))


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
def test_formulas_and_loops_agree(dims, transposed):
    """FLOPs and bytes of `fk.conv…` with the same sizes, and the multiply-adds of its tally."""
    sizes = (5, 4, 3)[:dims]
    layer = (TRANSPOSED if transposed else CONV)[dims](4, 6, 2, stride=2, groups=2, bias=False)
    x = torch.ones(2, 4, *sizes)
    name = f"conv_transpose{dims}d" if transposed else f"conv{dims}d"
    report = row(fk.count(layer, x), "convolution")
    result = layer(x).shape[2:]
    given_sizes = dict(batch=2, c_in=4, c_out=6, kernel=2, stride=2, groups=2)
    if transposed:
        given_sizes |= {f"{axis}_in": n for axis, n in zip(AXES[dims], sizes, strict=True)}
        given_sizes |= {f"{axis}_out": n for axis, n in zip(AXES[dims], result, strict=True)}
    else:
        given_sizes |= {f"{axis}_out": n for axis, n in zip(AXES[dims], result, strict=True)}
        given_sizes |= {f"{axis}_in": n for axis, n in zip(AXES[dims], sizes, strict=True)}
    cost = getattr(fk, name)(**given_sizes, dtype="fp32")
    assert (report["flops"], report["bytes"]) == (cost.flops, cost.bytes)
    if transposed:
        given_sizes = {size: n for size, n in given_sizes.items() if not size.endswith("_out") or size == "c_out"}
    assert report["flops"] == getattr(tally, name)(**given_sizes).flops


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64], ids=str)
def test_dtypes(dtype):
    layer = nn.Conv2d(4, 6, 3, bias=False, dtype=dtype)
    report = fk.count(layer, torch.ones(2, 4, 10, 9, dtype=dtype))
    assert report.flops == 2 * 2 * 6 * 56 * 4 * 9
    assert report.bytes == (2 * 4 * 90 + 6 * 4 * 9 + 2 * 6 * 56) * torch.empty((), dtype=dtype).element_size()


def test_unbatched_empty_and_channels_last():
    macs = 6 * 56 * 4 * 9
    layer = nn.Conv2d(4, 6, 3)
    assert passes(lambda: layer(leaf(4, 10, 9))) == (2 * macs, 4 * macs)
    assert passes(lambda: layer(leaf(0, 4, 10, 9))) == (0, 0)
    x = torch.randn(2, 4, 10, 9).to(memory_format=torch.channels_last).requires_grad_()
    assert passes(lambda: layer.to(memory_format=torch.channels_last)(x)) == (4 * macs, 8 * macs)
    assert fk.count(nn.LazyConv2d(6, 3), torch.ones(2, 4, 10, 9)).flops == 4 * macs
    unbatched = nn.ConvTranspose2d(4, 6, 3)
    assert passes(lambda: unbatched(leaf(4, 10, 9))) == (2 * 4 * 90 * 6 * 9, 4 * 4 * 90 * 6 * 9)


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("place", PLACES)
def test_double_backward(place, transposed):
    """Of |dx|² + |dw|²: 2 for the gradients themselves, 2 to differentiate each of them, 2 for what comes back to the image and weight."""
    with at(place) as device:
        x = leaf(2, 4, 8, 8, device=device)
        w = leaf(4, 3, 3, 3, device=device) if transposed else leaf(6, 2, 3, 3, device=device)
        run = F.conv_transpose2d if transposed else F.conv2d

        def twice():
            gradients = torch.autograd.grad(run(x, w, groups=2).pow(2).sum(), [x, w], create_graph=True)
            backward(sum(g.pow(2).sum() for g in gradients))

        report = fk.count(twice)
    assert report.backward.flops == 8 * report.forward.flops > 0


def test_backward_reads_and_writes_what_is_asked_for():
    x, w = leaf(2, 4, 8, 8), leaf(6, 2, 3, 3)
    image, weight, result = 2 * 4 * 64 * 4, 6 * 2 * 9 * 4, 2 * 6 * 36 * 4
    for frozen, moved in (
        (None, result + 2 * image + 2 * weight),
        ("x", result + image + weight),
        ("w", result + weight + image),
    ):
        a, b = (x.detach() if frozen == "x" else x), (w.detach() if frozen == "w" else w)
        report = count(lambda a=a, b=b: F.conv2d(a, b, groups=2))
        assert row(report, "convolution_backward", "backward")["bytes"] == moved


@pytest.mark.parametrize("place", PLACES)
def test_time_batch_channels(place):
    with at(place) as device:
        x, w, b = leaf(7, 2, 4, device=device), leaf(3, 4, 6, device=device), leaf(6, device=device)
        macs = 5 * 2 * 6 * 3 * 4
        assert passes(lambda: torch.conv_tbc(x, w, b)) == (2 * macs, 4 * macs)


@pytest.mark.parametrize("place", PLACES)
def test_unfold_and_a_product_is_the_same_work(place):
    with at(place) as device:
        x, w = leaf(2, 4, 10, 9, device=device), leaf(6, 36, device=device)
        macs = 2 * 6 * 56 * 36
        assert passes(lambda: w @ F.unfold(x, 3)) == (2 * macs, 4 * macs)


def test_under_vmap_and_forward_mode():
    macs = 2 * 6 * 56 * 4 * 9
    assert (
        fk.count(torch.func.vmap(lambda x: F.conv2d(x, torch.ones(6, 4, 3, 3))), torch.ones(5, 2, 4, 10, 9)).flops
        == 10 * macs
    )
    mapped = torch.func.vmap(F.conv2d)
    assert fk.count(mapped, torch.ones(5, 2, 4, 10, 9), torch.ones(5, 6, 4, 3, 3)).flops == 10 * macs
    pair = (torch.ones(2, 4, 10, 9), torch.ones(6, 4, 3, 3))
    assert fk.count(torch.func.jvp, F.conv2d, pair, pair).flops == 3 * 2 * macs


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("place", PLACES)
def test_complex(place, transposed):
    """torch runs three real convolutions, one of them on sums, and so many count. The mathematics asks for four, and a note says so."""
    with at(place) as device:
        layer = (nn.ConvTranspose2d if transposed else nn.Conv2d)(4, 6, 3, dtype=torch.complex64, device=device)
        x = leaf(2, 4, 10, 9, dtype=torch.complex64, device=device)
        macs = 2 * 4 * 90 * 6 * 9 if transposed else 2 * 6 * 56 * 4 * 9
        report = count(lambda: layer(x))
        assert (report.forward.flops, report.backward.flops) == (3 * 2 * macs, 3 * 4 * macs)
        assert report.model_flops == report.flops
        assert any("three real ones" in note for note in report.notes)
    assert fk.count(nn.Conv2d(4, 6, 3), torch.ones(2, 4, 10, 9)).notes == []


def test_complex_double_backward_and_two_layers():
    x = leaf(2, 4, 8, 8, dtype=torch.complex64)
    w, v = leaf(6, 2, 3, 3, dtype=torch.complex64), leaf(6, 1, 3, 3, dtype=torch.complex64)
    once = 6 * (2 * 6 * 36 * 2 * 9)

    def twice():
        gradients = torch.autograd.grad(F.conv2d(x, w, groups=2).abs().pow(2).sum(), [x, w], create_graph=True)
        backward(sum(g.abs().pow(2).sum() for g in gradients))

    assert fk.count(twice).model_flops == 9 * once
    report = fk.count(lambda: backward(F.conv2d(F.conv2d(x, w, groups=2), v, groups=6)))
    assert report.model_flops == 3 * (once + 6 * (2 * 6 * 16 * 9))


def test_kernels_that_are_called_by_name():
    x, w = torch.ones(2, 4, 10, 9), torch.ones(6, 4, 3, 3)
    flops = 2 * 2 * 6 * 56 * 36
    assert fk.count(torch.mkldnn_convolution, x, w, None, [0, 0], [1, 1], [1, 1], 1).flops == flops
    packed = x.to_mkldnn()
    assert fk.count(F.conv2d, packed, w.to_mkldnn()).forward.flops == flops


def test_kernels_of_gpus_and_complex_numbers():
    """Called by hand. A bias, what is added and a relu are one FLOP a number each; a complex multiply-add is four of real numbers."""
    with torch.device("meta"):
        x, w, b, out = torch.empty(2, 4, 10, 9), torch.empty(6, 4, 3, 3), torch.empty(6), torch.empty(2, 6, 8, 7)
        sequence, taps, later = torch.empty(9, 2, 4), torch.empty(3, 4, 6), torch.empty(7, 2, 6)
    macs, results, rest = 2 * 6 * 56 * 36, 2 * 6 * 56, ([1, 1], [0, 0], [1, 1], 1)

    def work(name, args, out):
        found = FORMULAS[f"aten::{name}"](OpCall(getattr(torch.ops.aten, name).default, args, {}, out))
        return found.model["products"], found.vector.get("elementwise", 0)

    assert work("cudnn_convolution_relu", (x, w, b, *rest), out) == (macs, 2 * results)
    assert work("cudnn_convolution_relu", (x, w, None, *rest), out) == (macs, results)
    assert work("cudnn_convolution_add_relu", (x, w, out, 1.0, b, *rest), out) == (macs, 3 * results)
    assert work("cudnn_convolution_add_relu", (x, w, out, 1.0, None, *rest), out) == (macs, 2 * results)
    kind = torch.complex64
    given = (x.to(kind), w.to(kind), None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    assert work("convolution", given, out.to(kind)) == (4 * macs, 0)
    macs = 7 * 2 * 6 * 3 * 4
    assert work("conv_tbc", (sequence, taps, torch.empty(6, device="meta")), later) == (macs, 7 * 2 * 6)
    assert work("conv_tbc", (sequence.to(kind), taps.to(kind), None), later.to(kind))[0] == 4 * macs


def test_the_gradient_of_a_bias_is_a_sum():
    x, w, b = torch.ones(2, 4, 10, 9), torch.ones(6, 4, 3, 3), leaf(6)
    report = fk.count(lambda: backward(F.conv2d(x, w.requires_grad_(), b)))
    assert row(report, "convolution_backward", "backward")["vector_flops"] == 2 * 6 * 56
    report = fk.count(lambda: backward(F.conv2d(x, w.requires_grad_())))
    assert row(report, "convolution_backward", "backward")["vector_flops"] == 0


# -- a table: every way of running -----------------------------------------------------------------------------------

TABLE = Table()
case = TABLE.case
C64 = torch.complex64

# fmt: off
case("conv1d", lambda: call(nn.Conv1d(3, 5, 4, stride=2), g(2, 3, 16)), 2 * 2 * 5 * 7 * 3 * 4, 4 * 2 * 5 * 7 * 3 * 4)
case("conv2d", lambda: call(nn.Conv2d(3, 5, 3, padding=1), g(2, 3, 8, 9)), 2 * 2 * 5 * 72 * 3 * 9, 4 * 2 * 5 * 72 * 27)
case("conv2d, first layer", lambda: call(nn.Conv2d(3, 5, 3, padding=1), t(2, 3, 8, 9)), 2 * 2 * 5 * 72 * 27, 2 * 2 * 5 * 72 * 27)
case("conv3d", lambda: call(nn.Conv3d(2, 4, 3), g(1, 2, 5, 6, 7)), 2 * 4 * 60 * 2 * 27, 4 * 4 * 60 * 54)
case("conv2d, unbatched", lambda: call(nn.Conv2d(3, 5, 3), g(3, 8, 8)), 2 * 5 * 36 * 27, 4 * 5 * 36 * 27)
case("conv2d, empty batch", lambda: call(nn.Conv2d(3, 5, 3), g(0, 3, 8, 8)), 0, 0)
case("conv2d, groups", lambda: call(nn.Conv2d(6, 9, 3, groups=3), g(2, 6, 8, 8)), 2 * 2 * 9 * 36 * 2 * 9, 4 * 2 * 9 * 36 * 18)
case("conv2d, depthwise", lambda: call(nn.Conv2d(6, 6, 3, groups=6), g(2, 6, 8, 8)), 2 * 2 * 6 * 36 * 9, 4 * 2 * 6 * 36 * 9)
case("conv2d, multiplier 2", lambda: call(nn.Conv2d(6, 12, 3, groups=6), g(2, 6, 8, 8)), 2 * 2 * 12 * 36 * 9, 4 * 2 * 12 * 36 * 9)
case("conv2d, dilation", lambda: call(nn.Conv2d(3, 5, 3, dilation=2), g(1, 3, 8, 9)), 2 * 5 * 4 * 5 * 27, 4 * 5 * 20 * 27)
case("conv2d, stride", lambda: call(nn.Conv2d(3, 5, (3, 2), stride=(2, 3)), g(1, 3, 8, 9)), 2 * 5 * 9 * 18, 4 * 5 * 9 * 18)
case("conv2d, 1 × 1", lambda: call(nn.Conv2d(3, 5, 1), g(2, 3, 8, 8)), 2 * 2 * 5 * 64 * 3, 4 * 2 * 5 * 64 * 3)
case("conv2d, same, even kernel", lambda: call(nn.Conv2d(3, 5, 4, padding="same"), g(1, 3, 8, 8)), 2 * 5 * 64 * 48, 4 * 5 * 64 * 48)
case("conv1d, same, dilated", lambda: call(nn.Conv1d(3, 5, 4, padding="same", dilation=3), g(1, 3, 16)), 2 * 5 * 16 * 12, 4 * 5 * 16 * 12)
case("conv1d, circular", lambda: call(nn.Conv1d(3, 5, 3, padding=1, padding_mode="circular"), g(2, 3, 16)), 2 * 2 * 5 * 16 * 9, 4 * 2 * 5 * 16 * 9)
case("conv2d, channels last", lambda: call(nn.Conv2d(3, 5, 3), t(2, 3, 8, 8).contiguous(memory_format=torch.channels_last)), 2 * 2 * 5 * 36 * 27, 2 * 2 * 5 * 36 * 27)
# torch makes three real ones of it, not four
case("conv2d, complex", lambda: call(nn.Conv2d(3, 5, 3, bias=False, dtype=C64), t(1, 3, 8, 8, dtype=C64)), 6 * 5 * 36 * 27, 6 * 5 * 36 * 27)
case("conv2d, bfloat16", lambda: call(nn.Conv2d(3, 5, 3, dtype=torch.bfloat16), g(1, 3, 8, 8, dtype=torch.bfloat16)), 2 * 5 * 36 * 27, 4 * 5 * 36 * 27)
case("transposed 1-D", lambda: call(nn.ConvTranspose1d(3, 5, 4, stride=2), g(2, 3, 9)), 2 * 2 * 3 * 9 * 5 * 4, 4 * 2 * 3 * 9 * 20)
case("transposed 2-D", lambda: call(nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1, groups=2), g(2, 4, 5, 5)),
     2 * 2 * 4 * 25 * 3 * 9, 4 * 2 * 4 * 25 * 27)
case("transposed 3-D", lambda: call(nn.ConvTranspose3d(2, 3, 2, dilation=2), g(1, 2, 3, 3, 3)), 2 * 2 * 27 * 3 * 8, 4 * 2 * 27 * 24)
case("unfold and a product", lambda: call(lambda x, w: w @ F.unfold(x, 3), t(2, 3, 8, 8), g(5, 27)), 2 * 2 * 5 * 27 * 36, 2 * 2 * 5 * 27 * 36)
case("conv_tbc", lambda: call(torch.conv_tbc, t(9, 2, 3), t(4, 3, 5), t(5)), 2 * 6 * 2 * 5 * 3 * 4)
case("batch norm, pool, relu", lambda: call(nn.Sequential(nn.BatchNorm2d(3), nn.ReLU(), nn.MaxPool2d(2), nn.AdaptiveAvgPool2d(1)), g(2, 3, 8, 8)), 0, 0)
# fmt: on


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel lengths")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLE)
def test_flops(name, way):
    TABLE.check(name, way)
