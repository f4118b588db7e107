"""A whole request: the time to its first token, the time of each further one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from flopkit import units
from flopkit.models import Model
from flopkit.models.catalogue import the_model
from flopkit.serving.bounds import Bound, decode, prefill
from flopkit.sizes import number

__all__ = ["Request", "request"]


@dataclass(frozen=True, repr=False, eq=False)
class Request:
    """What a request takes at least: ``first`` is the prefill of its prompt, ``step`` the steps of decoding, as a sweep over the contexts.

    `in_order` is the same request with the parts of the model one after another.
    """

    name: str
    prompt: int
    output: int
    batch: int
    first: Bound
    step: Bound | None

    @property
    def in_order(self) -> Request:
        """The same with the parts of the model one after another."""
        return replace(self, first=self.first.in_order, step=None if self.step is None else self.step.in_order)

    @property
    def time_to_first_token(self) -> float:
        """Seconds of the prefill, whose last token gives the first one of the answer."""
        return float(self.first.seconds)

    @cached_property
    def time_per_output_token(self) -> float:
        """Seconds of a step of decoding, the mean over the answer: the time between two tokens."""
        if self.step is None:
            raise ValueError(f"output={self.output}: the prefill makes the only token, so there is no step of decoding")
        return float(self.step.seconds.sum()) / (self.output - 1)

    @property
    def seconds(self) -> float:
        """From the prompt to the last token."""
        return self.time_to_first_token + (0 if self.step is None else (self.output - 1) * self.time_per_output_token)

    @property
    def tokens_per_s_per_user(self) -> float:
        """Tokens of the answer a second, the wait for the first one included."""
        return self.output / self.seconds

    @property
    def tokens_per_s(self) -> float:
        """The same for all users together."""
        return self.batch * self.tokens_per_s_per_user

    def __repr__(self) -> str:
        rows = [f"{self.name}: {self.prompt:,} tokens in, {self.output:,} out, batch {self.batch:,}"]
        for each in (self, self.in_order):
            next_one = "" if self.step is None else f", then {units.seconds(each.time_per_output_token)} a token"
            rows.append(
                f"{each.first.schedule}: first token after at least {units.seconds(each.time_to_first_token)}{next_one}, {units.seconds(each.seconds)} in all"
            )
        return "\n".join(rows)


def request(
    model: Model | str, device: Any, *, prompt: int, output: int, batch: int = 1, source: int | None = None, **rest: Any
) -> Request:
    """A batch of equal requests: the prompts are read together, then each step gives every user a token.

        seconds = prefill(prompt) + Σ decode(context) over context = prompt + 1 … prompt + output − 1

    Of an encoder-decoder the prefill is the encoder's pass, too, and no answer makes its keys and values longer. Without *source* the prompt of
    one for text is what its encoder reads; the decoder begins with one token, and contexts are 2 … output.

    Parameters
    ----------
    model : Model or str
        A model, its name, or its ``config.json``.
    device : Any
        A name or a `Device`.
    prompt, output : int
        Tokens that are read, and tokens that are written.
    batch : int, optional
        Requests.
    source : int, optional
        Of an encoder-decoder: tokens that its encoder reads; *prompt* is then what its decoder reads, as in `Model.prefill`.
    **rest : Any
        *weights*, *kv_cache*, *compute*, *count* and *experts*, as in `decode`.

    Notes
    -----
    Not counted: waiting for others, tokenising, the network, starting kernels. An engine that mixes prefill and decoding of different users in
    one step has other times to first token than this.

    Examples
    --------
    >>> request("llama-3-8b", "h100-sxm", prompt=8192, output=256)
    llama-3-8b: 8,192 tokens in, 256 out, batch 1
    overlapped: first token after at least 133.4 ms, then 4.806 ms a token, 1.359 s in all
    in order: first token after at least 133.7 ms, then 4.806 ms a token, 1.359 s in all

    T5's encoder reads 512 tokens once, and the decoder's context grows from 1 to 128:

    >>> request("t5-base", "h100-sxm", prompt=512, output=128)
    t5-base: 512 tokens in, 128 out, batch 1
    overlapped: first token after at least 139 µs, then 80.26 µs a token, 10.33 ms in all
    in order: first token after at least 192.1 µs, then 80.26 µs a token, 10.38 ms in all
    """
    import numpy as np

    model = the_model(model)
    prompt, output, batch = number("prompt", prompt), number("output", output), number("batch", batch)
    first = prefill(model, device, prompt=prompt, batch=batch, source=source, **rest)
    begun, encoded = model.begun(prompt, source)
    contexts = np.arange(begun + 1, begun + output)
    step = decode(model, device, context=contexts, batch=batch, source=encoded, **rest) if output > 1 else None
    return Request(model.name, prompt, output, batch, first, step)
