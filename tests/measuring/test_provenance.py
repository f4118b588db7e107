"""Where a measurement was made. `nvidia-smi` and a card are stand-ins, since no test runs on a GPU."""

import json
import subprocess
from types import SimpleNamespace

import pytest
import torch

from flopkit.counter.modes import tf32_switches
from flopkit.measuring import provenance as module
from flopkit.measuring.provenance import provenance
from flopkit.measuring.workloads import tf32_allowed


def test_of_a_cpu(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    found = provenance("cpu")
    assert json.loads(json.dumps(found)) == found
    assert (found["type"], found["cuda"], found["driver"]) == ("cpu", None, None)
    assert found["torch"] == torch.__version__ and found["flags"]["threads"] == torch.get_num_threads()
    assert found["flags"]["OMP_NUM_THREADS"] == "2" and found["when"].endswith("+00:00")


@pytest.mark.skipif(not hasattr(torch.backends.cuda.matmul, "fp32_precision"), reason="torch before 2.9")
def test_precision_that_was_set_by_the_newer_name():
    """Which the older one refuses to read."""
    matmul = torch.backends.cuda.matmul
    matmul.fp32_precision = "tf32"
    try:
        assert provenance("cpu")["flags"]["float32_matmul_precision"] == "tf32" and tf32_switches()[0]
        with tf32_allowed(False):
            assert not tf32_switches()[0]
        assert tf32_switches()[0]
    finally:
        matmul.allow_tf32 = False
    assert provenance("cpu")["flags"]["float32_matmul_precision"] == "highest"


CARD = SimpleNamespace(uuid="12345678-9abc", total_memory=1)


@pytest.fixture
def card(monkeypatch):
    """A CUDA device, and what `nvidia-smi` was asked and says."""
    asked, says = [], {"text": "570.86.15, 1980, 3201\n"}

    def run(command, **options):
        asked.append(command)
        if command[0] == "git":
            return SimpleNamespace(stdout="0123456789ab\n")
        if isinstance(says["text"], Exception):
            raise says["text"]
        return SimpleNamespace(stdout=says["text"])

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda where: CARD)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda where: "NVIDIA H100 80GB HBM3")
    return asked, says


def test_of_a_card(card):
    found = provenance("cuda")
    assert found["device"] == "NVIDIA H100 80GB HBM3" and found["driver"] == "570.86.15"
    assert found["clocks"] == {"sm": 1980.0, "memory": 3201.0} and found["type"] == "cuda"
    assert card[0][0][1:3] == ("-i", "GPU-12345678-9abc"), "another card's driver and clocks"


@pytest.mark.parametrize(
    "text", [FileNotFoundError(), subprocess.CalledProcessError(9, "nvidia-smi"), "", "No devices were found\n", "570.1, [N/A], [N/A]\n"]
)  # fmt: skip
def test_what_is_not_told_is_none(card, text):
    card[1]["text"] = text
    found = provenance("cuda")
    assert found["clocks"] == {"sm": None, "memory": None}
    assert found["driver"] == ("570.1" if isinstance(text, str) and text.startswith("570") else None)


def test_the_commit_is_of_a_checkout_only(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "__file__", str(tmp_path / "flopkit" / "measuring" / "provenance.py"))
    assert provenance("cpu")["commit"] is None
