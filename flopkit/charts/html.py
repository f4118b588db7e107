"""A figure as HTML: text, controls, a drawn picture and a data table first; ``figure.js`` then brings it to life.

In the built book (``FLOPKIT_BOOK=1`` in the environment) the script, the style and Vega are files of the site, loaded once. In a live kernel
each figure carries them itself, so that it answers in JupyterLab, Colab or VS Code without a network.
"""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import os
import re
from collections.abc import Iterable, Mapping
from functools import cache
from html import escape
from pathlib import Path
from typing import Any, Protocol

from flopkit.charts import theme
from flopkit.charts.answers import Answers
from flopkit.charts.packages import need
from flopkit.charts.panel import WITHIN, Control, Paste
from flopkit.charts.svg import shrink

_KEYS = re.compile(r"<(input|select|textarea|button|summary)\b")
TALL = 600  # pixels
STATIC = Path(__file__).parent / "static"
_numbers = itertools.count(1)  # keeps the ids of a page apart


class Several(Protocol):
    """What is asked of figures that share their controls: `Tasks`."""

    name: str
    title: str
    controls: dict[str, Control]
    paste: Paste | None

    @property
    def figures(self) -> Mapping[str, Answers]: ...


def show(figure: Answers | Several) -> str:
    """The figure for where it is shown: a page of the book, or the output of a live kernel."""
    return fragment(figure) if os.environ.get("FLOPKIT_BOOK") else standalone(figure)


def fragment(figure: Answers | Several, live: bool = False) -> str:
    """The figure alone. The page around it loads ``figure.css`` and ``figure.js``, with Vega beside it as ``vendor/vega.js``."""
    text = _one(figure, live) if isinstance(figure, Answers) else _several(figure, live)
    # JupyterLab takes arrow keys and Enter for itself unless the element under them says no.
    return _KEYS.sub(r"<\1 data-lm-suppress-shortcuts=true", text) if live else text


def _several(tasks: Several, live: bool) -> str:
    """A tab and a panel for each figure, the box that they share, and the script that hands settings on from one to the next."""
    key, words = f"fk{next(_numbers)}-{tasks.name}", list(tasks.figures)
    tabs, panels = "", ""
    for word, figure in tasks.figures.items():
        first = word == words[0]
        tabs += (
            f'<button type="button" role="tab" id="{key}-{word}-tab" aria-controls="{key}-{word}" aria-selected="{str(first).lower()}" '
            f'tabindex="{0 if first else -1}" data-task="{word}">{escape(figure.title)}</button>'
        )
        panels += (
            f'<div role="tabpanel" id="{key}-{word}" aria-labelledby="{key}-{word}-tab" class="fk-task{" fk-on" if first else ""}" '
            f'data-task="{word}">{_one(figure, live, shared=True)}</div>\n'
        )
    controls = {name: {"values": list(each.options), "start": each.value} for name, each in tasks.controls.items()}
    data = {"controls": controls, **({"paste": _table_of(tasks.paste)} if tasks.paste else {})}
    scripts = [*(["typed.js", "paste.js"] if tasks.paste else []), "tasks.js", "code.js"]
    return (
        f'<div class="fk-tasks"{"" if live else f" id={tasks.name}"} data-name="{tasks.name}">'
        '<script>document.documentElement.classList.add("fk-js")</script>\n'
        f"{_box(tasks.paste, key) if tasks.paste else ''}"
        f'<div class="fk-tabs" role="tablist" aria-label="{escape(tasks.title)}">{tabs}</div>\n{panels}'
        f'<script type="application/json" class="fk-tasks-json">{_for_script(data)}</script>'
        f"<script>{_scripts(*scripts)}</script></div>"
    )


def _scripts(*names: str) -> str:
    return "".join((STATIC / name).read_text("utf8") for name in names)


def _one(figure: Answers, live: bool, shared: bool = False) -> str:
    """A figure; *shared*: among several, which bring the scripts."""
    key = f"fk{next(_numbers)}-{figure.name}"
    parts = [
        f'<figure class="fk-figure"{"" if live else f" id={figure.name}"} data-name="{figure.name}" '
        f'aria-label="{escape(figure.title)}">',
        '<script>document.documentElement.classList.add("fk-js")</script>',
        f"<figcaption>{escape(figure.heading)}</figcaption>",
        _paste(figure, key) if figure.paste else "",
        f'<div class="fk-body{_layout(figure)}">',
        _picture(figure, key, live),
        f'<p class="fk-refused" role="status">{escape(_refusal(figure))}</p>' if figure.refused else "",
        _readouts(figure),
        _panel(figure, key, live) if figure.controls else "",
        "</div>",
        f'<p class="fk-caption">{escape(figure.caption)}</p>' if figure.caption else "",
        _table(figure) if figure.table else "",
        _code(figure) if figure.code else "",
        f'<script type="application/json" class="fk-json">{_for_script(_data(figure, shared))}</script>',
        f"<script>{_scripts('code.js')}</script>" if figure.code and not shared else "",
        "</figure>",
    ]
    return "\n".join(part for part in parts if part)


def standalone(figure: Answers | Several) -> str:
    """The figure with style, script and Vega inside: it works anywhere, offline."""
    return f"{unscripted(figure)}\n<script>{(STATIC / 'figure.js').read_text('utf8')}</script>"


def unscripted(figure: Answers | Several) -> str:
    """The same without ``figure.js``, for a widget that brings it."""
    style, vega = (STATIC / "figure.css").read_text("utf8"), _packed_vega()
    return f'<style>{style}</style>\n{fragment(figure, live=True)}\n<script type="text/plain" class="fk-vega">{vega}</script>'


def still(figure: Answers) -> str:
    """The figure as a picture with its data, for what shows HTML and runs no script."""
    style, key = (STATIC / "figure.css").read_text("utf8"), f"fk{next(_numbers)}-{figure.name}"
    caption = f'<p class="fk-caption">{escape(figure.caption)}</p>' if figure.caption else ""
    inside = _picture(figure, key, live=True) + caption + (_table(figure) if figure.table else "")
    heading = f"<figcaption>{escape(figure.heading)}</figcaption>"
    return f'<style>{style}</style><figure class="fk-figure" aria-label="{escape(figure.title)}">{heading}{inside}</figure>'


@cache
def vega_bundle() -> str:
    """Vega and ``view.js`` as one script that leaves a single name in the page, ``flopkitVega``."""
    convert, view = need("vl_convert"), (STATIC / "view.js").read_text("utf8")
    # The name under which vl-convert holds its own copy of Vega; nothing is fetched.
    bundle = convert.javascript_bundle(view.replace('"vega"', f'"/npm/vega@{convert.get_vega_version()}/+esm"'))
    return f"(()=>{{{bundle}\n}})();\n"


@cache
def _packed_vega() -> str:
    return base64.b64encode(gzip.compress(vega_bundle().encode(), mtime=0)).decode()


def _picture(figure: Answers, key: str, live: bool) -> str:
    """The chart, drawn here; its height is kept for the live one, so that nothing moves when that takes its place.

    JupyterLab takes scripts, styles and drawings out of a saved notebook that is not trusted, and leaves an image: so it is one there.
    """
    if not figure.chart:
        return '<div class="fk-chart fk-none"></div>'
    drawn = figure.svg()
    height = re.search(r'height="([\d.]+)"', drawn)
    assert height
    if live:
        source = f"data:image/svg+xml;base64,{base64.b64encode(drawn.encode()).decode()}"
        inside = f'<img alt="{escape(figure.description())}" style="background:#fff" src="{source}">'
    else:
        inside = theme.for_page(shrink(drawn, key))
    chart = f'<div class="fk-chart" style="--fk-height:{height[1]}px" role="img" aria-label="{escape(figure.description())}">{inside}</div>'
    trust = '<p class="fk-trust">Trust this notebook, or run this cell, and the controls move the chart.</p>'
    return trust + chart if live else chart


def _layout(figure: Answers) -> str:
    """The classes of what stands in a figure: settings beside the chart, or a chart by itself that a phone may not make lower."""
    if figure.chart and figure.controls:
        return " fk-wide"
    return " fk-tall" if figure.height > TALL else ""


def _refusal(figure: Answers) -> str:
    return figure.description() if figure.at()[figure.refused] else ""


def _panel(figure: Answers, key: str, live: bool) -> str:
    idle = figure.idle()

    def folded(group: Iterable[Control], depth: int) -> str:
        found = ""
        for heading, inner in itertools.groupby(
            group, lambda control: "".join(control.group.split(WITHIN)[depth : depth + 1])
        ):
            if not heading:
                found += "".join(_control(each, f"{key}-{each.name}", idle.get(each.name, "")) for each in inner)
                continue
            # open without scripts, so that all is said; figure.js folds them
            found += f'<details class="fk-group" open><summary>{escape(heading)}</summary><div>{folded(inner, depth + 1)}</div></details>'
        return found

    controls = folded(figure.controls.values(), 0)
    presets = ""
    if figure.presets:
        options = "".join(f"<option>{escape(label)}</option>" for label in figure.presets)
        presets = (
            f'<div class="fk-control fk-preset"><label for="{key}-preset">{escape(figure.presets_label)}</label>'
            f'<select id="{key}-preset" autocomplete="off"><option value="">Custom</option>{options}</select></div>'
        )
    share = "" if live else '<button type="button" class="fk-link">Copy link</button>'
    return (
        f'<div class="fk-panel" role="group" aria-label="Settings">{presets}{controls}<div class="fk-actions">'
        f'<button type="button" class="fk-reset">Reset</button>{share}<span class="fk-status" role="status"></span></div></div>'
    )


def _paste(figure: Answers, key: str) -> str:
    """The box, and the scripts that read what is pasted and what is typed; it stays hidden where they do not run."""
    assert figure.paste
    return f"{_box(figure.paste, key)}<script>{_scripts('typed.js', 'paste.js')}</script>"


def _box(paste: Paste, key: str) -> str:
    return (
        f'<div class="fk-paste" hidden><label for="{key}-paste">{escape(paste.label)}</label>'
        f'<textarea id="{key}-paste" rows="{2 if paste.names else 3}" spellcheck="false" autocomplete="off"></textarea><p role="status"></p></div>'
    )


def _code(figure: Answers) -> str:
    """The same in Python, folded, with a button that copies it."""
    return (
        '<details class="fk-code"><summary>The same in Python</summary>'
        f'<div class="fk-scroll" tabindex="0" role="region" aria-label="Python: {escape(figure.title)}"><pre><code>{escape(figure.python())}</code></pre></div>'
        '<button type="button">Copy</button></details>'
    )


def _control(control: Control, key: str, idle: str) -> str:
    text = escape(control.text(control.value))
    label = f'<label for="{key}">{escape(control.label)}</label>'
    shown = f'<span class="fk-value">{text}</span>'
    common = f'id="{key}" name="{control.name}" autocomplete="off"{" disabled" if idle else ""}'
    why = f'<small class="fk-idle">{escape(idle)}</small>' if control.idle else ""
    if control.kind == "slider":
        position = control.options.index(control.value)
        widget = f'<input type="range" {common} min="0" max="{len(control.options) - 1}" step="1" value="{position}" aria-valuetext="{text}">'
    elif control.kind == "switch":
        widget = f'<input type="checkbox" {common}{" checked" if control.value else ""}>'
    else:
        options = "".join(
            f"<option{' selected' if option == control.value else ''}>{escape(control.text(option))}</option>"
            for option in control.options
        )
        widget = f"<select {common}>{options}</select>"
    return f'<div class="fk-control fk-{control.kind}">{label}{shown}{widget}{why}</div>'


def _readouts(figure: Answers) -> str:
    if not figure.readouts:
        return ""
    results, texts = figure.at(), figure.texts()
    entries = "".join(
        f'<div{" class=fk-sentence" if each.sentence else ""}><dt{_template(each.label)}>{escape(figure.say(each.label))}</dt><dd{" class=fk-words" if each.text or each.instead or isinstance(results[each.name], str) else ""}><data data-name="{each.name}" value="{escape(_plain(results[each.name]))}">'
        f"{escape(texts[each.name])}</data></dd></div>"
        for each in figure.readouts
    )
    return f'<dl class="fk-readouts" aria-live="polite">{entries}</dl>'


def _template(label: str) -> str:
    """A label that names controls keeps their names, for the script to say again what they say."""
    return f' data-label="{escape(label)}"' if "{" in label else ""


def _table(figure: Answers) -> str:
    rows = figure.data()
    head = "".join(f'<th scope="col">{escape(column.label)}</th>' for column in figure.table)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(column.said(row))}</td>" for column in figure.table) + "</tr>" for row in rows
    )
    return (
        '<details class="fk-data"><summary>Data behind the figure</summary>'
        f'<div class="fk-scroll" tabindex="0" role="region" aria-label="Data: {escape(figure.title)}">'
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _table_of(paste: Paste) -> dict[str, Any]:
    names = ("table", "unable", "texts", "wholes", "formats", "names", "others", "words")
    return {key: said for key in names if (said := getattr(paste, key))}


def _data(figure: Answers, shared: bool = False) -> dict[str, Any]:
    """What figure.js needs to know: the specification, the values of each control, units. No formula outside the specification."""
    controls = {
        control.name: {
            "values": list(control.options),
            "start": control.value,
            **({"unit": control.unit} if control.unit else {}),
            **({"idle": control.idle} if control.idle else {}),
        }
        for control in figure.controls.values()
    }
    spec, rows = figure.spec(), bool(figure.sweep and figure.table)
    return {
        "spec": _compiled(spec, figure.signals().flow() if rows else None),
        **({"fluid": True} if spec.get("width") == "container" else {}),
        **({"rows": True} if rows else {}),
        "controls": controls,
        **({"alt": figure.alt} if figure.chart else {}),
        **({"refused": figure.refused} if figure.refused else {}),
        **({"paste": _table_of(figure.paste)} if figure.paste else {"paste": {"shared": True}} if shared else {}),
        **({"code": figure.code.data(figure.presets)} if figure.code else {}),
        "presets": list(figure.presets.values()),
        "readouts": [_shown(each) for each in sorted(figure.readouts, key=lambda each: each.sentence)],
        "columns": [_shown(each) for each in figure.table],
    }


def _compiled(spec: dict[str, Any], rows: dict[str, Any] | None) -> dict[str, Any]:
    """The Vega that a Vega-Lite specification stands for: Vega-Lite itself, a third of the scripts, stays out of the page."""
    vega: dict[str, Any] = need("vl_convert").vegalite_to_vega(theme.for_page(spec))
    del vega["$schema"]
    if rows:  # the table's own data: a chart may filter or sort its rows
        columns = [{"type": "formula", "as": name, "expr": expr} for name, expr in rows["columns"].items()]
        vega["data"] = [{"name": "fk_rows", "values": rows["values"], "transform": columns}, *vega.get("data", [])]
    return vega


def _shown(shown: Any) -> dict[str, Any]:
    entry = {
        "name": shown.name,
        "unit": shown.unit,
        "text": {_plain(value): text for value, text in shown.text.items()},
        "instead": shown.instead,
        "digits": shown.digits,
    }
    return {key: value for key, value in entry.items() if value}


def _plain(value: Any) -> str:
    """A result as JavaScript's String() writes words and truth values."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _for_script(data: Any) -> str:
    text = json.dumps(data, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
