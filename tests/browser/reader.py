"""What a reader does with a figure, and what they should then see. Used on the demo pages and on the built book."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

PHONE = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True, "device_scale_factor": 2}


FAULTS = (Path(__file__).parent / "faults.js").read_text("utf8")


def show(page, name, nth=0):
    """Scroll to a figure and wait until it answers."""
    node = page.locator(f'figure[data-name="{name}"]').nth(nth)
    choose(node)
    node.scroll_into_view_if_needed()
    page.wait_for_function("node => node.dataset.ready === 'yes'", arg=node.element_handle(), timeout=20_000)
    unfold(node)
    return node


def choose(node):
    """Of several figures behind tabs, click that of this one."""
    if task := node.evaluate("node => node.closest('.fk-task')?.dataset.task"):
        tab = node.page.locator(f'.fk-tabs [data-task="{task}"]')
        if tab.get_attribute("aria-selected") == "false":
            tab.click()


def unfold(node):
    """Open the groups of controls, so that every one can be reached by its name."""
    node.evaluate("node => node.querySelectorAll('.fk-group').forEach(group => { group.open = true; })")


def settle(page, node, settings):
    """Wait until the figure has drawn these settings."""
    page.wait_for_function(
        "([node, want]) => { const is = JSON.parse(node.dataset.settled ?? '{}'); return Object.keys(want).every(k => is[k] === want[k]); }",
        arg=[node.element_handle(), settings],
    )


def turn(page, figure, node, settings):
    """Move controls as a hand would."""
    for name, value in settings.items():
        control = figure.controls[name]
        if control.idle:  # disabled or not: a preset moves it, too
            move = "(e, i) => { e[e.type === 'range' ? 'value' : e.type === 'checkbox' ? 'checked' : 'selectedIndex'] = i; e.dispatchEvent(new Event('input', {bubbles: true})) }"
            node.locator(f'[name="{name}"]').evaluate(move, control.options.index(value))
        elif control.kind == "slider":
            move = "(e, i) => { e.value = i; e.dispatchEvent(new Event('input', {bubbles: true})) }"
            node.get_by_role("slider", name=control.label, exact=True).evaluate(move, control.options.index(value))
        elif control.kind == "choice":
            node.get_by_role("combobox", name=control.label, exact=True).select_option(str(value))
        else:
            node.get_by_role("checkbox", name=control.label, exact=True).set_checked(value)
    settle(page, node, settings)


SET = """([node, indices]) => Object.entries(indices).forEach(([name, i]) => {
  const e = node.querySelector(`.fk-control [name="${name}"]`), what = {range: 'value', checkbox: 'checked'}[e.type] ?? 'selectedIndex';
  e[what] = what === 'checked' ? !!i : i;
  e.dispatchEvent(new Event('input', {bubbles: true}));
})"""


def put(page, figure, node, settings):
    """Set controls at once, faster than a hand."""
    indices = {name: figure.controls[name].options.index(value) for name, value in settings.items()}
    page.evaluate(SET, [node.element_handle(), indices])
    settle(page, node, settings)


STEP = """async ([node, indices]) => {
  for (const [name, i] of Object.entries(indices)) {
    const e = node.querySelector(`.fk-control [name="${name}"]`), what = {range: 'value', checkbox: 'checked'}[e.type] ?? 'selectedIndex';
    e[what] = what === 'checked' ? !!i : i;
    node.dataset.settled = '';
    e.dispatchEvent(new Event('input', {bubbles: true}));
    while (!node.dataset.settled) await new Promise(done => setTimeout(done));
  }
}"""


def step(page, figure, node, settings):
    """Set one control after the other, each drawn before the next is set."""
    indices = {name: figure.controls[name].options.index(value) for name, value in settings.items()}
    page.evaluate(STEP, [node.element_handle(), indices])
    settle(page, node, settings)


# What a figure says, all at once: each part is there once, or the page says so.
SAYS = """([node, readouts, controls]) => {
  const one = what => {
    const found = node.querySelectorAll(what);
    if (found.length !== 1) throw new Error(`${found.length} of ${what} in ${node.dataset.name}`);
    return found[0];
  };
  const words = (what, there = true) => there ? one(what).textContent : null;
  return {
    readouts: readouts.map(name => {
      const data = one(`data[data-name="${name}"]`), terms = data.closest("div").querySelectorAll(":scope > dt");
      return [data.value, data.innerText, terms.length === 1 ? terms[0].textContent : terms.length];
    }),
    controls: controls.map(([name, idle]) => {
      const control = `.fk-control:has([name="${name}"])`, input = one(`[name="${name}"]`);
      return [words(`${control} .fk-value`), input.getAttribute("aria-valuetext"), input.matches(":disabled"), words(`${control} .fk-idle`, idle)];
    }),
    code: [...node.querySelectorAll(".fk-code code")].map(e => e.textContent),
    alt: [...node.querySelectorAll(".fk-chart")].map(e => e.getAttribute("aria-label")),
    refused: [...node.querySelectorAll(".fk-refused")].map(e => e.textContent),
  };
}"""


def compare(figure, node, settings):
    """Every control and read-out says what Python says: the number behind the text, and the text."""
    want, texts = figure.at(**settings), figure.texts(**settings)
    asked = [[name, bool(control.idle)] for name, control in figure.controls.items()]
    says = node.page.evaluate(SAYS, [node.element_handle(), [shown.name for shown in figure.readouts], asked])
    for shown, (behind, text, label) in zip(figure.readouts, says["readouts"], strict=True):
        value = want[shown.name]
        if isinstance(value, bool):
            assert behind == str(value).lower()
        elif isinstance(value, (int, float)):
            assert float(behind) == pytest.approx(value, rel=1e-12), shown.name
        else:
            assert behind == value
        assert text == texts[shown.name], shown.name
        assert label == figure.say(shown.label, **settings)
    if figure.code:
        assert says["code"] == [figure.python(**settings)]
    idle, setting_texts = figure.idle(**settings), figure.setting_texts(**settings)
    for (name, control), (text, spoken, disabled, why) in zip(figure.controls.items(), says["controls"], strict=True):
        assert text == setting_texts[name]
        if control.kind == "slider":
            assert spoken == text
        assert disabled == (name in idle), name
        if control.idle:
            assert why == idle.get(name, "")
    if figure.chart:
        assert says["alt"] == [figure.description(**settings)]
    if figure.refused:
        refused = want[figure.refused] and figure.description(**settings)
        assert says["refused"] == [refused]


def compare_table(figure, node, settings):
    want = [[column.said(row) for column in figure.table] for row in figure.data(**settings)]
    have = node.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert have == want


def compare_options(figure, node):
    """Each control can be set to what Python knows, in its order; an option says what stands beside it once it is chosen."""
    have = node.page.evaluate(OPTIONS, [node.element_handle(), [*figure.controls]])
    for control, found in zip(figure.controls.values(), have, strict=True):
        if control.kind == "slider":
            assert found == ["range", "0", str(len(control.options) - 1), "1"], control.name
        elif control.kind == "choice":
            assert found == ["select-one", *map(control.text, control.options)], control.name
        else:
            assert found == ["checkbox"], control.name


OPTIONS = """([node, names]) => names.map(name => {
  const e = node.querySelector(`.fk-control [name="${name}"]`);
  return [e.type, ...e.type === "range" ? [e.min, e.max, e.step] : [...e.options ?? []].map(option => option.text)];
})"""


def look(node, settings):
    """Nothing is in the way of reading the picture. Gives the colours of its legend and those of its marks."""
    found = node.evaluate(FAULTS)
    assert not found["faults"], f"{'; '.join(found['faults'])} at {settings}"
    return set(found["swatches"]), set(found["marks"])


def anything(figure, rng):
    return {name: rng.choice(control.options) for name, control in figure.controls.items()}


def other(figure, rng):
    """Every control away from where it starts."""
    return {
        name: rng.choice([value for value in control.options if value != control.value] or control.options)
        for name, control in figure.controls.items()
    }


def pixels(image):
    """The colours of a screenshot: a row of red, green and blue for each pixel."""
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(image)).convert("RGB")).reshape(-1, 3).astype(int)


def are_close(pixels, colour, tolerance=40):
    """Of each pixel, whether it has this colour."""
    wanted = [int(colour[i : i + 2], 16) for i in (1, 3, 5)]
    return (abs(pixels - wanted) <= tolerance).all(axis=-1)


def css(page, node, variable):
    return node.evaluate("(e, v) => getComputedStyle(e).getPropertyValue(v).trim()", variable)
