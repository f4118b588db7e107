"""A report on a cluster: the roofline of its operators on one of the devices, and the least time of what goes between them."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from flopkit.counter import breakdown
from flopkit.counter.work import PHASES
from flopkit.rooflines import ProgramBound, program_bound

if TYPE_CHECKING:
    from flopkit.parallel import Cluster

# A root that sends another part to each rank, or takes one from each, has the traffic of an all-to-all over its own links.
_AS = {"gather": "all-to-all", "scatter": "all-to-all"}


def on_cluster(report: Any, cluster: Cluster, dtype: Any) -> ProgramBound:
    """`Report.roofline` on a cluster."""
    one, reached = cluster.device, cluster.matmul_efficiency
    device: Any = one
    if reached < 1:
        device = SimpleNamespace(
            name=one.name, bandwidth=one.bandwidth, dtypes=one.dtypes, peak=lambda dtype: reached * one.peak(dtype)
        )
    plain = program_bound(breakdown.calls(report), device, dtype, phases=PHASES, convention=report.convention)
    rows: dict[str, dict[str, Any]] = {}
    uneven = 0
    for entry, _, calls in report.lines():
        for each in entry.work.exchanges:
            if each.ranks == 1 or each.collective == "receive":
                continue
            seconds, differs = _seconds(each, cluster)
            name = each.collective if each.collective == "send" else f"{each.collective}, {each.ranks} ranks"
            row = rows.setdefault(name, {"operator": name, "calls": 0, "seconds": 0.0})
            row["calls"] += calls
            row["seconds"] += calls * seconds
            uneven += calls * differs
    notes = [f"{uneven:,} collectives with parts that differ are taken to go to all nodes alike"] * bool(uneven)
    return plain.beside([*rows.values()], f"{cluster.device.name} of {cluster.name}", notes)


def _seconds(each: Any, cluster: Cluster) -> tuple[float, bool]:
    """The least time of one collective, and whether its parts differ."""
    from flopkit.parallel import Exchange, all_gather, all_reduce, all_to_all, broadcast, reduce, reduce_scatter, send

    if each.members is None:
        raise ValueError(
            f"{cluster.name}: the report does not know which ranks take part in an {each.collective}; "
            "count it under torch.distributed or fk.simulate_ranks"
        )
    in_nodes = Counter(rank // cluster.per_node for rank in each.members).values()
    if min(in_nodes) != max(in_nodes):
        raise ValueError(
            f"{cluster.name}: the {len(each.members)} ranks of an {each.collective} fill nodes of {cluster.per_node} unevenly, for which no "
            "least time is known here; give a cluster whose per_node divides them, as cluster.replace(per_node=…)"
        )
    if each.collective == "send":
        return float(send(bytes=each.payload).on(cluster, in_node=max(in_nodes))), False
    makers = {
        "all-reduce": all_reduce, "all-gather": all_gather, "reduce-scatter": reduce_scatter, "all-to-all": all_to_all,
        "broadcast": broadcast, "reduce": reduce,
    }  # fmt: skip
    whole: Exchange = makers[_AS.get(each.collective, each.collective)](bytes=each.payload, ranks=each.ranks)
    seconds = float(whole.on(cluster, in_node=max(in_nodes)))
    if each.collective in _AS or each.sent == whole.sent:
        return seconds, False
    return seconds * float(each.sent / whole.sent), True
