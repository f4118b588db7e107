"""Training: the backward pass of a layer by cases, a whole step with what is computed again, its memory, and the optimiser."""

from flopkit.training.backward import attention_backward, conv2d_backward, dense_backward
from flopkit.training.memory import OPTIMIZERS, PRECISIONS, Kept, Memory
from flopkit.training.optimizers import adam_step
from flopkit.training.steps import Step

__all__ = [
    "OPTIMIZERS", "PRECISIONS", "Kept", "Memory", "Step", "adam_step", "attention_backward", "conv2d_backward", "dense_backward",
]  # fmt: skip
