"""from_hf at its edges: what is missing is named, what is not described is refused, windows and experts are read in each of their spellings."""

import json
import re

import pytest

import flopkit as fk
from flopkit.models import families, hf_config
from flopkit.models.files.config_fields import left_out

MPT = {"model_type": "mpt", "vocab_size": 96, "d_model": 32, "n_layers": 3, "n_heads": 4, "max_seq_len": 64}
QWEN2_MOE = {
    "model_type": "qwen2_moe", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
}  # fmt: skip
QWEN3_NEXT = {
    "model_type": "qwen3_next", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
}  # fmt: skip
MAMBA_2 = {
    "model_type": "mamba2", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16, "state_size": 24,
    "n_groups": 2, "conv_kernel": 4,
}  # fmt: skip
ONE = {hf_config(name)["model_type"]: hf_config(name) for name in (
    "llama-3-8b", "mistral-7b", "mixtral-8x7b", "qwen2.5-7b", "qwen3-8b", "qwen3-30b-a3b", "gemma-2-9b", "gemma-3-4b", "olmo-2-7b", "gpt-oss-20b",
    "deepseek-v2", "deepseek-v3", "gpt2", "bert-base", "t5-base", "vit-b-16",
)} | {"mpt": MPT, "qwen2_moe": QWEN2_MOE, "qwen3_next": QWEN3_NEXT, "mamba2": MAMBA_2}  # fmt: skip
SIZES = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads")
EXPERTS = ("num_experts", "num_experts_per_tok", "moe_intermediate_size")
LATENT = (
    "kv_lora_rank",
    "qk_nope_head_dim",
    "qk_rope_head_dim",
    "v_head_dim",
    "n_routed_experts",
    *EXPERTS[1:],
    "first_k_dense_replace",
)
NEEDED = {
    "llama": SIZES, "mistral": SIZES, "olmo2": SIZES, "qwen2": SIZES, "qwen3": (*SIZES, "head_dim"),
    "mixtral": (*SIZES, "num_local_experts", "num_experts_per_tok"),
    "qwen2_moe": (*SIZES, *EXPERTS, "shared_expert_intermediate_size"),
    "qwen3_moe": (*SIZES, *EXPERTS),
    "gemma2": (*SIZES, "head_dim"), "gemma3_text": (*SIZES, "head_dim"),
    "gpt_oss": (*SIZES, "head_dim", "num_local_experts", "num_experts_per_tok"),
    "deepseek_v2": (*SIZES, *LATENT), "deepseek_v3": (*SIZES, *LATENT),
    "gpt2": ("vocab_size", "n_embd", "n_layer", "n_head", "n_positions"),
    "mpt": ("vocab_size", "d_model", "n_layers", "n_heads"),
    "bert": (*SIZES, "max_position_embeddings", "type_vocab_size"),
    "t5": ("vocab_size", "d_model", "d_kv", "d_ff", "num_layers", "num_heads", "relative_attention_num_buckets"),
    "qwen3_next": tuple(key for key in QWEN3_NEXT if key != "model_type"),
    "mamba2": tuple(key for key in MAMBA_2 if key != "model_type"),
    "vit": ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "image_size", "patch_size"),
}  # fmt: skip


def test_each_family_is_here():
    assert set(ONE) == set(NEEDED) <= set(families())  # the others: test_families


@pytest.mark.parametrize("kind, key", [(kind, key) for kind, keys in NEEDED.items() for key in keys])
def test_a_field_that_is_missing_is_named(kind, key):
    """Null is no size; a key that is left out is what transformers takes, or named where that has none (see test_families, too)."""
    with pytest.raises(ValueError, match=rf"configuration of model_type='{kind}' lacks .*'{key}'"):
        fk.from_hf(ONE[kind] | {key: None})


REFUSED = {
    "olmo2": {"attention_bias": True}, "gpt2": {"add_cross_attention": True}, "gemma2": {"use_bidirectional_attention": True},
    "deepseek_v2": {"attention_bias": True, "mlp_bias": True, "moe_layer_freq": 2},
    "deepseek_v3": {"attention_bias": True, "mlp_bias": True, "moe_layer_freq": 2},
    "mpt": {"no_bias": False, "embedding_fraction": 0.5},
    "bert": {"position_embedding_type": "relative_key"},
}  # fmt: skip


@pytest.mark.parametrize(
    "kind, key, value", [(kind, *item) for kind, refused in REFUSED.items() for item in refused.items()]
)
def test_what_a_family_does_not_describe_is_refused(kind, key, value):
    with pytest.raises(ValueError, match=rf"^{key}={value!r}: flopkit supports {kind} only with {key}="):
        fk.from_hf(ONE[kind] | {key: value})


@pytest.mark.parametrize(
    "kind, changed, message",
    [
        ("llama", {"hidden_act": "tanhshrink"}, r"activation 'tanhshrink' is not known here; known: silu"),
        ("llama", {"hidden_act": "gelu_pytorch"}, r"did you mean gelu_pytorch_tanh"),
        ("t5", {"feed_forward_proj": "gated-relu"}, r"feed_forward_proj='gated-relu' is not described here; did you mean gated-gelu"),
        ("gpt_oss", {"layer_types": ["full_attention"]}, r"layer_types has 1 entries for 24 layers"),
        ("gpt_oss", {"layer_types": ["full_attention", "linear_attention"] * 12}, r"layer_types: 'linear_attention' is not described here"),
        ("llama", {"num_attention_heads": 30}, r"heads=30.*d_model=4096"),
        ("llama", {"num_key_value_heads": 5}, r"kv_heads=5.*heads=32"),
        ("mixtral", {"num_experts_per_tok": 9}, r"top_k=9 is more than experts=8"),
        ("qwen3_moe", {"num_experts_per_tok": 129}, r"top_k=129 is more than experts=128"),
        ("deepseek_v3", {"first_k_dense_replace": 62}, r"dense=62 is more than layers=61"),
        ("mpt", {"attn_config": {"attn_type": "multiquery_attention"}}, r"attn_type='multiquery_attention': flopkit supports mpt only with attn_type='multihead_attention'"),
        ("mpt", {"attn_config": {"qk_ln": True}}, r"qk_ln=True: flopkit supports mpt only with qk_ln=False"),
        ("qwen3_next", {"layer_types": ["full_attention"]}, r"layer_types has 1 entries for 4 layers"),
        ("qwen3_next", {"layer_types": ["full_attention", "sliding_attention"] * 2}, r"layer_types: 'sliding_attention' is not described here"),
        ("qwen3_next", {"full_attention_interval": 0}, r"full_attention_interval=0: a size must be at least 1"),
        ("qwen3_moe", {"decoder_sparse_step": 0}, r"decoder_sparse_step=0: a size must be at least 1"),
        ("deepseek_v3", {"n_shared_experts": "1"}, r"n_shared_experts='1': a size must be a whole number, not text"),
        ("mistral", {"num_hidden_layers": "32"}, r"num_hidden_layers='32': a size must be a whole number, not text"),
        ("t5", {"num_layers": -1}, r"num_layers=-1: a size must be at least 1"),
        ("llama", {"tie_word_embeddings": "false"}, r"tie_word_embeddings='false': must be True or False"),
        ("mamba2", {"use_bias": "no"}, r"use_bias='no': must be True or False"),
        ("llama", {"num_hidden_layers": 0}, r"num_hidden_layers=0"),
        ("llama", {"hidden_size": -4096}, r"hidden_size=-4096"),
        ("llama", {"intermediate_size": float("nan")}, r"intermediate_size=nan"),
        ("llama", {"vocab_size": 128256.5}, r"vocab_size=128256.5"),
        ("llama", {"num_hidden_layers": 10**9}, r"num_hidden_layers=1000000000: a model of more than 10,000 layers is not read"),
        ("qwen3_moe", {"num_hidden_layers": 10**15}, r"num_hidden_layers=1000000000000000: a model of more than 10,000 layers"),
        ("deepseek_v3", {"first_k_dense_replace": 10**11}, r"dense=100000000000 is more than layers=61"),
        ("t5", {"num_layers": 10**9}, r"num_layers=1000000000: a model of more than 10,000 layers"),
        ("t5", {"num_decoder_layers": 10**9}, r"num_decoder_layers=1000000000: a model of more than 10,000 layers"),
        ("qwen3_moe", {"mlp_only_layers": 5}, r"mlp_only_layers=5: must be a list"),
        ("qwen3_moe", {"mlp_only_layers": "01"}, r"mlp_only_layers='01': must be a list"),
        ("gpt_oss", {"layer_types": 24}, r"layer_types=24: must be a list"),
        ("gpt_oss", {"layer_types": True}, r"layer_types=True: must be a list"),
        ("gpt_oss", {"layer_types": [["full_attention"]] * 24}, r"layer_types: \['full_attention'\] is not described here"),
        ("gpt_oss", {"layer_types": [{}, 1] * 12}, r"layer_types: {} is not described here"),
        ("llama", {"hidden_act": ["silu"]}, r"hidden_act=\['silu'\]: must be the name of an activation, such as 'silu'"),
        ("gemma2", {"hidden_activation": {"a": 1}}, r"hidden_activation={'a': 1}: must be the name of an activation"),
        ("llama", {"hidden_act": "x" * 10**6}, r"activation 'x{50,60}\.\.\. is not known here"),
        ("vit", {"id2label": 5}, r"id2label=5: must be a dictionary"),
        ("mpt", {"attn_config": 5}, r"attn_config=5: must be a dictionary"),
        ("qwen3_next", {"rope_parameters": 5}, r"rope_parameters=5: must be a dictionary"),
        ("qwen3_next", {"partial_rotary_factor": "x"}, r"partial_rotary_factor='x': must be a number"),
        ("vit", {"patch_size": 225}, r"image=224 is smaller than patch=225"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_is_an_error(kind, changed, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fk.from_hf(ONE[kind] | changed)


@pytest.mark.parametrize("value", ["4096", [4096], {"size": 4096}])
def test_a_size_that_is_no_number(value):
    with pytest.raises(TypeError, match="hidden_size="):
        fk.from_hf(ONE["llama"] | {"hidden_size": value})


@pytest.mark.parametrize("kind, near", [("lama", "llama"), ("deepseekv3", "deepseek_v3"), ("Qwen3", "qwen3")])
def test_a_slip_of_the_keyboard_has_near_ones(kind, near):
    with pytest.raises(ValueError, match=rf"model_type='{kind}' is not described here; did you mean .*{near}"):
        fk.from_hf(ONE["llama"] | {"model_type": kind})


@pytest.mark.parametrize("config", [{}, {"model_type": None}, {"hidden_size": 4096}, {"model_type": 3}])
def test_a_configuration_without_a_model_type(config):
    with pytest.raises(ValueError, match="has no 'model_type': give a whole config.json"):
        fk.from_hf(config)


@pytest.mark.parametrize("config", [None, 8, ["llama"], b"config.json"])
def test_what_is_no_configuration(config):
    with pytest.raises(TypeError, match="must be a dictionary or the path of a config.json"):
        fk.from_hf(config)


def test_a_path(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(ONE["llama"] | {"_name_or_path": "somebody/llama"}), encoding="utf-8")
    for given in (path, str(path)):
        model = fk.from_hf(given)
        assert model.params == 8_030_261_248 and model.name == "somebody/llama"
    for text in ("no JSON", '{"model_type": "llama"', ""):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: not a JSON file: "):
            fk.from_hf(path)
    path.write_text("[" * 100_000, encoding="utf-8")
    with pytest.raises(ValueError, match=rf"{re.escape(str(path))}: not a JSON file: .*recursion"):
        fk.from_hf(path)
    path.write_text(json.dumps(ONE["llama"]), encoding="utf-8-sig")  # as Windows' editor saves it
    assert fk.from_hf(path).params == 8_030_261_248
    path.write_text("[1, 2]", encoding="utf-8")
    with pytest.raises(TypeError, match=r"config=\[1, 2\]: must be a dictionary"):
        fk.from_hf(path)
    for missing in (tmp_path / "elsewhere.json", tmp_path / "elsewhere"):
        with pytest.raises(
            FileNotFoundError,
            match="there is no such file or folder; give the path of a config.json, a Hub id",
        ):
            fk.from_hf(missing)


def test_a_configuration_is_left_as_it_is():
    config = json.loads(json.dumps(ONE["gpt_oss"]))
    fk.from_hf(config)
    assert config == ONE["gpt_oss"]


def test_the_part_for_text_of_a_model_of_text_and_images():
    text = {k: v for k, v in ONE["gemma3_text"].items() if k != "tie_word_embeddings"}
    whole = {"model_type": "gemma3", "text_config": text, "vision_config": {"hidden_size": 1152}}
    assert fk.from_hf(whole).params == fk.load("gemma-3-4b").params
    untied = fk.from_hf(whole | {"tie_word_embeddings": False})  # what stands outside speaks for the whole
    assert untied.params - fk.load("gemma-3-4b").params == 262208 * 2560


def test_what_the_published_files_of_gemma_3_leave_out():
    """The file of the 4B names these five numbers and no more; the others are what transformers takes."""
    said = {"hidden_size": 2560, "intermediate_size": 10240, "num_hidden_layers": 34, "sliding_window": 1024}
    model = fk.from_hf({"model_type": "gemma3", "text_config": said | {"model_type": "gemma3_text"}})
    assert model.forward(seq=4096).flops == fk.load("gemma-3-4b").forward(seq=4096).flops
    assert model.params == fk.load("gemma-3-4b").params
    assert "vocab_size is missing: 262208, as transformers takes it" in model.notes and len(model.notes) == 6
    assert model.notes[-1] == "the part for text of a gemma3: what the model has beside it is not counted"


def test_heads_of_keys_and_values_that_are_missing():
    """A number of the family in most, as many as heads in some; null is that rule where transformers has it, and else refused."""
    for kind, config in ONE.items():
        if "num_key_value_heads" not in config or kind.startswith(("deepseek", "qwen3_next")):
            continue
        missing = {key: value for key, value in config.items() if key != "num_key_value_heads"}
        default = left_out(kind).get("num_key_value_heads", config["num_attention_heads"])
        if config["num_attention_heads"] % default:
            with pytest.raises(ValueError, match=f"kv_heads={default} does not divide heads"):
                fk.from_hf(missing)
        else:
            model = fk.from_hf(missing)
            assert {block.mixer.kv_heads for block, _ in model.blocks} == {default}, kind
            assert model.notes == (f"num_key_value_heads is missing: {default}, as transformers takes it",) * (
                "num_key_value_heads" in left_out(kind)
            )
            assert model == fk.from_hf(missing | {"num_key_value_heads": default})
        if kind in ("llama", "olmo2", "qwen2", "qwen3"):
            heads = config["num_attention_heads"]
            assert fk.from_hf(config | {"num_key_value_heads": None}).blocks[0][0].mixer.kv_heads == heads
        else:
            with pytest.raises(ValueError, match="lacks 'num_key_value_heads': add it"):
                fk.from_hf(config | {"num_key_value_heads": None})


def test_a_latent_rank_and_shared_experts_that_are_missing():
    """deepseek_v3 and v2 have one and two shared experts, and a rank of 1,536 for queries; null is none."""
    for kind, shared in (("deepseek_v2", 2), ("deepseek_v3", 1)):
        config = {key: value for key, value in ONE[kind].items() if key not in ("q_lora_rank", "n_shared_experts")}
        model = fk.from_hf(config)
        assert model.params == fk.from_hf(config | {"q_lora_rank": 1536, "n_shared_experts": shared}).params
        assert len(model.notes) == 2
        assert fk.from_hf(config | {"q_lora_rank": None}).blocks[0][0].mixer.q_lora is None


def test_the_head_s_own_words_and_defaults_that_are_rules():
    config = {
        k: v
        for k, v in ONE["llama"].items()
        if k not in ("num_key_value_heads", "tie_word_embeddings", "hidden_act", "head_dim")
    }
    model = fk.from_hf(config)
    ((block, layers),) = model.blocks
    assert layers == 32 and block.mixer.kv_heads == 32 and block.mixer.head_dim == 128 and not model.tied
    assert fk.from_hf(config | {"head_dim": 64}).blocks[0][0].mixer.head_dim == 64


def windows(config):
    """The window of each layer in turn."""
    model = fk.from_hf(config)
    order = model.order or (0,) * model.layers
    assert all(order.count(kind) == layers for kind, (_, layers) in enumerate(model.blocks))
    return [model.blocks[kind][0].mixer.window for kind in order]


def test_windows_layer_by_layer():
    """Written out, by the older keys, and by the rule of the family where neither stands there."""

    def without(kind, *keys):
        return {k: v for k, v in ONE[kind].items() if k not in keys}

    assert windows(ONE["gemma2"]) == [4096, None] * 21
    full = ["full_attention"] * 40 + ["sliding_attention"] * 2
    assert windows(ONE["gemma2"] | {"layer_types": full}) == [None] * 40 + [4096] * 2
    assert windows(ONE["gpt_oss"]) == windows(without("gpt_oss", "layer_types")) == [128, None] * 12
    five_and_one = ([1024] * 5 + [None]) * 6
    assert windows(ONE["gemma3_text"]) == windows(without("gemma3_text", "sliding_window_pattern")) == five_and_one[:34]
    assert (
        windows(without("gemma3_text", "sliding_window_pattern") | {"_sliding_window_pattern": 2}) == [1024, None] * 17
    )
    assert windows(ONE["mistral"]) == [4096] * 32
    assert windows(ONE["mistral"] | {"sliding_window": None}) == [None] * 32
    assert windows(without("mistral", "sliding_window")) == [4096] * 32
    assert windows(without("gpt_oss", "sliding_window")) == [128, None] * 12
    assert windows(without("gemma2", "sliding_window")) == [4096, None] * 21
    assert windows(without("gemma3_text", "sliding_window"))[:6] == [4096] * 5 + [None]
    assert windows(without("mixtral", "sliding_window")) == [None] * 32
    assert windows(ONE["mixtral"]) == [None] * 32
    # transformers 5.23's class of mistral reads no layer_types: modeling_mistral.py chooses the mask by sliding_window alone
    with pytest.raises(ValueError, match="transformers' class of mistral reads no layer_types"):
        windows(ONE["mistral"] | {"layer_types": ["full_attention"] * 32})
    listed = ONE["ministral"] if "ministral" in ONE else without("mistral", "model_type") | {"model_type": "ministral"}
    assert windows(listed | {"layer_types": ["full_attention"] * 32}) == [None] * 32


def test_qwen_has_windows_in_its_last_layers_where_it_says_so():
    said = ONE["qwen2"] | {"sliding_window": 4096, "max_window_layers": 20}
    assert windows(said) == [None] * 28
    assert windows(said | {"use_sliding_window": True}) == [None] * 20 + [4096] * 8
    assert (
        windows(ONE["qwen3"] | {"sliding_window": 64, "max_window_layers": 0, "use_sliding_window": True}) == [64] * 36
    )
    wide = {k: v for k, v in said.items() if k != "sliding_window"}
    assert windows(wide | {"use_sliding_window": True}) == [None] * 20 + [4096] * 8
    assert windows(wide) == [None] * 28 and fk.from_hf(wide).notes == ()  # nobody asked for it
    short = {k: v for k, v in wide.items() if k != "max_window_layers"} | {"use_sliding_window": True}
    assert windows(short) == [None] * 28
    assert "max_window_layers is missing: 28, as transformers takes it" in fk.from_hf(short).notes


def test_windows_beside_experts():
    """Qwen3's have the window in all layers. Of Qwen2's, a list says which; without one, transformers 4 and 5 choose different layers."""
    said = ONE["qwen3_moe"] | {"num_hidden_layers": 6, "use_sliding_window": True, "sliding_window": 64}
    assert windows(said) == windows(said | {"mlp_only_layers": [1]}) == [64] * 6
    listed = QWEN2_MOE | {"use_sliding_window": True, "sliding_window": 5, "mlp_only_layers": [1, 2]}
    with pytest.raises(ValueError, match="model_type='qwen2_moe' lacks 'layer_types'"):
        fk.from_hf(listed)
    for first, wanted in (("sliding_attention", [5, 5, None, None]), ("full_attention", [None, 5, None, None])):
        types = [first, "sliding_attention", "full_attention", "full_attention"]
        model = fk.from_hf(listed | {"layer_types": types})
        assert windows(listed | {"layer_types": types}) == wanted
        assert [hasattr(model.blocks[kind][0].mlp, "top_k") for kind in model.order] == [True, False, False, True]


def test_which_layers_have_experts():
    def sparse(changed):
        model = fk.from_hf(ONE["qwen3_moe"] | {"num_hidden_layers": 6} | changed)
        order = model.order or (len(model.blocks) - 1,) * model.layers
        return [hasattr(model.blocks[kind][0].mlp, "top_k") for kind in order]

    assert sparse({}) == [True] * 6
    assert sparse({"decoder_sparse_step": 2}) == [False, True] * 3
    assert sparse({"mlp_only_layers": [0, 5]}) == [False, True, True, True, True, False]
    assert sparse({"decoder_sparse_step": 3, "mlp_only_layers": [2]}) == [False] * 5 + [True]
    deepseek = fk.from_hf(ONE["deepseek_v3"])
    assert deepseek.order == (0,) * 3 + (1,) * 58
    assert fk.from_hf(ONE["deepseek_v3"] | {"first_k_dense_replace": 0}).order == ()


def test_multi_token_prediction_is_data():
    plain = fk.from_hf(ONE["deepseek_v3"])
    with_it = fk.from_hf(ONE["deepseek_v3"], mtp=True)
    assert plain.mtp is None and with_it.mtp == plain.blocks[-1][0]
    older = {k: v for k, v in ONE["deepseek_v3"].items() if k != "num_nextn_predict_layers"}
    assert fk.from_hf(older | {"num_mtp_layers": 1}, mtp=True) == with_it
    for none in (older, older | {"num_nextn_predict_layers": 0}, ONE["llama"]):
        with pytest.raises(ValueError, match="^mtp=True: there is no layer for multi-token prediction$"):
            fk.from_hf(none, mtp=True)
    for odd in ("no", 0.5, [], 2):
        with pytest.raises(TypeError, match="^mtp=.*: must be True or False"):
            fk.from_hf(ONE["deepseek_v3"], mtp=odd)
    with pytest.raises(ValueError, match="num_nextn_predict_layers=3: more than one layer"):
        fk.from_hf(older | {"num_nextn_predict_layers": 3}, mtp=True)


def test_kimi_k2_is_deepseek_v3_under_another_name():
    config = hf_config("kimi-k2")
    assert fk.from_hf(config | {"model_type": "kimi_k2"}).params == fk.from_hf(config).params
    short = fk.from_hf({k: v for k, v in config.items() if k != "hidden_size"} | {"model_type": "kimi_k2"})
    assert short.notes == ("hidden_size is missing: 7168, as transformers takes it",)


def test_a_model_of_images_counts_its_classes():
    assert fk.from_hf(ONE["vit"]).vocab == 1000
    assert fk.from_hf(ONE["vit"] | {"id2label": {"0": "cat", "1": "dog"}}).vocab == 2
