"""torchvision's classification models against the GMACs that torchvision itself publishes with their weights."""

from __future__ import annotations

import pytest
import torch

import flopkit as fk

torchvision = pytest.importorskip("torchvision")

FEW = ("resnet18", "mobilenet_v2", "vit_b_16", "swin_t", "shufflenet_v2_x0_5")


def published():
    """Model name and weights, one for each resolution: `_ops` is in GMACs, rounded to three places."""
    models = torchvision.models
    for name in models.list_models(module=models):
        seen = {}
        for weights in models.get_model_weights(name):
            size = weights.transforms().crop_size[0]
            seen.setdefault(size, (weights, size))
        for weights, size in seen.values():
            yield pytest.param(
                name, weights, size, id=f"{name}-{size}", marks=() if name in FEW and size <= 224 else pytest.mark.slow
            )


@pytest.fixture
def regnets_can_be_made(monkeypatch):
    """RegNets work out their widths with tensors, which need numbers in them, also where the weights are on meta."""
    from torchvision.models.regnet import BlockParams

    original = BlockParams.from_init_params

    def from_init_params(*args, **kwargs):
        with torch.device("cpu"):
            return original(*args, **kwargs)

    monkeypatch.setattr(BlockParams, "from_init_params", from_init_params)


@pytest.mark.usefixtures("regnets_can_be_made")
@pytest.mark.filterwarnings("ignore")  # torchvision speaks of how it would initialise weights
@pytest.mark.parametrize(("name", "weights", "size"), list(published()))
def test_macs_are_those_torchvision_publishes(name, weights, size):
    options = {"init_weights": False} if name in ("googlenet", "inception_v3") else {}
    if name.startswith("vit"):
        options = {"image_size": size}
    with torch.device("meta"):
        model = torchvision.models.get_model(name, **options).eval()
        image = torch.empty(1, 3, size, size)
    with torch.no_grad():
        report = fk.count(model, image, strict=True)
    assert round(report.macs / 1e9, 3) == pytest.approx(weights.meta["_ops"], abs=0.0011)
    assert report.under(fk.conventions.EXACT).flops == report.flops  # nothing is masked
    assert report.coverage == 1.0


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", FEW)
def test_backward_of_whole_models(name):
    """Twice the forward, but for the first layer, whose input is an image: it has only the gradient of its weight."""
    with torch.device("meta"):
        model = torchvision.models.get_model(name)
        image = torch.empty(2, 3, 224, 224)
    report = fk.count(lambda: model(image).sum().backward(), strict=True)
    first = next(m for m in model.modules() if isinstance(m, torch.nn.Conv2d))
    stem = fk.count(first, image).flops
    assert report.backward.flops == 2 * report.forward.flops - stem
    image.requires_grad_()
    report = fk.count(lambda: model(image).sum().backward())
    assert report.model_flops == 3 * report.forward.flops
