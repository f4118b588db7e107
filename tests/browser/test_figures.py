"""Figures in a real browser. Each page must ask no other host and log nothing (`open_page` holds that at the end of every test)."""

from __future__ import annotations

import json
import math
import random

import pytest

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api")

import demo_figure as demo
from reader import FAULTS, PHONE, anything, are_close, compare, compare_table, css, pixels, settle, show, turn

from flopkit import units
from flopkit.charts import theme

pytestmark = pytest.mark.browser
ROOFLINE = demo.roofline()
FIGURES = {figure.name: figure for figure in (ROOFLINE, demo.bars(), demo.calculator())}


@pytest.fixture(scope="session")
def site(demo_site):
    return demo_site


# --- the tests ------------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FIGURES)
def test_random_settings_give_what_python_gives(open_page, name):
    page, figure, rng = open_page("figures.html"), FIGURES[name], random.Random(name)
    node = show(page, name)
    compare(figure, node, {})
    node.locator("summary").click()
    compare_table(figure, node, {})
    for _ in range(12):
        settings = anything(figure, rng)
        turn(page, figure, node, settings)
        compare(figure, node, settings)
        compare_table(figure, node, settings)


def test_numbers_read_as_in_python(open_page):
    """figure.js and flopkit.units format alike, ties and edges included."""
    rng = random.Random(3)
    values = [
        0,
        1,
        -1,
        0.5,
        2.5,
        999.95,
        999949,
        999950,
        1e21,
        1.5e22,
        119.9999,
        120,
        7200,
        172800,
        1e-20,
        1e33,
        0.125,
        1000.5,
        10005,
        100050000,
    ]
    values += [rng.uniform(1, 10) * 10 ** rng.randint(-13, 20) for _ in range(2000)]
    values += [rng.randint(1, 2**53) // 10 ** rng.randint(0, 15) for _ in range(1000)]
    values += [(2 * rng.randint(0, 99999) + 1) / 2 ** rng.randint(1, 8) for _ in range(1000)]
    every = [
        "FLOPs",
        "FLOP/s",
        "B",
        "bytes/s",
        "s",
        "seconds",
        "%",
        "×",
        "x",
        "tokens",
        "batches",
        "FLOP/B",
        "",
        "FLOPs/token",
        "params",
    ]
    cases = [[value, unit] for value in values for unit in (every if len(str(value)) < 9 else rng.sample(every, 3))]
    cases += [[sign * value, "+%"] for value in values for sign in (1, -1)]
    have = open_page("figures.html").evaluate(
        "cases => cases.map(([value, unit]) => flopkitFigures.format(value, unit))", cases
    )
    want = [units.format_value(value, unit) for value, unit in cases]
    assert [(case, h, w) for case, h, w in zip(cases, have, want, strict=True) if h != w] == []
    odd = "[NaN, Infinity, -Infinity].map(v => flopkitFigures.format(v, 'FLOPs'))"
    assert open_page("figures.html").evaluate(odd) == [
        units.format_value(v, "FLOPs") for v in (math.nan, math.inf, -math.inf)
    ]


def test_presets_set_several_controls_and_give_way(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    preset = node.get_by_role("combobox", name="Preset")
    assert preset.evaluate("e => e.value") == ""
    for label, settings in ROOFLINE.presets.items():
        preset.select_option(label)
        settle(page, node, settings)
        assert preset.evaluate("e => e.value") == label
    settings = {
        **ROOFLINE.presets["Wide & slow"],
        **ROOFLINE.presets["One token"],
    }  # the second left the first's settings alone
    compare(ROOFLINE, node, settings)
    turn(page, ROOFLINE, node, {"tokens": 8})
    assert preset.evaluate("e => e.value") == "Wide & slow", "the settings still are those of the other preset"
    turn(page, ROOFLINE, node, {"d_model": 64})
    assert preset.evaluate("e => e.value") == ""
    node.get_by_role("button", name="Reset").click()
    settle(page, node, ROOFLINE.settings())
    compare(ROOFLINE, node, {})


def test_keyboard(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    node.get_by_role("slider", name="Tokens", exact=True).focus()
    page.keyboard.press("ArrowRight")
    settle(page, node, {"tokens": 128})
    compare(ROOFLINE, node, {"tokens": 128})
    page.keyboard.press("Home")
    settle(page, node, {"tokens": 1})
    page.keyboard.press("End")
    settle(page, node, {"tokens": 65536})
    reached = []
    for _ in range(9):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.name || document.activeElement.textContent"))
    assert reached[:7] == ["d_model", "device", "bits", "kind", "causal", "Reset", "Copy link"]
    assert node.get_by_role("checkbox", name="Causal mask").is_checked()
    node.get_by_role("checkbox", name="Causal mask").focus()
    page.keyboard.press("Space")
    settle(page, node, {"causal": False})
    compare(ROOFLINE, node, {"tokens": 65536, "causal": False})


def test_every_control_and_the_picture_have_names(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    assert page.get_by_role("figure", name=ROOFLINE.title).count() == 1
    assert node.get_by_role("img", name=ROOFLINE.alt, exact=True).count() == 1
    for control in ROOFLINE.controls.values():
        role = {"slider": "slider", "choice": "combobox", "switch": "checkbox"}[control.kind]
        assert node.get_by_role(role, name=control.label, exact=True).count() == 1, control.label


@pytest.mark.parametrize("where", ["server", "disk"])
def test_a_link_carries_the_settings(open_page, demo_folder, where):
    start = {"url": (demo_folder / "figures.html").as_uri()} if where == "disk" else {"path": "figures.html"}
    page = open_page(**start, permissions=["clipboard-read", "clipboard-write"])
    node = show(page, ROOFLINE.name)
    settings = {"tokens": 4096, "device": "T4 <small>", "bits": "fp4", "causal": False}
    turn(page, ROOFLINE, node, settings)
    page.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text } }")
    node.get_by_role("button", name="Copy link").click()
    page.wait_for_function("window.copied")
    assert node.get_by_role("status").inner_text() == "Link copied"
    link = page.evaluate("window.copied")
    assert link.endswith("#demo-roofline") and "demo-roofline.tokens=4096" in link and "d_model" not in link
    again = open_page(url=link)
    node = show(again, ROOFLINE.name)
    compare(ROOFLINE, node, settings)
    compare(FIGURES["demo-bars"], show(again, "demo-bars"), {})


def test_a_link_with_nonsense_is_ignored(open_page):
    page = open_page(
        "figures.html?demo-roofline.tokens=65&demo-roofline.nothing=1&demo-roofline.device=&demo-roofline.causal=maybe&other=1"
    )
    compare(ROOFLINE, show(page, ROOFLINE.name), {})


def test_a_link_with_a_name_of_every_object_is_ignored(open_page):
    names = ("constructor", "__proto__", "toString", "hasOwnProperty")
    page = open_page("figures.html?" + "&".join(f"{figure}.{name}=1" for figure in FIGURES for name in names))
    for name, figure in FIGURES.items():
        compare(figure, show(page, name), {})


def test_without_clipboard_the_link_is_shown(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('no')) }")
    turn(page, ROOFLINE, node, {"tokens": 2})
    node.get_by_role("button", name="Copy link").click()
    link = node.get_by_role("link", name="Link to this setting")
    link.wait_for()
    assert "demo-roofline.tokens=2" in link.get_attribute("href")


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_picture_is_there_and_in_the_right_colours(open_page, options, dark):
    """A blank chart once passed every test of text."""
    page = open_page("figures.html", **options)
    node = show(page, ROOFLINE.name)
    if dark:
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
    svg = node.locator(".fk-live svg")
    box, room = svg.bounding_box(), node.locator(".fk-chart").bounding_box()
    assert box["width"] > 300 and box["height"] > 300 and box["width"] > 0.97 * room["width"]
    seen = pixels(svg.screenshot())
    blue, orange, ink = (theme.DARK[c] if dark else c for c in (theme.BLUE, theme.ORANGE, theme.MUTED))
    assert are_close(seen, blue).sum() > 400, "no curve"
    assert are_close(seen, orange).sum() > 40, "no dot"
    assert are_close(seen, ink).sum() > 40, "no axis labels"
    assert are_close(seen[0], "#121212" if dark else "#ffffff", 6)


def test_the_dot_moves(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    dot = node.locator(".fk-live svg .mark-symbol path").first
    before = dot.bounding_box()
    turn(page, ROOFLINE, node, {"tokens": 2048})
    after = dot.bounding_box()
    assert after["x"] > before["x"] + 50 and after["y"] < before["y"] - 20


def test_tooltip(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    node.locator(".fk-live svg .mark-symbol path").first.hover()
    tooltip = page.locator("#fk-tooltip")
    tooltip.wait_for()
    assert "Tokens" in tooltip.inner_text() and "64" in tooltip.inner_text()
    page.mouse.move(2, 2)
    tooltip.wait_for(state="detached")


def test_a_tooltip_is_text_and_stays_inside_the_window(open_page):
    """At each edge of a phone's chart: words with markup in them, too, and a single word as well as names with values."""
    page = open_page("figures.html", **PHONE)
    show(page, ROOFLINE.name)
    hover = """([text, place]) => {
      const rect = {width: {value: 380}, height: {value: 60}, fill: {value: "red"}, tooltip: {value: text}};
      const spec = {width: 380, height: 60, padding: 0, marks: [{type: "rect", encode: {enter: rect}}]};
      const host = Object.assign(document.createElement("div"), {id: "edge", style: `position: fixed; left: 0; ${place}: 0; z-index: 9`});
      document.getElementById("edge")?.remove();
      document.body.append(host);
      window.flopkitVega(host, spec).run();
    }"""
    long = {"name": "many words " * 12}
    for text, said in (
        ("a <b>word</b>", "a <b>word</b>"),
        ({"T4 <small>": "1 < 2", "a longer name": 3}, "T4 <small>"),
        (long, "many"),
    ):
        for place in ("top", "bottom"):
            page.evaluate(hover, [text, place])
            edge = page.locator("#edge svg").bounding_box()
            for x in (1, 378):
                page.mouse.move(edge["x"] + x, edge["y"] + 30)
                page.locator("#fk-tooltip").wait_for()
                box = page.locator("#fk-tooltip").bounding_box()
                assert box["x"] >= 0 and box["y"] >= 0 and box["x"] + box["width"] <= 390
                assert box["y"] + box["height"] <= 844
                assert said in page.locator("#fk-tooltip").inner_text()
                assert page.locator("#fk-tooltip :not(table, tbody, tr, td)").count() == 0


def test_phone(open_page):
    page = open_page("figures.html", **PHONE)
    for name in FIGURES:
        node = show(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        for target in node.locator(".fk-panel :is(input, select, button), summary").all():
            box = target.bounding_box()
            assert box["height"] >= 24 and box["width"] >= 24
        for size in node.locator(".fk-live svg text").evaluate_all(
            "ts => ts.map(t => parseFloat(getComputedStyle(t).fontSize))"
        ):
            assert size >= 11
    node = page.locator('figure[data-name="demo-roofline"]')
    node.locator("summary").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_the_page_does_not_jump_when_a_figure_comes_to_life(open_page, options):
    page = open_page("figures.html", **options)
    page.wait_for_selector('figure[data-name="demo-roofline"][data-ready="yes"]')
    shifts = "new Promise(done => new PerformanceObserver(list => done(list.getEntries().map(e => e.value))).observe({type: 'layout-shift', buffered: true}))"
    total = page.evaluate(f"Promise.race([{shifts}, new Promise(done => setTimeout(() => done([]), 300))])")
    assert sum(total) < 0.02


def test_what_has_no_effect_is_disabled_and_says_why(open_page):
    page, figure = open_page("figures.html"), FIGURES["demo-bars"]
    node = show(page, figure.name)
    window = node.get_by_role("slider", name="Window")
    assert window.is_disabled() and node.get_by_text("The causal mask has no window.").is_visible()
    turn(page, figure, node, {"mask": "window"})
    assert window.is_enabled() and not node.locator(".fk-idle").is_visible()
    compare(figure, node, {"mask": "window"})


def test_what_cannot_be_is_refused_with_a_sentence(open_page):
    page, figure = open_page("figures.html"), FIGURES["demo-bars"]
    node = show(page, figure.name)
    turn(page, figure, node, {"heads": "twelve heads"})
    assert node.get_by_role("status").first.inner_text() == "8 features do not divide into twelve heads."
    assert node.locator("data").inner_text() == "–" and not node.locator("summary").is_visible()
    over = node.locator(".fk-chart").evaluate(
        "e => getComputedStyle(e, '::after').content + getComputedStyle(e, '::after').position"
    )
    assert over == '"8 features do not divide into twelve heads."absolute', "it stands on the chart, which is in sight"
    turn(page, figure, node, {"d_model": 48})
    assert not node.locator(".fk-refused").is_visible() and node.locator("data").inner_text() == "4.608 kFLOPs"


def test_the_picture_s_description_follows_the_state(open_page):
    page, figure = open_page("figures.html"), FIGURES["demo-bars"]
    node = show(page, figure.name)
    assert node.get_by_role("img", name="128 FLOPs at a width of 8").count() == 1
    turn(page, figure, node, {"d_model": 2})
    assert node.get_by_role("img", name="8 FLOPs at a width of 2").count() == 1


@pytest.mark.parametrize("options", [PHONE, {"viewport": {"width": 600, "height": 700}}], ids=["phone", "narrow"])
def test_the_chart_and_the_read_outs_stay_in_sight_while_any_control_moves(open_page, options):
    page = open_page("figures.html", **options)
    node, height = show(page, ROOFLINE.name), page.viewport_size["height"]
    for control in node.locator(".fk-panel :is(input, select)").all():
        for block in ("end", "start"):
            control.evaluate("(e, block) => e.scrollIntoView({block})", block)
            chart, results, box = (
                part.bounding_box() for part in (node.locator(".fk-chart"), node.locator(".fk-readouts"), control)
            )
            assert chart["y"] >= 0 and chart["y"] + chart["height"] <= results["y"] + 1, (
                "the chart covers the read-outs"
            )
            assert results["y"] + results["height"] <= box["y"], "the read-outs cover the control"
            assert chart["height"] <= 0.45 * height and box["y"] + box["height"] <= height + 1
    node.locator("summary").evaluate("e => e.scrollIntoView({block: 'start'})")
    assert node.locator(".fk-chart").bounding_box()["y"] < 0, "beyond the controls the chart leaves"


def test_on_a_wide_page_the_controls_stand_beside_the_chart(open_page):
    node = show(open_page("figures.html"), ROOFLINE.name)
    chart, panel = (node.locator(part).bounding_box() for part in (".fk-chart", ".fk-panel"))
    assert abs(panel["y"] - chart["y"]) < 2 and chart["x"] + chart["width"] < panel["x"]


def test_figures_out_of_sight_wait(open_page):
    page = open_page("figures.html", viewport={"width": 800, "height": 300})
    show(page, ROOFLINE.name)
    assert page.locator('figure[data-name="demo-calculator"]').get_attribute("data-ready") == "soon"
    compare(FIGURES["demo-calculator"], show(page, "demo-calculator"), {})


def test_a_chart_follows_the_width_of_its_column(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    page.evaluate("document.querySelector('main').style.maxWidth = '500px'")
    page.wait_for_function("Math.abs(document.querySelector('.fk-live svg').getAttribute('width') - 500) < 12")
    assert node.locator(".fk-live svg").bounding_box()["width"] < 512


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_without_scripts(open_page, options):
    page = open_page("figures.html", java_script_enabled=False, **options)
    node = page.locator('figure[data-name="demo-roofline"]')
    assert (
        node.locator(".fk-chart > svg").is_visible() and node.locator(".fk-chart > svg").bounding_box()["width"] > 300
    )
    text = node.inner_text()
    for each in [*ROOFLINE.texts().values(), *ROOFLINE.setting_texts().values(), "Peaks are dense."]:
        assert each in text
    assert node.locator(".fk-panel :is(input, select, button):visible").count() == 0, "a dead control"
    node.locator("summary").click()
    assert node.locator("tbody tr").first.is_visible() and "65,536 tokens" in node.locator("tbody").inner_text()
    seen = pixels(node.locator(".fk-chart > svg").screenshot())
    assert are_close(seen, theme.BLUE).sum() > 300


def test_on_paper(open_page):
    page = open_page("figures.html")
    node = show(page, ROOFLINE.name)
    turn(page, ROOFLINE, node, {"tokens": 4096, "causal": False})
    page.evaluate("document.documentElement.dataset.theme = 'dark'")
    page.emulate_media(media="print")
    assert node.locator(".fk-panel :is(input, select, button):visible").count() == 0
    text = node.inner_text()
    for each in ["4,096 tokens", "H100 SXM", "off", *ROOFLINE.texts(tokens=4096, causal=False).values()]:
        assert each in text
    assert css(page, node, "--fk-ink") == theme.INK
    assert len(page.pdf(format="A4")) > 20_000


def test_a_live_kernel_shows_the_same_without_a_server(open_page, demo_folder):
    page = open_page(url=(demo_folder / "live.html").as_uri())
    for name in ("demo-roofline", "demo-bars"):
        figure, rng, node = FIGURES[name], random.Random(1), show(page, name)
        for _ in range(3):
            settings = anything(figure, rng)
            turn(page, figure, node, settings)
            compare(figure, node, settings)
        assert node.get_by_role("button", name="Copy link").count() == 0
    assert page.evaluate("[typeof vegaEmbed, typeof _]") == ["undefined", "undefined"], (
        "the bundle leaves its names in the page"
    )


def test_a_live_figure_added_later_wakes_up(open_page, demo_folder):
    """As JupyterLab does: the output is put into a page that has long been loaded, its scripts are made anew."""
    page = open_page("twins.html?")
    page.evaluate(
        """html => { const host = document.createElement('div'); host.innerHTML = html; document.querySelector('main').prepend(host);
           for (const old of host.querySelectorAll('script')) { const script = document.createElement('script');
             for (const a of old.attributes) script.setAttribute(a.name, a.value); script.textContent = old.textContent; old.replaceWith(script); } }""",
        (demo_folder / "live.html").read_text("utf8").partition("<h1>Demo</h1>")[2].partition("</main>")[0],
    )
    node = show(page, "demo-roofline")
    turn(page, ROOFLINE, node, {"tokens": 8})
    compare(ROOFLINE, node, {"tokens": 8})


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_what_a_reader_stumbles_over_is_told(open_page, dark):
    """One fault in each of these figures, and the complaint that each would cause in the book."""
    page = open_page("faulty.html")
    page.evaluate("dark => document.documentElement.dataset.theme = dark ? 'dark' : 'light'", dark)
    for fault, complaints in demo.FAULTS.items():
        found = show(page, f"demo-{fault}").evaluate(FAULTS)
        assert found["faults"] == complaints, fault
        assert (set(found["swatches"]) <= set(found["marks"])) == (fault != "swatch"), found


def test_the_same_figure_twice(open_page):
    page, figure = open_page("twins.html"), FIGURES["demo-bars"]
    first, second = show(page, "demo-bars", 0), show(page, "demo-bars", 1)
    turn(page, figure, second, {"d_model": 64})
    compare(figure, second, {"d_model": 64})
    compare(figure, first, {})


POLICY = {
    "Content-Security-Policy": "script-src 'self' 'unsafe-inline'"
}  # Vega makes functions of text, which this forbids
NO_VEGA = {
    "its file is missing": ("**/vega.js", lambda route: route.abort()),
    "a policy forbids it": ("**/figures.html*", lambda route: route.fulfill(response=route.fetch(), headers=POLICY | {"content-type": "text/html"})),
}  # fmt: skip
OFF = "The controls are off: what computes this figure did not run in this browser. It shows the settings that it began with."


@pytest.mark.parametrize("why", NO_VEGA)
def test_when_vega_cannot_run_the_picture_stays_and_the_controls_say_so(chromium, demo_site, why):
    page = chromium.new_page()
    page.route(*NO_VEGA[why])
    page.goto(f"{demo_site}/figures.html?demo-roofline.tokens=4096")
    node = page.locator('figure[data-name="demo-roofline"]')
    page.wait_for_selector('figure[data-name="demo-roofline"][data-ready="failed"]')
    assert node.locator(".fk-chart > svg").is_visible() and ROOFLINE.texts()["flops"] in node.inner_text()
    assert node.locator(".fk-panel :is(input, select, button):visible").count() == 0
    assert node.locator(".fk-panel :is(input, select, button):enabled").count() == 0
    assert node.locator(".fk-status").inner_text() == OFF
    for name, text in ROOFLINE.setting_texts().items():  # not those of the link, whose results nobody computed
        assert node.locator(f'.fk-control:has([name="{name}"]) .fk-value').text_content() == text
    page.close()


def test_a_figure_that_breaks_later_takes_its_results_away(chromium, demo_site):
    page = chromium.new_page()
    page.add_init_script("""window.views = [];
      let make;
      Object.defineProperty(window, "flopkitVega", {set(f) { make = (...all) => { views.push(f(...all)); return views.at(-1); }; }, get: () => make})""")
    page.goto(f"{demo_site}/figures.html")
    node = show(page, ROOFLINE.name)
    page.evaluate("() => { for (const view of views) view.runAsync = () => Promise.reject(new Error('broken')); }")
    node.locator('[name="tokens"]').evaluate("e => { e.value = 0; e.dispatchEvent(new Event('input')); }")
    page.wait_for_selector(f'figure[data-name="{ROOFLINE.name}"][data-ready="failed"]')
    assert node.locator(".fk-status").inner_text() == OFF
    assert set(node.locator("data").all_inner_texts()) == {"–"} and node.locator(".fk-live").count() == 0
    page.close()


def test_one_figure_that_fails_leaves_the_others_alone(chromium, demo_site):
    page = chromium.new_page()

    def broken(route):
        response = route.fetch()
        route.fulfill(response=response, body=response.text().replace('class="fk-json">{', 'class="fk-json">', 1))

    page.route("**/figures.html", broken)
    page.goto(f"{demo_site}/figures.html")
    node = page.locator(f'figure[data-name="{ROOFLINE.name}"][data-ready="failed"]')
    node.wait_for()
    assert node.locator(".fk-status").inner_text() == OFF
    compare(FIGURES["demo-bars"], show(page, "demo-bars"), {})
    page.close()


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_accessibility(open_page, options, dark):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    page = open_page("figures.html", **options)
    for name in FIGURES:
        show(page, name).locator("summary").click()
    if dark:
        page.evaluate("document.documentElement.dataset.theme = 'dark'")
    found = [v for v in axe.run(page).response["violations"] if v["impact"] in ("serious", "critical")]
    assert found == [], json.dumps(
        [(v["id"], [n["html"][:200] + " " + n["failureSummary"] for n in v["nodes"]]) for v in found], indent=1
    )


def test_colours_of_the_style_are_those_of_the_theme(open_page):
    page = open_page("figures.html")
    node = page.locator("figure").first
    for dark in (False, True):
        page.evaluate("dark => document.documentElement.dataset.theme = dark ? 'dark' : 'light'", dark)
        for colour, variable in theme.VARIABLES.items():
            assert css(page, node, variable) == (theme.DARK[colour] if dark else colour), variable
