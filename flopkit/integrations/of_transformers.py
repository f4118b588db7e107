"""A callback for Hugging Face's ``Trainer``."""

from __future__ import annotations

import warnings
from collections import Counter
from typing import Any

try:
    from transformers import TrainerCallback
except ImportError:  # said when somebody makes one
    TrainerCallback = object  # type: ignore[misc, assignment]

from flopkit import devices
from flopkit.integrations import number_formats
from flopkit.integrations.loops import LoopMeter
from flopkit.models import from_hf

__all__ = ["TransformersCallback"]


class TransformersCallback(TrainerCallback):
    """MFU, HFU and tokens/s in the logs of ``transformers.Trainer``, each time that it logs its loss.

    Parameters
    ----------
    work : Any, optional
        As in `LoopMeter`. None: a training step of the trainer's model, of *seq* tokens and the global batch, with full recompute where
        ``gradient_checkpointing`` is on: to the end of every layer where its ``use_reentrant`` is on, else with PyTorch's early stop.
    seq : int, optional
        Tokens of a sequence, where *work* is None. What the model is really given is counted, in each forward pass of a process: a last
        batch that is smaller, and sequences that are shorter or longer, with the tokens that pad them. Where that cannot be seen, with
        ``torch_compile`` and with tensor, context or sequence parallelism, all are taken to be whole batches of this length.
    device : Any, optional
        A name or a `flopkit.Device`. None: the current CUDA device.
    dtype : Any, optional
        The number format of the products, whose peak is met, or several, as in `mfu`. None: the trainer's own, ``bf16``, ``fp16`` or what
        accelerate was told, else that of the weights; fp32 is tf32 where torch may round products and the device has it.
    count : int, optional
        Devices. None: the trainer's processes, times the devices of each.
    **loop : Any
        *tokens*, *prefix*, *wait* and *clock*, as in `LoopMeter`.

    Raises
    ------
    ImportError
        Where transformers is not installed.
    ValueError
        As training begins: for a number format of which the device has no peak, for weights of several formats where *dtype* is None, for neither *work* nor *seq*, for a model that flopkit does not describe, and for one of which some parameters
        are frozen, or only some layers are checkpointed, where *work* is None.

    Notes
    -----
    The names are those of `LoopMeter`. As training ends, means over the last 50 logs come with the name ``train_mfu`` and so on.

    ``Trainer(callbacks=[callback])`` puts them into ``state.log_history`` and onto the progress bar. Reporters (TensorBoard, Weights & Biases)
    run before a user's callbacks, so ``callback.attach(trainer)`` puts it before them, and they see the metrics, too.

    Evaluation and checkpoints are in no step. Loading of data is.

    Examples
    --------
    .. code-block:: python

        trainer = Trainer(model=model, args=args, train_dataset=data)
        TransformersCallback(seq=4096, device="h100-sxm").attach(trainer)
        trainer.train()
    """

    def __init__(
        self, work: Any = None, *, seq: int | None = None, device: Any = None, dtype: Any = None, count: int | None = None, **loop: Any
    ) -> None:  # fmt: skip
        if TrainerCallback is object:
            raise ImportError(
                "flopkit.integrations.TransformersCallback needs transformers: pip install transformers accelerate"
            )
        if (work is None) == (seq is None):
            raise ValueError(
                f"work={work!r:.40}, seq={seq}: give one of them, the work of a step or the tokens of a sequence"
            )
        self.work, self.seq, self.device, self.dtype, self.count, self._loop = work, seq, device, dtype, count, loop
        self.loop: LoopMeter | None = None
        self._seen = 0
        self._fed: Counter[int] = Counter()  # sequences by their tokens, since the last log
        self._whole, self._replicas = 0, 1
        self._hook: Any = None

    def attach(self, trainer: Any) -> TransformersCallback:
        """Become the first of the callbacks of *trainer* that see its logs, so that its reporters have the metrics, and return self."""
        callbacks = trainer.callback_handler.callbacks
        if self in callbacks:
            callbacks.remove(self)
        callbacks.insert(1, self)  # the first says when an evaluation is due
        return self

    def on_train_begin(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
        """Make the meter."""
        count = args.world_size * max(1, args.n_gpu) if self.count is None else self.count
        work = self._step_of(model, args) if self.work is None else self.work
        device = devices.device() if self.device is None else self.device
        dtype = number_formats.of_transformers(args, model, device) if self.dtype is None else self.dtype
        self.loop = LoopMeter(work, device=device, dtype=dtype, count=count, **self._loop)
        self._seen = state.global_step
        self._watch(model, args, work)

    def _watch(self, model: Any, args: Any, work: Any) -> None:
        """See what the model is given, where a step's work is not."""
        self._fed.clear()
        self._unhook()  # of a training that was broken off
        of_text = self.work is None and getattr(work, "over", None) is not None
        if of_text and not args.torch_compile and _ranks_of_a_replica(model, args) == 1:
            self._whole, self._replicas = args.train_batch_size * args.gradient_accumulation_steps, args.world_size
            self._hook = model.register_forward_pre_hook(self._feed, with_kwargs=True)

    def _feed(self, model: Any, inputs: Any, kwargs: Any) -> None:
        fed = kwargs.get("input_ids", inputs[0] if inputs else None)
        if model.training and getattr(fed, "ndim", 0) == 2:
            self._fed[fed.shape[1]] += fed.shape[0]

    def _lengths(self) -> list[int] | None:
        """The tokens of each sequence since the last log, on all devices; None where they were the usual ones."""
        fed, self._fed = self._fed, Counter()
        steps = 0 if self.loop is None else self.loop.pending
        return None if not fed or fed == {self.seq: steps * self._whole} else sorted(fed.elements()) * self._replicas

    def _metrics(self, loop: LoopMeter) -> dict[str, float]:
        lengths = self._lengths()
        try:
            return loop.metrics(lengths)
        except ValueError as error:  # sequences that the model's description does not allow: that ends no training
            warnings.warn(f"no MFU of these steps: {error}", RuntimeWarning, stacklevel=2)
            loop.start()
            return {}

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Leave the model as it was."""
        self._unhook()

    def _unhook(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def _step_of(self, model: Any, args: Any) -> Any:
        frozen = [name for name, parameter in model.named_parameters() if not parameter.requires_grad]
        way = "give work=flopkit.from_hf(…).train_step(…, {}=…)"
        if frozen:
            raise ValueError(f"{len(frozen)} parameters are frozen, {frozen[0]} among them: {way.format('trained')}")
        config = {**model.config.to_dict(), "architectures": [type(model).__name__]}
        replicas = args.world_size // _ranks_of_a_replica(model, args)
        batch = args.train_batch_size * replicas * args.gradient_accumulation_steps
        if (args.gradient_checkpointing_kwargs or {}).get("every_n_layers", 1) != 1:
            raise ValueError(f"gradient checkpointing of some layers only: {way.format('recompute')}")
        how: dict[str, Any] = (
            {"recompute": "full", "early_stop": not _reentrant(model, args)} if args.gradient_checkpointing else {}
        )
        return from_hf(config).train_step(seq=self.seq, batch=batch, **how)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Count the step."""
        if self.loop is not None:
            self.loop.step(state.global_step - self._seen)
            self._seen = state.global_step
            self._pause(control)

    def on_epoch_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """An evaluation or a checkpoint may follow."""
        self._pause(control)

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Training goes on."""
        if self.loop is not None:
            self.loop.resume()

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Training goes on, unless a checkpoint follows."""
        if not control.should_save:
            self.on_save(args, state, control)

    def _pause(self, control: Any) -> None:
        if self.loop is not None and (control.should_evaluate or control.should_save):
            self.loop.pause()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        """Add the metrics to a log of training."""
        if self.loop is None or logs is None or any(name.startswith(("eval_", "test_")) for name in logs):
            return
        if "train_runtime" in logs:
            found = {f"train_{name.removeprefix(self.loop.prefix)}": value for name, value in self.loop.mean().items()}
        else:
            found = self._metrics(self.loop)
            self._pause(control)
        logs.update(found)
        if state.log_history and state.log_history[-1].get("step") == state.global_step:
            state.log_history[-1].update(found)


def _reentrant(model: Any, args: Any) -> bool:
    """Whether checkpoints compute their layer again to its end: what the model was told, else the arguments, else torch's own default."""
    told = [vars(each).get("_gradient_checkpointing_func") for each in model.modules()]
    keywords: Any = next(
        (each.keywords for each in told if hasattr(each, "keywords")), args.gradient_checkpointing_kwargs or {}
    )
    return keywords.get("use_reentrant") is not False


def _ranks_of_a_replica(model: Any, args: Any) -> int:
    """The processes that work on the same sequences, by tensor, context or sequence parallelism, as the trainer itself finds them."""
    config: Any = getattr(args, "parallelism_config", None)
    tensor = getattr(model, "_tp_size", None) or getattr(model, "tp_size", None)
    if tensor is None and (deepspeed := getattr(args, "hf_deepspeed_config", None)) is not None:
        tensor = deepspeed.config.get("tensor_parallel", {}).get("autotp_size")
    tensor = tensor or getattr(config, "tp_size", None) or 1
    return int(tensor * (getattr(config, "cp_size", None) or 1) * (getattr(config, "sp_size", None) or 1))
