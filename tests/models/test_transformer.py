"""A transformer from its numbers: in all four readings, and what cannot be is refused."""

import altair
import numpy
import pytest
import sympy
import vega

import flopkit as fk
from flopkit.models import transformer

DENSE = {"d_model": 64, "vocab": 96, "layers": 6, "heads": 8, "kv_heads": 2, "head_dim": 16, "d_ff": 80}
EXPERTS = {"experts": 8, "top_k": 2, "expert_d_ff": 24, "shared_d_ff": 40, "dense": 2}
KINDS = {
    "dense": (DENSE, {}),
    "gopher": (DENSE | {"position_keys": 1}, {"rotary": 0, "gated": False, "act": "gelu", "tied": True}),
    "gpt": (DENSE | {"positions": 32}, {"rotary": 0, "gated": False, "act": "gelu", "norm": "layer", "mlp_bias": True, "qkv_bias": True}),
    "palm": (DENSE, {"norms": "parallel", "norm": "layer", "norm_bias": False}),
    "window": (DENSE | {"window": 5, "windowed": 4}, {"qk_norm": "head"}),
    "experts": (DENSE | EXPERTS, {"expert_bias": True}),
    "experts and a window": (DENSE | EXPERTS | {"window": 5, "windowed": 3, "dense_windowed": 1}, {}),
    "latent": ({k: v for k, v in DENSE.items() if k not in ("kv_heads", "head_dim")} | EXPERTS
               | {"q_lora": 20, "kv_lora": 12, "qk_nope": 8, "qk_rope": 4, "v_head_dim": 6}, {}),
}  # fmt: skip
SEQ = 16


def numbers(cost):
    return [
        getattr(cost.under(each), name)
        for each in ("EXACT", "TORCH", "SIX_N")
        for name in ("flops", "vector_flops", "bytes", "params")
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_four_readings(kind):
    """Exact ints; symbols and expressions that give the same; a sweep over lengths as an array."""
    sizes, fixed = KINDS[kind]
    values = {**sizes, "seq": SEQ}

    def read(of):
        found = {name: of(name) for name in values}
        return numbers(
            transformer(**{k: v for k, v in found.items() if k != "seq"}, **fixed).forward(seq=found["seq"], batch=2)
        )

    exact = read(values.__getitem__)
    assert all(type(number) is int for number in exact)
    arrays = read(lambda name: numpy.array([1, SEQ]) if name == "seq" else values[name])
    assert [int(numpy.broadcast_to(found, (2,))[1]) for found in arrays] == exact
    symbols = {name: sympy.Symbol(name, positive=True, integer=True) for name in values}
    assert [
        sympy.sympify(number).subs({symbols[n]: v for n, v in values.items()}) for number in read(symbols.get)
    ] == exact
    parameters = {name: altair.param(name=name, value=1) for name in values}
    found = [vega.evaluate(fk.arithmetic.vega(number), values) for number in read(parameters.get)]
    assert found == exact


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"heads": 7, "head_dim": None, "kv_heads": None}, "heads=7.*d_model=64"),
        ({"kv_heads": 3}, "kv_heads=3.*heads=8"),
        ({"experts": 4, "top_k": 5, "expert_d_ff": 8}, "top_k=5 is more than experts=4"),
        ({"experts": 4, "expert_d_ff": 8}, "top_k missing: to be given together with experts, d_ff"),
        ({"d_ff": None}, "d_ff is missing"),
        ({**EXPERTS, "d_ff": None}, "d_ff is missing"),
        ({**EXPERTS, "dense": 7}, "dense=7 is more than layers=6"),
        ({"window": 4, "windowed": 7}, "windowed=7 is more than layers=6"),
        ({**EXPERTS, "window": 4, "windowed": 3}, "of windowed=3 and dense=2 layers, how many are both"),
        ({**EXPERTS, "window": 4, "windowed": 3, "dense_windowed": 3}, "dense_windowed=3 cannot be with dense=2, windowed=3"),
        ({**EXPERTS, "window": 4, "windowed": 1, "dense_windowed": 2}, "dense_windowed=2 cannot be with dense=2, windowed=1"),
        ({"window": 4, "windowed": 3, "dense_windowed": 1}, "dense_windowed=1 cannot be with dense=0"),
        ({**EXPERTS, "window": 4, "windowed": 5, "dense_windowed": 0}, "dense_windowed=0 cannot be .* layers=6"),
        ({"kv_lora": 12, "qk_nope": 8}, "qk_rope, v_head_dim missing"),
        ({"kv_lora": 12, "qk_nope": 8, "qk_rope": 4, "v_head_dim": 8, "window": 4}, "window=4 together with kv_lora"),
        ({"norms": "sandwich"}, "norms='sandwich'"),
        ({"act": "mish"}, "act='mish'"),
        ({"position_keys": 2}, "position_keys=2"),
        ({"layers": 0}, "layers=0"),
        ({"vocab": -1}, "vocab=-1"),
        ({"d_model": 64.5}, "d_model=64.5"),
        ({"d_ff": float("nan")}, "d_ff=nan"),
        ({"head_dim": float("inf")}, "head_dim=inf"),
        ({"layers": True}, "layers=True"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        transformer(**DENSE | changed)


def test_as_many_windows_as_layers_is_a_window_in_each():
    """Whatever number it is: Python keeps small ones once, large ones anew."""
    sizes = DENSE | EXPERTS | {"layers": 600, "window": 4}
    assert transformer(**sizes, windowed=int("600")) == transformer(**sizes)


def test_keys_of_relative_positions_are_parameters_alone():
    """One more matrix of d_model × heads·head_dim a layer, which 6N counts and nothing executes."""
    plain, relative = (transformer(**DENSE, rotary=0, position_keys=keys) for keys in (False, True))
    assert relative.params - plain.params == 6 * 64 * 8 * 16
    ours, theirs = (model.forward(seq=SEQ) for model in (relative, plain))
    assert ours.flops == theirs.flops and ours.vector_flops == theirs.vector_flops
    assert ours.under("SIX_N").flops - theirs.under("SIX_N").flops == 2 * SEQ * 6 * 64 * 8 * 16
    assert ours.under("CHINCHILLA_TABLE").flops == theirs.under("CHINCHILLA_TABLE").flops
