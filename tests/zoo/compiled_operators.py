"""Load torchvision with its compiled operators, also where its wheel was built for CUDA and torch was not.

The wheel's library asks for three of CUDA's, which a CPU build of torch lacks. Three empty ones of the same names, with the functions
that it asks for, let it be loaded. None of these functions is called, as no tensor is on a GPU. Needs Linux, a C compiler and `nm`.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
import subprocess
import tempfile
from pathlib import Path

import torch  # noqa: F401  (its libraries come first)

CUDART = "libcudart.so.13"
ASKED_FOR = (CUDART, "libc10_cuda.so", "libtorch_cuda.so")


def load():
    """torchvision with kernels for nms, roi_align, deform_conv2d and their gradients, or an error that says what is missing."""
    library = Path(importlib.util.find_spec("torchvision").origin).with_name("_C.so")
    try:
        ctypes.CDLL(str(library))
    except OSError:
        stand_in_for_cuda(library)
    import torchvision

    assert torchvision.extension._has_ops(), "torchvision's compiled operators were not loaded"
    return torchvision


def stand_in_for_cuda(library):
    listed = subprocess.run(
        ["nm", "-D", "--undefined-only", library], check=True, capture_output=True, text=True
    ).stdout
    names = sorted({line.split()[-1] for line in listed.splitlines() if "cuda" in line.lower()})
    with tempfile.TemporaryDirectory() as folder:
        for asked in ASKED_FOR:
            mine = [name.split("@")[0] for name in names if ("@" in name) == (asked == CUDART)]
            source, versions = Path(folder, "empty.c"), Path(folder, "versions")
            source.write_text("".join(f"long {name}(void) {{ return 0; }}\n" for name in mine))
            versions.write_text(f"{CUDART} {{ *; }};\n")
            options = [f"-Wl,--version-script={versions}"] if asked == CUDART else []
            made = Path(folder, asked)
            compiler = os.environ.get("CC", "cc")
            subprocess.run(
                [compiler, "-shared", "-fPIC", f"-Wl,-soname,{asked}", *options, source, "-o", made], check=True
            )
            ctypes.CDLL(str(made), mode=ctypes.RTLD_GLOBAL)
