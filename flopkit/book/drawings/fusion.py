"""What fusing saves: the steps of a norm, each a kernel or all in one, and the kernels of a layer before and after."""

from __future__ import annotations

from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE, PURPLE
from flopkit.cost import Cost
from flopkit.dtypes import nbytes
from flopkit.layers.normalisations import rms_norm
from flopkit.models import MLP, Attention, load
from flopkit.units import count, percent, si

__all__ = ["layer_tensors", "norm_steps"]

# A step, and the formats of the whole tensors that it reads and writes; what is one element per row is not drawn.
_STEPS = (
    ("to fp32", ("bf16",), ("fp32",)),
    ("square", ("fp32",), ("fp32",)),
    ("mean", ("fp32",), ()),
    ("× 1/root", ("fp32",), ("fp32",)),
    ("to bf16", ("fp32",), ("bf16",)),
    ("× gain", ("bf16",), ("bf16",)),
)


def norm_steps(d: int = 4096) -> Drawing:
    """An RMS norm of a bf16 tensor, computed in fp32: the bytes of each step by itself, and of one kernel for all steps.

    Parameters
    ----------
    d : int, optional
        Features of a row.

    Examples
    --------
    >>> norm_steps().title
    'Step by step, an RMS norm moves 36 bytes per element; one kernel moves 4'
    """
    whole("norm_steps", "d", d, 64, 2**20)
    unit, left, top, high = 19.0, 86.0, 58.0, 28.0
    canvas = Canvas(top + high * (len(_STEPS) + 1) + 62)
    canvas.text(0, 10, "bytes per element of the row", anchor="start", bold=True)
    canvas.box(left, 28, 12, 12, colour=MUTED, fill=0.45, edge=0)
    canvas.text(left + 18, 34, "read", anchor="start")
    canvas.box(left + 70, 28, 12, 12, colour=PURPLE, fill=0.45, edge=0)
    canvas.text(left + 88, 34, "written", anchor="start")

    def bar(y: float, name: str, read: int, written: int, bold: bool = False) -> None:
        canvas.text(left - 8, y + 10, name, anchor="end", bold=bold)
        canvas.box(left, y, read * unit, 20, str(read), name=f"read by {name}", colour=MUTED, fill=0.45, edge=0)
        if written:
            where = left + read * unit + 1, y, written * unit, 20
            canvas.box(*where, str(written), name=f"written by {name}", colour=PURPLE, fill=0.45, edge=0)

    moved = 0
    for i, (name, reads, writes) in enumerate(_STEPS):
        read, written = sum(nbytes(1, dtype) for dtype in reads), sum(nbytes(1, dtype) for dtype in writes)
        bar(top + i * high, name, read, written)
        moved += read + written
    y = top + high * len(_STEPS)
    canvas.text(left, y + 8, f"together {moved} bytes, in separate kernels", anchor="start", bold=True, name="steps")
    one = round(rms_norm(tokens=1, d=d, weight=False).bytes / d)
    bar(y + 32, "one kernel", one // 2, one - one // 2, bold=True)
    canvas.text(left, y + 68, f"together {one} bytes, in one kernel", anchor="start", bold=True, name="fused")
    return Drawing(
        "norm-steps",
        f"Step by step, an RMS norm moves {moved} bytes per element; one kernel moves {one}",
        "Bars of bytes read and written per element of a row. "
        + " ".join(
            f"{name.capitalize() if name[0].isalpha() else name}: {sum(nbytes(1, t) for t in reads)} read, {sum(nbytes(1, t) for t in writes)} written."
            for name, reads, writes in _STEPS
        )
        + f" Together {moved}. One kernel for all steps reads {one // 2} and writes {one - one // 2}, together {one}.",
        [canvas],
    )


def layer_tensors(model: str = "llama-3-8b", tokens: int = 8192) -> Drawing:
    """The bytes of each kernel of a layer: every operator a kernel, and with the operators between the matmuls fused.

    Parameters
    ----------
    model : str, optional
        A Llama or a model like it: RMS norms, rotary positions, SwiGLU.
    tokens : int, optional
        Length of the sequence.

    Raises
    ------
    ValueError
        For a model that is not known, or whose layers have other operators.

    Examples
    --------
    >>> layer_tensors().title
    'Fused, a layer of Llama-3-8B moves 2.181 GB instead of 3.492 GB'
    """
    whole("layer_tensors", "tokens", tokens, 1, 2**20)
    net: Any = load(model)
    block = net.blocks[0][0]
    plain = isinstance(block.mixer, Attention) and isinstance(block.mlp, MLP) and not block.mixer.qk_norm
    cost = {part.name: part for part in net.layer(seq=tokens).parts}
    if not plain or not {"attention_norm", "rotary", "swiglu"} <= set(cost) or block.norms != "pre":
        raise ValueError(
            f"layer_tensors({model!r}): the drawing has RMS norms, rotary positions and SwiGLU, as a Llama has"
        )
    stream, hidden = tokens * net.d_model, tokens * block.mlp.d_ff
    qkv = cost["q_proj"] + cost["k_proj"] + cost["v_proj"]
    both = cost["gate_proj"] + cost["up_proj"]
    apart = [
        ("residual sum", cost["mlp_sum"]), ("norm", cost["attention_norm"]), ("q, k, v", qkv), ("rotary", cost["rotary"]),
        ("attention, flash", cost["attention"]), ("o", cost["o_proj"]), ("residual sum", cost["attention_sum"]),
        ("norm", cost["mlp_norm"]), ("gate, up", both), ("SwiGLU", cost["swiglu"]), ("down", cost["down_proj"]),
    ]  # fmt: skip
    fused = [
        ("sum + norm", (cost["mlp_sum"] + cost["attention_norm"]).fused(not_read=stream)),
        ("q, k, v + rotary", qkv),  # turned before they are written; the table of angles is left out
        ("attention, flash", cost["attention"]),
        ("o", cost["o_proj"]),
        ("sum + norm", (cost["attention_sum"] + cost["mlp_norm"]).fused(not_read=stream)),
        ("gate, up + SwiGLU", (both + cost["swiglu"]).fused(not_written=2 * hidden, not_read=2 * hidden + stream)),
        ("down", cost["down_proj"]),
    ]
    others = {"residual sum", "norm", "rotary", "SwiGLU", "sum + norm"}
    longest = max(each.bytes for _, each in apart)
    sheets, totals = [], []
    for title, kernels in (("each operator by itself", apart), ("sums, SwiGLU and rotary fused", fused)):
        canvas = Canvas(68 + 26 * len(kernels) + 34)
        canvas.text(0, 10, title, anchor="start", bold=True)
        for x, colour, words in (
            (0, ORANGE, "matmuls"),
            (82, BLUE, "other operators"),
            (204, GREEN, "both in one kernel"),
        ):
            if colour != GREEN or kernels is fused:
                canvas.box(x, 27, 12, 12, colour=colour, fill=0.5, edge=0)
                canvas.text(x + 18, 33, words, anchor="start", colour=MUTED)
        for i, (name, each) in enumerate(kernels):
            y, wide = 56 + 26 * i, each.bytes / longest * 150
            colour = BLUE if name in others else ORANGE if "+" not in name else GREEN
            canvas.text(126, y + 9, name, anchor="end")
            canvas.box(134, y, wide, 18, name=f"bytes of {name}", colour=colour, fill=0.5, edge=0, round=0)
            canvas.text(140 + wide, y + 9, si(each.bytes, "B"), anchor="start", name="amount")
        total = Cost.total("layer", [each for _, each in kernels])
        totals.append(total.bytes)
        own = sum(each.bytes for name, each in kernels if name in others)
        words = f"together {si(total.bytes, 'B')}, other operators {percent(own / total.bytes)}"
        canvas.text(0, 56 + 26 * len(kernels) + 16, words, anchor="start", bold=True, name="said")
        sheets.append(canvas)
    before, after = totals
    return Drawing(
        "layer-tensors",
        f"Fused, a layer of {model_title(net.name)} moves {si(after, 'B')} instead of {si(before, 'B')}",
        f"Bars of bytes, {count(tokens, 'tokens')} in bf16. Each operator by itself: "
        + ", ".join(f"{name} {si(each.bytes, 'B')}" for name, each in apart)
        + ". Fused: "
        + ", ".join(f"{name} {si(each.bytes, 'B')}" for name, each in fused)
        + f". Together {si(before, 'B')} and {si(after, 'B')}.",
        sheets,
    )
