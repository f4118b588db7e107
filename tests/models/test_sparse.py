"""Attention that chooses its tokens: what a query sees, what a step of decoding reads, what has no backward pass."""

from dataclasses import replace

import pytest
import torch
from family_samples import merged

import flopkit as fk
from flopkit.models import Block, Indexer, LatentAttention, Model

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SMALL = merged("SMALL")["deepseek_v32"]
KEPT, SEQ, LAYERS, HEADS, KEY, VALUE = 8, 64, 5, 4, 12, 6


def model(**changed):
    return fk.from_hf({"model_type": "deepseek_v32", **SMALL, **changed})


def test_a_query_sees_what_is_chosen_and_the_indexer_sees_all():
    narrow, wide = model(), model(index_topk=SEQ)
    unseen = sum(token + 1 - KEPT for token in range(KEPT, SEQ))
    saved = 2 * LAYERS * HEADS * unseen * (KEY + VALUE)
    assert wide.forward(seq=SEQ).flops - narrow.forward(seq=SEQ).flops == saved
    assert wide.forward(seq=SEQ).under("TORCH").flops == narrow.forward(seq=SEQ).under("TORCH").flops
    scores = [row for row in narrow.table(seq=SEQ) if row["part"].strip() == "index_scores"]
    assert sum(row["FLOPs"] for row in scores) == LAYERS * 2 * 2 * (8 + 1) * SEQ * (SEQ + 1) // 2


def test_a_step_of_decoding_reads_all_keys_of_the_indexer_and_the_chosen_latents():
    short, long = (model().decode(context=context).bytes for context in (100, 200))
    assert long - short == 2 * LAYERS * 100 * 8  # the indexer's keys alone: the chosen latents are as many
    assert model().kv_bytes(context=100) == 2 * LAYERS * 100 * (12 + 4 + 8)


def test_what_the_indexer_does_has_no_backward_pass():
    """The same step in transformers, which runs it without gradients."""
    config = transformers.AutoConfig.for_model("deepseek_v32", **SMALL)
    with torch.device("meta"):
        theirs = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        ids = torch.zeros(1, SEQ, dtype=torch.long)
    report = fk.count(lambda: theirs(input_ids=ids).logits.sum().backward())
    forward, step = model().forward(seq=SEQ), model().train_step(seq=SEQ)
    indexed = [row for row in model().table(seq=SEQ) if row["part"].strip().startswith("index_")]
    alone = sum(row["FLOPs"] for row in indexed)
    assert step.backward.flops == 2 * (forward.flops - alone)
    hidden = forward.under("TORCH").flops - forward.flops
    index_hidden = LAYERS * 2 * 2 * (8 + 1) * SEQ * (SEQ - 1) // 2
    assert report.backward.under("TORCH").flops == step.backward.flops + 2 * (hidden - index_hidden)


def test_an_indexer_needs_a_number_and_latents_to_choose_from():
    indexer = fk.models.Indexer(heads=2, head_dim=8, rotary=4)
    sizes = {"heads": 4, "kv_lora": 12, "qk_nope": 8, "qk_rope": 4, "v_head_dim": 6}
    for given in ({"q_lora": 20}, {"selected": 8}):
        with pytest.raises(ValueError, match="give selected=, the tokens that it chooses, and q_lora="):
            LatentAttention(**sizes, **given, indexer=indexer)
    with pytest.raises(ValueError, match="indexer_types: the first layer has no choice of another one"):
        fk.from_hf({"model_type": "glm_moe_dsa", **SMALL, "indexer_types": ["shared"] * 5})


def test_documents_of_unequal_length():
    whole = model().forward(lengths=[3, 9, 40])
    assert whole.flops == sum(model().forward(seq=tokens).flops for tokens in (3, 9, 40))
    chunked = fk.from_hf({"model_type": "llama4_text", **merged("SMALL")["llama4_text"]})
    assert chunked.forward(lengths=[3, 40]).flops == sum(chunked.forward(seq=tokens).flops for tokens in (3, 40))


def test_chinchilla_counts_the_products_of_an_indexer_and_no_softmax():
    """Beside the same layer without one: its dense layers, and a dot product and a weight a head at every position."""
    heads, head_dim, d_model, q_lora, seq = 3, 8, 32, 12, 40
    sizes = {"heads": 4, "q_lora": q_lora, "kv_lora": 16, "qk_nope": 8, "qk_rope": 4, "v_head_dim": 6, "selected": 8}
    chooser = Indexer(heads=heads, head_dim=head_dim, rotary=4)
    chosen, taken = (
        Model(name="m", d_model=d_model, vocab=96, blocks=((Block(mixer=LatentAttention(**sizes, indexer=each)), 2),))
        for each in (chooser, None)
    )
    dense = seq * (q_lora * heads * head_dim + d_model * (head_dim + heads))
    counted = [each.forward(seq=seq).under("CHINCHILLA").flops for each in (chosen, taken)]
    assert counted[0] - counted[1] == 2 * 2 * (dense + seq * seq * heads * (head_dim + 1))


def test_glm_counted_as_dense_is_what_megatron_printed_before_it_knew_sparse_attention():
    """GFLOPs per token of Megatron-LM's pull request 6148 (branch dev, 2026-07-30) before the change, at four lengths."""
    glm = fk.load("glm-5.2", mtp=True)

    def without_indexer(block):
        return replace(block, mixer=replace(block.mixer, selected=None, indexer=None))

    blocks = tuple((without_indexer(block), n) for block, n in glm.blocks)
    as_dense = replace(glm, blocks=blocks, mtp=without_indexer(glm.mtp))
    assert glm.blocks[0][0].mixer.selected == 2048
    for seq, printed in {4096: 280.9, 32768: 503.6, 131072: 1267.0, 262144: 2284.9}.items():
        assert round(as_dense.train_step(seq=seq).under("MEGATRON").flops_per_token / 1e9, 1) == printed
