"""Published tables, row by row: what papers and frameworks print, and what flopkit gives under their own conventions.

A row counts as reproduced only where a call of flopkit yields its number; what is plain arithmetic on printed numbers is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from flopkit.names import find
from flopkit.published import serving, training
from flopkit.published.audit import Cause, Trainer, trainer, trainer_names, trainers
from flopkit.published.collectives import AllReduce, nccl_tests
from flopkit.published.parallel_runs import LeftOut, ParallelRun, parallel_runs, runs_left_out
from flopkit.published.rows import Agreement, Row, read
from flopkit.published.training import llm_foundry_printed
from flopkit.published.translating import presets, translate
from flopkit.tables import Table

__all__ = [
    "AllReduce", "Cause", "LeftOut", "ParallelRun", "Row", "Trainer", "check", "llm_foundry_printed", "names", "nccl_tests", "parallel_runs", "presets", "rows", "runs_left_out", "source", "tally", "trainer",
    "trainer_names", "trainers", "translate",
]  # fmt: skip

_TABLES: dict[str, Callable[[], Iterator[Row]]] = {
    "llm_foundry": training.llm_foundry, "narayanan_2021": training.narayanan, "korthikanti_2022": training.korthikanti,
    "nanogpt": training.nanogpt, "chinchilla_a4": training.chinchilla, "palm_table_3": training.palm, "llama_3": training.llama_3,
    "deepseek_v3": training.deepseek, "pope_2022": serving.pope, "gpt_fast": serving.gpt_fast,
    "scaling_book": serving.scaling_book, "kipply": serving.kipply,
}  # fmt: skip


def names() -> list[str]:
    """The tables that are checked.

    >>> "palm_table_3" in names()
    True
    """
    return list(_TABLES)


def rows(name: str) -> list[Row]:
    """The numbers of a table, each with ours.

    Parameters
    ----------
    name : str
        One of `names`.

    Raises
    ------
    ValueError
        For a name that is not known, with near ones.

    Examples
    --------
    >>> [(row.row, row.printed, row.verdict) for row in rows("chinchilla_a4")][-1]
    ('6.8B', '0.99', 'reproduced')
    """
    return list(_TABLES[find(name, _TABLES, "a published table")]())


def check(name: str) -> Table:
    """A table row by row: printed, ours, verdict, why they differ, and what we assumed where the source does not print an input.

    Parameters
    ----------
    name : str
        One of `names`.

    Examples
    --------
    >>> check("chinchilla_a4")[0]["verdict"]
    'reproduced'
    """
    key = find(name, _TABLES, "a published table")
    lines = [
        {
            "row": row.row, "quantity": row.quantity, "printed": row.printed, "ours": _shown(row), "verdict": row.verdict,
            "why": row.why if row.verdict == Agreement.DIFFERENT else "", "assumed": row.assumed,
        }
        for row in rows(key)
    ]  # fmt: skip
    return Table(lines, caption=f"{source(key)}, as flopkit counts it")


def source(name: str) -> str:
    """Where a table stands.

    Parameters
    ----------
    name : str
        One of `names`.

    Examples
    --------
    >>> source("pope_2022")
    'Pope et al. 2022, arXiv:2211.05102, table 2'
    """
    if name == "llm_foundry":
        return "MosaicML llm-foundry, scripts/train/benchmarking/README.md at commit 8c8dd48f"
    return str(read(name)["source"])


def tally() -> Table:
    """How many numbers of each table are reproduced, inside rounding, and not.

    >>> tally()[-1]["table"]
    'all'
    """
    found = {name: Counter(row.verdict for row in rows(name)) for name in _TABLES}
    found["all"] = sum(found.values(), Counter())
    lines = [
        {"table": name, "numbers": n.total(), **{kind: n[kind] for kind in Agreement}} for name, n in found.items()
    ]
    return Table(lines, caption="Published numbers, checked")


def _shown(row: Row) -> str:
    low, high = row.ours
    return f"{low:,.6g}" if low == high else f"{low:,.6g} to {high:,.6g}"
