"""Clusters: nodes of devices, the links in a node and the network between nodes, each in one direction."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from flopkit import devices, names, units
from flopkit.devices import Device
from flopkit.sizes import number, positive

__all__ = ["Cluster", "cluster", "cluster_names"]


@dataclass(frozen=True, repr=False)
class Cluster:
    """Nodes of equal devices.

    Parameters
    ----------
    name : str
        What a printout calls it.
    device : Device
        The devices; a name will do.
    per_node : int
        Devices whose links join them: of a node, of a rack with NVLink.
    link : float
        Bytes/s that a device sends over its links in the node, while it receives as many. Makers print both directions together, twice this.
    network : float
        Bytes/s that a device sends over its share of the node's network cards.
    link_efficiency, network_efficiency, matmul_efficiency : float, optional
        The shares of links, network and peak that a program reaches. 1: a bound.
    link_latency, network_latency : float, optional
        Seconds of a message beside its bytes. 0: a bound.
    source : str, optional
        Where the numbers come from.

    Raises
    ------
    ValueError
        For a rate of zero and an efficiency above 1.

    Notes
    -----
    Not known here: which nodes share a switch, and how far a network is oversubscribed.

    Examples
    --------
    >>> mine = Cluster("two nodes", "h100-sxm", per_node=8, link=450e9, network=25e9)
    >>> mine
    two nodes: 8 × h100-sxm a node, 450 GB/s a link, 25 GB/s of network (one direction, a device)
    """

    name: str
    device: Device
    per_node: int
    link: float
    network: float
    link_efficiency: float = 1.0
    network_efficiency: float = 1.0
    matmul_efficiency: float = 1.0
    link_latency: float = 0.0
    network_latency: float = 0.0
    source: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "device", devices.device(self.device))
        number("per_node", self.per_node)
        for field in ("link", "network"):
            object.__setattr__(self, field, float(positive(field, getattr(self, field), "bytes/s")))
        for field in ("link_efficiency", "network_efficiency", "matmul_efficiency"):
            share = getattr(self, field)
            if not positive(field, share) <= 1:
                raise ValueError(f"{field}={share}: a share of what the maker prints, above 0 and at most 1")
        for field in ("link_latency", "network_latency"):
            if not positive(field, getattr(self, field), "seconds", zero=True) < 1:
                raise ValueError(f"{field}={getattr(self, field)}: seconds of a message, at least 0 and below 1")

    def replace(self, **changes: Any) -> Cluster:
        """The same with other numbers.

        >>> cluster("dgx-h100").replace(network=25e9).network
        25000000000.0
        """
        return replace(self, **changes)

    def __repr__(self) -> str:
        link, network = units.si(self.link, "B/s"), units.si(self.network, "B/s")
        return f"{self.name}: {self.per_node} × {self.device.name} a node, {link} a link, {network} of network (one direction, a device)"


@cache
def _clusters() -> Mapping[str, Cluster]:
    text = files("flopkit").joinpath("data/clusters.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    sources = data.pop("sources")

    def read(name: str, entry: Mapping[str, Any]) -> Cluster:
        cited = "; ".join(f"{sources[key]['title']} (read {sources[key]['read']})" for key in entry["sources"])
        rates = {field: entry[f"{field}_GBps"] * 1e9 for field in ("link", "network")}
        return Cluster(name, entry["device"], entry["per_node"], **rates, source=cited)

    return MappingProxyType({name: read(name, entry) for name, entry in data.items()})


def cluster_names() -> list[str]:
    """The names in the data.

    >>> cluster_names()[:2]
    ['dgx-a100', 'dgx-h100']
    """
    return list(_clusters())


def cluster(name: Cluster | str) -> Cluster:
    """The cluster called *name*.

    Names ignore case, space, ``_``, ``-`` and ``.``.

    Parameters
    ----------
    name : Cluster or str
        One of `cluster_names`, or a `Cluster`, which is returned as it is.

    Raises
    ------
    ValueError
        For a name that is not in the data, with near ones.

    Examples
    --------
    >>> cluster("dgx-h100")
    dgx-h100: 8 × h100-sxm a node, 450 GB/s a link, 50 GB/s of network (one direction, a device)
    """
    if isinstance(name, Cluster):
        return name
    known = _clusters()
    return known[names.find(name, known, "a known cluster", argument="cluster", listed="fk.parallel.cluster_names()")]
