"""Why a tool's number is another one than what ran, as far as that is known: flopkit/data/blind_spots.toml."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Any

from flopkit import units
from flopkit.peers.releases import Releases, release

__all__ = ["NOT_KNOWN", "Known", "blind_spots", "read", "reason"]

NOT_KNOWN = "not known"
NEAR = 0.001  # what is left over and needs no word: a thousandth of what ran


@dataclass(frozen=True)
class Known:
    """What is known of a tool, in some of its versions."""

    releases: Releases
    zero: Mapping[str, Releases]  # operators that it counts as zero, each in some of these versions
    less: str = ""
    more: str = ""

    @property
    def unchanged(self) -> Releases:
        """The versions that count the same operators as zero as the one that was asked."""
        edges = [
            edge for it in self.zero.values() for edge in (it.since, it.until) if edge and edge != self.releases.since
        ]
        return Releases(self.releases.since, min(edges, key=release, default=self.releases.until))

    def changes(self, version: str) -> str:
        """What *version* counts otherwise than the version that was asked did; "" where that is not known, or nothing."""
        asked, words = self.releases.since, []
        for operator, zero in self.zero.items():
            if version in self.releases and (version in zero) != (asked in zero):
                words.append(f"counts {operator}" if asked in zero else f"counts no {operator}")
        return ", ".join(words)


@cache
def blind_spots() -> Mapping[str, Known]:
    """What is known of each tool.

    >>> "mv" in blind_spots()["fvcore"].zero, blind_spots()["torch"].changes("2.15.0")
    (True, 'counts scaled_dot_product_attention, flash (CPU)')
    """
    return read(files("flopkit").joinpath("data/blind_spots.toml").read_text("utf-8"))


def read(text: str) -> Mapping[str, Known]:
    """What a file such as flopkit/data/blind_spots.toml says."""
    return MappingProxyType({tool: _known(tool, it) for tool, it in tomllib.loads(text).items()})


def _known(tool: str, it: dict[str, Any]) -> Known:
    whole, zero = Releases(it.pop("since"), it.pop("until", None)), {}
    for each in it.pop("zero"):
        given = {"operator": each} if isinstance(each, str) else each
        some = {"since": whole.since, "until": whole.until, **given}
        operator = some.pop("operator")
        zero[operator] = Releases(**some)
        edges = [given[edge] for edge in ("since", "until") if edge in given]
        if any(edge not in whole or release(edge) == release(whole.since) for edge in edges):
            raise ValueError(f"{tool}: of {operator!r} {edges} must lie within {whole}")
    return Known(whole, MappingProxyType(zero), **it)


def reason(answer: Any, report: Any) -> str:
    """Why *answer* is not the forward FLOPs of *report*; "" where it is, "not known" where nobody has said."""
    true = report.forward.flops
    if answer.flops == true:
        return ""
    known = blind_spots().get(answer.tool)
    if known is None or answer.version not in known.releases:
        return f"{NOT_KNOWN} of this version"
    zero = {operator for operator, releases in known.zero.items() if answer.version in releases}
    unseen: dict[str, int] = {}
    ran = [row for row in report.by_op() if row["phase"] == "forward"]
    for row in ran:
        name = f"{row['operator']}, {row['kernel']}" if row["kernel"] else row["operator"]
        if row["flops"] and (name in zero or row["operator"] in zero):
            unseen[row["operator"]] = unseen.get(row["operator"], 0) + row["flops"]
    found = [f"{op}: 0 ({units.si(flops, 'FLOPs')})" for op, flops in unseen.items()]
    left = answer.flops - (true - sum(unseen.values()))
    if left < -NEAR * true:
        found.append((_is_missed(known, ran) and known.less) or NOT_KNOWN)
    elif left > 0:
        found.append((left <= _added_at_most(answer, known, report) and known.more) or NOT_KNOWN)
    return "; ".join(found) or NOT_KNOWN


def _is_missed(known: Known, ran: list[Any]) -> bool:
    """Whether what a tool leaves out may have been in the program: a convolution is a layer to each of them."""
    alone = {row["operator"] for row in ran if row["flops"]} == {"convolution"}
    return not alone or "convolution" in known.less or "batch" in known.less


def _added_at_most(answer: Any, known: Known, report: Any) -> float:
    """What a tool may add: no more for each element-wise FLOP that ran than one of its units; a table's parameters without a bound."""
    if "embedding" in known.more and any(row["operator"] == "embedding" for row in report.by_op()):
        return float("inf")
    return float(2 // answer.fma * report.forward.vector_flops)
