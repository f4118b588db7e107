"""How fast does it answer, and to how many? A step of decoding, the pass over a prompt, and what fits in the memory.

Controls beside those of `any_model`: ``users``, sequences that are decoded together (1 to 4,096; 32); ``context``, tokens of each (128 to
1,048,576; 32,768); ``prompt``, tokens of the prompt, at most the context (16 to 1,048,576; 8,192); ``device`` (`device_choice`); ``count``,
devices (1 to 1,024; 1); ``weights`` (of ``STORED`` in `checkpoint_formats`); ``cache`` (of `CACHES`); ``chosen_by``, how many experts a pass
reads (a word of `READS`).

Results, in seconds: ``decode_seconds``, the least time of a step with everything overlapped; ``first_seconds``, the same for the prompt of one
user, alone on all devices: the least time to the first token. Tokens/s, at most: ``each_rate`` and ``decode_rate``, of a user and of all users.
``decode_bound`` and ``first_bound``: ``"compute"`` or ``"memory"``. Bytes: ``stored``, all weights;
``a_user``, the cache of one; ``cached``, the cache of all; ``serving``, weights and cache on all devices; ``serving_each``, that by the number
of devices; ``room``, what the weights leave on all devices; ``spare``, what weights and cache leave (below 0: what is missing). ``serves``:
``"yes"`` or ``"no"``. ``most_users`` and ``most_tokens``: how many sequences of the context, and tokens in such sequences, fit beside the
weights. ``no_rate`` and ``no_first``: that the users, or one prompt, do not fit, so that no time and no rate is shown, or "".
``serve_answer``: a sentence with names of controls and results in braces. ``decode_flops``, ``decode_bytes``, ``first_flops``, ``first_bytes``: of a step and of a prompt. ``no_choice``: why *chosen_by* has no
effect on any time, or "".

Weights and cache are spread evenly over the devices, which exchange data in no time. `flopkit.serving.decode`, `prefill` and `capacity` give
the same numbers, the last with ``block=1``. The memory is what programs can use.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from flopkit.arithmetic import ceil_div, is_zero, maximum, total, where
from flopkit.book.gallery.any_model import idle, kinds, model_of, refuse, sizes
from flopkit.book.gallery.checkpoint_formats import in_roles
from flopkit.charts.readings import pick
from flopkit.dtypes import nbytes
from flopkit.models import Experts, Model
from flopkit.models.serving.serving_pass import ServingPass, decoded, prefilled

__all__ = ["CACHES", "READS", "serve"]

CACHES = {"bf16": {"bits": 16}, "fp8 or int8": {"bits": 8}}
NO_ROOM = "none: does not fit"
SERVED = "Each of {users} users gets at most {each_rate} tokens/s, and all together at most {decode_rate}. At most {most_users} users fit."
FEWER = "{users} users do not fit: at most {most_users} do. Take fewer users, a shorter context, a smaller cache or more devices."
NOBODY = "Not one user fits: the weights take {stored}, and a cache comes on top. Take more devices or smaller formats."
READS = {"as many as they could choose": "most", "as many as they choose on average": "expected"}
"""How many experts a pass reads: what the reader sees, and the word for it of `flopkit.serving.decode`."""


def serve(s: Any, **c: Any) -> None:
    """Both bounds of a step of decoding and of the pass over a prompt, and how many users fit."""
    users, context, prompt, count = c["users"], c["context"], c["prompt"], c["count"]
    n = sizes(s, c, maximum(context, prompt))
    refuse(s, c, "context", (prompt > context, "A prompt of {prompt} is longer than the context of {context}."))
    idle(s, c, context)
    model, stored = model_of(n), in_roles(c["weights"])
    s.stored_norms = nbytes(s.more_norms, stored["rest"])
    s.all_peak, s.all_bandwidth = count * c["device"].peak, count * c["device"].bandwidth
    formats: dict[str, Any] = {"weights": stored, "kv_cache": c["cache"]}

    def step(model: Model, experts: str) -> ServingPass:
        return decoded(model, context=context, batch=users, new=1, experts=experts, **formats)

    def first(model: Model, experts: str) -> ServingPass:
        return prefilled(model, prompt=prompt, batch=1, prefix=0, experts=experts, **formats)

    _bounds(s, "decode", step, model, c["chosen_by"])
    _bounds(s, "first", first, model, c["chosen_by"])
    s.each_rate, s.decode_rate = 1 / s.decode_seconds, users / s.decode_seconds
    matters = s.decode_matters + s.first_matters
    s.no_choice = where(
        matters > 0, "", where(c["experts"] > 0, "Neither pass is faster with fewer experts.", s.no_experts)
    )

    available, numbers = count * c["device"].usable, _cache(n, context)
    s.stored = model.weight_bytes(stored) + s.stored_norms
    s.a_user, s.cached = nbytes(numbers, c["cache"]), nbytes(users * numbers, c["cache"])
    s.serving = s.stored + s.cached
    s.serving_each, s.spare = s.serving / count, available - s.serving
    s.serves = where(s.serving <= available, "yes", "no")
    s.room = maximum(available - s.stored, 0)
    s.most_users, s.most_tokens = _whole(s.room / s.a_user), _whole(s.room / s.a_user * context)
    s.with_prompt = s.stored + nbytes(_cache(n, prompt), c["cache"])
    s.no_rate = where(s.serving <= available, "", NO_ROOM)
    s.no_first = where(s.with_prompt <= available, "", NO_ROOM)
    s.serve_answer = where(s.serving <= available, SERVED, where(s.most_users > 0, FEWER, NOBODY))


def _bounds(s: Any, name: str, ask: Callable[[Model, str], ServingPass], model: Model, chosen_by: Any) -> None:
    """Set FLOPs and bytes of a pass and its least time."""

    def put(what: str, value: Any) -> Any:
        setattr(s, f"{name}_{what}", value)
        return getattr(s, f"{name}_{what}")

    pieces = ask(model, "most").pieces
    mixtures = tuple(block for block in model.blocks if isinstance(block[0].mlp, Experts))
    expected = ask(replace(model, blocks=mixtures), "expected").pieces if mixtures else ()
    flops, moved = [], [s.stored_norms]
    of_experts: dict[str, Any] = {}
    for i, each in enumerate(pieces):
        flops.append(put(f"flops_{i}", each.flops))
        if each.group != "experts":
            moved.append(put(f"bytes_{i}", each.bytes))
            continue
        others = [other.bytes for other in expected if other.group == "experts"]
        for experts, numbers in {"most": each.bytes, "expected": total(others)}.items():
            of_experts[experts] = put(f"experts_{experts}", numbers)
    put("flops", total(flops))
    put("bytes_of_all", total(moved))
    ends: dict[str, dict[str, Any]] = {"bytes": {}, "seconds": {}}
    for title, experts in READS.items():
        read = getattr(s, f"{name}_bytes_of_all") + of_experts.get(experts, 0)
        ends["bytes"][title] = put(f"bytes_{experts}", read)
        seconds = maximum(getattr(s, f"{name}_flops") / s.all_peak, ends["bytes"][title] / s.all_bandwidth)
        ends["seconds"][title] = put(f"seconds_{experts}", seconds)
    for what, values in ends.items():
        put(what, pick(chosen_by, values))
    compute, memory = getattr(s, f"{name}_flops") / s.all_peak, getattr(s, f"{name}_bytes") / s.all_bandwidth
    put("bound", where(compute >= memory, "compute", "memory"))
    most, fewer = READS
    put("matters", where(ends["seconds"][most] > ends["seconds"][fewer], 1, 0))


def _cache(n: Mapping[str, Any], context: Any) -> Any:
    """Numbers in the cache of one user."""
    found = kinds(n)
    made = [(count, make()) for count, make in (*found["heads"], *found["latent"]) if not is_zero(count)]
    return total(count * mixer.held(context) for count, mixer in made)


def _whole(value: Any) -> Any:
    """Rounded down."""
    return -ceil_div(-value, 1)
