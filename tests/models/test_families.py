"""Each family that a config.json may name: parameters and products are those of the model in transformers, on meta, to the last one."""

import pytest
import torch

import flopkit as fk
from flopkit.models import architectures, families

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SEQ, BATCH = 64, 2  # a chunk of the gated delta rule
DECODER = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
LATENT = DECODER | EXPERTS | {
    "kv_lora_rank": 12, "q_lora_rank": 20, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 6, "n_routed_experts": 8,
    "n_shared_experts": 2, "first_k_dense_replace": 1, "n_group": 2, "topk_group": 1, "num_key_value_heads": 4,
}  # fmt: skip
SMALL = {
    "llama": DECODER,
    "mistral": DECODER | {"sliding_window": 8},
    "qwen2": DECODER,
    "qwen2_moe": DECODER | EXPERTS | {"num_experts": 6, "shared_expert_intermediate_size": 40, "mlp_only_layers": [1]},
    "qwen3": DECODER | {"head_dim": 16},
    "qwen3_moe": DECODER | EXPERTS | {"num_experts": 6, "head_dim": 16},
    "mixtral": DECODER | {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
    "gemma2": DECODER | {"head_dim": 16, "sliding_window": 8},
    "gemma3_text": DECODER | {"head_dim": 16, "sliding_window": 8, "num_hidden_layers": 7},
    "olmo2": DECODER,
    "gpt_oss": DECODER | {"head_dim": 16, "sliding_window": 8, "num_local_experts": 4, "num_experts_per_tok": 2},
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT | {"q_lora_rank": None},
    "gpt2": {"vocab_size": 96, "n_embd": 32, "n_layer": 3, "n_head": 4, "n_positions": 64, "bos_token_id": 1, "eos_token_id": 2},
    "mpt": {"vocab_size": 96, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 64},
    "bert": {
        "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
        "max_position_embeddings": 64,
    },
    "t5": {"vocab_size": 96, "d_model": 32, "d_kv": 16, "d_ff": 80, "num_layers": 3, "num_decoder_layers": 2, "num_heads": 4},
    "vit": {
        "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
        "num_labels": 10,
    },
}  # fmt: skip
SMALL["qwen3_next"] = DECODER | EXPERTS | {
    "head_dim": 16, "num_experts": 6, "shared_expert_intermediate_size": 40, "num_hidden_layers": 4, "linear_num_value_heads": 4,
    "linear_num_key_heads": 2, "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
}  # fmt: skip
SMALL["mamba2"] = {
    "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16, "state_size": 24, "n_groups": 2, "expand": 2,
    "conv_kernel": 4, "chunk_size": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
DOTS_1 = DECODER | EXPERTS | {
    "num_hidden_layers": 6, "head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 2, "sliding_window": 8,
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full", "sliding")],
}  # fmt: skip
CLASSES = {"bert": "AutoModelForMaskedLM", "t5": "AutoModelForSeq2SeqLM", "vit": "AutoModelForImageClassification"}


def built(kind, **sizes):
    """The configuration as transformers would save it, and its model on meta."""
    config = transformers.AutoConfig.for_model(kind, **(sizes or SMALL[kind]))
    with torch.device("meta"):
        model = getattr(transformers, CLASSES.get(kind, "AutoModelForCausalLM")).from_config(
            config, dtype=torch.bfloat16
        )
    return config.to_dict(), model.eval()


def inputs(kind):
    with torch.device("meta"):
        ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
        if kind == "vit":
            return {"pixel_values": torch.zeros(BATCH, 3, 32, 32, dtype=torch.bfloat16)}
        return {"input_ids": ids, "decoder_input_ids": ids} if kind == "t5" else {"input_ids": ids}


def beyond(kind, ours):
    """FLOPs that transformers' fallback does beside the algorithm, in products: its convolutions run on past the last token, and
    Mamba-2's repeats B and C for each head and passes the states of the chunks on in one product."""
    if kind not in ("qwen3_next", "mamba2"):
        return 0
    mixer, layers = ours.blocks[0][0].mixer, ours.blocks[0][1]
    more = 2 * mixer.conv * (mixer.conv - 1) * mixer._channels
    if kind == "mamba2":
        more += 2 * SEQ * mixer.chunk * mixer.state * (mixer.heads - mixer.groups)
        more += 2 * (SEQ // mixer.chunk + 1) ** 2 * mixer.heads * mixer.head_dim * mixer.state
    return BATCH * layers * more


def test_each_family_is_compared():
    assert set(SMALL) == set(families())


@pytest.mark.parametrize("kind", families())
def test_parameters_and_products_are_those_of_transformers(kind):
    config, model = built(kind)
    report = fk.count(lambda: model(**inputs(kind)))
    ours = fk.from_hf(config)
    assert ours.params == sum(p.numel() for p in model.parameters())
    forward = ours.forward(batch=BATCH) if kind == "vit" else ours.forward(seq=SEQ, batch=BATCH)
    assert forward.under("TORCH").flops == report.flops - beyond(kind, ours)


@pytest.mark.parametrize("kind", sorted(set(families()) - {"qwen3_next", "mamba2"}))
def test_layer_by_layer(kind):
    """Each layer of ours beside the one that stands in its place there, its mixer and its MLP apart."""
    config, model = built(kind)
    report = fk.count(lambda: model(**inputs(kind)))
    rows = {row["module"]: row["flops"] for row in report.by_module() if row["flops"]}
    ours = fk.from_hf(config)
    lists = [name for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)]
    stacks = {lists[0]: ours} if kind != "t5" else {"encoder.block": ours.encoder, "decoder.block": ours}
    seq = ours.patches.tokens if kind == "vit" else SEQ
    for stack, whole in stacks.items():
        order = whole.order or (0,) * whole.layers
        assert len(order) == whole.layers
        for place, which in enumerate(order):
            layer = whole.layer(which, seq=seq, batch=BATCH).under("TORCH")
            assert layer.flops == rows[f"{stack}.{place}"], place
            names = [part.name for part in layer.parts]
            mixed = sum(part.flops for part in layer.parts[: names.index("attention_sum")])
            inside = {flops for name, flops in rows.items() if name.startswith(f"{stack}.{place}.")}
            assert mixed in inside, (place, mixed, inside)


@pytest.mark.parametrize("kind", ["qwen2_moe", "qwen3_moe"])
def test_windows_beside_experts(kind):
    config, model = built(
        kind, **SMALL[kind] | {"num_hidden_layers": 5, "mlp_only_layers": [1, 2], "use_sliding_window": True, "sliding_window": 8}
    )  # fmt: skip
    ours = fk.from_hf(config)
    assert ours.params == sum(p.numel() for p in model.parameters())
    for place, theirs in zip(ours.order, model.model.layers, strict=True):
        block = ours.blocks[place][0]
        assert (block.mixer.window or 0) == (getattr(theirs.self_attn, "sliding_window", None) or 0)
        assert hasattr(block.mlp, "top_k") == hasattr(theirs.mlp, "experts")


def test_dense_layers_and_experts_with_and_without_a_window():
    """dots.llm1, of which transformers has the layers, and `from_hf` no reader."""
    sizes = {
        "d_model": 32, "vocab": 96, "layers": 6, "d_ff": 80, "dense": 2,
        "attention": fk.models.Attention(heads=4, kv_heads=2, head_dim=16, qk_norm="head"),
        "experts": fk.models.Experts(experts=8, top_k=2, d_ff=24, shared_d_ff=48),
    }  # fmt: skip
    window = fk.models.WindowedLayers(8, layers=4, dense=1)
    ours = fk.models.transformer(**sizes, window=window, order=(0, 1, 2, 2, 3, 2))
    _, model = built("dots1", **DOTS_1)
    report = fk.count(lambda: model(**inputs("dots1")))
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=SEQ, batch=BATCH).under("TORCH").flops == report.flops
    rows = {row["module"]: row["flops"] for row in report.by_module()}
    for place, (which, theirs) in enumerate(zip(ours.order, model.model.layers, strict=True)):
        assert ours.blocks[which][0].mixer.window == theirs.self_attn.sliding_window
        assert ours.layer(which, seq=SEQ, batch=BATCH).under("TORCH").flops == rows[f"model.layers.{place}"]
    whole = fk.models.transformer(**sizes)
    unseen = sum(token + 1 - 8 for token in range(8, SEQ))  # pairs of a head in one sequence
    exact = (each.forward(seq=SEQ, batch=BATCH).flops for each in (whole, ours))
    assert next(exact) - next(exact) == 4 * BATCH * unseen * 4 * 2 * 2 * 16


# Keys of a configuration that change nothing of what is counted, by the family that has them ("": any), and why.
HARMLESS = {
    "": {
        "about the file": "transformers_version architectures _name_or_path problem_type dtype is_encoder_decoder",
        "about a call": "output_hidden_states output_attentions output_router_logits return_dict use_cache chunk_size_feed_forward",
        "which words are special": "pad_token_id eos_token_id bos_token_id",
        "positions that are turned have no table": "max_position_embeddings",
        "which experts are chosen, not how many": "norm_topk_prob n_group topk_group topk_method",
        "a factor of scores or of logits": "query_pre_attn_scalar scale_attn_weights scale_attn_by_inverse_layer_idx scale_decoder_outputs",
        "how it was trained": "pretraining_tp classifier_dropout rescale_prenorm_residual",
    },
    "deepseek_v2 deepseek_v3": {"latent attention has heads of its own": "num_key_value_heads head_dim qk_head_dim rope_interleave"},
    "deepseek_v3": {"of the layer that mtp=True adds": "num_nextn_predict_layers"},
    "qwen3_moe qwen3_next": {"all layers are mixtures": "intermediate_size"},
    "qwen2 qwen2_moe qwen3": {"layer_types says it": "max_window_layers"},
    "bert": {"of decoders": "add_cross_attention"},
    "gemma3_text": {"vector work that is not counted": "final_logit_softcapping attn_logit_softcapping", "layer_types says it": "_sliding_window_pattern"},
    "gpt2": {"of another head": "summary_type summary_use_proj summary_activation summary_proj_to_labels", "a number format": "reorder_and_upcast_attn"},
    "mamba2": {"heads and head_dim say it": "expand", "a number format": "residual_in_fp32", "bounds of a step": "time_step_rank time_step_limit"},
    "mpt": {"unused by transformers, or a name": "learned_pos_emb init_device logit_scale norm_type", "alibi has no table": "max_seq_len"},
    "t5": {"feed_forward_proj says it": "dense_act_fn is_gated_act", "where a bucket ends": "relative_attention_max_distance", "of the stacks": "is_decoder"},
    "vit": {"of another head": "pooler_output_size pooler_act encoder_stride"},
}  # fmt: skip
WINDOWED = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}


def told(config):
    """What a configuration comes to; why it is refused, where it is."""
    try:
        model = fk.from_hf(config)
    except (ValueError, TypeError) as error:
        return str(error)
    passes = [model.forward(batch=BATCH, **({"seq": SEQ} if model.patches is None else {}))]
    if model.head == "tokens" and model.encoder is None:
        passes.append(model.decode(context=SEQ))
    return [model.params, model.active_params, *((each.flops, each.vector_flops, each.bytes) for each in passes)]


def others(value):
    """Other values that a key may have."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value or 1, value + 1]
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [["sliding_attention"] * len(value), ["full_attention"] * len(value)]
    return {type(None): [8, True], str: ["another"]}.get(type(value), [])


def ignored(kind, config):
    """The keys that its reader does not look at."""
    base = told(config)
    changed = {key: others(value) for key, value in config.items() if key != "model_type"}
    return {
        key
        for key, values in changed.items()
        if values and all(told({**config, key: value}) == base for value in values)
    }


@pytest.mark.parametrize("kind", SMALL)
def test_no_key_that_matters_is_passed_over(kind):
    """A reader that ignores a size, a window or a switch goes red here."""
    config, _ = built(kind)
    found = ignored(kind, config)
    if "use_sliding_window" in config:
        found &= ignored(kind, built(kind, **SMALL[kind] | WINDOWED)[0])
    known = {
        key
        for kinds, why in HARMLESS.items()
        if not kinds or kind in kinds.split()
        for keys in why.values()
        for key in keys.split()
    }
    assert sorted(found - known) == [], (
        f"{kind}: say in flopkit/models/architectures.py what these stand for, refuse them, or write here why they don't matter"
    )


def test_a_key_that_is_passed_over_is_seen(monkeypatch):
    config, _ = built("llama")
    before = ignored("llama", config)
    reader = architectures.ARCHITECTURES["llama"]
    monkeypatch.setitem(
        architectures.ARCHITECTURES,
        "llama",
        lambda c, name: reader(type(c)({**c.fields, "mlp_bias": False}, c.kind), name),
    )
    assert ignored("llama", config) - before == {"mlp_bias"}
