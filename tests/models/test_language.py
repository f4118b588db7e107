"""A decoder layer by layer: by hand, as transformers' own model is counted, and in all four readings."""

import re

import altair
import numpy
import pytest
import sympy
import torch
import vega

import flopkit as fk
from flopkit.models import Decoder, config_names, decoder, hf_config

SMALL = {"vocab": 96, "d_model": 32, "d_ff": 80, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 8}
SEQ = 16


def test_llama_3_8b_by_its_published_numbers():
    """8,030,261,248 parameters; every matrix is met once by each token, every visible pair costs 4·32·128 in a layer."""
    llama = decoder("llama-3-8b")
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 4096 * 14336 * 3
    forward = llama.forward(seq=SEQ, batch=2)
    assert forward.params == 32 * layer + 2 * 128256 * 4096 + 65 * 4096 == 8_030_261_248
    products = 2 * SEQ * 2 * (32 * layer + 128256 * 4096)
    assert forward.flops == products + 2 * 32 * 4 * 32 * 128 * SEQ * (SEQ + 1) // 2
    assert llama.layer(seq=1).params == layer + 2 * 4096


def test_the_kinds_and_roles_that_conventions_ask_for():
    forward = decoder("llama-3-8b").forward(seq=SEQ)
    head = SEQ * 128256 * 4096
    assert forward.macs_by_kind["head"] == forward.macs_by_kind["embedding"] == head
    assert forward.params_by_role["head"] == forward.params_by_role["embedding"] == 128256 * 4096
    assert forward.params_by_role["norm"] == 65 * 4096


def test_the_element_wise_work_of_a_layer_by_hand():
    """Rotation: 3 a feature of queries and keys; swiglu 4; a sum 1; scale and softmax 6 a visible pair."""
    layer = Decoder("small", **SMALL).layer(seq=SEQ, batch=2)
    tokens, pairs = 2 * SEQ, 2 * SEQ * (SEQ + 1) // 2
    work = {
        "rotary": 3 * tokens * (4 + 2) * 8,
        "swiglu": 4 * tokens * 80,
        "residual": tokens * 32,
        "attention": 6 * 4 * pairs,
    }
    norm = fk.rms_norm(tokens=tokens, d=32).vector_flops
    work |= {"input_layernorm": norm, "post_attention_layernorm": norm}
    assert {part.name: part.vector_flops for part in layer.parts if part.vector_flops} == work
    assert layer.vector_flops == sum(work.values()) + work["residual"]  # there are two


def test_a_tied_table_counts_once():
    untied, tied = (Decoder("small", **SMALL, tied=tied).forward(seq=SEQ) for tied in (False, True))
    assert untied.params - tied.params == 96 * 32
    assert untied.flops == tied.flops


def counted(config):
    transformers = pytest.importorskip("transformers")
    settings = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(settings, dtype=torch.bfloat16)
        ids = torch.zeros(2, SEQ, dtype=torch.long)
    report = fk.count(lambda: model(input_ids=ids))
    return sum(p.numel() for p in model.parameters()), {
        row["module"]: row["flops"] for row in report.by_module() if row["flops"]
    }


@pytest.mark.parametrize("tied", [False, True])
def test_each_product_is_that_of_transformers_own_model(tied):
    """By module name: a wrong width would show in its row, and a missing matrix as a row that only one side has."""
    config = hf_config("llama-3-8b") | {
        "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "num_key_value_heads": 2, "tie_word_embeddings": tied,
    }  # fmt: skip
    params, rows = counted(config)
    ours = decoder(config)
    forward = ours.forward(seq=SEQ, batch=2).under(fk.conventions.TORCH)
    assert forward.params == params
    assert forward.flops == rows[""]
    layer = ours.layer(seq=SEQ, batch=2).under(fk.conventions.TORCH)
    assert layer.flops == rows["model.layers.1"]
    theirs = {
        name.split(".")[-1]: flops for name, flops in rows.items() if re.fullmatch(r"model\.layers\.1\.\w+\.\w+", name)
    }
    products = {part.name: part.flops for part in layer.parts if part.flops and part.name != "attention"}
    assert products == theirs and len(products) == 7
    head = next(part for part in forward.parts if part.name == "lm_head")
    assert head.flops == rows["lm_head"]


def numbers(cost):
    return [getattr(cost, name) for name in ("flops", "vector_flops", "bytes", "params")]


def test_four_readings():
    names = ["seq", *SMALL]
    values = {"seq": SEQ, **SMALL}

    def read(of):
        sizes = {name: of(name) for name in names}
        return Decoder("read", **{k: v for k, v in sizes.items() if k != "seq"}).forward(seq=sizes["seq"], batch=2)

    exact = numbers(read(values.__getitem__))
    assert all(type(number) is int for number in exact)
    assert [
        int(found[1])
        for found in numbers(read(lambda name: numpy.array([1, values[name]]) if name == "seq" else values[name]))[:3]
    ] == exact[:3]
    symbols = {name: sympy.Symbol(name, positive=True, integer=True) for name in names}
    assert [number.subs({symbols[n]: v for n, v in values.items()}) for number in numbers(read(symbols.get))] == exact
    parameters = {name: altair.param(name=name, value=1) for name in names}
    expressions = [fk.arithmetic.vega(number) for number in numbers(read(parameters.get))]
    assert [vega.evaluate(expression, values) for expression in expressions] == exact


def test_what_a_decoder_is_not_is_refused():
    others = [name for name in config_names() if hf_config(name)["model_type"] != "llama"]
    assert others
    for name in others:
        with pytest.raises(ValueError, match=f"model_type='{hf_config(name)['model_type']}': only 'llama'"):
            decoder(name)
    with pytest.raises(ValueError, match="mlp_bias=True: a decoder's layers have no bias"):
        decoder(hf_config("llama-3-8b") | {"mlp_bias": True})
    with pytest.raises(ValueError, match="name='llama-4' is not a model .*did you mean llama-"):
        decoder("llama-4")


@pytest.mark.parametrize(
    "changed, message",
    [({"hidden_act": "gelu"}, "hidden_act='gelu'"), ({"num_hidden_layers": 0}, "layers=0: a size"), ({"hidden_size": "4096"}, "hidden_size='4096'")],
)  # fmt: skip
def test_a_configuration_that_is_no_decoder(changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        decoder({**hf_config("llama-3-8b"), **changed})


def test_a_configuration_that_lacks_something():
    with pytest.raises(ValueError, match="lacks vocab_size, hidden_size"):
        decoder({"model_type": "llama"})
