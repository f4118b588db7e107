"""One training step each of three networks under hardware counters, operator by
operator.

As a program, ``python -m flopkit.experiments.under_counters FOLDER NAME SECONDS``, it
runs a step on the CUDA device. A dispatch mode sees each operator that the step calls.
Of calls with the same shapes it lets the first be watched, behind a delimiter kernel,
and `flopkit.count` counts the same call by itself; the others run unwatched, and are
taken to run the same kernels.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flopkit import machine, units
from flopkit.counter.running import count
from flopkit.experiments.decoder import DecoderSizes, decoder, next_token_loss, take_step
from flopkit.measuring.hardware import ncu
from flopkit.tables import Table

__all__ = ["STEPS", "check", "compared", "is_step", "run_step", "shown", "watched"]

TENSOR = ("bf16", "fp16", "fp8", "tf32", "fp64", "int8")  # formats that tensor cores multiply
SECONDS = 90.0  # after which no further call is watched: what is left out is said


def _cnn(name: str) -> Callable[[Any, bool], Callable[[], Any]]:
    def made(where: Any, small: bool) -> Callable[[], Any]:
        import torch
        import torchvision
        from torch.nn.functional import cross_entropy

        batch, pixels = (2, 64) if small else (32, 224)
        dtype = torch.float32 if small else torch.bfloat16
        net = getattr(torchvision.models, name)().to(where, dtype, memory_format=torch.channels_last).train()
        images = torch.randn(batch, 3, pixels, pixels, device=where).to(dtype, memory_format=torch.channels_last)
        labels = torch.randint(1000, (batch,), device=where)
        return lambda: take_step(cross_entropy(net(images), labels), net.parameters())

    return made


def _gpt(where: Any, small: bool) -> Callable[[], Any]:
    """A block as wide as GPT-3 XL's, with its embedding, head and loss."""
    import torch

    sizes = DecoderSizes(layers=1, d_model=2048, heads=16, kv_heads=16, d_ff=5504, vocab=32000)
    batch, seq = 4, 2048
    if small:
        sizes, batch, seq = DecoderSizes(layers=1, d_model=32, heads=4, kv_heads=4, d_ff=64, vocab=128), 2, 16
    net = decoder(sizes, where, torch.float32 if small else torch.bfloat16)
    tokens = torch.randint(sizes.vocab, (batch, seq + 1), device=where)
    return lambda: take_step(next_token_loss(net, tokens), net.parameters())


STEPS: dict[str, Callable[[Any, bool], Callable[[], Any]]] = {
    "gpt_block": _gpt, "resnet50": _cnn("resnet50"), "mobilenet_v2": _cnn("mobilenet_v2"),
}  # fmt: skip


def watched(
    run: Callable[[], Any], profiled: Callable[[Callable[[], Any]], Any], seconds: float = SECONDS
) -> list[dict[str, Any]]:
    """Run a step; of each operator with certain shapes the first call goes through
    *profiled*.

    Returns
    -------
    list[dict[str, Any]]
        For each operator and its shapes, in the order of their first calls:
        ``operator``, ``shapes``, ``dtype``, ``calls``, ``counted`` (``flops``,
        ``vector_flops`` and ``bytes`` of one call, convention EXACT) and whether it was
        ``watched``.
    """
    from torch.utils._python_dispatch import TorchDispatchMode
    from torch.utils._pytree import tree_leaves

    lines: dict[Any, dict[str, Any]] = {}
    end = time.monotonic() + seconds

    class Watch(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = kwargs or {}
            leaves = tree_leaves((args, named))
            shown = [
                (tuple(each.shape), str(each.dtype), each.stride()) if hasattr(each, "stride") else repr(each)
                for each in leaves
            ]
            key = (str(func), *map(str, shown))
            if key in lines:
                lines[key]["calls"] += 1
                return func(*args, **named)
            found: list[Any] = []
            report = count(lambda: found.append(func(*args, **named))).under("EXACT")
            tensors = [each for each in leaves if hasattr(each, "stride")]
            lines[key] = {
                "operator": func._schema.name.partition("::")[2], "shapes": [list(each.shape) for each in tensors],
                "dtype": str(tensors[0].dtype).partition(".")[2] if tensors else "", "calls": 1,
                "counted": {"flops": report.flops, "vector_flops": report.vector_flops, "bytes": report.bytes},
                "uncounted": bool(report.uncounted), "watched": False,
            }  # fmt: skip
            if not report.bytes or time.monotonic() > end:  # a view launches no kernel
                return found[0]
            lines[key]["watched"] = True
            return profiled(lambda: func(*args, **named))

    with Watch():  # type: ignore[no-untyped-call]
        run()
    return list(lines.values())


def run_step(folder: Path, name: str, seconds: float = SECONDS) -> None:
    """Run a step on the CUDA device under Nsight Compute, and write what was counted to
    ``cases.json``."""
    import torch

    cuda: Any = torch.cuda

    def profiled(call: Callable[[], Any]) -> Any:
        cuda.synchronize()
        cuda.cudart().cudaProfilerStart()
        cuda._sleep(1)
        found = call()
        cuda.synchronize()
        cuda.cudart().cudaProfilerStop()
        return found

    run = STEPS[name]("cuda", False)
    for _ in range(2):  # libraries choose their kernels here
        run()
    whole = count(run).under("EXACT")
    lines = watched(run, profiled, seconds)
    profiled(lambda: None)  # a report without this delimiter is not whole
    about = {
        "device": cuda.get_device_name(),
        "capability": cuda.get_device_capability(),
        "torch": str(torch.__version__),
    }
    counted = {"flops": whole.flops, "vector_flops": whole.vector_flops, "bytes": whole.bytes}
    text = json.dumps({**about, "step": name, "counted": counted, "lines": lines}, indent=1)
    (folder / "cases.json").write_text(text, "utf-8")


def check(folder: Path, name: str, seconds: float = SECONDS) -> dict[str, Any]:
    """Run a step under Nsight Compute on the CUDA device, keep its files in *folder*,
    and compare.

    Raises
    ------
    OSError
        Without ``ncu``, without the driver's permission, or if there is no report, with
        the reason.
    """
    ncu.watch(folder, [sys.executable, "-m", "flopkit.experiments.under_counters", str(folder), name, str(seconds)])
    return compared(folder)


def is_step(folder: Path) -> bool:
    """Whether the files in *folder* are of a training step, and not of the cases."""
    try:
        return "step" in ncu.kept(folder)
    except (OSError, ValueError, TypeError):
        return False


def compared(folder: Path) -> dict[str, Any]:
    """Compare what ``raw.csv`` and ``cases.json`` in *folder* hold; no GPU is needed.

    Returns
    -------
    dict[str, Any]
        ``step``, ``device``, and ``results``: for each operator and its shapes, what
        was counted and what was executed in one call, ``flops`` of the tensor cores by
        format, ``vector_flops``, and ``bytes`` of the memory; with the ``kernels`` that
        it ran, and its ``calls``.
    """
    about = ncu.kept(folder)
    try:
        known = ncu.counters(tuple(about["capability"]))
        groups = ncu.groups(machine.text_of(folder / "raw.csv"))
        lines = [line for line in about["lines"] if line["watched"]]
        if len(groups) != len(lines) + 1 or groups[-1]:
            raise ValueError(f"of {len(lines) + 1} delimiter kernels {len(groups)} are there")
        for line, ran in zip(lines, groups, strict=False):
            line["executed"], line["memory"] = ncu.sums([values for _, values in ran], known)
            line["kernels"] = [name for name, _ in ran]
        found = {name: about[name] for name in ("step", "device", "torch", "counted")}
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise ncu.not_whole(folder, error) from error
    return {"oracle": "Nsight Compute", **found, "results": about["lines"]}


def shown(found: Mapping[str, Any]) -> Table:
    """A row for each operator that was watched: what it executed over what was counted,
    of its products and of its bytes."""
    rows = []
    for line in (each for each in found["results"] if each["watched"]):
        counted, tensor = line["counted"], sum(line["executed"].get(format, 0) for format in TENSOR)
        rows.append(
            {
                "operator": line["operator"], "calls": line["calls"], "shapes": " ".join("×".join(map(str, s)) for s in line["shapes"][:2]),
                "counted": units.si(counted["flops"], "FLOPs"),
                "executed / counted": f"{tensor / counted['flops']:.4f}" if counted["flops"] else "",
                "bytes": units.si(counted["bytes"], "B"),
                "memory / counted": "" if line["memory"] is None else f"{line['memory'] / counted['bytes']:.2f}",
            }
        )  # fmt: skip
    left = sum(bool(each["counted"]["bytes"]) and not each["watched"] for each in found["results"])
    missing = f"; {left} more were not watched, for want of time" if left else ""
    return Table(
        rows, caption=f"{found['step']}, one training step on {found['device']}: {len(rows)} operators{missing}"
    )


if __name__ == "__main__":
    run_step(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
