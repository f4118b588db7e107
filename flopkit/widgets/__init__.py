"""What talks to a kernel: a figure whose sliders a cell further down reads or moves, a panel that runs experiments, and a form of the doctor.

    from flopkit import widgets
    from flopkit.book import gallery
    panel = widgets.explore(gallery.dense_roofline())
    panel                       # shows the figure
    panel.settings              # {'tokens': 64, 'd_in': 4096, ...}
    panel.results["flops"]      # what the model says at these settings

    lab = widgets.experiment_panel()
    lab                         # shows a choice of experiments, Run and Stop
    lab.records                 # what was measured, when it has run

    form = widgets.doctor_panel()
    form                        # takes a line of a log as it stands
    form.diagnosis              # what the doctor found

The figure is that of the page, with the page's own script; `anywidget` carries the settings to and fro. The panels are made of `ipywidgets`.
JupyterLab, Notebook and VS Code need no network for either; Colab fetches its own widget manager. There is no arithmetic here.
"""

from flopkit.widgets.doctor import DoctorPanel, doctor_panel
from flopkit.widgets.experiments import ExperimentPanel, experiment_panel
from flopkit.widgets.explorer import Explorer, explore

__all__ = ["DoctorPanel", "ExperimentPanel", "Explorer", "doctor_panel", "experiment_panel", "explore"]
