"""Figures behind tabs: one set of controls for all, and the Python that says the same."""

import json
import re

import pytest

pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from flopkit.charts import Figure, Tasks, choice, html, readout, slider, switch
from flopkit.charts.code import MODEL, Code, above, literal, unless, value, when

SIZE = slider("n", "Size", [1, 2, 4, 2048], value=2)


def area(s, *, n, half=False):
    s.area = n * n


def figure(word, model, controls, **more):
    shown = [readout(model.__name__, "Each of {n}")]
    return Figure(
        name=f"square-{word}",
        title=word.title(),
        alt="A square of {n}.",
        model=model,
        controls=controls,
        readouts=shown,
        **more,
    )


def edge(s, *, n, kind):
    s.edge = 4 * n * kind


KIND = choice("kind", "Kind", {"plain": 1, "double": 2})


def tasks():
    return Tasks(
        name="square",
        title="A square",
        figures={"area": figure("area", area, [SIZE]), "edge": figure("edge", edge, [SIZE, KIND])},
    )


def test_settings_of_all_and_results_of_one():
    square = tasks()
    assert square.settings() == {"task": "area", "n": 2, "kind": "plain"}
    assert square.at(n=4) == {"area": 16} and square.at("edge", n=4, kind="double") == {"edge": 32}
    assert square.at(**square.settings({"task": "edge", "kind": "double"})) == {"edge": 16}
    assert [each.name for each in square] == ["square-area", "square-edge"]
    assert "Each of 2  4" in str(square) and "Each of 2  8" in str(square)


@pytest.mark.parametrize("wrong, why", [
    ({"task": "rim"}, "no 'rim'; .*edge"), ({"kin": "plain"}, "no control 'kin'; did you mean kind"), ({"kind": "x"}, "not an option"),
])  # fmt: skip
def test_what_is_not_there_is_named(wrong, why):
    with pytest.raises((ValueError, KeyError), match=why):
        tasks().settings(wrong)


@pytest.mark.parametrize("other", [slider("n", "Size", [1, 2]), slider("n", "Length", [1, 2, 4, 2048], value=2)])
def test_a_control_is_the_same_in_all(other):
    figures = {"area": figure("area", area, [SIZE]), "edge": figure("edge", edge, [other, KIND])}
    with pytest.raises(ValueError, match="control 'n' is not the same in 'edge'"):
        Tasks(name="square", title="A square", figures=figures)
    with pytest.raises(ValueError, match="is called square-rim"):
        Tasks(name="square", title="A square", figures={"rim": figure("area", area, [SIZE])})


def test_the_page_has_a_tab_and_a_panel_for_each_and_the_scripts_once():
    text = html.fragment(tasks())
    assert re.findall(r'role="tab" id="([^"]+)"', text) == re.findall(r'aria-labelledby="([^"]+)"', text)
    assert re.findall(r'aria-controls="([^"]+)"', text) == re.findall(r'role="tabpanel" id="([^"]+)"', text)
    assert text.count("window.flopkitTabs ??=") == 1 and text.count("<figure ") == 2
    shared = json.loads(re.search(r'class="fk-tasks-json">(.*?)</script>', text)[1])
    assert shared["controls"]["n"] == {"values": [1, 2, 4, 2048], "start": 2} and set(shared["controls"]) == {
        "n",
        "kind",
    }
    assert '<dt data-label="Each of {n}">Each of 2</dt>' in text


def test_python_is_filled_with_the_settings():
    pieces = ("f(", MODEL, ", n=", value("n"), when("half", [True], ", half=True"), unless("n", [1], ", many=True"),
              above("n", "m", ", large=True", ", small=True"), ", kind=", value("kind", {"plain": '"p"'}), ")")  # fmt: skip
    code = Code(pieces, ("g(", value("n", over=4), ")"), {"Two": 'load("two")'}, ("n",), {"m": 3})
    presets = {"Two": {"n": 2, "half": False}}
    settings = {"n": 2, "half": True, "kind": "plain"}
    assert code.text(settings, presets) == 'f(load("two"), n=2, half=True, many=True, small=True, kind="p")'
    assert (
        code.text({**settings, "n": 8192, "half": False}, presets)
        == 'f(g(2048.0), n=8192, many=True, large=True, kind="p")'
    )
    assert json.loads(json.dumps(code.data(presets)))["models"] == [[0, 'load("two")']]
    assert [literal(each) for each in (True, 9999, 12345, 3 * 10**9, 2_500_000_000, 0.5)] == [
        "True", "9999", "12_345", "3e9", "2_500_000_000", "0.5"
    ]  # fmt: skip


def test_a_figure_says_its_python_in_the_page():
    made = figure(
        "area",
        area,
        [SIZE, switch("half", "Half")],
        code=Code(
            (
                "area(",
                value("n"),
                ") < 5",
            )
        ),
    )
    assert made.python(n=4) == "area(4) < 5"
    text = html.fragment(made)
    assert "<code>area(2) &lt; 5</code>" in text and text.count("window.flopkitCode ??=") == 1
    bare = figure("area", area, [SIZE])
    assert bare.python() == "" and "fk-code" not in html.fragment(bare)
