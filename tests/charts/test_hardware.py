"""The devices that a figure offers, and what its caption says of where their numbers are from."""

import pytest

from flopkit.book import gallery
from flopkit.charts import Tasks
from flopkit.charts.hardware import DEVICES, peaks_note
from flopkit.devices import device

READ = (
    "a100-sxm-80gb",
    "l4",
    "rtx-4090",
)  # in a white paper or data sheet of NVIDIA; the others in tables of third parties


def test_whose_documents_were_read():
    for name in dict.fromkeys(name for name, _ in DEVICES):
        theirs = [part for part in device(name).source.split("; ") if part.startswith(device(name).vendor)]
        assert bool(theirs) == (name in READ), (name, device(name).source)
        assert (device(name).title.removeprefix("NVIDIA ").removeprefix("GeForce ") in peaks_note()) == (name in READ)
    assert "public tables" in peaks_note([("h100-sxm", "bf16")]) and ": from a document" not in peaks_note(
        [("h100-sxm", "bf16")]
    )


@pytest.mark.parametrize("figure", gallery.__all__)
def test_no_caption_credits_a_data_sheet_that_nobody_read(figure):
    made = getattr(gallery, figure)()
    for each in made if isinstance(made, Tasks) else [made]:
        assert "data sheet" not in each.caption
