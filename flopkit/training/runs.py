"""A whole training run: hours, device-hours, energy and money from tokens and an MFU, and the MFU from published hours."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from flopkit import devices, units
from flopkit.sizes import number, positive
from flopkit.tables import Table
from flopkit.training.budgets import compute_optimal
from flopkit.training.steps import Step
from flopkit.utilization import hfu, mfu

__all__ = ["TrainingRun", "run_of"]


@dataclass(frozen=True, repr=False)
class TrainingRun:
    """A training run from the first to the last token, as `Model.training` makes it.

    Attributes
    ----------
    tokens, seq : Any
        Tokens of the run, and of a sequence.
    flops, hardware_flops : Any
        FLOPs that the mathematics asks for, and those that are executed, of the whole run, under EXACT.
    mfu : Utilization
        The share of the peak while it trains.
    seconds : float
        Time by the clock on the wall, in which the share *goodput* trains.
    count : int
        Devices.
    price, watts : float or None
        Dollars of an hour of one device, watts of one device.
    """

    name: str
    device: str
    tokens: Any
    seq: Any
    params: Any
    flops: Any
    hardware_flops: Any
    mfu: float
    hfu: float
    seconds: float
    count: int
    goodput: float
    price: float | None = None
    watts: float | None = None
    by_convention: dict[str, float] = field(default_factory=dict)

    @property
    def hours(self) -> float:
        """Hours on the wall."""
        return self.seconds / 3600

    @property
    def days(self) -> float:
        """Days on the wall."""
        return self.seconds / 86400

    @property
    def device_hours(self) -> float:
        """Hours of all devices together."""
        return self.count * self.hours

    @property
    def tokens_per_s(self) -> float:
        """Tokens a second of all devices together while it trains."""
        return float(self.tokens) / (self.seconds * self.goodput)

    @property
    def energy(self) -> float | None:
        """Joules of all devices, each at its *watts* all the time; None where these are not known.

        Not counted: processors, network, cooling, losses. A device rarely draws its maximum on average.
        """
        return None if self.watts is None else self.count * self.watts * self.seconds

    @property
    def kilowatt_hours(self) -> float | None:
        """The same in kilowatt-hours."""
        return None if self.energy is None else self.energy / 3.6e6

    @property
    def dollars(self) -> float | None:
        """Device-hours by the *price* of one; None where none is given."""
        return None if self.price is None else self.device_hours * self.price

    @property
    def tokens_per_parameter(self) -> float:
        """Tokens by parameters that work for a token. Chinchilla's rule is 20."""
        return float(self.tokens) / float(self.params)

    def budgets(self) -> Table:
        """How other laws would split its FLOPs between parameters and tokens, this run in the first row: see `compute_optimal`."""
        own = {
            "law": "this run",
            "FLOPs a token": self.flops / self.tokens,
            "parameters": self.params,
            "tokens": self.tokens,
        }
        own |= {"tokens a parameter": self.tokens_per_parameter, "source": ""}
        return compute_optimal(self.flops, own)

    def table(self) -> Table:
        """What the run takes, one row a quantity."""
        return Table([{"quantity": name, "value": said} for name, said in self._said()], caption=self._title)

    @property
    def _title(self) -> str:
        return f"{self.name}: {self.tokens:.4g} tokens in sequences of {self.seq:,} on {self.count:,} × {self.device}"

    def _said(self) -> list[tuple[str, str]]:
        shares = ", ".join(f"{units.percent(share)} under {name}" for name, share in self.by_convention.items())
        rows = [
            ("model FLOPs", f"{units.si(self.flops, 'FLOPs')} [EXACT]"),
            ("tokens a parameter", f"{self.tokens_per_parameter:,.1f} (Chinchilla's rule: 20)"),
            ("MFU", f"{units.percent(self.mfu)} [EXACT]" + (f"; {shares}" if shares else "")),
        ]
        if self.hardware_flops != self.flops:
            rows.append(("HFU", f"{units.percent(self.hfu)} [EXACT]"))
        rows.append(("tokens a second", f"{self.tokens_per_s:,.0f}"))
        if self.goodput != 1:
            rows.append(("goodput", units.percent(self.goodput)))
        if self.count > 1:
            rows.append(("hours", f"{self.hours:,.1f} ({self.days:,.1f} days)"))
        rows.append(("device-hours", f"{self.device_hours:,.0f}"))
        if self.kilowatt_hours is not None:
            rows.append(("energy, at most", f"{self.kilowatt_hours:,.0f} kWh at {self.watts:,.0f} W a device"))
        if self.dollars is not None:
            rows.append(("dollars", f"{self.dollars:,.0f}"))
        return rows

    def __repr__(self) -> str:
        return "\n".join([self._title, *(f"{name}: {said}" for name, said in self._said())])

    def _repr_html_(self) -> str:
        return self.table()._repr_html_()


def run_of(
    step: Step, *, name: str, seq: Any, params: Any, tokens: Any, device: Any, count: Any, dtype: Any, goodput: float,
    price: float | None, watts: float | None, **speed: Any,
) -> TrainingRun:  # fmt: skip
    """The run of *tokens* tokens whose steps are like *step*. *speed*: one of ``mfu``, ``device_hours``, ``hours``, ``tokens_per_s``.

    >>> import flopkit as fk
    >>> fk.load("gpt2").training(tokens=10e9, device="a100-sxm-80gb", count=8, mfu=0.3)
    gpt2: 1e+10 tokens in sequences of 1,024 on 8 × NVIDIA A100 SXM4 80 GB
    model FLOPs: 7.979 EFLOPs [EXACT]
    tokens a parameter: 80.4 (Chinchilla's rule: 20)
    MFU: 30 % [EXACT]; 32.3 % under PALM, 28.1 % under SIX_N
    HFU: 30.4 % [EXACT]
    tokens a second: 938,498
    hours: 3.0 (0.1 days)
    device-hours: 24
    energy, at most: 9 kWh at 400 W a device
    """
    card = devices.device(device)
    tokens, count = number("tokens", _whole(tokens)), number("count", count)
    share = float(positive("goodput", goodput, most=1))
    given = {name: value for name, value in speed.items() if value is not None}
    if len(given) != 1:
        said = ", ".join(f"{name}={value}" for name, value in given.items()) or "none"
        raise ValueError(
            f"give one of mfu=, device_hours=, hours=, tokens_per_s=, which the others follow from; given: {said}"
        )
    [(how, value)] = given.items()
    steps = tokens / step.tokens
    flops, executed = steps * step.model_flops, steps * step.hardware_flops
    if how == "mfu":
        training = flops / (float(positive("mfu", value, most=1)) * count * card.peak(dtype))
    elif how == "tokens_per_s":
        training = tokens / float(positive("tokens_per_s", value))
    else:
        hours = float(positive(how, value, "hours"))
        training = share * 3600 * (hours / count if how == "device_hours" else hours)
    rates: dict[str, Any] = {"seconds": training / steps, "device": card, "dtype": dtype, "count": count}
    own = mfu(step, **rates)
    names = (
        () if step.forward.macs_by_kind.get("idle", 0) else ("PALM", "SIX_N")
    )  # which count experts that nobody chose
    others = {each: float(own * step.under(each).model_flops / step.model_flops) for each in names}
    return TrainingRun(
        name=name, device=card.title, tokens=tokens, seq=seq, params=params, flops=flops, hardware_flops=executed,
        mfu=own, hfu=hfu(step, **rates), seconds=training / share, count=count, goodput=share,
        price=None if price is None else float(positive("price", price, "dollars")), watts=_watts(card, watts), by_convention=others,
    )  # fmt: skip


def _whole(tokens: Any) -> Any:
    """15e12 is a whole number, too."""
    return int(tokens) if isinstance(tokens, float) and tokens.is_integer() else tokens


def _watts(card: Any, watts: float | None) -> float | None:
    if watts is not None:
        return float(positive("watts", watts, "watts"))
    own: float | None = card.watts
    return own
