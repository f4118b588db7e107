"""A model that serves: prefill, steps of decoding, and the bytes that they read."""

from __future__ import annotations

from typing import Any

from flopkit.cost import Cost
from flopkit.models.caches import CacheFormat, Rows, cache_format, cached_bytes, merged, seen_rows
from flopkit.models.display import no_text
from flopkit.models.formats import Weights
from flopkit.models.running import Running
from flopkit.models.serving_pass import decoded, prefilled
from flopkit.models.weights import formats_of, weight_bytes
from flopkit.sizes import Count, Size, size

__all__ = ["Served"]


class Served(Running):
    """Prefill and decode of a `Model`."""

    def prefill(
        self, *, prompt: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: CacheFormat | None = None,
        prefix: Count = 0, experts: str = "most",
    ) -> Cost:  # fmt: skip
        """The pass over *batch* prompts that fills the cache; the head runs on the last
        token of each.

        Parameters
        ----------
        prompt : Size
            New tokens of a sequence.
        batch : Size, optional
            Sequences.
        weights : Weights, optional
            The format in which the weights are stored: a name (``"bf16"``, ``"fp8"``,
            ``"mxfp4"``, ``"nf4"``, ``"q4_k_m"``, …, blocks with their scales), or a
            name by role, ``{"experts": "mxfp4", "rest": "bf16"}``; `Formats` lists the
            roles and says what a format of blocks leaves alone. None: what the model's
            file says, else bf16.
        kv_cache : CacheFormat, optional
            The format of the cache: a name; a name by role, such as ``{"keys": "q8_0",
            "values": "q4_0"}``, where ``"latent"``, ``"rope"`` and ``"index"`` are those
            of latent attention and its indexer; or ``"fp8_ds_mla"``, as vLLM calls the
            cache of DeepSeek-V3.2. None: what the model's file says, else bf16.
        prefix : Count, optional
            Tokens of a sequence that lie in the cache already, from an earlier chunk or
            a prompt that others share.
        experts : str, optional
            Of a mixture, how many experts are read: ``"most"``, as many different ones
            as so many tokens can choose, or ``"expected"``, as many as they choose on
            average if each chooses by chance, all equally likely
            (`flopkit.layers.experts.expected_experts`).

        Returns
        -------
        Cost
            FLOPs under EXACT. Bytes: the weights that are read once and the cache, of
            which each number is read or written once; states of linear attention are
            read and written.

        Notes
        -----
        Not counted in the bytes: activations, logits among them, which can stay on the
        chip; scales of plain formats such as fp8 and int4 (formats of blocks have
        theirs). So the bytes are a lower bound.

        Examples
        --------
        >>> from flopkit import load
        >>> llama = load("llama-3-8b")
        >>> whole, first = llama.prefill(prompt=4096).flops, llama.prefill(prompt=2048).flops
        >>> whole == first + llama.prefill(prompt=2048, prefix=2048).flops - 2 * llama.d_model * llama.vocab  # one head is saved
        True
        """
        sizes: dict[str, Any] = {"prompt": prompt, "batch": batch, "prefix": prefix}
        return prefilled(self, weights=weights, kv_cache=kv_cache, experts=experts, **sizes).cost

    def decode(
        self, *, context: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: CacheFormat | None = None,
        new: Size = 1, experts: str = "most",
    ) -> Cost:  # fmt: skip
        """One step of decoding: one new token for each of *batch* sequences.

        Parameters
        ----------
        context : Size
            Tokens of a sequence, the new ones included.
        batch : Size, optional
            Sequences.
        weights : Weights, optional
            The format of the weights, as in `prefill`.
        kv_cache : CacheFormat, optional
            That of the cache, as in `prefill`.
        new : Size, optional
            New tokens of each sequence: more than one where a step verifies drafted
            tokens. The head runs on each.
        experts : str, optional
            Of a mixture, how many experts are read, as in `prefill`.

        Returns
        -------
        Cost
            FLOPs under EXACT; latent attention runs in its absorbed form. Bytes: as in
            `prefill`; of the experts, those of ``min(experts, batch·new·top_k)`` are
            read, the most that so many tokens can reach, or with ``"expected"``
            E·(1 − (1 − k/E)^(batch·new)) of E, of which a token chooses k.

        Notes
        -----
        Not counted in the bytes: activations, logits among them; scales of plain
        formats.

        Examples
        --------
        >>> from flopkit import load
        >>> step = load("llama-3-8b").decode(context=8192)
        >>> step.bytes  # the weights without the table of the embedding, one row of it, and a cache of 1.07 GB
        16083599360
        >>> checkpoint = {"experts": "mxfp4", "rest": "bf16"}
        >>> load("gpt-oss-120b").decode(context=1, weights=checkpoint).bytes
        5002981632
        """
        sizes: dict[str, Any] = {"context": context, "batch": batch, "new": new}
        return decoded(self, weights=weights, kv_cache=kv_cache, experts=experts, **sizes).cost

    def weight_bytes(self, weights: Weights | None = None) -> Any:
        """Bytes of all weights, as a checkpoint has them; a tied table counts once.

        Parameters
        ----------
        weights : Weights, optional
            The format in which they are stored, as in `prefill`.

        Notes
        -----
        Not counted: names and shapes of the tensors in a file, its vocabulary, one
        number for a whole tensor (see `flopkit.models.Storage`).

        Examples
        --------
        >>> from flopkit import load
        >>> load("gpt-oss-120b").weight_bytes({"experts": "mxfp4", "rest": "bf16"})  # published: 65.25 GB
        65248815744
        >>> load("llama-3-8b").weight_bytes("nf4")  # QLoRA: embedding, head and norms in bf16
        5702295552
        """
        return weight_bytes(self, formats_of(self, weights))

    def kv_bytes(self, *, context: Size, batch: Size = 1, dtype: CacheFormat = "bf16") -> Any:
        """Bytes of the cache of *batch* sequences of *context* tokens.

        Keys and values of every layer; a layer with a window keeps min(context, window)
        tokens, latent attention a latent and a rope key.

        Parameters
        ----------
        context : Size
            Tokens of a sequence.
        batch : Size, optional
            Sequences.
        dtype : CacheFormat, optional
            The format of the cache, as in `prefill`.

        Examples
        --------
        >>> from flopkit import load
        >>> load("llama-3-8b").kv_bytes(context=8192), load("deepseek-v3").kv_bytes(context=1)
        (1073741824, 70272)
        >>> load("deepseek-v3.2").kv_bytes(context=1, dtype="fp8_ds_mla")  # 61 · (656 + 132)
        48068
        """
        context, batch = size("context", context), size("batch", batch)
        return cached_bytes(self.cached(context), cache_format(dtype, "dtype"), batch)

    def cached(self, context: Any, rows: Rows = seen_rows) -> dict[str, Any]:
        """Numbers in the cache of a sequence of *context* tokens, by role.

        *rows*: how many tokens a layer keeps that sees at most so many, for programs
        that keep more than it sees.

        >>> from flopkit import load
        >>> load("deepseek-v3").cached(1)
        {'latent': 31232, 'rope': 3904}
        """
        self.of_text("cache")
        # keys and values of an encoder's output are taken to be as long as the text here
        branches = ((branch, layers) for block, layers in self.blocks for branch in (block.mixer, block.cross))
        return merged(
            {role: layers * numbers for role, numbers in branch.cached(context, rows).items()}
            for branch, layers in branches
            if branch is not None
        )

    def cache_format(self, kv_cache: CacheFormat | None) -> Any:
        """The format of the cache: the one that is given, else what the model's file
        says, else bf16."""
        if kv_cache is not None:
            return cache_format(kv_cache)
        return "bf16" if self.formats is None or self.formats.kv_cache is None else self.formats.kv_cache

    def of_text(self, name: str) -> None:
        """Refuse a model that does not write text token by token, for what is called *name*."""
        if not self.writes:
            raise no_text(self, name)
