"""Training: the backward pass of a layer by cases, and a whole step with what is computed again."""

from flopkit.training.backward import attention_backward, conv2d_backward, dense_backward
from flopkit.training.steps import Step

__all__ = ["Step", "attention_backward", "conv2d_backward", "dense_backward"]
