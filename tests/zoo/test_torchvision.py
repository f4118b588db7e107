"""torchvision: networks for images, pixels, videos and motion; detectors with the compiled operators, in processes of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from whole_models import check

torchvision = pytest.importorskip("torchvision")

DAILY = "squeezenet1_1 mobilenet_v3_small shufflenet_v2_x0_5 efficientnet_b0 swin_v2_t lraspp_mobilenet_v3_large r3d_18".split()
IMAGES = """
    alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet inception_v3 maxvit_t mnasnet0_5 mobilenet_v2
    mobilenet_v3_small regnet_x_400mf regnet_y_400mf resnet18 resnext50_32x4d shufflenet_v2_x0_5 squeezenet1_1 swin_t swin_v2_t
    vgg11_bn vit_b_32 wide_resnet50_2
""".split()
PIXELS = "deeplabv3_mobilenet_v3_large fcn_resnet50 lraspp_mobilenet_v3_large".split()
VIDEOS = "mc3_18 r2plus1d_18 r3d_18 s3d swin3d_t".split()
DETECTORS = """
    fasterrcnn_mobilenet_v3_large_320_fpn fcos_resnet50_fpn keypointrcnn_resnet50_fpn maskrcnn_resnet50_fpn retinanet_resnet50_fpn
    ssdlite320_mobilenet_v3_large Cropped Deformed
""".split()


def sample(names):
    """All of them by `make zoo`, those in `DAILY` by `make test`, too."""
    return [pytest.param(name, marks=() if name in DAILY else pytest.mark.zoo) for name in names]


@pytest.fixture
def make():
    def make(name, **options):
        torch.manual_seed(0)
        return torchvision.models.get_model(name, weights=None, **options)

    return make


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sample(IMAGES + PIXELS))
def test_images(make, name):
    size = {"inception_v3": 96, "maxvit_t": 224}.get(name, 64)
    options = {"init_weights": False, "aux_logits": False} if name in ("googlenet", "inception_v3") else {}
    options |= {"weights_backbone": None} if name in PIXELS else {}
    options |= {"image_size": size} if name.startswith("vit") else {}
    check(make(name, **options), (torch.randn(2, 3, size, size),))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", sample(VIDEOS))
def test_videos(make, name):
    size = (16, 224, 224) if name == "s3d" else (8, 64, 64)
    check(make(name), (torch.randn(2, 3, *size),))


@pytest.mark.zoo
@pytest.mark.filterwarnings("ignore")
def test_motion(make):
    frames = torch.rand(2, 2, 3, 128, 128)
    check(make("raft_small"), (*frames, 2))


@pytest.mark.zoo
@pytest.mark.skipif(
    sys.platform != "linux" or not shutil.which("cc"), reason="the compiled operators need Linux and cc"
)
@pytest.mark.parametrize("name", DETECTORS)
def test_compiled_operators(name):
    script = Path(__file__).with_name("detectors.py")
    ran = subprocess.run([sys.executable, "-W", "ignore", script, name], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr[-3000:]
