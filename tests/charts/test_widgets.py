"""A figure that talks to a kernel: the page's own front end, in a host of widgets; settings go both ways."""

import re
import subprocess
import sys

import pytest

pytest.importorskip("anywidget")
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


def test_settings_and_results_follow_the_widget():
    panel = explore(figure())
    assert panel.settings == {"tokens": 8, "bits": "bf16", "causal": False}
    told = []
    panel.observe(told.append)
    panel.widget.set_state({"settings": {**panel.settings, "tokens": 512}})  # as a message of the page does
    assert panel.settings["tokens"] == 512 and panel.results == {"bytes": 1024}
    panel.set(bits="fp8")
    assert panel.results == {"bytes": 512} and told == [
        {"tokens": 512, "bits": bits, "causal": False} for bits in ("bf16", "fp8")
    ]


def test_it_shows_itself_as_a_widget_that_brings_all_it_needs():
    panel = explore(figure())
    assert "application/vnd.jupyter.widget-view+json" in panel._repr_mimebundle_()[0]
    assert 'class="fk-vega"' in panel.widget.page and not re.search(r"https?://(?!www.w3.org)", panel.widget._esm)


PAGE = """<!doctype html><meta charset="utf-8"><body style="width: 700px"><div id="cell"></div>"""
HOST = """async ([esm, state]) => {     // what anywidget asks of a host: get, set, save_changes, on, off
  const listeners = [], saved = window.saved = [];
  const model = window.model = {
    get: key => state[key], set: (key, value) => { state[key] = value; }, save_changes: () => saved.push({...state.settings}),
    on: (name, what) => listeners.push([name, what]), off: (name, what) => listeners.splice(listeners.findIndex(each => each[1] === what), 1),
    fromKernel: settings => { state.settings = settings; listeners.forEach(([name, what]) => name === "change:settings" && what()); },
    listeners,
  };
  const {default: widget} = await import(URL.createObjectURL(new Blob([esm], {type: "text/javascript"})));
  window.close_widget = widget.render({model, el: document.querySelector("#cell")});
}"""


@pytest.mark.browser
def test_the_front_end_is_the_page_s_and_talks_both_ways(chromium):
    panel, page, wrong = explore(figure()), chromium.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda request: wrong.append(request.url) if request.url.startswith("http") else None)
    page.set_content(PAGE)
    panel.set(tokens=16)
    page.evaluate(HOST, [panel.widget._esm, {"page": panel.widget.page, "settings": panel.settings}])
    page.wait_for_selector("figure[data-ready=yes]")
    shown = page.locator("data[data-name=bytes]")
    assert shown.text_content() == "32 B"  # moved from Python before it was shown
    page.locator("input[name=tokens]").focus()
    page.keyboard.press("ArrowRight")
    page.locator("input[name=causal]").check()
    page.wait_for_function("document.querySelector('data[data-name=bytes]').textContent === '64 B'")
    assert page.evaluate("saved.at(-1)") == {"tokens": 32, "bits": "bf16", "causal": True}
    sent = page.evaluate("saved.length")
    page.evaluate("model.fromKernel({tokens: 1000, bits: 'fp8', causal: true})")
    page.wait_for_function("document.querySelector('data[data-name=bytes]').textContent === '1 kB'")
    assert page.locator(".fk-preset select").input_value() == "Long"
    assert page.evaluate("saved.length") == sent  # what Python set is not sent back
    page.locator(".fk-reset").click()
    assert page.evaluate("saved.at(-1)") == {"tokens": 8, "bits": "bf16", "causal": False}
    page.evaluate("close_widget()")
    assert page.evaluate("model.listeners.length") == 0 and wrong == []
    page.close()


def test_errors():
    with pytest.raises(TypeError, match="give a figure"):
        explore("dense")
    panel = explore(figure())
    with pytest.raises(ValueError, match="tokens=1001 is not a step of this slider; the nearest is 1000"):
        panel.set(tokens=1001)
    with pytest.raises(ValueError, match="no control 'token'"):
        panel.set(token=1)
    assert panel.settings["tokens"] == 8


def test_without_anywidget_it_says_what_to_install():
    code = """
import sys
sys.modules["anywidget"] = None
from flopkit.charts.figure import Figure
from flopkit.charts.panel import slider
import flopkit.widgets
figure = Figure(name="f", title="t", alt="a", model=lambda s, *, n: setattr(s, "m", n), controls=[slider("n", "N", [1, 2])])
try:
    flopkit.widgets.explore(figure)
except ImportError as error:
    assert "pip install anywidget." in str(error), error
else:
    raise AssertionError("no error")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
