"""The box for a config.json against `from_hf`: what a page takes, Python takes with the same numbers; and what no reader would paste."""

from __future__ import annotations

import functools
import itertools
import json
import re
import time

import pytest

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api")

from reader import compare, show

import flopkit as fk
from flopkit.book.gallery import calculator
from flopkit.models import config_names, hf_config
from flopkit.models.architectures import FORMS, SAME
from flopkit.models.files.config_fields import left_out
from flopkit.models.files.recognised import typed
from flopkit.models.files.text_parts import whole_types

pytestmark = pytest.mark.browser
TASKS = calculator()
FIGURE = TASKS["utilisation"]
GONE = object()
TIES = ("tie_word_embeddings", "transformers_version", "text_config")
CHANGES = [GONE, None, 0, 1, [], {}, -1, "x", True, "false", 4096.0]


@pytest.fixture(scope="session")
def site(calculator_site):
    return calculator_site


# The page's own script on a copy of its figure, whose controls are not moved: what the box says to each text, and what it would set.
READ = """async texts => {
  const read = window.flopkitPaste, box = document.querySelector('.fk-tasks').cloneNode(true);
  box.querySelectorAll('figure').forEach(figure => { delete figure.dataset.ready; });
  document.body.append(box);
  let found, said = [];
  window.flopkitPaste = (figure, paste, tools) => read(figure, paste, paste.table ? {...tools, move: values => { found = values; }} : tools);
  window.flopkitTabs(box);
  box.querySelectorAll('figure').forEach(figure => window.flopkitFigures.mount(figure));
  await new Promise(done => setTimeout(done));
  window.flopkitPaste = read;
  const area = box.querySelector('.fk-paste textarea'), status = box.querySelector('.fk-paste [role=status]');
  for (const text of texts) {
    found = null;
    area.value = text;
    area.dispatchEvent(new Event('input'));
    said.push([status.textContent, found]);
  }
  box.remove();
  return said;
}"""


def keys_of(value, config):
    """The keys that a table asks a configuration for; of several for one number the first, and those that are there."""
    if isinstance(value, list):
        return {key for each in value for key in keys_of(each, config)}
    if not isinstance(value, dict):
        return set()
    asked = [] if "set" in value else [*value.get("keys", []), *value.get("listed", [])]
    return {*asked[:1], *(set(asked) & set(config)), *keys_of(list(value.values()), config)}


def published():
    """One configuration of each family that the catalogue has."""
    found = {hf_config(name)["model_type"]: hf_config(name) for name in config_names()}
    return {kind: config for kind, config in found.items() if kind in FORMS}


def changed():
    """One configuration of each family, with each key that is read changed in turn, windows of Qwen switched on, too."""
    for kind, config in published().items():
        keys = sorted(keys_of(TASKS.paste.table[kind], config))
        tried = [({}, key) for key in keys]
        if kind.startswith("qwen"):
            on = {"use_sliding_window": True, "sliding_window": 512, "max_window_layers": 20}
            tried += [(on, key) for key in keys if key in on or key == "layer_types"]
        for more, key in tried:
            for value in CHANGES:
                new = config | more | {key: value}
                yield {k: v for k, v in new.items() if v is not GONE}, {**more, key: "gone" if value is GONE else value}
        if kind.startswith("qwen"):  # the first with a window comes after the last layer
            yield config | on | {"max_window_layers": 4096}, on | {"max_window_layers": 4096}
        for many in (10_000, 10_001, 10**8, 10**15, 10**400):
            yield (
                config | {"num_hidden_layers": many},
                {"num_hidden_layers": f"{many:.3g}" if many < 10**300 else "10**400"},
            )


SIZES = {  # of types whose code lies beside their checkpoints, and of one whose default sizes are below the first steps of the sliders
    "bloom": {"hidden_size": 1024, "n_layer": 24, "n_head": 16, "vocab_size": 250880},
    "baichuan": {"hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 64000},
    "internlm2": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
        "vocab_size": 92544, "bias": False,
    },
    "minicpm": {"hidden_size": 2304, "intermediate_size": 5760, "num_attention_heads": 36, "num_hidden_layers": 40, "vocab_size": 122753},
    "qwen": {
        "hidden_size": 4096, "intermediate_size": 22016, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 151936,
        "kv_channels": 128, "no_bias": True,
    },
    "chatglm": {
        "hidden_size": 4096, "ffn_hidden_size": 13696, "num_attention_heads": 32, "num_layers": 28, "padded_vocab_size": 65024,
        "kv_channels": 128, "add_bias_linear": False, "add_qkv_bias": True, "multi_query_attention": True, "multi_query_group_num": 2,
        "rmsnorm": True, "post_layer_norm": True, "apply_residual_connection_post_layernorm": False,
    },
    "exaone": {"hidden_size": 2560, "intermediate_size": 7168, "num_attention_heads": 32, "num_layers": 30, "vocab_size": 102400},
    "phi-msft": {"n_embd": 2560, "n_layer": 32, "n_head": 32, "vocab_size": 51200, "n_head_kv": None, "activation_function": "gelu_new"},
    "RefinedWebModel": {"parallel_attn": True, "multi_query": True, "hidden_size": 4544, "n_head": 71, "n_layer": 32, "vocab_size": 65024},
    "RefinedWeb": {"parallel_attn": True, "n_head_kv": 8, "hidden_size": 8192, "n_head": 128, "n_layer": 60, "vocab_size": 65024},
    "stablelm_epoch": {
        "use_qkv_bias": False, "hidden_size": 2560, "intermediate_size": 6912, "num_attention_heads": 32, "num_hidden_layers": 32,
        "vocab_size": 50304, "rope_pct": 0.25,
    },
}  # fmt: skip


def in_default_sizes():
    """The other types in the sizes that transformers takes for them, with each key changed in fewer ways."""
    for kind in TASKS.paste.table:
        if kind in published():
            continue
        config = {"model_type": kind, **SIZES.get(kind, left_out(kind) or left_out(SAME.get(kind, "")))}
        if kind in ("glm4_moe", "glm4v_moe_text"):  # whose 96 heads do not divide the width of 4,096
            config["head_dim"] = 128
        yield config, {}
        for key in sorted(keys_of(TASKS.paste.table[kind], config)):
            for value in (GONE, None, 1, True, "x"):
                new = {k: v for k, v in {**config, key: value}.items() if v is not GONE}
                yield new, {key: "gone" if value is GONE else value}


@functools.cache
def by_python(model, length):
    return model.params, model.active_params, pytest.approx(model.train_step(seq=length).flops_per_token, rel=1e-12)


@functools.cache
def by_page(found):
    result = TASKS.at("utilisation", **json.loads(found))
    return result["refused"] or (result["params"], result["active"], result["a_token"])


def read(config, length):
    """The numbers that `from_hf` gives, or why it refuses."""
    try:
        return by_python(fk.from_hf(config), length)
    except (ValueError, TypeError) as error:
        return str(error)


# What the page refuses and Python reads: sizes below the first step of a slider, experts that no layer has, and, where the activation or a
# period should stand, what Python takes for nothing.
NARROWER = re.compile(
    r"use_bidirectional_attention is (1|true): this box reads gemma3_text only with false|"  # EmbeddingGemma: no control hides no token
    r"(\w+ is 1|d_model is 64|head_dim is 8): a whole number of at least (16|64|128|256|512|1024) is wanted|.* leave none of .* for experts|"
    r"\w+ is .*: this figure has no control for that\. In Python flopkit.from_hf reads it\."
)


@pytest.mark.parametrize(("cases", "least"), [(changed, 1500), (in_default_sizes, 1500)])
def test_the_page_and_python_read_every_change_alike(open_page, cases, least):
    configs, changes = zip(*cases(), strict=True)
    assert len(configs) > least
    wrong = []
    said = open_page("calculator.html").evaluate(READ, [*map(json.dumps, configs)])
    for config, change, (told, found) in zip(configs, changes, said, strict=True):
        assert told.startswith("Read as a ") == (found is not None), told
        assert found is not None or told.endswith(" Nothing was changed."), told
        have, want = (
            told if found is None else by_page(json.dumps(found)),
            read(config, (found or {}).get("length", 8192)),
        )
        if have != want and not (isinstance(have, str) and (isinstance(want, str) or NARROWER.match(have))):
            wrong.append((config["model_type"], change, have, want))
        if not change and isinstance(have, str):
            wrong.append((config["model_type"], "as it is", have, want))
    assert not wrong, f"{len(wrong)} of {len(configs)}:\n" + "\n".join(map(str, wrong))


LLAMA, QWEN, GEMMA = hf_config("llama-3-8b"), hf_config("qwen3-30b-a3b"), hf_config("gemma-3-1b")
HOSTILE = {
    "a list that is a number": (QWEN | {"mlp_only_layers": 5}, "mlp_only_layers is 5: a list of whole numbers is wanted."),
    "a list that is a dictionary": (QWEN | {"mlp_only_layers": {}}, "mlp_only_layers is {}: a list of whole numbers is wanted."),
    "a list that is text": (QWEN | {"mlp_only_layers": "0123"}, 'mlp_only_layers is "0123": a list of whole numbers is wanted.'),
    "layers that are text": (GEMMA | {"layer_types": "x" * 26}, f'layer_types is "{"x" * 26}": a list is wanted.'),
    "layers that are none": (GEMMA | {"layer_types": {"length": 26}}, 'layer_types is {"length":26}: a list is wanted.'),
    "a switch that is text": (LLAMA | {"tie_word_embeddings": "false"}, 'tie_word_embeddings is "false": true or false is wanted.'),
    "a float": (LLAMA | {"hidden_size": 4096.0}, "hidden_size is 4096.0: a whole number of at least 1 is wanted."),
    "many layers": (QWEN | {"num_hidden_layers": 10**15}, "num_hidden_layers is 1000000000000000: more than 10,000 is not read."),
    "infinite": (LLAMA | {"vocab_size": 10**400}, "vocab_size is Infinity: more than 9,007,199,254,740,991 is not read."),
    "a long list": (QWEN | {"num_hidden_layers": 10_000, "mlp_only_layers": [-1] * 150_000}, None),
    "long text": (LLAMA | {"hidden_size": "9" * 900_000}, 'hidden_size is "99999'),
    "a long name": (LLAMA | {"model_type": "\u05d0" * 900_000}, 'The model_type "\u05d0\u05d0'),
    "a name": ("meta-llama/Llama-9-8B", f"“meta-llama/Llama-9-8B” is none of the {len(TASKS.paste.names)} names that are known here. Did you mean llama-"),
    "a stranger's name": ("bert-base", "“bert-base” is none of the "),
    "an address": ("https://huggingface.co/gpt2", "Did you mean gpt2"),
    "half a file": ('{"model_type":', "This is no JSON: "),
    "deep": (json.dumps(LLAMA)[:-1] + ', "x": ' + "[" * 100_000 + "]" * 100_000 + "}", "This could not be read."),
    "deep in a field": (json.dumps(LLAMA)[:-1] + ', "head_dim": ' + "[" * 2_000 + "]" * 2_000 + "}", "head_dim is [[["),
    "more than a megabyte": ("[" + " " * 1_000_000, "This has 1,000,001 characters: paste one config.json, which has some thousands."),
    "text_config is a list": ({"model_type": "gemma3", "text_config": [1]}, 'The model_type "gemma3" is not described here.'),
    "names of every object": ('{"model_type": "llama", "hidden_size": null, "__proto__": {"hidden_size": 4096}}', 'lacks "hidden_size"'),
}  # fmt: skip


def test_whatever_cannot_be_read_is_refused_in_a_line_and_at_once(open_page):
    """Also when a good paste stood there before; none leaves "Read as" or freezes the page."""
    texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each, _ in HOSTILE.values()]
    page, good = open_page("calculator.html"), json.dumps(LLAMA)
    started = time.monotonic()
    said = page.evaluate(READ, [each for text in texts for each in (good, text)])
    assert time.monotonic() - started < 10
    for (why, (_, sentence)), (before, _), (told, found) in zip(HOSTILE.items(), said[::2], said[1::2], strict=True):
        assert before.startswith("Read as a llama"), why
        if sentence is None:
            assert told.startswith("Read as a"), (why, told)
            continue
        assert found is None and told.endswith(" Nothing was changed."), (why, told)
        assert sentence in told and len(told) < 400, (why, told)


def test_a_file_with_a_mark_of_its_byte_order_is_read(open_page):
    [[told, _]] = open_page("calculator.html").evaluate(READ, ["\ufeff" + json.dumps(LLAMA)])
    assert told.startswith("Read as a llama")


MINISTRAL = {"model_type": "ministral3", **left_out("ministral3")}
NESTED = {
    "a whole of the name of its part": ({
        "model_type": "ministral3", "text_config": MINISTRAL | {"hidden_size": 3072}, "vision_config": {"hidden_size": 1024},
    }, "Left out: the part for pictures (vision_config)."),
    "an early LLaVA": (LLAMA | {
        "model_type": "llava", "architectures": ["LlavaLlamaForCausalLM"], "mm_vision_tower": "openai/clip-vit-large-patch14",
    }, "Left out: the part for pictures (mm_vision_tower)."),
    "sound beside text": ({"model_type": "voxtral", "text_config": LLAMA, "audio_config": {"d_model": 1280}}, "Left out: the part for sound (audio_config)."),
    "numbers that JSON has not": (json.dumps(LLAMA)[:-1] + ', "time_step_limit": [0.0, Infinity], "x": NaN}', "controls set."),
}  # fmt: skip


def test_a_decoder_among_other_things_is_read_as_from_hf_reads_it(open_page):
    files = [each for each, _ in NESTED.values()]
    told = open_page("calculator.html").evaluate(
        READ, [each if isinstance(each, str) else json.dumps(each) for each in files]
    )
    for config, (_, sentence), (text, found) in zip(files, NESTED.values(), told, strict=True):
        assert text.startswith("Read as a ") and sentence in text, text
        config = json.loads(config) if isinstance(config, str) else config
        assert by_page(json.dumps(found)) == read(config, 8192)


def whole_files():
    """Each model of text and more, with all that whole and part may say of a tie, saved by transformers 4, 5 and nobody."""
    for outer, known in whole_types().items():
        kind = known["type"] or known["flat"] or "llama"
        sizes = {**(left_out(kind) or left_out(SAME.get(kind, ""))), "model_type": kind}
        for tied, within, version in itertools.product(
            (None, True, False), (None, True, False), (None, "4.50.0.dev0", "5.0.0")
        ):
            inside = {
                k: v
                for k, v in {**sizes, "tie_word_embeddings": within}.items()
                if (k, v) != ("tie_word_embeddings", None)
            }
            more = {"tie_word_embeddings": tied, "transformers_version": version}
            yield {"model_type": outer, "text_config": inside} | {k: v for k, v in more.items() if v is not None}


def in_other_words():
    """Sizes under a name that the family does not read, in the part of another tool, and files that are none of a model by itself."""
    for kind in ("llama", "gpt2", "bloom", "opt", "phi", "qwen3_moe"):
        for word in ("hidden_dim", "ffn_embed_dim", "n_layer", "num_heads", "n_vocab", "d_model", "num_layers"):
            yield {"model_type": kind, word: 1024}
        yield {"model_type": kind, "pretrained_config": {"hidden_size": 1024}}
        yield {"model_type": kind, "n_layer": 2, "num_hidden_layers": 3}
    for keys, _ in typed():
        yield LLAMA | {key: {"hidden_size": 1} for key in keys}


def subject(sentence):
    """The key that a refusal begins with, or what it calls the file."""
    return re.split(r"[ =]", sentence.lower(), maxsplit=3)[: 3 if sentence.lower().startswith("this") else 1]


@pytest.mark.parametrize(("cases", "least"), [(whole_files, 400), (in_other_words, 20)])
def test_what_a_file_leaves_open_is_refused_by_the_page_and_by_python(open_page, cases, least):
    """transformers 4 asks the part on a tie, transformers 5 the whole; a file of neither must say it; and so with other guesses."""
    configs = list(cases())
    told = open_page("calculator.html").evaluate(READ, [*map(json.dumps, configs)])
    refused, wrong = 0, []
    for config, (text, found) in zip(configs, told, strict=True):
        have = text if found is None else by_page(json.dumps(found))
        want = read(config, (found or {}).get("length", 8192))
        refused += isinstance(want, str)
        alike = have == want
        if isinstance(have, str):  # the page has fewer controls, and says the same of what both refuse
            alike = "no control" in have or "is wanted" in have
            if isinstance(want, str):
                alike |= subject(have) == subject(want) or ("divi" in have and "divi" in want)
        if not alike:
            wrong.append((config.get("model_type"), {k: v for k, v in config.items() if k in TIES}, have, want))
    assert not wrong, f"{len(wrong)} of {len(configs)}:\n" + "\n".join(map(str, wrong))
    assert refused > least / 10 and len(configs) > least


def test_a_decoder_that_sees_what_follows_is_refused(open_page):
    [[told, found]] = open_page("calculator.html").evaluate(READ, [json.dumps(LLAMA | {"is_causal": False})])
    assert found is None and told.startswith("is_causal is false: in this figure a token sees those before it alone.")


@pytest.mark.parametrize("said, shown", [
    ({"quant_method": "fp8", "fmt": "e4m3"}, "quantization_config (fp8) was not read"), ({"load_in_4bit": True}, "quantization_config was not read"),
    ({"quant_method": "awq", "bits": 4.0, "group_size": 128}, "quantization_config (awq) was not read"),
    ({"quant_method": ["awq"]}, "quantization_config was not read"), (None, ""),
])  # fmt: skip
def test_a_quantised_file_is_read_without_a_format_that_no_option_has(open_page, said, shown):
    """The reader sets it; the controls stay as they are."""
    plain, quantised = json.dumps(LLAMA), json.dumps(LLAMA | {"quantization_config": said})
    inside = json.dumps({"text_config": {**GEMMA, "quantization_config": said}})
    told = open_page("calculator.html").evaluate(READ, [plain, quantised, inside])
    assert told[0][1] == told[1][1]
    for text, _ in told[1:]:
        assert (
            text.startswith("Read as a ")
            and (shown or "controls set.") in text
            and ("Weights stored in" in text) == bool(shown)
        )
    assert told[0][0].endswith("controls set.") and told[2][1] is not None


MXFP4, BLOCKS = "mxfp4 experts, 4.25 bits; bf16 rest", "fp8 in blocks; bf16 tables"
SET = [
    ({"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}, MXFP4, f"(mxfp4) set “Weights stored in” to “{MXFP4}”."),
    ({"quant_method": "fp8", "weight_block_size": [128, 128], "ignored_layers": ["lm_head"], "kv_cache_scheme": None}, BLOCKS,
     f"(fp8) set “Weights stored in” to “{BLOCKS}”. Not read: which modules stay as they are."),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": [], "kv_cache_quant_algo": "FP8"}, "nvfp4, 4.5 bits; bf16 tables",
     "(modelopt) set “Weights stored in” to “nvfp4, 4.5 bits; bf16 tables”. Not read: which modules stay as they are, the format of its cache."),
    ({"quant_method": "gptq", "bits": 4, "group_size": 128}, "awq or gptq, 4.16 bits; bf16 tables", "bf16 tables”, without the order of its groups."),
    ({"load_in_4bit": True, "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True}, "nf4, 4.13 bits; bf16 tables",
     "Its quantization_config set “Weights stored in” to “nf4, 4.13 bits; bf16 tables”."),
]  # fmt: skip


def test_a_format_that_an_option_has_is_set(open_page):
    """What is left out of it is said; a type of 32 bits beside it has no option."""
    files = [LLAMA | {"quantization_config": said} for said, _, _ in SET]
    files += [each | {"torch_dtype": "float32"} for each in files]
    inside = {"model_type": "gemma3", "text_config": {**GEMMA, "quantization_config": SET[1][0]}}
    told = open_page("calculator.html").evaluate(READ, [*map(json.dumps, files), json.dumps(inside)])
    for (_, option, sentence), (text, found), (as_fp32, left) in zip(SET, told, told[len(SET) :], strict=False):
        assert text.endswith(sentence) and found["weights"] == option
        assert "was not read: set “Weights stored in”." in as_fp32 and "weights" not in left
    assert told[-1][1]["weights"] == BLOCKS, told[-1][0]


def test_a_format_leaves_with_its_file(open_page):
    """But one that the reader has set stays."""
    page = open_page("calculator.html")
    node, area = show(page, "calculator-serve"), page.get_by_label(TASKS.paste.label)
    control = node.locator('select[name="weights"]')
    plain, packed = (json.dumps(LLAMA | more) for more in ({}, {"quantization_config": SET[0][0]}))
    for text, option in ((packed, MXFP4), (plain, "bf16")):
        area.fill(text)
        assert control.input_value() == option
    control.select_option("fp8 or int8")
    area.fill(packed.replace("mxfp4", "quark"))
    assert control.input_value() == "fp8 or int8"
    area.fill(plain)
    assert control.input_value() == "fp8 or int8"


def test_without_vega_the_box_is_off(chromium, site):
    page = chromium.new_page()
    page.route("**/vega.js", lambda route: route.abort())
    page.goto(f"{site}/calculator.html")
    page.wait_for_selector('figure[data-ready="failed"]')
    assert page.locator(".fk-paste textarea").is_disabled()
    assert page.locator(".fk-paste [role=status]").inner_text().startswith("The controls are off: ")
    page.close()


def test_only_digits_of_a_link_are_a_number(open_page):
    page = open_page(
        "calculator.html?calculator.experts=&calculator.vocab=1e5&calculator.heads=0x10&calculator.d_ff=+9000"
    )
    compare(FIGURE, show(page, FIGURE.name), {})
