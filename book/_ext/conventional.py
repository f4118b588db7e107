"""The parts of the page "Conventions", from flopkit's own: Markdown."""

import flopkit as fk
from flopkit.published import presets

MODELS = (("llama-3-8b", 8192), ("gpt2", 1024), ("deepseek-v3", 4096))
PRODUCTS, PARAMETERS = "*They add up products*", "*They start from 6N*"
SCORES = {(1, 0): "visible", (1, 1): "all", (0.5, 0.5): "half", (0, 0): "none"}


def presets_in_words():
    """Each convention: whose it is, and what it counts."""
    return "\n".join(f"- **{name}**: {convention.source}." for name, convention in presets().items())


def counted():
    """What each convention counts beside the products of the layers, as a table."""
    head = ["", "FLOPs of a MAC", "scores", "softmax", "head", "embedding, own table", "embedding, head's table"]
    head += ["router", "norms, biases", "learned positions", "idle experts"]

    def cells(each):
        kinds = [str(each.fma), SCORES[each.scores, each.hidden]]
        names = ("pairs", "head", "embedding", "tied", "router", "vectors", "positions", "idle")
        return [*kinds, *("✓" if getattr(each, name) else "–" for name in names)]

    return table([head, *_by_family(cells, len(head) - 1)])


def side_by_side():
    """The same training step under each of them, GFLOPs a token."""
    steps = [fk.load(name).train_step(seq=seq) for name, seq in MODELS]

    def cells(convention):
        return [f"{step.under(convention).flops_per_token / 1e9:,.4g}" for step in steps]

    return table([["", *(f"{name}, {seq:,} tokens" for name, seq in MODELS)], *_by_family(cells, len(MODELS))])


def _by_family(cells, columns):
    """The conventions' rows, those that add up products before those that start from the number of parameters."""
    for family, members in ((PRODUCTS, False), (PARAMETERS, True)):
        yield [family, *[""] * columns]
        for name, each in presets().items():
            if bool(each.vectors) is members:
                yield [f"**{name}**", *cells(each)]


def table(rows):
    head, *body = rows
    lines = [head, [":--", *("--:" for _ in head[1:])], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
