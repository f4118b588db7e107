"""The tables that chapters make of the reader's own run, where its ceilings were measured too low or its times scatter."""

import pytest
from chapters import notebooks

import flopkit as fk
from flopkit.recordings import Case
from flopkit.tables import Table
from flopkit.units import percent

BOOKS = {book.name: book for book in notebooks()}
WORK = {"flops": 2e9, "bytes": 1e9}  # 0.1 s at a peak of 2e10 FLOP/s, and at 1e10 bytes/s


def made(page, *marks, **given):
    """The names after the cells of the page that contain these marks ran."""
    names = {"fk": fk, "Table": Table, "percent": percent, **given}
    for mark in marks:
        [cell] = [cell for cell in BOOKS[page].code if mark in cell.text]
        exec(cell.text, names)
    return names


def case(seconds, flops_per_s=2e10, noise=0.01, **params):
    ok = {"verdict": "ok"}
    ceilings = {"title": "a CPU", "threads": 2, "memory": 1e10, "when": "2026-01-01"}
    ceilings |= {
        "matmul": {"fp32": {"flops_per_s": flops_per_s, **ok}},
        "traffic": {"copy": {"bytes_per_s": 1e10, **ok}},
    }
    took = {"mean": seconds, "low": seconds * (1 - noise), "high": seconds * (1 + noise)}
    record = {"params": params, "dtype": "fp32", "counted": WORK, "seconds": took, "steady": True, **ok}
    record["extra"] = {"model_flops": 2e9, "six_n_flops": 2.2e9}
    return Case(record, "yours", "yours: a CPU", "a CPU", ceilings)


@pytest.mark.parametrize("peak", [2e10, 1e9])
def test_decoding(peak):
    """A peak of 1e9 FLOP/s would ask for 2 s, and a step took 0.4 s: no step is bounded by it, the slow one neither, so the table has none."""
    settings = {"context": 256, "mode": "eager"}
    yours = [case(0.4, peak, batch=1, **settings), case(3, peak, noise=1.5, batch=2, **settings)]
    names = made("16_decode", "def least_time(case)", yours=yours)
    rows = names["by_users"]
    own = [row for row in rows if row["whose"] == "yours"]
    if peak == 2e10:
        one, two = own
        assert one["at least (ms)"] == two["at least (ms)"] == "100.00"
        assert (one["share of the bound"], two["share of the bound"]) == ("0.25", "0.03")
        assert (one["eager (ms)"], two["eager (ms)"]) == ("396.0 to 404.0", "too noisy for an interval")
    else:
        assert own == [] and "Yours is left out" in names["whose"]
    assert all(float(row["share of the bound"]) < 1 for row in rows if row["whose"] == "ours")


@pytest.mark.parametrize("peak", [2e10, 1e9])
def test_a_training_step(peak):
    sizes = {"compiled": False, "batch": 1}
    yours = [case(0.4, peak, **sizes), case(3, peak, noise=1.5, **sizes)]
    rows = made("13_utilisation", "def step_row(", "peaks_here", yours=yours)["steps"]
    shares = [(row["EXACT"], row["6N"]) for row in rows]
    if peak == 2e10:
        assert shares == [("25 %", "27.5 %"), ("3.33 %", "3.67 %")]
    else:
        assert shares == [("ceiling too low",) * 2] * 2
    assert [row["±"] for row in rows] == ["1 %", "too noisy"]
