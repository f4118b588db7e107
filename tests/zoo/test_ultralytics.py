"""ultralytics: the small models of each generation and task."""

from __future__ import annotations

import pytest
import torch
from whole_models import check

tasks = pytest.importorskip("ultralytics.nn.tasks", reason="make zoo installs ultralytics")

pytestmark = pytest.mark.zoo

NAMES = """
    yolov3-tiny yolov5n yolov6n yolov8n yolov9t yolov10n yolo11n yolo12n yolo26n rtdetr-resnet50
    yolo11n-seg yolo11n-pose yolo11n-obb yolo11n-cls
""".split()
MODELS = {"seg": "SegmentationModel", "pose": "PoseModel", "obb": "OBBModel", "cls": "ClassificationModel"}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", NAMES)
def test_counted(name):
    torch.manual_seed(0)
    model = getattr(tasks, MODELS.get(name.split("-")[-1], "DetectionModel"))(f"{name}.yaml", verbose=False)
    check(model, (torch.rand(2, 3, 64, 64),), meta=False)
