"""Every public formula with sizes that suit it: what the tests of readings, counts and bad input walk through.

A formula that is not listed here fails `test_readings.test_every_formula_has_a_case`.
"""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import flopkit as fk
import flopkit.layers
from flopkit.layers.pointwise import ACTIVATIONS

QUANTITIES = ("flops", "macs", "vector_flops", "bytes", "params", "intensity")
INNER = 1_000_000  # lengths whose squares a formula subtracts: a double holds those exactly


@dataclass(frozen=True)
class Formula:
    """A formula, a way to draw sizes up to a limit, and the other arguments it is tried with.

    `switches` are arguments that are on or off and may be a parameter. A size called ``window`` becomes the mask.
    """

    function: Callable[..., Any]
    draw: Callable[[random.Random, int], dict[str, int]]
    variants: tuple[dict[str, Any], ...] = ({},)
    switches: tuple[str, ...] = ()
    args: tuple[Any, ...] = ()
    optional: dict[str, int] = field(default_factory=dict)  # sizes with a default, for the tests of bad input

    def cost(self, sizes: dict[str, Any], **others: Any) -> fk.Cost:
        arguments = {**sizes, **others}
        if "window" in arguments:
            arguments["mask"] = fk.window(arguments.pop("window"))
        return self.function(*self.args, **arguments)


def names(*sizes: str) -> Callable[[random.Random, int], dict[str, int]]:
    """Draw each of these sizes on its own."""
    return lambda rng, top: {name: rng.randint(1, top) for name in sizes}


def conv(*positions: str) -> Callable[[random.Random, int], dict[str, int]]:
    def draw(rng: random.Random, top: int) -> dict[str, int]:
        groups = rng.randint(1, 3)
        free = {name: rng.randint(1, top) for name in ("batch", *positions)}
        steps = {"kernel": rng.randint(1, 3), "stride": rng.randint(1, 3), "dilation": rng.randint(1, 2)}
        return (
            free
            | steps
            | {"groups": groups, "c_in": groups * rng.randint(1, top), "c_out": groups * rng.randint(1, top)}
        )

    return draw


def group(rng: random.Random, top: int) -> dict[str, int]:
    groups = rng.randint(1, top)
    return {"groups": groups, "channels": groups * rng.randint(1, 4)} | names("batch", "positions")(rng, top)


def pool(rng: random.Random, top: int) -> dict[str, int]:
    sizes = {"kernel": rng.randint(1, 3), "stride": rng.randint(1, 3)}
    return sizes | names("batch", "channels", "h_out", "w_out")(rng, top)


def heads(rng: random.Random, top: int) -> dict[str, int]:
    kv_heads = rng.randint(1, 3)
    lengths = {"q": rng.randint(1, min(top, INNER)), "kv": rng.randint(1, min(top, INNER))}
    return lengths | {"kv_heads": kv_heads, "heads": kv_heads * rng.randint(1, 3), "batch": rng.randint(1, top)}


def core(rng: random.Random, top: int) -> dict[str, int]:
    return heads(rng, top) | names("head_dim", "v_head_dim")(rng, top)


def windowed(rng: random.Random, top: int) -> dict[str, int]:
    return core(rng, top) | {"window": rng.randint(1, min(top, INNER))}


def cached(rng: random.Random, top: int) -> dict[str, int]:
    """No more queries than keys."""
    sizes = heads(rng, top)
    return sizes | {"q": min(sizes["q"], sizes["kv"]), "kv": max(sizes["q"], sizes["kv"])}


def whole(rng: random.Random, top: int) -> dict[str, int]:
    return cached(rng, top) | names("d_model", "head_dim")(rng, top)


def crossing(rng: random.Random, top: int) -> dict[str, int]:
    sizes = whole(rng, top)
    return sizes | {"kv_new": rng.randint(1, sizes["kv"])}


def latent(rng: random.Random, top: int) -> dict[str, int]:
    sizes = cached(rng, top) | names("d_model", "kv_lora", "qk_nope", "v_head_dim")(rng, top)
    del sizes["kv_heads"]
    return sizes | {"qk_rope": 2 * rng.randint(1, top)}


def latent_queries(rng: random.Random, top: int) -> dict[str, int]:
    return latent(rng, top) | {"q_lora": rng.randint(1, top)}


def mixture(rng: random.Random, top: int) -> dict[str, int]:
    experts = rng.randint(1, top)
    sizes = {"experts": experts, "top_k": rng.randint(1, min(experts, 4)), "shared": rng.randint(0, 2)}
    return sizes | names("tokens", "d_model", "d_ff")(rng, top)


def positions(rng: random.Random, top: int) -> dict[str, int]:
    seq = rng.randint(1, top)
    return {"seq": seq, "positions": seq + rng.randint(0, top)} | names("batch", "d_model")(rng, top)


def turning(rng: random.Random, top: int) -> dict[str, int]:
    return names("batch", "seq", "heads")(rng, top) | {"head_dim": 2 * rng.randint(1, top)}


def delta(rng: random.Random, top: int) -> dict[str, int]:
    """Even chunks: of an odd one, solving is half a multiply-add more."""
    k_heads = rng.randint(1, 3)
    sizes = names("batch", "seq", "k_dim", "v_dim")(rng, top)
    return sizes | {"k_heads": k_heads, "heads": k_heads * rng.randint(1, 3), "chunk": 2 * rng.randint(1, 4)}


def space(rng: random.Random, top: int) -> dict[str, int]:
    groups = rng.randint(1, 3)
    sizes = names("batch", "seq", "head_dim", "state")(rng, top)
    return sizes | {"groups": groups, "heads": groups * rng.randint(1, 3), "chunk": rng.randint(1, 6)}


BIASED = dict(switches=("bias",), variants=({}, {"bias": True}, {"dtype": "fp4"}))
MASKS = ({}, {"mask": "causal"}, {"mask": "causal", "kernel": "math"})

FORMULAS: dict[str, Formula] = {
    "matmul": Formula(fk.matmul, names("m", "k", "n", "batch"), ({}, {"dtype": "fp4"}, {"dtype": "complex64"})),
    "dense": Formula(fk.dense, names("tokens", "d_in", "d_out"), **BIASED),
    "conv1d": Formula(fk.conv1d, conv("l_out"), **BIASED, optional={"l_in": 9}),
    "conv2d": Formula(fk.conv2d, conv("h_out", "w_out"), **BIASED, optional={"h_in": 9, "w_in": 9}),
    "conv3d": Formula(fk.conv3d, conv("d_out", "h_out", "w_out"), **BIASED, optional={"d_in": 9, "h_in": 9, "w_in": 9}),
    "conv_transpose1d": Formula(fk.conv_transpose1d, conv("l_in"), **BIASED, optional={"l_out": 9}),
    "conv_transpose2d": Formula(fk.conv_transpose2d, conv("h_in", "w_in"), **BIASED, optional={"h_out": 9, "w_out": 9}),
    "conv_transpose3d": Formula(fk.conv_transpose3d, conv("d_in", "h_in", "w_in"), **BIASED, optional={"d_out": 9}),
    "attention": Formula(fk.attention, core, MASKS),
    "attention windowed": Formula(fk.attention, windowed, ({}, {"kernel": "math"})),
    "multi_head_attention": Formula(fk.multi_head_attention, whole, MASKS, ("qkv_bias", "out_bias")),
    "multi_head_attention crossing": Formula(fk.multi_head_attention, crossing),
    "mla": Formula(fk.mla, latent, ({}, {"form": "absorbed"}, {"mask": "full"})),
    "mla with latent queries": Formula(fk.mla, latent_queries, ({}, {"form": "absorbed"})),
    "gated_delta": Formula(fk.gated_delta, delta, ({}, {"algorithm": "recurrent"})),
    "state_space": Formula(fk.state_space, space, ({}, {"algorithm": "recurrent"})),
    "selective_scan": Formula(fk.layers.states.selective_scan, names("batch", "seq", "channels", "state")),
    "moe": Formula(fk.moe, mixture, ({}, {"gated": False}, {"capacity": 1.25}, {"capacity": 0.7}), ("gated",)),
    "embedding": Formula(fk.embedding, names("tokens", "vocab", "d_model")),
    "learned_positions": Formula(fk.learned_positions, positions),
    "sinusoidal_positions": Formula(fk.layers.embeddings.sinusoidal_positions, names("batch", "seq", "d_model")),
    "rotary": Formula(fk.rotary, turning),
    "layer_norm": Formula(fk.layer_norm, names("tokens", "d"), ({}, {"bias": False}), ("weight", "bias")),
    "rms_norm": Formula(fk.rms_norm, names("tokens", "d"), ({}, {"weight": False}), ("weight",)),
    "batch_norm": Formula(
        fk.batch_norm, names("batch", "channels", "positions"), ({}, {"affine": False}, {"training": True}),
        ("affine", "training"),
    ),
    "group_norm": Formula(fk.group_norm, group, ({}, {"affine": False}), ("affine",)),
    "softmax": Formula(fk.softmax, names("rows", "columns")),
    "residual": Formula(fk.residual, names("elements")),
    "scale": Formula(fk.scale, names("elements")),
    "dropout": Formula(fk.dropout, names("elements")),
    "cross_entropy": Formula(fk.cross_entropy, names("tokens", "vocab")),
    "max_pool2d": Formula(fk.max_pool2d, pool, optional={"h_in": 9, "w_in": 9}),
    "avg_pool2d": Formula(fk.avg_pool2d, pool, optional={"h_in": 9, "w_in": 9}),
    **{f"activation {kind}": Formula(fk.activation, names("elements"), args=(kind,)) for kind in ACTIVATIONS},
}  # fmt: skip

CASES = [(name, variant) for name, formula in FORMULAS.items() for variant in formula.variants]
CASE_IDS = [f"{name} {variant}" if variant else name for name, variant in CASES]


def public_formulas() -> dict[str, Callable[..., Any]]:
    """Every public function of flopkit.layers that returns a Cost."""
    found = {}
    for module_info in pkgutil.iter_modules(flopkit.layers.__path__, "flopkit.layers."):
        module = importlib.import_module(module_info.name)
        for name in module.__all__:
            thing = getattr(module, name)
            if inspect.isfunction(thing) and thing.__annotations__.get("return") in ("Cost", fk.Cost):
                found[name] = thing
    return found
