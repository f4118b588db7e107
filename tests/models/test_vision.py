"""The thirteen networks: against what torchvision publishes, and against its modules, layer by layer, on meta."""

import pytest

from flopkit.layers.convolutions import conv2d
from flopkit.models.vision import KINDS, cnn, cnn_backward, cnn_kinds, cnn_names, cnn_published


@pytest.fixture(scope="module")
def torchvision():
    pytest.importorskip("torch")
    return pytest.importorskip("torchvision", reason="the networks are compared with torchvision's").models


@pytest.mark.parametrize("name", cnn_names())
def test_published_numbers(name):
    published, ours = cnn_published(), cnn(name)
    assert round(ours.macs / 1e9, 3) == published["gmacs"][name]
    assert ours.params == published["params"][name]


@pytest.mark.parametrize("name", cnn_names())
def test_the_file_is_what_torchvision_publishes(torchvision, name):
    published = cnn_published()
    for weights in torchvision.get_model_weights(name):
        assert weights.meta["_ops"] == published["gmacs"][name], f"{weights}: torchvision has a new number"
        assert weights.meta["num_params"] == published["params"][name]
        assert weights.transforms().crop_size == [224]


def run_on_meta(torchvision, name, batch, height, width):
    """What torchvision's network does, in order: modules, and the sums and products that are calls. Multiply-adds, sizes, vector work."""
    import torch
    from torch import nn
    from torch.utils._python_dispatch import TorchDispatchMode

    with torch.device("meta"):
        network = torchvision.get_model(name).eval()
    ran, aten = [], torch.ops.aten

    def elements(*tensors):
        return sum(t.numel() for t in tensors if t.dim())

    def note(path):
        def hook(module, inputs, output):
            held = elements(*inputs, output, *module.parameters(recurse=False), *module.buffers(recurse=False))
            row = {"name": path, "elements": held, "macs": 0}
            if isinstance(module, nn.Conv2d):
                row |= {"macs": output.numel() * module.weight[0].numel(), "kind": conv_kind(module)}
            elif isinstance(module, nn.Linear):
                row |= {"macs": output.numel() * module.in_features, "kind": "dense"}
            elif isinstance(module, nn.BatchNorm2d):
                row |= {"kind": "norm"}
            elif isinstance(module, (nn.ReLU, nn.ReLU6, nn.SiLU, nn.Sigmoid)):
                row |= {"kind": "activation"}
            elif isinstance(module, nn.MaxPool2d):
                row |= {"kind": "other", "vector": output.numel() * module.kernel_size**2}
            else:
                return
            ran.append(row)

        return hook

    class Calls(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            out, operator = func(*args, **(kwargs or {})), func.overloadpacket
            row = {"macs": 0, "kind": "other"}
            if operator in (aten.add, aten.add_, aten.mul):
                ran.append(row | {"elements": elements(*args[:2], out), "vector": out.numel()})
            elif operator in (aten.mean, aten._adaptive_avg_pool2d):
                sides = args[0].shape[2:]
                pixels = torch.eye(sides.numel()).unflatten(1, (1, *sides))  # one at a time: in how many means is it?
                taps = int((torch.nn.functional.adaptive_avg_pool2d(pixels, out.shape[2:]) != 0).sum())
                added = out.shape[:2].numel() * taps
                ran.append(row | {"elements": elements(args[0], out), "vector": added + out.numel()})
            return out

    for path, module in network.named_modules():
        module.register_forward_hook(note(path))
    image = torch.empty(batch, 3, height, width, device="meta")
    with Calls():
        network(image)
    return ran


def conv_kind(module):
    if module.groups == module.in_channels > 1:
        return "depthwise"
    return "pointwise" if module.kernel_size == (1, 1) else "convolution"


@pytest.mark.parametrize("sides", [(224, 224), (225, 354)], ids=str)
@pytest.mark.parametrize("name", cnn_names())
def test_every_layer_is_torchvisions(torchvision, name, sides):
    """Each by its size and in its place; convolutions, dense layers and norms by name, too; also where windows do not come out even."""
    height, width = sides
    ran = run_on_meta(torchvision, name, 2, height, width)
    ours, kinds = cnn(name, batch=2, height=height, width=width, dtype="int8"), cnn_kinds(name)
    assert len(ours.parts) == len(ran)
    for part, row in zip(ours.parts, ran, strict=True):
        assert (part.macs, part.bytes, kinds[part.name]) == (row["macs"], row["elements"], row["kind"]), part.name
        if row["kind"] not in ("activation", "other"):
            assert part.name == row["name"]
        assert part.vector_flops == row.get("vector", part.vector_flops), part.name


def test_work_that_no_module_holds():
    """Residual sums and squeeze-and-excite's scaling are calls, not modules: counted by hand for one block each."""
    parts = {part.name: part for part in cnn("resnet18", dtype="int8").parts}
    assert parts["layer1.0.add"].bytes == 3 * 64 * 56 * 56
    parts = {part.name: part for part in cnn("efficientnet_b0", dtype="int8").parts}
    assert parts["features.1.0.block.1.scale"].bytes == 2 * 32 * 112 * 112 + 32
    assert parts["features.1.0.block.1.scale"].vector_flops == 32 * 112 * 112
    parts = {part.name: part for part in cnn("efficientnet_b0", batch=5, dtype="int8").parts}
    assert parts["features.1.0.block.1.scale"].bytes == 5 * (2 * 32 * 112 * 112 + 32)  # factors of each image's own


@pytest.mark.parametrize("name", cnn_names())
def test_every_layer_has_a_kind(name):
    kinds = cnn_kinds(name)
    assert list(kinds) == [part.name for part in cnn(name).parts]
    assert set(kinds.values()) <= set(KINDS)


def test_flops_grow_with_batch_and_area():
    one, many = cnn("resnet50"), cnn("resnet50", batch=64)
    assert many.flops == 64 * one.flops and many.params == one.params
    assert one.bytes < many.bytes < 64 * one.bytes, "weights are read once a batch"
    large = cnn("resnet50", height=448, width=448)
    fc = 2 * 2048 * 1000
    assert large.flops - fc == 4 * (one.flops - fc)


@pytest.mark.parametrize("spelled", ["MobileNet-V2", "mobilenet_v2", "MOBILENET V2", "mobilenetv2"])
def test_names_are_read_generously(spelled):
    assert cnn(spelled).name == "mobilenet_v2"
    assert cnn_kinds(spelled) == cnn_kinds("mobilenet_v2")


def test_bad_names():
    with pytest.raises(ValueError, match=r"name='resnet51'.*resnet50"):
        cnn("resnet51")
    with pytest.raises(ValueError, match="vgg16"):
        cnn_kinds("vgg")
    for name in (50, None, b"resnet50"):
        with pytest.raises(TypeError, match=r"name=.* is not a known network: must be a name, such as 'alexnet'"):
            cnn(name)


@pytest.mark.parametrize(
    "name, pixels, message",
    [
        (
            "alexnet",
            {"height": 16, "width": 16},
            r"height=16 is too small for alexnet: .*'features\.5', whose kernel is 3",
        ),
        ("alexnet", {"width": 16}, r"width=16 is too small for alexnet: a map of width 1"),
        (
            "alexnet",
            {"height": 6},
            r"height=6 is too small for alexnet: a map of height 6 \(10 with padding\) reaches layer 'features\.0', whose kernel is 11",
        ),
        (
            "alexnet",
            {"height": 7},
            r"height=7 is too small for alexnet: a map of height 1 reaches layer 'features\.2', whose kernel is 3",
        ),
        ("vgg16", {"height": 8}, r"height=8 is too small for vgg16: a map of height 1 reaches layer 'features\.23'"),
    ],
)
def test_too_small_an_image(name, pixels, message):
    with pytest.raises(ValueError, match=message):
        cnn(name, **pixels)


def test_a_sweep_or_a_symbol_is_a_batch_and_no_height():
    numpy, sympy = pytest.importorskip("numpy"), pytest.importorskip("sympy")
    one, n = cnn("resnet18").flops, sympy.Symbol("n", positive=True, integer=True)
    assert cnn("resnet18", batch=numpy.array([1, 3])).flops.tolist() == [one, 3 * one]
    assert cnn("resnet18", batch=n).flops == one * n
    for pixels in (numpy.array([224, 256]), n):
        with pytest.raises(TypeError, match="height=.*not a sweep or a symbol"):
            cnn("resnet18", height=pixels)


def test_the_default_format_is_the_default_of_the_formulas_and_of_the_roofline():
    """Mixed formats would put fp32's bytes beside bf16's peak without a word."""
    assert cnn("resnet50").bytes == cnn("resnet50", dtype="bf16").bytes
    assert 2 * cnn("resnet50").bytes == cnn("resnet50", dtype="fp32").bytes
    assert (
        cnn("vgg11").parts[0].bytes
        == conv2d(batch=1, c_in=3, c_out=64, h_out=224, w_out=224, kernel=3, bias=True).bytes
    )


@pytest.mark.parametrize("name", cnn_names())
def test_the_backward_pass_is_what_torch_runs(torchvision, name):
    """FLOPs to the last; bytes of convolutions, norms and activations by operator, as the counter sees them in torchvision's network."""
    import torch

    from flopkit import count

    with torch.device("meta"):
        network = torchvision.get_model(name).train()
        images = torch.empty(2, 3, 224, 224)
    report = count(lambda: network(images).sum().backward())
    back, kinds = cnn_backward(name, batch=2, dtype="fp32"), cnn_kinds(name)
    assert back.flops == report.backward.flops
    assert [part.name for part in back.parts] == list(kinds)
    of = {row["operator"]: row["bytes"] for row in report.by_op().rows if row["phase"] == "backward"}
    for some, operators in (
        (("convolution", "pointwise", "depthwise"), ("convolution_backward",)),
        (("norm",), ("native_batch_norm_backward",)),
        (("activation",), ("threshold_backward", "hardtanh_backward", "silu_backward", "sigmoid_backward")),
    ):
        seen = sum(of.get(operator, 0) for operator in operators)
        ours = sum(part.bytes for part in back.parts if kinds[part.name] in some)
        assert ours == pytest.approx(seen, rel=1e-3), some  # a norm also reads its saved means
    assert back.bytes <= report.backward.bytes, "a lower bound"


def test_the_backward_pass_of_a_layer_by_hand():
    back = {part.name: part for part in cnn_backward("resnet18", batch=3, dtype="int8").parts}
    first, inside = back["conv1"], back["layer1.0.conv1"]
    x, y, w = 3 * 3 * 224 * 224, 3 * 64 * 112 * 112, 64 * 3 * 49
    assert (first.macs, first.bytes) == (y * 3 * 49, x + y + w)  # the gradient of the weight alone
    x, w = 3 * 64 * 56 * 56, 64 * 64 * 9
    assert (inside.macs, inside.bytes) == (
        2 * x * 64 * 9,
        3 * x + 2 * w,
    )  # of the three maps, the output's gradient once
    assert back["layer1.0.relu1"].bytes == back["layer1.0.add"].bytes == 3 * x
    assert back["maxpool"].bytes == y + x
    assert back["fc"].bytes == 2 * (3 * 512 + 512 * 1000 + 1000) + 3 * 1000
