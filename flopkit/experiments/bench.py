"""The bench that experiments run on: a device, how large the cases may be, and what was
measured already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from flopkit import machine
from flopkit.measuring.running import measure
from flopkit.measuring.workloads import tf32_allowed, torch_dtype
from flopkit.peers.quietly import same_random_state

__all__ = ["SCALES", "Bench", "Record"]

Record = dict[str, Any]  # plain values: what a recording keeps of a case, see flopkit/data/recording.schema.json

SCALES = {"toy": 0.05, "cpu": 1.0, "gpu": None}  # seconds a case, where the caller names none


class Bench:
    """Where experiments run.

    Parameters
    ----------
    device : str, optional
        ``"cpu"`` or ``"cuda"``. None: the CUDA device where there is one, else the CPU.
    scale : str, optional
        ``"toy"``: sizes for a test; ``"cpu"``: seconds on two cores; ``"gpu"``: sizes
        that fill a GPU. None: by the device.
    time_budget : float, optional
        Seconds of a case. None: by the scale.
    known : Mapping[str, Record], optional
        Cases that were measured before, by `key`: they are not measured again.
    keep : Callable[[Record], None], optional
        Called with each new record as soon as it is there, so that an interruption
        loses nothing.

    Examples
    --------
    >>> import torch
    >>> bench = Bench("cpu", "toy")
    >>> record = bench.case("matmul_sizes", {"n": 8}, bench.random(torch.mm, "fp32", (8, 8), (8, 8)), "fp32")
    >>> record["case"], record["counted"]["flops"], record["verdict"]
    ('n=8', 1024, 'ok')
    """

    def __init__(
        self, device: str | None = None, scale: str | None = None, *, time_budget: float | None = None,
        known: Mapping[str, Record] | None = None, keep: Callable[[Record], None] | None = None,
    ) -> None:  # fmt: skip
        import torch

        self.device = machine.place(device)
        self.scale = scale or ("gpu" if self.device.type == "cuda" else "cpu")
        if self.scale not in SCALES:
            raise ValueError(f"scale={scale!r}: must be one of {', '.join(SCALES)}")
        self.time_budget = SCALES[self.scale] if time_budget is None else time_budget
        self.known = dict(known or {})
        self.keep = keep or (lambda record: None)
        self._random = torch.Generator(self.device).manual_seed(0)

    def pick(self, *, toy: Any, cpu: Any, gpu: Any) -> Any:
        """What is meant for this bench's scale."""
        return {"toy": toy, "cpu": cpu, "gpu": gpu}[self.scale]

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Number formats worth measuring here, the usual one for training first."""
        import torch

        if self.device.type != "cuda":
            return ("fp32",)
        major, _minor = torch.cuda.get_device_capability(self.device)
        return ("bf16", "tf32", "fp32") if major >= 8 else ("fp16", "fp32")

    def randn(self, dtype: str, *shape: int) -> Any:
        """Normal numbers on the device, in the format that products of *dtype* take:
        the caller's random numbers go on as they would."""
        import torch

        return torch.randn(*shape, device=self.device, generator=self._random).to(torch_dtype(dtype))

    def random(self, fn: Callable[..., Any], dtype: str, *shapes: tuple[int, ...]) -> Callable[[], tuple[Any, ...]]:
        """A *make* for `case`: a function of `randn` of these shapes."""
        return lambda: (fn, *(self.randn(dtype, *shape) for shape in shapes))

    def case(
        self, experiment: str, params: Mapping[str, Any], make: Callable[[], tuple[Any, ...]], dtype: str, *,
        flops: float | None = None, bytes: float | None = None, check: Callable[..., Any] | None = None,
        time_budget: float | None = None, extra: Mapping[str, Any] | Callable[[], Mapping[str, Any]] | None = None,
    ) -> Record:  # fmt: skip
        """Measure one case, or hand back what is known of it.

        Parameters
        ----------
        experiment : str
            The name of the experiment's file.
        params : Mapping[str, Any]
            What tells this case from others; plain values.
        make : Callable[[], tuple[Any, ...]]
            Gives the function and its arguments, ``(fn, *args)``; called only if the
            case is to be measured.
        dtype : str
            Number format of the products. While the case runs, torch may round products
            of fp32 to TF32, unless this is ``"fp32"``: products of other formats may
            need some of fp32, too. The record's protocol says it.
        flops : float, optional
            FLOPs of a call. None: they are counted.
        bytes : float, optional
            Bytes of a call. None: they are counted.
        check : Callable[..., Any], optional
            A function of the same arguments that gives the right result.
        time_budget : float, optional
            Seconds of this case where neither caller nor scale names any.
        extra : Mapping[str, Any] | Callable[[], Mapping[str, Any]], optional
            Further plain numbers to keep, such as ``{"model_flops": …}``, or a function
            that finds them once the case is measured.
        """
        key = self.key(experiment, params, dtype)
        if key in self.known:
            return self.known[key]
        import torch

        allowed = dtype != "fp32"
        with tf32_allowed(allowed), torch.no_grad():  # a step turns gradients on for itself, its check needs none
            with same_random_state():
                torch.manual_seed(0)  # the same weights in every run, and the caller's random numbers go on
                fn, *args = make()
            seconds = time_budget if self.time_budget is None else self.time_budget
            found = measure(fn, *args, time_budget=seconds, flops=flops, bytes=bytes, check=check)
            more = extra() if callable(extra) else extra
        record = found.record()
        protocol = {**record["protocol"], "tf32_allowed": allowed}
        return self.add(experiment, params, dtype, {**record, "protocol": protocol, "extra": dict(more or {})})

    def add(self, experiment: str, params: Mapping[str, Any], dtype: str, measured: Mapping[str, Any]) -> Record:
        """Keep what was *measured* of a case, by this bench or by a program that it
        started: ``{**measurement.record(), "extra": {…}}``."""
        named = ", ".join(f"{name}={value}" for name, value in params.items())
        record = {"experiment": experiment, "case": named, "params": dict(params), "dtype": dtype, **measured}
        self.known[self.key(experiment, params, dtype)] = record
        self.keep(record)
        return record

    @staticmethod
    def key(experiment: str, params: Mapping[str, Any], dtype: str) -> str:
        """What tells a case from all others."""
        return " ".join([experiment, *(f"{name}={value}" for name, value in params.items()), dtype])
