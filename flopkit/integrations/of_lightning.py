"""A callback for Lightning."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found, assignment, unused-ignore]
    except ImportError:  # said when somebody makes one
        Callback = object  # type: ignore[misc, assignment, unused-ignore]

from flopkit import devices
from flopkit.integrations import number_formats
from flopkit.integrations.loops import LoopMeter
from flopkit.utilization.gauges import of_flops

__all__ = ["LightningCallback"]


class LightningCallback(Callback):  # type: ignore[misc, unused-ignore]
    """MFU, HFU and tokens/s in Lightning's own loggers, every ``log_every_n_steps`` steps of the optimiser.

    Parameters
    ----------
    work : Any
        As in `LoopMeter`: of one step of the optimiser on all devices, with what ``accumulate_grad_batches`` gathers. Where it says its
        tokens or images, they are compared with those of the batches.
    device : Any, optional
        A name or a `flopkit.Device`. None: the current CUDA device.
    dtype : Any, optional
        The number format of the products, whose peak is met, or several, as in `mfu`. None: that of the trainer's ``precision``; of
        ``"32-true"`` that of the weights, and tf32 where torch may round products and the device has it.
    count : int, optional
        Devices. None: the trainer's ``world_size``.
    **loop : Any
        *tokens*, *prefix*, *wait* and *clock*, as in `LoopMeter`.

    Raises
    ------
    ImportError
        Where Lightning is not installed.
    ValueError or TypeError
        When it is made, for a *work* that a `Meter` refuses. As training begins, where *dtype* is None: for a ``precision`` of several formats
        (``"transformer-engine"``) and for weights of several; for a format of which the device has no peak.

    Warns
    -----
    RuntimeWarning
        Where the batches that were logged hold another number of tokens or images than *work*: these steps have no metrics. Seen are
        ``batch["input_ids"]``, a first tensor of whole numbers with two dimensions, and one of images with four.

    Notes
    -----
    The names are those of `LoopMeter`; they are in ``trainer.callback_metrics``, too. Validation and checkpoints are in no step. Lightning's
    own ``ThroughputMonitor`` logs MFU from FLOPs that you give it; this one knows the FLOPs, the conventions and what is impossible.

    Examples
    --------
    .. code-block:: python

        step = flopkit.load("llama-3-8b").train_step(seq=8192, batch=64)
        trainer = lightning.Trainer(callbacks=[LightningCallback(step, device="h100-sxm")])
    """

    def __init__(
        self, work: Any, *, device: Any = None, dtype: Any = None, count: int | None = None, **loop: Any
    ) -> None:
        if Callback is object:
            raise ImportError("flopkit.integrations.LightningCallback needs Lightning: pip install lightning")
        card: Any = _ANY if device is None else devices.device(device)
        of_flops("MFU", "model_flops", work, _ANY if dtype is None else card, dtype, 1 if count is None else count)
        self.work, self.device, self.dtype, self.count, self._loop = work, device, dtype, count, loop
        self.loop: LoopMeter | None = None
        self._seen = self._fed = 0
        self._all_seen = True

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the meter."""
        count = trainer.world_size if self.count is None else self.count
        device = devices.device() if self.device is None else self.device
        dtype = number_formats.of_lightning(trainer, pl_module, device) if self.dtype is None else self.dtype
        self.loop = LoopMeter(self.work, device=device, dtype=dtype, count=count, **self._loop)
        self._seen = trainer.global_step
        self._forget()

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Training goes on after a validation or a checkpoint."""
        if self.loop is not None:
            self.loop.resume()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the step, and log."""
        if self.loop is None:
            return
        fed = _items(batch, self.work)
        self._all_seen = self._all_seen and fed is not None
        self._fed += fed or 0
        if trainer.global_step == self._seen:
            return
        self.loop.step(trainer.global_step - self._seen)
        self._seen = trainer.global_step
        if self._seen % trainer.log_every_n_steps == 0:
            if differs := self._differs(trainer, self.loop.pending):
                warnings.warn(differs, RuntimeWarning, stacklevel=2)
                self.loop.start()
            else:
                pl_module.log_dict(self.loop.metrics(), on_step=True, on_epoch=False, rank_zero_only=True)
            self._forget()

    def _forget(self) -> None:
        self._fed, self._all_seen = 0, True

    def _differs(self, trainer: Any, steps: int) -> str:
        """How what went through these steps differs from *work*; empty where it does not, or was not seen."""
        replicas = _replicas(trainer)
        if not self._all_seen or replicas is None:
            return ""
        item = "tokens" if self.work.tokens is not None else "images"
        said, fed = getattr(self.work, item) * steps, self._fed * replicas
        if said == fed:
            return ""
        return (
            f"no MFU of these {steps} steps: work= has {said:,} {item} for them, and the batches of all {replicas} replicas had {fed:,}. "
            "Give the work of the global batch: micro-batch x accumulate_grad_batches x replicas"
        )

    def on_validation_start(self, trainer: Any, pl_module: Any, checkpoint: Any = None) -> None:
        """What follows is in no step."""
        if self.loop is not None:
            self.loop.pause()

    on_save_checkpoint = on_validation_start


class _ANY:
    """A device in the place of one that is not known before the training."""

    title, peak = "device", 1.0


def _items(batch: Any, work: Any) -> int | None:
    """The tokens of a batch, or its images where *work* is told by images; None where they are not seen, or *work* has neither."""
    tokens, images = getattr(work, "tokens", None), getattr(work, "images", None)
    first: Any
    if isinstance(batch, Mapping):
        first = batch.get("input_ids")
    else:
        first = batch[0] if isinstance(batch, (tuple, list)) and batch else batch
    dims = getattr(first, "ndim", 0)
    if isinstance(tokens, int) and dims == 2 and not (first.is_floating_point() or first.is_complex()):
        return int(first.numel())
    if tokens is None and isinstance(images, int) and dims == 4:
        return int(first.shape[0])
    return None


def _replicas(trainer: Any) -> int | None:
    """Processes with batches of their own, as the strategy tells its samplers; None where it does not."""
    told = getattr(trainer.strategy, "distributed_sampler_kwargs", None)
    if told is not None:
        return int(told["num_replicas"])
    return 1 if trainer.world_size == 1 else None
