"""Five ways of splitting a model over GPUs: which weights each GPU holds, which tokens it works on, and what travels."""

from __future__ import annotations

from dataclasses import dataclass

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.charts.theme import BLUE, GREEN, MUTED

__all__ = ["five_splits"]

Span = tuple[float, float, float, float]
"""Left, top, width, height as shares of the whole: of the layers' weights (layers downwards), or of the tokens (sequences downwards)."""


@dataclass(frozen=True)
class Way:
    """One way of splitting: for each GPU the weights it holds and the tokens it works on at one moment, and what the GPUs send."""

    title: str
    weights: list[list[Span]]
    tokens: list[list[Span]]
    sent: str
    more: str = ""

    @property
    def on_a_sequence(self) -> int:
        """GPUs that work on the first sequence at one moment."""
        return sum(any(top == 0 for _, top, _, _ in own) for own in self.tokens)


DENSE = 0.3
"""Share of a layer's width that is drawn for its attention; the other part is its experts."""


def five_splits(ranks: int = 4) -> Drawing:
    """The weights that each GPU holds and the tokens that it works on, in data, tensor, pipeline, context and expert parallelism.

    Parameters
    ----------
    ranks : int, optional
        GPUs, sequences and layers of the drawing, 2 to 4.

    Raises
    ------
    ValueError
        For more or fewer.

    Examples
    --------
    >>> five_splits().title
    'TP and CP put 4 GPUs on one sequence; DP and PP keep one on it at a time'
    """
    whole("five_splits", "ranks", ranks, 2, 4)
    ways = _ways(ranks)
    foot = Canvas(128)
    foot.box(0, 2, 14, 14, name="key", colour=BLUE, fill=0.7, edge=0)
    foot.text(20, 9, f"weights that the GPU holds, of {ranks} layers", anchor="start", colour=MUTED)
    foot.box(0, 24, 14, 14, name="key", colour=GREEN, fill=0.7, edge=0)
    foot.text(20, 31, f"tokens that it works on, of {ranks} sequences", anchor="start", colour=MUTED)
    foot.lines(
        0, 58, f"Columns: {ranks} GPUs at one moment of the forward pass.", "In the pipeline, GPU 1 has passed the first sequences on.", "With experts, a token also visits the GPUs of its experts;", "the dense part of each layer is on all GPUs.",
        anchor="start", colour=MUTED,
    )  # fmt: skip
    said = " ".join(
        f"{way.title}: {_held(way)} of the weights on each GPU, {way.on_a_sequence}{way.more} on a sequence; {way.sent}."
        for way in ways
    )
    return Drawing(
        "five-splits",
        f"TP and CP put {ranks} GPUs on one sequence; DP and PP keep one on it at a time",
        f"Five pictures of {ranks} GPUs. For each GPU a block of {ranks} layers shows the weights it holds, and {ranks} bars show which tokens of {ranks} sequences it works on. {said}",
        [*(_sheet(way) for way in ways), foot],
    )


def _ways(n: int) -> list[Way]:
    every: list[Span] = [(0, 0, 1, 1)]
    own = [[(0.0, i / n, 1.0, 1 / n)] for i in range(n)]
    halves = 1 / (2 * n)
    zigzag = [[(i * halves, 0.0, halves, 1 / n), (1 - (i + 1) * halves, 0.0, halves, 1 / n)] for i in range(n)]
    expert = (1 - DENSE) / n
    return [
        Way("Data parallelism (DP)", [every] * n, own, "Sent: gradients, summed once per step"),
        Way("Tensor parallelism (TP)", [[(i / n, 0, 1 / n, 1)] for i in range(n)], [own[0]] * n, "Sent: sums of activations, in each layer"),
        Way("Pipeline parallelism (PP)", own, own[::-1], "Sent: activations, from stage to stage"),
        Way("Context parallelism (CP)", [every] * n, zigzag, "Sent: keys and values, in each layer; gradients, as DP"),
        Way("Expert parallelism (EP)", [[(0, 0, DENSE, 1), (DENSE + i * expert, 0, expert, 1)] for i in range(n)], own, "Sent: tokens to their experts and back, in each layer", more=f" to {n}"),
    ]  # fmt: skip


def _held(way: Way) -> str:
    share = sum(w * h for _, _, w, h in way.weights[0])
    return "all" if share == 1 else f"{share:.0%}"


TOP, DEEP, BARS, SEQUENCE, GAP = 24.0, 48.0, 80.0, 10.0, 12.0


def _sheet(way: Way) -> Canvas:
    """A column for each GPU: its layers above, the sequences below."""
    n = len(way.weights)
    wide = (358 - GAP * (n - 1)) / n
    columns = [1 + i * (wide + GAP) for i in range(n)]
    under = BARS + n * SEQUENCE
    canvas = Canvas(under + 24)
    canvas.text(0, 10, way.title, anchor="start", bold=True)
    canvas.text(360, 10, f"GPUs on a sequence: {way.on_a_sequence}{way.more}", anchor="end", name="said")
    all_columns = [(x, x + wide) for x in columns]
    canvas.rows_of_bars(SEQUENCE - 2, [(BARS + i * SEQUENCE, all_columns) for i in range(n)], name="sequence")
    for name, colour, top, high, slit, of_gpus in (
        ("weights", BLUE, TOP, DEEP, 0.0, way.weights),
        ("tokens", GREEN, BARS, n * SEQUENCE, 2.0, way.tokens),
    ):
        tall = of_gpus[0][0][3] * high - slit
        places = [
            (top + spans[0][1] * high, [(x + a * wide, x + (a + w) * wide) for a, _, w, _ in spans])
            for x, spans in zip(columns, of_gpus, strict=True)
        ]
        canvas.rows_of_bars(tall, places, name=name, colour=colour, fill=0.7)
    canvas.rows_of_bars(1, [(TOP + i * DEEP / n - 0.5, all_columns) for i in range(n + 1)], name="layer", fill=1)
    canvas.bars(TOP, DEEP, [(edge - 0.5, edge + 0.5) for ends in all_columns for edge in ends], name="edge", fill=1)
    canvas.text(0, under + 12, way.sent, anchor="start", name="sent")
    return canvas
