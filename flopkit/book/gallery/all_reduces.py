"""The figure of an all-reduce: its least time by the size of the tensor, beside what NCCL's own tests printed."""

from __future__ import annotations

from typing import Any

from flopkit.arithmetic import ceil_div, maximum, minimum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider, steps
from flopkit.charts.readings import pick
from flopkit.parallel import all_reduce
from flopkit.published import nccl_tests

__all__ = ["all_reduce_time", "least_time"]

RUNS = {
    "8 H100, one node": "1 node, 8 × H100 (p5)",
    "16 H100, two nodes": "2 × p5.48xlarge (16 × H100, 32 × 100 Gb/s EFA a node), Slurm run",
    "16 A100, two nodes": "2 × p4de.24xlarge (16 × A100 80GB, 4 × 100 Gb/s EFA a node)",
    "64 H100, switches add": "8 nodes × 8 H100, InfiniBand with SHARP",
    "72 GB200, one rack": "GB200 NVL72, one rack",
    "1,440 GB200, 20 racks": "GB200 NVL72, 20 racks",
}
ALGORITHMS = {"ring": "ring", "two trees": "tree", "in the switches": "nvls"}
LINKS = [50e9, 64e9, 200e9, 300e9, 450e9, 900e9, 1800e9]
NETWORKS = [3.125e9, 6.25e9, 12.5e9, 25e9, 50e9, 100e9]
LATENCIES = [0.2e-6, 0.5e-6, 1e-6, 2e-6, 5e-6, 10e-6, 20e-6]
SMALLEST, LARGEST = 2**10, 2**34


def printed(run: str) -> dict[str, float]:
    """The largest tensor of a run of nccl-tests, its seconds, and the bus bandwidth that was printed."""
    last = max((row for row in nccl_tests() if row.system == RUNS[run]), key=lambda row: row.bytes)
    return {"size": last.bytes, "took": last.seconds, "bus": last.bus, "ranks": last.ranks}


def parts(bytes: Any, inside: Any, nodes: Any, link: Any, network: Any, algorithm: Any) -> tuple[Any, Any, Any]:
    """Seconds in the nodes and between them without latency, and messages one after the other.

    The GPUs of a node share the tensor out among their cards, so that a group of the network has a part of it.
    """
    kinds = {
        shown: (
            all_reduce(bytes=bytes, ranks=inside, algorithm=name),
            all_reduce(bytes=bytes / inside, ranks=nodes, algorithm=name),
        )
        for shown, name in ALGORITHMS.items()
    }
    within = pick(algorithm, {shown: one.sent for shown, (one, _) in kinds.items()}) / link
    between = pick(algorithm, {shown: two.sent for shown, (_, two) in kinds.items()}) / network
    hops = pick(algorithm, {shown: where(inside > 1, one.steps, 0) + where(nodes > 1, two.steps, 0) for shown, (one, two) in kinds.items()})  # fmt: skip
    return where(inside > 1, within, 0), where(nodes > 1, between, 0), hops


def least_time(
    s: Any, *, ranks: Any, in_node: Any, link: Any, network: Any, latency: Any, algorithm: Any, size: Any, run: Any
) -> None:
    """The least time of an all-reduce of one tensor over nodes of GPUs, and what one run printed for its largest."""
    s.inside = minimum(in_node, ranks)
    s.nodes = ceil_div(ranks, s.inside)
    within, between, hops = parts(size, s.inside, s.nodes, link, network, algorithm)
    s.within, s.between, s.hops = within, between, hops
    s.carried = maximum(s.within, s.between)
    s.waited = s.hops * latency
    s.seconds = s.carried + s.waited
    s.busbw = 2 * (ranks - 1) / ranks * size / s.seconds
    s.bound = where(s.waited > s.carried, "latency", where(s.within >= s.between, "links", "network"))
    s.reached = run.bus + 0
    s.no_network = where(s.nodes == 1, "All GPUs are in one node.", "")
    s.no_links = where(s.inside == 1, "The group has one GPU in each node.", "")


def one_size(r: Any, *, bytes: Any, link: Any, network: Any, latency: Any, algorithm: Any, **_: Any) -> None:
    """The least time for another size."""
    within, between, hops = parts(bytes, r.inside, r.nodes, link, network, algorithm)
    r.took = maximum(within, between) + hops * latency


def all_reduce_time() -> Figure:
    """Least seconds of an all-reduce by the size of the tensor, over links, network cards and latency, with points of nccl-tests."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        x = {"title": "bytes of the tensor", **theme.log_scale(SMALLEST, LARGEST)}
        x["axis"] = alt.Axis(values=[1e3, 1e6, 1e9], format="~s")
        spelled = "datum.value < 9e-4 ? format(1e6 * datum.value, '.0f') + ' µs' : datum.value < 0.9 ? format(1e3 * datum.value, '.0f') + ' ms' : format(datum.value, '.0f') + ' s'"
        y = {"title": "time", "scale": alt.Scale(type="log", domain=[1e-7, 100], nice=False), "axis": alt.Axis(values=[10.0**k for k in range(-6, 3)], labelExpr=spelled)}  # fmt: skip
        line = s.rows.mark_line(color=theme.BLUE).encode(
            x=alt.X("bytes:Q", **x),
            y=alt.Y("took:Q", **y),
            tooltip=[
                alt.Tooltip("bytes:Q", title="bytes"),
                alt.Tooltip("took:Q", title="least seconds", format=".3~s"),
            ],
        )
        points = [
            {"run": shown, "bytes": row.bytes, "took": row.seconds, "bus": row.bus / 1e9}
            for shown, name in RUNS.items()
            for row in nccl_tests()
            if row.system == name and row.bytes >= SMALLEST
        ]
        dots = (
            alt.Chart(alt.Data(values=points))
            .transform_filter("datum.run == run")
            .mark_point(color=theme.ORANGE, size=45)
            .encode(
                x=alt.X("bytes:Q", **x),
                y=alt.Y("took:Q", **y),
                tooltip=[
                    alt.Tooltip("bytes:Q", title="bytes"),
                    alt.Tooltip("took:Q", title="seconds, nccl-tests", format=".3~s"),
                    alt.Tooltip("bus:Q", title="bus bandwidth, GB/s", format=",.0f"),
                ],
            )
        )
        chosen = s.now("size", "seconds").mark_rule(color=theme.MUTED, strokeDash=[4, 4]).encode(x=alt.X("size:Q", **x))
        names = [
            word
            for label, colour, dy in (("least time", theme.BLUE, 8), ("printed by nccl-tests", theme.ORANGE, 26))
            for word in theme.words(
                s.now(place=SMALLEST, label=label),
                {"color": colour, "align": "left", "fontWeight": 600, "dx": 6, "dy": dy},
                x=alt.X("place:Q", **x), y=alt.value(4), text="label:N",
            )
        ]  # fmt: skip
        return alt.layer(chosen, line, dots, *names)

    def preset(run: str, in_node: int, link: float, network: float, latency: float, algorithm: str = "ring") -> dict[str, Any]:  # fmt: skip
        ranks = int(printed(run)["ranks"])
        return {"run": run, "ranks": ranks, "in_node": in_node, "link": link, "network": network, "latency": latency, "algorithm": algorithm, "size": 2**28}  # fmt: skip

    return Figure(
        name="all-reduce-time",
        title="How long an all-reduce must take",
        alt="A log-log plot of the time against the bytes of the tensor: a line for the least time, flat for small tensors and rising with large ones, "
        "and dots that nccl-tests printed for {run}. {ranks}, {in_node} of a group in a node, with {link} of links, {network} of network and {latency} a message ({algorithm}): "
        "{size} take at least {seconds}, limited by {bound}, a bus bandwidth of {busbw}. The run reached {reached} with its largest tensor.",
        model=least_time,
        controls=[
            slider("size", "Tensor", steps(SMALLEST, LARGEST), value=2**28, unit="B"),
            slider("ranks", "GPUs of the group", steps(2, 16384), value=8, unit="GPUs"),
            slider("in_node", "Of these, in a node", [1, 2, 4, 8, 16, 36, 72], value=8, unit="GPUs"),
            slider("link", "Link of a GPU, one direction", LINKS, value=450e9, unit="B/s", idle="no_links"),
            slider("network", "Network of a GPU, one direction", NETWORKS, value=50e9, unit="B/s", idle="no_network"),
            slider("latency", "Latency of a message", LATENCIES, value=1e-6, unit="s"),
            choice("algorithm", "Algorithm", list(ALGORITHMS)),
            choice("run", "Dots: printed for", {run: printed(run) for run in RUNS}),
        ],
        presets={
            "8 H100, one node": preset("8 H100, one node", 8, 450e9, 50e9, 1e-6),
            "16 H100, two nodes": preset("16 H100, two nodes", 8, 450e9, 50e9, 5e-6),
            "16 A100, thin network": preset("16 A100, two nodes", 8, 300e9, 6.25e9, 10e-6),
            "64 H100": preset("64 H100, switches add", 8, 450e9, 50e9, 2e-6),
            "The same, one GPU a node": preset("64 H100, switches add", 1, 450e9, 50e9, 2e-6),
            "8 H100, the switch adds": preset("8 H100, one node", 8, 450e9, 50e9, 5e-6, "in the switches"),
        },
        readouts=[
            readout("seconds", "Least time", "s"),
            readout("bound", "Limited by"),
            readout("within", "Over the links", "s"),
            readout("between", "Over the network", "s"),
            readout("busbw", "Bus bandwidth", "B/s"),
            readout("reached", "The run's best, as printed", "B/s"),
        ],
        rows=along("bytes", steps(SMALLEST, LARGEST), one_size),
        chart=chart,
        table=[column("bytes", "Tensor", "B"), column("took", "Least time", "s")],
        caption="What goes between the nodes is on its way while the links carry the rest, so the longer of the two counts; a message's latency counts for each step. "
        "Full nodes are assumed. Dots: nccl-tests, out of place, from aws-samples/awsome-distributed-training and coreweave/nccl-tests; the runs with SHARP and those on GB200 add in the "
        "switches, and on H100 NCCL may, too (NVLS). The latency is yours to choose: NCCL changes its protocol and algorithm with the size, which one line cannot follow.",
        height=300,
    )  # fmt: skip
