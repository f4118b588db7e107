"""The parts of the page "Published numbers, checked", from the rows themselves:
Markdown tables."""

from book_ext.markdown_table import table
from flopkit import published
from flopkit.published.rows import Agreement

TITLES = {
    "llm_foundry": "llm-foundry, 216 runs", "narayanan_2021": "Megatron-LM 2021", "korthikanti_2022": "Selective recompute, 2022",
    "nanogpt": "nanoGPT", "chinchilla_a4": "Chinchilla, table A4", "palm_table_3": "PaLM, table 3", "llama_3": "Llama 3",
    "deepseek_v3": "DeepSeek-V3", "pope_2022": "PaLM in inference", "gpt_fast": "gpt-fast", "scaling_book": "How to Scale Your Model",
    "kipply": "Transformer Inference Arithmetic",
}  # fmt: skip


def tally():
    """How many numbers of each table come out."""
    rows = [["", "numbers", Agreement.REPRODUCED, Agreement.ROUNDING, Agreement.DIFFERENT]]
    for line in published.tally():
        name = (
            "**all**" if line["table"] == "all" else f'<a href="#{_anchor(line["table"])}">{TITLES[line["table"]]}</a>'
        )
        rows.append(
            [
                name,
                *(
                    f"{line[key]:,}"
                    for key in ("numbers", Agreement.REPRODUCED, Agreement.ROUNDING, Agreement.DIFFERENT)
                ),
            ]
        )
    return table(rows)


def summary():
    """How many come out, with and without the largest table."""
    rows = [row for name in published.names() for row in published.rows(name)]
    others = [row for row in rows if row.table != "llm_foundry"]

    def share(found, kind):
        return f"{sum(row.verdict == kind for row in found):,}"

    mosaic = [row for row in rows if row.table == "llm_foundry"]
    assumed = sum(bool(row.assumed) and row.verdict == Agreement.REPRODUCED for row in others)
    without_mosaic = len({row.table for row in others})
    return (
        f"{without_mosaic} of the {len(published.names())} tables have {len(others)} numbers between them. **{share(others, Agreement.REPRODUCED)} of these are reproduced, "
        f"{share(others, Agreement.ROUNDING)} lie inside rounding, and {share(others, Agreement.DIFFERENT)} don't come out.** "
        f"**In {assumed} of those that are reproduced, an input is our assumption: the source does not print it.** The other table, MosaicML's, "
        f"applies one formula to 216 runs. Of its {len(mosaic)} numbers, {share(mosaic, Agreement.REPRODUCED)} are reproduced, "
        f"{share(mosaic, Agreement.ROUNDING)} lie inside rounding, and {share(mosaic, Agreement.DIFFERENT)} don't come out."
    )


def tables():
    """Each table: where it stands, what was compared, the numbers that do not come out,
    each with its reason, and those that rest on an assumption."""
    return "\n".join(line for name in published.names() for line in _one(name))


def _one(name):
    rows = published.rows(name)
    quantities = sorted({row.quantity for row in rows})
    lines = [
        f'<span id="{_anchor(name)}"></span>',
        "",
        f"### {TITLES[name]}",
        "",
        f"{published.source(name)}.",
        "",
    ]
    counted = f"{len(rows):,} number{'s' if len(rows) > 1 else ''}"
    lines += [f"{counted}: {'; '.join(quantities)}." if len(quantities) < 6 else f"{counted}.", ""]
    wrong = [row for row in rows if row.verdict == Agreement.DIFFERENT]
    for why in dict.fromkeys(row.why for row in wrong):
        same = [row for row in wrong if row.why == why]
        lines += [f"*Not reproduced*: {why}.", "", *_shown(same), ""]
    for assumed in dict.fromkeys(row.assumed for row in rows if row.assumed):
        lines += [f"*Assumed*: {assumed}.", "", *_shown([row for row in rows if row.assumed == assumed]), ""]
    if len(rows) <= 40:
        good = [row for row in rows if row.verdict != Agreement.DIFFERENT and not row.assumed]
        lines += ["<details><summary>The numbers that come out</summary>", "", *_shown(good), "", "</details>", ""]
    return lines


def _shown(rows):
    lines = [["row", "quantity", "printed", "ours"]]
    for row in rows:
        low, high = (f"{value:,.0f}" if float(value).is_integer() else f"{value:,.7g}" for value in row.ours)
        printed = f"{int(row.printed):,}" if row.printed.isdigit() else row.printed
        lines.append([row.row, row.quantity, printed, low if low == high else f"{low} to {high}"])
    return table(lines, left=2).splitlines()


def _anchor(name):
    return f"table-{name.replace('_', '-')}"
