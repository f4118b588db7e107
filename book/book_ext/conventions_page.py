"""The parts of the page "Conventions", from flopkit's own: Markdown."""

import flopkit as fk
from book_ext.markdown_table import table
from flopkit.published import presets

MODELS = (("llama-3-8b", 8192), ("gpt2", 1024), ("deepseek-v3", 4096))
FAMILIES = (("They add up products", False), ("They start from 6N", True))
SCORES = {(1, 0): "visible", (1, 1): "all", (0.5, 0.5): "half", (0, 0): "none"}
SHARES = {
    "softmax": "pairs", "head": "head", "embedding": "embedding", "tied table twice": "tied", "router": "router", "norms and biases": "vectors",
    "learned positions": "positions", "idle experts": "idle",
}  # fmt: skip


def presets_in_words():
    """Each convention: whose it is, and what it counts."""
    return "\n".join(f"- **{name}**: {convention.source}." for name, convention in presets().items())


def counted():
    """What each convention counts beside the products of the layers: a table a family,
    with the columns in which its members differ."""
    lines = []
    for title, of_parameters in FAMILIES:
        answers = {name: _answers(each) for name, each in _members(of_parameters)}
        different = {
            question: len({each[question] for each in answers.values()}) > 1
            for question in _answers(fk.conventions.EXACT)
        }
        columns = [question for question, differs in different.items() if differs]
        alike = [
            (question, value) for question, value in next(iter(answers.values())).items() if not different[question]
        ]
        said = {"✓": "All of them count", "–": "None of them counts"}
        same = [
            f"{words}: {', '.join(found)}."
            for mark, words in said.items()
            if (found := [q for q, value in alike if value == mark])
        ]
        same += [f"{question}: {value} FLOPs." for question, value in alike if value not in said]
        rows = [[f"**{name}**", *(each[column] for column in columns)] for name, each in answers.items()]
        lines += [f"**{title}.** {' '.join(same)}", "", table([["", *columns], *rows]), ""]
    return "\n".join(lines)


def _answers(each):
    shares = {question: "✓" if getattr(each, kind) else "–" for question, kind in SHARES.items()}
    return {"MAC": f"{each.fma}", "scores": SCORES[each.scores, each.hidden], **shares}


def _members(of_parameters):
    """A convention that starts from the number of parameters counts norms like
    weights."""
    return [(name, each) for name, each in presets().items() if bool(each.vectors) is of_parameters]


def side_by_side():
    """The same training step under each of them, GFLOPs a token."""
    steps = [fk.load(name).train_step(seq=seq) for name, seq in MODELS]
    rows = [["", *(f"{name}, {seq:,} tokens" for name, seq in MODELS)]]
    for title, of_parameters in FAMILIES:
        rows.append([f"*{title}*", *[""] * len(MODELS)])
        for name, _ in _members(of_parameters):
            numbers = (f"{step.under(name).flops_per_token / 1e9:,.4g}" for step in steps)
            rows.append([f"**{name}**", *numbers])
    return table(rows) + "\n\n" + _spread(steps)


def _spread(steps):
    """How many times the smallest number the largest is, for each model."""
    counts = [[step.under(name).flops_per_token for name in presets()] for step in steps]
    times = [f"{max(each) / min(each):.2g}" for each in counts]
    names = [name for name, _ in MODELS]
    return f"The largest number of a column is {_listed(times)} times its smallest, for {_listed(names)}."


def _listed(words):
    return f"{', '.join(words[:-1])} and {words[-1]}"
