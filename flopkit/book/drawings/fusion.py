"""What fusing can save: the steps of a norm, each a kernel or all in one, and what the kernels of a layer read and write."""

from __future__ import annotations

from typing import Any

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import MUTED, PURPLE
from flopkit.dtypes import nbytes
from flopkit.layers.normalisations import rms_norm
from flopkit.models import MLP, Attention, load
from flopkit.units import count, si

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
    """The bytes that each kernel of a layer reads and writes, where every operator is a kernel of its own.

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
    'A layer of Llama-3-8B moves 3.492 GB; each kernel reads what another wrote'
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
    heads = tokens * block.mixer.heads * block.mixer.head_dim
    keys = tokens * block.mixer.kv_heads * block.mixer.head_dim
    # a kernel, its parts, and the elements that it writes
    kernels = [
        ("residual sum before", ("mlp_sum",), stream), ("norm", ("attention_norm",), stream),
        ("q, k, v", ("q_proj", "k_proj", "v_proj"), heads + 2 * keys), ("rotary", ("rotary",), heads + keys),
        ("attention, flash", ("attention",), heads), ("o", ("o_proj",), stream), ("residual sum", ("attention_sum",), stream),
        ("norm of the MLP", ("mlp_norm",), stream), ("gate, up", ("gate_proj", "up_proj"), 2 * hidden), ("SwiGLU", ("swiglu",), hidden),
        ("down", ("down_proj",), stream),
    ]  # fmt: skip
    bars = [(name, sum(cost[part].bytes for part in parts), nbytes(out, "bf16")) for name, parts, out in kernels]
    left, longest = 142, max(moved for _, moved, _ in bars)
    canvas = Canvas(40 + 26 * len(bars) + 32)
    for x, colour, words in ((left, MUTED, "read"), (left + 70, PURPLE, "written")):
        canvas.box(x, 8, 12, 12, colour=colour, fill=0.45, edge=0)
        canvas.text(x + 18, 14, words, anchor="start")
    for i, (name, moved, written) in enumerate(bars):
        y, unit = 36 + 26 * i, 140 / longest
        read = (moved - written) * unit
        canvas.text(left - 8, y + 9, name, anchor="end")
        canvas.box(left, y, read, 18, name=f"read by {name}", colour=MUTED, fill=0.45, edge=0, round=0)
        canvas.box(
            left + read, y, written * unit, 18, name=f"written by {name}", colour=PURPLE, fill=0.45, edge=0, round=0
        )
        canvas.text(left + 6 + moved * unit, y + 9, si(moved, "B"), anchor="start", name="amount")
    total = si(sum(moved for _, moved, _ in bars), "B")
    canvas.text(
        0,
        36 + 26 * len(bars) + 14,
        f"together {total} for {count(tokens, 'tokens')} in bf16",
        anchor="start",
        bold=True,
        name="said",
    )
    return Drawing(
        "layer-tensors",
        f"A layer of {model_title(net.name)} moves {total}; each kernel reads what another wrote",
        f"Bars of the bytes that each kernel of a layer reads, weights among them, and writes, {count(tokens, 'tokens')} in bf16: "
        + ", ".join(
            f"{name} {si(moved - written, 'B')} read and {si(written, 'B')} written" for name, moved, written in bars
        )
        + f". Together {total}.",
        [canvas],
    )
