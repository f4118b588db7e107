"""The kernel's version of a figure: the widgets move, text and picture come from Python."""

import subprocess
import sys

import pytest

pytest.importorskip("ipywidgets")
pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from flopkit.charts import Figure, choice, readout, slider, steps, switch
from flopkit.widgets import explore


def model(s, *, tokens, bits, causal):
    s.bytes = tokens * bits / 8


def figure():
    import altair as alt

    return Figure(
        name="bytes",
        title="Bytes",
        alt="Bytes grow with tokens.",
        model=model,
        controls=[
            slider("tokens", "Tokens", steps(1, 1024), value=8, unit="tokens"),
            choice("bits", "Format", {"bf16": 16, "fp8": 8}),
            switch("causal", "Causal"),
        ],
        presets={"Long": {"tokens": 1000}},
        readouts=[readout("bytes", "Traffic", "B")],
        chart=lambda s: s.now("bytes").mark_bar().encode(x=alt.X("bytes:Q", scale=alt.Scale(domain=[0, 2048]))),
    )


def test_moving_a_control_moves_text_and_picture():
    panel = explore(figure())
    assert panel.settings == {"tokens": 8, "bits": "bf16", "causal": False}
    assert "<b>16 B</b>" in panel._text.value and "<svg" in panel._picture.value
    before = panel._picture.value
    panel.controls["tokens"].value = 512
    assert (
        "<b>1.024 kB</b>" in panel._text.value and panel.results == {"bytes": 1024} and panel._picture.value != before
    )
    panel.controls["bits"].value = "fp8"
    assert "<b>512 B</b>" in panel._text.value


def test_presets_and_reset():
    panel = explore(figure())
    panel.preset.value = "Long"
    assert panel.settings["tokens"] == 1000 and "<b>2 kB</b>" in panel._text.value
    panel.controls["tokens"].value = 4
    assert panel.preset.value == "Custom"
    panel.set(tokens=1000)
    assert panel.preset.value == "Long"
    panel.reset.click()
    assert panel.settings["tokens"] == 8 and panel.preset.value == "Custom"


def test_it_shows_itself_with_named_controls():
    panel = explore(figure(), picture=False)
    assert "application/vnd.jupyter.widget-view+json" in panel._repr_mimebundle_()
    assert [control.description for control in panel.controls.values()] == ["Tokens", "Format", "Causal"]
    assert panel.controls["tokens"].label == "8 tokens" and panel._picture.value == ""


def test_errors():
    with pytest.raises(TypeError, match="give a figure"):
        explore("dense")
    panel = explore(figure())
    with pytest.raises(ValueError, match="tokens=1001 is not a step of this slider; the nearest is 1000"):
        panel.set(tokens=1001)
    with pytest.raises(ValueError, match="no control 'token'"):
        panel.set(token=1)


def test_without_ipywidgets_it_says_what_to_install():
    code = """
import sys
sys.modules["ipywidgets"] = None
from flopkit.charts.figure import Figure
from flopkit.charts.panel import slider
import flopkit.widgets
figure = Figure(name="f", title="t", alt="a", model=lambda s, *, n: setattr(s, "m", n), controls=[slider("n", "N", [1, 2])])
try:
    flopkit.widgets.explore(figure)
except ImportError as error:
    assert "pip install ipywidgets." in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
