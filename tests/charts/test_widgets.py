"""A figure that talks to a kernel: the page's own front end, in a host of widgets; settings go both ways. And the panel of experiments."""

import asyncio
import html
import re
import subprocess
import sys

import pytest

pytest.importorskip("anywidget")
pytest.importorskip("altair")
pytest.importorskip("vl_convert")

from flopkit.charts import Figure, Tasks, choice, readout, slider, steps, switch
from flopkit.experiments import NAMES, experiment, own, record, short_run
from flopkit.recordings import Case, Recording, cases
from flopkit.widgets import experiment_panel, experiments, explore


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


def test_a_widget_of_several_tasks_says_which_is_open():
    pair = Tasks(name="pair", title="Pair", figures={word: _named(f"pair-{word}") for word in ("one", "two")})
    panel = explore(pair)
    assert panel.settings == {"task": "one", "tokens": 8, "bits": "bf16", "causal": False}
    panel.set(task="two", tokens=16)
    assert panel.settings["task"] == "two" and panel.results == {"bytes": 32}
    with pytest.raises(KeyError, match="no 'three'"):
        panel.set(task="three")


def _named(name):
    made = figure()
    made.name = name
    return made


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


@pytest.mark.browser
def test_a_widget_of_several_tasks_talks_both_ways(chromium):
    pair = Tasks(name="pair", title="Pair", figures={word: _named(f"pair-{word}") for word in ("one", "two")})
    panel, page, wrong = explore(pair), chromium.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.set_content(PAGE)
    page.evaluate(HOST, [panel.widget._esm, {"page": panel.widget.page, "settings": panel.settings}])
    page.wait_for_selector('figure[data-name="pair-one"][data-ready=yes]')
    page.locator(".fk-on input[name=causal]").check()
    page.locator('[role=tab][data-task="two"]').click()
    page.wait_for_selector('figure[data-name="pair-two"][data-ready=yes]')
    assert page.evaluate("saved.at(-1)") == {"task": "two", "tokens": 8, "bits": "bf16", "causal": True}
    assert page.locator(".fk-on input[name=causal]").is_checked()
    page.evaluate("model.fromKernel({task: 'one', tokens: 512, bits: 'fp8', causal: true})")
    page.wait_for_function("document.querySelector('.fk-on data[data-name=bytes]').textContent === '512 B'")
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == pair["one"].title and wrong == []
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


CEILINGS = {
    "title": "a CPU", "kind": "cpu", "threads": 2, "memory": 1e9, "when": "2026-01-01T00:00:00+00:00",
    "matmul": {"fp32": {"flops_per_s": 1e11, "verdict": "ok"}}, "traffic": {"copy": {"bytes_per_s": 1e10, "verdict": "ok"}},
}  # fmt: skip


@pytest.fixture
def lab(tmp_path, monkeypatch):
    """A panel before anybody recorded: neither the reader nor the authors."""
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path))
    monkeypatch.setattr(cases, "_shipped", lambda: tmp_path / "nothing ships")
    monkeypatch.setattr(own, "_ceilings", lambda bench: CEILINGS)
    return experiment_panel("matmul_sizes", time_budget=0.02, scale="toy")


def owners(panel):
    return list(dict.fromkeys(row["whose"] for row in panel.figure.data()))


def test_the_panel_offers_every_experiment_with_its_prediction(lab):
    assert [name for _, name in lab.choice.options] == list(NAMES)
    for name in NAMES:
        lab.name = name
        assert html.escape(experiment(name).prediction) in lab._prediction.value
        assert (lab.figure is None) != ("<img" in lab._shown.value)
    assert lab.records == [] and lab.status == "Not measured here yet."


def test_our_own_recording_stands_between_the_published_dots_and_the_reader_s(tmp_path, monkeypatch):
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path))
    monkeypatch.setattr(own, "_ceilings", lambda bench: CEILINGS)
    panel = experiment_panel("matmul_sizes", time_budget=0.02, scale="toy")
    panel.run()
    theirs, *ours, yours = owners(panel)
    assert "on H800" in theirs and yours == "yours: a CPU, a short run, fp32"
    assert ours and all(each.startswith("ours: ") for each in ours)


def test_run_adds_the_reader_s_dots_to_the_published_ones(lab, tmp_path, monkeypatch):
    def no_kernel():
        raise RuntimeError("no running event loop")

    monkeypatch.setattr(asyncio, "get_running_loop", no_kernel)  # the browser of an earlier test keeps one
    before = owners(lab)
    assert len(before) == 1 and "on H800" in before[0]
    lab.run_button.click()  # no kernel: it returns when the run is done
    assert lab.status == "Done: 3 cases." and len(lab.records) == 3
    assert owners(lab) == [*before, "yours: a CPU, a short run, fp32"]
    assert "n=16, data=normal" in lab._shown.value and "<img" in lab._shown.value and "<script" not in lab._shown.value
    assert lab.bar.value == lab.bar.max and lab.bar.bar_style == "success"
    assert not lab.run_button.disabled and lab.stop_button.disabled and list(tmp_path.iterdir()) == []
    lab.name = "convolutions"
    assert (
        lab.records == [] and lab.figure is None and "do not print what a place on the roof needs" in lab._shown.value
    )
    lab.name = "matmul_sizes"
    assert len(lab.records) == 3 and len(owners(lab)) == 2 and lab.status == "Measured here: 3 cases."


def test_what_the_reader_recorded_stands_there_from_the_start(lab, tmp_path):
    suite = record(tmp_path / "mine.json", only=["matmul_sizes"], device="cpu", scale="toy")
    Recording(suite.recording.attribution, suite.recording.provenance, CEILINGS, suite.recording.results).write(
        tmp_path / "mine.json"
    )
    lab.name = "dense_batch"
    lab.name = "matmul_sizes"
    lab.run()
    assert [whose.partition(":")[0] for whose in owners(lab)] == ["published", "yours", "yours"]


@pytest.mark.parametrize(("limit", "seen"), [(0, 1), (600, 3)])
def test_the_limit_ends_the_run_and_is_said(tmp_path, monkeypatch, limit, seen):
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path))
    monkeypatch.setattr(own, "_ceilings", lambda bench: CEILINGS)
    panel = experiment_panel("matmul_sizes", limit=limit, time_budget=0.02, scale="toy")
    panel.run()
    assert len(panel.records) == seen
    assert panel.status == ("The time is up: 1 case." if seen == 1 else "Done: 3 cases.")
    assert panel.bar.bar_style == "success" and panel.bar.max == (limit or 1)


def test_a_limit_below_nought_is_refused():
    with pytest.raises(ValueError, match="limit=-1: must be a finite number of seconds of at least 0"):
        experiment_panel("matmul_sizes", limit=-1)


def test_stop_keeps_what_was_measured(lab, monkeypatch):
    ended = []

    def two_and_stop(*args, **named):
        try:
            for i, case in enumerate(short_run(*args, **named)):
                if i == 1:
                    lab.stop_button.click()
                yield case
        finally:
            ended.append(True)

    monkeypatch.setattr(experiments, "short_run", two_and_stop)
    lab.run()
    assert lab.status == "Stopped: 2 cases." and len(lab.records) == 2 and lab.bar.bar_style == "warning"
    assert ended == [True] and len(owners(lab)) == 2  # the experiment's own processes are ended too


def test_an_error_is_a_sentence_and_keeps_what_was_measured(lab, monkeypatch, tmp_path):
    def breaks(*args, **named):
        yield next(short_run(*args, **named))
        raise RuntimeError("out of <memory>\nsomewhere")

    monkeypatch.setattr(experiments, "short_run", breaks)
    lab.run()
    assert lab.status == "The run ended early, by RuntimeError: out of <memory> somewhere: 1 case."
    assert "out of &lt;memory&gt; somewhere" in lab._status.value and lab.bar.bar_style == "danger"
    assert len(lab.records) == 1 and len(owners(lab)) == 2 and not lab.run_button.disabled
    (tmp_path / "mine.json").write_text("{")
    lab.name = "dense_batch"
    assert (
        lab.figure is None
        and "Nothing is drawn, by ValueError:" in lab._shown.value
        and "mine.json" in lab._shown.value
    )


def test_refused_results_are_told_and_not_drawn(lab, monkeypatch):
    def refused(*args, **named):
        for case in short_run(*args, **named):
            yield Case({**case, "verdict": "impossible"}, case.owner, case.whose, case.device, case.ceilings)

    monkeypatch.setattr(experiments, "short_run", refused)
    lab.run()
    assert lab.status == "Done: 3 cases, 3 of them refused and not drawn." and len(owners(lab)) == 1
    assert {case["verdict"] for case in lab.records} == {"impossible"} and "impossible" in lab._shown.value


def test_a_page_without_a_kernel_shows_the_roofline_or_a_sentence(lab, monkeypatch):
    live = lab._repr_mimebundle_()
    assert live["application/vnd.jupyter.widget-view+json"]["model_id"] == lab.widget.model_id
    monkeypatch.setenv("FLOPKIT_BOOK", "1")
    page = lab._repr_mimebundle_()
    assert set(page) == {"text/html", "text/plain"}
    assert "<svg" in page["text/html"] and "In a notebook with a kernel" in page["text/html"]
    lab.name = "all_reduce"
    assert lab._repr_mimebundle_()["text/html"] == f"<p>{page['text/plain']}</p>"


KERNEL = """
from itertools import count
import time
from flopkit import widgets
from flopkit.widgets import experiments
from flopkit.recordings import Case
def endless(*args, **named):
    for i in count():
        time.sleep(0.01)
        yield Case({"case": str(i), "dtype": "fp32", "verdict": "ok", "rates": {}}, "yours", "yours", "a CPU")
experiments.short_run = endless
panel = widgets.experiment_panel("all_reduce")
"""


def test_in_a_kernel_stop_is_heard_while_it_measures(monkeypatch, tmp_path):
    from jupyter_client.manager import start_new_kernel

    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path))
    manager, client = start_new_kernel(kernel_name="python3")

    def asked(name):
        reply = client.execute_interactive(
            "", user_expressions={"it": name}, timeout=60, output_hook=lambda message: None
        )
        return reply["content"]["user_expressions"]["it"]["data"]["text/plain"]

    def press(button):
        content = {"comm_id": asked(f"panel.{button}.comm.comm_id").strip("'"), "data": {"method": "custom", "content": {"event": "click"}}}  # fmt: skip
        client.shell_channel.send(client.session.msg("comm_msg", content))

    try:
        reply = client.execute_interactive(KERNEL, timeout=120, output_hook=lambda message: None)
        assert reply["content"]["status"] == "ok", reply["content"]
        press("run_button")
        for _ in range(100):
            if asked("len(panel.records) > 2") == "True":  # cells run between the cases
                break
        assert asked("panel.run_button.disabled and panel.status.startswith('Case ')") == "True"
        press("stop_button")
        for _ in range(100):
            if asked("panel.run_button.disabled") == "False":
                break
        assert asked("panel.status").startswith("'Stopped: ") and asked("len(panel.records) > 2") == "True"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_errors_of_the_panel():
    with pytest.raises(ValueError, match="matmul_sizes"):
        experiment_panel("matmul_size_")
