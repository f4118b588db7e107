"""The four questions of the calculator against the library's own answers."""

import html
import math
import random
import re

import asked
import pytest

import flopkit as fk
from flopkit.book.gallery import any_model, calculate_fit, calculate_mfu, calculate_run, calculate_serving
from flopkit.book.gallery.calculate_fit import STATES, TRAINED, fit
from flopkit.book.gallery.calculate_mfu import utilisation
from flopkit.book.gallery.calculate_run import run
from flopkit.book.gallery.calculate_serving import CACHES, READS, serve
from flopkit.book.gallery.calculators import PRESETS
from flopkit.charts.hardware import DEVICES
from flopkit.models import config_names, hf_config
from flopkit.models.architectures import FORMS
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import Run

FIT, RUN, SERVE, MFU = (
    asked.figure(name, ask) for name, ask in (("fit", fit), ("run", run), ("serve", serve), ("mfu", utilisation))
)
READ = [
    name
    for name in config_names()
    if hf_config(name)["model_type"] in FORMS and hf_config(name).get("architectures") != ["MistralModel"]
]
PRECISIONS = dict(zip(STATES, [("mixed", "adam"), ("fsdp", "adam"), ("autocast", "adam"), ("mixed-fp32-gradients", "adam"), ("mixed-both-gradients", "adam"), ("mixed", "adam-8bit"), ("bf16", "adam")], strict=True))  # fmt: skip
EVERY = (  # dense layers that LoRA can stand beside, by any model's names for them
    "q_proj", "k_proj", "v_proj", "o_proj", "q_down", "q_up", "kv_down", "kv_up", "gate_proj", "up_proj", "down_proj",
    "shared_gate_proj", "shared_up_proj", "shared_down_proj", "shared_gate",
)  # fmt: skip
ALL, LORA, QLORA = TRAINED
CARDS = dict(zip(FIT.controls["device"].options, DEVICES, strict=True))


def longest(model, tokens):
    return tokens if model.positions is None else min(tokens, model.positions - model.position_offset)


def lora(model, rank, base=None):
    """On all dense layers, as peft's "all-linear": no router and no experts."""
    there = {each.cost.name for block, _ in model.blocks for each in passes.layer(model, block, Run(1, 1, 1))}
    return fk.LoRA(rank=rank, targets=tuple(name for name in EVERY if name in there), base=base)


def card_of(title):
    """The device of an option, whose memory is what programs can use: `training.largest_batch` takes the memory for that."""
    known = fk.device(CARDS[title][0])
    memory = known.memory if known.usable is None else known.usable
    return fk.Device("usable", peak={"bf16": 1e15}, bandwidth=1e12, memory=memory)


def states(rng, name, model):
    """Settings of a step of training, and the library's words for them."""
    words = rng.choice(list(STATES))
    trained = ALL if PRECISIONS[words][0] == "autocast" else rng.choice(list(TRAINED))
    rank = rng.choice([4, 16, 64])
    adapters = None if trained == ALL else lora(model, rank, "nf4" if trained == QLORA else None)
    length, batch = longest(model, rng.choice([128, 1000, 8192])), rng.choice([1, 3, 8])
    recompute, count = rng.choice(["none", "selective", "full"]), rng.choice([1, 8, 100])
    settings = {
        "length": length,
        "batch": batch,
        "recompute": recompute,
        "count": count,
        "states": words,
        "trained": trained,
        "rank": rank,
    }
    precision, optimizer = PRECISIONS[words]
    how = {
        "seq": length,
        "recompute": recompute,
        "precision": precision,
        "optimizer": optimizer,
        "trained": adapters or "all",
    }
    return {**asked.numbers(name), **settings, "device": rng.choice(list(CARDS))}, how


@pytest.mark.parametrize("name", READ)
def test_memory_is_that_of_train_memory(name):
    model, rng = fk.load(name), random.Random(name)
    for _ in range(3):
        settings, how = states(rng, name, model)
        found = FIT.at(**settings)
        try:
            memory = model.train_memory(batch=settings["batch"], shards=settings["count"], **how)
        except ValueError as error:
            assert "autocast" in str(error) or "fsdp" in str(error)
            assert "nder autocast" in found["refused"] or "FSDP2" in found["refused"], settings
            continue
        assert found["refused"] == ""
        count = settings["count"]
        held_at_the_peak = memory.layers + max(memory.ends + memory.loss, memory.again)
        assert memory.loss == 8 * model.vocab * settings["batch"] * how["seq"]  # log-probabilities and logits, in fp32
        assert found["activations"] == held_at_the_peak, settings
        held = found["weights_held"], found["gradients_held"], found["optimizer_held"]
        assert held == (memory.weights, memory.gradients, memory.optimizer)
        assert found["gathered"] == memory.gathered, settings
        if how["trained"] != "all":
            assert found["trained_params"] == model.trained_params(how["trained"])
        parts = ("weights_held", "gradients_held", "optimizer_held", "activations", "gathered")
        assert found["memory"] == sum(found[each] for each in parts) == memory.peak
        card = card_of(settings["device"])
        assert found["usable"] == card.memory
        assert found["spare_memory"] == pytest.approx(card.memory - found["memory"], abs=1)
        assert found["fits"] == ("yes" if found["memory"] <= card.memory else "no")
        spare = card.memory / found["memory"] - 1
        assert found["verdict"] == ("no" if spare < 0 else "close" if spare < 0.15 else "fits")
        if count == 1 and found["most_batch"] < 2**20:
            assert found["most_batch"] == fk.training.largest_batch(model, card, **how), settings


@pytest.mark.parametrize("dense", [1, 2, 3, 5])
def test_how_many_layers_without_experts_stand_in_a_row_matters_to_what_is_gathered(dense):
    """Wide layers before narrow experts: of two in a row the second one's weights come while the first one's gradients are there."""
    sizes = {"d_model": 512, "vocab": 1000, "layers": 9, "d_ff": 8192}
    heads = {"heads": 8, "kv_heads": 2, "head_dim": 64}
    experts = {"experts": 8, "top_k": 2}
    model = fk.models.transformer(
        **sizes, attention=fk.models.Attention(**heads), experts=fk.models.Experts(**experts, d_ff=64), dense=dense,
        order=(0,) * dense + (1,) * (9 - dense),
    )  # fmt: skip
    settings = {**sizes, **heads, **experts, "expert_d_ff": 64, "dense": dense, "length": 64, "count": 4}
    found, memory = FIT.at(**settings), model.train_memory(seq=64, shards=4)
    assert (found["params"], found["gathered"]) == (model.params, memory.gathered)


def test_the_largest_batch_and_the_fewest_devices_are_the_last_that_fit():
    rng = random.Random(1)
    tried = {"no batch": 0, "some batch": 0, "no number": 0, "some number": 0}
    for _ in range(60):
        title = rng.choice(list(PRESETS))
        settings, _ = states(rng, PRESETS[title], fk.load(PRESETS[title]))
        found = FIT.at(**settings)
        if found["refused"]:
            continue
        most, least = found["most_batch"], found["least_count"]
        fits = {batch: FIT.at(**settings | {"batch": batch})["fits"] for batch in (most, most + 1) if batch}
        assert list(fits.values()) == ["yes", "no"][-len(fits) :], settings
        tried["some batch" if most else "no batch"] += 1
        if least:
            on = [FIT.at(**settings | {"count": count}) for count in (least - 1, least) if count]
            assert [each["fits"] == "yes" and not each["refused"] for each in on] == [False, True][-len(on) :], settings
        else:
            assert FIT.at(**settings | {"count": 10**12})["fits"] == "no"
        tried["some number" if least else "no number"] += 1
    assert all(tried.values())


@pytest.mark.parametrize("name", READ)
def test_a_run_is_that_of_training(name):
    model, rng = fk.load(name), random.Random(name)
    for trained in (ALL, LORA):
        settings, _ = states(rng, name, model)
        settings |= {
            "trained": trained,
            "states": next(iter(STATES)),
            "tokens": 15e12,
            "share": 0.4,
            "price": 2,
            "count": 1024,
        }
        adapters = "all" if trained == ALL else lora(model, settings["rank"])
        found = RUN.at(**settings)
        device, dtype = CARDS[settings["device"]]
        asked_of = {"tokens": 15e12, "device": device, "dtype": dtype, "count": 1024, "mfu": 0.4, "price": 2}
        right = model.training(**asked_of, seq=settings["length"], trained=adapters)
        for mine, theirs in {
            "run_flops": right.flops, "days": right.days, "device_hours": right.device_hours, "megawatt_hours": right.kilowatt_hours / 1000,
            "dollars": right.dollars, "run_rate": right.tokens_per_s, "tokens_per_parameter": right.tokens_per_parameter,
        }.items():  # fmt: skip
            assert found[mine] == pytest.approx(theirs, rel=1e-12), (mine, settings)
        assert found["chinchilla"] == 20 * model.active_params
        rule = right.budgets()[1]
        assert (found["rule_params"], found["rule_tokens"]) == pytest.approx((rule["parameters"], rule["tokens"]))


DTYPES = {"bf16": "bf16", "fp8 or int8": "fp8"}


@pytest.mark.parametrize("name", READ)
def test_serving_is_that_of_the_library(name):
    model, rng = fk.load(name), random.Random(name)
    for way in READS:
        weights, cache = rng.choice(list(DTYPES)), rng.choice(list(CACHES))
        context, users, count = (
            longest(model, rng.choice([512, 4096, 32768])),
            rng.choice([1, 7, 300]),
            rng.choice([1, 8]),
        )
        prompt, (title, (device, dtype)) = rng.choice([16, context]), rng.choice(list(CARDS.items()))
        settings = {
            "context": context,
            "prompt": prompt,
            "users": users,
            "count": count,
            "weights": weights,
            "cache": cache,
            "device": title,
        }
        found = SERVE.at(**asked.numbers(name), **settings, chosen_by=way)
        assert found["refused"] == ""
        formats = {
            "weights": DTYPES[weights],
            "kv_cache": DTYPES[cache],
            "compute": dtype,
            "count": count,
            "experts": READS[way],
        }
        step = fk.serving.decode(model, device, context=context, batch=users, **formats)
        first = fk.serving.prefill(model, device, prompt=prompt, **formats)
        for mine, bound in {"decode": step, "first": first}.items():
            assert found[f"{mine}_seconds"] == pytest.approx(bound.overlapped.seconds, rel=1e-12), settings
            assert found[f"{mine}_bound"] == bound.bound
            assert found[f"{mine}_bytes"] == pytest.approx(bound.cost.bytes, rel=1e-12)
            assert found[f"{mine}_flops"] == bound.cost.flops
        assert found["decode_rate"] == pytest.approx(step.tokens_per_s)
        assert found["each_rate"] == pytest.approx(step.tokens_per_s_per_user)
        assert found["serving"] == step.memory == found["stored"] + found["cached"]
        room = fk.serving.capacity(
            model,
            device,
            context=context,
            count=count,
            weights=formats["weights"],
            kv_cache=formats["kv_cache"],
            block=1,
        )
        assert (found["most_users"], found["room"], found["stored"]) == (room.sequences, room.room, room.weights)
        assert found["most_tokens"] == pytest.approx(room.tokens, abs=1)
        assert found["a_user"] == room.sequence_bytes
        available = room.available
        assert found["serves"] == ("yes" if step.memory <= available else "no")
        assert found["serving_each"] * count == pytest.approx(step.memory)
        assert found["spare"] == pytest.approx(available - step.memory)


def test_the_experts_of_a_step_matter_or_it_is_said_why_not():
    rng, said = random.Random(2), set()
    for _ in range(80):
        preset = asked.START[rng.choice(["Llama-3-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "Mixtral-8x7B"])]
        settings = {
            **preset,
            "users": rng.choice([1, 2, 64, 4096]),
            "prompt": rng.choice([16, 8192]),
            "context": 8192,
            "count": 8,
        }
        two = [SERVE.at(**settings, chosen_by=way) for way in READS]
        moved = any(two[0][name] != two[1][name] for name in ("decode_seconds", "first_seconds"))
        assert two[0]["no_choice"] == two[1]["no_choice"] and moved == (two[0]["no_choice"] == "")
        said.add(two[0]["no_choice"])
    assert said >= {"", "There are no experts."}


def test_32_users_of_qwen3_on_an_h200():
    """32 contexts of 32,768 tokens take 103 GB beside 61 GB of weights: more than the card has."""
    device = next(title for title in CARDS if title.startswith("H200"))
    settings = {
        **asked.START["Qwen3-30B-A3B"],
        "device": device,
        "count": 1,
        "users": 32,
        "context": 32768,
        "prompt": 32768,
    }
    found = SERVE.at(**settings)
    assert (round(found["decode_rate"]), round(found["serving"] / 1e9, 1), found["serves"]) == (939, 164.1, "no")
    assert round(SERVE.at(**settings, chosen_by=list(READS)[1])["decode_rate"]) == 984
    fits = [SERVE.at(**settings, weights=weights, cache=cache)["most_users"] for cache in CACHES for weights in DTYPES]
    room, each = 150_109_945_856, 2 * 48 * 2 * 4 * 128 * 32768
    weights = 2 * fk.load("qwen3-30b-a3b").params
    assert fits == [
        (room - weights) // each,
        (room - weights // 2) // each,
        (room - weights) // (each // 2),
        (room - weights // 2) // (each // 2),
    ]


@pytest.mark.parametrize("figure, wrong, why", [
    (FIT, {"states": "16: autocast over fp32, Adam", "trained": LORA}, "trains all parameters"),
    (FIT, {"states": "16: autocast over fp32, Adam", "experts": 8}, "not experts"),
    (FIT, {"states": "16: autocast over fp32, Adam", "kv_lora": 512}, "not latent attention"),
    (FIT, {"states": "16: autocast over fp32, Adam", "place": "one each, in parallel"}, "not in parallel"),
    (FIT, {"states": "16: autocast over fp32, Adam", "embedded": True}, "norm behind the embedding"),
    (SERVE, {"prompt": 8192, "context": 4096}, "A prompt of 8,192 tokens is longer than the context of 4,096 tokens."),
    (SERVE, {"positions": 1024, "context": 4096}, "learned positions for 1,024 tokens, and a sequence has 4,096"),
])  # fmt: skip
def test_what_cannot_be_answered_is_refused(figure, wrong, why):
    assert why in figure.description(**wrong)
    assert all(math.isfinite(each) for each in figure.at(**wrong).values() if isinstance(each, float))


def test_a_device_has_what_programs_can_use_of_it():
    for title, (name, _) in CARDS.items():
        known, option = fk.device(name), FIT.controls["device"].fields[title]
        assert (
            option["usable"] == (known.memory if known.usable is None else known.usable)
            and option["watts"] == known.watts
        )


# --- the page ------------------------------------------------------------------------------------------------------------------------------


def told(module):
    """The results that a module's docstring names, other modules' among them where it says so."""
    of_module = set(re.findall(r"``(\w+)``", module.__doc__.partition("\nResults")[2]))
    return of_module | (told(calculate_fit) if module is calculate_run else set())


def in_the_page(figure, settings, names):
    """What Vega makes of results at these settings."""
    convert = pytest.importorskip("vl_convert")
    layers = [
        {"data": {"values": [{}]}, "mark": {"type": "text", "text": {"expr": f"'@{name}@' + {name} + '@'"}}}
        for name in names
    ]
    drawn = html.unescape(convert.vegalite_to_svg({"layer": layers, "params": figure.spec(**settings)["params"]}))
    return dict(re.findall(r">@(\w+)@(.*?)@<", drawn))


@pytest.mark.parametrize(
    "figure, module",
    [(FIT, calculate_fit), (RUN, calculate_run), (SERVE, calculate_serving), (MFU, calculate_mfu)],
    ids=lambda each: "",
)
def test_the_page_says_what_python_says(figure, module):
    pytest.importorskip("altair")
    rng, start = random.Random(figure.name), figure.at()
    names = [name for name in start if name in told(module) | told(any_model)]
    assert len(names) >= 18
    for title in rng.sample(list(asked.START), 6):
        settings, _ = states(rng, PRESETS[title], fk.load(PRESETS[title]))
        settings |= asked.START[title] | {
            "users": rng.choice([1, 40]),
            "chosen_by": rng.choice(list(READS)),
            "context": 512,
            "prompt": 300,
        }
        settings |= {"weights": rng.choice(figure.controls["weights"].options), "cache": rng.choice(list(CACHES))}
        want, have = figure.at(**settings), in_the_page(figure, settings, names)
        for name in names:
            if isinstance(want[name], str):
                assert have[name] == want[name], (name, settings)
            else:
                assert float(have[name]) == pytest.approx(want[name], rel=1e-9, abs=1e-12), (name, settings)
