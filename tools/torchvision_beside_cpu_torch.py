"""Let torchvision's wheel from PyPI be imported beside a CPU build of torch. Installed into .venv by the Makefile, nowhere else.

The wheel's compiled part needs CUDA. Without it torchvision goes on in pure Python, but then fails while describing two
operators (`nms`, `qnms`) that only the compiled part declares. This module declares them, right before torchvision describes
them, and only where the compiled part did not load. The networks in `torchvision.models` need no more than that.

A line in a .pth file imports this module whenever Python starts, so it loads nothing: it waits for torchvision to be imported.
"""

import sys

DESCRIBES_OPERATORS = "torchvision._meta_registrations"
_kept = []  # torch forgets an operator together with the Library that declared it


class BeforeTorchvisionDescribesOperators:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name == DESCRIBES_OPERATORS:
            sys.meta_path.remove(BeforeTorchvisionDescribesOperators)
            if not sys.modules["torchvision.extension"]._has_ops():
                declare()
        return None


def declare():
    import torch

    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _kept.append(library)


def install(site_packages):
    """Copy this file into `site_packages` together with the .pth line that imports it."""
    from pathlib import Path

    name = Path(__file__).stem
    Path(site_packages, f"{name}.py").write_text(Path(__file__).read_text("utf8"), "utf8")
    Path(site_packages, f"{name}.pth").write_text(f"import {name}\n", "utf8")


if __name__ == "__main__":
    import sysconfig

    install(sysconfig.get_path("purelib"))
else:
    sys.meta_path.insert(0, BeforeTorchvisionDescribesOperators)
