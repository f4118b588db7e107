"""The zoo's own tools: `check` notices what it looks for, and the nightly run finds all it needs."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import whole_models
import yaml
from torch import nn
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack
from whole_models import check

ROOT = Path(__file__).resolve().parents[2]


class Net(nn.Module):
    """A convolution, a rectifier in place, attention, a layer of several names; `twist` may change what comes out."""

    def __init__(self, twist=lambda x: x):
        super().__init__()
        self.stem, self.qkv, self.head = nn.Conv2d(3, 8, 3, groups=1), nn.Linear(8, 24), nn.Linear(8, 5)
        self.again, self.twist = self.head, twist

    def forward(self, image):
        x = nn.functional.relu_(self.stem(image)).flatten(2).mT
        q, k, v = self.qkv(x).chunk(3, -1)
        x = nn.functional.scaled_dot_product_attention(q, k, v)
        return self.twist(self.head(x) + self.again(x))


def watched():
    return len(_get_current_dispatch_mode_stack()) > 0


@torch.library.custom_op("zoo::opaque", mutates_args=())
def opaque(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() + 1)


@opaque.register_fake
def _(x):
    return torch.empty_like(x)


opaque.register_autograd(lambda context, gradient: gradient)


class Rounding(torch.autograd.Function):
    """Only the gradient is another one while it is counted."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * (1 + 1e-6 * watched())


def test_a_model_that_is_right_passes():
    torch.manual_seed(0)
    check(Net(), (torch.randn(2, 3, 8, 8),))


@pytest.mark.parametrize(
    ("twist", "found"),
    [
        (lambda x: x * (1 + 1e-6 * watched()), "outputs that differ"),
        (Rounding.apply, "gradients that differ"),
        (lambda x: opaque(x), "uncounted.*zoo.opaque"),
    ],
)
def test_another_result_and_an_unknown_operator_are_noticed(twist, found):
    torch.manual_seed(0)
    with pytest.raises(AssertionError, match=found):
        check(Net(twist), (torch.randn(2, 3, 8, 8),))


@pytest.mark.parametrize(
    ("name", "forward", "backward", "found"),
    [
        ("conv2d", 1, 0, "forward: "),
        ("linear", 0, 1, "backward: "),
        ("scaled_dot_product_attention", 0, 1, "backward: "),
    ],
)
def test_a_number_that_is_off_by_one_multiply_add_is_noticed(monkeypatch, name, forward, backward, found):
    right = whole_models.PRODUCTS[name]

    def wrong(*args, **kwargs):
        forwards, backwards, *more = right(*args, **kwargs)
        return forwards + forward, backwards + backward, *more

    monkeypatch.setitem(whole_models.PRODUCTS, name, wrong)
    with pytest.raises(AssertionError, match=f"^{found}"):
        check(Net(), (torch.randn(2, 3, 8, 8),))


# -------------------------------------------------------------------------------------------------------- the nightly run


def pins():
    lines = (ROOT / "tools" / "zoo.txt").read_text("utf8").splitlines()
    return dict(line.split("==") for line in lines if not line.startswith("#"))


def test_each_library_that_may_be_missing_is_pinned_and_torch_stays_what_it_is():
    constraints = {line.split("==")[0] for line in (ROOT / "constraints.txt").read_text("utf8").splitlines()}
    asked = set()
    for path in Path(__file__).parent.glob("test_*.py"):
        asked |= {name.split(".")[0] for name in re.findall(r'importorskip\("(\S+?)"', path.read_text("utf8"))}
    assert asked - {"torchvision", "transformers"} <= set(pins())
    assert not set(pins()) & constraints
    assert asked & set(pins()) == {"timm", "diffusers", "peft", "torch_geometric", "ultralytics"}


def test_a_schedule_runs_them():
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "zoo.yml").read_text("utf8"))
    when = workflow[True]  # YAML's `on`
    (entry,) = when["schedule"]
    assert re.fullmatch(r"\d+ \d+ \* \* \*", entry["cron"])
    assert [step["run"] for step in workflow["jobs"]["count"]["steps"] if "run" in step] == ["make zoo"]
    recipe = re.search(r"^zoo:.*\n((?:\t.*\n)+)", (ROOT / "Makefile").read_text("utf8"), re.M)[1]
    assert "-m zoo tests/zoo" in recipe and "_build/zoo" in recipe
    assert all(name in recipe for name in pins() if name not in ("xxhash", "opencv-python-headless", "ultralytics"))


@pytest.mark.parametrize(("asked", "kept"), [("", [2]), ("not browser", [2]), ("zoo", [1, 2])])
def test_only_the_sample_runs_where_nobody_asks_for_the_zoo(asked, kept):
    """With `-m zoo` pytest itself then takes those that are marked."""
    gone = []
    config = SimpleNamespace(
        getoption={"markexpr": asked, "--fast": False}.get,
        hook=SimpleNamespace(pytest_deselected=lambda items: gone.extend(items)),
    )
    items = [SimpleNamespace(number=n, get_closest_marker=lambda name, n=n: name == "zoo" and n == 1) for n in (1, 2)]
    runpy.run_path(str(ROOT / "tests" / "conftest.py"))["pytest_collection_modifyitems"](config, items)
    assert [item.number for item in items] == kept
    assert sorted([*kept, *(item.number for item in gone)]) == [1, 2]
