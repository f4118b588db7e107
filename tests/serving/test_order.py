"""Two bounds of a pass: everything overlapped, and one part after another; and experts by chance."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
from vega import evaluate

import flopkit as fk
from flopkit.arithmetic import vega
from flopkit.models.serving.serving_pass import decoded
from flopkit.serving import batch_at_ridge, decode, prefill, request

LLAMA = fk.load("llama-3-70b")
PEAK, BANDWIDTH = 989.4e12, 3.35e12


@pytest.mark.parametrize(("context", "batch", "apart", "together"), [
    (512, 453, 10.79, 8.03), (512, 1024, 24.4, 18.2), (1147, 1325, 41.9, 23.8),
])  # fmt: skip
def test_dense_layers_wait_for_attention(context, batch, apart, together):
    """Eight H100s: 69.5 billion weights, then 80 layers whose caches are read at 8 FLOPs a byte; milliseconds by hand."""
    step = decode(LLAMA, "h100-sxm", context=context, batch=batch, count=8)
    weights = 69.502e9
    dense = max(2 * weights * batch / PEAK, 2 * weights / BANDWIDTH) / 8
    caches = batch * context * 80 * 2 * 8 * 128 * 2 / BANDWIDTH / 8
    assert step.in_order.seconds == pytest.approx(dense + caches, rel=1e-3)
    assert 1e3 * step.in_order.seconds == pytest.approx(apart, rel=3e-3)
    assert 1e3 * step.seconds == pytest.approx(together, rel=3e-3)
    assert step.overlapped.seconds == step.in_order.overlapped.seconds == step.seconds
    assert step.in_order.tokens_per_s == pytest.approx(batch / (dense + caches), rel=1e-3)
    assert step.in_order.busy < step.busy and step.in_order.fits == step.fits
    assert (step.schedule, step.in_order.schedule) == ("overlapped", "in order")


@pytest.mark.parametrize(("name", "weights"), [
    ("llama-3-70b", "bf16"), ("llama-3-70b", "q4_k_m"), ("gpt-oss-120b", {"experts": "mxfp4", "rest": "bf16"}), ("deepseek-v3.2", "fp8"),
    ("gemma-4-26b-a4b", "bf16"), ("qwen3-next-80b-a3b", "bf16"), ("deepseek-v4-flash", "bf16"), ("t5-base", "int4"),
])  # fmt: skip
def test_the_parts_are_the_whole(name, weights):
    """Their FLOPs and bytes sum to those of the pass, so in order no pass is faster than overlapped, and none slower than both sums."""
    how = {"weights": weights, "compute": "bf16", "count": 2}
    for bound in (
        decode(name, "h200-sxm", context=9000, batch=24, **how),
        prefill(name, "h200-sxm", prompt=700, prefix=4096, batch=2, **how),
    ):
        assert sum(each.flops for each in bound.pieces) == bound.cost.flops
        assert sum(each.bytes for each in bound.pieces) == pytest.approx(bound.cost.bytes, rel=1e-9)
        both = bound.roofline.compute_seconds + bound.roofline.memory_seconds
        assert bound.seconds <= bound.in_order.seconds * (1 + 1e-9) <= both * (1 + 1e-9)


def test_a_pass_all_of_whose_parts_have_one_roof_is_no_slower_in_order():
    one = decode(LLAMA, "h100-sxm", context=8192)
    assert one.in_order.seconds == pytest.approx(one.seconds) and one.in_order.bound == one.bound == "memory"
    many = decode(LLAMA, "h100-sxm", context=128, batch=4096, count=16)
    assert many.in_order.bound == "compute" and many.in_order.seconds > 1.08 * many.seconds


def test_the_batch_from_which_a_part_is_compute_bound():
    """2 FLOPs a weight of 2 bytes: the dense layers at the ridge, 295.3, and attention never, at 8 FLOPs a byte."""
    assert (
        batch_at_ridge(LLAMA, "h100-sxm", context=8192, part="dense") == 296
    )  # norms and rows of the embedding are bytes, too
    assert batch_at_ridge(LLAMA, "h100-sxm", context=8192, part="cache") is None
    experts = batch_at_ridge("deepseek-v3", "h100-sxm", context=8192, weights="bf16", part="experts")
    assert experts == pytest.approx(295.3 * 256 / 8, abs=2)  # each of 256 gets 8/256 of the tokens
    assert batch_at_ridge(LLAMA, "h100-sxm", context=512, part="experts") is None
    with pytest.raises(ValueError, match="part='layers'"):
        batch_at_ridge(LLAMA, "h100-sxm", context=512, part="layers")


@pytest.mark.parametrize(("experts", "top_k", "tokens"), [(128, 8, 32), (256, 8, 32), (8, 2, 4), (32, 4, 1)])
def test_expected_experts_by_drawing_them(experts, top_k, tokens):
    draw = random.Random(experts + tokens)
    drawn = [len({e for _ in range(tokens) for e in draw.sample(range(experts), top_k)}) for _ in range(2000)]
    found = fk.layers.experts.expected_experts(experts=experts, top_k=top_k, tokens=tokens)
    assert found == pytest.approx(sum(drawn) / 2000, rel=0.01) and found <= min(experts, top_k * tokens)


def test_by_chance_a_batch_reads_fewer_experts():
    """Qwen3-30B-A3B, 32 users of 32,768 tokens on an H200: 48 layers of 128 experts of 3 · 2,048 · 768 weights, of which all could be chosen."""
    step = decode("qwen3-30b-a3b", "h200-sxm", context=32768, batch=32)
    fewer = 128 * (1 - 8 / 128) ** 32
    saved = 48 * fewer * 3 * 2048 * 768 * 2
    assert step.cost.bytes - step.expected.cost.bytes == pytest.approx(saved, rel=1e-9)
    assert (round(step.tokens_per_s), round(step.expected.tokens_per_s)) == (939, 984)
    assert "different experts" in step.supposes and "by chance" in step.expected.supposes
    assert step.memory == step.expected.memory  # all experts lie there
    assert step.in_order.expected.schedule == "in order"
    assert step.in_order.expected.seconds == step.expected.in_order.seconds < step.in_order.seconds


def test_a_width_that_is_known_later_reads_as_many_bytes():
    """On average a batch reads no whole number of experts; each of them has whole bytes, whether their width is an int or not."""
    mlp = fk.models.Experts(experts=32, top_k=4, d_ff=25)
    model = fk.models.transformer(layers=2, d_model=63, heads=4, head_dim=16, vocab=256, experts=mlp)
    widths = [SimpleNamespace(bits=8), SimpleNamespace(bits=8.0)]
    roles = [dict.fromkeys(("experts", "attention", "mlp", "rest"), width) for width in widths]
    read = [model.decode(context=16, batch=6, weights=each, experts="expected").bytes for each in roles]
    assert read[0] == pytest.approx(read[1], rel=1e-12) and read[0] % 1


def test_one_token_chooses_as_many_as_it_can_and_a_dense_model_none():
    one = decode("mixtral-8x7b", "h200-sxm", context=64)
    assert one.expected.seconds == pytest.approx(one.seconds) and one.expected.supposes == ""
    assert decode(LLAMA, "h100-sxm", context=64, batch=8).expected is None
    assert decode("gemma-4-26b-a4b", "h200-sxm", context=64, batch=8).expected.seconds > 0  # experts beside an MLP
    with pytest.raises(ValueError, match="experts='all'"):
        decode("mixtral-8x7b", "h200-sxm", context=64, experts="all")


def test_a_sweep_in_order():
    batches = np.array([1, 64, 512])
    steps = decode(LLAMA, "h100-sxm", context=1024, batch=batches, count=8).in_order
    one_by_one = [decode(LLAMA, "h100-sxm", context=1024, batch=int(n), count=8).in_order for n in batches]
    assert steps.seconds == pytest.approx([step.seconds for step in one_by_one])
    assert list(steps.bound) == [step.bound for step in one_by_one]


def test_the_table_adds_up():
    step = decode("mixtral-8x7b", "h200-sxm", context=4096, batch=300, count=2)
    *parts, apart, together = step.table()
    assert sum(row["at least"] for row in parts) == pytest.approx(apart["at least"])
    assert apart["at least"] == step.in_order.seconds and together["at least"] == step.seconds
    bounds = {row["part"]: row["bound"] for row in parts}
    assert bounds["q_proj"] == "compute" and bounds["attention"] == "memory"
    assert step.in_order.table()[-2]["part"] == "in order"


def test_both_bounds_are_printed():
    step = decode(LLAMA, "h100-sxm", context=512, batch=453, count=8)
    assert "8.032 ms overlapped (in order 10.79 ms)" in repr(step)
    assert "10.79 ms in order (overlapped 8.032 ms)" in repr(step.in_order)


def test_a_request_is_its_prefill_and_its_steps():
    sizes = {"weights": "fp8", "compute": "bf16", "count": 2}
    found = request(LLAMA, "h100-sxm", prompt=1000, output=4, batch=3, **sizes)
    first = prefill(LLAMA, "h100-sxm", prompt=1000, batch=3, **sizes)
    steps = [decode(LLAMA, "h100-sxm", context=n, batch=3, **sizes) for n in (1001, 1002, 1003)]
    assert found.time_to_first_token == first.seconds
    assert found.time_per_output_token == pytest.approx(sum(step.seconds for step in steps) / 3)
    assert found.seconds == pytest.approx(first.seconds + sum(step.seconds for step in steps))
    assert found.tokens_per_s_per_user == pytest.approx(4 / found.seconds)
    assert found.tokens_per_s == pytest.approx(12 / found.seconds)
    assert found.in_order.time_to_first_token == first.in_order.seconds > first.seconds


def test_a_request_of_one_token_has_no_step():
    found = request("llama-3-8b", "h100-sxm", prompt=512, output=1)
    assert found.seconds == found.time_to_first_token and "then" not in repr(found)
    with pytest.raises(ValueError, match="the prefill makes the only token"):
        print(found.time_per_output_token)


def test_the_groups_of_a_page_are_those_of_plain_numbers():
    """A part without a cache is none of the cache's where formats are parameters, too."""
    alt = pytest.importorskip("altair")
    width, users = type("Width", (), {"bits": alt.param(name="bits", value=16)})(), alt.param(name="users", value=8)
    plain = decoded(LLAMA, context=512, batch=8, weights=None, kv_cache=None, new=1, experts="most")
    page = decoded(LLAMA, context=512, batch=users, weights=width, kv_cache=width, new=1, experts="most")
    assert [each.name for each in page.pieces if each.group == "cache"] == ["attention"]
    for group, piece in plain.grouped().items():
        for what in ("flops", "bytes"):
            found = evaluate(vega(getattr(page.grouped()[group], what)), {"bits": 16, "users": 8})
            assert found == getattr(piece, what)
