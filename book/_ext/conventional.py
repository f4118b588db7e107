"""The parts of the page "Conventions", from flopkit's own: Markdown."""

import flopkit as fk
from flopkit.published import presets

MODELS = (("llama-3-8b", 8192), ("gpt2", 1024), ("deepseek-v3", 4096))


def presets_in_words():
    """Each convention: whose it is, and what it counts."""
    return "\n".join(f"- **{name}**: {convention.source}." for name, convention in presets().items())


def counted():
    """What each convention counts beside the products of the layers, as a table."""
    scores = {(1, 0): "visible", (1, 1): "all", (0.5, 0.5): "half", (0, 0): "none"}
    rows = [["", "scores", "head", "embedding", "router", "N", "idle experts"]]
    for name, each in presets().items():
        embedding = f"{_mark(each.embedding)} ({_mark(each.tied)})"
        n = {(0, 0): "–", (1, 1): "✓", (1, 0): "no positions"}[each.vectors, each.positions]
        kinds = [scores[each.scores, each.hidden], _mark(each.head), embedding, _mark(each.router), n, _mark(each.idle)]
        rows.append([f"**{name}**", *kinds])
    return table(rows)


def _mark(share):
    return "✓" if share else "–"


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
