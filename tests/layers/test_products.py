"""Products and convolutions: named values, and what must hold for all sizes."""

import inspect
import itertools
import math
import random

import pytest
from hypothesis import given, settings, strategies as st

import flopkit as fk

quick = settings(deadline=None, max_examples=60, derandomize=True)
few = st.integers(1, 8)
some = st.integers(1, 64)
big = st.integers(1, 10**6)


def same(one, other):
    return all(
        getattr(one, name) == getattr(other, name) for name in ("flops", "macs", "vector_flops", "bytes", "params")
    )


def test_values_of_the_contract():
    assert fk.matmul(m=5, k=3, n=7).flops == 210
    convolution = fk.conv2d(batch=5, c_in=24, c_out=16, h_out=9, w_out=4, kernel=3, groups=8)
    assert convolution.flops == 2 * 5 * 16 * (9 * 4) * (24 // 8) * (3 * 3) == 155_520
    assert fk.matmul(m=4096, k=4096, n=4096).flops == 137_438_953_472  # the 137.4 GFLOPs of the front page


def test_inner_size_one_counts_like_any_other():
    assert fk.matmul(m=5, k=1, n=7).flops == 70


def test_a_complex_multiply_add_is_eight_flops():
    """(a + bi)(c + di) takes four real multiplications and two additions; adding it to a sum takes two more."""
    real, complex_ = fk.matmul(m=5, k=3, n=7), fk.matmul(m=5, k=3, n=7, dtype="complex64")
    assert complex_.flops == 8 * 5 * 3 * 7 == 4 * real.flops
    assert complex_.bytes == 8 * (15 + 21 + 35)
    assert fk.dense(tokens=5, d_in=3, d_out=7, bias=True, dtype="complex64").vector_flops == 2 * 35
    for name, side in (("conv1d", "l_out"), ("conv_transpose1d", "l_in")):
        sizes = {"batch": 2, "c_in": 3, "c_out": 4, side: 5, "kernel": 3, "dtype": "complex64"}
        layer = getattr(fk, name)(**sizes, bias=True)
        assert layer.flops == 8 * 2 * 5 * 3 * 4 * 3
        assert layer.vector_flops == 2 * (2 * 4 * 5)  # a real and an imaginary part for each output


def test_packed_formats_round_up_tensor_by_tensor():
    cost = fk.matmul(m=1, k=3, n=1, dtype="fp4")  # 3, 3 and 1 numbers of half a byte
    assert cost.bytes == 2 + 2 + 1
    assert fk.dense(tokens=1, d_in=3, d_out=3, bias=True, dtype="int4").bytes == 2 + 5 + 2 + 2


@quick
@given(m=big, k=big, n=big, batch=few)
def test_matmul(m, k, n, batch):
    cost = fk.matmul(m=m, k=k, n=n, batch=batch)
    assert cost.flops == 2 * cost.macs == 2 * batch * m * k * n
    assert cost.bytes == 2 * batch * (m * k + k * n + m * n)
    assert (cost.params, cost.vector_flops) == (0, 0)
    assert same(cost, batch * fk.matmul(m=m, k=k, n=n))
    assert same(cost, fk.matmul(m=n, k=k, n=m, batch=batch))  # (AB)ᵀ = BᵀAᵀ


@quick
@given(tokens=big, d_in=big, d_out=few | big)
def test_a_dense_layer_is_a_product_whose_right_side_is_trained(tokens, d_in, d_out):
    layer, product = fk.dense(tokens=tokens, d_in=d_in, d_out=d_out), fk.matmul(m=tokens, k=d_in, n=d_out)
    assert (layer.flops, layer.bytes) == (product.flops, product.bytes)
    assert layer.params == d_in * d_out
    biased = fk.dense(tokens=tokens, d_in=d_in, d_out=d_out, bias=True)
    assert biased.flops == layer.flops  # a bias is vector work
    assert (biased.vector_flops, biased.params - layer.params) == (tokens * d_out, d_out)
    assert biased.bytes - layer.bytes == 2 * d_out


@quick
@given(batch=few, c_in=some, c_out=some, h=some, w=some, kernel=st.integers(1, 7))
def test_one_group_is_dense(batch, c_in, c_out, h, w, kernel):
    """An ungrouped convolution is a dense layer on patches; groups=1 is the default."""
    sizes = dict(batch=batch, c_in=c_in, c_out=c_out, h_out=h, w_out=w, kernel=kernel)
    patches = fk.dense(tokens=batch * h * w, d_in=c_in * kernel**2, d_out=c_out)
    convolution = fk.conv2d(**sizes)
    assert (convolution.flops, convolution.params) == (patches.flops, patches.params)
    assert same(convolution, fk.conv2d(**sizes, groups=1))


@quick
@given(batch=few, c_in=some, c_out=some, h=some, w=some, bias=st.booleans())
def test_a_one_by_one_convolution_is_dense(batch, c_in, c_out, h, w, bias):
    convolution = fk.conv2d(batch=batch, c_in=c_in, c_out=c_out, h_out=h, w_out=w, kernel=1, bias=bias)
    assert same(convolution, fk.dense(tokens=batch * h * w, d_in=c_in, d_out=c_out, bias=bias))


@quick
@given(groups=few, c_in=few, c_out=few, h=some, kernel=few)
def test_groups_divide_the_work_and_the_weight(groups, c_in, c_out, h, kernel):
    sizes = dict(batch=2, c_in=groups * c_in, c_out=groups * c_out, h_out=h, w_out=h, kernel=kernel)
    grouped, whole = fk.conv2d(**sizes, groups=groups), fk.conv2d(**sizes)
    assert (groups * grouped.flops, groups * grouped.params) == (whole.flops, whole.params)
    one = fk.conv2d(batch=2, c_in=c_in, c_out=c_out, h_out=h, w_out=h, kernel=kernel)
    assert same(grouped, groups * one)  # which are that many small convolutions side by side


@quick
@given(channels=some, h=some, kernel=few)
def test_depthwise(channels, h, kernel):
    cost = fk.conv2d(batch=1, c_in=channels, c_out=channels, h_out=h, w_out=h, kernel=kernel, groups=channels)
    assert cost.flops == 2 * channels * h * h * kernel**2
    assert cost.params == channels * kernel**2


@quick
@given(h=some, w=some, stride=few, dilation=few)
def test_stride_and_dilation_cost_nothing_at_a_given_output(h, w, stride, dilation):
    sizes = dict(batch=1, c_in=8, c_out=8, h_out=h, w_out=w, kernel=3)
    plain, wide = fk.conv2d(**sizes), fk.conv2d(**sizes, stride=stride, dilation=dilation)
    assert (plain.flops, plain.params) == (wide.flops, wide.params)
    inputs = (wide.bytes - plain.bytes) // 2  # and the input is taken as output times stride
    assert inputs == 8 * (h * stride * w * stride - h * w)


@quick
@given(c_in=some, c_out=some, length=some, kernel=few, stride=few)
def test_fewer_dimensions_are_a_dimension_of_one(c_in, c_out, length, kernel, stride):
    line = fk.conv1d(batch=2, c_in=c_in, c_out=c_out, l_out=length, kernel=kernel, stride=stride)
    rest = dict(batch=2, c_in=c_in, c_out=c_out)
    assert same(line, fk.conv2d(**rest, h_out=1, w_out=length, kernel=(1, kernel), stride=(1, stride)))
    assert same(line, fk.conv3d(**rest, d_out=1, h_out=1, w_out=length, kernel=(1, 1, kernel), stride=(1, 1, stride)))
    up = fk.conv_transpose1d(**rest, l_in=length, kernel=kernel, stride=stride)
    assert same(up, fk.conv_transpose2d(**rest, h_in=1, w_in=length, kernel=(1, kernel), stride=(1, stride)))
    assert same(
        up, fk.conv_transpose3d(**rest, d_in=1, h_in=1, w_in=length, kernel=(1, 1, kernel), stride=(1, 1, stride))
    )


@quick
@given(groups=few, c_in=few, c_out=few, h=some, w=some, kernel=few, stride=few)
def test_a_transposed_convolution_is_the_input_gradient_of_a_convolution(groups, c_in, c_out, h, w, kernel, stride):
    """Each forward multiply-add x·w → y has one backward: dy·w → dx. Channels and sides change places."""
    c_in, c_out = groups * c_in, groups * c_out
    forward = fk.conv2d(
        batch=2, c_in=c_in, c_out=c_out, h_out=h, w_out=w, kernel=kernel, groups=groups, stride=stride,
    )  # fmt: skip
    backward = fk.conv_transpose2d(
        batch=2, c_in=c_out, c_out=c_in, h_in=h, w_in=w, kernel=kernel, groups=groups, stride=stride,
    )  # fmt: skip
    assert same(forward, backward)


@pytest.mark.parametrize(
    "layer",
    [
        fk.conv1d,
        fk.conv2d,
        fk.conv3d,
        fk.conv_transpose1d,
        fk.conv_transpose2d,
        fk.conv_transpose3d,
        fk.training.conv2d_backward,
    ],
)
def test_the_plain_convolution_is_the_default(layer):
    parameters = inspect.signature(layer).parameters
    assert [parameters[key].default for key in ("groups", "stride", "dilation", "bias")] == [1, 1, 1, False]


@pytest.mark.parametrize("stride", [1, 2])
def test_input_that_is_given_is_what_is_read(stride):
    default = fk.conv2d(batch=1, c_in=1, c_out=1, h_out=10, w_out=10, kernel=3, stride=stride)
    said = fk.conv2d(
        batch=1, c_in=1, c_out=1, h_out=10, w_out=10, kernel=3, stride=stride, h_in=10 * stride, w_in=10 * stride
    )
    assert same(default, said)
    unpadded = fk.conv2d(batch=1, c_in=1, c_out=1, h_out=10, w_out=10, kernel=3, h_in=12, w_in=12)
    assert unpadded.bytes == 2 * (144 + 9 + 100)


@quick
@given(
    size_in=some, kernel=few, stride=few, padding=st.integers(0, 4), dilation=st.integers(1, 3),
)  # fmt: skip
def test_conv_output_is_torch_s(size_in, kernel, stride, padding, dilation):
    import torch

    layer = torch.nn.Conv1d(1, 1, kernel, stride, padding, dilation, device="meta")
    x = torch.empty(1, 1, size_in, device="meta")
    if dilation * (kernel - 1) + 1 > size_in + 2 * padding:
        with pytest.raises(ValueError, match="kernel=.*padding of at least"):
            fk.layers.positions.conv_output(
                size_in=size_in, kernel=kernel, stride=stride, padding=padding, dilation=dilation
            )
    else:
        found = fk.layers.positions.conv_output(
            size_in=size_in, kernel=kernel, stride=stride, padding=padding, dilation=dilation
        )
        assert found == layer(x).shape[-1]


def test_padding_decides_whether_a_kernel_fits():
    """A kernel of 5 with gaps of 2 reaches over 9 positions: 3 with a padding of 3 on each side are 9, without it they are 3."""
    assert fk.layers.positions.conv_output(size_in=3, kernel=5, padding=3, dilation=2) == 1
    assert (
        fk.layers.positions.conv_output(size_in=10, kernel=3) == 8
    )  # a step of 1, no padding and no gaps, where nothing is said
    for size_in, padding in ((8, 0), (6, 1), (4, 2), (2, 3)):
        with pytest.raises(
            ValueError, match=f"reaches over 9 positions and the padded input has only 8: .* at least {padding + 1}$"
        ):
            fk.layers.positions.conv_output(size_in=size_in, kernel=5, padding=padding, dilation=2)


def test_a_kernel_larger_than_its_input_is_refused():
    with pytest.raises(ValueError, match=r"kernel=7 reaches over 7 positions.*h_in=3.*smaller kernel"):
        fk.conv2d(batch=1, c_in=1, c_out=1, h_out=2, w_out=3, kernel=7, h_in=3, w_in=3)
    same_padding = fk.conv2d(batch=1, c_in=1, c_out=1, h_out=3, w_out=3, kernel=7, h_in=3, w_in=3)
    assert same_padding.flops == 2 * 9 * 49  # a kernel of 7 over 3 with a padding of 3 is fine


def test_the_outputs_that_a_padding_gives():
    """Every padding of up to the kernel's reach on each side is laid around the input, and the kernel's places are counted.

    Where the kernel is larger than the input, the two sides are padded alike, or torch's padding="same" keeps the size.
    """
    for size_in, kernel, stride, dilation in itertools.product(range(1, 7), range(1, 5), range(1, 4), range(1, 4)):
        reach = dilation * (kernel - 1) + 1
        paddings = (
            range(2 * reach + 1) if reach <= size_in else [*range(0, 2 * reach + 1, 2), *[reach - 1] * (stride == 1)]
        )
        places = [sum(start % stride == 0 for start in range(size_in + more - reach + 1)) for more in paddings]
        for out in range(1, 3 * reach + size_in):
            layer = dict(
                batch=1, c_in=1, c_out=1, l_in=size_in, l_out=out, kernel=kernel, stride=stride, dilation=dilation
            )
            if out in places:
                assert fk.conv1d(**layer).macs == out * kernel
            else:
                bare = places[0] if reach <= size_in else 0
                said = f"gives {bare} positions without padding and at most {max(places)} with it"
                with pytest.raises(
                    ValueError, match=f"no padding gives l_out={out};|^l_out={out}: a kernel of {kernel} .* {said}"
                ):
                    fk.conv1d(**layer)


@pytest.mark.filterwarnings("ignore:Using padding=.same. with even kernel lengths")
def test_same_padding_under_a_kernel_larger_than_the_input():
    import torch

    layer = torch.nn.Conv1d(1, 1, 4, padding="same", device="meta")
    length = layer(torch.empty(1, 1, 3, device="meta")).shape[-1]
    assert fk.conv1d(batch=1, c_in=1, c_out=1, l_in=3, l_out=length, kernel=4).macs == 3 * 4


AXES = {1: "l", 2: "hw", 3: "dhw"}


@pytest.mark.parametrize("dimensions", AXES)
def test_a_convolution_steps_by_one_unless_it_is_said(dimensions):
    sides = {f"{axis}_out": 4 for axis in AXES[dimensions]}
    layer = getattr(fk, f"conv{dimensions}d")
    plain = layer(batch=1, c_in=1, c_out=1, kernel=1, dtype="int8", **sides)
    assert plain.bytes == 4**dimensions + 1 + 4**dimensions  # input, weight, output: as many positions in as out
    one = {f"{axis}_out": 1 for axis in AXES[dimensions]} | {f"{axis}_in": 4 for axis in AXES[dimensions]}
    assert layer(batch=1, c_in=1, c_out=1, kernel=4, **one).macs == 4**dimensions
    with pytest.raises(ValueError, match="reaches over 7 positions"):  # no symmetric padding makes up for three
        layer(batch=1, c_in=1, c_out=1, kernel=4, dilation=2, **one)


@pytest.mark.parametrize("dimensions", AXES)
def test_a_transposed_convolution_steps_by_one_unless_it_is_said(dimensions):
    sides = {f"{axis}_in": 2 for axis in AXES[dimensions]}
    layer = getattr(fk, f"conv_transpose{dimensions}d")
    plain = layer(batch=1, c_in=1, c_out=1, kernel=1, dtype="int8", **sides)
    assert plain.bytes == 2**dimensions + 1 + 2**dimensions
    five = {f"{axis}_out": 5 for axis in AXES[dimensions]}  # one too many without gaps: 2 positions and 3 taps reach 4
    assert layer(batch=1, c_in=1, c_out=1, kernel=3, dilation=2, **sides, **five).macs == 2**dimensions * 3**dimensions
    with pytest.raises(ValueError, match="over at most 4 positions"):
        layer(batch=1, c_in=1, c_out=1, kernel=3, **sides, **five)


@pytest.mark.parametrize("seed", range(20))
def test_an_output_follows_from_the_input_and_its_padding(seed):
    """As torch.nn has it."""
    rng = random.Random(seed)
    axes = rng.choice((1, 2, 3))
    kernel, stride, padding, dilation = (
        tuple(rng.randint(low, high) for _ in range(axes)) for low, high in ((1, 3), (1, 3), (0, 4), (1, 2))
    )
    torch = pytest.importorskip("torch")
    letters, sides = ("l", "hw", "dhw")[axes - 1], [rng.randint(5, 9) for _ in range(axes)]
    layer = getattr(torch.nn, f"Conv{axes}d")(
        4, 6, kernel, stride, padding, dilation, groups=2, bias=False, device="meta"
    )
    out = layer(torch.empty(3, 4, *sides, device="meta")).shape[2:]
    given = dict(batch=3, c_in=4, c_out=6, kernel=kernel, groups=2, stride=stride, dilation=dilation)
    given |= {f"{letter}_in": side for letter, side in zip(letters, sides, strict=True)}
    ours = getattr(fk, f"conv{axes}d")(**given, padding=padding)
    assert ours.flops == 2 * layer.weight.numel() * 3 * math.prod(out)
    assert ours.bytes == 2 * (3 * 4 * math.prod(sides) + layer.weight.numel() + 3 * 6 * math.prod(out))
    said = {f"{letter}_out": side for letter, side in zip(letters, out, strict=True)}
    if max(padding) == 0:
        assert ours == getattr(fk, f"conv{axes}d")(**given) == getattr(fk, f"conv{axes}d")(**given, **said)


@pytest.mark.parametrize(
    ("sizes", "error", "message"),
    [
        (dict(h_in=8, w_in=8, h_out=8, w_out=8, padding=1), ValueError, "padding=1 beside h_out=8, which says it already: leave one out"),
        (dict(h_in=8), TypeError, r"w_out is missing: give it, or w_in= and padding="),
        (dict(padding=1), TypeError, r"h_out is missing: give it, or h_in= and padding="),
        (dict(h_in=8, w_in=8, padding=-1), ValueError, "padding=-1"),
        (dict(h_in=8, w_in=8, padding=(1, 1, 1)), ValueError, r"padding=\(1, 1, 1\): give one size, or 2 of them"),
        (dict(h_in=2, w_in=8), ValueError, "kernel=3 .* reaches over 3 positions"),
        (dict(h_in=8, w_in=8, padding="same"), (TypeError, ValueError), "padding='same'"),
    ],
)  # fmt: skip
def test_an_output_that_does_not_follow(sizes, error, message):
    with pytest.raises(error, match=message):
        fk.conv2d(batch=1, c_in=1, c_out=1, kernel=3, **sizes)
    assert (
        fk.conv2d(batch=1, c_in=1, c_out=1, kernel=3, h_in=8, w_in=8).flops == 2 * 9 * 36
    )  # without padding, as in torch
