"""Speculative decoding: a small model drafts tokens, the large one verifies several in one step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flopkit.arithmetic import Number, where
from flopkit.models import Model
from flopkit.models.catalogue import the_model
from flopkit.serving.bounds import SCHEDULES, decode
from flopkit.sizes import choice, positive, size

__all__ = ["Speculation", "expected_tokens", "speculate"]


@dataclass(frozen=True)
class Speculation:
    """What drafted tokens bring: *tokens* of a round on average, its least time in *seconds*, and the *speedup* over plain decoding."""

    tokens: float
    seconds: float
    speedup: float


def expected_tokens(drafted: Number, acceptance: Number) -> Number:
    """Tokens that a round yields on average: (1 − aᵏ⁺¹)/(1 − a), for *k* drafted tokens, each accepted with the same chance *a*.

    The first token that is refused is replaced by one of the large model, which also adds one where all are accepted (Leviathan et al. 2022, eq. 1).

    >>> expected_tokens(4, 0.8), expected_tokens(4, 1.0), expected_tokens(4, 0.0)
    (3.3616, 5, 1.0)
    """
    acceptance = positive("acceptance", acceptance, zero=True, sweep=True, most=1)
    drafted, sure = size("drafted", drafted, minimum=0), acceptance == 1
    return where(sure, drafted + 1, (1 - acceptance ** (drafted + 1)) / where(sure, 1, 1 - acceptance))


def speculate(
    model: Model | str,
    device: Any,
    *,
    context: int,
    drafted: int,
    acceptance: float,
    draft: Model | str | None = None,
    schedule: str = "overlapped",
    **rest: Any,
) -> Speculation:
    """Speculative decoding: a small model drafts tokens one by one, the large one verifies them in a single step.

        seconds = drafted · (a step of the draft) + (a step of the model with drafted + 1 new tokens)

    Parameters
    ----------
    model : Model or str
        The large model.
    device : Any
        As in `decode`.
    context : int
        Tokens of a sequence as it is, the next one included.
    drafted : int
        Tokens that are drafted in a round.
    acceptance : float
        The chance that a drafted token is accepted, the same for each.
    draft : Model or str, optional
        The model that drafts. None: drafting costs nothing, as with tokens copied from the prompt.
    schedule : str, optional
        ``"overlapped"`` or ``"in order"``, as in `Bound`.
    **rest : Any
        *batch*, *weights*, *kv_cache*, *compute*, *count* and *source*, as in `decode`, for both models.

    Examples
    --------
    >>> plan = speculate("llama-3-70b", "h100-sxm", context=2048, drafted=4, acceptance=0.8, draft="llama-3-8b", count=8)
    >>> round(plan.tokens, 2), round(plan.speedup, 2)
    (3.36, 2.34)
    """
    tokens, source = expected_tokens(drafted, acceptance), rest.pop("source", None)
    choice("schedule", schedule, tuple(SCHEDULES))

    def least(of: Model | str, **sizes: Any) -> Any:
        of = the_model(of)
        bound = decode(of, device, source=of.encoded(context, source), **sizes, **rest)
        return (bound.in_order if schedule == "in order" else bound).seconds

    small = least(draft, context=context) if draft is not None else 0
    seconds = drafted * small + least(model, context=context + drafted, new=drafted + 1)
    return Speculation(tokens, seconds, tokens * least(model, context=context) / seconds)
