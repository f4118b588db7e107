"""The parts of the page "What your trainer prints", from the formulas that were read:
Markdown."""

from book_ext.markdown_table import table
from flopkit import published, recordings
from flopkit.published.audit import MODELS

SHORT = {"llama-3-8b": "Llama-3-8B", "qwen3-30b-a3b": "Qwen3-30B-A3B", "gpt-oss-120b": "gpt-oss-120b", "gpt2": "GPT-2"}  # fmt: skip
NAMED = 0.005  # a smaller difference is not a reason
OLD = "megatron-bridge-26.04"


def _all():
    return [published.trainer(name) for name in published.trainer_names()]


def _exact(model, seq, serves):
    one = next(each for each in _all() if model in (*each.models, *each.also) and each.serves == serves)
    return one.flops_per_token(model, seq) / (1 + sum(cause.share for cause in one.causes(model, seq)))


def _percent(share):
    if share >= 1:
        return f"{1 + share:.3g} times"
    return "same" if abs(share) < NAMED else f"{100 * share:+.1f} %".replace("-", "−")


def _cell(one, model, seq):
    if model not in (*one.models, *one.also):
        return "–"
    flops, share = one.flops_per_token(model, seq), sum(cause.share for cause in one.causes(model, seq))
    return f"{flops / 1e9:,.4g} ({_percent(share)})"


def _table(tools, models, serves=False):
    rows = [["", *(f"{SHORT[model]}, {seq:,}" for model, seq in models.items())]]
    rows.append(["**EXACT**", *(f"{_exact(model, seq, serves) / 1e9:,.4g}" for model, seq in models.items())])
    rows += [[f'<a href="#{_anchor(one)}">{one.title}</a>', *(_cell(one, model, seq) for model, seq in models.items())] for one in tools]  # fmt: skip
    return table(rows)


def training():
    """GFLOPs per token of a training step, and how far from EXACT."""
    shown = [one for one in _all() if not one.serves and set(one.models) & set(MODELS) and one.name != OLD]
    return _table(shown, MODELS)


def small():
    """The same of GPT-2, for those that train it."""
    shown = [one for one in _all() if "gpt2" in (*one.models, *one.also)]
    return _table(shown, {"gpt2": 1024})


def serving():
    """GFLOPs per token of reading one prompt."""
    return _table([one for one in _all() if one.serves], MODELS, serves=True)


def spread():
    """How far apart the trainers are on the dense model, at the same speed."""
    model, seq = next(iter(MODELS.items()))
    found = {
        one.title: one.flops_per_token(model, seq)
        for one in _all()
        if not one.serves and model in one.models and one.scores != "none"
    }
    low, high = min(found, key=found.get), max(found, key=found.get)
    return (
        f"**Same run, same speed: {SHORT[model]} at {40 * found[low] / _exact(model, seq, False):.0f} % MFU "
        f"by the count of {_plain(low)} is at {40 * found[high] / _exact(model, seq, False):.0f} % by the count of {_plain(high)}.**"
    )


def reasons():
    """Each tool: what was read, its formula, why it differs, and what to do."""
    return "\n".join(line for one in _all() if one.name != OLD for line in _one(one))


def _one(one):
    version = one.commit if len(one.commit) < 40 else one.commit[:7]
    when = one.date if one.date.startswith("read") else f"of {one.date}"
    said = "" if version in when else f" ({when})".replace("(of release", "(release")
    lines = [f'<span id="{_anchor(one)}"></span>', "", f"**{one.title}** {one.does}.", ""]
    lines += [f"- *Counts*: {one.formula}.", f"- *Differs from EXACT*: {_differs(one)}.", f"- *Today*: {one.fix}"]
    functions = ", ".join(f"`{name.strip()}`" for name in one.function.split(","))
    return [*lines, f"- *Read*: [{functions}]({one.url}), version {version}{said}.", ""]


def _differs(one):
    models = {**MODELS, "gpt2": 1024}
    found = []
    for model, seq in models.items():
        if model in (*one.models, *one.also):
            causes = [cause for cause in one.causes(model, seq) if abs(cause.share) >= NAMED]
            if causes:
                listed = ", ".join(f"{cause.text} {_percent(cause.share)}" for cause in causes)
                found.append(f"{SHORT[model]}: {listed}".replace("% times", "times"))
    return "; ".join(found) or "by less than 0.5 %"


def bridge():
    """NVIDIA's tables: for each model, what was printed and what their formula counts."""
    rows = recordings.megatron_bridge()
    cells = [["", "rows", "printed, GFLOPs per token", "by EXACT"]]
    for model, seq in dict.fromkeys((row["model"], row["seq"]) for row in rows):
        for why in dict.fromkeys(row["why"] for row in rows if (row["model"], row["seq"]) == (model, seq)):
            mine = [row for row in rows if (row["model"], row["seq"], row["why"]) == (model, seq, why)]
            printed = [row["GFLOPs"] for row in mine]
            low, high = f"{min(printed):,.4g}", f"{max(printed):,.4g}"
            name = f"{model}, {seq:,}" + (", with MTP" if "deepseek" in model and why else "")
            cells.append([name, f"{len(mine)}", low if low == high else f"{low} to {high}", _percent(mine[0]["by EXACT"] - 1)])  # fmt: skip
    return table(cells)


def bridge_in_words():
    """How many of the rows come out."""
    rows = recordings.megatron_bridge()
    agree, near = sum(row["agrees"] for row in rows), sum(abs(row["by ours"] - 1) < NAMED for row in rows)
    whys = dict.fromkeys((row["model"], row["why"]) for row in rows if row["why"])
    lines = [
        f"**{_all_or(agree, len(rows))} figures come out within 1 % or their rounding, {near} of them within 0.5 %**, by the formula that Megatron-Bridge "
        "had at the time. What is left is rounding, and means over different steps. Where a model's row is not the same as EXACT:",
        "",
    ]
    return "\n".join([*lines, *(f"- **{model}** {why}." for model, why in whys)])


def _all_or(some, whole):
    return f"All {whole}" if some == whole else f"{some} of the {whole}"


def _plain(title):
    return title.replace("`", "")


def _anchor(one):
    return f"trainer-{one.name.replace('.', '-')}"
