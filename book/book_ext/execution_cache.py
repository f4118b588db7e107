"""Sphinx extension: outputs of chapters are kept only as long as the code that made
them is the same.

Jupyter's cache knows a notebook by its own cells. A chapter whose text stays while
flopkit changes would be shown with yesterday's numbers. So the cache's folder is named
after everything else a chapter runs on.
"""

import hashlib
import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "numpy",
    "torch",
    "torchvision",
    "sympy",
    "altair",
    "vl-convert-python",
    "anywidget",
    "ipywidgets",
    "ipykernel",
    "myst-nb",
    "transformers",
    "fvcore",
    "ptflops",
    "thop",
    "calflops",
    "torchinfo",
)
INHERITED = {  # by the kernels that run the chapters
    "TQDM_DISABLE": "1",  # a bar that was in motion is noise on a page
    "FLOPKIT_BOOK": "1",  # a figure shows the form for a page without a kernel
}


def key(root):
    """A short hash of flopkit's sources and data, Python's version and the versions of
    `PACKAGES`."""
    digest = hashlib.sha256(sys.version.encode())
    for name in PACKAGES:
        try:
            digest.update(f"{name} {metadata.version(name)}\n".encode())
        except metadata.PackageNotFoundError:
            digest.update(f"{name} missing\n".encode())
    for path in sorted((root / "flopkit").rglob("*")):
        if path.is_file() and path.suffix != ".pyc" and "static" not in path.parts:  # scripts and styles are no output
            digest.update(path.relative_to(root).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def name_cache(app, config):
    root = Path(app.confdir)
    caches = root / "_build" / "executed"
    current = caches / key(root)
    for old in caches.glob("*"):
        if old != current:
            shutil.rmtree(old, ignore_errors=True)
    config.nb_execution_cache_path = str(current)


def setup(app):
    os.environ.update(INHERITED)
    app.connect("config-inited", name_cache, priority=100)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
