"""A model of torchvision that calls compiled operators, counted in a process of its own: `python tests/zoo/detectors.py NAME`."""

from __future__ import annotations

import sys

import torch
from torch import nn

SIZE = 128
# Operators whose work depends on values: how many boxes overlap, and how large those are that masks are cut out of.
NMS, CROP = "torchvision.nms", "torchvision.roi_align"
UNCOUNTED_IN_TRAINING = {
    "fasterrcnn_mobilenet_v3_large_320_fpn": {NMS},
    "keypointrcnn_resnet50_fpn": {NMS},
    "maskrcnn_resnet50_fpn": {NMS, CROP},
}  # models of one stage choose no boxes while they learn


class Deformed(nn.Module):
    """Where a convolution reads, and how much of it, is learnt by two others."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3)
        self.offsets, self.shares = nn.Conv2d(4, 2 * 2 * 9, 3, padding=1), nn.Conv2d(4, 2 * 9, 3, padding=1)
        self.last = torchvision.ops.DeformConv2d(4, 6, 3, padding=1, groups=2)

    def forward(self, images):
        x = self.first(images)
        return self.last(x, self.offsets(x), self.shares(x).sigmoid())


class Cropped(nn.Module):
    """Regions of a map, cut out and looked at."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 4, 3)

    def forward(self, images):
        boxes = [torch.tensor([[0.0, 0.0, 9.0, 7.0], [3.0, 2.0, 20.0, 18.0]])] * len(images)
        return self.last(torchvision.ops.roi_align(self.first(images), boxes, 5, sampling_ratio=2))


def detector(name):
    """A network that finds things, with nothing learnt, and what it should have found in two images."""
    model = torchvision.models.get_model(name, weights=None, weights_backbone=None, num_classes=5)
    model.transform.min_size, model.transform.max_size, model.score_thresh = (SIZE,), SIZE, 0.0
    target = {
        "boxes": torch.tensor([[10.0, 20.0, 90.0, 100.0]]),
        "labels": torch.tensor([1]),
        "masks": torch.ones(1, SIZE, SIZE, dtype=torch.uint8),
        "keypoints": torch.tensor([[[30.0, 40.0, 1.0]] * 17]),
    }
    return model, ([*torch.rand(2, 3, SIZE, SIZE)], [target, target])


if __name__ == "__main__":
    import compiled_operators
    from whole_models import check

    torchvision = compiled_operators.load()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    name = sys.argv[1]
    if name in ("Deformed", "Cropped"):
        check(globals()[name](), (torch.rand(2, 3, SIZE, SIZE),), meta=name == "Deformed")
    else:
        check(*detector(name), uncounted={NMS}, uncounted_in_training=UNCOUNTED_IN_TRAINING.get(name, ()), meta=False)
