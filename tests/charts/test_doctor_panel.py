"""The doctor's form: a line of a log as it stands, what its framework prints, ours, and the cause."""

from __future__ import annotations

import pytest

pytest.importorskip("ipywidgets")

import flopkit as fk
from flopkit.widgets import doctor_panel


def test_a_line_as_it_stands_gets_its_mfu_ours_and_the_cause():
    """torchtitan's own row of Llama 3.1 8B on eight H100s: it counts the hidden pairs."""
    form = doctor_panel()
    found = fk.doctor(
        model="llama-3.1-8b", seq=8192, device="h100-sxm", count=8, tokens_per_s_per_device=6667, reported="39.02%"
    )
    assert form.diagnosis.mfu == found.mfu
    assert form.status.startswith("A line of torchtitan, which prints 39.02 %. By EXACT the MFU is 34.7 %. causal ×2")


def test_a_field_that_changes_is_asked_about_at_once():
    form = doctor_panel()
    before = form.diagnosis.mfu
    form.fields["device"].value = "NVIDIA H200"
    assert form.diagnosis.mfu == pytest.approx(
        before, rel=2e-4
    )  # the data has the peaks of H100 and H200 in four digits, one apart
    form.fields["device"].value = "NVIDIA B200"
    assert form.diagnosis.mfu < 0.6 * before
    form.fields["count"].value = "16"
    assert form.diagnosis is not None and "16" in str(form.diagnosis)


def test_what_a_line_lacks_is_said_and_can_be_typed():
    form = doctor_panel(
        "iter 2980: loss 3.8993, time 1099.18ms, mfu 15.34%", model="gpt2", seq=1024, device="A10", count=1
    )
    assert form.diagnosis is None and "global_batch" in form.status and "nanoGPT" in form.status
    form.set(global_batch=40)
    seconds = 1.09918
    assert form.diagnosis.mfu == pytest.approx(
        fk.mfu(fk.load("gpt2").train_step(seq=1024, batch=40), seconds=seconds, device="a10")
    )
    assert "15.3 %" in form.status


def test_a_line_without_an_mfu_takes_one_that_somebody_reported():
    form = doctor_panel("step: 10  loss:  7.1  memory: 54.61GiB(57.45%)  tps: 6,667", reported="39.02 %")
    assert form.diagnosis.reported == pytest.approx(0.3902)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"line": "it works"}, "line"),
        ({"seq": "abc"}, "seq='abc': must be a whole number"),
        ({"device": ""}, "the device is missing"),
        ({"device": "H2O"}, "is not a device in the data"),
        ({"model": "lama-9"}, "lama-9"),
        ({"count": "0"}, "count=0"),
        ({"line": ""}, "line"),
    ],
)
def test_bad_input_is_a_sentence_and_the_form_stays(fields, said):
    form = doctor_panel()
    form.set(**fields)
    assert form.diagnosis is None and said in form.status
    form.set(line=doctor_panel().fields["line"].value, model="llama-3.1-8b", seq=8192, device="h100-sxm", count=8)
    assert form.diagnosis is not None


def test_a_field_that_there_is_not():
    with pytest.raises(ValueError, match="color: the form has line, model"):
        doctor_panel().set(color="red")


def test_a_page_without_a_kernel_shows_the_line_and_what_was_found(monkeypatch):
    form = doctor_panel()
    live = form._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in live and live["text/plain"] == form.status
    monkeypatch.setenv("FLOPKIT_BOOK", "1")
    page = form._repr_mimebundle_()
    assert set(page) == {"text/html", "text/plain"} and "6,667" in page["text/html"] and "34.7" in page["text/html"]
