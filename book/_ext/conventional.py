"""The parts of the page "Conventions", from flopkit's own: Markdown."""

import flopkit as fk
from flopkit.published import presets

MODELS = (("llama-3-8b", 8192), ("gpt2", 1024), ("deepseek-v3", 4096))


def presets_in_words():
    """Each convention: whose it is, and what it counts."""
    return "\n".join(f"- **{name}**: {convention.source}." for name, convention in presets().items())


def side_by_side():
    """The same training step under each of them, GFLOPs a token."""
    steps = [fk.load(name).train_step(seq=seq) for name, seq in MODELS]
    rows = [["", *(f"{name}, {seq:,}" for name, seq in MODELS)]]
    for name in presets():
        numbers = (f"{step.under(name).flops_per_token / 1e9:,.4g}" for step in steps)
        rows.append([f"**{name}**", *numbers])
    return table(rows)


def table(rows):
    head, *body = rows
    lines = [head, [":--", *("--:" for _ in head[1:])], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
