"""Many devices: what travels between them.

Clusters and their links, collectives with the bytes that each rank sends, pipelines with their bubbles, and a training step on a layout of all these.
"""

from flopkit.parallel.clusters import Cluster, cluster, cluster_names
from flopkit.parallel.collectives import (
    all_gather,
    all_reduce,
    all_to_all,
    broadcast,
    reduce,
    reduce_scatter,
    send,
)
from flopkit.parallel.exchanges import Exchange, bus_bandwidth
from flopkit.parallel.gaps import Gap, Item, gap
from flopkit.parallel.layouts import Layout
from flopkit.parallel.pipelines import Pipeline, pipeline
from flopkit.parallel.searching import Found, Refused, search
from flopkit.parallel.steps import ParallelStep, step

__all__ = [
    "Cluster", "Exchange", "Found", "Gap", "Item", "Layout", "ParallelStep", "Pipeline", "Refused", "all_gather", "all_reduce", "all_to_all", "broadcast", "bus_bandwidth",
    "cluster", "cluster_names", "gap", "pipeline", "reduce", "reduce_scatter", "search", "send", "step",
]  # fmt: skip
