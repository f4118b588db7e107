"""Advice: a program with exactly one fault gets that advice first, and mending it gains no more than was said.

Seconds that are compared are modelled from what the program calls, so a busy machine changes no answer; that a profile by the clock names the
fault, too, is a test of its own. What can happen on a GPU alone is tested on traces written by hand.
"""

import inspect
import re
import time
from collections import Counter
from functools import partial
from pathlib import Path

import pytest
import torch
from kineto import Kineto
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import flopkit as fk
from flopkit.counter.work import FREE
from flopkit.profiling import Profile, advising, in_order, profile
from flopkit.profiling.matching import calls_of


def element_wise(x):
    for _ in range(6):
        x = ((x + 1.0) * 0.5).abs()
    return x


def once(x):
    return x + 1.0


def updating(fused):
    """The step of an optimiser of many parameters."""
    parameters = [torch.nn.Parameter(torch.randn(8)) for _ in range(12)]
    for each in parameters:
        each.grad = torch.ones(8)
    return torch.optim.Adam(parameters, fused=fused).step


class Layers:
    """Layers that are checkpointed, or not."""

    def __init__(self, checkpointed):
        self.layers = torch.nn.Sequential(*(torch.nn.Linear(128, 128) for _ in range(4)), torch.nn.Tanh())
        self.x, self.checkpointed = torch.randn(128, 128, requires_grad=True), checkpointed

    def __call__(self):
        (
            checkpoint(self.layers, self.x, use_reentrant=False) if self.checkpointed else self.layers(self.x)
        ).sum().backward()


QKV = torch.randn(3, 2, 4, 128, 32)


def masked():
    return functional.scaled_dot_product_attention(*QKV, attn_mask=torch.ones(128, 128, dtype=torch.bool).tril())


def causal():
    return functional.scaled_dot_product_attention(*QKV, is_causal=True)


def by_hand():
    q, k, v = QKV
    return ((q @ k.transpose(-1, -2)) / 32**0.5).softmax(-1) @ v


def fused():
    return functional.scaled_dot_product_attention(*QKV)


class Slow(torch.utils.data.Dataset):
    """A data set that is read slowly."""

    def __len__(self):
        return 8

    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(16)


class Loading:
    """A step that takes its batch from a loader, or has it."""

    def __init__(self, loader):
        self.loader, self.model, self.batches = loader, torch.nn.Linear(16, 16), iter(())

    def __call__(self):
        batch = next(self.batches, None)
        if batch is None:
            self.batches = iter(self.loader)
            batch = next(self.batches)
        return self.model(batch)


class Decoder(torch.nn.Module):
    """A head that is asked for each position, or for the last one."""

    def __init__(self, early):
        super().__init__()
        self.body, self.head, self.early = torch.nn.Linear(16, 16), torch.nn.Linear(16, 3000), early

    def forward(self, x):
        x = self.body(x)
        return self.head(x[:, -1]).argmax(-1) if self.early else self.head(x)[:, -1].argmax(-1)


def tiny(x):
    for _ in range(60):
        x = x.sin().cumsum(0)
    return x


BIG, FOUR = torch.randn(300_000), torch.ones(4)
LOADED = torch.utils.data.DataLoader(Slow(), batch_size=4)
TOKENS = torch.randn(2, 128, 16)
FAULTS = {
    "fuse": (lambda: element_wise(BIG), lambda: once(BIG)),
    "fused optimiser": (updating(False), updating(True)),
    "fewer launches": (lambda: tiny(FOUR), lambda: BIG.sin()),
    "checkpoint less": (Layers(True), Layers(False)),
    "is_causal": (masked, causal),
    "fused attention": (by_hand, fused),
    "data loader": (Loading(LOADED), Loading([torch.ones(4, 16)])),
    "head on all tokens": (partial(Decoder(False), TOKENS), partial(Decoder(True), TOKENS)),
}


def work(report):
    """Calls that do something, by row."""
    return Counter(call.key for call in calls_of(report) if call.entry is None or call.entry.work.status != FREE)


def modelled(folder, step, causal_masks=0):
    """A profile of what the step calls, on a machine of 10 GB/s and 50 GFLOP/s that takes 1 µs for each call and 1 µs in between."""
    step()  # what is made in the first call, such as gradients
    report, trace, at = in_order(step), Kineto(card=""), 0.0
    for call in calls_of(report):
        done = call.entry.work if call.entry else None
        took = done.bytes / 1e4 + sum(done.executed.values()) / 2.5e4 if done else 0.0
        if call.name:
            trace.op(call.name, at + 1, at + 2 + took)
            at += 2 + took
        elif trace.entries:  # the work of a call of attention, which has just ended
            trace.entries[-1]["dur"] += took
            at += took
    found = Profile.from_trace(trace.step(0, 0, at + 1).write(folder), report)
    return Profile(found.trace, report, causal_masks=causal_masks)


@pytest.mark.parametrize("rule", advising.RULES)
def test_each_rule_is_tested_and_listed(rule):
    """A rule without a test goes; what it says to do stands in the table of advice."""
    kinds = re.findall(r'Advice\("([^"]+)"', inspect.getsource(rule))
    assert kinds
    tests, page = Path(__file__).read_text("utf8"), (Path(__file__).parents[2] / "book" / "api.md").read_text("utf8")
    for kind in kinds:
        assert kind in FAULTS or f'"{kind}"' in tests, f"no test in this file gets the advice {kind!r}"
        assert f"| {kind} |" in page, f"book/api.md has no row for {kind!r}"


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind != "data loader"])
def test_the_fault_is_named_first_and_mending_it_gains_no_more_than_was_said(kind, tmp_path):
    """What the change removes is in rows that the advice names, and no more than their seconds."""
    faulty, mended = FAULTS[kind]
    before = modelled(tmp_path, faulty, causal_masks=kind == "is_causal")
    table = before.advice()
    assert kinds(before)[:1] == [kind], table
    first = table[0]
    assert 0 < first["at most"] <= 1 and first["change"] and first["why"] and first["rows"]
    after = modelled(tmp_path, mended)
    assert before.seconds - after.seconds <= first["seconds"]
    gone = work(before.report) - work(after.report)
    assert set(gone) <= set(first["keys"]), "the change touches rows that the advice does not name"
    left = [row["seconds"] for row in after.advice() if row["advice"] == kind]
    assert all(seconds < first["seconds"] / 10 for seconds in left)


@pytest.mark.parametrize("kind", FAULTS)
def test_it_is_named_in_a_profile_of_the_program_itself(kind):
    assert kind in kinds(profile(FAULTS[kind][0], time_budget=0.05))


def test_batches_that_are_there_are_not_waited_for():
    found = profile(FAULTS["data loader"][1], time_budget=0.05)
    assert found.joined.loading == 0 and "data loader" not in kinds(found)


def test_the_data_loader_is_named_on_a_gpu_too(tmp_path):
    report = in_order(lambda: [torch.ones(4, 4) @ torch.ones(4, 4) for _ in range(2)])
    trace = Kineto().step(0, 0, 100).launched("aten::mm", 0, 5, 20)
    trace.add("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 15, 80)
    trace.launched("aten::mm", 81, 85, 100)
    first = Profile.from_trace(trace.write(tmp_path), report).advice()[0]
    assert (first["advice"], first["at most"]) == ("data loader", pytest.approx(0.65))


def test_no_less_than_its_row_can_be_saved_of_a_data_loader_on_a_cpu(tmp_path):
    """Of 100 µs no operator runs for 71, in most of which, 65, the step waits for its batch: they are the row of the loader."""
    report = in_order(lambda: [torch.ones(4, 4) @ torch.ones(4, 4) for _ in range(2)])
    trace = Kineto(card="").step(0, 0, 100).op("aten::mm", 0, 10)
    trace.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 15, 80)
    found = Profile.from_trace(trace.op("aten::mm", 81, 100).write(tmp_path), report)
    [row] = [row for row in found.rows if row["operator"] == "(data loader)"]
    first = next(row for row in found.advice() if row["advice"] == "data loader")
    assert row["share"] == pytest.approx(0.71) == first["at most"]


@pytest.mark.parametrize("gpu", [False, True])
def test_what_a_data_loader_calls_is_its_own(gpu, tmp_path):
    """Stacking a batch in the main process takes 40 of 100 µs, and Python around it 20; without them 40 are left."""
    images = torch.ones(2, 16, 16)
    report = in_order(lambda: torch.stack([*images]) @ images)

    def profiled(loads):
        trace = Kineto(card="H100" if gpu else "").step(0, 0, loads + 40)
        if loads:
            trace.add("user_annotation", "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 0, loads)
            trace.op("aten::stack", 10, 50).op("aten::cat", 12, 48)
        on = trace.launched("aten::bmm", loads, loads, loads + 40) if gpu else trace.op("aten::bmm", loads, loads + 40)
        return Profile.from_trace(on.write(tmp_path), report)

    before = profiled(60)
    first = before.advice()[0]
    assert (first["advice"], round(1e6 * first["seconds"], 6)) == ("data loader", 60)
    assert before.seconds - profiled(0).seconds <= first["seconds"] * 1.001
    shown = {row["module"]: round(1e6 * row["seconds"], 6) for row in before.by_module()}
    assert shown == {"(data loader)": 60, "(no module)": 40}
    assert [row["seconds"] for row in before.by_phase() if row["phase"] == "(data loader)"] == [pytest.approx(60e-6)]


class Ready(torch.utils.data.Dataset):
    """Large images that are there, and have to be stacked to a batch."""

    images = torch.ones(8, 3, 256, 256)

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.images[index]


def test_a_loader_that_stacks_in_the_loop_is_named_with_its_stack():
    step = Loading(torch.utils.data.DataLoader(Ready(), batch_size=4))
    step.model = torch.nn.Flatten()
    found = profile(step, time_budget=0.05)
    first = next(row for row in found.advice() if row["advice"] == "data loader")
    assert ("stack", "(data loader)", "") in first["keys"]
    inside = {row["operator"]: row for row in found.rows if row["module"] == "(data loader)"}
    assert first["seconds"] >= 0.999 * sum(row["seconds"] for row in inside.values())
    assert inside["stack"]["bytes"] == 2 * 4 * Ready.images[:4].numel()
    mended = Loading([Ready.images[:4]])
    mended.model = step.model
    after = profile(mended, time_budget=0.05)
    assert not [row for row in after.rows if "(data loader)" in (row["operator"], row["module"])]
    gone = {row["operator"] for row in found.rows if row["bytes"]} - {row["operator"] for row in after.rows}
    assert gone <= {key[0] for key in first["keys"]}, "what mending removes is in the rows that the advice names"


def test_a_mask_that_says_more_is_no_causal_one():
    window = torch.ones(128, 128, dtype=torch.bool).tril().triu(-3)
    found = profile(lambda: functional.scaled_dot_product_attention(*QKV, attn_mask=window), time_budget=0.05)
    assert "is_causal" not in kinds(found)
    bias = torch.zeros(128, 128).masked_fill(~torch.ones(128, 128, dtype=torch.bool).tril(), float("-inf"))
    as_bias = profile(lambda: functional.scaled_dot_product_attention(*QKV, attn_mask=bias), time_budget=0.05)
    assert "is_causal" in kinds(as_bias)
    slopes = profile(lambda: functional.scaled_dot_product_attention(*QKV, attn_mask=bias + 1.0), time_budget=0.05)
    assert "is_causal" not in kinds(slopes)


def product(m, k, n, dtype=torch.float32):
    a, b = torch.ones(m, k, dtype=dtype), torch.ones(k, n, dtype=dtype)
    return in_order(lambda: a @ b)


def on_gpu(folder, report, op="aten::mm", took=80, kernel="", **more):
    trace = Kineto(**more).step(0, 0, 100).launched(op, 0, 10, 10 + took, name=kernel)
    return Profile.from_trace(trace.write(folder), report)


def kinds(found):
    return [row["advice"] for row in found.advice()]


def test_a_small_batch_and_what_it_can_gain(tmp_path):
    """8 · 1024 · 1024 products: 2 MB of bf16 weights at 1 GB/s take 2 ms, 16.8 MFLOPs at 1 TFLOP/s 16.8 µs."""
    mine = fk.Device("mine", peak={"bf16": 1e12}, bandwidth=1e9)
    trace = Kineto().step(0, 0, 4000).launched("aten::mm", 0, 0, 4000)
    found = Profile.from_trace(trace.write(tmp_path), product(8, 1024, 1024, torch.bfloat16), mine)
    first = found.advice()[0]
    assert first["advice"] == "larger batch"
    assert first["seconds"] == pytest.approx(4e-3 - 2 * 8 * 1024 * 1024 / 1e12)
    assert "larger batch" not in kinds(found.on(fk.Device("wide", peak={"bf16": 1e9}, bandwidth=1e12)))


def test_products_in_single_precision_on_a_card_that_is_faster_in_others(tmp_path):
    """2 · 512³ FLOPs: on an H100, 989.4 TFLOP/s in bf16 (its datasheet's dense number), and 3.35 TB/s for half of 3.1 MB."""
    found = on_gpu(tmp_path, product(512, 512, 512))
    first = found.advice()[0]
    assert first["advice"] == "lower precision" and 'set_float32_matmul_precision("high")' in first["change"]
    assert first["seconds"] == pytest.approx(80e-6 - 1.5 * 512 * 512 * 4 / 3.35e12, rel=0.02)
    assert "lower precision" not in kinds(on_gpu(tmp_path, product(512, 512, 512, torch.bfloat16)))


def test_a_peak_that_a_row_beats_is_as_much_too_low_in_the_other_format(tmp_path):
    """2 · 512³ FLOPs in 134 µs where the peak allows 268: bf16, said to be twice as fast, then needs 67 µs, not 134."""
    mine = fk.Device("mine", peak={"fp32": 1e12, "bf16": 2e12}, bandwidth=1e13)
    trace = Kineto().step(0, 0, 2**27 / 1e6).launched("aten::mm", 0, 0, 2**27 / 1e6)
    found = Profile.from_trace(trace.write(tmp_path), product(512, 512, 512), mine)
    (only,) = (row for row in found.advice() if row["advice"] == "lower precision")
    assert only["seconds"] == pytest.approx(2**26 * 1e-12)


def test_launches_have_the_host_before_them_and_after_all(tmp_path):
    report = in_order(lambda: torch.ones(4, 4) @ torch.ones(4, 4))
    found = Profile.from_trace(Kineto(card="").step(0, 0, 100).op("aten::mm", 10, 20).write(tmp_path), report)
    assert [(row["advice"], round(1e6 * row["seconds"])) for row in found.advice()] == [("fewer launches", 100)]


def test_what_no_lower_precision_helps(tmp_path):
    """Complex products have no other format, a transform neither; a launch is as long in each."""
    for step, op in (
        (lambda: torch.ones(512, 512, dtype=torch.cfloat) @ torch.ones(512, 512, dtype=torch.cfloat), "aten::mm"),
        (lambda: torch.fft.rfft(torch.ones(512, 4096)), "aten::_fft_r2c"),
    ):
        assert "lower precision" not in kinds(on_gpu(tmp_path, in_order(step), op))
    waited = Kineto().step(0, 0, 900).launched("aten::mm", 0, 800, 880)
    assert "lower precision" not in kinds(Profile.from_trace(waited.write(tmp_path), product(512, 512, 512)))


def test_a_larger_batch_shares_weights_and_no_cache_of_another_request(tmp_path):
    mine = fk.Device("mine", peak={"bf16": 1e12}, bandwidth=1e9)
    a, b = (torch.ones(4, *shape, dtype=torch.bfloat16) for shape in ((1, 512), (512, 512)))
    trace = Kineto().step(0, 0, 4000).launched("aten::bmm", 0, 0, 4000)
    assert "larger batch" not in kinds(Profile.from_trace(trace.write(tmp_path), in_order(lambda: a @ b), mine))


def test_layouts_that_are_turned(tmp_path):
    conv, image = torch.nn.Conv2d(4, 8, 3), torch.ones(1, 4, 16, 16)
    report = in_order(conv, image)
    trace = Kineto().step(0, 0, 100).op("aten::convolution", 0, 8)
    for at, (name, start, end) in enumerate([("nchwToNhwcKernel<…>", 10, 40), ("xmma_fprop", 40, 90)]):
        trace.runtime("cudaLaunchKernel", at, at + 1, at).kernel(name, start, end, at)
    first = next(
        row for row in Profile.from_trace(trace.write(tmp_path), report).advice() if row["advice"] == "channels last"
    )
    assert first["at most"] == pytest.approx(0.3)
    assert "channels last" not in kinds(on_gpu(tmp_path, report, "aten::convolution", kernel="xmma_fprop"))


def test_sizes_that_no_tile_divides(tmp_path):
    found = on_gpu(tmp_path, product(64, 512, 50257, torch.bfloat16), took=90)
    first = next(row for row in found.advice() if row["advice"] == "multiples of eight")
    assert "50,257 to 50,264" in first["change"]
    assert first["seconds"] <= 90e-6
    assert "multiples of eight" not in kinds(on_gpu(tmp_path, product(64, 512, 50264, torch.bfloat16)))
    assert "multiples of eight" not in kinds(on_gpu(tmp_path, product(64, 512, 50257)))


def test_a_host_that_waits_for_a_number(tmp_path):
    report = in_order(lambda: [torch.ones(4, 4).softmax(-1) for _ in range(2)])
    trace = Kineto().step(0, 0, 100).launched("aten::_softmax", 0, 0, 30)
    trace.op("aten::item", 5, 40).runtime("cudaStreamSynchronize", 10, 35, 900)
    trace.launched("aten::_softmax", 60, 65, 100)
    first = Profile.from_trace(trace.write(tmp_path), report).advice()[0]
    assert (first["advice"], first["at most"]) == ("synchronising calls", pytest.approx(0.35))
    assert "cudaStreamSynchronize in aten::item" in first["why"]


def test_a_host_that_launches_too_slowly(tmp_path):
    report = in_order(lambda: [torch.ones(4, 4) @ torch.ones(4, 4) for _ in range(4)])
    trace = Kineto().step(0, 0, 100)
    for at in range(4):
        trace.launched("aten::mm", 25 * at, 25 * at + 5, 25 * at + 10)
    first = Profile.from_trace(trace.write(tmp_path), report).advice()[0]
    assert (first["advice"], first["seconds"]) == ("fewer launches", pytest.approx((5 + 3 * 20) * 1e-6))
    assert "CUDA graph" in first["change"]


@pytest.mark.parametrize(("late", "said"), [((3000, 3000, 3000), 3e-3), ((3000, 3000, 3), 2e-3), ((3, 3, 3000), None)])
def test_work_outside_of_torch_is_no_launch(late, said, tmp_path):
    """Before the same operator, in most steps; a stretch that comes once may be the machine's."""
    report = in_order(lambda: torch.ones(4, 4) @ torch.ones(4, 4))
    trace = Kineto(card="")
    for number, wait in enumerate(late):
        start = 10_000 * number
        trace.step(number, start, start + wait + 10).op("aten::mm", start + wait, start + wait + 10)
    advice = {row["advice"]: row for row in Profile.from_trace(trace.write(tmp_path), report).advice()}
    if said is None:
        assert "work outside of torch" not in advice and advice["fewer launches"]["seconds"] > 1e-3
    else:
        assert advice["work outside of torch"]["seconds"] == pytest.approx(said)
        assert "up to 3 ms, before aten::mm" in advice["work outside of torch"]["why"]
        assert advice.get("fewer launches", {"seconds": 0})["seconds"] < 20e-6


def test_a_step_that_sleeps_is_told_so():
    found = profile(lambda: (time.sleep(0.003), BIG.sin()), time_budget=0.05)
    first = next(row for row in found.advice() if row["advice"] == "work outside of torch")
    assert first["seconds"] >= 0.003 and ("(Python)", "", "") in first["keys"]


def test_rows_at_their_roof_have_nothing_to_gain(tmp_path):
    """2 · 512³ FLOPs in 300 µs: 895 GFLOP/s of 1 TFLOP/s."""
    mine = fk.Device("mine", peak={"fp32": 1e12}, bandwidth=1e12)
    trace = Kineto().step(0, 0, 300).launched("aten::mm", 0, 0, 300)
    (only,) = Profile.from_trace(trace.write(tmp_path), product(512, 512, 512), mine).advice()
    assert only["advice"] == "nothing to gain here" and "89.5 % of the roof" in only["why"]


def test_a_row_that_beats_its_roof_is_not_said_to_have_nothing_to_gain(tmp_path):
    """A roof that was measured on a busy machine, a third of the real one: the row is at 298 % of it."""
    mine = fk.Device("mine", peak={"fp32": 0.3e12}, bandwidth=1e12)
    trace = Kineto().step(0, 0, 300).launched("aten::mm", 0, 0, 300)
    found = Profile.from_trace(trace.write(tmp_path), product(512, 512, 512), mine)
    assert list(found.advice()) == []
    assert any("1 row faster than the roof" in note and "fk.ceilings()" in note for note in found.notes)


def test_heads_of_several_calls_are_one_advice_and_their_backward_passes_are_in_it(tmp_path):
    def generating(early):
        decoder, x = Decoder(early), TOKENS.clone().requires_grad_()
        decoder.head.requires_grad_()

        def step():
            for _ in range(3):
                last = decoder.head(decoder.body(x)[:, -1]) if early else decoder.head(decoder.body(x))[:, -1]
                last.square().sum().backward()

        return step

    before, after = modelled(tmp_path, generating(False)), modelled(tmp_path, generating(True))
    (only,) = (row for row in before.advice() if row["advice"] == "head on all tokens")
    assert "a product for 768 positions, of which 6 are used" in only["why"]
    assert before.seconds - after.seconds <= only["seconds"] < before.seconds


def test_many_tensors_at_once_are_not_one_after_the_other():
    """With a plain step counter for each parameter, which is read, and no update."""
    parameters = [torch.nn.Parameter(torch.randn(8)) for _ in range(24)]
    for each in parameters:
        each.grad = torch.ones(8)
    found = profile(torch.optim.Adam(parameters, foreach=True).step, time_budget=0.05)
    (only,) = (row for row in found.advice() if row["advice"] == "fused optimiser")
    assert "operators go through all parameters" in only["why"] and "foreach" not in only["change"]


@pytest.mark.parametrize(
    ("name", "options", "change"),
    [
        ("RMSprop", {"foreach": False}, "foreach=True for the optimiser"),
        ("SGD", {"foreach": False, "momentum": 0.9}, "fused=True, or foreach=True, for the optimiser"),
        ("Adadelta", {"foreach": True}, "torch.compile of the optimiser's step"),
    ],
)
def test_the_advice_names_what_the_optimiser_has(name, options, change):
    """`torch.optim.RMSprop(fused=True)` is a TypeError."""
    parameters = [torch.nn.Parameter(torch.randn(8, 2)) for _ in range(24)]
    for each in parameters:
        each.grad = torch.ones(8, 2)
    kind = getattr(torch.optim, name)
    found = profile(kind(parameters, **options).step, time_budget=0.05)
    (only,) = (row for row in found.advice() if row["advice"] == "fused optimiser")
    assert only["change"] == change
    for way in ("fused", "foreach"):
        if f"{way}=True" in only["change"]:
            kind(parameters, **{**options, way: True, **({"foreach": None} if way == "fused" else {})})


def test_what_attention_by_hand_prepares_goes_with_it(tmp_path):
    """Queries that are scaled first."""

    def scaled_first():
        q, k, v = QKV
        return ((q / 32**0.5) @ k.transpose(-1, -2)).softmax(-1) @ v

    before, after = modelled(tmp_path, scaled_first), modelled(tmp_path, fused)
    (only,) = (row for row in before.advice() if row["advice"] == "fused attention")
    gone = work(before.report) - work(after.report)
    assert ("div", "(no module)", "forward") in gone and set(gone) <= set(only["keys"])
    assert before.seconds - after.seconds <= only["seconds"]


def test_a_product_whose_every_row_is_used_is_no_such_head():
    """Projections of one input, one after the other, and a head whose result is used as a whole."""
    q, k, head = (torch.nn.Linear(16, wide) for wide in (32, 32, 3000))
    found = profile(lambda: (q(TOKENS), k(TOKENS), head(TOKENS).argmax(-1)), time_budget=0.05)
    assert "head on all tokens" not in kinds(found)


def test_what_fused_operators_save(tmp_path):
    """Each of three reads and writes 120 MB: fused, once. At 1 TB/s their 240 MB take 240 µs."""

    def said(numbers, took):
        x = torch.empty(numbers, device="meta")
        trace = Kineto().step(0, 0, 10 + 3 * took)
        for at, name in enumerate(("aten::add", "aten::mul", "aten::abs")):
            trace.launched(name, 10 * at, 10 + took * at, 10 + took * (at + 1))
        path, mine = trace.write(tmp_path), fk.Device("mine", peak={"fp32": 1e12}, bandwidth=1e12)
        found = Profile.from_trace(path, in_order(lambda: ((x + 1.0) * 2.0).abs()), mine)
        return next(row for row in found.advice() if row["advice"] == "fuse")

    first = said(30_000_000, 300)
    assert "3 operators in 1 chain: fused, they move up to 480 MB less" in first["why"]
    assert first["seconds"] == pytest.approx((900 + 10 - 240) * 1e-6), "with the host's 10 µs before the first"
    assert first["if"] == "", "no cache holds 240 MB"
    small = said(300_000, 10)
    assert small["seconds"] == pytest.approx(40e-6), "a cache may serve 2.4 MB: memory is no roof for them"
    assert small["if"] == "a cache serves the bytes; else 94 %", "by the memory 2.4 of 40 µs must stay"
    assert said(30_000_000, 200)["seconds"] == pytest.approx(610e-6), "nor where the rows are faster than it"


def test_one_kernel_reads_once_what_several_operators_read_again(tmp_path):
    """Of 120 MB each, (x·2 + x)·x reads and writes eight tensors, fused two: 240 µs at 1 TB/s. Rows that a change shortens are not at their end."""
    x = torch.empty(30_000_000, device="meta")

    def said(program, names, each):
        trace = Kineto().step(0, 0, 10 + each * len(names))
        for at, name in enumerate(names):
            trace.launched(f"aten::{name}", 10 * at, 10 + each * at, 10 + each * (at + 1))
        path, mine = trace.write(tmp_path), fk.Device("mine", peak={"fp32": 1e12}, bandwidth=1e12)
        return Profile.from_trace(path, in_order(program), mine).advice()

    (fuse,) = said(lambda: (x * 2.0 + x) * x, ("mul", "add", "mul"), 370)
    assert fuse["advice"] == "fuse", "the additions are at 97 % of their roof, and all the same they can go"
    assert fuse["seconds"] == pytest.approx((10 + 3 * 370 - 240) * 1e-6) and "up to 720 MB less" in fuse["why"]
    small = x.to(torch.int8)  # one byte in, four between, one out: one kernel moves less than either operator
    (fuse,) = said(lambda: small.exp() > 2, ("exp", "gt"), 370)
    assert fuse["advice"] == "fuse" and fuse["seconds"] == pytest.approx(750e-6), "so that nothing comes off"
