"""The calculator's numbers against the models that flopkit knows by name, each of which it describes by its controls."""

import json
import math
import random
import re
from dataclasses import replace
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.book.gallery import calculator
from flopkit.book.gallery.calculate_fit import CLOSE, KEPT, SPARE, TRAINED
from flopkit.book.gallery.calculate_mfu import COUNTS
from flopkit.book.gallery.calculator_charts import PARTS
from flopkit.book.gallery.calculators import PER_GPU, PRESETS, UNABLE, settings_of
from flopkit.book.gallery.step_bars import HELD, SHADES
from flopkit.models import config_names, families, hf_config
from flopkit.models.architectures import ARCHITECTURES, FORMS, SAME
from flopkit.models.files.config_fields import ACTS, Fields, left_out
from flopkit.models.files.config_table import Value, reader_table, when

TASKS = calculator()
FIT, RUN, LAYOUT, SERVE, MFU = TASKS
READ = [
    name
    for name in config_names()
    if hf_config(name)["model_type"] in FORMS and hf_config(name).get("architectures") != ["MistralModel"]
]  # a model that is an encoder of sentences has no head, which the controls have
DTYPES = {"bf16": "bf16", "fp8 or int8": "fp8", "fp4 or int4": "fp4"}
POLICIES = ("none", "selective", "full")


def settings(name):
    config = hf_config(name)
    kind = config["model_type"]
    return settings_of(FORMS[kind](Fields(config, kind, left_out(kind))))


def at_the_peak(memory):
    """Activations, and the gradients of the loss."""
    return memory.layers + max(memory.ends + memory.loss, memory.again)


@pytest.mark.parametrize("name", READ)
def test_a_model_of_that_name(name):
    model = fk.load(name)
    length = 8192 if model.positions is None else min(8192, model.positions - model.position_offset)
    for recompute, weights in zip(POLICIES, DTYPES, strict=True):
        run = {**settings(name), "length": length, "recompute": recompute, "batch": 2, "count": 16}
        step = model.train_step(seq=length, batch=2, recompute=recompute)
        found = TASKS.at("utilisation", **run)
        assert found["refused"] == "" and (found["params"], found["active"]) == (model.params, model.active_params)
        for i, convention in enumerate(COUNTS.values()):
            assert found[f"count_{i}"] == pytest.approx(step.under(convention).flops_per_token, rel=1e-14)
        assert found["executed"] * 2 * length == pytest.approx(step.hardware_flops, rel=1e-14)
        found, memory = TASKS.at("fit", **run), model.train_memory(seq=length, batch=2, recompute=recompute)
        assert found["activations"] == at_the_peak(memory)
        held = found["weights_held"], found["gradients_held"], found["optimizer_held"]
        assert list(held) == [-(-each // 16) for each in (memory.weights, memory.gradients, memory.optimizer)]
        serving = {"context": length, "prompt": length, "users": 4, "weights": weights, "servers": 16}
        found = TASKS.at("serve", **settings(name) | serving)
        formats = {"context": length, "batch": 4, "weights": DTYPES[weights], "compute": "bf16", "count": 16}
        bound = fk.serving.decode(model, "h100-sxm", **formats)
        assert (
            found["decode_seconds"] == pytest.approx(bound.seconds, rel=1e-9) and found["decode_bound"] == bound.bound
        )
        assert found["serving"] == pytest.approx(bound.memory, rel=1e-9)


DEFAULTS = {
    kind: dict(left_out(kind, SAME.get(kind, ""))) for kind in (*FORMS, *SAME) if SAME.get(kind, kind) in FORMS and left_out(kind)
}  # fmt: skip
for kind in ("glm4_moe", "glm4v_moe_text"):  # whose 96 heads do not divide the width of 4,096
    DEFAULTS[kind]["head_dim"] = 128


@pytest.mark.parametrize("kind", sorted(set(DEFAULTS) - {"deepseek_v2"}))  # which leaves the experts of a token out
def test_a_type_in_the_sizes_that_transformers_takes_for_it(kind):
    """What a reader says beyond the controls would be lost here."""
    numbers = FORMS[SAME.get(kind, kind)](Fields({}, kind, DEFAULTS[kind]))
    length = min(8192, numbers.get("positions", 0) - numbers.get("position_offset", 0) or 8192)
    found = TASKS.at("utilisation", **settings_of(numbers) | {"length": length})
    model = fk.from_hf({"model_type": kind, **DEFAULTS[kind]})
    step = model.train_step(seq=length)
    assert (found["params"], found["active"]) == (model.params, model.active_params)
    for i, convention in enumerate(COUNTS.values()):
        assert found[f"count_{i}"] == pytest.approx(step.under(convention).flops_per_token, rel=1e-14)
    found = TASKS.at("fit", **settings_of(numbers) | {"length": length})
    memory = model.train_memory(seq=length)
    assert found["activations"] == at_the_peak(memory)


def by_rules(config):
    """The option that the box takes for a configuration, as its script reads the table; None where no rule is met."""
    said = config["quantization_config"]
    if config.get("dtype", config.get("torch_dtype")) not in TASKS.paste.formats["plain"]:
        return None
    for rule in TASKS.paste.formats["rules"]:
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
    found = TASKS.at("serve", **settings(name), weights=option, context=1024, prompt=512, users=4)
    assert found["stored"] == pytest.approx(model.weight_bytes(), rel=far or 1e-12)
    read = model.decode(context=1024, batch=4)
    assert found["decode_bytes"] == pytest.approx(read.bytes, rel=far or 1e-12)
    assert found["stored"] <= model.weight_bytes()


def test_the_published_checkpoint_of_gpt_oss():
    """model.safetensors.index.json of openai/gpt-oss-120b: a total_size of 65,248,815,744 bytes."""
    found = SERVE.at(**SERVE.presets["gpt-oss-120b"], weights="mxfp4 experts, 4.25 bits; bf16 rest")
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
    formats = TASKS.paste.formats
    control = TASKS.controls[formats["control"]]
    assert control.label == formats["label"] and formats["first"] == control.value
    assert {rule["option"] for rule in formats["rules"]} < set(control.options)
    assert json.loads(json.dumps(formats)) == formats


def test_models_that_no_configuration_says():
    """Windows beside layers without experts, experts beside a plain MLP, a layer norm without bias, norms in both places."""
    ends, sizes = {"d_model": 512, "vocab": 1000, "layers": 6}, {"heads": 8, "kv_heads": 2, "head_dim": 64}
    attention = fk.models.Attention(**sizes)
    shown = {**ends, **sizes, "length": 256}
    found = FIT.at(**shown, norm="LayerNorm without bias", gated=False, d_ff=2048, mlp_bias=True)
    model = fk.models.transformer(
        **ends, attention=attention, norm="layer", norm_bias=False, gated=False, act="gelu", d_ff=2048, bias=True
    )
    assert found["params"] == model.params
    assert found["activations"] == at_the_peak(model.train_memory(seq=256))
    numbers = {"experts": 8, "top_k": 2, "expert_d_ff": 300, "dense": 2, "d_ff": 2048}
    more = {**shown, **numbers, "windowed": 4, "window": 64, "place": "two", "qk_norm": "each head"}
    found = FIT.at(**more)
    normed = replace(attention, qk_norm="head")
    experts = fk.models.Experts(experts=8, top_k=2, d_ff=300)
    model = fk.models.transformer(**ends, attention=normed, experts=experts, dense=2, d_ff=2048, norms="both")
    assert (found["params"], found["active"]) == (model.params, model.active_params)
    assert found["activations"] == at_the_peak(model.train_memory(seq=256))
    window = fk.models.WindowedLayers(64, layers=4)
    windowed = fk.models.transformer(**ends, attention=normed, d_ff=2048, window=window, norms="both")
    whole = fk.models.transformer(**ends, attention=attention, d_ff=2048)
    less = windowed.train_step(seq=256).model_flops - whole.train_step(seq=256).model_flops
    assert MFU.at(**more)["a_token"] == (model.train_step(seq=256).model_flops + less) / 256


def test_utilisation_is_the_doctor_s():
    told = fk.doctor(tokens_per_s=53_336, model="llama-3-8b", seq=8192, device="h100-sxm", count=8, recompute="full")
    found = MFU.at(recompute="full")
    assert (found["mfu"], found["hfu"]) == (pytest.approx(told.mfu), pytest.approx(told.hfu))
    assert found["possible"] == "below the peak"
    assert MFU.at(count=1)["possible"] == "no"
    with pytest.raises(ValueError, match="doctor|limit|physical|possible"):
        fk.mfu(found["a_token"] * 53_336, seconds=1, device="h100-sxm")


def test_the_first_rate_is_a_published_measurement():
    """No preset invents one: the row of torchtitan's report, and a model of the list leaves it alone."""
    text = (Path(fk.__file__).parent / "data/measured/torchtitan.csv").read_text("utf8")
    assert f'fsdp-8,,bf16,,"FSDP + torch.compile, selective recompute",{PER_GPU},' in text
    assert MFU.settings()["rate"] == 8 * PER_GPU and MFU.settings()["count"] == 8
    assert not any(
        {"rate", "percent", "tokens", "price"} & set(preset) for figure in TASKS for preset in figure.presets.values()
    )
    large = MFU.presets["Llama-3.1-405B"]
    assert MFU.at(**large)["possible"] == "no" and "Set the rate of your own run" in MFU.texts(**large)["mfu_answer"]


@pytest.mark.parametrize("wrong, why", [
    ({"kv_heads": 5}, "5 key-value heads do not divide 32 query heads."),
    ({"windowed": 40, "window": 64}, "40 windowed layers are more than all 32."),
    ({"experts": 4, "top_k": 8}, "A token cannot choose 8 of 4 experts."),
    ({"experts": 4, "dense": 33}, "33 dense layers leave none of 32 for experts."),
    ({"experts": 4, "dense": 32}, "32 dense layers leave none of 32 for experts."),
    ({"positions": 1024}, "The model has learned positions for 1,024 tokens, and a sequence has {length}."),
])  # fmt: skip
@pytest.mark.parametrize("word", TASKS.figures)
def test_what_cannot_be_is_refused(word, wrong, why):
    figure, length = TASKS[word], "32,768 tokens" if word == "serve" else "8,192 tokens"
    assert figure.description(**wrong) == why.format(length=length)
    assert figure.python(**wrong) == f"# {figure.description(**wrong)}"
    assert set(figure.texts(**wrong).values()) == {"–"}
    assert all(math.isfinite(each) for each in figure.at(**wrong).values() if isinstance(each, float))


def test_what_the_texts_claim():
    assert "seven conventions" in MFU.alt and len(COUNTS) == 7
    start = MFU.at()
    bars = {row["name"]: row for row in MFU.rows()}
    assert all(bars[name]["share"] == pytest.approx(start["mfu"] * bars[name]["against"]) for name in COUNTS)
    cut = [row["name"] for row in MFU.rows(**MFU.presets["DeepSeek-V3"]) if row["drawn"] < row["flops"]]
    assert cut == ["6N, all parameters"] and not any(row["drawn"] < row["flops"] for row in bars.values())
    assert start["hfu"] > start["mfu"], "flash attention computes its scores again"


def test_a_rate_above_the_peak_is_not_called_possible():
    """An H100's peak assumes 1,830 MHz and its limit 1,980 MHz. Eight at 51.47 GFLOPs a token: the peak at 153,800 tokens/s, the limit at 166,400."""
    found = {rate: MFU.at(rate=rate)["possible"] for rate in (153_000, 155_000, 166_000, 167_000)}
    assert list(found.values()) == ["below the peak", "above the peak", "above the peak", "no"]
    assert "No run gets there" in MFU.texts(rate=155_000)["mfu_answer"]
    assert "No run gets there" not in MFU.texts(rate=153_000)["mfu_answer"]


def test_the_reader_s_four_questions():
    """What four engineers asked of the page, against the library."""
    large, adapters = (
        fk.load("llama-3-70b"),
        ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"),
    )
    asked = {**FIT.presets["Llama-3-70B"], "length": 2048, "recompute": "full"}
    whole, low = FIT.at(**asked), FIT.at(**asked, trained="LoRA on all linear layers")
    how = {"seq": 2048, "recompute": "full", "shards": 8}
    assert whole["memory"] == large.train_memory(**how).peak and whole["fits"] == "no"
    assert (
        low["memory"] == large.train_memory(**how, trained=fk.LoRA(rank=16, targets=adapters)).peak
        and low["fits"] == "yes"
    )
    run, told = RUN.at(), fk.load("llama-3-8b").training(tokens=15e12, device="h100-sxm", count=1024, mfu=0.4, price=2)
    assert run["device_hours"] == pytest.approx(told.device_hours) and round(told.device_hours, -3) == 542_000
    assert (run["days"], run["dollars"]) == (pytest.approx(told.days), pytest.approx(told.dollars))
    device = next(option for option in SERVE.controls["device"].options if option.startswith("H200"))
    found = SERVE.at(**SERVE.presets["Qwen3-30B-A3B"], device=device, users=32)
    bound = fk.serving.decode("qwen3-30b-a3b", "h200-sxm", context=32768, batch=32)
    assert found["each_rate"] == pytest.approx(bound.tokens_per_s_per_user) and found["serves"] == "no"
    assert found["most_users"] == fk.serving.capacity("qwen3-30b-a3b", "h200-sxm", context=32768, block=1).sequences


def test_lines_pass_through_the_numbers_beside_them():
    """A row of a chart is computed apart from the read-outs."""
    rng = random.Random(5)
    for title in rng.sample(list(PRESETS), 4):
        settings = {
            **SERVE.presets[title],
            "users": 64,
            "context": 4096,
            "prompt": 100,
            "servers": 8,
            "chosen_by": rng.choice(SERVE.controls["chosen_by"].options),
        }
        row, found = next(row for row in SERVE.rows(**settings) if row["users"] == 64), SERVE.at(**settings)
        assert row["serves"] == found["serves"] and row["serving"] == pytest.approx(found["serving"], rel=1e-12)
        if row["serves"] == "yes":
            for name in ("each_rate", "decode_rate"):
                assert row[name] == pytest.approx(found[name], rel=1e-12), (title, name)
        parts = FIT.rows(**FIT.presets[title])
        assert sum(row["bytes"] for row in parts) == pytest.approx(FIT.at(**FIT.presets[title])["memory"])
        row, found = (
            next(row for row in RUN.rows(**RUN.presets[title], fleet=256) if row["devices"] == 256),
            RUN.at(**RUN.presets[title], fleet=256),
        )
        assert row["on_these"] == pytest.approx(found["days"])
        rule = RUN.at(**RUN.presets[title], fleet=256, tokens=found["chinchilla"])
        assert row["by_rule"] == pytest.approx(rule["days"]) and rule["tokens_per_parameter"] == pytest.approx(20)


def test_where_no_number_helps_the_page_says_so_and_shows_none():
    """Llama-3-70B keeps 230 GB of activations for one sequence of 8,192 tokens: no number of devices shares them. 85 GB do not hold its weights."""
    large = {figure.name: figure.texts(**figure.presets["Llama-3-70B"]) for figure in (FIT, SERVE, MFU)}
    fit, serve, mfu = large.values()
    assert FIT.at(**FIT.presets["Llama-3-70B"])["least_count"] == 0 and fit["least_count"] == "no number is enough"
    assert fit["fit_answer"].startswith("It fits on no number of devices: activations, here 230 GB,")
    assert FIT.texts(recompute="full")["fit_answer"].endswith("Fewest devices for a batch of 1: 2.")
    assert FIT.texts(count=4)["fit_answer"].endswith("By this sum, 6 devices would be enough.")
    rates = ("each_rate", "decode_rate", "decode_seconds", "first_seconds")
    assert {serve[name] for name in rates} == {"none: does not fit"}
    assert serve["serve_answer"].startswith("Not one user fits: the weights take 141 GB,")
    assert mfu["mfu"] == mfu["hfu"] == "none: impossible rate" and "cannot reach that rate" in mfu["mfu_answer"]
    shares = [MFU.table[-1].said(row) for row in MFU.rows(**MFU.presets["Llama-3-70B"])]
    assert shares == ["none"] * len(COUNTS) and "none" not in [MFU.table[-1].said(row) for row in MFU.rows()]


def test_serving_opens_on_users_that_fit_and_shows_no_rate_of_users_that_do_not():
    assert SERVE.at()["serves"] == "yes" and "none: does not fit" not in SERVE.texts().values()
    most = int(SERVE.at()["most_users"])
    last, more = (SERVE.texts(users=users) for users in (most, most + 1))
    assert last["each_rate"] == fk.units.format_value(fk.units.rounded(SERVE.at(users=most)["each_rate"], 3))
    assert last["serve_answer"].startswith(f"Each of {most} users gets at most {last['each_rate']} tokens/s")
    assert more["each_rate"] == "none: does not fit" and more["first_seconds"] == last["first_seconds"]
    assert more["serve_answer"].startswith(f"{most + 1} users do not fit: at most {most} do.")
    one_prompt = SERVE.texts(**SERVE.presets["Llama-3-8B"] | {"context": 2**20, "prompt": 8192, "users": 1})
    assert one_prompt["each_rate"] == "none: does not fit" and one_prompt["first_seconds"] == last["first_seconds"]


def test_no_rate_is_drawn_or_listed_of_users_that_do_not_fit():
    """Both lines and the table end at the users that fit, as the caption says."""
    for settings in (
        {},
        {"context": 1024, "prompt": 512},
        SERVE.presets["Qwen3-30B-A3B"],
        SERVE.presets["Llama-3-70B"],
    ):
        most = SERVE.at(**settings)["most_users"]
        for row in SERVE.rows(**settings):
            told = [column.said(row) for column in SERVE.table]
            assert (told[1] == told[2] == "none") == (told[-1] == "no") == (row["users"] > most), settings
            assert row["reached"] == max(min(row["users"], most), 1)
        last = SERVE.rows(**settings)[-1]
        if 0 < most < 4096:  # the last point is that of a full memory
            full = SERVE.at(**settings, users=int(most))
            assert (last["reached"], last["each_rate"]) == (most, pytest.approx(full["each_rate"], rel=1e-12))


def test_what_fits_with_little_to_spare_is_said_so_in_the_sentence_the_picture_and_its_alt():
    """The page's own measured run took 14 % more than the sum (torchtitan: 83.9 GiB), so less than 15 % to spare is no yes."""
    asked = {"length": 32768, "recompute": "full", "states": "16: FSDP2 over fp32, Adam"}
    assert 1.13 < 83.9 * 2**30 / FIT.at(**asked)["memory"] < 1 + SPARE
    close = FIT.texts()["fit_answer"]
    assert FIT.at()["verdict"] == "close" and close.startswith(
        f"It fits with {CLOSE}: 75.4 GB of 85 GB on each device."
    )
    assert close in FIT.description() and FIT.texts(recompute="full")["fit_answer"].startswith(
        "It fits: 33.5 GB of 85 GB"
    )
    by_verdict = {"fits": "days: ", "close": CLOSE, "no": "which is too much"}
    for settings in ({}, {"length": 12288}, {"length": 32768}):
        said, verdict = RUN.texts(**settings)["run_answer"], RUN.at(**settings)["verdict"]
        assert [word for word in (CLOSE, "which is too much") if word in said] == [by_verdict[verdict]][
            verdict == "fits" :
        ]
    many = {
        "data_ranks": 128,
        "tensor": 8,
        "pipeline": 16,
        "step_batch": 2048,
        "virtual": 8,
        "states": "18: mixed, fp32 gradients",
    }
    many |= {
        "zero": "1: states of the optimiser",
        "keeps": "no outputs of norms and activations",
        **LAYOUT.presets["Llama-3.1-405B"],
    }
    verdict = LAYOUT.at(**many)["verdict"]
    assert (
        (CLOSE in LAYOUT.texts(**many)["layout_answer"])
        == (CLOSE in LAYOUT.description(**many))
        == (verdict == "close")
    )
    pytest.importorskip("altair")
    for settings, words in (
        ({}, f"75.4 GB: {CLOSE}"),
        ({"recompute": "full"}, "33.5 GB: it fits"),
        ({"count": 4}, "91.5 GB: it does not fit"),
    ):
        assert words in FIT.svg(**settings), "in colour, and in words"


def test_the_same_quantity_has_the_same_colour_in_both_bars_of_memory():
    assert dict(PARTS.values()) == dict(zip((each for each, _ in PARTS.values()), SHADES.values(), strict=True))
    assert list(PARTS) == list(HELD.values())


def test_the_sentence_says_what_the_read_outs_say():
    """Each question is answered first in a sentence, with the numbers that stand below it."""
    named = {"calculator-fit": "memory", "calculator-run": "days", "calculator-layout": "seconds", "calculator-serve": "decode_rate",
             "calculator-utilisation": "mfu"}  # fmt: skip
    for figure in TASKS:
        first, *others = figure.readouts
        assert first.sentence and not any(each.sentence for each in others)
        texts = figure.texts()
        assert texts[named[figure.name]] in texts[first.name] and "{" not in texts[first.name]


def test_a_read_out_says_whose_number_it_is():
    """The weights are one device's share, the cache is all devices'; "fits" says what and where, and a bound is called one."""
    labels = {each.name: FIT.say(each.label, count=64) for each in FIT.readouts}
    for name in ("weights_held", "gradients_held", "optimizer_held"):
        assert labels[name].endswith("each device (1/64)"), name
    assert FIT.at()["weights_held"] * 8 == 2 * FIT.at()["params"]
    assert not any(
        "at least" in labels[name] or "at most" in labels[name] for name in ("memory", "most_batch")
    )  # a sum of largest parts is no bound
    labels = {each.name: each.label for each in SERVE.readouts}
    for name in ("each_rate", "decode_rate", "most_users"):
        assert labels[name].endswith("at most"), name
    assert labels["first_seconds"].endswith("at least") and labels["cached"].endswith("all devices")
    for figure in TASKS:
        assert len({each.label for each in figure.readouts}) == len(figure.readouts)


def test_presets_are_whole_models():
    for title, name in PRESETS.items():
        for figure in TASKS:
            preset = figure.presets[title]
            switched = {each for each in preset if figure.controls[each].kind == "switch"}
            assert switched and all(type(preset[each]) is bool for each in switched), title
        assert MFU.at(**MFU.presets[title])["params"] == fk.load(name).params, title


def test_a_preset_leaves_nothing_of_the_one_before():
    for before in MFU.presets.values():
        for title, preset in MFU.presets.items():
            found, alone = MFU.at(**before | preset), MFU.at(**preset)
            assert all(found[each.name] == alone[each.name] for each in MFU.readouts), title


# --- the same in Python ----------------------------------------------------------------------------------------------------------------


def executed(figure, settings):
    names = {}
    exec(figure.python(**settings), names)
    return names


def agrees(word, settings):
    """What the text gives is what the read-outs say."""
    figure = TASKS[word]
    found = figure.at(**settings)
    if found["refused"] or found.get("possible") == "no":
        return False
    names = executed(figure, settings)
    model = names["model"]
    assert (model.params, model.active_params) == (found["params"], found["active"]), settings
    if word == "fit":
        assert names["memory"].peak == pytest.approx(found["memory"], rel=1e-6), (
            settings
        )  # shares are rounded up to bytes
    elif word == "run":
        told = [names["run"].days, names["run"].device_hours, names["run"].dollars, names["run"].tokens_per_parameter]
        assert told == pytest.approx(
            [found[each] for each in ("days", "device_hours", "dollars", "tokens_per_parameter")], rel=1e-12
        ), settings
    elif word == "layout":
        step, parts = names["step"], [found[f"part_{name}"] for name in names["step"].parts]
        told = [step.seconds, step.mfu, step.memory.peak, sum(step.sent.values()), *step.parts.values()]
        wanted = [found[each] for each in ("seconds", "mfu", "memory", "sent")] + parts
        assert [float(each) for each in told] == pytest.approx(wanted, rel=1e-11, abs=1e-12), settings
        assert found["fits"] == ("yes" if step.fits else "no")
    elif word == "serve":
        near = (
            1e-3 if "blocks" in settings["weights"] or "bits" in settings["weights"] else 1e-12
        )  # a block may end behind its row
        told = [names["step"].tokens_per_s_per_user, names["step"].tokens_per_s, names["first"].seconds]
        assert told == pytest.approx(
            [found[each] for each in ("each_rate", "decode_rate", "first_seconds")], rel=near
        ), settings
        assert near > 1e-12 or names["room"].sequences == found["most_users"]
    else:
        assert (names["found"].mfu, names["found"].hfu) == (pytest.approx(found["mfu"]), pytest.approx(found["hfu"]))
        assert names["others"]["PALM"] == pytest.approx(found["count_3"])
    return True


@pytest.mark.parametrize("word", TASKS.figures)
def test_the_same_in_python_gives_the_same(word, capsys):
    figure, rng, done = TASKS[word], random.Random(word), 0
    own = {
        name: control
        for name, control in figure.controls.items()
        if control.group.split(" › ")[0] != "The model’s sizes"
    }
    for title, preset in figure.presets.items():
        start = {**figure.settings(), **preset}
        assert f'fk.load("{PRESETS[title]}")' in figure.python(**start)
        done += agrees(word, {**start, **{name: rng.choice(control.options) for name, control in own.items()}})
    sizes = {name: control for name, control in figure.controls.items() if name not in own}
    small = {"layers": 6, "length": 512, "context": 512, "prompt": 128, "vocab": 1024}
    for _ in range(60):
        some = {name: rng.choice(sizes[name].options) for name in rng.sample(list(sizes), 5)}
        settings = {
            **figure.settings(),
            **some,
            **{name: value for name, value in small.items() if name in figure.controls},
        }
        done += agrees(word, settings)
        assert figure.at(**settings)["refused"] or "fk.models.transformer(" in figure.python(**settings)
    assert done > 30


@pytest.mark.parametrize("trained", list(TRAINED))
@pytest.mark.parametrize("name", ["llama-3-8b", "qwen2.5-7b", "deepseek-v3", "qwen3-30b-a3b", "gpt2"])
def test_adapters_in_python_are_those_of_the_page(name, trained):
    for word, more in (("fit", {"length": 512, "states": next(iter(KEPT))}), ("run", {"length": 512})):
        figure = TASKS[word]
        settings_ = {**figure.settings(), **settings(name), **more, "trained": trained}
        assert agrees(word, settings_)


# --- names ------------------------------------------------------------------------------------------------------------------------------


def test_the_box_knows_the_names_whose_type_it_reads():
    names, others = TASKS.paste.names, TASKS.paste.others
    assert set(READ) <= set(names) and set(PRESETS.values()) <= set(names)
    assert all(hf_config(name) == config for name, config in names.items())
    assert all(SAME.get(config["model_type"], config["model_type"]) in FORMS for config in names.values())
    for text, name in others.items():
        assert name in names and text == text.lower() and not re.search(r"[\s_.-]", text), text
    for spelled in ("meta-llama/Meta-Llama-3-70B-Instruct", "Qwen/Qwen3-30B-A3B", "tinyllama"):
        assert others[re.sub(r"[\s_.-]", "", spelled).lower()] in names
        assert fk.load(spelled) == fk.load(others[re.sub(r"[\s_.-]", "", spelled).lower()])
    assert len(json.dumps([names, others])) < 80_000


# --- the table for a pasted configuration ----------------------------------------------------------------------------------------------


def test_every_family_is_read_or_said_to_be_none_of_it():
    table = TASKS.paste.table
    assert set(table) == {*FORMS, *(kind for kind in SAME if SAME[kind] in FORMS)} and not set(table) & set(UNABLE)
    assert set(table) | set(UNABLE) == set(families()) | set(SAME) and set(families()) == set(ARCHITECTURES)


def test_the_table_sets_controls_that_there_are_and_is_plain_data():
    for kind, entry in TASKS.paste.table.items():
        assert set(entry["set"]) <= set(TASKS.controls), kind
        assert json.loads(json.dumps(entry)) == entry, kind
        for name, value in entry["set"].items():
            if not isinstance(value, dict):
                TASKS.controls[name].check(value)
        rules = [each for each in entry["refused"] if each["only"] == [*ACTS]]
        assert all(each["else"] in ACTS for each in rules) and len(rules) <= 1, kind
        assert rules or kind in ("bloom", "qwen", "chatglm"), "whose activation is no word of the file"
        alone = [each for each in entry["refused"] if "hidden_act" in each["keys"] and each["only"] == ["silu"]]
        assert bool(alone) == bool(entry["set"]["experts"]), kind


def test_the_table_says_what_must_be_there_and_what_is_taken_for_it():
    sets = {kind: entry["set"] for kind, entry in TASKS.paste.table.items()}
    for kind, size in (("qwen3", 128), ("gemma2", 256), ("gpt_oss", 64)):
        assert sets[kind]["head_dim"] == {"keys": ["head_dim", "d_kv"], "missing": size}, kind
    assert sets["mistral"]["kv_heads"] == {"keys": ["num_key_value_heads"], "missing": 8}
    others = ["n_head", "n_heads", "num_heads", "attention_heads"]  # words of other families
    heads = {"keys": ["num_attention_heads", *others], "missing": 32, "one": True, "strange": others}
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
    assert len(table) >= 60
    assert table["kimi_k2"] == table["deepseek_v3"] | {"classes": ["DeepseekV3"]}


def test_the_axis_has_plain_numbers():
    """A token of GPT-2 is 0.8 GFLOPs, which was 800m."""
    pytest.importorskip("altair")
    small = {name: value for name, value in settings("gpt2").items() if name in MFU.controls} | {"length": 1024}
    ticks = re.findall(r">([\d,.]+)</text>", MFU.svg(width=340, **small))
    assert ticks == ["0", "0.2", "0.4", "0.6", "0.8"]
