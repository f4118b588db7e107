"""The calculator's numbers against the models that flopkit knows by name, each of which it describes by its controls."""

import json
import math
import re
from dataclasses import replace

import pytest

import flopkit as fk
from flopkit.book.gallery import calculator
from flopkit.book.gallery.any_model import COUNTS
from flopkit.book.gallery.calculators import PRESETS, UNABLE, settings_of
from flopkit.models import config_names, families, hf_config
from flopkit.models.architectures import ARCHITECTURES, NUMBERS, SAME
from flopkit.models.config_fields import ACTS, Fields, left_out
from flopkit.models.config_table import Value, reader_table, when

FIGURE = calculator()
READ = [
    name
    for name in config_names()
    if hf_config(name)["model_type"] in NUMBERS and hf_config(name).get("architectures") != ["MistralModel"]
]  # a model that is an encoder of sentences has no head, which the controls have
DTYPES = {"bf16": "bf16", "fp8 or int8": "fp8", "fp4 or int4": "fp4"}
POLICIES = ("none", "selective", "full")


def settings(name):
    config = hf_config(name)
    kind = config["model_type"]
    return settings_of(NUMBERS[kind](Fields(config, kind)))


@pytest.mark.parametrize("name", READ)
def test_a_model_of_that_name(name):
    model, length = fk.load(name), 1024 if name.startswith("gpt2") else 8192
    for recompute, weights in zip(POLICIES, DTYPES, strict=True):
        run = {"length": length, "recompute": recompute, "batch": 2, "users": 4, "weights": weights, "count": 16}
        found = FIGURE.at(**settings(name), **run)
        step = model.train_step(seq=length, batch=2, recompute=recompute)
        assert found["refused"] == "" and (found["params"], found["active"]) == (model.params, model.active_params)
        for i, convention in enumerate(COUNTS.values()):
            assert found[f"count_{i}"] == pytest.approx(step.under(convention).flops_per_token, rel=1e-14)
        assert found["executed"] * 2 * length == pytest.approx(step.hardware_flops, rel=1e-14)
        memory = model.train_memory(seq=length, batch=2, recompute=recompute)
        assert found["activations"] == memory.activations
        held = found["weights_held"], found["gradients_held"], found["optimizer_held"]
        assert [16 * each for each in held] == [memory.weights, memory.gradients, memory.optimizer]
        formats = {"context": length, "batch": 4, "weights": DTYPES[weights], "compute": "bf16", "count": 16}
        bound = fk.serving.decode(model, "h100-sxm", **formats)
        assert found["decode_seconds"] == pytest.approx(bound.seconds, rel=1e-9) and found["bound"] == bound.bound
        assert found["serving"] == pytest.approx(bound.memory, rel=1e-9)


DEFAULTS = {
    kind: left_out(kind, SAME.get(kind, "")) for kind in (*NUMBERS, *SAME) if SAME.get(kind, kind) in NUMBERS and left_out(kind)
}  # fmt: skip


@pytest.mark.parametrize("kind", sorted(set(DEFAULTS) - {"deepseek_v2"}))  # which leaves the experts of a token out
def test_a_type_in_the_sizes_that_transformers_takes_for_it(kind):
    """What a reader says beyond the controls would be lost here."""
    numbers = NUMBERS[SAME.get(kind, kind)](Fields({}, kind, DEFAULTS[kind]))
    length = min(8192, numbers.get("positions") or 8192)
    found = FIGURE.at(**settings_of(numbers) | {"length": length})
    model = fk.from_hf({"model_type": kind, **DEFAULTS[kind]})
    step = model.train_step(seq=length)
    assert (found["params"], found["active"]) == (model.params, model.active_params)
    assert found["a_token"] == pytest.approx(step.flops_per_token, rel=1e-14)
    assert found["activations"] == model.train_memory(seq=length).activations


def by_rules(config):
    """The option that the box takes for a configuration, as its script reads the table; None where no rule is met."""
    said = config["quantization_config"]
    if config.get("dtype", config.get("torch_dtype")) not in FIGURE.paste.formats["plain"]:
        return None
    for rule in FIGURE.paste.formats["rules"]:
        found = {key: said.get(key, config.get(key) if key == "expert_dtype" else None) for key in rule["only"]}
        if all(found[key] in values for key, values in rule["only"].items()):
            return rule["option"]
    return None


FP8 = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": True, "sym": True}
NF4 = {
    "quant_method": "bitsandbytes",
    "load_in_4bit": True,
    "bnb_4bit_quant_type": "nf4",
    "bnb_4bit_use_double_quant": True,
}
MODELOPT = {"quant_method": "modelopt", "ignore": ["lm_head", "*router*", "*mlp.gate"]}


@pytest.mark.parametrize("name, said, option, far", [
    ("gpt-oss-120b", {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, "mxfp4 experts, 4.25 bits; bf16 rest", 0),
    ("llama-3-8b", {"quant_method": "mxfp4"}, "mxfp4 experts, 4.25 bits; bf16 rest", 0),
    ("llama-3-8b", FP8, "fp8 in blocks; bf16 tables", 0),
    ("deepseek-v3", FP8, "fp8 in blocks; bf16 tables", 1e-5),  # a latent of 576 numbers is four blocks and a half
    ("llama-3-8b", MODELOPT | {"quant_algo": "NVFP4"}, "nvfp4, 4.5 bits; bf16 tables", 0),
    ("qwen3-30b-a3b", MODELOPT | {"quant_algo": "FP8"}, "fp8; bf16 tables", 0),
    ("qwen2.5-7b", {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm"}, "awq or gptq, 4.16 bits; bf16 tables", 0),
    ("llama-3-8b", GPTQ, "awq or gptq, 4.16 bits; bf16 tables", 3e-3),
    ("mixtral-8x7b", NF4, "nf4, 4.13 bits; bf16 tables", 0),
])  # fmt: skip
def test_a_format_that_the_box_sets_gives_the_bytes_of_the_file(name, said, option, far):
    config = {**hf_config(name), "quantization_config": said}
    assert by_rules(config) == option
    model = fk.from_hf(config)
    found = FIGURE.at(**settings(name), weights=option, length=1024, users=4)
    assert found["stored"] == pytest.approx(model.weight_bytes(), rel=far or 1e-12)
    read = model.decode(context=1024, batch=4)
    assert found["decode_bytes"] == pytest.approx(read.bytes, rel=far or 1e-12)
    assert found["stored"] <= model.weight_bytes()


def test_the_published_checkpoint_of_gpt_oss():
    """model.safetensors.index.json of openai/gpt-oss-120b: a total_size of 65,248,815,744 bytes."""
    found = FIGURE.at(**FIGURE.presets["gpt-oss-120b"], weights="mxfp4 experts, 4.25 bits; bf16 rest")
    assert found["stored"] == 65_248_815_744


@pytest.mark.parametrize("said", [
    {"quant_method": "fp8", "fmt": "e4m3"}, FP8 | {"weight_block_size": [64, 64]}, FP8 | {"expert_dtype": "fp4"}, GPTQ | {"bits": 8},
    GPTQ | {"lm_head": True}, GPTQ | {"group_size": 32}, GPTQ | {"dynamic": {"-:.*": {}}}, NF4 | {"bnb_4bit_use_double_quant": False},
    {"quant_method": "bitsandbytes", "load_in_8bit": True}, {"quant_method": "compressed-tensors", "config_groups": {}}, {},
    MODELOPT | {"quant_algo": "MIXED_PRECISION"}, {"quant_method": "quark"},
    {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "llm-awq"},
])  # fmt: skip
def test_a_format_that_no_option_has_is_left_to_the_reader(said):
    assert by_rules({**hf_config("llama-3-8b"), "quantization_config": said}) is None
    assert by_rules({**hf_config("llama-3-8b"), "torch_dtype": "float32", "quantization_config": FP8}) is None


def test_the_rules_set_options_that_there_are():
    formats = FIGURE.paste.formats
    control = FIGURE.controls[formats["control"]]
    assert control.label == formats["label"] and formats["first"] == control.value
    assert {rule["option"] for rule in formats["rules"]} < set(control.options)
    assert json.loads(json.dumps(formats)) == formats


def test_models_that_no_configuration_says():
    """Windows beside layers without experts, experts beside a plain MLP, a layer norm without bias, norms in both places."""
    ends, sizes = {"d_model": 512, "vocab": 1000, "layers": 6}, {"heads": 8, "kv_heads": 2, "head_dim": 64}
    attention = fk.models.Attention(**sizes)
    shown = {**ends, **sizes, "length": 256}
    found = FIGURE.at(**shown, norm="LayerNorm without bias", gated=False, d_ff=2048, mlp_bias=True)
    model = fk.models.transformer(
        **ends, attention=attention, norm="layer", norm_bias=False, gated=False, act="gelu", d_ff=2048, bias=True
    )
    assert found["params"] == model.params
    assert found["activations"] == model.train_memory(seq=256).activations
    numbers = {"experts": 8, "top_k": 2, "expert_d_ff": 300, "dense": 2, "d_ff": 2048}
    found = FIGURE.at(**shown, **numbers, windowed=4, window=64, place="two", qk_norm="each head")
    normed = replace(attention, qk_norm="head")
    experts = fk.models.Experts(experts=8, top_k=2, d_ff=300)
    model = fk.models.transformer(**ends, attention=normed, experts=experts, dense=2, d_ff=2048, norms="both")
    assert (found["params"], found["active"]) == (model.params, model.active_params)
    assert found["activations"] == model.train_memory(seq=256).activations
    window = fk.models.WindowedLayers(64, layers=4)
    windowed = fk.models.transformer(**ends, attention=normed, d_ff=2048, window=window, norms="both")
    whole = fk.models.transformer(**ends, attention=attention, d_ff=2048)
    less = windowed.train_step(seq=256).model_flops - whole.train_step(seq=256).model_flops
    assert found["a_token"] == (model.train_step(seq=256).model_flops + less) / 256


@pytest.mark.parametrize("device", ["h100-sxm"])
def test_utilisation_is_the_doctor_s(device):
    told = fk.doctor(tokens_per_s=51000, model="llama-3-8b", seq=8192, device=device, count=8, recompute="full")
    found = FIGURE.at(recompute="full")
    assert (found["mfu"], found["hfu"]) == pytest.approx((told.mfu, told.hfu))
    assert found["possible"] == "below the peak"
    assert FIGURE.at(count=1, rate=51000)["possible"] == "no"
    with pytest.raises(ValueError, match="doctor|limit|physical|possible"):
        fk.mfu(found["a_token"] * 51000, seconds=1, device=device)


@pytest.mark.parametrize("wrong, why", [
    ({"kv_heads": 5}, "5 key-value heads do not divide 32 query heads."),
    ({"windowed": 40, "window": 64}, "40 windowed layers are more than all 32."),
    ({"experts": 4, "top_k": 8}, "A token cannot choose 8 of 4 experts."),
    ({"experts": 4, "dense": 33}, "33 dense layers leave none of 32 for experts."),
    ({"experts": 4, "dense": 32}, "32 dense layers leave none of 32 for experts."),
    ({"positions": 1024}, "The model has learned positions for 1,024 tokens, and a sequence has 8,192 tokens."),
])  # fmt: skip
def test_what_cannot_be_is_refused(wrong, why):
    assert FIGURE.description(**wrong) == why
    assert set(FIGURE.texts(**wrong).values()) == {"–"}
    assert all(math.isfinite(each) for each in FIGURE.at(**wrong).values() if isinstance(each, float))


def test_what_the_texts_claim():
    assert "seven conventions" in FIGURE.alt and len(COUNTS) == 7
    start = FIGURE.at()
    bars = {row["name"]: row for row in FIGURE.rows()}
    assert all(bars[name]["share"] == pytest.approx(start["mfu"] * bars[name]["against"]) for name in COUNTS)
    cut = [row["name"] for row in FIGURE.rows(**FIGURE.presets["DeepSeek-V3"]) if row["drawn"] < row["flops"]]
    assert cut == ["6N, all parameters"] and not any(row["drawn"] < row["flops"] for row in bars.values())
    assert start["hfu"] > start["mfu"], "flash attention computes its scores again"


def test_a_rate_above_the_peak_is_not_called_possible():
    """An H100's peak assumes 1,830 MHz and its limit 1,980 MHz. Eight at 51.47 GFLOPs a token: the peak at 153,800 tokens/s, the limit at 166,400."""
    found = {rate: FIGURE.at(rate=rate)["possible"] for rate in (153_000, 155_000, 166_000, 167_000)}
    assert list(found.values()) == ["below the peak", "above the peak", "above the peak", "no"]
    assert set(found.values()) == set(next(each for each in FIGURE.readouts if each.name == "possible").text)


@pytest.mark.parametrize("title", PRESETS)
def test_a_model_of_the_list_comes_with_a_rate_that_its_run_could_have(title):
    """With Llama-3-8B's 51,000 tokens/s, Llama-3.1-405B had an MFU of 1,626 %. Each model now takes the same third of eight H100s."""
    found = FIGURE.at(**FIGURE.presets[title])
    assert found["mfu"] == pytest.approx(FIGURE.at()["mfu"], rel=0.05) and found["possible"] == "below the peak"
    assert "a model of the list comes with one that takes a third of the peak of eight H100s" in FIGURE.caption
    assert 0.33 < FIGURE.at()["mfu"] < 0.34 and FIGURE.settings()["count"] == 8


def test_a_preset_leaves_nothing_of_the_one_before():
    """GPT-2's 1,024 tokens stayed, and Llama-3-8B then had an MFU of 29.5 %."""
    for before in FIGURE.presets.values():
        for title, preset in FIGURE.presets.items():
            found, alone = FIGURE.at(**before | preset), FIGURE.at(**preset)
            told = {each.name: (found[each.name], alone[each.name]) for each in FIGURE.readouts}
            assert all(one == other for one, other in told.values()), (title, told)
        assert preset["length"] == (1024 if title == "GPT-2" else 8192)


def test_a_read_out_says_whose_number_it_is():
    """The weights are one device's share, the cache is all devices'; "fits" says what and where, and a bound is called one."""
    labels = {each.name: each.label for each in FIGURE.readouts}
    for name in ("weights_held", "gradients_held", "optimizer_held", "activations", "memory", "fits"):
        assert labels[name].endswith("each device"), name
    for name in ("serving", "serves"):
        assert labels[name].endswith("all devices"), name
    for name in ("decode_seconds", "decode_rate"):
        assert "at the roof" in labels[name], name
    assert len(set(labels.values())) == len(labels) and "raining" in labels["fits"] and "erving" in labels["serves"]
    assert FIGURE.at()["weights_held"] * 8 == 2 * FIGURE.at()["params"]


def test_presets_are_whole_models():
    for title, name in PRESETS.items():
        switched = {each for each in FIGURE.presets[title] if FIGURE.controls[each].kind == "switch"}
        assert switched and all(type(FIGURE.presets[title][each]) is bool for each in switched), title
        assert FIGURE.at(**FIGURE.presets[title])["params"] == fk.load(name).params, title


# --- the table for a pasted configuration ----------------------------------------------------------------------------------------------


def test_every_family_is_read_or_said_to_be_none_of_it():
    table = FIGURE.paste.table
    assert set(table) == {*NUMBERS, *(kind for kind in SAME if SAME[kind] in NUMBERS)} and not set(table) & set(UNABLE)
    assert set(table) | set(UNABLE) == set(families()) | set(SAME) and set(families()) == set(ARCHITECTURES)


def test_the_table_sets_controls_that_there_are_and_is_plain_data():
    for kind, entry in FIGURE.paste.table.items():
        assert set(entry["set"]) <= set(FIGURE.controls), kind
        assert json.loads(json.dumps(entry)) == entry, kind
        for name, value in entry["set"].items():
            if not isinstance(value, dict):
                FIGURE.controls[name].check(value)
        rules = [each for each in entry["refused"] if "hidden_act" in each["keys"]]
        alone = [each for each in rules if each["only"] == ["silu"]]  # of experts
        assert bool(alone) == bool(entry["set"]["experts"]), kind
        [acts] = [each for each in rules if each not in alone]
        assert set(acts["only"]) == set(ACTS) - {"relu", "relu2", "quick_gelu"} and acts["else"] in acts["only"]


def test_the_table_says_what_must_be_there_and_what_is_taken_for_it():
    sets = {kind: entry["set"] for kind, entry in FIGURE.paste.table.items()}
    for kind, size in (("qwen3", 128), ("gemma2", 256), ("gpt_oss", 64)):
        assert sets[kind]["head_dim"] == {"keys": ["head_dim", "d_kv"], "missing": size}, kind
    assert sets["mistral"]["kv_heads"] == {"keys": ["num_key_value_heads"], "missing": 8}
    heads = {"keys": ["num_attention_heads", "n_head", "n_heads", "num_heads", "attention_heads"], "missing": 32}
    assert sets["llama"]["kv_heads"] == {"keys": ["num_key_value_heads"], "else": heads}
    assert sets["mistral"]["window"]["if"] == {"keys": ["sliding_window"], "missing": 4096, "else": 0}
    assert sets["deepseek_v3"]["q_lora"] == {"keys": ["q_lora_rank"], "missing": 1536, "else": 0}
    assert sets["llama"]["layers"]["most"] == 10_000
    assert sets["deepseek_v3"]["dense"] == {"keys": ["first_k_dense_replace"], "missing": 3, "zero": True}
    switch = {"flag": {"keys": ["use_sliding_window"], "missing": False, "else": False}}
    assert sets["qwen2"]["window"]["if"]["if"] == switch


def test_a_reader_does_not_branch_on_what_it_asks():
    with pytest.raises(TypeError, match="does not branch on what it reads"):
        bool(Value(keys=["tie_word_embeddings"]))
    asked = Value(keys=["a"])
    assert when(asked, 1, asked * 2).data == {"if": {"keys": ["a"]}, "then": 1, "or": {"times": [{"keys": ["a"]}, 2]}}
    assert (when(3, 1, 2), when(0, 1, 2)) == (1, 2)
    table = reader_table(lambda numbers: {"width": numbers["d_model"]})
    assert table["kimi_k2"] == table["deepseek_v3"] | {"classes": ["DeepseekV3"]}


def test_the_axis_has_plain_numbers():
    """A token of GPT-2 is 0.8 GFLOPs, which was 800m."""
    pytest.importorskip("altair")
    ticks = re.findall(r">([\d,.]+)</text>", FIGURE.svg(width=340, **FIGURE.presets["GPT-2"]))
    assert ticks == ["0", "0.2", "0.4", "0.6", "0.8"]
