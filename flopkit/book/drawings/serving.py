"""What prefill and decoding read: weights and cache."""

from __future__ import annotations

from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing
from flopkit.book.drawings.sizes import whole
from flopkit.book.drawings.titles import model_title
from flopkit.charts.theme import BLUE, GREEN, MUTED, ORANGE
from flopkit.models.catalogue import load
from flopkit.units import count, percent, si

__all__ = ["decode_bytes", "prefill_and_decode"]


def prefill_and_decode(prompt: int = 6, steps: int = 3) -> Drawing:
    """Prefill of a prompt and steps of decoding over one cache: what each pass reads, and which tokens it adds.

    Parameters
    ----------
    prompt : int, optional
        Tokens of the prompt, 2 to 8.
    steps : int, optional
        Steps of decoding, 1 to 4.

    Examples
    --------
    >>> prefill_and_decode().title
    'Prefill reads the weights once for 6 tokens; each step of decoding reads them for one'
    """
    whole("prefill_and_decode", "prompt", prompt, 2, 8)
    whole("prefill_and_decode", "steps", steps, 1, 4)
    cell, left, top, high = 21.0, 124.0, 62.0, 46.0
    canvas = Canvas(top + (steps + 1) * high + 44)
    canvas.text(78, 34, "weights", colour=GREEN, bold=True)
    canvas.text(left, 34, "cache, a column a token", anchor="start", bold=True)
    for i in range(steps + 1):
        y = top + i * high
        held = 0 if i == 0 else prompt + i - 1
        new = prompt if i == 0 else 1
        canvas.text(0, y + 13, f"step {i}" if i else "prefill", anchor="start")
        canvas.box(52, y, 52, 26, "all", name=f"weights of pass {i}", colour=GREEN, fill=0.3)
        for place in range(prompt + steps):
            where = left + place * cell, y, cell - 3, 26
            if place < held:
                canvas.box(*where, name=f"read in pass {i}", colour=BLUE, fill=0.35, edge=0.8)
            elif place < held + new:
                canvas.box(*where, name=f"written in pass {i}", colour=ORANGE, fill=0.6, edge=0.8)
            else:
                canvas.box(*where, name=f"empty in pass {i}", colour=MUTED, fill=0, edge=0.6, dash=True)
    y = top + (steps + 1) * high + 6
    for x, colour, fill, words in (
        (6, GREEN, 0.3, "read"),
        (84, BLUE, 0.35, "read from the cache"),
        (246, ORANGE, 0.6, "new token"),
    ):
        canvas.box(x, y - 7, 14, 14, colour=colour, fill=fill, edge=0.8)
        canvas.text(x + 20, y, words, anchor="start", colour=MUTED)
    return Drawing(
        "prefill-and-decode",
        f"Prefill reads the weights once for {prompt} tokens; each step of decoding reads them for one",
        f"A pass a row. Prefill reads all weights and writes the keys and values of {prompt} prompt tokens. Each of {count(steps, 'steps')} after "
        f"it reads all weights again and the whole cache, {prompt} to {prompt + steps - 1} tokens, and adds one token.",
        [canvas],
    )


def decode_bytes(model: str = "llama-3-8b", context: int = 8192, batches: tuple[int, ...] = (1, 8, 32, 128)) -> Drawing:
    """The bytes of a step of decoding for several batches: the weights once, and a cache for each user.

    Parameters
    ----------
    model : str, optional
        A name that `flopkit.load` knows.
    context : int, optional
        Tokens of each sequence.
    batches : tuple[int, ...], optional
        Two to five batches.

    Examples
    --------
    >>> decode_bytes().title
    'A step reads the weights once and a cache for each user: 90.2 % of its bytes at 128 users'
    """
    whole("decode_bytes", "context", context, 1, 2**20)
    if not 2 <= len(batches) <= 5:
        raise ValueError(f"decode_bytes(batches={batches!r}): give two to five batches, so that they can be drawn")
    for batch in batches:
        whole("decode_bytes", "batches", batch, 1, 4096)
    known = load(model)
    moved = {batch: known.decode(context=context, batch=batch).bytes for batch in batches}
    caches = {batch: known.kv_bytes(context=context, batch=batch) for batch in batches}
    scale = 352 / max(moved.values())
    canvas = Canvas(26 + 52 * len(batches) + 26)
    canvas.text(0, 10, f"{model_title(known.name)}, {count(context, 'tokens')} each, bf16", anchor="start", bold=True)
    for i, (batch, whole_) in enumerate(moved.items()):
        y = 40 + 52 * i
        weights, cache = (whole_ - caches[batch]) * scale, caches[batch] * scale
        canvas.text(0, y, count(batch, "users"), anchor="start")
        canvas.text(
            354, y, f"{si(whole_, 'B')}, {si(whole_ / batch, 'B')} a token", anchor="end", name=f"words of {batch}"
        )
        canvas.box(0, y + 10, weights, 18, name=f"weights of {batch}", colour=GREEN, fill=0.4, edge=0, round=0)
        canvas.box(weights, y + 10, cache, 18, name=f"cache of {batch}", colour=BLUE, fill=0.5, edge=0, round=0)
    y = 40 + 52 * len(batches) - 2
    for x, colour, fill, words in ((0, GREEN, 0.4, "weights"), (90, BLUE, 0.5, "caches")):
        canvas.box(x, y - 7, 14, 14, colour=colour, fill=fill, edge=0.8)
        canvas.text(x + 20, y, words, anchor="start", colour=MUTED)
    last = batches[-1]
    share = percent(caches[last] / moved[last])
    told = "; ".join(
        f"{count(batch, 'users')}: {si(whole_ - caches[batch], 'B')} of weights and {si(caches[batch], 'B')} of caches"
        for batch, whole_ in moved.items()
    )
    return Drawing(
        "decode-bytes",
        f"A step reads the weights once and a cache for each user: {share} of its bytes at {count(last, 'users')}",
        f"Bytes of a step of decoding {model_title(known.name)} with {count(context, 'tokens')} each. {told}.",
        [canvas],
    )
