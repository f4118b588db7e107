"""MiniMax-M3: blocks of keys that an indexer chooses, beside what transformers' model sees and holds."""

import pytest
import torch
from family_samples import merged

import flopkit as fk
from flopkit.models import BlockSparseAttention
from flopkit.models.stacks.parts import Run

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
SMALL = merged("SMALL")["minimax_m3_vl_text"]


@pytest.mark.parametrize("tokens", [5, 8, 17, 24, 25, 50, 64])
def test_a_query_sees_its_block_and_the_best_others(tokens):
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model("minimax_m3_vl_text", **SMALL, attn_implementation="eager")
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        found = model(input_ids=torch.randint(3, 90, (1, tokens)), output_attentions=True, use_cache=False).attentions
    ours = fk.from_hf({"model_type": "minimax_m3_vl_text", **SMALL})
    cores = [row["FLOPs"] for row in ours.table(seq=tokens) if row["part"].strip() == "attention"]
    assert sum(cores) == sum(int((each > 0).sum()) for each in found) * 2 * 2 * 16


@pytest.mark.parametrize("block, chosen", [(1, 1), (4, 1), (4, 3), (16, 2)])
def test_pairs_by_counting_them(block, chosen):
    sparse = BlockSparseAttention(
        heads=2, kv_heads=1, head_dim=8, index_heads=1, index_dim=8, block=block, chosen=chosen
    )
    for tokens in range(1, 60):
        seen = sum(token % block + 1 + block * min(chosen - 1, token // block) for token in range(tokens))
        assert sparse.seen(tokens) == seen


def test_a_step_reads_the_chosen_blocks():
    ours = fk.from_hf({"model_type": "minimax_m3_vl_text", **SMALL})
    sparse = ours.blocks[1][0].mixer
    core = next(each for each in sparse.parts(Run(1, 1, 60, decode=True), 32) if each.role == "core")
    assert core.cache == 3 * 8 * 2 * 2 * 16
    assert ours.kv_bytes(context=60) == 2 * 60 * (4 * 2 * 2 * 16 + 2 * 8)


@pytest.mark.parametrize(
    "changed, said",
    [
        ({"index_local_blocks": 0}, "only 1"),
        ({"qk_norm_type": "per_layer"}, "qk_norm_type"),
        ({"layer_types": ["sliding_attention"] * 4}, "not described"),
    ],
)
def test_what_is_not_described(changed, said):
    with pytest.raises(ValueError, match=said):
        fk.from_hf({"model_type": "minimax_m3_vl_text", **SMALL} | changed)


def test_what_its_own_file_calls_them():
    """The published file has them in sparse_attention_config, and a list of switches for each kind of layer."""
    names = {"index_n_heads": "sparse_num_index_heads", "index_head_dim": "sparse_index_dim", "index_block_size": "sparse_block_size",
             "index_topk_blocks": "sparse_topk_blocks"}  # fmt: skip
    older = {key: value for key, value in SMALL.items() if key not in (*names, "layer_types", "mlp_layer_types")}
    older |= {"sparse_attention_config": {said: SMALL[key] for key, said in names.items()} | {"sparse_attention_freq": [0, 1, 1, 0]},
              "moe_layer_freq": [0, 1, 1, 0], "hidden_act": "swigluoai"}  # fmt: skip
    one, other = (fk.from_hf({"model_type": "minimax_m3_vl_text", **each}) for each in (older, SMALL))
    assert one.blocks == other.blocks
    assert one.order == other.order


def test_a_format_by_role_is_that_of_what_is_read():
    """Of 60 tokens a step reads three blocks of eight in two layers, all of them in two others, and all keys of the indexers."""
    model, kinds = fk.from_hf({"model_type": "minimax_m3_vl_text", **SMALL}), ("bf16", {"keys": "fp8", "index": "fp8"})
    plain, narrow = (model.decode(context=60, kv_cache=kind).bytes for kind in kinds)
    assert plain - narrow == 2 * (3 * 8 + 60) * 2 * 16 + 2 * 60 * 8


def test_a_branch_around_attention_has_its_cache():
    """BitNet's norm inside of attention changes nothing of keys and values: two of 16 features, 10 tokens, 2 layers, 2 bytes."""
    sizes = {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "intermediate_size": 96,
        "vocab_size": 100,
    }
    model = fk.from_hf({"model_type": "bitnet", "num_hidden_layers": 2, **sizes})
    assert model.kv_bytes(context=10) == 2 * 2 * 16 * 10 * 2 * 2
