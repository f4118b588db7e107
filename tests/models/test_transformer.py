"""A transformer from its numbers: in all four readings, and what cannot be is refused."""

from dataclasses import fields, is_dataclass, replace

import altair
import numpy
import pytest
import sympy
import vega

import flopkit as fk
from flopkit.models import Attention, Experts, LatentAttention, Model, WindowedLayers, transformer

HEADS = {"heads": 8, "kv_heads": 2, "head_dim": 16}
ENDS = {"d_model": 64, "vocab": 96, "layers": 6, "d_ff": 80}
DENSE = HEADS | ENDS
EXPERTS = Experts(experts=8, top_k=2, d_ff=24, shared_d_ff=40)
SPARSE = DENSE | {"experts": EXPERTS, "dense": 2}
LATENT = LatentAttention(heads=8, q_lora=20, kv_lora=12, qk_nope=8, qk_rope=4, v_head_dim=6)
KINDS = {
    "dense": (DENSE, {}),
    "gopher": (ENDS | {"attention": Attention(**HEADS, rotary=0, position_keys=1)}, {"gated": False, "act": "gelu", "tied": True}),
    "gpt": (DENSE | {"positions": 32}, {"rotary": 0, "gated": False, "act": "gelu", "norm": "layer", "bias": True}),
    "palm": (DENSE, {"norms": "parallel", "norm": "layer", "norm_bias": False}),
    "window": (ENDS | {"attention": Attention(**HEADS, qk_norm="head"), "window": WindowedLayers(5, layers=4)}, {}),
    "experts": (SPARSE | {"experts": replace(EXPERTS, bias=True)}, {}),
    "experts and a window": (SPARSE | {"window": WindowedLayers(5, layers=3, dense=1)}, {}),
    "latent": (ENDS | {"attention": LATENT, "experts": EXPERTS, "dense": 2}, {}),
}  # fmt: skip
SEQ = 16


def numbers(cost):
    return [
        getattr(cost.under(each), name)
        for each in ("EXACT", "TORCH", "SIX_N")
        for name in ("flops", "vector_flops", "bytes", "params")
    ]


def each_size(sizes, of, place=""):
    """The same with what *of* says of each size, those inside a value among them; a 0 stays."""
    found = {}
    for name, value in sizes.items():
        if is_dataclass(value):
            inside = {each.name: getattr(value, each.name) for each in fields(value)}
            found[name] = type(value)(**each_size(inside, of, f"{place}{name}_"))
        else:
            found[name] = of(place + name, value) if value and type(value) is int else value
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_four_readings(kind):
    """Exact ints; symbols and expressions that give the same; a sweep over lengths as an array."""
    sizes, fixed = KINDS[kind]
    values = {}

    def read(of):
        found = each_size({**sizes, "seq": SEQ}, of)
        seq = found.pop("seq")
        return numbers(transformer(**found, **fixed).forward(seq=seq, batch=2))

    exact = read(lambda name, value: values.setdefault(name, value))
    assert all(type(number) is int for number in exact)
    arrays = read(lambda name, value: numpy.array([1, SEQ]) if name == "seq" else value)
    assert [int(numpy.broadcast_to(found, (2,))[1]) for found in arrays] == exact
    symbols = {name: sympy.Symbol(name, positive=True, integer=True) for name in values}
    given = {symbols[name]: value for name, value in values.items()}
    assert [sympy.sympify(number).subs(given) for number in read(lambda name, _: symbols[name])] == exact
    parameters = {name: altair.param(name=name, value=1) for name in values}
    found = [vega.evaluate(fk.arithmetic.vega(number), values) for number in read(lambda name, _: parameters[name])]
    assert found == exact


def test_a_sweep_over_layers_with_a_window():
    """Which of the dense layers have it may be swept, too, and a row of the sweep that cannot be is named."""
    windows, both = numpy.array([3, 4]), numpy.array([1, 2])
    swept = transformer(**SPARSE | {"window": WindowedLayers(5, layers=windows, dense=both)}).forward(seq=SEQ).flops
    assert [int(flops) for flops in swept] == [
        transformer(**SPARSE | {"window": WindowedLayers(5, layers=int(w), dense=int(d))}).forward(seq=SEQ).flops
        for w, d in zip(windows, both, strict=True)
    ]
    with pytest.raises(
        ValueError, match="window.dense=0 must be from 1 to 2 with dense=2, window.layers=5 and layers=6"
    ):
        transformer(**SPARSE | {"window": WindowedLayers(5, layers=numpy.array([3, 5]), dense=numpy.array([1, 0]))})


@pytest.mark.parametrize(
    "changed, message",
    [
        ({"heads": 7, "head_dim": None, "kv_heads": None}, "heads=7.*d_model=64"),
        ({"kv_heads": 3}, "kv_heads=3.*heads=8"),
        ({"heads": None, "kv_heads": None, "head_dim": None}, "heads is missing: give heads=, or attention="),
        ({"attention": LATENT}, "heads=8, kv_heads=2, head_dim=16 beside attention=LatentAttention.*leave one out"),
        ({"attention": "latent"}, r"attention='latent': must be Attention\(…\) or LatentAttention\(…\)"),
        ({"experts": 8}, r"experts=8: must be Experts\(…\) of flopkit.models"),
        ({"window": 512}, r"window=512: must be WindowedLayers\(…\) of flopkit.models"),
        ({"d_ff": None}, "d_ff is missing"),
        (SPARSE | {"d_ff": None}, "d_ff is missing"),
        (SPARSE | {"d_ff": None, "dense": 0, "act": "gelu"}, "act='gelu', gated=True, bias=False belong to an MLP"),
        (SPARSE | {"d_ff": None, "dense": 0, "gated": False}, "act='silu', gated=False, bias=False belong to an MLP"),
        (SPARSE | {"dense": 7}, "dense=7 is more than layers=6: give at most"),
        ({"dense": 2}, "dense=2: without experts= all layers are dense; leave it out"),
        ({"window": WindowedLayers(4, layers=7)}, "window.layers=7 is more than layers=6: give at most"),
        (SPARSE | {"window": WindowedLayers(4, layers=3)}, "how many of its layers are among dense=2"),
        (SPARSE | {"window": WindowedLayers(4, layers=3, dense=3)}, "window.dense=3 must be from 0 to 2 with dense=2, window.layers=3"),
        (SPARSE | {"window": WindowedLayers(4, layers=1, dense=2)}, "window.dense=2 must be from 0 to 1 with dense=2, window.layers=1"),
        (SPARSE | {"window": WindowedLayers(4, layers=0, dense=1)}, "window.dense=1 must be from 0 to 0 with dense=2, window.layers=0"),
        ({"window": WindowedLayers(4, layers=3, dense=1)}, "window.dense=1 must be from 0 to 0 with dense=0"),
        (SPARSE | {"window": WindowedLayers(4, layers=5, dense=0)}, "window.dense=0 must be from 1 to 2 .* layers=6"),
        ({"norms": "sandwich"}, "norms='sandwich'"),
        ({"act": "mish"}, "act='mish'"),
        ({"bias": 2}, "bias=2"),
        ({"layers": 0}, "layers=0"),
        ({"vocab": -1}, "vocab=-1"),
        ({"d_model": 64.5}, "d_model=64.5"),
        ({"d_ff": float("nan")}, "d_ff=nan"),
        ({"head_dim": float("inf")}, "head_dim=inf"),
        ({"layers": True}, "layers=True"),
        ({"positions": 0}, "positions=0: a size must be at least 1"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused(changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        transformer(**DENSE | changed)


@pytest.mark.parametrize("attention, message", [
    (LATENT, "latent attention has no window here; leave one out"),
    (Attention(**HEADS, window=4), "it has a window of its own; leave one out"),
])  # fmt: skip
def test_a_window_beside_attention_that_cannot_have_it(attention, message):
    with pytest.raises(ValueError, match=rf"window=WindowedLayers\(width=4, .*\) beside attention=.*: {message}"):
        transformer(**ENDS, attention=attention, window=WindowedLayers(4))


@pytest.mark.parametrize(
    "given, message",
    [
        ({"width": 0}, "width=0: a size must be at least 1"),
        ({"width": 4, "layers": -1}, "layers=-1: a size must be at least 0"),
        ({"width": 4, "dense": 1}, "all layers have it, the dense ones too; leave dense= out, or give layers="),
    ],
)
def test_what_no_window_is(given, message):
    with pytest.raises(ValueError, match=message):
        WindowedLayers(**given)


@pytest.mark.parametrize(
    "name, hint",
    [
        ("kv_head", "did you mean kv_heads?"),
        ("n_layers", "did you mean layers or layer_inputs?"),
        ("position", "did you mean positions"),
        ("finalnorm", "did you mean final_norm?"),
        ("qkv_bias", "did you mean attention=Attention(qkv_bias=…)?"),
        ("kv_lora", "did you mean attention=LatentAttention(kv_lora=…)?"),
        ("top_k", "did you mean experts=Experts(top_k=…)?"),
        ("windowed", "did you mean window?"),
        ("blocks", "known: name, d_model, vocab, layers, heads"),
    ],
)
def test_an_argument_that_there_is_not(name, hint):
    """Also one of Model's, and one that belongs into a value."""
    with pytest.raises(TypeError) as caught:
        transformer(**DENSE, **{name: 1})
    assert str(caught.value).startswith(f"transformer has no argument {name!r}; {hint}")


def test_what_else_a_model_takes_is_passed_on():
    assert transformer(**DENSE, tied=True, final_norm=False).params == Model(
        **{**vars(transformer(**DENSE)), "tied": True, "final_norm": False}
    ).params  # fmt: skip


def test_the_plain_call_and_its_values_are_one_model():
    values = {"attention": Attention(**HEADS, qkv_bias=True, out_bias=True, rotary=0), "bias": True}
    assert transformer(**ENDS, **values) == transformer(**DENSE, rotary=0, bias=True)
    inside = Attention(**HEADS, window=4)
    assert transformer(**ENDS, attention=inside) == transformer(**DENSE, window=WindowedLayers(4))


@pytest.mark.parametrize("layers, both", [(600, 2), (0, 0)])
def test_all_layers_or_none_leave_nothing_to_ask(layers, both):
    """As many windows as layers is a window in each, whatever the number: Python keeps small ones once, large ones anew."""
    sizes = SPARSE | {"layers": 600}
    same = transformer(**sizes, window=WindowedLayers(4)) if layers else transformer(**sizes)
    assert transformer(**sizes, window=WindowedLayers(4, layers=layers)) == same
    assert transformer(**sizes, window=WindowedLayers(4, layers=layers, dense=both)) == same


def test_keys_of_relative_positions_are_parameters_alone():
    """One more matrix of d_model × heads·head_dim a layer, which 6N counts and nothing executes."""
    plain, relative = (
        transformer(**ENDS, attention=Attention(**HEADS, rotary=0, position_keys=keys)) for keys in (False, True)
    )
    assert relative.params - plain.params == 6 * 64 * 8 * 16
    ours, theirs = (model.forward(seq=SEQ) for model in (relative, plain))
    assert ours.flops == theirs.flops and ours.vector_flops == theirs.vector_flops
    assert ours.under("SIX_N").flops - theirs.under("SIX_N").flops == 2 * SEQ * 6 * 64 * 8 * 16
    assert ours.under("CHINCHILLA_TABLE").flops == theirs.under("CHINCHILLA_TABLE").flops
