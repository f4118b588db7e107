"""A figure's two readings agree, and its errors name the thing and the way out. Vega's side is evaluated here by vl-convert, no browser."""

import json
import random
import re
import subprocess
import sys

import pytest

import flopkit as fk
from flopkit.arithmetic import maximum, where
from flopkit.charts import Figure, along, choice, column, pick, readout, slider, steps, switch

DEVICES = {"H100 SXM": dict(peak=989.4e12, bandwidth=3.35e12), "it's a T4": dict(peak=65e12, bandwidth=320e9)}


def dense_on(s, *, tokens, d_in, device, bits, causal):
    cost = fk.dense(tokens=tokens, d_in=d_in, d_out=4096)
    s.flops = cost.flops * where(causal, 1, 2)
    s.bytes = cost.bytes * bits / 16
    s.seconds = maximum(s.flops / device.peak, s.bytes / device.bandwidth)
    s.bound = where(s.flops / device.peak >= s.bytes / device.bandwidth, "compute", "memory")
    s.half = s.seconds < 1e-5
    s.constant = 7


def figure(**changes):
    options = dict(
        name="dense",
        title="A dense layer",
        alt="More tokens, more arithmetic.",
        model=dense_on,
        controls=[
            slider("tokens", "Tokens", steps(1, 1024), value=64, unit="tokens"),
            slider("d_in", "Width", steps(64, 4096)),
            choice("device", "Device", DEVICES),
            choice("bits", "Format", {"bf16": 16, "fp8": 8}),
            switch("causal", "Causal"),
        ],
        readouts=[
            readout("flops", "Arithmetic", "FLOPs"),
            readout("seconds", "Time", "s"),
            readout("bound", "Limited by"),
        ],
    )
    return Figure(**{**options, **changes})


def signals(spec):
    """What Vega makes of the named expressions: each is drawn as text, and read from the drawing."""
    vl_convert = pytest.importorskip("vl_convert")
    names = [p["name"] for p in spec["params"] if "expr" in p]
    layers = [
        {"data": {"values": [{}]}, "mark": {"type": "text", "text": {"expr": f"'@{name}@' + {name} + '@'"}}}
        for name in names
    ]
    svg = vl_convert.vegalite_to_svg({"layer": layers, "params": spec["params"]})
    return dict(re.findall(r">@(\w+)@(.*?)@<", svg))


def same(text, value):
    if isinstance(value, bool):
        return text == str(value).lower()
    return text == value if isinstance(value, str) else float(text) == pytest.approx(value, rel=1e-14)


def test_both_readings_agree():
    pytest.importorskip("altair")
    rng, dense = random.Random(5), figure()
    for _ in range(6):
        settings = {name: rng.choice(control.options) for name, control in dense.controls.items()}
        want, have = dense.at(**settings), signals(dense.spec(**settings))
        assert want.keys() <= have.keys()
        for name, value in want.items():
            assert same(have[name], value), (name, settings, have[name], value)


def test_an_expression_is_stored_once_and_referred_to():
    pytest.importorskip("altair")
    params = {p["name"]: p.get("expr") for p in figure().spec()["params"]}
    assert params["seconds"] == "max((flops / device_peak),(bytes / device_bandwidth))"
    assert json.loads(re.fullmatch(r"\((\{.*\})\)\[device\]", params["device_peak"])[1]) == {
        n: d["peak"] for n, d in DEVICES.items()
    }
    assert params["constant"] == "7" and params["tokens"] is None


def test_at():
    dense = figure()
    assert dense.at(tokens=2, d_in=64, causal=True)["flops"] == 2 * 2 * 64 * 4096
    assert dense.at(tokens=3, d_in=65)["flops"] == 2 * 2 * 3 * 65 * 4096, "a slider's number need not be on its ladder"
    assert isinstance(dense.at()["flops"], int), "counts stay exact ints"
    assert dense.at(bits="fp8")["bytes"] * 2 == dense.at()["bytes"]
    assert dense.texts(tokens=1, d_in=64, causal=True) == {
        "flops": "524.3 kFLOPs",
        "seconds": "159 ns",
        "bound": "memory",
    }


def test_rows_are_the_model_along_a_control():
    dense = figure(rows=along("tokens"), table=[column("tokens", "Tokens"), column("flops", "FLOPs", "FLOPs")])
    rows = dense.rows(d_in=64, causal=True)
    assert [row["tokens"] for row in rows] == steps(1, 1024)
    assert all(row["flops"] == dense.at(tokens=row["tokens"], d_in=64, causal=True)["flops"] for row in rows)
    by_device = figure(rows=along("device")).rows()
    assert [(row["device"], row["seconds"]) for row in by_device] == [
        (name, figure().at(device=name)["seconds"]) for name in DEVICES
    ]


def test_rows_with_a_model_of_their_own():
    def shares(r, *, part, tokens, **_):
        r.size = pick(part, {"arithmetic": r.flops, "traffic": r.bytes}) * tokens

    rows = figure(rows=along("part", ["arithmetic", "traffic"], shares)).rows(tokens=2)
    want = figure().at(tokens=2)
    assert rows == [{"part": "arithmetic", "size": want["flops"] * 2}, {"part": "traffic", "size": want["bytes"] * 2}]


@pytest.mark.parametrize("sweep", ["tokens", "device", "bits", "causal"])
def test_rows_agree_in_both_readings(sweep):
    """The chart's own calculations, drawn as text and compared with Python's rows."""
    altair = pytest.importorskip("altair")
    vl_convert = pytest.importorskip("vl_convert")
    text = altair.expr("'@' + datum.flops + '@' + datum.seconds + '@' + datum.bound + '@'")
    dense = figure(
        rows=along(sweep), chart=lambda s: s.rows.transform_calculate(line=text.expr).mark_text().encode(text="line:N")
    )
    svg = vl_convert.vegalite_to_svg({**dense.spec(d_in=128), "width": 300})
    have = re.findall(r">@(.*?)@(.*?)@(\w+)@<", svg)
    want = [(row["flops"], row["seconds"], row["bound"]) for row in dense.rows(d_in=128)]
    assert len(have) == len(want)
    assert all(same(h, w) for line, row in zip(have, want, strict=True) for h, w in zip(line, row, strict=True))


def test_presets_extend_the_ladder():
    dense = figure(presets={"Llama-3-8B": {"d_in": 4095}})
    assert 4095 in dense.controls["d_in"].options and 4095 not in figure().controls["d_in"].options


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"name": "Dense Layer"}, "small letters, digits and hyphens"),
        ({"alt": " "}, "alt is empty"),
        (
            {"presets": {"p": {"token": 4}}},
            r"preset 'p' of figure 'dense' has no control 'token'; did you mean tokens\?",
        ),
        ({"presets": {"p": {"device": "H100"}}}, "'H100' is not an option.*did you mean H100 SXM"),
        (
            {"readouts": [readout("flop", "Arithmetic")]},
            r"read-out 'flop' is not set by the model; did you mean flops\?",
        ),
        ({"table": [column("token", "Tokens")]}, "column 'token' is not set"),
        ({"readouts": [readout("half", "Half")]}, "give its words"),
        ({"controls": [slider("tokens", "A", [1, 2]), slider("tokens", "B", [1, 2])]}, "share a name"),
        (
            {"alt": "With {token} it is slow."},
            r"\{token\} in a text is no control and no read-out; did you mean tokens\?",
        ),
        ({"refused": "bounds"}, r"'bounds' is not a word that the model sets"),
        ({"refused": "flops"}, "'flops' is not a word"),
        (
            {"rows": along("tokes"), "table": [column("tokens", "T")]},
            r"along\('tokes'\) is not a control; did you mean tokens\?",
        ),
    ],
)
def test_errors_of_a_figure(changes, message):
    with pytest.raises((ValueError, TypeError), match=message):
        figure(**changes)


def test_errors_of_settings():
    with pytest.raises(ValueError, match=r"figure 'dense' has no control 'batch'; known: tokens, d_in"):
        figure().at(batch=1)
    with pytest.raises(ValueError, match="tokens=-1: give a number"):
        figure().at(tokens=-1)


def one(model):
    return lambda: Figure(name="one", title="t", alt="a", model=model, controls=[slider("n", "N", [1, 2])])


def test_errors_of_a_model():
    def twice(s, *, n):
        s.flops = n
        s.flops = n

    def whole_cost(s, *, n):
        s.cost = fk.dense(tokens=n, d_in=1, d_out=1)

    def unknown(s, *, n):
        s.flops = n
        s.bytes = s.flop

    def reserved(s, *, n):
        s.width = n

    def shadow(s, *, n):
        s.n = n

    for model, message in [
        (twice, "s.flops is set twice"),
        (whole_cost, "s.cost = Cost: a result is a number.*cost.flops"),
        (unknown, r"no result 'flop' so far; did you mean flops\?"),
        (reserved, "Vega uses this name"),
        (shadow, "s.n is set twice, or is the name of a control"),
    ]:
        with pytest.raises((ValueError, TypeError, AttributeError), match=message):
            one(model)()


def test_a_missing_field_is_named():
    def model(s, *, device):
        s.ridge = device.peaks

    pytest.importorskip("altair")
    lonely = Figure(name="f", title="t", alt="a", model=dense_on, controls=list(figure().controls.values()))
    lonely.model = lambda s, *, device, **_: setattr(s, "ridge", device.peaks)
    with pytest.raises(AttributeError, match=r"no field 'peaks'; did you mean peak\?"):
        lonely.spec()
    with pytest.raises(AttributeError, match="peaks"):
        lonely.at()


def shared(s, *, heads, groups, window):
    s.flops = heads * window
    s.wide = where(window < 8, "", "A window of {window} is all of {heads} heads.")
    s.uneven = where(heads * 1 >= groups, "", "{heads} heads do not make {groups} groups: {flops}.")


def test_words_that_follow_the_state():
    heads = Figure(
        name="heads",
        title="Heads",
        alt="{heads} heads do {flops}.",
        model=shared,
        controls=[slider("heads", "Heads", [1, 4]), slider("groups", "Groups", [2, 4], idle="wide"), slider("window", "W", [4, 8])],
        readouts=[readout("flops", "FLOPs", "FLOPs")],
        refused="uneven",
    )  # fmt: skip
    assert heads.description(heads=4, groups=2, window=4) == "4 heads do 16 FLOPs."
    assert heads.idle(window=4) == {} and heads.idle(heads=4, window=8) == {
        "groups": "A window of 8 is all of 4 heads."
    }
    assert heads.description(heads=1, groups=2) == "1 heads do not make 2 groups: –."
    assert heads.texts(heads=1, groups=2) == {"flops": "–"} and heads.at(heads=1, groups=2, window=4)["flops"] == 4


def test_text_form():
    text = str(figure())
    assert text.splitlines()[0] == "A dense layer"
    assert "Tokens = 64 tokens" in text and "Causal = off" in text and "Limited by  memory" in text
    assert repr(figure()) == "<Figure 'dense': tokens, d_in, device, bits, causal -> flops, seconds, bound>"


def test_a_number_stands_before_the_title():
    from flopkit.charts import html

    plain = figure()
    numbered = plain.numbered("2.1")
    assert str(numbered).splitlines()[0] == "Figure 2.1. A dense layer"
    assert "<figcaption>Figure 2.1. A dense layer</figcaption>" in html.fragment(numbered)
    assert "<figcaption>A dense layer</figcaption>" in html.fragment(plain) and numbered.at() == plain.at()


def test_numbers_need_no_altair():
    code = """
import sys
sys.modules["altair"] = None
from flopkit.charts.figure import Figure
from flopkit.charts.panel import slider
def model(s, *, n):
    s.flops = 2 * n
figure = Figure(name="f", title="t", alt="a", model=model, controls=[slider("n", "N", [1, 2])])
assert figure.at(n=2) == {"flops": 4}
try:
    figure.spec()
except ImportError as error:
    assert "pip install altair vl-convert-python." in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_picture_has_two_modes():
    from flopkit.book.gallery import dense_roofline

    with pytest.raises(ValueError, match="mode='dusk': must be 'light' or 'dark'"):
        dense_roofline().svg(mode="dusk")


def seats(s, *, users):
    s.rate = 100 / users
    s.no_rate = where(users > 4, "none: no seat", "")
    s.told = where(users > 4, "{users} find no seat.", "Each of {users} gets {rate}.")


def of_seats(**changes):
    return Figure(**{
        "name": "seats", "title": "Seats", "alt": "{told}", "model": seats, "controls": [slider("users", "Users", [1, 2, 4, 8])],
        "readouts": [readout("told", "In a sentence", sentence=True), readout("rate", "Rate", instead="no_rate")],
        "rows": along("users"), "table": [column("users", "Users"), column("rate", "Rate", instead="no_rate")], **changes,
    })  # fmt: skip


def test_a_word_stands_instead_of_a_number_that_is_none():
    figure = of_seats()
    assert figure.texts(users=4)["rate"] == "25" and figure.texts(users=8)["rate"] == "none: no seat"
    assert figure.at(users=8)["rate"] == 12.5
    assert [figure.table[1].said(row) for row in figure.data()] == ["100", "50", "25", "none: no seat"]


def test_a_sentence_names_controls_and_read_outs():
    figure = of_seats()
    assert figure.texts(users=4)["told"] == figure.description(users=4) == "Each of 4 gets 25."
    assert figure.texts(users=8)["told"] == figure.description(users=8) == "8 find no seat."


def test_what_stands_instead_is_a_word_of_the_model():
    with pytest.raises(ValueError, match="'rate' is not a word that the model sets"):
        of_seats(readouts=[readout("rate", "Rate", instead="rate")], alt="Seats.")
    with pytest.raises(ValueError, match="there are no rows"):
        of_seats(rows=None)
