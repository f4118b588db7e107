"""A figure as HTML: complete without scripts, small, and safe to put into a page."""

import base64
import gzip
import json
import re
from html import escape
from html.parser import HTMLParser

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

import altair as alt

from flopkit.book import gallery
from flopkit.charts import Figure, along, column, grouped, html, readout, slider, steps, theme
from flopkit.charts.panel import Paste
from flopkit.charts.svg import shrink


def square(s, *, n):
    s.flops = 2 * n * n * n


def figure(**changes):
    options = dict(
        name="square",
        title="A square <product>",
        alt='It grows "fast" & far.',
        model=square,
        controls=[slider("n", "Size", steps(1, 4096), value=64, unit="rows")],
        presets={"<b>": {"n": 100}},
        readouts=[readout("flops", "Arithmetic", "FLOPs")],
        rows=along("n"),
        chart=lambda s: alt.layer(
            s.rows.mark_line(clip=True).encode(
                x=alt.X("n:Q", **theme.log_scale(1, 4096)), y=alt.Y("flops:Q", **theme.log_scale(1, 1e12))
            ),
            s.now("n", "flops").mark_point().encode(x="n:Q", y="flops:Q"),
        ),
        table=[column("n", "Size", "rows"), column("flops", "Arithmetic", "FLOPs")],
        caption="A < B",
    )
    return Figure(**{**options, **changes})


class Check(HTMLParser):
    """Tags nest and close; ids are single; what a label is for exists."""

    void = {"input", "br", "path", "line", "rect", "circle"}

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.wanted = [], [], []

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids += [values["id"]] if "id" in values else []
        self.wanted += [values["for"]] if "for" in values else []
        if tag not in self.void:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.void:
            assert self.open.pop() == tag, tag


def test_the_page_form_is_whole():
    text = html.fragment(figure())
    check = Check()
    check.feed(text)
    assert check.open == [] and len(check.ids) == len(set(check.ids)) and set(check.wanted) <= set(check.ids)
    assert text.startswith('<figure class="fk-figure" id=square data-name="square"')
    assert '<data data-name="flops" value="524288">524.3 kFLOPs</data>' in text
    assert "64 rows" in text and "<td>4,096 rows</td><td>137.4 GFLOPs</td>" in text
    assert (
        "A square &lt;product&gt;" in text
        and 'aria-label="It grows &quot;fast&quot; &amp; far."' in text
        and "&lt;b&gt;" in text
    )


def test_what_the_script_gets():
    data = json.loads(re.search(r'class="fk-json">(.*)</script>', html.fragment(figure()))[1])
    assert data["controls"]["n"] == {"values": [*steps(1, 64), 100, *steps(128, 4096)], "start": 64, "unit": "rows"}
    assert data["presets"] == [{"n": 100}]
    assert theme.BLUE not in json.dumps(data["spec"]) and "var(--fk-blue)" in json.dumps(data["spec"])
    assert data["fluid"] and data["rows"]


def test_the_script_gets_vega_with_the_same_names_and_formulas():
    """A control or result is a signal of its own name, as it stood; the table's rows are there even where no chart shows them."""
    shown = figure(chart=None)
    data = json.loads(re.search(r'class="fk-json">(.*)</script>', html.fragment(shown))[1])
    signals = {signal["name"]: signal for signal in data["spec"]["signals"]}
    assert signals["n"]["value"] == 64 and signals["flops"]["update"] == shown.signals().expressions()["flops"]
    (rows,) = (each for each in data["spec"]["data"] if each["name"] == "fk_rows")
    assert [row["n"] for row in rows["values"]] == list(shown.swept())
    assert rows["transform"] == [
        {"type": "formula", "as": "flops", "expr": "(((2 * datum['n']) * datum['n']) * datum['n'])"}
    ]
    assert not data["spec"].keys() & {"$schema", "layer", "mark", "params", "encoding"}


def test_nothing_closes_the_script_early():
    evil = figure(presets={"</script><script>alert(1)</script>": {"n": 2}}, caption="</figure>")
    assert html.fragment(evil).count("<script>") == 1
    assert html.fragment(evil).count("</script>") == 2


def test_controls_fold_under_their_headings():
    controls = [
        slider("n", "Size", [1, 2]),
        *grouped("More & less", [slider("m", "Other", [1, 2]), slider("k", "Third", [1, 2])]),
    ]
    text = html.fragment(
        figure(model=lambda s, n, m, k: setattr(s, "flops", 2 * n * m * k), controls=controls, presets={})
    )
    check = Check()
    check.feed(text)
    assert check.open == [] and set(check.wanted) <= set(check.ids)
    before, group = text.split('<details class="fk-group" open><summary>More &amp; less</summary><div>')
    group = group[: group.index("</details>")]
    assert 'name="n"' in before and 'name="m"' in group and 'name="k"' in group


def test_a_box_for_a_configuration_brings_its_script_and_its_table():
    table = {"llama": {"set": {"n": {"keys": ["hidden_size"]}}, "refused": []}}
    text = html.fragment(figure(paste=Paste("Paste <it>", table, {"t5": "No encoder."})))
    check = Check()
    check.feed(text)
    assert check.open == [] and set(check.wanted) <= set(check.ids)
    assert "Paste &lt;it&gt;" in text and (html.STATIC / "paste.js").read_text("utf8") in text
    data = json.loads(re.search(r'class="fk-json">(.*)</script>', text)[1])
    assert data["paste"] == {"table": table, "unable": {"t5": "No encoder."}}
    assert "fk-paste" not in html.fragment(figure())
    live = html.fragment(figure(paste=Paste("Paste", table)), live=True)
    assert "<textarea data-lm-suppress-shortcuts=true" in live, "JupyterLab takes the keys for itself"


def test_a_figure_is_small():
    size = len(gzip.compress(html.fragment(figure()).encode()))
    assert size < 12 * 1024, f"{size} bytes"
    assert len((html.STATIC / "figure.js").read_bytes()) < 12_200


def test_vega_comes_without_vega_lite():
    bundle = html.vega_bundle()
    assert bundle.count("window.flopkitVega=") == 1 and "vega-lite" not in bundle and "vega-embed" not in bundle
    assert len(gzip.compress(bundle.encode())) < 215_000


def test_two_figures_of_a_page_do_not_share_ids():
    twins = html.fragment(figure()) + html.fragment(figure(name="other"))
    ids = re.findall(r'\bid="([^"]+)"', twins)
    assert len(ids) == len(set(ids)) and any("clip" in each for each in ids)


def test_book_or_kernel(monkeypatch):
    monkeypatch.setenv("FLOPKIT_BOOK", "1")
    book = figure()._repr_mimebundle_()
    assert "fk-vega" not in book["text/html"] and "Copy link" in book["text/html"]
    monkeypatch.delenv("FLOPKIT_BOOK")
    live = figure()._repr_mimebundle_()
    assert "fk-vega" in live["text/html"] and "<style>" in live["text/html"] and "Copy link" not in live["text/html"]
    assert (
        "http://" not in live["text/html"].replace("http://www.w3.org/", "")
        and "cdn" not in live["text/html"].split("fk-vega")[0]
    )
    assert live["text/plain"] == str(figure()) and "524.3 kFLOPs" in live["text/plain"]


def test_the_drawn_picture_keeps_what_is_seen():
    full = figure().svg()
    small = shrink(full, "x")
    assert len(small) < 0.55 * len(full)
    for tag in ("<text", "<line"):
        assert small.count(tag) == full.count(tag)
    texts = re.compile(r"<text[^>]*>([^<]*)<")
    assert texts.findall(small) == texts.findall(full)
    assert theme.BLUE in small and theme.ORANGE in small
    assert set(re.findall(r"url\(#([^)]+)\)", small)) <= set(re.findall(r'id="([^"]+)"', small)) != set()


def test_dark_twin_of_each_colour():
    light, dark = json.dumps(theme.config()), json.dumps(theme.config("dark"))
    for colour, other in theme.DARK.items():
        assert colour not in dark
        assert (colour in light) == (other in dark)


def contrast(a, b):
    def luminance(colour):
        channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return sum(weight * c for weight, c in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    low, high = sorted((luminance(a), luminance(b)))
    return (high + 0.05) / (low + 0.05)


def test_colours_stand_out_from_the_page():
    """WCAG 2.1: 3 to 1 for the parts of a chart, 4.5 to 1 for its words, on light and dark pages."""
    for colour in theme.CATEGORIES:
        assert contrast(colour, "#ffffff") >= 3, colour
        assert contrast(theme.DARK[colour], "#121212") >= 3, theme.DARK[colour]
    for ink in (theme.INK, theme.MUTED):
        assert contrast(ink, "#ffffff") >= 4.5 and contrast(theme.DARK[ink], "#121212") >= 4.5
        assert contrast(ink, "#f5f7f9") >= 4.5 and contrast(theme.DARK[ink], "#222832") >= 4.5


def test_log_scale():
    assert theme.log_scale(1, 65536)["axis"]["values"] == [1, 10, 100, 1000, 10000]
    assert theme.log_scale(1e-6, 1e12)["axis"]["values"] == [1e-6, 1e-3, 1, 1000, 10**6, 10**9, 10**12]
    assert theme.log_scale(4, 100)["axis"]["values"] == [5, 10, 20, 50, 100]
    with pytest.raises(ValueError, match="0 < lo < hi"):
        theme.log_scale(0, 1)


def test_in_a_live_kernel_the_keys_belong_to_the_controls():
    """JupyterLab runs a command of its own on an arrow key or Enter unless the element that has the focus says no."""
    live, book = html.fragment(figure(), live=True), html.fragment(figure())
    controls = re.findall(r"<(?:input|select|button|summary)\b[^>]*>", live)
    assert len(controls) >= 4 and all(" data-lm-suppress-shortcuts=true" in each for each in controls)
    assert "suppress" not in book


def test_a_notebook_that_is_not_trusted_shows_a_picture():
    """JupyterLab leaves neither script nor style nor drawing there: an image is left, and a sentence that the style hides elsewhere."""
    shown = gallery.one_run()
    live = html.standalone(shown)
    left = re.sub(r"<(script|style|svg)\b.*?</\1>", "", live, flags=re.S)
    (image,) = re.findall(r"<img [^>]*>", left)
    assert f'alt="{escape(shown.description())}"' in image
    drawn = base64.b64decode(re.search(r"data:image/svg\+xml;base64,([\w+/=]+)", image)[1]).decode()
    assert drawn.startswith("<svg") and "xmlns=" in drawn
    assert '<p class="fk-trust">Trust this notebook' in left
    assert ".fk-trust { display: none; }" in re.search(r"<style>.*?</style>", live, re.S)[0]
    assert "fk-trust" not in html.fragment(shown) and "<img" not in html.fragment(shown)


def test_a_still_figure_has_all_it_says_and_no_script():
    text = html.still(figure())
    assert "<script" not in text and 'src="data:image/svg+xml;base64,' in text and 'class="fk-data"' in text
    assert "A square &lt;product&gt;" in text and "<input" not in text
