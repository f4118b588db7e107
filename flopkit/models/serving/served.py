"""A model that serves: prefill, steps of decoding, and the bytes that they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from flopkit.cost import Cost
from flopkit.models.caches import CacheFormat, Rows, cache_format, cached_bytes, merged, of_states, seen_rows
from flopkit.models.checkpoints.weights import formats_of, weight_bytes
from flopkit.models.display import no_text
from flopkit.models.formats import Weights
from flopkit.models.running import Running
from flopkit.models.serving.serving_pass import decoded, prefilled
from flopkit.models.storage import nbytes
from flopkit.sizes import Count, Size, size

__all__ = ["Served"]


class Served(Running):
    """Prefill and decode of a `Model`."""

    def prefill(
        self, *, prompt: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: CacheFormat | None = None,
        prefix: Count = 0, experts: str = "most", source: Size | None = None,
    ) -> Cost:  # fmt: skip
        """The pass over *batch* prompts that fills the cache; the head runs on the last
        token of each. Of an encoder-decoder it is the encoder's pass, too.

        Parameters
        ----------
        prompt : Size
            New tokens of a sequence. Of an encoder-decoder of text (T5, NLLB) without
            *source*: what its encoder reads, and the decoder begins with one token.
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
            cache of DeepSeek-V3.2. None: what the model's file says, else bf16. States
            of recurrent layers have a format of their own, ``{"states": "fp32"}``; else
            they are bf16 beside any cache.
        prefix : Count, optional
            Tokens of a sequence that lie in the cache already, from an earlier chunk or
            a prompt that others share. Of an encoder-decoder: tokens of its decoder;
            where there are some, the encoder has run already and does not run again, and
            *prompt* and *source* mean what *new* and *source* do in `decode`.
        experts : str, optional
            Of a mixture, how many experts are read: ``"most"``, as many different ones
            as so many tokens can choose, or ``"expected"``, as many as they choose on
            average if each chooses by chance, all equally likely
            (`flopkit.layers.experts.expected_experts`).
        source : Size, optional
            Of an encoder-decoder: tokens that its encoder reads; the *prompt* is then
            what the decoder reads, such as the token that names a language. None: see
            *prompt*. The length of sound is fixed (Whisper: 1,500 tokens), and the
            *prompt* is always the decoder's.

        Returns
        -------
        Cost
            FLOPs under EXACT. Bytes: the weights that are read once and the cache, of
            which each number is read or written once; states of linear attention are
            read and written.

        Raises
        ------
        ValueError
            For a bad size, a format or a model that is not known for it, *source* where
            there is no encoder or its length is another one.

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
        >>> t5 = load("t5-base")
        >>> t5.prefill(prompt=512).flops == t5.prefill(prompt=1, source=512).flops
        True
        """
        sizes: dict[str, Any] = {"prompt": prompt, "batch": batch, "prefix": prefix, "source": source}
        return prefilled(self, weights=weights, kv_cache=kv_cache, experts=experts, **sizes).cost

    def decode(
        self, *, context: Size, batch: Size = 1, weights: Weights | None = None, kv_cache: CacheFormat | None = None,
        new: Size = 1, experts: str = "most", source: Size | None = None,
    ) -> Cost:  # fmt: skip
        """One step of decoding: one new token for each of *batch* sequences.

        Parameters
        ----------
        context : Size
            Tokens of a sequence, the new ones included; of an encoder-decoder, those of
            its decoder.
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
        source : Size, optional
            Of an encoder-decoder: tokens that its encoder has read, whose keys and
            values lie in the cache. None: as many as *context*; the length of sound is
            fixed (Whisper: 1,500 tokens).

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
        >>> whisper = load("whisper-large-v3")  # a cache of 448 tokens of text and 1,500 of sound
        >>> whisper.decode(context=448).bytes - whisper.decode(context=1).bytes == 2 * 2 * 32 * 1280 * 447
        True
        """
        sizes: dict[str, Any] = {"context": context, "batch": batch, "new": new, "source": source}
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

    def kv_bytes(
        self, *, context: Size, batch: Size = 1, dtype: CacheFormat = "bf16", source: Size | None = None
    ) -> Any:
        """Bytes of the cache of *batch* sequences of *context* tokens.

        Keys and values of every layer; a layer with a window keeps min(context, window)
        tokens, latent attention a latent and a rope key; a recurrent layer a state,
        however long the text (`state_bytes`); a decoder's cross-attention the keys and
        values of the encoder's output.

        Parameters
        ----------
        context : Size
            Tokens of a sequence.
        batch : Size, optional
            Sequences.
        dtype : CacheFormat, optional
            The format of the cache, as in `prefill`: one name does not touch states.
        source : Size, optional
            Of an encoder-decoder: tokens of its encoder, as in `decode`.

        Examples
        --------
        >>> from flopkit import load
        >>> load("llama-3-8b").kv_bytes(context=8192), load("deepseek-v3").kv_bytes(context=1)
        (1073741824, 70272)
        >>> load("deepseek-v3.2").kv_bytes(context=1, dtype="fp8_ds_mla")  # 61 · (656 + 132)
        48068
        >>> load("whisper-large-v3").kv_bytes(context=448)  # 2 · 2 · 32 · 1280 · (448 + 1500)
        319160320
        """
        context, batch = size("context", context), size("batch", batch)
        return cached_bytes(self.cached(context, source=source), cache_format(dtype, "dtype"), batch)

    def state_bytes(self, *, batch: Size = 1, dtype: CacheFormat = "bf16") -> Any:
        """Bytes of the states of recurrent layers, and of the last inputs of their convolutions, of *batch* sequences: what
        `kv_bytes` holds at any length of the text. 0: there are none.

        Parameters
        ----------
        batch : Size, optional
            Sequences.
        dtype : CacheFormat, optional
            The format of the states, or that of a cache by role, as in `prefill`.

        Examples
        --------
        Of 48 layers of Qwen3-Next 36 hold 32 states of 128 × 128, and four inputs of 8,192 channels:

        >>> from flopkit import load
        >>> qwen = load("qwen3-next-80b-a3b")
        >>> qwen.state_bytes(), 2 * 36 * (32 * 128 * 128 + 4 * 8192)
        (40108032, 40108032)
        >>> qwen.kv_bytes(context=4096) - qwen.state_bytes() == 4096 * 24576
        True
        """
        kind = cache_format(dtype, "dtype")
        kind = kind if isinstance(kind, Mapping) else {"states": kind}
        numbers = self.caches(1)["states"] or {"states": 0}
        return nbytes(size("batch", batch) * numbers["states"], of_states(kind))

    def cached(self, context: Any, rows: Rows = seen_rows, source: Any = None) -> dict[str, Any]:
        """Numbers in the cache of a sequence of *context* tokens, by role.

        *rows*: how many tokens a layer keeps that sees at most so many, for programs
        that keep more than it sees. *source*: as in `decode`.

        >>> from flopkit import load
        >>> load("deepseek-v3").cached(1)
        {'latent': 31232, 'rope': 3904}
        """
        return merged(self.caches(context, rows, source).values())

    def caches(self, context: Any, rows: Rows = seen_rows, source: Any = None) -> dict[str, dict[str, Any]]:
        """The same in three pieces: ``"text"``, which grows with the text, ``"source"``,
        keys and values of an encoder's output, and ``"states"``.

        >>> from flopkit import load
        >>> load("t5-base").caches(1, source=512)
        {'text': {'keys': 9216, 'values': 9216}, 'source': {'keys': 4718592, 'values': 4718592}, 'states': {}}
        """
        self.of_text("cache")
        encoded = self.encoded(context, source)
        own: list[dict[str, Any]] = []
        of_source: list[dict[str, Any]] = []
        for block, layers in self.blocks:
            for branch, tokens, found in ((block.mixer, context, own), (block.cross, encoded, of_source)):
                if branch is not None:
                    held = branch.cached(tokens, rows).items()
                    found.append({role: layers * numbers for role, numbers in held})
        text = merged(own)
        states = {"states": text.pop("states")} if "states" in text else {}
        return {"text": text, "source": merged(of_source), "states": states}

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
