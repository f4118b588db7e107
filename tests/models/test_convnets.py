"""Convolutional networks as models: steps and memory against torchvision's networks under the counter and under autograd, names, refusals."""

from typing import get_args

import numpy
import pytest
import sympy

import flopkit as fk
from flopkit.models import ConvNet, LastLayers, Model, Segments, cnn, cnn_names
from flopkit.models.catalogue import any_model, the_model
from flopkit.models.vision import KINDS, cnn_backward, cnn_kinds
from flopkit.models.vision.networks import Name

LOSS = 4  # bytes: the mean over the labels keeps how many there are
PIXELS = {"height": 96, "width": 130}  # windows that do not come out even


@pytest.fixture(scope="module")
def torch():
    pytest.importorskip("torchvision", reason="the networks are compared with torchvision's")
    return pytest.importorskip("torch")


def built(torch, name, dtype=None, device="meta"):
    """torchvision's network in training, without dropout and stochastic depth."""
    import torchvision

    with torch.device(device):
        network = torchvision.models.get_model(name).train().to(dtype)
    for module in network.modules():
        if isinstance(module, (torch.nn.Dropout, torchvision.ops.StochasticDepth)):
            module.p = 0.0
    return network


def loss_of(torch, network, batch, height, width):
    parameter = next(iter(network.parameters()))
    images = torch.empty(batch, 3, height, width, device="meta", dtype=parameter.dtype)
    labels = torch.zeros(batch, dtype=torch.long, device="meta")
    return torch.nn.functional.cross_entropy(network(images).float(), labels)


@pytest.mark.parametrize("trained", ["all", "head"])
@pytest.mark.parametrize("name", cnn_names())
def test_a_training_step_is_what_the_counter_sees(torch, name, trained):
    network = built(torch, name)
    if trained == "head":
        network.requires_grad_(False)
        [*_, head] = network.modules()
        head.requires_grad_(True)
    report = fk.count(lambda: loss_of(torch, network, 2, **PIXELS).backward())
    step = fk.load(name).train_step(batch=2, trained=trained, dtype="fp32", **PIXELS)
    assert step.forward.flops == report.forward.flops and step.backward.flops == report.backward.flops
    assert step.model_flops == report.model_flops == step.hardware_flops == report.hardware_flops
    assert step.recompute.flops == step.padding.flops == 0
    assert fk.load(name).trained_params(trained) == sum(p.numel() for p in network.parameters() if p.requires_grad)


@pytest.mark.parametrize("name", ["vgg11", "mobilenet_v2", "efficientnet_b0"])
def test_norms_take_the_statistics_of_the_batch(torch, name):
    """In a step, and not in a forward pass by itself. A norm of torch also counts the batches that it has seen."""
    network, model, images = built(torch, name), fk.load(name), torch.empty(2, 3, 96, 130, device="meta")
    step, alone = (
        model.train_step(batch=2, dtype="fp32", **PIXELS).forward,
        model.forward(batch=2, dtype="fp32", **PIXELS),
    )
    for ours in (step, alone):
        network.train(ours is step)
        seen = fk.count(lambda: network(images)).forward
        batches = list(model.kinds.values()).count("norm") if ours is step else 0
        assert ours.vector_flops == seen.vector_flops - batches
    assert (step.bytes > alone.bytes) == (name != "vgg11"), "running statistics are written, too"


def kept(torch, network, run):
    """Bytes of the storages that autograd keeps while *run* runs; weights and labels left out."""
    own = {each.untyped_storage()._cdata for each in (*network.parameters(), *network.buffers())}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if storage._cdata not in own and not (tensor.dtype == torch.long and tensor.dim() == 1):
            found[storage._cdata] = tensor  # kept alive, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        assert run().requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("name", cnn_names())
def test_memory_is_what_autograd_keeps(torch, name, precision):
    network = built(torch, name, {"fp32": torch.float32, "bf16": torch.bfloat16}[precision])
    memory = fk.load(name).train_memory(batch=3, precision=precision, **PIXELS)
    assert memory.activations + LOSS == kept(torch, network, lambda: loss_of(torch, network, 3, **PIXELS))
    assert sum(each.bytes for each in memory.kept) == memory.layers
    assert memory.states == {"fp32": 16, "bf16": 8}[precision] * fk.load(name).params


@pytest.mark.parametrize("name", ["alexnet", "resnet18", "mobilenet_v2", "efficientnet_b0"])
def test_memory_with_the_head_alone(torch, name):
    network = built(torch, name)
    network.requires_grad_(False)
    [*_, head] = network.modules()
    head.requires_grad_(True)
    memory = fk.load(name).train_memory(batch=3, precision="fp32", trained="head")
    assert memory.activations + LOSS == kept(torch, network, lambda: loss_of(torch, network, 3, 224, 224))
    changed = sum(p.numel() for p in head.parameters())
    assert memory.states == 4 * fk.load(name).params + 12 * changed


def test_kept_on_a_cpu_as_built(torch):
    """With numbers, of a small image."""
    network, images = built(torch, "resnet18", device="cpu"), torch.randn(2, 3, 64, 64)
    labels = torch.zeros(2, dtype=torch.long)
    found = kept(torch, network, lambda: torch.nn.functional.cross_entropy(network(images), labels))
    assert found == fk.load("resnet18").train_memory(batch=2, height=64, width=64, precision="fp32").activations + LOSS


def test_kept_tensors_by_hand():
    memory = fk.load("resnet18").train_memory(batch=5, precision="bf16", optimizer="sgd")
    kept = {each.name: each.bytes for each in memory.kept}
    first = 5 * 64 * 112 * 112
    assert kept["conv1, output"] == kept["relu, output"] == 2 * first and kept["bn1, statistics"] == 4 * 2 * 64
    assert kept["maxpool, places"] == 8 * first / 4 and "bn1, output" not in kept and "avgpool, output" in kept
    assert memory.ends == 5 * (2 * 3 * 224 * 224 + 4 * 1000) and memory.again == 0
    assert memory.states == (2 + 2) * 11_689_512
    table = memory.layer_table()
    assert table.caption == "resnet18, training step: what the network keeps"
    assert [row["tensor"] for row in table][:3] == ["conv1, output", "bn1, statistics", "relu, output"]


@pytest.mark.parametrize("name", cnn_names())
def test_it_answers_as_a_model_does(name):
    model = fk.load(name)
    assert isinstance(model, ConvNet) and model == any_model(model) == any_model(name.upper()) and str(model) == name
    assert model.params == model.active_params == cnn(name).params and model.notes == ()
    assert model.kinds == cnn_kinds(name) and set(model.kinds.values()) <= set(KINDS)
    sizes = {"batch": 2, "height": 160, "width": 192, "dtype": "fp16"}
    forward, step = model.forward(**sizes), model.train_step(**sizes)
    assert forward.named(name) == cnn(name, **sizes) and forward.name == f"{name}, forward"
    assert step.backward.named(f"{name}, backward") == cnn_backward(name, **sizes)
    assert step.forward.flops == forward.flops


def test_names_are_those_of_the_types():
    assert list(get_args(Name)) == cnn_names()
    assert set(cnn_names()) <= set(fk.model_names())


@pytest.mark.parametrize("spelled", ["resnet-50", "ResNet50", "RESNET 50", "resnet_50"])
def test_spellings(spelled):
    assert fk.load(spelled) == fk.load("resnet50") == ConvNet(name=spelled) != fk.load("resnet18")


def test_a_step_is_told_by_the_image():
    step = fk.load("resnet50").train_step(batch=64)
    assert (step.tokens, step.images, step.item) == (None, 64, ("an image", 64))
    assert step.flops_per_image == step.model_flops / 64
    assert step.table().columns == ["phase", "FLOPs", "FLOPs an image", "of model FLOPs"]
    with pytest.raises(ValueError, match=r"^resnet50, training step: no tokens .*flops_per_image"):
        step.flops_per_token
    with pytest.raises(ValueError, match=r"^gpt2, training step: no images .*flops_per_token"):
        fk.load("gpt2").train_step(seq=8).flops_per_image
    vit = fk.load("vit-b-16").train_step(batch=3)
    assert vit.flops_per_image == pytest.approx(197 * vit.flops_per_token) and vit.item == ("a token", 3 * 197)


def test_what_takes_costs_and_steps_takes_these():
    model = fk.load("resnet50")
    step = model.train_step(batch=256)
    assert fk.roofline(model.forward(batch=256), "h100-sxm").bound == "memory"
    assert fk.mfu(step, seconds=0.2, device="a100-sxm-80gb") == step.model_flops / 0.2 / 312e12
    assert fk.hfu(step, seconds=0.2, device="a100-sxm-80gb") == fk.mfu(step, seconds=0.2, device="a100-sxm-80gb")
    assert 2 * step.under("FVCORE").model_flops == step.model_flops == step.under("TORCH").model_flops
    nearest = fk.published.translate(3 * 4.089e9, model.train_step(batch=2))[0]
    assert (nearest["convention"], nearest["counted as"]) == ("FVCORE", "model FLOPs an image")
    assert fk.training.adam_step(params=model.params).vector_flops == 14 * model.params


def test_sweeps_and_symbols_of_the_batch():
    model, n = fk.load("mobilenet_v2"), sympy.Symbol("n", positive=True, integer=True)
    for ask in (
        lambda batch: model.train_step(batch=batch).model_flops,
        lambda batch: model.train_memory(batch=batch).total,
        lambda batch: model.table(batch=batch)[-1]["FLOPs"],
    ):
        assert ask(numpy.array([1, 3])).tolist() == [ask(1), ask(3)]
        assert ask(n).subs(n, 3) == ask(3)


# -- showing itself -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", cnn_names())
def test_the_rows_add_up(name):
    model = fk.load(name)
    whole, rows = model.forward(batch=2, **PIXELS), list(model.table(batch=2, **PIXELS))
    assert rows[-1]["part"] == "total" and {row["times"] for row in rows} == {1}
    for column in ("FLOPs", "params", "bytes"):
        assert rows[-1][column] == getattr(whole, column.lower())
        for place, head in enumerate(rows[:-1]):  # what is inside adds up to the row above
            level, inside = head["level"], []
            for row in rows[place + 1 :]:
                if row["level"] <= level:
                    break
                inside += [row[column]] * (row["level"] == level + 1)
            assert not inside or (sum(inside) == head[column] and len(inside) > 1), head["part"]
        assert sum(row[column] for row in rows[:-1] if row["level"] == 0) == rows[-1][column]
    layers = {part.name: part for part in whole.parts}
    for row in rows:
        formula, layer = row["formula"].replace("·", "*"), layers.pop(row["part"].strip(), None)
        assert eval(formula or "0", {"batch": 2}) == (layer.flops if layer else 0), row
    assert layers == {}, "each layer has a row"


def test_what_a_terminal_and_a_notebook_show():
    model = fk.load("resnet50")
    table = model.table(batch=8)
    assert table.caption == "resnet50, forward, 8 × 224 × 224 pixels, convention EXACT"
    assert [row["part"] for row in table if row["level"] == 1][:4] == [
        "  layer1.0", "  layer1.1", "  layer1.2", "  layer2.0",
    ]  # fmt: skip
    assert repr(model).startswith("resnet50: 25,557,032 parameters, layers 54 with weights, classes 1,000 [torchvision")
    for text in ("resnet50", "25,557,032", "54 with weights", "1,000", model.source):
        assert text in model._repr_html_()


# -- what makes no sense ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.decode(context=8), "resnet50 makes no text token by token: it has no decode"),
        (lambda m: m.prefill(prompt=8), "it has no prefill"),
        (lambda m: m.kv_bytes(context=8), "it has no cache"),
        (lambda m: m.state_bytes(), "it has no cache"),
        (
            lambda m: m.train_step(recompute="full"),
            "recompute='full': resnet50 has no equal layers .* leave recompute= out",
        ),
        (
            lambda m: m.train_memory(recompute=Segments(2)),
            r"recompute=Segments\(layers=2\): resnet50 has no equal layers",
        ),
        (lambda m: m.train_step(recompute="some"), "recompute='some'"),
        (
            lambda m: m.train_step(trained=LastLayers(3)),
            r"\(layers=3\): of resnet50 either 'all' is trained or the 'head' alone",
        ),
        (lambda m: m.train_memory(trained=fk.LoRA(rank=8)), "of resnet50 either 'all' .* 'head'"),
        (lambda m: m.trained_params("tail"), "trained='tail'"),
        (lambda m: m.train_memory(precision="fp7"), "precision='fp7'"),
        (lambda m: m.train_memory(optimizer="lion"), "optimizer='lion'"),
        (lambda m: m.train_step(batch=0), "batch=0"),
        (lambda m: m.table(height=0), "height=0"),
        (lambda m: m.train_step(dtype="fp3"), "fp3"),
        (lambda m: m.forward().under("SIX_N"), "per-token totals, .* give EXACT or TORCH, or a model of text"),
        (lambda m: m.train_step().under("PALM"), "per-token totals, .* give EXACT or TORCH, or a model of text"),
        (lambda m: ConvNet(name="resnet51"), "name='resnet51' is not a known network; did you mean resnet50"),
        (lambda m: ConvNet(name=50), "name=50 is not a known network"),
        (lambda m: fk.load("resnet50", mtp=True), "resnet50: mtp=True: there is no layer"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(fk.load("resnet50"))


@pytest.mark.parametrize(
    "ask",
    [
        lambda: the_model("resnet50"),
        lambda: fk.doctor(tokens_per_s=9, model="ResNet-50", seq=8, device="h100-sxm"),
        lambda: fk.serving.decode("resnet50", "h100-sxm", context=8),
        lambda: fk.serving.prefill("resnet50", "h100-sxm", prompt=8),
        lambda: fk.serving.largest_batch(fk.load("resnet50"), "h100-sxm", context=8),
        lambda: fk.serving.intensity_limit("resnet50", context=8),
    ],
)
def test_what_asks_for_tokens_says_that_there_are_none(ask):
    with pytest.raises(
        ValueError, match=r"^resnet50 reads images: it has no tokens .*fk\.load\('resnet50'\)\.train_step\("
    ):
        ask()


def test_a_transformer_is_a_model_still():
    assert isinstance(the_model("gpt2"), Model) and isinstance(any_model(fk.models.hf_config("gpt2")), Model)
