"""The thirteen networks: against what torchvision publishes, and against its modules, layer by layer, on meta."""

import pytest

from flopkit.layers.convolutions import conv2d
from flopkit.models.vision import KINDS, cnn, cnn_kinds, cnn_names, cnn_published


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


def run_on_meta(torchvision, name, batch=2):
    """The modules of torchvision's network that do something, in the order in which they run: multiply-adds and sizes."""
    import torch
    from torch import nn

    with torch.device("meta"):
        network = torchvision.get_model(name).eval()
    ran = []

    def note(path):
        def hook(module, inputs, output):
            numbers = [*inputs, output, *module.parameters(recurse=False), *module.buffers(recurse=False)]
            row = {"name": path, "elements": sum(t.numel() for t in numbers if t.dim()), "macs": 0}
            if isinstance(module, nn.Conv2d):
                row |= {"macs": output.numel() * module.weight[0].numel(), "kind": conv_kind(module)}
            elif isinstance(module, nn.Linear):
                row |= {"macs": output.numel() * module.in_features, "kind": "dense"}
            elif isinstance(module, nn.BatchNorm2d):
                row |= {"kind": "norm"}
            elif isinstance(module, (nn.ReLU, nn.ReLU6, nn.SiLU, nn.Sigmoid)):
                row |= {"kind": "activation"}
            elif isinstance(module, (nn.MaxPool2d, nn.AdaptiveAvgPool2d)):
                row |= {"kind": "other"}
            else:
                return
            ran.append(row)

        return hook

    for path, module in network.named_modules():
        module.register_forward_hook(note(path))
    network(torch.empty(batch, 3, 224, 224, device="meta"))
    return ran


def conv_kind(module):
    if module.groups == module.in_channels > 1:
        return "depthwise"
    return "pointwise" if module.kernel_size == (1, 1) else "convolution"


@pytest.mark.parametrize("name", cnn_names())
def test_every_layer_is_torchvisions(torchvision, name):
    """Convolutions, dense layers and norms by name; activations and pooling, whose modules are shared, by their sizes."""
    ran, ours, kinds = run_on_meta(torchvision, name), cnn(name, batch=2, dtype="int8"), cnn_kinds(name)
    named = [row for row in ran if row["kind"] not in ("activation", "other")]
    mine = [part for part in ours.parts if kinds[part.name] not in ("activation", "other")]
    assert [part.name for part in mine] == [row["name"] for row in named]
    for part, row in zip(mine, named, strict=True):
        assert (part.macs, part.bytes, kinds[part.name]) == (row["macs"], row["elements"], row["kind"]), part.name
    modules = sorted(row["elements"] for row in ran if row["kind"] == "activation")
    assert modules == sorted(part.bytes for part in ours.parts if kinds[part.name] == "activation")
    assert ours.macs == sum(row["macs"] for row in ran)


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
        with pytest.raises(TypeError, match=r"name=.* is not a string.*'resnet50'"):
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
