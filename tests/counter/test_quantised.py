"""Products of integers and of packed weights: an integer multiply-add is one, and a packed weight has the bytes it is packed in."""

import warnings

import pytest
import torch
from programs import row

import flopkit as fk
from flopkit.counter.calls import Call
from flopkit.counter.operators import quantised as room
from flopkit.counter.registry import FORMULAS

nn = torch.nn
ENGINES = [engine for engine in torch.backends.quantized.supported_engines if engine != "none"]


def dynamic(model, dtype=torch.qint8):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.ao.quantization.quantize_dynamic(model, {nn.Linear}, dtype=dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("dtype", "width"), [(torch.qint8, 1), (torch.float16, 2)], ids=str)
@pytest.mark.parametrize("lead", [(3,), (2, 3), (1,)], ids=str)
def test_dynamic_linear(lead, dtype, width, bias):
    rows = int(torch.tensor(lead).prod())
    layer = dynamic(nn.Sequential(nn.Linear(8, 16, bias=bias)), dtype)
    report = fk.count(layer, torch.randn(*lead, 8))
    assert (report.flops, report.uncounted) == (2 * rows * 8 * 16, [])
    has = layer[0].bias() is not None
    assert report.vector_flops == rows * 16 * (1 + has)
    assert report.bytes == 4 * rows * (8 + 16) + width * 8 * 16 + 4 * 16 * has


def test_a_thousand_steps_are_one_line():
    layer = dynamic(nn.Sequential(nn.Linear(8, 16)))
    with fk.counting() as report:
        for _ in range(20):
            layer(torch.randn(3, 8))
    assert report.flops == 20 * 2 * 3 * 8 * 16
    assert len([entry for entry, _ in report._source.ledger().calls if entry.op == "quantized.linear_dynamic"]) == 1


def test_a_quantised_model_in_torchscript():
    layer = dynamic(nn.Sequential(nn.Linear(8, 16)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        script = torch.jit.script(layer)
    assert fk.count(script, torch.randn(3, 8)).flops == 2 * 3 * 8 * 16


class Net(nn.Module):
    def __init__(self, transposed: bool) -> None:
        super().__init__()
        self.into, self.out_of = torch.ao.quantization.QuantStub(), torch.ao.quantization.DeQuantStub()
        self.conv, self.relu = nn.Conv2d(4, 6, 3, groups=2), nn.ReLU()
        self.up = nn.ConvTranspose2d(6, 6, 3, groups=2) if transposed else nn.Identity()
        self.linear = nn.Linear(6, 5)

    def forward(self, x):
        x = self.up(self.relu(self.conv(self.into(x))))
        return self.out_of(self.linear(x.permute(0, 2, 3, 1).contiguous()))


@pytest.mark.parametrize("engine", ENGINES)
def test_static_networks(engine):
    transposed = engine == "qnnpack"  # the others want a weight scale for all channels
    before = torch.backends.quantized.engine
    torch.backends.quantized.engine = engine
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = Net(transposed).eval()
            model.qconfig = torch.ao.quantization.get_default_qconfig("qnnpack" if transposed else "x86")
            ready = torch.ao.quantization.prepare(torch.ao.quantization.fuse_modules(model, [["conv", "relu"]]))
            ready(torch.randn(2, 4, 10, 9))
            packed = torch.ao.quantization.convert(ready)
            report = fk.count(packed, torch.randn(2, 4, 10, 9))
    finally:
        torch.backends.quantized.engine = before
    conv = row(report, "quantized.conv2d_relu")
    assert conv["flops"] == 2 * 2 * 6 * 8 * 7 * 2 * 9
    assert conv["bytes"] == 2 * 4 * 90 + 2 * 6 * 56 + 6 * 2 * 9 + 6 * 4
    assert conv["vector_flops"] == 2 * 6 * 56 * 3  # scale, bias, relu
    positions = 8 * 7
    if transposed:
        assert row(report, "quantized.conv_transpose2d")["flops"] == 2 * 2 * 6 * 56 * 3 * 9
        positions = 10 * 9
    assert row(report, "quantized.linear")["flops"] == 2 * 2 * positions * 6 * 5


def eight(*shape):
    return torch.zeros(*shape, dtype=torch.int8)


def half(*shape):
    return torch.zeros(*shape, dtype=torch.bfloat16)


def int4():
    packed = torch._convert_weight_to_int4pack_for_cpu(torch.zeros(16, 64, dtype=torch.int32), 1)
    return torch._weight_int4pack_mm_for_cpu(half(32, 64), packed, 32, half(2, 16, 2))


def four_bits():
    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
        torch.zeros(16, 32, dtype=torch.uint8), torch.ones(16), None, 64, 64, 16
    )
    return torch.ops.aten._dyn_quant_matmul_4bit(torch.zeros(32, 64), packed, 64, 64, 16)


def onednn_linear():
    packed = torch.ops.onednn.qlinear_prepack(eight(16, 64), [32, 64])
    zeros = torch.zeros(16, dtype=torch.int32)
    return torch.ops.onednn.qlinear_pointwise(
        torch.zeros(32, 64, dtype=torch.uint8), 1.0, 0, packed, torch.ones(16), zeros, None, 1.0, 0, torch.float32, "none", [], ""
    )  # fmt: skip


def onednn_half():
    return torch.ops.onednn.linear_dynamic_fp16(
        torch.zeros(32, 64), torch.ops.onednn.linear_prepack_fp16(torch.zeros(16, 64), [32, 64]), None
    )


def fbgemm_half():
    packed = torch.ops._quantized.wrapped_fbgemm_pack_gemm_matrix_fp16(torch.zeros(16, 64))
    return torch.ops._quantized.wrapped_fbgemm_linear_fp16_weight(torch.zeros(32, 64), packed, torch.zeros(16), 16)


KERNELS = {
    "_int_mm": lambda: torch._int_mm(eight(32, 64), eight(64, 16)),
    "_weight_int8pack_mm": lambda: torch._weight_int8pack_mm(half(32, 64), eight(16, 64), half(16)),
    "_weight_int4pack_mm_for_cpu": int4,
    "_dyn_quant_matmul_4bit": four_bits,
    "onednn.qlinear_pointwise": onednn_linear,
    "onednn.linear_dynamic_fp16": onednn_half,
    "_quantized.wrapped_fbgemm_linear_fp16_weight": fbgemm_half,
    "quantized.linear_dynamic_fp16_unpacked_weight": lambda: torch.ops.quantized.linear_dynamic_fp16_unpacked_weight(
        torch.zeros(32, 64), torch.zeros(16, 64), torch.zeros(16)
    ),
}


@pytest.mark.filterwarnings("ignore:.*deprecated")
@pytest.mark.parametrize("name", KERNELS)
def test_kernels(name):
    try:
        KERNELS[name]()
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        pytest.skip(f"not in this build: {error}")
    report = fk.count(KERNELS[name])
    assert (report.flops, report.uncounted) == (2 * 32 * 64 * 16, [])
    assert row(report, name)["flops"] == 2 * 32 * 64 * 16
    if name == "quantized.linear_dynamic_fp16_unpacked_weight":
        assert row(report, name)["vector_flops"] == 32 * 16 * 2


def test_eight_bits_move_eight_bits():
    report = fk.count(KERNELS["_int_mm"])
    assert row(report, "_int_mm")["bytes"] == 32 * 64 + 64 * 16 + 4 * 32 * 16


@pytest.mark.parametrize(
    ("name", "weight"),
    [
        ("_weight_int8pack_mm", ((16, 64), torch.int8)),
        ("_int_mm", ((64, 16), torch.int8)),
    ],
)
def test_on_meta(name, weight):
    x = torch.empty(32, 64, dtype=torch.int8 if name == "_int_mm" else torch.bfloat16, device="meta")
    w = torch.empty(weight[0], dtype=weight[1], device="meta")
    more = () if name == "_int_mm" else (torch.empty(16, dtype=torch.bfloat16, device="meta"),)
    report = fk.count(getattr(torch, name), x, w, *more)
    assert (report.flops, report.uncounted) == (2 * 32 * 64 * 16, [])


def test_a_convolution_packed_by_onednn():
    packed = torch.ops.mkldnn_prepacked.conv2d_prepack(
        torch.zeros(6, 2, 3, 3), torch.zeros(6), [1, 1], [0, 0], [1, 1], 2, [2, 4, 10, 9], "none"
    )
    report = fk.count(torch.ops.mkldnn_prepacked.conv2d_run, torch.zeros(2, 4, 10, 9), packed)
    assert (report.flops, report.uncounted) == (2 * 2 * 6 * 56 * 2 * 9, [])
    assert report.bytes == 4 * (2 * 4 * 90 + 6 * 2 * 9 + 6 + 2 * 6 * 56)


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # torch says once that these will go
def test_sums_of_quantised_tensors():
    x = torch.quantize_per_tensor(torch.zeros(2, 6), 0.1, 0, torch.quint8)
    for op, flops in ((torch.ops.quantized.add, 1), (torch.ops.quantized.add_relu, 2), (torch.ops.quantized.mul, 1)):
        report = fk.count(op, x, x, 0.1, 0)
        assert (report.flops, report.vector_flops, report.uncounted) == (0, 12 * flops, [])


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_matmul_and_convolution():
    q = lambda *shape: torch.quantize_per_tensor(torch.zeros(*shape), 0.1, 0, torch.qint8)
    report = fk.count(lambda: torch.ops.quantized.matmul(q(2, 3, 4), q(2, 4, 5), 0.1, 0))
    assert row(report, "quantized.matmul")["flops"] == 2 * 2 * 3 * 4 * 5
    packed = torch.ops.onednn.qconv_prepack(
        eight(6, 2, 3, 3), torch.ones(6), 1.0, 0, [1, 1], [0, 0], [1, 1], 2, [2, 4, 10, 9]
    )
    arguments = (
        torch.ones(6),
        torch.zeros(6, dtype=torch.int32),
        None,
        [1, 1],
        [0, 0],
        [1, 1],
        2,
        1.0,
        0,
        torch.float32,
        "none",
        [],
        "",
    )
    x = torch.zeros(2, 4, 10, 9, dtype=torch.uint8)
    name = "qconv_pointwise" if hasattr(torch.ops.onednn, "qconv_pointwise") else "qconv2d_pointwise"
    report = fk.count(getattr(torch.ops.onednn, name), x, 1.0, 0, packed, *arguments)
    assert row(report, f"onednn.{name}")["flops"] == 2 * 2 * 6 * 56 * 2 * 9


def test_torchs_first_packed_products_are_no_silent_zero():
    """fbgemm_linear calls its library directly: no operator passes the dispatcher."""
    x, weight = torch.randn(4, 16), torch.randn(8, 16)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            packed = torch.fbgemm_pack_gemm_matrix_fp16(weight)
    except RuntimeError as error:
        pytest.skip(f"fbgemm does not run here: {error}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report = fk.count(torch.fbgemm_linear_fp16_weight_fp32_activation, x, packed, torch.zeros(8))
    assert report.flops == 2 * 4 * 8 * 16


def test_scale_bias_and_activation_are_one_flop_a_number():
    results = 32 * 16
    x, weight, bias = torch.zeros(32, 64), torch.zeros(16, 64), torch.zeros(16)
    packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
    assert fk.count(torch.ops.quantized.linear_dynamic_fp16, x, packed).vector_flops == 2 * results
    assert fk.count(torch.ops.quantized.linear_relu_dynamic_fp16, x, packed).vector_flops == 3 * results
    packed = torch.ops.onednn.linear_prepack_fp16(weight, [32, 64])
    for given, adds in ((None, 1), (bias, 2)):
        assert fk.count(torch.ops.onednn.linear_dynamic_fp16, x, packed, given).vector_flops == adds * results
        assert (
            fk.count(torch.ops.onednn.linear_relu_dynamic_fp16, x, packed, given).vector_flops == (adds + 1) * results
        )
    for given, adds in ((None, 0), (torch.zeros(6), 1)):
        packed = torch.ops.mkldnn_prepacked.conv2d_prepack(
            torch.zeros(6, 2, 3, 3), given, [1, 1], [0, 0], [1, 1], 2, [2, 4, 10, 9], "none"
        )
        report = fk.count(torch.ops.mkldnn_prepacked.conv2d_run, torch.zeros(2, 4, 10, 9), packed)
        assert report.vector_flops == adds * 2 * 6 * 56


@pytest.mark.skipif(not hasattr(torch.ops.aten, "_dyn_quant_matmul_4bit"), reason="torch 2.6 has no such operator")
def test_four_bits_have_a_scale_and_quantise_rows_on_the_way_in():
    with fk.counting() as report:
        four_bits()
    assert row(report, "_dyn_quant_matmul_4bit")["vector_flops"] == 32 * 16 + 32 * 64


def test_norms_of_quantised_numbers():
    """60 numbers, 2 images of 6 channels. Batch: subtract, multiply, a scale and a shift, a compare with relu; of a channel add, root, divide. The others
    add, subtract, multiply, add first, then multiply; of a group two divisions, add, root, divide."""
    with torch.device("meta"):
        x, c = torch.empty(2, 6, 5), torch.empty(6)

    def vector(name, *args):
        call = Call(getattr(torch.ops.quantized, name).default, args, {}, x)
        return FORMULAS[f"quantized::{name}"](call).vector["elementwise"]

    rest = (1e-5, 1.0, 0)
    for given, more in (((None, None), 0), ((c, None), 1), ((c, c), 2)):
        assert vector("batch_norm2d", x, *given, c, c, *rest) == (2 + more) * 60 + 3 * 6
        assert vector("batch_norm2d_relu", x, *given, c, c, *rest) == (2 + more + 1) * 60 + 3 * 6
        assert vector("layer_norm", x, [6, 5], *given, *rest) == (4 + 1 + more) * 60 + 5 * 2
        assert vector("layer_norm", x, [5], *given, *rest) == (4 + 1 + more) * 60 + 5 * 12
        assert vector("group_norm", x, 3, *given, *rest) == (4 + 1 + more) * 60 + 5 * 2 * 3
        assert vector("instance_norm", x, *given, *rest) == (4 + 1 + more) * 60 + 5 * 2 * 6
    assert vector("layer_norm", x.reshape(60, 1), [1], None, None, *rest) == 5 * 60 + 5 * 60  # each by itself
    assert vector("softmax", x, 1, 1.0, 0) == 5 * 60
    assert vector("cat_relu", [x[:1], x[1:]], 0, 1.0, 0) == 60


def test_onednns_convolution_of_integers():
    """Scale and bias are one FLOP a number."""
    with torch.device("meta"):
        x, w, b, out, one = (
            torch.empty(2, 4, 10, 9),
            torch.empty(6, 4, 3, 3),
            torch.empty(6),
            torch.empty(2, 6, 8, 7),
            torch.empty(6),
        )
    ours = torch.ops.onednn
    pointwise = (
        ours.qconv_pointwise if hasattr(ours, "qconv_pointwise") else ours.qconv2d_pointwise
    )  # its name in torch 2.6
    for given, adds in ((None, 1), (b, 2)):
        args = (x, 1.0, 0, w, one, one, given, [1, 1], [0, 0], [1, 1], 1, 1.0, 0, None, "none", [], "")
        work = room.convolution_and_more(Call(pointwise.default, args, {}, out))
        assert (work.model, work.vector) == ({"products": 2 * 6 * 56 * 36}, {"elementwise": adds * 2 * 6 * 56})


def test_onednns_convolution_adds_to_a_tensor_that_is_there():
    """It reads the image, the weight, its scales and zero points, and the sums so far, and writes the sums once."""
    with torch.device("meta"):
        x, w, scale, zero, sums = (
            torch.empty(2, 4, 10, 9),
            torch.empty(6, 4, 3, 3),
            torch.empty(6),
            torch.empty(6),
            torch.empty(2, 6, 8, 7),
        )
    shape = ([1, 1], [0, 0], [1, 1], 1)
    args = (x, 1.0, 0, w, scale, zero, sums, None, *shape, 1.0, 0, None, 1.0, 0, "sum", None, "none", [], "")
    work = room.convolution_and_more(Call(torch.ops.onednn.qconv2d_pointwise.binary, args, {}, sums))
    assert work.bytes == 4 * (720 + 216 + 6 + 6 + 2 * 672)
