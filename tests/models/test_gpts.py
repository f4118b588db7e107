"""Variants of decoders with layer norms, beside their small configurations in ``family_samples``, and models as published."""

import pytest
import torch
from family_samples.sizes import BATCH, DECODER, SEQ
from test_families import built, compare, small
from test_memory import HEADS, LOSS_SCALE, TOKENS, VOCAB, WIDTH, Adapted, built as trained, kept

import flopkit as fk

FALCON = small("falcon") | {"new_decoder_architecture": False, "num_kv_heads": None}
VARIANTS = {
    "OPT-350m": ("opt", small("opt") | {"do_layer_norm_before": False}),
    "OPT without biases": (
        "opt",
        small("opt") | {"enable_bias": False, "word_embed_proj_dim": 32, "tie_word_embeddings": False},
    ),
    "OPT before 4.20.1": ("opt", small("opt") | {"_remove_final_layer_norm": True}),
    "GPT-2 of another inner width": ("gpt2", small("gpt2") | {"n_inner": 80, "activation_function": "relu"}),
    "GPT-NeoX, one behind the other": (
        "gpt_neox",
        small("gpt_neox") | {"use_parallel_residual": False, "attention_bias": False},
    ),
    "Falcon-7B": ("falcon", FALCON),
    "Falcon-RW": ("falcon", FALCON | {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}),
    "Falcon2-11B": (
        "falcon",
        small("falcon") | {"num_ln_in_parallel_attn": 1, "ffn_hidden_size": 80, "tie_word_embeddings": False},
    ),
    "GPT-Neo of one kind": (
        "gpt_neo",
        small("gpt_neo") | {"attention_types": [[["global"], 3]], "intermediate_size": 80},
    ),
    "GPT-BigCode, heads of their own": ("gpt_bigcode", small("gpt_bigcode") | {"multi_query": False, "n_inner": 80}),
    "StarCoder2 without biases": ("starcoder2", small("starcoder2") | {"use_bias": False, "sliding_window": None}),
    "GPT-J of another inner width": ("gptj", small("gptj") | {"n_inner": 80, "rotary_dim": 8}),
    "Phi-2": ("phi", DECODER | {"num_key_value_heads": None}),
    "StableLM 3B": ("stablelm", DECODER | {"num_key_value_heads": 4}),
    "StableLM 2 1.6B": ("stablelm", DECODER | {"use_qkv_bias": True}),
    "Persimmon without norms": ("persimmon", small("persimmon") | {"qk_layernorm": False}),
    "Nemotron with biases": ("nemotron", DECODER | {"attention_bias": True, "mlp_bias": True}),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_variants(name):
    kind, sizes = VARIANTS[name]
    compare(kind, *built(kind, **sizes))


def test_windows_of_gpt_neo():
    """Global and local in turn, and the masks that transformers makes of it."""
    config, model = built("gpt_neo")
    ours = fk.from_hf(config)
    assert [ours.blocks[place][0].mixer.window for place in ours.order] == [None, 8, 8]
    masks = [layer.attn.attention.bias.shape for layer in model.transformer.h]
    assert masks == [(1, 1, 128, 128)] * 3
    whole = fk.from_hf(config | {"attention_layers": ["global"] * 3})
    unseen = sum(token + 1 - 8 for token in range(8, SEQ))  # pairs of a head in one sequence
    fewer = whole.forward(seq=SEQ, batch=BATCH).flops - ours.forward(seq=SEQ, batch=BATCH).flops
    assert fewer == 2 * BATCH * unseen * 4 * 2 * 2 * 8


def test_positions_of_opt_end_before_its_table():
    model = fk.from_hf(built("opt")[0])
    model.forward(seq=128)
    with pytest.raises(ValueError, match="learned positions for 128 tokens, and 129"):
        model.forward(seq=129)


def config(kind, **sizes):
    return {"model_type": kind, **sizes}


def pythia(width, layers, heads, vocab=50304):
    return config(
        "gpt_neox", vocab_size=vocab, hidden_size=width, num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * width,
        max_position_embeddings=2048, rotary_pct=0.25, use_parallel_residual=True, tie_word_embeddings=False,
    )  # fmt: skip


def bloom(width, layers, heads):
    return config("bloom", vocab_size=250880, n_embed=width, n_layer=layers, num_attention_heads=heads)


OPT = {"max_position_embeddings": 2048, "vocab_size": 50272, "model_type": "opt"}
RW_7B = config(
    "RefinedWebModel", architectures=["RWForCausalLM"], hidden_size=4544, n_head=71, n_layer=32, vocab_size=65024, multi_query=True,
    parallel_attn=True, bias=False, alibi=False,
)  # fmt: skip
RW_40B = config(
    "RefinedWeb", architectures=["RWForCausalLM"], hidden_size=8192, n_head=128, n_head_kv=8, n_layer=60, vocab_size=65024,
    parallel_attn=True, bias=False, alibi=False,
)  # fmt: skip
PHI_MSFT = config(
    "phi-msft", architectures=["PhiForCausalLM"], vocab_size=51200, n_positions=2048, n_embd=2560, n_layer=32, n_inner=None, n_head=32,
    n_head_kv=None, rotary_dim=32, activation_function="gelu_new", tie_word_embeddings=False,
)  # fmt: skip
PYTHIA = "model card of EleutherAI/pythia-70m and the others, table of exact parameter counts; sizes: LitGPT, litgpt/config.py"
NEOX = "model card of EleutherAI/gpt-neox-20b, table of hyperparameters"
BLOOM = "model card of bigscience/bloom, technical specifications"
SMALL_BLOOM = "model card of bigscience/bloom-560m and -7b1, as openllmlist.com repeats it"
PUBLISHED = {
    "Pythia-70m": (pythia(512, 6, 8), 70_426_624, PYTHIA),
    "Pythia-160m": (pythia(768, 12, 12), 162_322_944, PYTHIA),
    "Pythia-410m": (pythia(1024, 24, 16), 405_334_016, PYTHIA),
    "Pythia-1b": (pythia(2048, 16, 8), 1_011_781_632, PYTHIA),
    "Pythia-2.8b": (pythia(2560, 32, 32), 2_775_208_960, PYTHIA),
    "Pythia-6.9b": (pythia(4096, 32, 32, 50432), 6_857_302_016, PYTHIA),
    "Pythia-12b": (pythia(5120, 36, 40, 50688), 11_846_072_320, PYTHIA),
    "GPT-NeoX-20B": (pythia(6144, 44, 64, 50432), 20_554_567_680, NEOX),
    "BLOOM-560m": (bloom(1024, 24, 16), 559_214_592, SMALL_BLOOM),
    "BLOOM-7b1": (bloom(4096, 30, 32), 7_069_016_064, SMALL_BLOOM),
    "BLOOM": (bloom(14336, 70, 112), 176_247_271_424, BLOOM),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_those_published(name):
    file, params, source = PUBLISHED[name]
    assert fk.from_hf(file).params == params, source


# Published sizes under the keys of the published files, beside transformers' own class.
LIKE = {
    "OPT-350m": OPT | {
        "hidden_size": 1024, "word_embed_proj_dim": 512, "ffn_dim": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "do_layer_norm_before": False, "activation_function": "relu",
    },
    "Falcon-7B": (RW_7B, config("falcon", hidden_size=4544, num_attention_heads=71, num_hidden_layers=32, vocab_size=65024, num_kv_heads=71)),
    "Falcon-40B": (RW_40B, config(
        "falcon", hidden_size=8192, num_attention_heads=128, num_hidden_layers=60, vocab_size=65024, num_kv_heads=8, new_decoder_architecture=True,
    )),
    "Phi-2": (PHI_MSFT, config(
        "phi", vocab_size=51200, hidden_size=2560, intermediate_size=10240, num_hidden_layers=32, num_attention_heads=32, partial_rotary_factor=0.4,
    )),
    "StableLM 2 12B": config(
        "stablelm", vocab_size=100352, hidden_size=5120, intermediate_size=13824, num_hidden_layers=40, num_attention_heads=32,
        num_key_value_heads=8, qk_layernorm=True, use_parallel_residual=True, use_qkv_bias=False, partial_rotary_factor=0.25,
    ),
    "StarCoder": config(
        "gpt_bigcode", vocab_size=49152, n_embd=6144, n_head=48, n_layer=40, n_inner=24576, n_positions=8192, multi_query=True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIKE)
def test_files_as_published(name):
    file = LIKE[name]
    older, newer = file if isinstance(file, tuple) else (file, file)
    sizes = {key: value for key, value in newer.items() if key != "model_type"}
    saved, model = built(newer["model_type"], **sizes)
    ours = fk.from_hf(older)
    assert ours.params == sum(p.numel() for p in model.parameters())
    whole = fk.from_hf(saved)
    assert (ours.forward(seq=64).flops, ours.forward(seq=64).vector_flops) == (
        whole.forward(seq=64).flops,
        whole.forward(seq=64).vector_flops,
    )
    assert ours.kv_bytes(context=64) == whole.kv_bytes(context=64)


@pytest.mark.parametrize(
    ("file", "why"),
    [
        (built("gpt2")[0] | {"architectures": ["GPT2DoubleHeadsModel"]}, "this class of gpt2 is not described here"),
        (built("falcon")[0] | {"parallel_attn": False}, "no such layers"),
        (built("falcon", **FALCON)[0] | {"num_ln_in_parallel_attn": 2}, "no such layers"),
        (built("falcon", **FALCON)[0] | {"multi_query": False, "num_kv_heads": 2}, "num_kv_heads=2"),
        ({key: value for key, value in RW_7B.items() if key != "multi_query"}, "multi_query"),
        ({key: value for key, value in RW_40B.items() if key != "parallel_attn"}, "parallel_attn"),
        (PHI_MSFT | {"num_local_experts": 2}, "num_local_experts=2"),
        ({key: value for key, value in PHI_MSFT.items() if key != "vocab_size"}, "vocab_size"),
        (config("stablelm_epoch", architectures=["StableLMEpochForCausalLM"]), "use_qkv_bias"),
        (built("gpt_neo")[0] | {"attention_layers": ["global", "local"]}, "for each of 3 layers"),
        (built("openai-gpt")[0] | {"afn": "tanh"}, "afn='tanh'"),
        (built("codegen")[0] | {"architectures": ["CodeGenForSequenceClassification"]}, "this class of codegen"),
    ],
)
def test_refused(file, why):
    with pytest.raises(ValueError, match=why):
        fk.from_hf(file)


# -- what training keeps --------------------------------------------------------------------------------------

PLAIN = {
    "vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 3, "num_attention_heads": HEADS, "bos_token_id": 1, "eos_token_id": 2,
    "max_position_embeddings": 64, "hidden_dropout": 0.0, "attention_dropout": 0.0, "tie_word_embeddings": False,
}  # fmt: skip
NEOX = {"model_type": "gpt_neox", **PLAIN, "intermediate_size": 80, "hidden_act": "gelu"}
NARROW = {"model_type": "opt", **PLAIN, "ffn_dim": 80, "dropout": 0.0, "word_embed_proj_dim": 16}
TIED = NARROW | {"tie_word_embeddings": True}
PHI = {"model_type": "phi", **PLAIN, "intermediate_size": 80, "qk_layernorm": True, "hidden_act": "gelu"}
STABLE = {
    "model_type": "stablelm",
    **PLAIN,
    "intermediate_size": 80,
    "qk_layernorm": True,
    "num_key_value_heads": HEADS,
}
KEEPING = {
    "two norms side by side": NEOX, "one behind the other": NEOX | {"use_parallel_residual": False},
    "OPT": NARROW, "OPT-350m": NARROW | {"do_layer_norm_before": False},
    "norms of queries and keys": PHI, "a norm for each head": STABLE,
}  # fmt: skip


@pytest.mark.parametrize("kernel", ["flash", "math"])
@pytest.mark.parametrize("name", KEEPING)
def test_training_keeps_what_the_list_says(name, kernel):
    """Angles besides, where positions turn. A flash kernel lays its output out as its queries, which a concatenation has put head by
    head; so the output is copied for the next product. GPT-NeoX cuts its values out of a wider tensor, which flash keeps whole."""
    sizes, seq, layers = KEEPING[name], TOKENS // BATCH, 3
    ours = fk.from_hf(sizes)
    memory = ours.train_memory(seq=seq, batch=BATCH, precision="fp32", kernel=kernel)
    turned = ours.blocks[0][0].mixer.rotary
    more = 2 * seq * turned
    if kernel == "flash" and turned:
        more += layers * TOKENS * WIDTH * (3 if sizes["model_type"] == "gpt_neox" else 1)
    assert kept(*trained(sizes, kernel)) == memory.layers + memory.ends + LOSS_SCALE + 4 * more


def step_of_torch(model):
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    with fk.counting() as report:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    return report.under("TORCH")


@pytest.mark.parametrize(
    ("targets", "theirs"),
    [("o_proj", "attention.dense"), ("up_proj", "mlp.dense_h_to_4h"), ("down_proj", "mlp.dense_4h_to_h")],
)
def test_where_each_branch_has_a_norm_neither_waits_for_the_other(targets, theirs):
    """In the first layer the MLP reads nothing that attention's adapters change."""
    model, _ = trained(NEOX)
    model.requires_grad_(False)
    for layer in model.gpt_neox.layers:
        group, name = theirs.split(".")
        setattr(getattr(layer, group), name, Adapted(getattr(getattr(layer, group), name), 4))
    report = step_of_torch(model)
    step = fk.from_hf(NEOX).train_step(seq=SEQ, batch=BATCH, trained=fk.LoRA(rank=4, targets=targets)).under("TORCH")
    assert (step.model_flops, step.forward.flops) == (report.model_flops, report.forward.flops)


@pytest.mark.parametrize("sizes", [NARROW, TIED], ids=["own head", "tied"])
@pytest.mark.parametrize("what", ["all", "head", fk.models.LastLayers(2)], ids=str)
def test_the_matrices_around_the_layers_of_opt_are_trained_with_what_they_stand_beside(what, sizes):
    model, run = trained(sizes)
    if what != "all":
        model.requires_grad_(False)
        model.lm_head.requires_grad_(True)
        inner = model.model.decoder
        for each in (
            (*inner.layers[1:], inner.final_layer_norm, inner.project_out) if what not in ("all", "head") else ()
        ):
            each.requires_grad_(True)
    memory = fk.from_hf(sizes).train_memory(seq=TOKENS // BATCH, batch=BATCH, precision="fp32", trained=what)
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE
    report, step = step_of_torch(model), fk.from_hf(sizes).train_step(seq=SEQ, batch=BATCH, trained=what).under("TORCH")
    assert (step.model_flops, step.forward.flops) == (report.model_flops, report.forward.flops)
