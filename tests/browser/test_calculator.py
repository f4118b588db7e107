"""The calculator as its reader meets it: a config.json is pasted, and what the page then says is what `from_hf` and its model say."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api")

from reader import PHONE, compare, settle, show, turn

import flopkit as fk
from flopkit.book.gallery import calculator
from flopkit.book.gallery.calculate_mfu import COUNTS
from flopkit.book.gallery.checkpoint_formats import STORED, in_roles
from flopkit.models import config_names, hf_config
from flopkit.models.architectures import FORMS
from flopkit.models.files.config_fields import left_out

pytestmark = pytest.mark.browser
TASKS = calculator()
FIT, RUN, LAYOUT, SERVE, FIGURE = TASKS
READ = [
    name
    for name in config_names()
    if hf_config(name)["model_type"] in FORMS and hf_config(name).get("architectures") != ["MistralModel"]
]  # a model that is an encoder of sentences has no head, which the controls have
# Families, each with a run.
FAMILIES = {
    "llama-3.1-70b": {},
    "qwen2.5-0.5b": {"recompute": "full", "users": 64, "weights": "fp8 or int8"},
    "qwen3-32b": {"recompute": "selective", "count": 128, "length": 32768},
    "mixtral-8x7b": {},
    "gemma-3-27b": {"context": 131072, "cache": "fp8 or int8"},
    "deepseek-v3": {"count": 2048, "rate": 3145728, "users": 256},
    "gpt2": {"length": 512},
    "olmo-2-7b": {"states": "8: all bf16, Adam"},
}


@pytest.fixture(scope="session")
def site(calculator_site):
    return calculator_site


def paste(node, config):
    """What a reader's paste does, and what the box then says; where it sets controls, the figure has drawn them."""
    node.evaluate("node => { node.dataset.settled = '' }")
    text = config if isinstance(config, str) else json.dumps(config)
    node.page.get_by_label(TASKS.paste.label).fill(text)
    told = node.page.locator(".fk-paste [role=status]").inner_text()
    if not told.endswith("Nothing was changed.") and told:
        node.page.wait_for_function("node => node.dataset.settled", arg=node.element_handle())
    return told


def state(node):
    """The settings that the figure has drawn."""
    return json.loads(node.get_attribute("data-settled"))


def said(node, *names):
    return [float(node.locator(f'data[data-name="{name}"]').evaluate("e => e.value")) for name in names]


def word(node, name):
    return node.locator(f'data[data-name="{name}"]').evaluate("e => e.value")


@pytest.mark.parametrize("name", FAMILIES)
def test_a_pasted_configuration_gives_the_numbers_of_its_model(open_page, name):
    """Pasted once, read in each task."""
    page, config, run = open_page("calculator.html"), hf_config(name), FAMILIES[name]
    node = show(page, FIGURE.name)
    node.locator(".fk-data > summary").click()
    turn(page, FIGURE, node, {key: value for key, value in run.items() if key in FIGURE.controls})
    assert paste(node, config).startswith(f"Read as a {config['model_type']}: ")
    settings, model = state(node), fk.from_hf(config)
    assert settings["length"] == (run.get("length", 1024) if name == "gpt2" else run.get("length", 8192))
    step, count = model.train_step(seq=settings["length"], recompute=settings["recompute"]), settings["count"]
    assert said(node, "params", "active") == [model.params, model.active_params]
    assert said(node, "a_token") == [pytest.approx(step.flops_per_token, rel=1e-12)]
    rows = node.locator("tbody tr").evaluate_all("rows => rows.map(row => row.cells[1].textContent)")
    counts = [step.under(convention).flops_per_token for convention in COUNTS.values()]
    assert rows == [fk.units.format_value(each, "FLOPs") for each in counts]
    seconds, peak = settings["length"] / settings["rate"], count * fk.device("h100-sxm").peak("bf16")
    shares = [step.model_flops / seconds / peak, step.hardware_flops / seconds / peak]
    assert said(node, "mfu", "hfu") == pytest.approx(shares, rel=1e-12)
    assert node.locator(".fk-sentence data").inner_text().startswith("Your MFU is ") or shares[0] > 0.9

    node = show(page, FIT.name)
    turn(page, FIT, node, {key: value for key, value in run.items() if key in FIT.controls})
    settings = state(node)
    precision = "bf16" if settings["states"].startswith("8") else "mixed"
    memory = model.train_memory(
        seq=settings["length"], recompute=settings["recompute"], precision=precision, shards=count
    )
    assert said(node, "activations") == [memory.layers + max(memory.ends + memory.loss, memory.again)]
    assert said(node, "gathered", "memory") == pytest.approx([memory.gathered, memory.peak], rel=1e-6)
    answer = node.locator(".fk-sentence data").inner_text()
    assert answer.startswith(("It fits: ", "It fits with ")) == (memory.peak <= fk.device("h100-sxm").usable)

    node = show(page, SERVE.name)
    turn(page, SERVE, node, {key: value for key, value in run.items() if key in SERVE.controls})
    settings = state(node)
    weights = in_roles(SimpleNamespace(**STORED[settings["weights"]]))
    formats = {"weights": weights, "kv_cache": settings["cache"].split()[0]}
    bound = fk.serving.decode(
        model, "h100-sxm", context=settings["context"], batch=settings["users"], compute="bf16", **formats
    )
    decoding = [bound.seconds, bound.tokens_per_s, bound.memory]
    assert said(node, "decode_seconds", "decode_rate", "serving_each") == pytest.approx(decoding, rel=1e-12)
    assert word(node, "decode_bound") == bound.bound
    if "quantization_config" in config:  # the page has scales of whole blocks alone, of which a file has parts
        assert settings["weights"] != "bf16"
        assert bound.memory == pytest.approx(
            fk.serving.decode(
                model, "h100-sxm", context=settings["context"], batch=settings["users"], kv_cache=formats["kv_cache"]
            ).memory,
            rel=1e-7,
        )


# --- what readers came for -----------------------------------------------------------------------------------------------------------------


def about(value, unit=""):
    """In the three digits that the page shows."""
    return fk.units.format_value(fk.units.rounded(value, 3), unit)


class Reader:
    """Who counts what it does: each click on a tab, choice in a list, or number typed is an action."""

    def __init__(self, page):
        self.page, self.actions = page, 0
        page.wait_for_selector("figure[data-ready=yes]")

    def open(self, title):
        self.page.get_by_role("tab", name=title).click()
        self.actions += 1

    def choose(self, label, option):
        self.page.get_by_role("combobox", name=label, exact=True).locator("visible=true").select_option(option)
        self.actions += 1

    def type(self, label, text):
        control = self.page.locator(f'.fk-on .fk-control:has(label:text-is("{label}"))')
        control.locator(".fk-value").click()
        control.locator(".fk-typed").fill(text)
        control.locator(".fk-typed").press("Enter")
        self.actions += 1

    def sees(self, name, text):
        self.page.wait_for_function(
            '([name, text]) => document.querySelector(`.fk-on data[data-name="${name}"]`)?.textContent === text',
            arg=[name, text],
        )
        assert self.page.locator(f'.fk-on data[data-name="{name}"]').is_visible()

    def answers(self, start):
        self.page.wait_for_function(
            "start => document.querySelector('.fk-on .fk-sentence data')?.textContent.startsWith(start)", arg=start
        )


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
def test_four_actions_answer_each_of_four_questions(open_page, options):
    """Of engineers who came with them in November 2026, and then needed one paste and five actions, a pocket calculator, ten actions, and a guess."""
    of_70b = FIT.presets["Llama-3-70B"]

    reader = Reader(open_page("calculator.html", **options))  # fine-tune Llama-3-70B on eight H100s: does it fit?
    reader.choose("Model", "Llama-3-70B")
    reader.choose("Recompute", "full")
    reader.answers("It does not fit: ")
    reader.sees("memory", FIT.texts(**of_70b, recompute="full")["memory"])
    reader.choose("What is trained", "LoRA on all linear layers")
    reader.sees("memory", FIT.texts(**of_70b, recompute="full", trained="LoRA on all linear layers")["memory"])
    reader.answers("It fits: ")
    assert reader.actions <= 4

    reader = Reader(
        open_page("calculator.html", **options)
    )  # 15 trillion tokens, Llama-3-8B, 40 % MFU: hours, days, dollars?
    reader.open("How long and what does it cost?")
    reader.type("Tokens", "15T")
    reader.type("MFU in percent (EXACT)", "40")
    reader.type("Dollars per hour of a device", "2.5")
    told = fk.load("llama-3-8b").training(tokens=15e12, device="h100-sxm", count=1024, mfu=0.4, price=2.5)
    for name, value in (("device_hours", told.device_hours), ("days", told.days), ("dollars", told.dollars)):
        reader.sees(name, about(value))
    assert reader.actions <= 4

    reader = Reader(
        open_page("calculator.html", **options)
    )  # tokens/s of one H200 for 32 users, Qwen3-30B-A3B, 32k: each, and the first token?
    reader.open("How fast does it answer, and to how many?")
    reader.choose("Model", "Qwen3-30B-A3B")
    reader.choose(
        "Device and number format", next(each for each in SERVE.controls["device"].options if each.startswith("H200"))
    )
    bound = fk.serving.decode("qwen3-30b-a3b", "h200-sxm", context=32768, batch=8)
    reader.sees("each_rate", about(bound.tokens_per_s_per_user))
    reader.sees("decode_rate", about(bound.tokens_per_s))
    reader.type("Users at once", "32")  # 27 fit: there is no rate of 32, and the sentence says why
    reader.sees("each_rate", "none: does not fit")
    reader.sees("decode_rate", "none: does not fit")
    reader.sees(
        "first_seconds",
        about(fk.serving.prefill("qwen3-30b-a3b", "h200-sxm", prompt=8192).seconds, "s"),
    )
    room = fk.serving.capacity("qwen3-30b-a3b", "h200-sxm", context=32768, block=1)
    reader.sees("most_users", fk.units.format_value(room.sequences))  # and the fourth: which batch fits?
    assert (
        reader.page.locator(".fk-on .fk-sentence data").inner_text().startswith("32 users do not fit: at most 27 do.")
    )
    assert reader.actions <= 4
    reader.choose("Cache stored in", "fp8 or int8")
    room = fk.serving.capacity("qwen3-30b-a3b", "h200-sxm", context=32768, kv_cache="fp8", block=1)
    reader.sees("most_users", fk.units.format_value(room.sequences))
    bound = fk.serving.decode("qwen3-30b-a3b", "h200-sxm", context=32768, batch=32, kv_cache="fp8", compute="bf16")
    reader.sees("each_rate", about(bound.tokens_per_s_per_user))


def test_a_layout_of_many_gpus_is_step_or_a_sentence(open_page):
    """Llama-3-70B on 512 H100s, as TP 8 × PP 4 × DP 16; then TP above the key-value heads."""
    page = open_page("calculator.html")
    reader = Reader(page)
    reader.open(LAYOUT.title)
    reader.choose("Model", "Llama-3-70B")
    for label, text in (("Tensor-parallel (TP)", "8"), ("Pipeline (PP)", "4"), ("Data-parallel (DP)", "16")):
        reader.type(label, text)
    layout = fk.parallel.Layout(tensor=8, pipeline=4, data=16, zero=3)
    step = fk.parallel.step("llama-3-70b", layout, "dgx-h100", seq=8192, batch=128, precision="mixed")
    reader.sees("devices", "512 devices")
    reader.sees("seconds", about(step.seconds, "s"))
    reader.sees("mfu", about(step.mfu, "%"))
    reader.sees("memory", about(float(step.memory.peak), "B"))
    reader.sees("part_bubble", about(step.parts["bubble"], "s"))
    reader.sees("sent", about(sum(step.sent.values()), "B"))
    reader.type("Tensor-parallel (TP)", "64")
    reader.sees("seconds", "–")
    assert page.locator(".fk-on .fk-refused").inner_text() == (
        "64 ranks of tensor parallelism do not divide the 8 key-value heads."
    )


def test_what_is_set_goes_along_from_task_to_task(open_page):
    page = open_page("calculator.html")
    node = show(page, FIT.name)
    turn(page, FIT, node, {"length": 4096, "count": 64, "layers": 48})
    node = show(page, SERVE.name)
    turn(page, SERVE, node, {"users": 8, "layers": 64})
    node = show(page, FIGURE.name)
    settle(page, node, {"length": 4096, "count": 64, "layers": 64})
    compare(FIGURE, node, {**FIGURE.settings(), "length": 4096, "count": 64, "layers": 64})
    node = show(page, RUN.name)
    settle(page, node, {"length": 4096, "layers": 64})
    node.get_by_role("button", name="Reset").click()
    node = show(page, SERVE.name)
    settle(page, node, SERVE.settings())
    compare(SERVE, node, {})


def test_tabs_are_reached_by_the_keyboard(open_page):
    page = open_page("calculator.html")
    show(page, FIT.name)
    tabs = page.get_by_role("tab")
    assert [tab.inner_text() for tab in tabs.all()] == [figure.title for figure in TASKS]
    tabs.first.focus()
    for key, place in (("ArrowRight", 1), ("End", 4), ("ArrowRight", 0), ("ArrowLeft", 4), ("Home", 0)):
        page.keyboard.press(key)
        assert [tab.get_attribute("aria-selected") for tab in tabs.all()] == [str(i == place).lower() for i in range(5)]
        assert tabs.nth(place).evaluate("e => e === document.activeElement && e.tabIndex === 0")
        seen = page.locator("[role=tabpanel]:visible")
        assert seen.count() == 1 and seen.get_attribute("aria-labelledby") == tabs.nth(place).get_attribute("id")


def test_a_link_opens_a_task(open_page):
    page = open_page("calculator.html#calculator-serve")
    page.wait_for_selector('figure[data-name="calculator-serve"][data-ready=yes]')
    assert page.locator("[role=tab][aria-selected=true]").inner_text() == SERVE.title
    page.evaluate("() => { location.hash = '#calculator-run' }")
    page.wait_for_selector('figure[data-name="calculator-run"][data-ready=yes]')


@pytest.mark.parametrize("written, name", [
    ("llama-3-70b", "llama-3-70b"), ("Llama 3 70B\n", "llama-3-70b"), ("meta-llama/Meta-Llama-3-70B-Instruct", "llama-3-70b"),
    ("Qwen/Qwen3-30B-A3B", "qwen3-30b-a3b"), ("deepseek_v3", "deepseek-v3"), ("gpt2", "gpt2"),
])  # fmt: skip
def test_a_name_is_read_as_load_reads_it(open_page, written, name):
    page, model = open_page("calculator.html"), fk.load(written.strip())
    node = show(page, FIGURE.name)
    assert paste(node, written).startswith(f"{name}: ")
    assert said(node, "params", "active") == [model.params, model.active_params] and fk.load(name) == model
    node.locator(".fk-code > summary").click()
    assert f'model = fk.load("{name}")' in node.locator(".fk-code code").inner_text()
    turn(page, FIGURE, node, {"layers": 6})
    assert "fk.models.transformer(" in node.locator(".fk-code code").inner_text()


def test_the_python_of_a_pasted_file_names_the_file(open_page):
    page = open_page("calculator.html")
    node = show(page, SERVE.name)
    paste(node, hf_config("llama-3-8b") | {"hidden_size": 5120})
    node.locator(".fk-code > summary").click()
    text = node.locator(".fk-code code").inner_text()
    assert 'fk.from_hf("config.json")' in text
    page.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text } }")
    node.locator(".fk-code button").click()
    page.wait_for_function("window.copied")
    assert page.evaluate("window.copied").strip() == text.strip()


def test_every_configuration_is_read_as_from_hf_reads_it(open_page):
    """All that flopkit has a config.json of, in one page after another; what one leaves behind does not matter to the next."""
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    for name in [*READ, *reversed(READ)]:
        assert paste(node, hf_config(name)).startswith("Read as a "), name
        settings, model = state(node), fk.from_hf(hf_config(name))
        step = model.train_step(seq=settings["length"])
        found = FIGURE.at(**settings)
        assert (found["params"], found["active"]) == (model.params, model.active_params), name
        assert found["a_token"] == step.flops_per_token and found["executed"] * settings["length"] == pytest.approx(
            step.hardware_flops
        )
        assert said(node, "params") == [model.params], name


@pytest.mark.parametrize("task", TASKS.figures)
def test_on_a_phone_the_read_outs_stay_in_sight_and_the_bars_leave(open_page, task):
    page = open_page("calculator.html", **PHONE)
    node, height = show(page, f"calculator-{task}"), PHONE["viewport"]["height"]
    for group in node.locator("details.fk-group").all():
        group.evaluate("e => { e.open = true }")
    for control in node.locator(".fk-group input[type=range]").all():
        for block in ("end", "start"):
            control.evaluate("(e, block) => e.scrollIntoView({block})", block)
            results, box = node.locator(".fk-readouts").bounding_box(), control.bounding_box()
            chart = node.locator(".fk-chart").bounding_box()
            assert 0 <= results["y"] and results["height"] <= height / 3, "they leave room for the controls"
            assert chart["y"] + chart["height"] <= results["y"] + 1 and results["y"] + results["height"] <= box["y"]
    assert results["y"] < 1 and chart["y"] + chart["height"] < 0


def test_a_link_restores_what_was_pasted(open_page):
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    config = hf_config("qwen2.5-1.5b") | {"hidden_size": 1234 * 12, "vocab_size": 151_937}
    paste(node, config)
    turn(page, FIGURE, node, {"count": 64})
    settings = state(node)
    assert settings["d_model"] == 14808 and settings["vocab"] == 151_937, "neither is a step of its slider"
    page.evaluate("() => { navigator.clipboard.writeText = async text => { window.copied = text } }")
    node.get_by_role("button", name="Copy link").click()
    page.wait_for_function("window.copied")
    assert "calculator.task=utilisation" in page.evaluate("window.copied")
    again = open_page(url=page.evaluate("window.copied"))
    again.wait_for_selector(f'figure[data-name="{FIGURE.name}"][data-ready=yes]')  # opened by the link, by no click
    node = again.locator(f'figure[data-name="{FIGURE.name}"]')
    settle(again, node, settings)
    compare(FIGURE, node, settings)
    assert said(node, "params") == [fk.from_hf(config).params]


def test_a_pasted_number_joins_the_steps_of_its_slider(open_page):
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    steps = FIGURE.controls["d_model"].options
    paste(node, LLAMA | {"hidden_size": 5000 * 32})  # beyond the last step
    slider = node.get_by_role("slider", name="Width of the model")
    assert slider.get_attribute("aria-valuetext") == "160,000" and slider.input_value() == slider.get_attribute(
        "max"
    ) == str(len(steps))
    paste(node, LLAMA | {"hidden_size": 32 * 129})
    slider.press("ArrowLeft")
    settle(page, node, {"d_model": 4096})
    slider.press("ArrowRight")
    settle(page, node, {"d_model": 4128})
    slider.press("ArrowRight")
    settle(page, node, {"d_model": next(step for step in steps if step > 4128)})


def test_a_link_with_nonsense_is_ignored(open_page):
    page = open_page(
        "calculator.html?calculator.d_model=-5&calculator.layers=2.5&calculator.heads=0&calculator.vocab=many&calculator.norm=7"
    )
    compare(FIGURE, show(page, FIGURE.name), {})


LLAMA, GEMMA = hf_config("llama-3-8b"), hf_config("gemma-3-1b")
OPT = {"model_type": "opt", **left_out("opt")}
REFUSED = {
    "an encoder": (hf_config("bert-base"), "A bert is an encoder"),
    "two stacks": (hf_config("t5-base"), "A t5 has an encoder and a decoder"),
    "images": (hf_config("vit-b-16"), "A vit reads images"),
    "linear attention": ({"model_type": "qwen3_next"}, "A qwen3_next has layers with a state"),
    "state space": ({"model_type": "mamba2"}, "A mamba2 has layers with a state"),
    "a stranger": ({**LLAMA, "model_type": "lama"}, 'The model_type "lama" is not described here. 69 types are; in Python flopkit.from_hf reads more'),
    "a name of every object": ({**LLAMA, "model_type": "toString"}, 'The model_type "toString" is not described here.'),
    "no model_type": ({"hidden_size": 4096}, 'This configuration has no "model_type"'),
    "a field that is missing": ({**LLAMA, "vocab_size": None}, 'lacks "vocab_size"'),
    "a field that is null": ({**LLAMA, "hidden_size": None}, 'lacks "hidden_size" or "n_embd" or "d_model"'),
    "a window in layers that are not listed": (
        {**hf_config("qwen3-30b-a3b"), "model_type": "qwen2_moe", "shared_expert_intermediate_size": 4096, "use_sliding_window": True, "sliding_window": 64},
        'lacks "layer_types"',
    ),
    "text for a number": ({**LLAMA, "hidden_size": "4096"}, 'hidden_size is "4096": a whole number of at least 1 is wanted.'),
    "a negative size": ({**LLAMA, "num_hidden_layers": -1}, "num_hidden_layers is -1: a whole number of at least 1 is wanted."),
    "half a head": ({**LLAMA, "num_attention_heads": 31}, "4096 is not divisible by 31"),
    "another activation": ({**LLAMA, "hidden_act": "tanh"}, 'hidden_act is "tanh": this box reads llama only with "silu"'),
    "norms behind the branches": (OPT | {"do_layer_norm_before": False}, "do_layer_norm_before is false: this figure has no control for that. In Python flopkit.from_hf reads it."),
    "words of another width": (OPT | {"word_embed_proj_dim": 512}, "word_embed_proj_dim is 512: this figure has no control for that."),
    "what a file of another's code must say": ({"model_type": "RefinedWebModel"}, 'This configuration of a RefinedWebModel lacks "parallel_attn": add it.'),
    "a number that another must be": ({"model_type": "helium", "head_dim": 64}, "head_dim is 64: in a helium it must be 128."),
    "a kind of layer": ({**GEMMA, "layer_types": ["full_attention", "chunked_attention"] * 13}, 'layer_types: this figure has no control for layers of the kind "chunked_attention".'),
    "a short list of layers": ({**GEMMA, "layer_types": ["full_attention"]}, "layer_types has 1 entries for 26 layers."),
    "a bias": ({**hf_config("olmo-2-7b"), "attention_bias": True}, "attention_bias is true: this box reads olmo2 only with false."),
    "no JSON": ("hidden_size = 4096", "This is no JSON: "),
    "no object": ("[1, 2]", "This is no JSON object"),
}  # fmt: skip


@pytest.mark.parametrize("why", REFUSED)
def test_what_it_cannot_express_is_refused_with_a_sentence(open_page, why):
    config, sentence = REFUSED[why]
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    turn(page, FIGURE, node, {"count": 64})
    before = state(node)
    told = paste(node, config)
    assert sentence in told and told.endswith(" Nothing was changed.")
    turn(page, FIGURE, node, {"count": 64})
    assert state(node) == before
    assert paste(node, "") == ""


# What configurations say besides: each key of the readers, changed or left out, is read as from_hf reads it.
CHANGED = [
    ("llama-3-8b", {"attention_bias": True, "mlp_bias": True, "head_dim": 96, "num_key_value_heads": None, "tie_word_embeddings": True}),
    ("mistral-7b", {"sliding_window": None}),
    ("mixtral-8x7b", {"sliding_window": 512}),
    ("qwen2.5-7b", {"use_sliding_window": True, "sliding_window": 1000, "max_window_layers": 20}),
    ("qwen2.5-7b", {"use_sliding_window": True, "sliding_window": 1000, "max_window_layers": 28}),
    ("qwen2.5-7b", {"use_sliding_window": None, "sliding_window": 1000, "max_window_layers": 20}),
    ("qwen3-30b-a3b", {"mlp_only_layers": [0, 3], "decoder_sparse_step": 2}),
    ("qwen3-30b-a3b", {"mlp_only_layers": [0, 3], "attention_bias": True}),
    ("qwen3-30b-a3b", {"mlp_only_layers": [0, 3], "use_sliding_window": True, "sliding_window": 1000}),
    ("qwen3-30b-a3b", {
        "model_type": "qwen2_moe", "shared_expert_intermediate_size": 4096, "mlp_only_layers": [1], "use_sliding_window": True,
        "sliding_window": 1000, "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 16,
    }),
    ("gemma-3-27b", {"sliding_window_pattern": 4}),
    ("gemma-3-27b", {"sliding_window_pattern": None, "_sliding_window_pattern": 5}),
    ("gemma-3-27b", {"sliding_window_pattern": None}),
    ("gemma-2-9b", {"layer_types": ["full_attention"] * 40 + ["sliding_attention"] * 2, "tie_word_embeddings": None}),
    ("gpt-oss-20b", {"layer_types": None, "attention_bias": False}),
    ("deepseek-v3", {"n_shared_experts": 3, "first_k_dense_replace": 0, "q_lora_rank": None}),
    ("deepseek-v3", {"n_shared_experts": None}),
    ("kimi-k2", {"model_type": "kimi_k2"}),
    ("gpt2-xl", {"n_inner": 5000, "tie_word_embeddings": False}),
]  # fmt: skip


def test_what_families_may_say_is_read_as_from_hf_reads_it(open_page):
    page = open_page("calculator.html")
    node = show(page, FIGURE.name)
    for name, changed in CHANGED:
        config = hf_config(name) | changed
        assert paste(node, config).startswith("Read as a "), (name, changed)
        settings, model = state(node), fk.from_hf(config)
        step = model.train_step(seq=settings["length"])
        assert said(node, "params", "active") == [model.params, model.active_params], (name, changed)
        assert said(node, "a_token") == [pytest.approx(step.flops_per_token, rel=1e-12)], (name, changed)
    nested = {"model_type": "gemma3", "tie_word_embeddings": False, "text_config": hf_config("gemma-3-4b")}
    short = {key: value for key, value in hf_config("gemma-3-4b").items() if key not in left_out("gemma3_text")}
    for config in (nested, {"model_type": "gemma3", "text_config": short}):
        assert paste(node, config).startswith("Read as a gemma3_text")
        assert said(node, "params") == [fk.from_hf(config).params]
