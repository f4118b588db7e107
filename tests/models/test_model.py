"""A decoder part by part, by hand; the comparison with transformers' own models is in test_families."""

from dataclasses import replace

import pytest

import flopkit as fk
from flopkit.models import transformer

SMALL = {"vocab": 96, "d_model": 32, "d_ff": 80, "layers": 3, "heads": 4, "kv_heads": 2, "head_dim": 8}
SEQ = 16


def test_llama_3_8b_by_its_published_numbers():
    """8,030,261,248 parameters; every matrix is met once by each token, every visible pair costs 4·32·128 in a layer."""
    llama = fk.load("llama-3-8b")
    layer = 4096 * 4096 * 2 + 4096 * 1024 * 2 + 4096 * 14336 * 3
    forward = llama.forward(seq=SEQ, batch=2)
    assert llama.params == forward.params == 32 * layer + 2 * 128256 * 4096 + 65 * 4096 == 8_030_261_248
    products = 2 * SEQ * 2 * (32 * layer + 128256 * 4096)
    assert forward.flops == products + 2 * 32 * 4 * 32 * 128 * SEQ * (SEQ + 1) // 2
    assert llama.layer(seq=1).params == layer + 2 * 4096


def test_the_kinds_and_roles_that_conventions_ask_for():
    forward = fk.load("llama-3-8b").forward(seq=SEQ)
    head = SEQ * 128256 * 4096
    assert forward.macs_by_kind["head"] == forward.macs_by_kind["embedding"] == head
    assert forward.params_by_role["head"] == forward.params_by_role["embedding"] == 128256 * 4096
    assert forward.params_by_role["norm"] == 65 * 4096


def test_the_element_wise_work_of_a_layer_by_hand():
    """Rotation: 3 a feature of queries and keys; swiglu 4; a sum 1; scale and softmax 6 a visible pair."""
    layer = transformer(**SMALL).layer(seq=SEQ, batch=2)
    tokens, pairs = 2 * SEQ, 2 * SEQ * (SEQ + 1) // 2
    norm = fk.rms_norm(tokens=tokens, d=32).vector_flops
    work = {
        "attention_norm": norm, "rotary": 3 * tokens * (4 + 2) * 8, "attention": 6 * 4 * pairs, "attention_sum": tokens * 32,
        "mlp_norm": norm, "swiglu": 4 * tokens * 80, "mlp_sum": tokens * 32,
    }  # fmt: skip
    assert {part.name: part.vector_flops for part in layer.parts if part.vector_flops} == work
    assert layer.vector_flops == sum(work.values())


def test_a_tied_table_counts_once():
    untied, tied = (transformer(**SMALL, tied=tied).forward(seq=SEQ) for tied in (False, True))
    assert untied.params - tied.params == 96 * 32
    assert untied.flops == tied.flops


def test_words_of_another_width_are_not_tables_of_another_width():
    with pytest.raises(ValueError, match="word_dim=8 beside embedding_dim=16"):
        replace(fk.load("gpt2"), word_dim=8, embedding_dim=16)
