"""The levels of a PyTorch program, the counters that watch them, and which calls of one program each of them sees."""

from __future__ import annotations

from flopkit.book.drawings.canvas import WIDTH, Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.layers.attentions import attention
from flopkit.layers.experts import moe
from flopkit.layers.products import dense
from flopkit.units import percent, si

__all__ = ["LEVELS", "seen_calls", "seen_parts", "tower"]

# Where a counter watches, how, who does, what passes by unseen. From the top of the tower. Trace and dispatcher both see operators.
LEVELS = (
    ("modules", "a hook on each layer", "thop, torchinfo; in part ptflops,", "ultralytics-thop, calflops", "matmuls written in forward()"),
    ("functions", "replaced or intercepted", "in part ptflops, ultralytics-thop,", "calflops, flopkit", "all other functions"),
    ("trace", "operators, read after a run", "fvcore", "", "operators without a formula"),
    ("dispatcher", "operators, as they run", "torch's FlopCounterMode,", "torch.profiler, flopkit", "operators without a formula"),
    ("kernels", "what the device executes", "hardware counters", "(Nsight Compute)", "layers, unless you mark them"),
)  # fmt: skip
OPERATORS = ("trace", "dispatcher")
"""Two ways to watch one level, the operators: a frame holds both."""
BACKWARD = ("dispatcher", "kernels")
"""Where the backward pass is seen by itself."""


def tower() -> Drawing:
    """The levels of a program, from modules down to kernels: which counter watches where, and what it misses there.

    Examples
    --------
    >>> tower().title
    'Where a counter can watch a program: which tools watch there, and what they miss'
    """
    step, top = 84, 30
    canvas = Canvas(top + step * len(LEVELS) + 4)
    canvas.text(6, 12, "model(x), loss.backward()", anchor="start", bold=True)
    canvas.text(316, 12, "sees", colour=MUTED)
    for i, (level, how, *tools, missed) in enumerate(LEVELS):
        y, seen = top + step * i, level in BACKWARD
        if level == OPERATORS[0]:
            canvas.box(2, y - 4, 272, step + 78, name="operators", colour=MUTED, fill=0, dash=True)
            canvas.text(138, y + 77, "operators, watched in two ways", colour=MUTED, size=11.6, name="frame")
        if i and level != OPERATORS[1]:  # into the frame, or out of it
            above, below = (
                4 if at == edge else 0 for at, edge in ((LEVELS[i - 1][0], OPERATORS[1]), (level, OPERATORS[0]))
            )
            canvas.arrow(18, y - 14 + above, 18, y - below, name="calls")
        canvas.box(6, y, 264, 70, name=level, colour=BLUE, fill=0.1)
        canvas.text(14, y + 12, level, anchor="start", bold=True)
        canvas.text(98, y + 12, how, anchor="start", colour=MUTED, size=12)
        for line, words in enumerate(filter(None, tools)):
            canvas.text(14, y + 28 + 14 * line, words, anchor="start", name=f"tools on {level}")
        canvas.text(14, y + 58, f"misses {missed}", anchor="start", colour=ORANGE)
        canvas.box(278, y, 76, 32, "forward", colour=GREEN, fill=0.3, round=8, name=f"forward on {level}")
        canvas.box(278, y + 38, 76, 32, "backward" if seen else "—", colour=GREEN if seen else MUTED, fill=0.3 if seen else 0,
                   dash=not seen, round=8, name=f"backward on {level}" if seen else "unseen")  # fmt: skip
    return Drawing(
        "tower",
        "Where a counter can watch a program: which tools watch there, and what they miss",
        "A program in four levels: modules call functions, functions call operators, operators run kernels. Operators can be watched in a trace or at "
        "the dispatcher. "
        + " ".join(
            f"At {level}: {' '.join(filter(None, tools))}; they miss {missed}." for level, _, *tools, missed in LEVELS
        )
        + f" Only two of these show the backward pass: {' and '.join(BACKWARD)}.",
        [canvas],
    )


# Call of a block of a vision transformer, what makes it, and the counters that count it, each by its default on a CPU.
CALLS = (
    ("Q, K, V projections", "by a function", ("ptflops", "fvcore", "torch")),
    ("scores and values", "one fused operator", ("ptflops",)),
    ("output projection", "by a function", ("ptflops", "fvcore", "torch")),
    ("MLP", "two linear layers", ("thop", "ptflops", "fvcore", "torch")),
)
COUNTERS = {
    "thop": ("hook", "not seen"),
    "ptflops": ("hook", "unknown"),
    "fvcore": ("trace", "unknown"),
    "torch": ("dispatcher", "unknown"),
}  # how each watches, and what is missing where it counts zero. ptflops' hooks have a formula for nn.MultiheadAttention, thop's have none


def seen_calls(tokens: int = 197, width: int = 768, hidden: int = 3072) -> Drawing:
    """The calls of one block of a vision transformer on a CPU, and which of them four counters see.

    Parameters
    ----------
    tokens, width, hidden : int, optional
        Sizes of the block: ViT-B/16's.

    Raises
    ------
    ValueError
        For sizes that are no whole numbers.

    Examples
    --------
    >>> seen_calls().title
    'What four tools count of one block: thop 63.9 %, ptflops 100 %, fvcore 95.9 %, torch 95.9 %'
    """
    for name, size in {"tokens": tokens, "width": width, "hidden": hidden}.items():
        whole("seen_calls", name, size, 1, 2**20)
    square = dense(tokens=tokens, d_in=width, d_out=width).flops
    core = attention(batch=1, q=tokens, kv=tokens, heads=1, head_dim=width, mask="full").flops
    mlp = 2 * dense(tokens=tokens, d_in=width, d_out=hidden).flops
    flops = dict(zip((call for call, *_ in CALLS), (3 * square, core, square, mlp), strict=True))
    total = sum(flops.values())
    share = {tool: percent(sum(flops[call] for call, _, seen in CALLS if tool in seen) / total) for tool in COUNTERS}
    left, step, wide = 124, 59, 56
    canvas = Canvas(314)
    for i, (tool, (level, missing)) in enumerate(COUNTERS.items()):
        x, middle = left + step * i, left + step * i + wide / 2
        canvas.text(middle, 10, tool, bold=True)
        canvas.text(middle, 26, level, size=11.6, colour=MUTED)
        for row, (call, _, seen) in enumerate(CALLS):
            y, name = 40 + 48 * row, f"{tool}: {call}"
            if tool in seen:
                canvas.box(x, y, wide, 42, "counted", name=name, colour=GREEN, fill=0.3, round=6, size=11.6)
            else:
                canvas.box(x, y, wide, 42, "0", missing, name=f"{name}, unseen", colour=ORANGE, fill=0, dash=True, round=6, size=11.6)  # fmt: skip
        canvas.text(middle, 244, share[tool], bold=True, name=f"share of {tool}")
        words, colour = (("counted", "in part"), GREEN) if tool == "torch" else (("not", "counted"), ORANGE)
        canvas.box(x, 268, wide, 42, *words, name=f"{tool}: backward", colour=colour, fill=0.15 if tool == "torch" else 0,
                   dash=True, round=6, size=11.6)  # fmt: skip
    for row, (call, made, _) in enumerate(CALLS):
        canvas.text(0, 48 + 48 * row, call, anchor="start", bold=True, size=11.6)
        canvas.text(0, 62 + 48 * row, made, anchor="start", colour=MUTED, size=11.6)
        canvas.text(0, 76 + 48 * row, si(flops[call], "FLOPs"), anchor="start", size=11.6)
    canvas.text(0, 244, "sum of forward", anchor="start", bold=True, size=11.6)
    canvas.line(0, 258, canvas.width, 258)
    canvas.text(0, 282, "backward pass", anchor="start", bold=True, size=11.6)
    canvas.text(0, 296, "of the same block", anchor="start", colour=MUTED, size=11.6)
    return Drawing(
        "seen-calls",
        f"What four tools count of one block: {', '.join(f'{tool} {seen}' for tool, seen in share.items())}",
        f"A block of a vision transformer, {tokens} tokens of width {width}, forward, on a CPU. "
        + " ".join(
            f"{call[0].upper()}{call[1:]}, {made}, {si(flops[call], 'FLOPs')}: counted by {', '.join(seen)}."
            for call, made, seen in CALLS
        )
        + f" In all {', '.join(f'{tool} sees {seen}' for tool, seen in share.items())} of the forward pass. Only torch counts the backward pass, and "
        "only in part, because the fused attention has no formula there either.",
        [canvas],
    )


# What each tool counts of Mixtral-8x7B on meta, by its default. torchinfo takes one token for a sequence, so it sees next to nothing.
PARTS = {
    "torch": ("other matmuls", "scores"),
    "torch.profiler": ("other matmuls", "scores"),
    "fvcore": ("other matmuls",),
    "ptflops": ("other matmuls",),
    "thop": ("other matmuls",),
    "ultralytics-thop": ("other matmuls", "scores"),
    "calflops": ("other matmuls",),
    "torchinfo": (),
}


def seen_parts(tokens: int = 4096) -> Drawing:
    """The FLOPs of Mixtral-8x7B in three parts, as a bar, and under it what each of eight tools counts of them on the meta device.

    Parameters
    ----------
    tokens : int, optional
        Tokens of the one sequence.

    Raises
    ------
    ValueError
        For tokens that are no whole number, from 1 to 2^20.

    Examples
    --------
    >>> seen_parts().title
    'Mixtral-8x7B on meta: all eight tools miss the experts, and five miss the scores as well'
    """
    whole("seen_parts", "tokens", tokens, 1, 2**20)
    width, layers = 4096, 32
    experts = moe(tokens=tokens, d_model=width, d_ff=14336, experts=8, top_k=2).flops
    router = dense(tokens=tokens, d_in=width, d_out=8).flops
    scores = attention(batch=1, q=tokens, kv=tokens, heads=32, head_dim=128, mask="full").flops
    projections = dense(tokens=tokens, d_in=width, d_out=2 * width + 2 * 1024).flops  # Q and output, K and V
    head = dense(tokens=tokens, d_in=width, d_out=32_000).flops
    flops = {
        "other matmuls": layers * (projections + router) + head,
        "scores": layers * scores,
        "experts": layers * (experts - router),
    }
    colours = {"other matmuls": GREEN, "scores": ORANGE, "experts": BLUE}
    total = sum(flops.values())
    left, step = 106, 24
    wide = WIDTH - left - 2
    canvas = Canvas(32 + step * (len(PARTS) + 1) + 34)
    for row, (tool, seen) in enumerate({"true count": tuple(flops), **PARTS}.items()):
        y, x = 4 + step * row + (8 if row else 0), float(left)
        canvas.text(0, y + 8, tool, anchor="start", bold=not row)
        for part, size in flops.items():
            length = wide * size / total
            if part in seen:
                canvas.box(x, y, length, 16, name=f"{tool}: {part}", colour=colours[part], fill=0.45, edge=0.8, round=0)
            else:
                canvas.box(x, y, length, 16, name=f"{tool}: {part}, unseen", fill=0, edge=0.8, dash=True, round=0)
            x += length
    bottom = canvas.height - 40
    for i, part in enumerate(flops):
        at, down = 180 * (i % 2), 22 * (i // 2)
        canvas.box(at, bottom + down, 12, 12, name="key", colour=colours[part], fill=0.45, edge=0.8, round=0)
        canvas.text(
            at + 17, bottom + down + 6, f"{part} {percent(flops[part] / total)}", anchor="start", name="key word"
        )
    canvas.box(180, bottom + 22, 12, 12, name="key", fill=0, edge=0.8, dash=True, round=0)
    canvas.text(197, bottom + 28, "not counted", anchor="start", name="key word")
    return Drawing(
        "seen-parts",
        "Mixtral-8x7B on meta: all eight tools miss the experts, and five miss the scores as well",
        f"Of the {si(total, 'FLOPs')} that a forward pass over {tokens:,} tokens takes, "
        + ", ".join(f"{part} take {percent(size / total)}" for part, size in flops.items())
        + ". Bars show what each tool counts: "
        + "; ".join(f"{tool} {' and '.join(seen) or 'next to nothing'}" for tool, seen in PARTS.items())
        + ".",
        [canvas],
    )
