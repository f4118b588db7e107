"""A panel that runs experiments."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Generator
from html import escape
from typing import Any

from flopkit.charts import html, measured, on_one_roof, published
from flopkit.charts.figure import Figure
from flopkit.charts.packages import need
from flopkit.experiments import NAMES, experiment, short_run
from flopkit.recordings import Case, records, shown_records
from flopkit.sizes import positive

__all__ = ["ExperimentPanel", "experiment_panel"]

PAUSE = 0.05  # s between two cases, in which a kernel reads that Stop was pressed
# Published rows that stand beside an experiment: of those that have a place on the roof, the device of the newest.
PUBLISHED = dict.fromkeys(("matmul_sizes", "matmul_tiles", "dense_batch"), "h800")
CONCLUSION = "Each dot is one measurement: a share of its own device's ceiling, over its arithmetic intensity as a share of that device's ridge point."
NO_KERNEL = (
    "In a notebook with a kernel, a panel stands here: choose an experiment, press Run, and your dots join these."
)


def experiment_panel(
    name: str = "matmul_sizes", *, limit: float = 60.0, time_budget: float = 0.3, scale: str | None = None
) -> ExperimentPanel:
    """A panel that runs experiments: a choice, what was predicted, Run and Stop, a progress bar, and the dots on one roofline.

    The reader's dots stand beside those of recordings, their own and flopkit's, and published ones. Nothing is written to a file:
    ``python -m flopkit record`` measures at length and keeps. In a page without a kernel the roofline stands alone.

    Parameters
    ----------
    name : str, optional
        The experiment that is chosen at first.
    limit : float, optional
        Seconds that the cases may take together: none is begun that, as long as the longest so far, would end later. One is always measured.
    time_budget : float, optional
        Seconds of a case.
    scale : str, optional
        ``"toy"``, ``"cpu"`` or ``"gpu"``: how large the cases are. None: by the device.

    Raises
    ------
    ImportError
        Where ipywidgets is missing.
    ValueError
        For an experiment that there is not, with near ones, and for a limit below 0.

    Examples
    --------
    >>> panel = experiment_panel("matmul_sizes", time_budget=0.02, scale="toy")
    >>> panel.run()  # the button does the same
    >>> [case["case"] for case in panel.records]
    ['n=16, data=normal', 'n=32, data=normal', 'n=32, data=zeros']
    >>> panel.status.startswith("Done: 3 cases")
    True
    """
    positive("limit", limit, "seconds", zero=True)
    return ExperimentPanel(experiment(name).name, {"limit": limit, "time_budget": time_budget, "scale": scale})


class ExperimentPanel:
    """A choice of experiments and what they gave here.

    Cases run one after the other where cells run, never beside a cell, which would make both slower. So Stop ends the run with the case that
    is being measured, and what was measured stays.
    """

    def __init__(self, name: str, settings: dict[str, Any]) -> None:
        w = need("ipywidgets")
        self._settings, self._found, self._stopped = settings, dict[str, list[Case]](), False
        self._running: asyncio.Task[None] | None = None  # held: a task that nobody holds may vanish
        self.figure: Figure | None = None
        options = [(experiment(each).title, each) for each in NAMES]
        self.choice = w.Dropdown(description="Experiment", options=options, value=name, layout={"width": "100%"})
        self.run_button = w.Button(description="Run", button_style="primary", tooltip="Measure on this machine")
        self.stop_button = w.Button(description="Stop", disabled=True, tooltip="Stop after this case and keep the rest")
        self.bar = w.FloatProgress(min=0, max=settings["limit"] or 1, description="Time", layout={"width": "20em"})
        self._prediction, self._status, self._shown = (w.HTML() for _ in range(3))
        buttons = w.HBox([self.run_button, self.stop_button, self.bar])
        self.widget = w.VBox([self.choice, self._prediction, buttons, self._status, self._shown])
        self.status = ""
        self.choice.observe(lambda change: self._choose(), "value")
        self.run_button.on_click(lambda button: self._press())
        self.stop_button.on_click(lambda button: self.stop())
        self._choose()

    @property
    def name(self) -> str:
        """The experiment that is chosen; setting it chooses another."""
        return str(self.choice.value)

    @name.setter
    def name(self, name: str) -> None:
        self.choice.value = experiment(name).name

    @property
    def records(self) -> list[Case]:
        """What this panel measured of the experiment that is chosen, refused results too."""
        return list(self._found.get(self.name, []))

    def run(self) -> None:
        """Measure the experiment that is chosen, and return when it is done. The Run button leaves the notebook free to press Stop."""
        for _ in self._steps():
            pass

    def stop(self) -> None:
        """End the run after the case that is being measured, and keep what there is."""
        self._stopped = True
        if self.stop_button.disabled is False:
            self._say("Stopping after this case …")

    def _press(self) -> None:
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # no kernel: nothing could press Stop
            return self.run()
        self._running = loop.create_task(self._run_between_messages())

    async def _run_between_messages(self) -> None:
        with contextlib.closing(self._steps()) as steps:
            for _ in steps:
                await asyncio.sleep(PAUSE)

    def _steps(self) -> Generator[None, None, None]:
        """Measure, giving way after each case."""
        if self.run_button.disabled:  # running
            return
        self._stopped, start = False, time.monotonic()
        found = self._found[self.name] = []
        self.bar.value, self.bar.bar_style = 0, ""
        self._busy(True)
        self._say("Counting, and measuring the ceilings of this machine where none are kept …")
        how, end = "warning", "Stopped"
        try:
            yield
            with contextlib.closing(short_run(self.name, **self._settings)) as run:
                over = None
                while over is None and not self._stopped:
                    try:
                        found.append(case := next(run))
                    except StopIteration as ended:
                        over = "The time is up" if ended.value else "Done"
                    else:
                        self.bar.value = time.monotonic() - start
                        self._say(f"Case {len(found)}: {case['case']}, {case['dtype']}")
                        yield
            if over is not None:
                how, end = "success", over
        except Exception as error:
            how, end = "danger", _sentence("The run ended early", error)
        finally:
            self.bar.value, self.bar.bar_style = self.bar.max, how
            self._busy(False)
            self._draw()
            refused = sum(case["verdict"] != "ok" for case in found)
            left_out = f", {refused} of them refused and not drawn" if refused else ""
            self._say(f"{end}: {_cases(len(found))}{left_out}.")

    def _busy(self, busy: bool) -> None:
        self.run_button.disabled = self.choice.disabled = busy
        self.stop_button.disabled = not busy

    def _choose(self) -> None:
        self._prediction.value = (
            f"<p><b>Predicted before it was measured:</b> {escape(experiment(self.name).prediction)}</p>"
        )
        self._draw()
        self._say(f"Measured here: {_cases(len(self.records))}." if self.records else "Not measured here yet.")

    def _say(self, text: str) -> None:
        self.status = text
        self._status.value = f'<p role="status">{escape(text)}</p>'

    def _draw(self) -> None:
        """The roofline with all that has a place on it, and the table of what was measured here."""
        try:
            self.figure, beside = self._roof()
            drawn = html.still(self.figure) if self.figure else ""
        except Exception as error:  # a damaged recording, a package that is missing: nobody would see it raised
            self.figure, drawn, beside = None, "", _sentence("Nothing is drawn", error)
        own = shown_records(self.records, "Measured here")._repr_html_() if self.records else ""
        self._shown.value = f"{drawn}{own}<p>{escape(beside)}</p>"

    def _roof(self) -> tuple[Figure | None, str]:
        """The figure, or None where nothing has a place on it, and a sentence on what is not there."""
        theirs = records(self.name, owner="theirs")
        layers = (
            published(records(self.name, owner="theirs", device=PUBLISHED[self.name])) if self.name in PUBLISHED else []
        )
        beside = "" if layers or not theirs else (
            f"{len(theirs)} published measurements of this kind do not print what a place on the roof needs: "
            f"flopkit.recordings.records({self.name!r}, owner='theirs') lists them."
        )  # fmt: skip
        for owner in ("ours", "yours"):
            layers += measured(records(self.name, owner=owner))
        layers += measured(self.records)
        figure = on_one_roof(layers, experiment(self.name).title, CONCLUSION) if layers else None
        return figure, beside

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        if os.environ.get("FLOPKIT_BOOK"):
            return {
                "text/html": f"{html.show(self.figure) if self.figure else ''}<p>{NO_KERNEL}</p>",
                "text/plain": NO_KERNEL,
            }
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {
            "application/vnd.jupyter.widget-view+json": view,
            "text/html": f"<p>{NO_KERNEL}</p>",
            "text/plain": NO_KERNEL,
        }


def _cases(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"


def _sentence(what: str, error: Exception) -> str:
    return f"{what}, by {type(error).__name__}: {' '.join(str(error).split())}"
