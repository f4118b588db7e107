"""Numbers that a reader types in the calculator, where a slider's steps would be too coarse."""

import json

import pytest

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api")

from reader import compare, settle, show

from flopkit.book.gallery import calculator

pytestmark = pytest.mark.browser
FIGURE = calculator()["utilisation"]


@pytest.fixture(scope="session")
def site(calculator_site):
    return calculator_site


def type_in(node, name, text, key="Enter"):
    control = node.locator(f'.fk-control:has([name="{name}"])')
    control.locator(".fk-value").click()
    box = control.locator(".fk-typed")
    box.fill(text)
    box.press(key)
    return control


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("rate", "61,509", 61509), ("rate", "14k", 14000), ("length", "6000", 6000), ("count", "24", 24), ("d_model", " 5_120 ", 5120), ("rate", "1.5M", 1500000)],
)  # fmt: skip
def test_a_typed_number_is_set(open_page, name, text, value):
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    control = type_in(node, name, text)
    settings = {**FIGURE.settings(), name: value}
    settle(page, node, settings)
    compare(FIGURE, node, settings)
    assert control.locator(".fk-typed").count() == 0 and control.locator(".fk-value").is_visible()
    assert page.evaluate("document.activeElement.className") == "fk-value", "the focus is where it was"


@pytest.mark.parametrize("text", ["many", "-5", "0", "1e400", "", "5 GB"])
def test_what_is_no_number_changes_nothing_and_is_told_so(open_page, text):
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    before = json.loads(node.get_attribute("data-settled"))
    type_in(node, "length", text)
    assert "Sequence length: give a number from 128 on" in node.locator(".fk-status").inner_text()
    compare(FIGURE, node, before)


def test_escape_leaves_the_number_and_leaving_the_box_takes_it(open_page):
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    type_in(node, "length", "6000", "Escape")
    assert json.loads(node.get_attribute("data-settled"))["length"] == FIGURE.settings()["length"]
    type_in(node, "length", "6000", "Tab")
    settle(page, node, {"length": 6000})


def test_what_has_no_effect_takes_no_number(open_page):
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    node.locator('.fk-control:has([name="top_k"]) .fk-value').click()
    assert node.locator(".fk-typed").count() == 0


def test_fractions_and_trillions(open_page):
    """Where a slider has steps that are no whole numbers, as dollars; and tokens of a run as people say them."""
    page, figure = open_page("calculator.html"), calculator()["run"]
    node, settings = show(page, figure.name), figure.settings()
    for name, text, value in (
        ("price", "2.49", 2.49),
        ("percent", "37.5", 37.5),
        ("tokens", "1.4T", 1_400_000_000_000),
        ("tokens", "300B", 300_000_000_000),
    ):
        type_in(node, name, text)
        settings |= {name: value}
        settle(page, node, settings)
        compare(figure, node, settings)
