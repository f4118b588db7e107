"""Tokens a second over the batch, against fk.serving, which finds its bounds without the figure."""

import math
import random
import re

import pytest

import flopkit as fk
from flopkit.book.gallery import decode_throughput
from flopkit.book.gallery.serving import CACHE, MODELS, WEIGHTS, drawn

FIGURE = decode_throughput()
DTYPES = {16: "bf16", 8: "fp8", 4: "fp4"}
CARD, ARITHMETIC = "H100 SXM5 80 GB", ("bf16", "fp8")


def bound(model, batch, context, weights, cache, device, count):
    sizes = {
        "context": context, "batch": batch, "weights": DTYPES[WEIGHTS[weights]["bits"]], "kv_cache": DTYPES[CACHE[cache]["bits"]],
        "compute": device.rpartition(" ")[2], "count": count,
    }  # fmt: skip
    return fk.serving.decode(drawn(model), "h100-sxm", **sizes)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("arithmetic", ARITHMETIC)
@pytest.mark.parametrize(("batch", "context", "weights", "cache", "count"), [
    (1, 2048, "bf16", "bf16", 8), (64, 8192, "fp8 or int8", "bf16", 8), (4096, 128, "bf16", "fp8 or int8", 16), (32, 131072, "fp4 or int4", "fp8 or int8", 4),
])  # fmt: skip
def test_a_point_is_the_bound(model, arithmetic, batch, context, weights, cache, count):
    settings = {
        "model": model,
        "batch": batch,
        "context": context,
        "weights": weights,
        "cache": cache,
        "device": f"{CARD}, {arithmetic}",
        "count": count,
    }
    found, ours = FIGURE.at(**settings), bound(**settings)
    assert found["all"] == pytest.approx(ours.tokens_per_s) and found["each"] == pytest.approx(
        ours.tokens_per_s_per_user
    )
    assert found["bound"] == ours.bound and found["busy"] == pytest.approx(ours.busy)
    assert found["in_order"] == pytest.approx(ours.in_order.seconds, rel=3e-4)
    assert found["all_in_order"] == pytest.approx(ours.in_order.tokens_per_s, rel=3e-4)
    assert found["each_in_order"] == pytest.approx(ours.in_order.tokens_per_s_per_user, rel=3e-4)
    assert found["memory"] == ours.memory and (found["fits"] == "yes") is ours.fits
    row = next(row for row in FIGURE.rows(**settings) if row["users"] == batch)
    assert row["all"] == pytest.approx(ours.tokens_per_s)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("context", [512, 8192])
def test_the_ceiling_is_what_a_huge_batch_comes_to(model, context):
    start = FIGURE.settings({"model": model, "context": context})
    huge = bound(**{**start, "batch": 2**34})
    assert FIGURE.at(model=model, context=context)["ceiling"] == pytest.approx(huge.tokens_per_s, rel=1e-3)
    never = fk.serving.batch_at_ridge(drawn(model), "h100-sxm", context=context, weights="bf16") is None
    assert (FIGURE.at(model=model, context=context)["reaches"] == "with no batch") is never


def test_where_the_memory_is_full():
    most = fk.serving.largest_batch("llama-3-70b", "h100-sxm", context=8192, count=8)
    assert FIGURE.at(model="Llama 3 70B", context=8192)["users"] == most
    assert FIGURE.at(**FIGURE.presets["One trillion, bf16"])["most"] == 0


def test_no_preset_asks_more_of_a_model_than_it_was_made_for():
    """Llama 2 ends at 4,096 tokens (its config.json: max_position_embeddings), which the caption says."""
    [preset] = [chosen for chosen in FIGURE.presets.values() if chosen["model"] == "Llama 2 13B"]
    assert preset["context"] <= 4096 and "Llama 2 13B is made for 4,096 tokens" in FIGURE.caption


def test_dense_layers_and_attention_one_after_the_other_take_longer():
    """The caption says that the bound lets them overlap: in order, each takes the longer of its arithmetic and its reading."""
    model, card, sizes = fk.load("llama-3-70b"), fk.device("h100-sxm"), {"context": 512, "batch": 453}
    step, read = model.decode(**sizes), model.kv_bytes(context=512, batch=453)
    attention = 453 * 80 * 4 * 64 * 128 * 512  # users, layers, FLOPs a pair and number, heads, head dimension, tokens
    apart = [(step.flops - attention, step.bytes - read), (attention, read)]
    seconds = sum(max(f / 8 / card.peak("bf16"), m / 8 / card.bandwidth) for f, m in apart)
    found = FIGURE.at(model="Llama 3 70B", **sizes, count=8)
    assert seconds > 1.3 / found["each"] and 1 / found["each_in_order"] == pytest.approx(seconds, rel=1e-3)
    assert "wait for each other" in FIGURE.caption


@pytest.mark.parametrize("model", MODELS)
def test_from_which_batch_on_the_dense_layers_are_compute_bound(model):
    first = fk.serving.batch_at_ridge(drawn(model), "h100-sxm", context=512, part="dense", weights="bf16")
    assert FIGURE.at(model=model, context=512)["dense"] == first


@pytest.mark.parametrize("users", [8, 32, 128])
def test_random_routing_touches_fewer_experts_than_the_batch_can_choose(users):
    """The caption calls the curves of experts estimates; the walk draws each user's eight of 256."""
    draw = random.Random(users)
    touched = [len({e for _ in range(users) for e in draw.sample(range(256), 8)}) for _ in range(50)]
    assert sum(touched) / 50 == pytest.approx(256 * (1 - (1 - 8 / 256) ** users), rel=0.03)
    assert max(touched) < min(256, 8 * users) + (users > 64) and "those curves are estimates" in FIGURE.caption


@pytest.mark.parametrize("weights", WEIGHTS)
@pytest.mark.parametrize("context", [128, 512, 1024, 8192])
@pytest.mark.parametrize("model", MODELS)
def test_from_which_batch_on_a_step_is_compute_bound(model, context, weights):
    sizes = {"context": context, "weights": DTYPES[WEIGHTS[weights]["bits"]], "compute": "bf16"}
    first = fk.serving.batch_at_ridge(drawn(model), "h100-sxm", **sizes)
    found = FIGURE.at(model=model, context=context, weights=weights)
    assert math.ceil(found["first"]) == (first or 0)
    assert found["top"] == 10 * found["ceiling"] > max(row["all"] for row in FIGURE.rows(model=model, context=context))


def test_the_name_of_a_curve_makes_room_for_the_line_of_the_full_memory():
    """On a phone, memory is full at 200 users: "one user" begins at 64 and reached beyond. Nor does that line reach the words above it."""
    pytest.importorskip("altair")
    drawn_on_a_phone = FIGURE.svg(width=360)
    anchor, right = re.search(
        r'anchor="(\w+)" transform="translate\(([\d.]+),[^>]*>one user<', drawn_on_a_phone
    ).groups()
    x, bottom, top = re.search(r'd="M([\d.]+),([\d.]+)L[\d.]+,([\d.]+)"[^>]*dasharray="2,3"', drawn_on_a_phone).groups()
    assert anchor == "end" and float(right) < float(x) - 10
    latent = FIGURE.svg(width=360, **FIGURE.presets["Latent attention"])
    above = re.search(r"translate\([\d.]+,([\d.]+)\)[^>]*>compute-bound from 4,667 →<", latent)[1]
    assert float(bottom) > float(top) > float(above) + 6
