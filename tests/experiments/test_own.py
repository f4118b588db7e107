"""An experiment on the reader's own machine: what is kept comes first, a short run else."""

from types import SimpleNamespace

import pytest

from flopkit import experiments, machine
from flopkit.charts import measured, on_one_roof
from flopkit.experiments import own

CEILINGS = {
    "title": "a CPU", "kind": "cpu", "threads": 2, "memory": 1e9, "when": "2026-01-01T00:00:00+00:00",
    "matmul": {"fp32": {"flops_per_s": 1e11, "verdict": "ok"}}, "traffic": {"copy": {"bytes_per_s": 1e10, "verdict": "ok"}},
}  # fmt: skip


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path))
    monkeypatch.setattr(machine, "kind", lambda: "cpu")  # the cases are those of a CPU, also beside a GPU
    return tmp_path


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(own, "_ceilings", lambda bench: CEILINGS)


def test_a_short_run_says_whose_it_is_and_is_not_kept(folder, quick):
    found = experiments.here("matmul_sizes", time_budget=0.02, scale="toy")
    assert len(found) == 3 and {case.owner for case in found} == {"yours"}
    assert {case.whose for case in found} == {"yours: a CPU, a short run"}
    assert not list(folder.iterdir())


def test_the_limit_ends_it_after_a_case(folder, quick):
    assert len(experiments.here("matmul_sizes", limit=0, time_budget=0.02, scale="toy")) == 1


@pytest.mark.parametrize(
    "took, begun", [([4.0, 4.0, 4.0], 2), ([6.0, 1.0], 1), ([1.0, 5.0, 4.0, 1.0], 2), ([5.0, 5.0], 2)]
)
def test_no_case_is_begun_that_would_pass_the_limit(folder, quick, monkeypatch, took, begun):
    clock = 100.0

    def run(bench):
        nonlocal clock
        for seconds in took:
            clock += seconds
            yield {"seconds": seconds}

    monkeypatch.setattr(own, "experiment", lambda name: SimpleNamespace(name=name, run=run))
    monkeypatch.setattr(own.time, "monotonic", lambda: clock)
    assert [case["seconds"] for case in own.short_run("slow", limit=10, scale="toy")] == took[:begun]


def test_a_run_of_the_first_cases_only(folder, quick):
    assert len(experiments.here("matmul_sizes", time_budget=0.02, scale="toy", cases=2)) == 2
    with pytest.raises(ValueError, match="cases=-1: a size must be at least 1"):
        experiments.here("matmul_sizes", scale="toy", cases=-1)
    with pytest.raises(TypeError, match="cases=2.5: a size must be an int"):
        experiments.here("matmul_sizes", scale="toy", cases=2.5)
    with pytest.raises(ValueError, match="limit=-1: must be a finite number of seconds"):
        experiments.here("matmul_sizes", scale="toy", limit=-1)


def test_what_the_reader_has_recorded_comes_first(folder, quick):
    experiments.record(folder / "mine.json", only=["matmul_sizes"], device="cpu", scale="toy")
    found = experiments.here("matmul_sizes", limit=0)
    assert len(found) == 3 and all(
        machine.title("cpu") in case.whose and "short run" not in case.whose for case in found
    )


def test_ceilings_that_are_kept_are_taken(folder, monkeypatch):
    monkeypatch.setattr(own, "ceilings", lambda *args, **named: pytest.fail("measured anew"))
    machine.keep_ceilings({**CEILINGS, "title": machine.title("cpu")})
    [case] = experiments.here("matmul_sizes", limit=0, time_budget=0.02, scale="toy")
    assert case.ceilings["matmul"] == CEILINGS["matmul"]


def test_dots_are_cases_with_times_and_ceilings(folder, quick):
    cases = experiments.here("matmul_sizes", time_budget=0.02, scale="toy")
    cases[0]["verdict"] = "impossible"
    cases[1].ceilings = None
    [layer] = measured(cases, lambda case: case["params"]["data"])
    assert (layer.flops_per_s, layer.bytes_per_s, layer.ceilings) == (1e11, 1e10, "measured")
    [(label, flops, _bytes, seconds)] = layer.rows
    assert (label, flops, seconds) == ("zeros", 2 * 32**3, cases[2]["seconds"]["mean"])


def test_quick_ceilings_are_measured_once(folder, monkeypatch):
    class Found:
        def record(self):
            return CEILINGS

    asked = []
    monkeypatch.setattr(own, "ceilings", lambda *args, **named: asked.append(named) or Found())
    own._quick.cache_clear()
    try:
        for _ in range(2):
            [case] = experiments.here("matmul_sizes", limit=0, time_budget=0.02, scale="toy")
            assert case.ceilings == CEILINGS
    finally:
        own._quick.cache_clear()
    assert [named["keep"] for named in asked] == [False]


def test_a_short_run_hands_on_case_by_case(folder, quick):
    experiments.record(folder / "mine.json", only=["matmul_sizes"], device="cpu", scale="toy")
    run = experiments.short_run("matmul_sizes", time_budget=0.02, scale="toy")
    assert "short run" in next(run).whose and len(list(run)) == 2  # a recording that is kept does not replace it


def test_a_case_that_cannot_run_here_ends_the_run_and_says_so(folder, quick, monkeypatch):
    """As torch.compile does without a C++ compiler: what was measured before it stays."""

    def run(bench):
        import torch

        yield bench.case("matmul_sizes", {"n": 8}, lambda: (torch.mm, torch.ones(8, 8), torch.ones(8, 8)), "fp32")
        raise RuntimeError("no compiler\nand much more")

    real = own.experiment("matmul_sizes")
    monkeypatch.setattr(own, "experiment", lambda name: type("Fake", (), {"name": real.name, "run": staticmethod(run)}))
    with pytest.warns(UserWarning, match="matmul_sizes: ended after 1 cases, RuntimeError: no compiler$"):
        [case] = experiments.here("matmul_sizes", scale="toy")
    assert case["case"] == "n=8"
    monkeypatch.setattr(
        own, "experiment", lambda name: type("Fake", (), {"name": "matmul_sizes", "run": lambda bench: 1 / 0})
    )
    with pytest.raises(ZeroDivisionError):
        experiments.here("matmul_sizes", scale="toy")


def test_a_ceiling_that_a_case_exceeds_is_raised_to_it(folder, quick):
    cases = experiments.here("matmul_sizes", time_budget=0.02, scale="toy")
    for number, case in enumerate(cases):
        case["seconds"]["mean"] = case["counted"]["flops"] / ((number + 1) * 1e11)
    [layer] = measured(cases)
    assert (layer.flops_per_s, layer.bytes_per_s) == (pytest.approx(3e11), 1e10)
    assert max(row["rate"] for row in layer.placed()) == 1
    assert layer.ceilings == "measured, raised to the fastest dot"
    caption = on_one_roof([layer], "A title", "A conclusion.").caption
    assert caption.endswith("measured roof, raised to the fastest dot.")
