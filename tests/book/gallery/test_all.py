"""What holds of every figure of the gallery: marks explain themselves, a control has an effect or says why not, words are the same."""

import random
import re
from itertools import pairwise

import pytest

from flopkit.book import gallery
from flopkit.charts import Tasks, theme

MADE = [getattr(gallery, make)() for make in gallery.__all__]
FIGURES = {figure.name: figure for made in MADE for figure in (made if isinstance(made, Tasks) else [made])}
STATES = 12  # tried at random, beside the start and the presets
MANY = 20  # controls, from which on a figure is tried in a few states, for it takes long


def states(figure):
    rng = random.Random(figure.name)
    start = figure.settings()
    presets = list(figure.presets.values())
    if many := len(figure.controls) > MANY:
        presets = rng.sample(presets, min(2, len(presets)))
    yield from (start, *({**start, **preset} for preset in presets))
    for _ in range(4 if many else STATES):
        yield {name: rng.choice(control.options) for name, control in figure.controls.items()}


def shown(figure, settings):
    """What a reader sees of these settings, one thing after another: the read-outs, and the table's rows; of rows along a choice the one that
    is chosen. None: refused."""
    results = figure.at(**settings)
    if results.get(figure.refused):
        yield None
        return
    yield repr([results[each.name] for each in figure.readouts])  # NaN is like NaN
    rows = figure.rows(**settings)
    if figure.sweep and (along := figure.controls.get(figure.sweep.name)) and along.kind == "choice":
        rows = [row for row in rows if row[along.name] == settings[along.name]]
    yield repr([[row[each.name] for each in figure.table] for row in rows])


def differ(now, figure, settings):
    return any(one != other for one, other in zip(now, shown(figure, settings), strict=False))


@pytest.mark.parametrize("name", FIGURES)
def test_a_control_has_an_effect_or_says_why_not(name):
    figure = FIGURES[name]
    for state in states(figure):
        now, idle = list(shown(figure, state)), figure.idle(**state)
        if now == [None]:
            continue
        for control in figure.controls.values():
            ends = control.options if control.kind != "slider" else (control.options[0], control.options[-1])
            moved = any(differ(now, figure, {**state, control.name: value}) for value in ends)
            assert moved != (control.name in idle), (control.name, idle.get(control.name), state)


def units_of(spec):
    """Each mark of a specification with its encoding."""
    for layer in spec.get("layer", [spec]):
        if "layer" in layer:
            yield from units_of(layer)
        else:
            mark = layer["mark"]
            yield mark if isinstance(mark, dict) else {"type": mark}, layer.get("encoding", {})


@pytest.mark.parametrize("name", FIGURES)
def test_vega_lite_has_nothing_to_complain_of(name, capfd):
    """It compiles where the page is made, and what it says there no reader's console shows."""
    convert = pytest.importorskip("vl_convert")
    pytest.importorskip("altair")
    convert.vegalite_to_vega(FIGURES[name].spec(), show_warnings=True)
    assert capfd.readouterr().err == ""
    convert.vegalite_to_vega({"mark": "point", "encoding": {"foo": {"field": "a"}}}, show_warnings=True)
    assert "foo" in capfd.readouterr().err, "a complaint would be seen here"


@pytest.mark.parametrize("name", FIGURES)
def test_every_dot_bar_and_area_has_a_tooltip(name):
    pytest.importorskip("altair")
    found = 0
    for mark, encoding in units_of(FIGURES[name].spec()):
        unseen = mark.get("opacity") == 0 or ("fill" in mark and mark["fill"] is None)
        if mark["type"] in ("point", "bar", "area", "rect") and not unseen:
            assert encoding.get("tooltip"), mark
            found += 1
    assert found


def bare(spec):
    """The words of a picture behind which no halo keeps the lines away; those in the colour of the page stand on bars."""
    for (behind, there), (mark, encoding) in pairwise([({}, {}), *units_of(spec)]):
        if mark["type"] == "text" and "stroke" not in mark and mark.get("color") != theme.PAPER:
            if not (behind.get("strokeWidth") == theme.HALO and there == encoding):
                yield encoding["text"]


@pytest.mark.parametrize("name", FIGURES)
def test_words_have_a_halo(name):
    pytest.importorskip("altair")
    assert not list(bare(FIGURES[name].spec()))


@pytest.mark.parametrize("name", FIGURES)
def test_an_axis_with_a_unit_has_plain_numbers(name):
    """No 200m GFLOPs and no 2k GB: what has a prefix in the title has none in its ticks."""
    pytest.importorskip("altair")
    for _, encoding in units_of(FIGURES[name].spec()):
        for channel in encoding.values():
            if isinstance(channel, dict) and channel.get("axis"):
                prefixed = re.search(r"\b[kMGT](B|FLOPs?|W|Hz)\b|%", str(channel.get("title", "")))
                assert not (prefixed and channel["axis"].get("format", "~s").endswith("s")), channel


@pytest.mark.parametrize("name", FIGURES)
def test_the_two_bounds_are_called_compute_and_memory(name):
    figure = FIGURES[name]
    labels = [each.label for each in (*figure.readouts, *figure.table, *figure.controls.values())]
    told = [text for each in (*figure.readouts, *figure.table) for text in each.text.values()]
    assert not any(
        "rithmetic" in text for text in (*labels, *told, figure.title, figure.alt.replace("arithmetic intensity", ""))
    )


@pytest.mark.parametrize("name", FIGURES)
def test_the_description_follows_the_state(name):
    figure = FIGURES[name]
    told = {figure.description(**state) for state in states(figure)}
    assert len(told) > 4 or not figure.controls
    assert not any("{" in text for text in told)
    for other in ("title", "caption"):
        assert "{" not in getattr(figure, other)
