"""The experiments by name.

Each is a file beside this one: ``TITLE``; ``PREDICTION``, in words; ``EXPECTATIONS``,
the parts of it that recorded cases can test, by the scale of the cases; ``run(bench)``,
which yields records. ``MEANT`` explains words of a prediction, which stays as it was
written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module

from flopkit import names
from flopkit.experiments.bench import Bench, Record
from flopkit.experiments.expectations import Expectation, Finding
from flopkit.recordings.cases import Case

__all__ = ["NAMES", "Experiment", "experiment"]

NAMES = (
    "matmul_sizes",
    "matmul_tiles",
    "dense_batch",
    "convolutions",
    "backward_ratio",
    "attention_kernels",
    "checkpointing",
    "experts",
    "gpt_step",
    "cnns",
    "cnn_operators",
    "fusion",
    "decode",
    "all_reduce",
    "strategies",
    "wire",
)


@dataclass(frozen=True)
class Experiment:
    """An experiment: its question, the prediction that was written before measuring,
    and how it is run.

    >>> one = experiment("matmul_sizes")
    >>> records = list(one.run(Bench("cpu", "toy")))
    >>> {record["verdict"] for record in records}
    {'ok'}
    """

    name: str
    title: str
    prediction: str
    expectations: Mapping[str, tuple[Expectation, ...]]
    meant: Mapping[str, str]

    def findings(self, scale: str, cases: Iterable[Case]) -> list[Finding]:
        """What *cases*, recorded at this scale, show of each part of the prediction;
        none where it says nothing of such a device."""
        recorded = list(cases)
        return [each.judged(recorded) for each in self.expectations.get(scale, ())]

    def run(self, bench: Bench) -> Iterator[Record]:
        """Measure case by case, on *bench*."""
        return import_module(f"flopkit.experiments.{self.name}").run(bench)  # type: ignore[no-any-return]


def experiment(name: str) -> Experiment:
    """The experiment called *name*.

    Raises
    ------
    ValueError
        For a name that is none of `NAMES`, with near ones.
    """
    found = names.find(name, NAMES, "an experiment")
    module = import_module(f"flopkit.experiments.{found}")
    return Experiment(found, module.TITLE, module.PREDICTION, module.EXPECTATIONS, getattr(module, "MEANT", {}))
