"""A run whose layout is known: the arguments of its gap, and errors for those that cannot be."""

from __future__ import annotations

from typing import Any

from flopkit.devices import Device
from flopkit.models.catalogue import the_model
from flopkit.parallel import Cluster, Gap, Layout, cluster as known_cluster, cluster_names, gap
from flopkit.sizes import number

__all__ = ["gap_at", "gap_of"]


def gap_of(
    parallel: Any, cluster: Any, card: Device, model: Any, seq: int | None, lengths: Any, count: int, batch: int | None,
    recompute: str, trained: Any,
) -> dict[str, Any]:  # fmt: skip
    """The arguments of `flopkit.parallel.gap` but for the rate; none where no gap is asked for."""
    if not isinstance(parallel, Layout) or (batch is None and cluster is None):
        if cluster is not None:
            raise TypeError(
                "cluster= goes with parallel=fk.parallel.Layout(…) and global_batch=, which say what ran on it"
            )
        return {}
    for name, value, what in (
        ("global_batch", batch, "sequences of a step"),
        ("model", model, "what was trained"),
        ("seq", seq, "tokens of a sequence"),
    ):
        if value is None:
            raise TypeError(f"{name}= is missing, {what}: the gap of a layout needs it")
    if lengths is not None:
        raise ValueError(
            "lengths=: the gap of a layout is known for sequences of one length; leave out global_batch= and cluster="
        )
    if trained not in (None, "all"):
        raise ValueError(
            f"trained={trained!r}: the gap of a layout is known where all is trained; leave out global_batch= and cluster="
        )
    if recompute not in ("none", parallel.recompute):
        raise ValueError(
            f"recompute={recompute!r}: the layout has recompute={parallel.recompute!r}; give both the same"
        )
    if parallel.ranks != count:
        raise ValueError(
            f"parallel={parallel}: its degrees make {parallel.ranks:,} ranks, and count={count:,} devices; data={parallel.data} is what is left to change"
        )
    return {
        "model": the_model(model), "layout": parallel, "cluster": _cluster(cluster, card), "seq": seq, "batch": number("global_batch", batch),
    }  # fmt: skip


def _cluster(given: Any, card: Device) -> Cluster:
    if given is not None:
        place = known_cluster(given)
        if place.device.name != card.name:
            raise ValueError(f"cluster={place.name!r}: has {place.device.name}, and the run device={card.name!r}")
        return place
    there = [name for name in cluster_names() if known_cluster(name).device.name == card.name]
    if not there:
        raise ValueError(
            f"device={card.name!r}: no cluster of it is known here, so neither its links nor its network; give "
            "cluster=fk.parallel.Cluster(…, link=…, network=…), bytes/s of a device in one direction"
        )
    return known_cluster(next((name for name in there if name.startswith("dgx-")), there[0]))


def gap_at(run: Any, asks: dict[str, Any]) -> Gap:
    """The gap at the run's rate."""
    if run.rate.tokens is None:
        rate = {"tflops_per_device": run.rate.flops / 1e12}
    else:
        rate = {"tokens_per_s_per_device": run.rate.tokens / run.count}
    return gap(**asks, dtype=run.dtype, **rate)
