"""Training: the backward pass of a layer by cases, a whole step with what is computed again, its memory, the optimiser, and a whole run."""

from flopkit.training.backward import attention_backward, conv2d_backward, dense_backward
from flopkit.training.batches import largest_batch
from flopkit.training.budgets import LAWS, Law, compute_optimal
from flopkit.training.memory import OPTIMIZERS, PRECISIONS, Kept, Memory
from flopkit.training.optimizers import adam_step
from flopkit.training.runs import TrainingRun
from flopkit.training.sharding import Gathered, gathered
from flopkit.training.steps import Step

__all__ = [
    "LAWS", "OPTIMIZERS", "PRECISIONS", "Gathered", "Kept", "Law", "Memory", "Step", "TrainingRun", "adam_step", "attention_backward",
    "compute_optimal", "conv2d_backward", "dense_backward", "gathered", "largest_batch",
]  # fmt: skip
