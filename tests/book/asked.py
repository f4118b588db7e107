"""The questions of the calculator as figures, with all their controls, for the tests of their numbers."""

from dataclasses import replace

from flopkit.book.gallery import calculator_model, calculators
from flopkit.book.gallery.calculate_fit import STATES
from flopkit.charts.figure import Figure
from flopkit.charts.panel import slider
from flopkit.models import hf_config
from flopkit.models.architectures import FORMS
from flopkit.models.files.config_fields import Fields, left_out

START = calculator_model.presets()
SIZES = calculator_model.size_controls(START["Llama-3-8B"])


def figure(name, model):
    """All controls, of which a question reads its own."""
    share = slider("share", "MFU", [0.1, 0.4, 1])  # in percent on the page
    controls = [replace(each, idle="") for each in (*calculators.run_controls().values(), *SIZES, share)]
    return Figure(name=name, title=name, alt="Results.", model=model, controls=controls, refused="refused")


def numbers(name):
    """The controls of a model that is known by name."""
    config = hf_config(name)
    kind = config["model_type"]
    return calculator_model.settings_of(FORMS[kind](Fields(config, kind, left_out(kind))))


__all__ = ["STATES", "START", "figure", "numbers"]
