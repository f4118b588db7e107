"""A form of the doctor: a line of a log, the model and the devices; what it finds, below."""

from __future__ import annotations

import os
from html import escape
from typing import Any

from flopkit.charts.packages import need
from flopkit.devices import device_names
from flopkit.diagnosis import doctor, read_log
from flopkit.diagnosis.findings import Diagnosis
from flopkit.diagnosis.logs import LogLine
from flopkit.models.catalogue import model_names

__all__ = ["DoctorPanel", "doctor_panel"]

LINE = "step: 10  loss:  7.1  grad_norm:  1.9  memory: 54.61GiB(57.45%)  tps: 6,667  tflops: 386.08  mfu: 39.02%"
"""Of torchtitan on eight H100s, what the form shows at first: its benchmarks' Llama-3.1-8B."""
NO_KERNEL = (
    "In a notebook with a kernel, a form stands here: paste a line of your log, choose the model and the device."
)
ASKED = ("model", "seq", "device", "count", "global_batch", "reported")


def doctor_panel(
    line: str = LINE, *, model: str = "llama-3.1-8b", seq: int = 8192, device: str = "h100-sxm", count: int = 8, global_batch: int | None = None,
    reported: str | None = None,
) -> DoctorPanel:  # fmt: skip
    """A form of `flopkit.doctor`: paste a line of a training log as it stands.

    Below the fields it says what the line's framework printed, our MFU beside it, and the cause of the difference, or that no known mistake
    explains it.

    Parameters
    ----------
    line : str, optional
        What stands in the box at first, as `flopkit.diagnosis.read_log` reads it. Several lines will do.
    model : str, optional
        A name that `load` knows, or the path of a ``config.json``.
    seq : int, optional
        Tokens of a sequence.
    device : str, optional
        One of `device_names`, or a name that a driver prints.
    count : int, optional
        Devices of the job.
    global_batch : int, optional
        Sequences of a step, for a line that has the time of a step alone.
    reported : str, optional
        An MFU that somebody reported, for a line without one.

    Raises
    ------
    ImportError
        Where ipywidgets is missing.

    Examples
    --------
    >>> form = doctor_panel()
    >>> round(form.diagnosis.mfu, 3), form.diagnosis.explanations[0].name
    (0.347, 'causal ×2: hidden pairs counted')
    >>> form.set(line="iter 10: loss 3.9")
    >>> form.diagnosis is None
    True
    """
    panel = DoctorPanel()
    panel.set(line=line, model=model, seq=seq, device=device, count=count, global_batch=global_batch, reported=reported)
    return panel


class DoctorPanel:
    """A line of a log, the run that it belongs to, and what `doctor` says of it whenever a field changes.

    Attributes
    ----------
    diagnosis : Diagnosis | None
        What was found; None where the fields do not say enough, and *status* says what is missing.
    said : LogLine | None
        What the line says.
    status : str
        A sentence on both.
    """

    def __init__(self) -> None:
        w = need("ipywidgets")
        wide = {"width": "100%"}
        self.diagnosis: Diagnosis | None = None
        self.said: LogLine | None = None
        self.status = ""
        self.fields: dict[str, Any] = {
            "line": w.Textarea(description="Log", rows=3, layout=wide, continuous_update=False),
            "model": w.Combobox(description="Model", options=model_names(), continuous_update=False),
            "seq": w.Text(description="Sequence", placeholder="tokens of a sequence", continuous_update=False),
            "device": w.Combobox(description="Device", options=device_names(), continuous_update=False),
            "count": w.Text(description="Devices", continuous_update=False),
            "global_batch": w.Text(description="Batch", placeholder="sequences of a step, if the line asks for it", continuous_update=False),
            "reported": w.Text(description="Reported", placeholder="an MFU, if the line has none", continuous_update=False),
        }  # fmt: skip
        self._status, self._shown = w.HTML(), w.HTML()
        fields = list(self.fields.values())
        self.widget = w.VBox(
            [fields[0], w.Box(fields[1:], layout={"flex_flow": "row wrap"}), self._status, self._shown]
        )
        for field in fields:
            field.observe(lambda change: self._ask(), "value")

    def set(self, **values: Any) -> None:
        """Fill in fields by name: *line*, *model*, *seq*, *device*, *count*, *global_batch*, *reported*."""
        if unknown := sorted(set(values) - set(self.fields)):
            raise ValueError(f"{unknown[0]}: the form has {', '.join(self.fields)}")
        for name, value in values.items():
            self.fields[name].value = "" if value is None else str(value)
        self._ask()

    def _ask(self) -> None:
        self.diagnosis = self.said = None
        try:
            self.said = read_log(self.fields["line"].value)
            self.diagnosis = doctor(**self._arguments(self.said))
        except (ValueError, TypeError) as error:
            whose = f"A line of {self.said.framework}. " if self.said else ""
            self._say(whose + " ".join(str(error).split()), "")
            return
        self._say(_sentence(self.said, self.diagnosis), self.diagnosis._repr_html_())

    def _arguments(self, said: LogLine) -> dict[str, Any]:
        """Those of `doctor`: what the line says, and of the fields those that it does not say."""
        asked = {name: self.fields[name].value.strip() for name in ASKED}
        found: dict[str, Any] = {name: text for name, text in asked.items() if text and name not in said.arguments}
        for name in ("seq", "count", "global_batch"):
            if name in found:
                if not found[name].replace(",", "").replace("_", "").isdigit():
                    raise ValueError(f"{name}={found[name]!r}: must be a whole number")
                found[name] = int(found[name].replace(",", "").replace("_", ""))
        if "device" not in found:
            raise ValueError("the device is missing: choose one, or type what nvidia-smi prints")
        return {**found, **said.arguments}

    def _say(self, status: str, shown: str) -> None:
        self.status = status
        self._status.value, self._shown.value = f'<p role="status">{escape(status)}</p>', shown

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> Any:
        if os.environ.get("FLOPKIT_BOOK"):
            shown = self.diagnosis._repr_html_() if self.diagnosis else ""
            return {
                "text/html": f"<p>{NO_KERNEL}</p><pre>{escape(self.fields['line'].value)}</pre><p>{escape(self.status)}</p>{shown}",
                "text/plain": NO_KERNEL,
            }
        view = {"version_major": 2, "version_minor": 0, "model_id": self.widget.model_id}
        return {"application/vnd.jupyter.widget-view+json": view, "text/plain": self.status}


def _sentence(said: LogLine, found: Diagnosis) -> str:
    theirs = said.arguments.get("reported")
    printed = f"prints {theirs}" if theirs else "prints no MFU"
    because = ""
    if theirs or found.reported:
        because = f" {found.explanations[0]}" if found.explanations else " No known mistake explains the difference."
    return f"A line of {said.framework}, which {printed}. By EXACT the MFU is {100 * found.mfu:.3g} %.{because}"
