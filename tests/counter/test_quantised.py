"""Products of integers and of packed weights: an integer multiply-add is one, and a packed weight has the bytes it is packed in."""

import warnings

import pytest
import torch
from programs import row

import flopkit as fk

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


KERNELS = {
    "_int_mm": lambda: torch._int_mm(eight(32, 64), eight(64, 16)),
    "_weight_int8pack_mm": lambda: torch._weight_int8pack_mm(half(32, 64), eight(16, 64), half(16)),
    "_weight_int4pack_mm_for_cpu": int4,
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


def test_eight_bits_move_eight_bits():
    report = fk.count(KERNELS["_int_mm"])
    assert row(report, "_int_mm")["bytes"] == 32 * 64 + 64 * 16 + 4 * 32 * 16
    assert report.vector_flops == 0  # plain integers have no scale


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


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")  # torch says once that these will go
def test_sums_of_quantised_tensors():
    x = torch.quantize_per_tensor(torch.zeros(2, 6), 0.1, 0, torch.quint8)
    for op, flops in ((torch.ops.quantized.add, 1), (torch.ops.quantized.add_relu, 2), (torch.ops.quantized.mul, 1)):
        report = fk.count(op, x, x, 0.1, 0)
        assert (report.flops, report.vector_flops, report.uncounted) == (0, 12 * flops, [])


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantised_matmul():
    q = lambda *shape: torch.quantize_per_tensor(torch.zeros(*shape), 0.1, 0, torch.qint8)
    report = fk.count(lambda: torch.ops.quantized.matmul(q(2, 3, 4), q(2, 4, 5), 0.1, 0))
    assert row(report, "quantized.matmul")["flops"] == 2 * 2 * 3 * 4 * 5


def test_scale_bias_and_activation_are_one_flop_a_number():
    results = 32 * 16
    x, weight, bias = torch.zeros(32, 64), torch.zeros(16, 64), torch.zeros(16)
    packed = torch.ops.quantized.linear_prepack_fp16(weight, bias)
    assert fk.count(torch.ops.quantized.linear_dynamic_fp16, x, packed).vector_flops == 2 * results
    assert fk.count(torch.ops.quantized.linear_relu_dynamic_fp16, x, packed).vector_flops == 3 * results


# -- what is no silent zero ---------------------------------------------------------------------------------------


def fbgemm():
    """Calls its library directly: no operator passes the dispatcher."""
    packed = torch.fbgemm_pack_gemm_matrix_fp16(torch.randn(8, 16))
    return lambda: torch.fbgemm_linear_fp16_weight_fp32_activation(torch.randn(4, 16), packed, torch.zeros(8))


def onednn_linear():
    packed = torch.ops.onednn.linear_prepack_fp16(torch.zeros(16, 64), [32, 64])
    return lambda: torch.ops.onednn.linear_dynamic_fp16(torch.zeros(32, 64), packed, None)


def onednn_convolution():
    packed = torch.ops.mkldnn_prepacked.conv2d_prepack(
        torch.zeros(6, 2, 3, 3), torch.zeros(6), [1, 1], [0, 0], [1, 1], 2, [2, 4, 10, 9], "none"
    )
    return lambda: torch.ops.mkldnn_prepacked.conv2d_run(torch.zeros(2, 4, 10, 9), packed)


def linear_and_relu():
    x, w = torch.ones(3, 4), torch.ones(6, 4)
    return lambda: torch.ops.mkldnn._linear_pointwise(x, w, None, "relu", [], "")


def cell():
    layer = torch.ao.quantization.quantize_dynamic(nn.Sequential(nn.LSTMCell(4, 6)), {nn.LSTMCell})
    return lambda: layer(torch.ones(2, 4))


def norm():
    x = torch.quantize_per_tensor(torch.zeros(2, 6), 0.1, 0, torch.quint8)
    return lambda: torch.ops.quantized.layer_norm(x, [6], None, None, 1e-5, 0.1, 0)


def four_bits():
    packed = torch.ops.aten._dyn_quant_pack_4bit_weight(
        torch.zeros(16, 32, dtype=torch.uint8), torch.ones(16), None, 64, 64, 16
    )
    return lambda: torch.ops.aten._dyn_quant_matmul_4bit(torch.zeros(32, 64), packed, 64, 64, 16)


RARE = {
    "_dyn_quant_matmul_4bit": four_bits,
    "fbgemm_linear_fp16_weight_fp32_activation": fbgemm,
    "onednn.linear_dynamic_fp16": onednn_linear,
    "mkldnn_prepacked.conv2d_run": onednn_convolution,
    "mkldnn._linear_pointwise": linear_and_relu,
    "quantized.quantized_lstm_cell_dynamic": cell,
    "quantized.layer_norm": norm,
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", RARE)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_what_is_rare_is_listed_once_with_its_bytes(name, mode):
    try:
        program = RARE[name]()
    except (RuntimeError, AttributeError, NotImplementedError) as error:
        pytest.skip(f"not in this build: {error}")
    with mode():
        report = fk.count(program)
    assert [(found["operator"], found["calls"]) for found in report.uncounted] == [(name, 1)]
    assert report.uncounted[0]["bytes"] > 0 and report.flops == 0


def test_a_weight_that_is_packed_only_moves():
    report = fk.count(torch.ops.quantized.linear_prepack_fp16, torch.zeros(16, 64), None)
    assert (report.flops, report.vector_flops, report.uncounted) == (0, 0, [])
