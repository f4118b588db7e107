"""The parts of the page "Conventions", from flopkit's own: Markdown."""

import flopkit as fk
from book_ext.markdown_table import table
from book_ext.page_figures import embedded
from flopkit.book import gallery
from flopkit.book.gallery.conventions_of_models import FAMILIES, alike, answers, included
from flopkit.published import presets

MODELS = (("llama-3-8b", 8192), ("gpt2", 1024), ("deepseek-v3", 4096))


def presets_in_words():
    """Each convention: whose it is, and what it counts."""
    return "\n".join(f"- **{name}**: {convention.source}." for name, convention in presets().items())


def chart():
    """A training token of a model under each of them."""
    return embedded(gallery.conventions_compared())


def counted():
    """What each convention counts beside the products of the layers: a table a family,
    which leaves out what all its members count."""
    lines = []
    for title, of_parameters in FAMILIES:
        members = alike(of_parameters)
        shared = [
            question
            for question in included(next(iter(members.values())))
            if all(question in included(each) for each in members.values())
        ]
        same = f" All of them count: {', '.join(shared)}." if shared else ""
        rows = [["", "scores", "counts, too"]]
        for names, each in members.items():
            more = [question for question in included(each) if question not in shared]
            more += ["a multiply-add as one FLOP"] * (each.fma == 1)
            rows.append([_bold(names), answers(each)["scores"], ", ".join(more) or "–"])
        lines += [f"**{title}.**{same}", "", table(rows, left=3), ""]
    return "\n".join(lines)


def side_by_side():
    """The same training step under each of them, GFLOPs a token."""
    steps = [fk.load(name).train_step(seq=seq) for name, seq in MODELS]
    rows = [["", *(f"{name}, {seq:,} tokens" for name, seq in MODELS)]]
    for title, of_parameters in FAMILIES:
        rows.append([f"*{title}*", *[""] * len(MODELS)])
        for names, each in alike(of_parameters).items():
            numbers = (f"{step.under(each).flops_per_token / 1e9:,.4g}" for step in steps)
            rows.append([_bold(names), *numbers])
    return table(rows) + "\n\n" + _spread(steps)


def _bold(names):
    return ", ".join(f"**{name}**" for name in names.split(", "))


def _spread(steps):
    """How many times the smallest number the largest is, for each model."""
    counts = [[step.under(name).flops_per_token for name in presets()] for step in steps]
    times = [f"{max(each) / min(each):.2g}" for each in counts]
    names = [name for name, _ in MODELS]
    return f"The largest number of a column is {_listed(times)} times its smallest, for {_listed(names)}."


def _listed(words):
    return f"{', '.join(words[:-1])} and {words[-1]}"
