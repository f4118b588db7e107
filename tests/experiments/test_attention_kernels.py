"""Attention kernels: what each of them counts by hand, that the check sees a wrong mask, and which kernels a device is asked for."""

import pytest
import torch

import flopkit as fk
from flopkit.experiments import Bench, attention_kernels as module

HEADS, DIM = 2, 8  # the sizes at toy scale, one sequence


@pytest.fixture(scope="module")
def records(toy):
    return toy("attention_kernels")[1]


def of(records, **wanted):
    return [each for each in records if wanted.items() <= each["params"].items()]


def test_kernels_masks_and_lengths(records):
    assert len(records) == 8
    for kernel in ("math", "flash"):
        for causal in (False, True):
            assert [each["params"]["tokens"] for each in of(records, kernel=kernel, causal=causal)] == [16, 32]


def test_flops_by_hand(records):
    """Two products of head_dim multiply-adds a pair. Flash leaves out the pairs that a causal mask hides, math computes them."""
    for each in records:
        s = each["params"]["tokens"]
        seen = s * (s + 1) // 2 if each["params"]["causal"] else s * s
        assert each["extra"] == {"model_flops": HEADS * seen * 4 * DIM}
        executed = s * s if each["params"]["kernel"] == "math" else seen
        assert each["counted"]["flops"] == HEADS * executed * 4 * DIM


def test_math_moves_the_scores(records):
    """Queries, keys, values and output once each; math writes and reads the scores besides: of two products and the softmax, twice each."""
    for each in records:
        s = each["params"]["tokens"]
        own = 4 * 4 * HEADS * s * DIM
        scores = 4 * HEADS * s * s
        assert each["counted"]["bytes"] == own + (4 * scores if each["params"]["kernel"] == "math" else 0)


@pytest.mark.parametrize("causal", [False, True])
def test_the_check_is_attention(causal, monkeypatch):
    monkeypatch.setattr(module, "BLOCK", 5)
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 17, 4, dtype=torch.float64) for _ in range(3))
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert torch.allclose(module._by_blocks(causal)(q, k, v), wanted, atol=1e-12)


def test_a_kernel_that_forgets_the_mask_is_wrong():
    q, k, v = (torch.randn(1, 2, 32, 8) for _ in range(3))
    found = fk.measure(module.sdpa("flash", False), q, k, v, time_budget=0.05, check=module._by_blocks(True))
    assert found.verdict == "wrong"


class Cuda(Bench):
    """A bench that says it is on a CUDA device and keeps the sizes it would measure; nothing runs there."""

    def __init__(self, memory, capability, monkeypatch):
        super().__init__("cpu", "gpu")
        self.device = torch.device("cuda")
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
        card = type("Card", (), {"total_memory": memory})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: card)

    def case(self, experiment, params, make, dtype, **how):
        return {"params": params, "dtype": dtype}


def test_an_h200_runs_three_kernels_and_math_while_its_scores_fit(monkeypatch):
    records = list(module.run(Cuda(141e9, (9, 0), monkeypatch)))
    assert {each["dtype"] for each in records} == {"bf16"}
    assert {each["params"]["tokens"] for each in of(records, kernel="math")} == {1024, 4096}
    for kernel in ("efficient", "flash"):
        assert {each["params"]["tokens"] for each in of(records, kernel=kernel)} == {1024, 4096, 16384}


def test_a_t4_has_no_flash(monkeypatch):
    records = list(module.run(Cuda(15e9, (7, 5), monkeypatch)))
    assert {each["params"]["kernel"] for each in records} == {"math", "efficient"}
    assert {each["params"]["tokens"] for each in of(records, kernel="math")} == {1024}
    assert {each["dtype"] for each in records} == {"fp16"}
