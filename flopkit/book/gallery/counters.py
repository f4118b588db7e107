"""Figure of the chapter on other people's counters: seven programs, eight tools, and why their numbers differ."""

from __future__ import annotations

from functools import reduce
from typing import Any

from flopkit.arithmetic import maximum, where
from flopkit.charts import theme
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.charts.panel import along, choice, column, readout, slider
from flopkit.charts.readings import pick
from flopkit.peers.recorded import recorded, versions

__all__ = ["answers_of", "eight_tools"]

FMA = {"torch": 2, "torch.profiler": 2, "calflops": 2}  # the others print multiply-adds, whatever they call them
RIGHT = "right, up to element-wise work"


def answers_of(tool: str) -> dict[str, int]:
    """What *tool* printed of each program."""
    return {name: it.printed[tool] for name, it in recorded().items()}


def many_tools(s: Any, *, program: Any, reading: Any, within: Any) -> None:
    """How many of the tools are near the truth of a program, and how far off the farthest is."""
    s.flops = pick(program, {name: it.flops for name, it in recorded().items()})
    near = []
    for tool in versions():
        printed = pick(program, answers_of(tool))
        setattr(s, f"share_{_slug(tool)}", printed * where(reading == "counts", 2 / FMA.get(tool, 1), 1) / s.flops)
        share = getattr(s, f"share_{_slug(tool)}")
        near.append(where((share >= 1 - within) & (share <= 1 + within), 1, 0))
    s.near = sum(near)
    shares = [getattr(s, f"share_{_slug(tool)}") for tool in versions()]
    s.off = reduce(maximum, [maximum(share - 1, 1 - share) for share in shares])


def _slug(tool: str) -> str:
    return tool.replace(".", "_").replace("-", "_")


def one_tool(r: Any, *, tool: Any, program: Any, **_: Any) -> None:
    """A row: what a tool printed, its share of the truth, how far off that is, and the reason."""
    r.printed = pick(tool, {name: pick(program, answers_of(name)) for name in versions()})
    r.share = pick(tool, {name: getattr(r, f"share_{_slug(name)}") for name in versions()})
    r.off = r.share - 1
    r.why = pick(
        tool,
        {
            name: pick(program, {each: it.reasons.get(name, RIGHT) for each, it in recorded().items()})
            for name in versions()
        },
    )


def eight_tools() -> Figure:
    """Eight tools asked about one program: each number as a share of the true count, with its reason."""

    def chart(s: Any) -> Any:
        alt = need("altair")
        y = alt.Y("tool:N", title=None, sort=list(versions()), axis=alt.Axis(labelLimit=120, domain=False, ticks=False))
        x = alt.X(
            "share:Q",
            title="printed, as a share of the true count",
            scale=alt.Scale(domain=[0, 1.35], nice=False),
            axis=alt.Axis(format="%", values=[0, 0.25, 0.5, 0.75, 1]),
        )
        said = s.rows.transform_calculate(verdict="abs(datum.share - 1) > within ? 'wrong' : 'right'")
        bars = said.mark_bar(height=15).encode(
            y=y,
            x=x,
            color=alt.Color(
                "verdict:N",
                title=None,
                scale=alt.Scale(domain=["right", "wrong"], range=[theme.BLUE, theme.ORANGE]),
                legend=alt.Legend(orient="bottom", symbolType="square"),
            ),
            tooltip=[
                alt.Tooltip("tool:N", title="tool"),
                alt.Tooltip("printed:Q", title="it prints", format=","),
                alt.Tooltip("share:Q", title="share", format=".1%"),
                alt.Tooltip("why:N", title="why"),
            ],
        )
        beside = s.rows.transform_calculate(place="datum.share > 0.8 && datum.share < 1 ? 1 : datum.share")
        shares = theme.words(
            beside,
            {"align": "left", "dx": 5, "color": theme.INK},
            y=y,
            x=alt.X("place:Q", scale=alt.Scale(domain=[0, 1.35], nice=False)),
            text=alt.Text("share:Q", format=".1%"),
        )
        truth = s.now(whole=1).mark_rule(color=theme.MUTED, strokeDash=[4, 3]).encode(x=alt.X("whole:Q"))
        return alt.layer(bars, truth, *shares)

    return Figure(
        name="eight-tools",
        title="What eight tools print for one program, as a share of the true count",
        alt="Eight bars for {program} on a CPU, each the number that a tool prints, read as {reading}, as a share of the true count, {flops}. "
        "{near} of them lie within {within} of it; the largest error is {off}.",
        model=many_tools,
        controls=[
            choice("program", "Program", list(recorded()), value="ViT-B/16"),
            choice(
                "reading", "Read each number as", {"what it counts": "counts", "FLOPs, whatever it counts": "FLOPs"}
            ),
            slider(
                "within", "Right means within", [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2], value=0.01, unit="%"
            ),
        ],
        readouts=[
            readout("flops", "True count", "FLOPs"),
            readout("near", "Tools that are right, of 8"),
            readout("off", "Largest error", "%"),
        ],
        rows=along("tool", list(versions()), one_tool),
        chart=chart,
        table=[
            column("tool", "Tool"),
            column("printed", "It prints"),
            column("off", "Off by", "%"),
            column("why", "Why"),
        ],
        caption="One forward pass each, batch 1, on a CPU, each tool by its default backend. "
        + ", ".join(f"{tool} {version}" for tool, version in versions().items())
        + ". “What it counts” doubles the multiply-adds of fvcore, ptflops, both thops and torchinfo.",
        height=300,
    )
