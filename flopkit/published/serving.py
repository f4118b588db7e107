"""Published numbers of inference: utilisation of a forward pass, bytes that a token reads."""

from __future__ import annotations

from collections.abc import Iterator

from flopkit.models import load
from flopkit.published.rows import Row, read, span

__all__ = ["gpt_fast", "pope"]


def pope() -> Iterator[Row]:
    """PaLM 540B on 64 TPU v4: MFU of prefill and decode from the printed seconds, 2N a token."""
    palm = load("palm-540b").forward(seq=1).under("SIX_N")
    for phase, case, batch, tokens, seconds, mfu in read("pope_2022")["rows"]:
        half = 0.5 * 10 ** -len(str(seconds).partition(".")[2])
        ours = span(lambda s, n=batch * tokens: 100 * palm.flops * n / (s * 64 * 275e12), seconds, half)
        yield Row("pope_2022", f"{phase}, {case}, batch {batch}", "MFU, %", f"{mfu}", ours)


def gpt_fast() -> Iterator[Row]:
    """gpt-fast: bandwidth is tokens/s times the bytes that its script takes for the weights."""
    for name, tech, tp, rate, printed in read("gpt_fast")["rows"]:
        model = load(name.replace("llama2", "llama-2").replace("llama3.1", "llama-3.1"))
        weights = {"bf16": 2.0, "int8": 1.0, "int4g32": 0.625}[tech]
        table = model.vocab * model.d_model
        moved = weights * ((model.params - 2 * table) / tp + table)
        if name.startswith("llama2"):  # an older script, which takes the embedding's table, too
            moved += 2 * table
        ours = span(lambda r, b=moved: r * b / 1e9, rate, 0.005)
        yield Row(
            "gpt_fast", f"{name}, {tech}, {tp} GPU{'s' if tp > 1 else ''}", "GB/s", f"{printed:.2f}", ours, why=_SCRIPT
        )


_SCRIPT = "the bytes that the script took are not printed; weights and head alone come within 0.25 %, in the first row within 1.2 %"
