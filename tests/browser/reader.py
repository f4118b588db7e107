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


def compare(figure, node, settings):
    """Every control and read-out says what Python says: the number behind the text, and the text."""
    want, texts = figure.at(**settings), figure.texts(**settings)
    for shown in figure.readouts:
        data = node.locator(f'data[data-name="{shown.name}"]')
        behind, value = data.evaluate("e => e.value"), want[shown.name]
        if isinstance(value, bool):
            assert behind == str(value).lower()
        elif isinstance(value, (int, float)):
            assert float(behind) == pytest.approx(value, rel=1e-12), shown.name
        else:
            assert behind == value
        assert data.inner_text() == texts[shown.name], shown.name
        assert data.locator("xpath=ancestor::div[1]/dt").text_content() == figure.say(shown.label, **settings)
    if figure.code:
        assert node.locator(".fk-code code").text_content() == figure.python(**settings)
    for name, text in figure.setting_texts(**settings).items():
        assert node.locator(f'.fk-control:has([name="{name}"]) .fk-value').text_content() == text
        if figure.controls[name].kind == "slider":
            assert node.locator(f'[name="{name}"]').get_attribute("aria-valuetext") == text
    idle = figure.idle(**settings)
    for name, control in figure.controls.items():
        assert node.locator(f'[name="{name}"]').is_disabled() == (name in idle), name
        if control.idle:
            assert node.locator(f'.fk-control:has([name="{name}"]) .fk-idle').text_content() == idle.get(name, "")
    if figure.chart:
        assert node.locator(".fk-chart").get_attribute("aria-label") == figure.description(**settings)
    if figure.refused:
        refused = want[figure.refused] and figure.description(**settings)
        assert node.locator(".fk-refused").text_content() == refused


def compare_table(figure, node, settings):
    want = [[column.format(row[column.name]) for column in figure.table] for row in figure.data(**settings)]
    have = node.locator("tbody tr").evaluate_all(
        "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    assert have == want


def look(node, settings):
    """Nothing is in the way of reading the picture. Gives the colours of its legend and those of its marks."""
    found = node.evaluate(FAULTS)
    assert not found["faults"], f"{'; '.join(found['faults'])} at {settings}"
    return set(found["swatches"]), set(found["marks"])


def anything(figure, rng):
    return {name: rng.choice(control.options) for name, control in figure.controls.items()}


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
