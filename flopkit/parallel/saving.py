"""What a layer keeps where a program saves memory as DeepSeek-V3's does: products that run again, fewer bits, the router's weights early."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from flopkit.arithmetic import ceil_div
from flopkit.dtypes import nbytes
from flopkit.models import Experts, LatentAttention, Model
from flopkit.models.stacks.blocks import Block
from flopkit.models.stacks.parts import Part, Run
from flopkit.training.memory import Kept

__all__ = ["ACTIVATIONS", "AS_COMPUTED", "Saving", "kept_of", "run_again"]

ACTIVATIONS = {
    "as computed": "in the format of the precision",
    "deepseek-v3": "inputs of linear layers and, in experts, of SwiGLU in 8 bits, what attention makes in 12, each with an fp32 scale for 128 numbers",
}
"""In which format a layer keeps what its backward pass reads. DeepSeek-V3, section 3.3.3: FP8 for the inputs of linear layers and of SwiGLU in MoE, E5M6
for the input of the linear layer behind attention; tiles of 128 numbers have a scale each (section 3.3.2), whose bytes the paper does not print: they are
fp32 in DeepGEMM. What the router reads stays as it is (section 3.3.1)."""

_UP = ("q_up", "kv_up")
_MADE_AGAIN = ("latent", "keys", "values")
_TILE = 128


class Saving(NamedTuple):
    """The three arguments of `flopkit.parallel.step`: *mla_up_proj*, *activations*, *weigh_inside*."""

    mla_up_proj: bool = False
    activations: str = "as computed"
    weigh_inside: bool = False

    def check(self, model: Model, precision: str, fused: bool) -> None:
        """Refuse what the model or the other arguments have no room for."""
        if self.mla_up_proj and not any(isinstance(block.mixer, LatentAttention) for block, _ in model.blocks):
            raise ValueError(f"mla_up_proj=True: {model.name} has no latent attention; give mla_up_proj=False")
        if self.activations != "as computed" and precision == "fp32":
            raise ValueError(
                f"activations={self.activations!r} with precision='fp32': its numbers are made of 16 bits; give another precision"
            )
        if self.weigh_inside and not any(isinstance(block.mlp, Experts) for block, _ in model.blocks):
            raise ValueError(f"weigh_inside=True: {model.name} has no experts; give weigh_inside=False")
        if self.weigh_inside and not fused:
            raise ValueError(
                "weigh_inside=True: what the activation makes would be kept with and without weights; give fused=True, which keeps neither"
            )


AS_COMPUTED = Saving()


def kept_of(found: Iterable[Kept], block: Block, run: Run, saving: Saving) -> tuple[list[Kept], list[Kept]]:
    """What of *found* a layer keeps, and what its backward pass makes again first."""
    kept, again = [], []
    for each in found:
        if saving.weigh_inside and each.tensor == "experts' outputs":
            continue
        if saving.mla_up_proj and isinstance(block.mixer, LatentAttention) and _made_again(each, block.mixer):
            again.append(each)
            if each.tensor == "keys":  # whose part with positions comes from no latent
                rope = nbytes(run.tokens * block.mixer.qk_rope, run.dtype)
                kept.append(Kept("latent of keys and values, rope key", rope, split="tokens"))
            continue
        kept.append(each if saving.activations == "as computed" else _narrow(each))
    return kept, again


def _made_again(each: Kept, mixer: LatentAttention) -> bool:
    return each.tensor in _MADE_AGAIN or (each.tensor == "queries" and mixer.q_lora is not None)


def _narrow(each: Kept) -> Kept:
    """A tensor of 16 bits in DeepSeek-V3's format."""
    numbers = each.bytes // 2
    if each.tensor == "heads":
        bits: Any = 12
    elif each.tensor == "experts' hidden":
        bits = 8
    elif each.weights_of and "router" not in each.weights_of:
        bits = 8
    else:
        return each
    return each._replace(bytes=ceil_div(numbers * bits, 8) + 4 * ceil_div(numbers, _TILE))


def run_again(parts: Iterable[Part], saving: Saving) -> Any:
    """FLOPs of the products that run again."""
    return sum(each.cost.flops for each in parts if each.matrix in _UP) if saving.mla_up_proj else 0
