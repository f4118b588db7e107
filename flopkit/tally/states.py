"""Linear attention, token by token or chunk by chunk, with decays between −1 and 1."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from flopkit.sizes import Whole, checked, choice, divides
from flopkit.tally.ledger import Ledger, contraction, elementwise
from flopkit.tally.products import dot, linear, product
from flopkit.tally.runs import run
from flopkit.tally.scalar import Tally, plain

__all__ = ["gated_delta", "selective_scan", "state_space"]

ALGORITHMS = ("chunked", "recurrent")
Rows = list[list[Any]]


@checked
def gated_delta(
    *, batch: Whole, seq: Whole, heads: Whole, k_dim: Whole, v_dim: Whole, k_heads: Whole | None = None, algorithm: str = "chunked",
    chunk: Whole = 64,
) -> Ledger:  # fmt: skip
    """The gated delta rule: S ← decay·S + k·(v − (decay·S)ᵀk)·weight, and the output is Sᵀq, scaled.

    In chunks, decays and weights are not counted, nor is the scale; the corrections of a
    chunk come from a triangular system whose diagonal is 1.

    >>> sizes = {"batch": 1, "seq": 2, "heads": 1, "k_dim": 4, "v_dim": 3}
    >>> gated_delta(**sizes, algorithm="recurrent").macs, gated_delta(**sizes, chunk=2).macs
    (72, 123)
    """
    k_heads = heads if k_heads is None else k_heads
    divides("k_heads", k_heads, "heads", heads)
    recurrent = choice("algorithm", algorithm, ALGORITHMS) == "recurrent"
    shared, scale = heads // k_heads, k_dim**-0.5

    def algorithm_of(q: Any, k: Any, v: Any, decay: Any, weight: Any) -> Any:
        def one_head(i: int, h: int) -> Rows:
            each = (q[i][h // shared], k[i][h // shared], v[i][h], decay[i][h], weight[i][h])
            return _delta_by_token(*each, scale) if recurrent else _delta_by_chunk(*each, scale, chunk)

        return [[one_head(i, h) for h in range(heads)] for i in range(batch)]

    title = f"gated_delta({batch=}, {seq=}, {heads=}, {k_dim=}, {v_dim=}, {k_heads=}, {algorithm=}, {chunk=})"
    shapes = {"q": (batch, k_heads, seq, k_dim), "k": (batch, k_heads, seq, k_dim), "v": (batch, heads, seq, v_dim)}
    return run(title, shapes | dict.fromkeys(("decay", "weight"), (batch, heads, seq)), algorithm_of)


@checked
def state_space(
    *, batch: Whole, seq: Whole, heads: Whole, head_dim: Whole, state: Whole, groups: Whole = 1, algorithm: str = "chunked",
    chunk: Whole = 256,
) -> Ledger:  # fmt: skip
    """Mamba-2: S ← decay·S + (step·x)·Bᵀ, and the output is S·C.

    In chunks, decays and steps are not counted.

    >>> sizes = {"batch": 1, "seq": 2, "heads": 1, "head_dim": 4, "state": 3}
    >>> state_space(**sizes, algorithm="recurrent").macs, state_space(**sizes, chunk=2).macs
    (48, 76)
    """
    divides("groups", groups, "heads", heads)
    recurrent = choice("algorithm", algorithm, ALGORITHMS) == "recurrent"
    shared = heads // groups

    def algorithm_of(x: Any, b: Any, c: Any, decay: Any, step: Any) -> Any:
        def one_group(i: int, g: int) -> list[Rows]:
            mine = range(g * shared, (g + 1) * shared)
            if recurrent:
                return [_space_by_token(x[i][h], b[i][g], c[i][g], decay[i][h], step[i][h]) for h in mine]
            each = [(x[i][h], decay[i][h], step[i][h]) for h in mine]
            return _space_by_chunk(each, b[i][g], c[i][g], chunk)

        return [[one for g in range(groups) for one in one_group(i, g)] for i in range(batch)]

    title = f"state_space({batch=}, {seq=}, {heads=}, {head_dim=}, {state=}, {groups=}, {algorithm=}, {chunk=})"
    shapes = {
        "x": (batch, heads, seq, head_dim), "b": (batch, groups, seq, state), "c": (batch, groups, seq, state),
        "decay": (batch, heads, seq), "step": (batch, heads, seq),
    }  # fmt: skip
    return run(title, shapes, algorithm_of)


@checked
def selective_scan(*, batch: Whole, seq: Whole, channels: Whole, state: Whole) -> Ledger:
    """Mamba: each number of the state becomes exp(step·a)·S + (step·x)·b, and the output is S·c.

    >>> counted = selective_scan(batch=1, seq=2, channels=4, state=3)
    >>> counted.macs, counted.vector_flops
    (24, 128)
    """

    def one_channel(x: Any, step: Any, a: Any, b: Any, c: Any) -> list[Any]:
        numbers, outputs = _zeros(1, state)[0], []
        for value, length, inward, outward in zip(x, step, b, c, strict=True):
            with elementwise():
                taken = value * length
                fades = [(length * each).exp() for each in a]
                numbers = [there * left + taken * n for there, left, n in zip(numbers, fades, inward, strict=True)]
            outputs.append(dot(numbers, outward))
        return outputs

    def algorithm_of(x: Any, step: Any, a: Any, b: Any, c: Any) -> Any:
        return [[one_channel(x[i][h], step[i][h], a[h], b[i], c[i]) for h in range(channels)] for i in range(batch)]

    shapes = {
        "x": (batch, channels, seq), "step": (batch, channels, seq), "a": (channels, state), "b": (batch, seq, state),
        "c": (batch, seq, state),
    }  # fmt: skip
    return run(f"selective_scan({batch=}, {seq=}, {channels=}, {state=})", shapes, algorithm_of)


# -- token by token -----------------------------------------------------------------------------------------------


def _delta_by_token(q: Rows, k: Rows, v: Rows, decay: list[Any], weight: list[Any], scale: float) -> Rows:
    state = _zeros(len(k[0]), len(v[0]))
    outputs = []
    for query, key, value, fades, share in zip(q, k, v, decay, weight, strict=True):
        with elementwise():
            state = [[number * fades for number in row] for row in state]
        known = [dot(column, key) for column in zip(*state, strict=True)]
        with elementwise():
            correction = [(wanted - there) * share for wanted, there in zip(value, known, strict=True)]
        with contraction():
            taken = [[one * change for change in correction] for one in key]
        with elementwise():
            state = [[a + b for a, b in zip(*rows, strict=True)] for rows in zip(state, taken, strict=True)]
        found = [dot(column, query) for column in zip(*state, strict=True)]
        with elementwise():
            outputs.append([number * scale for number in found])
    return outputs


def _space_by_token(x: Rows, b: Rows, c: Rows, decay: list[Any], step: list[Any]) -> Rows:
    state = _zeros(len(x[0]), len(b[0]))
    outputs = []
    for token, inward, outward, fades, length in zip(x, b, c, decay, step, strict=True):
        with elementwise():
            state = [[number * fades for number in row] for row in state]
            stepped = [value * length for value in token]
        with contraction():
            state = [
                [there + value * n for there, n in zip(row, inward, strict=True)]
                for row, value in zip(state, stepped, strict=True)
            ]
        outputs.append([dot(row, outward) for row in state])
    return outputs


# -- chunk by chunk -----------------------------------------------------------------------------------------------


def _delta_by_chunk(q: Rows, k: Rows, v: Rows, decay: list[Any], weight: list[Any], scale: float, chunk: int) -> Rows:
    state = _zeros(len(k[0]), len(v[0]))
    outputs: Rows = []
    for queries, keys, values, fades, shares in _chunks(chunk, q, k, v, decay, weight):
        since = _since(fades)  # what is left of a token's part at a later token; at the first one, of the state before
        start = [fades[0] * row[0] for row in since]
        weighted = [_scaled(row, share) for row, share in zip(keys, shares, strict=True)]
        system = _masked(linear(weighted, keys), since)
        among = _masked(linear(queries, keys), since)
        wanted = [_scaled(row, share) for row, share in zip(values, shares, strict=True)]
        read = [_scaled(row, left) for row, left in zip(weighted, start, strict=True)]
        wanted, read = _solved(system, wanted), _solved(system, read)
        with contraction():
            new = _joined(wanted, product(read, state), lambda a, b: a - b)
            asked = product([_scaled(row, left) for row, left in zip(queries, start, strict=True)], state)
            found = _joined(asked, product(among, new), lambda a, b: a + b)
            kept = [_scaled(row, left) for row, left in zip(keys, since[-1], strict=True)]
            state = [_scaled(row, start[-1]) for row in state]
            state = _joined(state, product(list(zip(*kept, strict=True)), new), lambda a, b: a + b)
        outputs += [_scaled(row, scale) for row in found]
    return outputs[: len(q)]


def _space_by_chunk(each: list[tuple[Rows, list[Any], list[Any]]], b: Rows, c: Rows, chunk: int) -> list[Rows]:
    """The heads that share B and C, whose products with each other they share, too."""
    states = [_zeros(len(x[0]), len(b[0])) for x, *_ in each]
    outputs: list[Rows] = [[] for _ in each]
    cut = [_chunks(chunk, x, decay, step) for x, decay, step in each]
    for place, (inward, outward) in enumerate(_chunks(chunk, b, c)):
        scores = linear(outward, inward)
        for head, chunks in enumerate(cut):
            tokens, fades, steps = chunks[place]
            since = _since(fades)
            start = [fades[0] * row[0] for row in since]
            stepped = [_scaled(row, length) for row, length in zip(tokens, steps, strict=True)]
            with contraction():
                own = product(_masked(scores, since), stepped)
                before = linear(outward, states[head])
                before = [_scaled(row, left) for row, left in zip(before, start, strict=True)]
                outputs[head] += _joined(own, before, lambda a, b: a + b)
                left = [_scaled(row, left) for row, left in zip(stepped, since[-1], strict=True)]
                made = product(list(zip(*left, strict=True)), inward)
                states[head] = [_scaled(row, start[-1]) for row in states[head]]
                states[head] = _joined(states[head], made, lambda a, b: a + b)
    return [rows[: len(x)] for rows, (x, *_) in zip(outputs, each, strict=True)]


def _chunks(chunk: int, *sequences: list[Any]) -> list[tuple[Any, ...]]:
    """The sequences cut into chunks, the last one filled up: rows with zeros, factors,
    which come as plain numbers, with ones."""

    def cut(sequence: list[Any]) -> list[Any]:
        rows = isinstance(sequence[0], list)
        filling = [Tally(0.0)] * len(sequence[0]) if rows else 1.0
        full = [*(sequence if rows else plain(sequence)), *[filling] * (-len(sequence) % chunk)]
        return [full[i : i + chunk] for i in range(0, len(full), chunk)]

    return list(zip(*map(cut, sequences), strict=True))


def _since(fades: list[float]) -> list[list[float]]:
    """What is left at token i of what token j has brought: the product of the decays in
    between, and nothing before j."""
    return [[math.prod(fades[j + 1 : i + 1]) if j <= i else 0.0 for j in range(len(fades))] for i in range(len(fades))]


def _solved(system: Rows, right: Rows) -> Rows:
    """Forward substitution: *system* is lower triangular, and its diagonal counts as 1."""
    found: Rows = []
    for i, row in enumerate(right):
        with contraction():
            for j, earlier in enumerate(found):
                row = [value - system[i][j] * x for value, x in zip(row, earlier, strict=True)]
        found.append(row)
    return found


def _scaled(row: list[Any], factor: float) -> list[Any]:
    """A decay or a weight, uncounted."""
    return [Tally(number.value * factor) for number in row]


def _masked(rows: Rows, factors: list[list[float]]) -> Rows:
    return [[Tally(x.value * f) for x, f in zip(*both, strict=True)] for both in zip(rows, factors, strict=True)]


def _joined(ones: Rows, others: Rows, how: Callable[[Any, Any], Any]) -> Rows:
    return [[how(a, b) for a, b in zip(*rows, strict=True)] for rows in zip(ones, others, strict=True)]


def _zeros(rows: int, columns: int) -> Rows:
    return [[Tally(0.0) for _ in range(columns)] for _ in range(rows)]
