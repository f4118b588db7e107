"""What moves and does not compute, what only looks, and names that mean something else elsewhere."""

import pytest
import torch
import torch.nn.functional as F

import flopkit as fk
from flopkit.counter import registry
from flopkit.counter.calls import OpCall


def counted(fn, *args):
    with torch.no_grad():
        return fk.count(fn, *args, strict=True)


def test_the_same_on_meta_and_on_the_cpu():
    programs = [
        lambda x: torch.cat([x, x]).T.contiguous().flip(0)[1:].clone(),
        lambda x: F.pad(x.masked_fill(x > 0, 0), (1, 2)).tril().roll(1),
        lambda x: x.repeat(2, 3).unfold(1, 4, 2).sum(-1).topk(2).values,
        lambda x: F.softmax(F.gelu(x) + x.mean(-1, keepdim=True), -1).cumsum(0).to(torch.bfloat16),
        lambda x: F.group_norm(x, 2) * torch.arange(10, device=x.device),
        lambda x: F.max_pool1d(F.interpolate(x[None], scale_factor=2), 2),
    ]
    for program in programs:
        there, here = (counted(program, torch.zeros(4, 10, device=device)) for device in ("meta", "cpu"))
        assert (there.vector_flops, there.bytes) == (here.vector_flops, here.bytes)
        assert there.flops == 0 and there.uncounted == []


def test_looking_at_a_tensor_costs_nothing():
    x = torch.ones(4, 10)
    report = counted(
        lambda: (
            x.shape,
            x.stride(),
            x.is_contiguous(),
            x.numel(),
            x[0, 0].item(),
            x.data_ptr(),
            x.detach().requires_grad,
        )
    )
    assert (report.vector_flops, report.bytes) == (0, 0)


def test_a_name_of_aten_in_another_library_is_no_operator_of_aten():
    """`mylib::gelu` may do anything: nobody knows it until somebody says so."""

    @torch.library.custom_op("flopkit_tests::gelu", mutates_args=())
    def gelu(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() @ x.numpy())

    report = fk.count(gelu, torch.ones(4, 4))
    assert [row["operator"] for row in report.uncounted] == ["flopkit_tests.gelu"] and report.vector_flops == 0


def test_a_formula_for_an_operator_that_has_an_argument_named_out():
    @torch.library.custom_op("flopkit_tests::into", mutates_args={"out"})
    def into(x: torch.Tensor, out: torch.Tensor) -> None:
        out.copy_(x)

    fk.formula(into)(lambda x, out: 2 * out.numel())
    try:
        assert fk.count(into, torch.ones(3), torch.zeros(3)).flops == 6
    finally:
        registry.forget(into)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor:UserWarning")
def test_quantised_tensors():
    def quantised(shape):
        return torch.quantize_per_tensor(torch.ones(shape), 0.1, 0, torch.quint8)

    x, y = quantised((4, 10)), quantised((4, 10))
    for name, flops in (("add", 1), ("mul", 1), ("add_relu", 2)):
        report = counted(getattr(torch.ops.quantized, name), x, y, 0.1, 0)
        assert (report.vector_flops, report.bytes) == (flops * 40, 3 * 40), name
    assert counted(torch.ops.quantized.cat, [x, y], 0, 0.1, 0).bytes == 160
    assert counted(x.dequantize).bytes == 40 + 160


@pytest.mark.parametrize("ratio, uncounted", [(1, 0), (3, 0), (0, 1), (-1, 1)])
def test_boxes_of_torchvision(ratio, uncounted):
    """With a sampling_ratio the samples are known: 18 FLOPs for the place of each, 8 for its value, a division; else the boxes say."""
    roi_align = registry.FORMULAS["torchvision::roi_align"]

    class Schema:
        name = "torchvision::roi_align"
        arguments = [
            type("A", (), {"name": n, "kwarg_only": False, "default_value": None})
            for n in ("input", "rois", "sampling_ratio")
        ]
        is_mutable = False

    operator = type("Operator", (), {"_schema": Schema})
    image, boxes, out = torch.zeros(1, 3, 8, 8), torch.zeros(9, 5), torch.zeros(9, 3, 6, 7)
    work = roi_align(OpCall(operator, (image, boxes, ratio), {}, out))
    assert (work.status == "unknown") == bool(uncounted)
    places, values = 9 * 42 * ratio**2, 9 * 3 * 42
    assert sum(work.vector.values()) == (0 if uncounted else 18 * places + values * (8 * ratio**2 + 1))


def vision_call(name, out, **named):
    """A call of an operator of torchvision, which need not be there."""
    arguments = [type("A", (), {"name": n, "kwarg_only": False, "default_value": None}) for n in named]
    schema = type("Schema", (), {"name": f"torchvision::{name}", "arguments": arguments, "is_mutable": False})
    return OpCall(type("Operator", (), {"_schema": schema}), tuple(named.values()), {}, out)


def test_a_convolution_of_pixels_that_are_moved():
    """2 images of 4 channels, 6 filters of 3 × 2 taps in 2 groups, results of 8 × 7. Each tap of each position, in each of 2 groups of offsets: 18 FLOPs for its
    place; for each channel 7 for its value, one more with a mask, backward 8 and 24 for its neighbours; a bias for each result."""
    x, w, b, out = torch.zeros(2, 4, 10, 9), torch.zeros(6, 2, 3, 2), torch.zeros(6), torch.zeros(2, 6, 8, 7)
    results, offsets, columns = 2 * 6 * 56, 2 * 56 * 6 * 2, 2 * 56 * 6 * 4
    for mask, bias in ((False, None), (True, None), (False, b)):
        call = vision_call("deform_conv2d", out, input=x, weight=w, bias=bias, offset_groups=2, use_mask=mask)
        work = registry.FORMULAS["torchvision::deform_conv2d"](call)
        assert work.model == {"products": results * 2 * 6}
        assert work.vector == {"elementwise": 18 * offsets + (7 + mask) * columns + results * (bias is not None)}
    call = vision_call("_deform_conv2d_backward", (x, w, b), grad=out, input=x, weight=w, bias=b, offset_groups=2)
    work = registry.FORMULAS["torchvision::deform_conv2d"](call)
    assert (work.model, work.vector) == (
        {"products": 2 * results * 2 * 6}, {"elementwise": 18 * offsets + (7 + 8 + 24) * columns + results}
    )  # fmt: skip
    one = vision_call("deform_conv2d", out[:, :1], input=x, weight=w[:1], bias=None, offset_groups=1, use_mask=False)
    assert registry.FORMULAS["torchvision::deform_conv2d"](one).vector == {"elementwise": 18 * 2 * 56 * 6 + 7 * columns}
    one = vision_call(
        "_deform_conv2d_backward", (x, w, b), grad=out[:, :1], input=x, weight=w[:1], bias=b, offset_groups=1
    )
    assert registry.FORMULAS["torchvision::deform_conv2d"](one).vector == {
        "elementwise": 18 * 2 * 56 * 6 + 39 * columns + 2 * 56
    }


def test_lists_that_are_filled():
    """Written, not read; into other tensors, those alone."""
    x, y = [torch.ones(3), torch.ones(4)], [torch.ones(3), torch.ones(4)]
    assert counted(torch._foreach_zero_, x).bytes == 4 * 7
    assert counted(lambda: torch.ops.aten._foreach_zero.out(x, out=y)).bytes == 4 * 7
    assert counted(lambda: x[0].fill_(torch.tensor(2.0))).bytes == 4 * 3


def test_numbers_put_into_their_places():
    """Indices of eight bytes are read, so is a number for each; each is written, and read before where something is added. One number for all is read once."""
    x, one = torch.zeros(10, 4), torch.tensor(7.0)
    for places in (0, 1, 2):
        index, rows = torch.arange(places), torch.ones(places, 4)
        assert counted(lambda i=index, r=rows: x.index_copy_(0, i, r)).bytes == places * (8 + 2 * 16)
        assert counted(lambda i=index, r=rows: x.index_add_(0, i, r)).bytes == places * (8 + 3 * 16)
        assert counted(lambda i=index: x.index_put_((i,), one)).bytes == places * (8 + 16) + 4 * (places > 0)
