"""DeepSeek-V4: what a query sees, what the caches hold, what a step executes, and the number that torchtitan prints."""

from dataclasses import replace

import numpy
import pytest
import torch
from family_samples import merged

import flopkit as fk
from flopkit.models import CompressedAttention, CompressedIndexer, Compressor

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SMALL = merged("SMALL")["deepseek_v4"]
HEADS, DIM, WINDOW, WIDTH, STREAMS = 4, 16, 10, 32, 3
NEAR, SPARSE, HEAVY = range(3)
# published as deepseek-ai/DeepSeek-V4-Flash, the keys that are read
FLASH = {
    "model_type": "deepseek_v4", "architectures": ["DeepseekV4ForCausalLM"], "hidden_size": 4096, "vocab_size": 129280, "num_hidden_layers": 43,
    "num_attention_heads": 64, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64, "q_lora_rank": 1024, "o_groups": 8,
    "o_lora_rank": 1024, "moe_intermediate_size": 2048, "n_routed_experts": 256, "n_shared_experts": 1, "num_experts_per_tok": 6,
    "num_hash_layers": 3, "index_n_heads": 64, "index_head_dim": 128, "index_topk": 512, "sliding_window": 128, "hc_mult": 4,
    "hc_sinkhorn_iters": 20, "hidden_act": "silu", "tie_word_embeddings": False, "num_nextn_predict_layers": 1,
    "compress_ratios": [0, 0, *[4, 128] * 20, 4, 0],
}  # fmt: skip


def ours(**changed):
    return fk.from_hf({"model_type": "deepseek_v4", **SMALL, **changed})


def theirs(device="cpu", **changed):
    config = transformers.AutoConfig.for_model("deepseek_v4", **SMALL, **changed)
    torch.manual_seed(0)
    with torch.device(device):
        return transformers.AutoModelForCausalLM.from_config(
            config, attn_implementation="eager", dtype=torch.bfloat16 if device == "meta" else torch.float32
        ).eval()


def ids(tokens, device="cpu"):
    return torch.arange(tokens, device=device)[None] * 7 % 95 + 1


def pairs(model, q, kv):
    """Pairs of a head, of each kind of layer."""
    run = fk.models.stacks.parts.Run(1, q, kv)
    found = []
    for block, _ in model.blocks:
        core = next(each for each in block.mixer.parts(run, WIDTH) if each.cost.name == "attention")
        found.append(core.cost.macs_by_kind["scores"] // (HEADS * 2 * DIM))
    return found


@pytest.mark.parametrize("tokens", [1, 3, 4, 9, 16, 40, 67])
def test_a_query_sees_its_window_and_the_rows_before_it(tokens):
    """The weights of attention that are not zero, in transformers."""
    model = theirs()
    with torch.no_grad():
        found = model(input_ids=ids(tokens), output_attentions=True, use_cache=False).attentions
    seen = [int((each[0, 0] > 0).sum()) for each in found]
    expected = pairs(ours(), tokens, tokens)
    assert seen == [expected[kind] for kind in ours().order]
    core = sum(int((each > 0).sum()) for each in found) * 2 * 2 * DIM
    assert sum(row["FLOPs"] for row in ours().table(seq=tokens) if row["part"].strip() == "attention") == core


@pytest.mark.parametrize("before, new", [(5, 1), (15, 1), (40, 1), (63, 1), (30, 9), (47, 17)])
def test_a_step_with_a_cache(before, new):
    """What a step of decoding, or a chunk behind a prefix, sees and executes."""
    model, found, kv = theirs(), [], before + new
    cache = transformers.DynamicCache(config=model.config)

    def step():
        found.extend(
            model(input_ids=ids(new), past_key_values=cache, use_cache=True, output_attentions=True).attentions
        )

    with torch.no_grad():
        model(input_ids=ids(before), past_key_values=cache, use_cache=True)
        report = fk.count(step)
    expected = pairs(ours(), new, kv)
    assert [int((each[0, 0] > 0).sum()) for each in found] == [expected[kind] for kind in ours().order]
    masked = sum(int((each == 0).sum()) for each in found) * 2 * 2 * DIM
    not_ready = sum(kv // 4 - (token + 1) // 4 for token in range(before, kv))
    masked += 2 * not_ready * 3 * 8 * 2  # scores of the indexers
    heads = 2 * (new - 1) * WIDTH * 96  # prefill has the head on one token
    assert ours().prefill(prompt=new, prefix=before).flops == report.flops - masked - heads
    if new == 1:
        assert ours().decode(context=kv).flops == report.flops - masked


@pytest.mark.parametrize("context", [1, 3, 4, 9, 10, 15, 16, 63, 64, 66])
def test_the_cache_holds_what_transformers_holds(context):
    model = theirs()
    cache = transformers.DynamicCache(config=model.config)
    with torch.no_grad():
        model(input_ids=ids(context), past_key_values=cache, use_cache=True)
    held = 0
    for layer in cache.layers:
        held += layer.keys.numel()  # the values are the same tensor
        for name in ("compressed_kv", "buffer_kv", "buffer_gate", "overlap_kv", "overlap_gate"):
            held += sum(each.numel() for each in getattr(layer, name, {}).values() if each is not None)
    leaves = 5 * DIM * (context >= WINDOW)  # transformers drops the row that the next token does not see
    assert ours().kv_bytes(context=context) == 2 * (held + leaves)


def test_what_a_step_of_decoding_moves():
    """Three tokens wait behind 63, and 64 fill a window of 4 and one of 16."""

    def core(context, kind):
        run = fk.models.stacks.parts.Run(1, 1, context, decode=True)
        return {each.cost.name: each.cache for each in ours().blocks[kind][0].mixer.parts(run, WIDTH)}

    waits, fills = core(63, SPARSE), core(64, SPARSE)
    assert waits["attention"] == fills["attention"] == (WINDOW + 6) * DIM
    assert (waits["index_scores"], fills["index_scores"]) == (15 * 8, 16 * 8)
    assert waits["compress"] == 2 * 2 * DIM  # the new token's row and weights, of two series
    # three tokens that waited and one old window read, the new window written
    assert fills["compress"] == 3 * 4 * DIM + 2 * (4 * 2 * DIM)
    heavy = core(64, HEAVY)
    assert heavy["attention"] == (WINDOW + 4) * DIM and heavy["compress"] == 15 * 2 * DIM


def test_module_by_module():
    model = theirs("meta")
    report = fk.count(lambda: model(input_ids=ids(64, "meta")))
    rows = {row["module"]: row["flops"] for row in report.by_module()}
    whole = ours()
    assert whole.forward(seq=64).under("TORCH").flops == report.flops
    streams = 2 * 64 * STREAMS * WIDTH * (STREAMS**2 + 2 * STREAMS)
    for place, kind in enumerate(whole.order):
        at, layer = f"model.layers.{place}", whole.layer(kind, seq=64).under("TORCH")
        parts = {each.name: each.flops for each in layer.parts}
        assert layer.flops == rows[at]
        for name, theirs_is in (("attention", "attn_hc"), ("mlp", "ffn_hc")):
            assert parts[f"{name}_streams_proj"] == rows[f"{at}.{theirs_is}"] == streams
        names = list(parts)
        attention = sum(parts[name] for name in names[names.index("q_down") : names.index("attention_mix")])
        assert attention == rows[f"{at}.self_attn"]
        indexed = sum(flops for name, flops in parts.items() if name.startswith("index_"))
        compressed = sum(flops for name, flops in parts.items() if name.startswith("compress"))
        assert indexed == rows.get(f"{at}.self_attn.compressor.indexer", 0)
        assert indexed + compressed == rows.get(f"{at}.self_attn.compressor", 0)
        assert (indexed > 0, compressed > 0) == (kind == SPARSE, kind != NEAR)


def test_what_the_indexer_does_has_no_backward_pass():
    model = theirs("meta")
    report = fk.count(lambda: model(input_ids=ids(64, "meta")).logits.sum().backward())
    forward, step = ours().forward(seq=64), ours().train_step(seq=64)
    alone = [row["FLOPs"] for row in ours().table(seq=64) if row["part"].strip().startswith("index_")]
    assert step.backward.flops == 2 * (forward.flops - sum(alone))
    hidden = forward.under("TORCH").flops - forward.flops
    not_ready = sum(16 - (token + 1) // 4 for token in range(64))
    hidden -= 2 * not_ready * 3 * 8 * 2
    assert report.backward.under("TORCH").flops == step.backward.flops + 2 * hidden


@pytest.mark.parametrize("layers", [1, 2, 5])
def test_the_last_layers_alone_are_trained(layers):
    model = theirs("meta")
    frozen = [model.model.embed_tokens, *model.model.layers[: 5 - layers]]
    for each in frozen:
        each.requires_grad_(False)
    report = fk.count(lambda: model(input_ids=ids(64, "meta")).logits.sum().backward())
    trained = fk.models.LastLayers(layers)
    assert ours().trained_params(trained) == sum(p.numel() for p in model.parameters() if p.requires_grad)
    backward = ours().train_step(seq=64, trained=trained).backward
    assert backward.under("TORCH").flops == report.backward.under("TORCH").flops


def test_the_published_file():
    """Its parameters and products in transformers 5.23, on meta."""
    flash = fk.from_hf(FLASH)
    assert flash.params == 284_332_230_231
    assert flash.forward(seq=128).under("TORCH").flops == 3_503_468_576_768
    assert [flash.blocks[kind][0].mixer.compressor for kind in flash.order[:4]] == [
        None, None, Compressor(rate=4, series=2), Compressor(rate=128)
    ]  # fmt: skip
    # a million tokens: rows of 512 and 128 numbers for each 4, of 512 for each 128; and windows, with what waits
    rows = 2**20 // 4 * (512 + 128) * 21 + 2**20 // 128 * 512 * 20
    last = 4 * 2 * (512 + 128) * 21
    assert flash.kv_bytes(context=2**20) == 2 * (rows + last + 43 * 128 * 512)


def test_the_number_that_torchtitan_prints():
    """pytorch/torchtitan, pull request 4441: deepseek_v4_flash with one layer for multi-token prediction, at 4,096 tokens."""
    seq, flash = 4096, fk.from_hf(FLASH, mtp=True)
    assert flash.params == 290_942_278_866
    layers = [flash.blocks[kind][0].mixer for kind in flash.order] + [flash.mtp.mixer]
    assert layers[-1].compressor is None
    # it counts six FLOPs for each parameter that works for a token: the table of the embedding does not, the head does twice, the
    # matrix for the streams of the layer for multi-token prediction four times
    macs = {kind: count / seq for kind, count in flash.forward(seq=seq).macs_by_kind.items()}
    mixed = sum(row["FLOPs"] for row in flash.table(seq=seq) if row["part"].strip().endswith("_mix")) / 2 / seq
    again = 3 * flash.d_model  # the norm before that matrix: its weight counts once there, and four times here
    worked = sum(macs[kind] for kind in ("products", "router", "head", "vectors", "positions")) - mixed - again
    counted = flash.active_params - flash.vocab * flash.d_model
    assert worked == counted + flash.vocab * flash.d_model + 3 * flash.d_model**2
    # and every position of a window and of the compressed rows that are there at the end, forward and twice backward
    core = index = 0
    for mixer in layers:
        rows = 0 if mixer.compressor is None else mixer.compressor.rows(seq)
        if mixer.indexer is not None:
            index += mixer.indexer.heads * mixer.indexer.head_dim * rows
            rows = min(rows, mixer.indexer.selected)
        core += mixer.heads * 2 * mixer.head_dim * (mixer.window + rows)
    printed = 6 * (worked + core + index)
    assert printed == 92_762_352_876
    # what is executed is less, and why
    table = [(row["part"].strip(), row["FLOPs"] / 2 / seq) for row in flash.table(seq=seq)]
    seen = sum(macs for name, macs in table if name == "attention")
    scored = sum(macs for name, macs in table if name == "index_scores")
    indexed = sum(macs for name, macs in table if name.startswith("index_")) - scored
    reasons = [
        6 * (macs["vectors"] + macs["positions"] - again),  # parameters that are in no product
        -6 * mixed,  # the products that mix the streams have no parameters
        6 * (core - seen),  # a query sees its window and the rows before it alone
        6 * index - 2 * scored,  # so does the indexer, whose scores have no gradient
        4 * indexed,  # nor have its dense layers
    ]
    executed = flash.train_step(seq=seq).model_flops / seq
    assert printed - executed == sum(reasons)


def test_all_sizes_at_once():
    """A sweep of lengths gives what each gives."""
    lengths = [1, 4, 17, 64, 200]
    swept = ours().forward(seq=numpy.array(lengths))
    each = [ours().forward(seq=seq) for seq in lengths]
    for name in ("flops", "vector_flops", "bytes"):
        assert [int(value) for value in getattr(swept, name)] == [getattr(one, name) for one in each]
    steps = ours().decode(context=numpy.array(lengths))
    assert [int(value) for value in steps.bytes] == [ours().decode(context=context).bytes for context in lengths]


def test_older_words_for_the_same_layers():
    kinds = {"sliding_attention": 0, "compressed_sparse_attention": 4, "heavily_compressed_attention": 128}
    older = {
        key: value
        for key, value in SMALL.items()
        if key not in ("layer_types", "compress_rates", "partial_rotary_factor")
    }
    older |= {
        "compress_ratios": [kinds[each] for each in SMALL["layer_types"]] + [0],
        "compress_rate_csa": 4,
        "compress_rate_hca": 16,
    }
    older |= {"model_type": "deepseek_v4", "qk_rope_head_dim": 4, "num_hash_layers": 2}
    assert fk.from_hf(older) == ours()
    deep = fk.from_hf({**older, "num_nextn_predict_layers": 1, "compress_ratios": [0, 4, 128, 4, 0, 4]}, mtp=True)
    assert deep.mtp == deep.blocks[SPARSE][0]


def test_what_is_not_known_is_refused():
    for refused, words in (
        ({"compress_ratios": [0, 4, 64, 4, 0], "layer_types": None}, "compress_ratios: 64 is not described here"),
        ({"layer_types": ["full_attention"] * 5}, "layer_types: .full_attention. is not described here"),
        ({"mlp_layer_types": ["moe"] * 3}, "mlp_layer_types has 3 entries for 5 layers"),
        (
            {"num_key_value_heads": 2},
            "num_key_value_heads=2: flopkit supports deepseek_v4 only with num_key_value_heads=1",
        ),
    ):
        with pytest.raises(ValueError, match=words):
            ours(**refused)
    for call in (lambda: ours().train_memory(seq=64), lambda: replace(ours(), streams=None).train_memory(seq=64)):
        with pytest.raises(ValueError, match="keeps is not known here; train_step counts its FLOPs"):
            call()
    with pytest.raises(ValueError, match="lengths= beside compressed attention"):
        ours().forward(lengths=[3, 9])
    with pytest.raises(ValueError, match="causal=False beside compressed attention"):
        replace(ours(), causal=False).forward(seq=8)
    sizes = {"heads": 4, "head_dim": 16, "q_lora": 20, "groups": 2, "o_lora": 12, "window": 8}
    with pytest.raises(ValueError, match="give compressor=, which makes the rows"):
        CompressedAttention(**sizes, indexer=CompressedIndexer(heads=2, head_dim=8, selected=4))
