"""A callback for Lightning."""

from __future__ import annotations

from typing import Any

try:
    from lightning.pytorch.callbacks import Callback  # type: ignore[import-not-found, unused-ignore]
except ImportError:
    try:
        from pytorch_lightning.callbacks import Callback  # type: ignore[import-not-found, assignment, unused-ignore]
    except ImportError:  # said when somebody makes one
        Callback = object  # type: ignore[misc, assignment, unused-ignore]

from flopkit import devices
from flopkit.integrations.loops import LoopMeter

__all__ = ["LightningCallback"]


class LightningCallback(Callback):  # type: ignore[misc, unused-ignore]
    """MFU, HFU and tokens/s in Lightning's own loggers, every ``log_every_n_steps`` steps of the optimiser.

    Parameters
    ----------
    work : Any
        As in `LoopMeter`: of one step of the optimiser on all devices, with what ``accumulate_grad_batches`` gathers.
    device : Any, optional
        A name or a `flopkit.Device`. None: the current CUDA device.
    dtype : Any, optional
        The number format of the products, whose peak is met, or several, as in `mfu`; the trainer's own ``precision`` is not asked. None: bf16.
    count : int, optional
        Devices. None: the trainer's ``world_size``.
    **loop : Any
        *tokens*, *prefix*, *wait* and *clock*, as in `LoopMeter`.

    Raises
    ------
    ImportError
        Where Lightning is not installed.

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
        self.work, self.device, self.dtype, self.count, self._loop = work, device, dtype, count, loop
        self.loop: LoopMeter | None = None
        self._seen = 0

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Make the meter."""
        count = trainer.world_size if self.count is None else self.count
        device = devices.device() if self.device is None else self.device
        self.loop = LoopMeter(self.work, device=device, dtype=self.dtype, count=count, **self._loop)
        self._seen = trainer.global_step

    def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        """Training goes on after a validation or a checkpoint."""
        if self.loop is not None:
            self.loop.resume()

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Count the step, and log."""
        if self.loop is None or trainer.global_step == self._seen:
            return
        self.loop.step(trainer.global_step - self._seen)
        self._seen = trainer.global_step
        if self._seen % trainer.log_every_n_steps == 0:
            pl_module.log_dict(self.loop.metrics(), on_step=True, on_epoch=False, rank_zero_only=True)

    def on_validation_start(self, trainer: Any, pl_module: Any, checkpoint: Any = None) -> None:
        """What follows is in no step."""
        if self.loop is not None:
            self.loop.pause()

    on_save_checkpoint = on_validation_start
