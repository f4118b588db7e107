"""A step on many devices: one rank is a plain step, printed memory is reproduced, no published run beats the bound."""

from __future__ import annotations

import json
import random
import re
from dataclasses import replace
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.models import transformer
from flopkit.models.training.activations import of_layer
from flopkit.parallel import Layout, cluster, pipeline, search, step
from flopkit.parallel.plans import Plan, Setting
from flopkit.parallel.ranks import stages
from flopkit.parallel.shares import shares
from flopkit.published.rows import read
from flopkit.published.training import gpt

DATA = Path(__file__).parents[1] / "data"


@cache
def data(name):
    return json.loads((DATA / f"{name}.json").read_text("utf-8"))


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(
    "name, seq",
    [("llama-3-8b", 4096), ("mixtral-8x7b", 1024), ("gpt2", 1024), ("deepseek-v3", 512), ("qwen3-30b-a3b", 768)],
)
def test_one_rank_is_a_plain_step(name, seq, recompute):
    model = fk.load(name)
    found = step(name, Layout(zero=3, recompute=recompute, micro_batch=2), "dgx-h100", seq=seq, batch=2)
    plain = model.train_step(seq=seq, batch=2, recompute=recompute)
    memory = model.train_memory(seq=seq, batch=2, recompute=recompute, precision="mixed-fp32-gradients")
    peak = fk.device("h100-sxm").peak("bf16")
    assert found.seconds == pytest.approx(plain.hardware_flops / peak, rel=1e-12)
    assert found.mfu == pytest.approx(fk.mfu(plain, seconds=found.seconds, device="h100-sxm"), rel=1e-12)
    assert found.hfu == pytest.approx(1, rel=1e-12)
    for part in ("weights", "gradients", "optimizer", "layers", "ends", "again", "loss", "total", "peak"):
        assert getattr(found.memory, part) == getattr(memory, part), part
    assert not found.sent


def test_activations_are_of_the_precision():
    """Twice as wide in fp32, in memory as `Model.train_memory` has it, and on the way to other ranks."""
    model = fk.load("llama-3-8b")
    both = [
        step(model, Layout(), "dgx-h100", seq=512, batch=1, precision=each, memory=1e15) for each in ("fp32", "bf16")
    ]
    for found, precision in zip(both, ("fp32", "bf16"), strict=True):
        plain = model.train_memory(seq=512, precision=precision)
        assert (found.memory.layers, found.memory.total) == (plain.layers, plain.total)
    wide, narrow = (
        step(model, Layout(tensor=8), "dgx-h100", seq=512, batch=1, precision=each, memory=1e15).sent
        for each in ("fp32", "bf16")
    )
    assert wide["tensor"] == 2 * narrow["tensor"]
    with pytest.raises(ValueError, match="precision='autocast': .*'fp32' and 'mixed' bound it"):
        step(model, Layout(), "dgx-h100", seq=512, batch=1, precision="autocast")


@pytest.mark.parametrize("precision", ["mixed", "fsdp"])
@pytest.mark.parametrize("name", ["llama-3-8b", "gpt2"])
def test_zero_3_is_what_shards_are(name, precision):
    model = fk.load(name)
    found = step(model, Layout(data=8, zero=3), "dgx-h100", seq=1024, batch=8, precision=precision).memory
    shards = model.train_memory(seq=1024, precision=precision, shards=8)
    for part in ("weights", "gradients", "optimizer", "layers", "ends", "gathered", "loss", "total", "peak"):
        assert getattr(found, part) == getattr(shards, part), part


@pytest.mark.parametrize(
    "layout", [Layout(tensor=4), Layout(context=4), Layout(pipeline=4), Layout(data=4), Layout(tensor=2, pipeline=2)]
)
def test_all_ranks_together_compute_what_one_does(layout):
    """Full products divide; what a tensor-parallel rank does twice is none of them in Llama."""
    model = fk.load("llama-3-8b")
    found = step(model, layout, "dgx-h100", seq=2048, batch=16)
    plain = model.train_step(seq=2048, batch=16)
    executed = found.hfu * found.seconds * layout.ranks * fk.device("h100-sxm").peak("bf16")
    assert executed == pytest.approx(plain.hardware_flops, rel=1e-12)


def test_latents_of_deepseek_are_computed_on_every_tensor_parallel_rank():
    model = fk.load("deepseek-v3")
    one, two = (step(model, Layout(tensor=t), "dgx-h100", seq=512, batch=1) for t in (1, 2))
    down = model.blocks[0][0].mixer
    again = 3 * 2 * 512 * 7168 * (down.q_lora + down.kv_lora + down.qk_rope) * 61
    peak = fk.device("h100-sxm").peak("bf16")
    assert (two.hfu * two.seconds * 2 - one.hfu * one.seconds) * peak == pytest.approx(again, rel=1e-9)


# -- memory ----------------------------------------------------------------------------------------------------

KORTHIKANTI = {row[0]: row[1:] for row in read("korthikanti_memory")["rows"]}


@pytest.mark.parametrize("name", KORTHIKANTI)
def test_korthikantis_activations_to_the_byte(name):
    """Figure 1 in GiB, as Calculon's validation prints it, of layers alone. The paper leaves out mean and deviation of each norm: four fp32
    numbers a token and layer."""
    heads, d_model, layers, stages, virtual, micro, none, both = KORTHIKANTI[name]
    model = gpt(d_model, heads, layers, 51200, 2048)
    asked = {"seq": 2048, "batch": micro * 128 * stages // stages * stages, "kernel": "math", "dropout": True}
    for printed, more in ((none, {"sequence": False}), (both, {"sequence": True, "recompute": "selective"})):
        layout = Layout(tensor=8, pipeline=stages, virtual=virtual, micro_batch=micro, **more)
        found = step(model, layout, "dgx-a100", memory=1e15, **asked)
        in_flight = 1 if stages == 1 else Fraction(stages * virtual + stages - 1, virtual) if virtual > 1 else stages
        statistics = 4 * 4 * 2048 * micro * Fraction(layers, stages) * in_flight / (8 if more["sequence"] else 1)
        assert Fraction(found.memory.layers - statistics, 2**30) == Fraction(printed)


def test_zeros_four_stages():
    """Rajbhandari et al. 2020, figure 1: 7.5 billion parameters on 64 ranks, in GB."""
    numbers = data("zero_memory")
    model = transformer(name="7.5B", d_model=4096, heads=32, layers=36, vocab=32000, d_ff=4 * 4096, act="gelu", gated=False, norm="layer", bias=True, rotary=0, positions=1024, tied=True)  # fmt: skip
    for zero, (_, _, printed, _) in enumerate(numbers["rows"]):
        found = step(model, Layout(data=64, zero=zero), "dgx-h100", seq=1024, batch=64, precision="mixed", memory=1e15)
        assert float(found.memory.states) / model.params * 7.5 == pytest.approx(printed, abs=0.06)


def test_tensor_parallelism_divides_norms_only_by_tokens():
    model = fk.load("llama-3-8b")
    apart, together = (
        step(model, Layout(tensor=8, sequence=s), "dgx-h100", seq=4096, batch=1).memory for s in (False, True)
    )
    # of a layer: inputs of two norms and two branches in bf16, two fp32 statistics
    whole = 32 * (4 * 4096 * 2 + 2 * 4) * 4096
    assert apart.layers - together.layers == Fraction(7, 8) * whole


# -- time ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more, gathers", [({"sequence": False}, 0), ({"regather": "context"}, 0), ({"regather": "all"}, 2 * 32 + 1)]
)
def test_the_bytes_of_a_tensor_parallel_step(more, gathers):
    """Megatron's four all-reduces a layer (Shoeybi et al. 2019, section 3), and one for the embedding and one for the head. With SP each is a gather and a
    reduce-scatter, and two branches a layer and the head gather their inputs once more (Korthikanti et al. 2022, section 4.2.2)."""
    found = step("llama-3-8b", Layout(tensor=8, **more), "dgx-h100", seq=4096, batch=1)
    assert found.sent["tensor"] == (2 * (4 * 32 + 2) + gathers) * 7 / 8 * 2 * 4096 * 4096


@pytest.mark.parametrize("zero, times", [(0, 4 + 4), (1, 4 + 2), (2, 4 * 3 + 2), (3, 3 * (4 + 2 + 2))])
def test_the_bytes_of_data_parallel_steps(zero, times):
    """Gradients in fp32 and weights in bf16, in three micro-batches: an all-reduce; a reduce-scatter and a gather; a reduce-scatter in each
    micro-batch; and two gathers."""
    model = fk.load("llama-3-8b")
    found = step(model, Layout(data=8, zero=zero), "dgx-h100", seq=1024, batch=24)
    assert found.sent["data"] == pytest.approx(7 / 8 * times * model.params)


def test_the_bytes_of_experts():
    """Two all-to-alls forward and two backward of top_k rows a token."""
    found = step("mixtral-8x7b", Layout(data=8, expert=8), "dgx-h100", seq=1024, batch=8)
    assert found.sent["expert"] == pytest.approx(32 * 4 * 7 / 8 * 1024 * 2 * 4096 * 2)


@pytest.mark.parametrize("policy, times", [("none", 4), ("selective", 4), ("full", 6)])
def test_the_bytes_of_experts_that_are_computed_again(policy, times):
    """There and back, forward and backward, and with full recompute forward once more: 60.13 and 90.19 GB."""
    found = step("mixtral-8x7b", Layout(data=8, expert=8, recompute=policy), "dgx-h100", seq=4096, batch=64)
    assert found.sent["expert"] == 32 * times * 7 / 8 * (64 // 8) * 4096 * 2 * 4096 * 2


@pytest.mark.parametrize(
    "regather, times", [("all", (3, 4, 4)), ("context", (3, 4, 4)), ("none", (2, 2, 3))],
)  # fmt: skip
def test_the_bytes_of_context_parallel_steps(regather, times):
    """Keys and values of 32 heads of 128: gathered, and gathered again, and their gradients reduced."""
    for policy, each in zip(("none", "selective", "full"), times, strict=True):
        layout = Layout(context=8, recompute=policy, regather=regather)
        found = step("llama-2-7b", layout, "dgx-h100", seq=4096, batch=64)
        assert found.sent["context"] == 32 * each * 7 / 8 * 64 * 2 * 4096 * 4096 * 2


def test_what_a_rank_keeps_whole_it_does_not_gather_again():
    """Per layer, seven eighths of two inputs of branches (SP), or of keys and values (CP), which Llama-2-7B has as many of as of queries."""
    model, whole = fk.load("llama-2-7b"), 2 * 4096 * 4096
    held = {}
    for layout in (Layout(tensor=8), Layout(context=8)):
        for regather in ("all", "context", "none"):
            found = step(model, replace(layout, regather=regather), "dgx-h100", seq=4096, batch=8).memory
            held[layout.tensor, regather] = found.layers, found.ends
    (parts, ends), (own, _) = held[8, "all"], held[1, "all"]
    assert held[8, "context"] == held[8, "none"] == (parts + 32 * 2 * whole * 7 / 8, ends + whole * 7 / 8)
    assert held[1, "context"] == held[1, "all"] and held[1, "none"][0] == own + 32 * 2 * whole * 7 / 8


def test_what_is_gathered_again_hides_behind_arithmetic():
    """Korthikanti et al. 2022, section 4.2.2. It shows where so much hides that arithmetic is the shorter, and `supposes` says what is taken."""
    asked = {"seq": 4096, "batch": 64}
    again, whole = (step("llama-2-7b", Layout(tensor=8, regather=r), "dgx-h100", overlap=(), **asked) for r in ("all", "context"))  # fmt: skip
    assert again.seconds == whole.seconds
    assert again.parts == whole.parts and again.sent["tensor"] - whole.sent["tensor"] == (2 * 32 + 1) * 7 / 8 * 64 * 2 * 4096 * 4096  # fmt: skip
    assert "inputs of branches are gathered again in the backward pass, beside arithmetic" in again.supposes
    assert "inputs of branches are kept whole" in whole.supposes
    slow = cluster("dgx-h100").replace(link=20e9)
    found = step("llama-2-7b", Layout(tensor=8), slow, overlap=("tensor",), **asked)
    assert found.seconds == pytest.approx(found.sent["tensor"] / 20e9)


@pytest.mark.parametrize("virtual", [1, 2])
def test_an_end_of_a_pipeline_sends_half(virtual):
    """The last rank sets the pace, for it has the head. Its last stage sends only back: of 64 micro-batches 2 · virtual - 1 messages each."""
    layout = Layout(pipeline=8, virtual=virtual)
    found = step("llama-2-7b", layout, "dgx-h100", seq=4096, batch=64, overlap=())
    assert found.sent["pipeline"] == 64 * (2 * virtual - 1) * 2 * 4096 * 4096
    assert found.parts["pipeline"] == pytest.approx(found.sent["pipeline"] / 450e9)


def llama_3(row):
    layout = Layout(tensor=8, context=row["cp"], pipeline=16, data=row["dp"], virtual=8)
    asked = {"seq": row["seq"], "batch": row["batch_per_dp"] * row["dp"]}
    model = fk.load("llama-3.1-405b")
    flops = 6 * model.params * asked["seq"] * asked["batch"]
    return step(model, layout, "llama-3", fused=True, memory=1e15, **asked), flops / (
        row["tflops_per_gpu"] * 1e12 * row["gpus"]
    )


def megatron_core(row):
    """The README's table is of 2024, when Megatron's formula counted all positions of the scores: 459.6 TFLOP/s of 32B are 0.89 s.
    In which format gradients are reduced it does not print: the bound takes 16 bits."""
    _, heads, hidden, layers, tensor, stages, data_, gpus, batch, tflops, *_ = row
    model = transformer(name="GPT", d_model=hidden, heads=heads, layers=layers, vocab=131072, d_ff=4 * hidden, act="gelu", gated=False, rotary=0, norm="layer", bias=True, tied=False)  # fmt: skip
    flops = model.train_step(seq=4096, batch=batch).under("MEGATRON_2022").model_flops
    layout = Layout(tensor=tensor, pipeline=stages, data=data_)
    found = step(model, layout, "dgx-h100", seq=4096, batch=batch, precision="mixed", memory=1e15)
    return found, flops / (tflops * 1e12 * gpus)


def megascale(gpus, batch, seconds):
    model = gpt(12288, 128, 96, 64000, 2048)
    layout = Layout(tensor=8, pipeline=8, data=gpus // 64, virtual=6)
    return step(model, layout, "dgx-a100", seq=2048, batch=batch, memory=1e15), seconds


def published():
    rows = read("llama_3")["rows"]
    yield from ((f"Llama 3, {row['gpus']} GPUs, {row['seq']}", llama_3, (row,)) for row in rows)
    yield from ((f"Megatron-Core, {row[0]}B", megatron_core, (row,)) for row in read("megatron_core_h100")["rows"])
    for table in read("megascale")["table2"]:
        for gpus, seconds, *_ in table["rows"]:
            yield f"{table['system']}, {gpus} GPUs", megascale, (gpus, table["batch"], seconds)


@pytest.mark.parametrize("what, run, row", [pytest.param(*each, id=each[0]) for each in published()])
def test_no_published_run_is_faster_than_the_bound(what, run, row):
    found, seconds = run(*row)
    assert 0.2 < found.seconds / seconds <= 1


def test_without_overlap_the_32b_run_would_be_impossible():
    """Megatron-Core 32B on 384 H100: one after the other, arithmetic and what is sent take longer than the published step (claim C4). With gradients
    reduced in 16 bits they would take all of it, at 100 % of the peak."""
    row = next(row for row in read("megatron_core_h100")["rows"] if row[0] == 32)
    found, seconds = megatron_core(row)
    model = transformer(name="GPT", d_model=7168, heads=56, layers=48, vocab=131072, d_ff=4 * 7168, act="gelu", gated=False, rotary=0, norm="layer", bias=True, tied=False)  # fmt: skip
    asked = {"seq": 4096, "batch": 192, "memory": 1e15, "overlap": ()}
    wide, narrow = (
        step(model, found.layout, "dgx-h100", precision=precision, **asked)
        for precision in ("mixed-fp32-gradients", "mixed")
    )
    assert found.seconds < seconds < wide.seconds
    assert narrow.seconds > 0.98 * seconds


@pytest.mark.parametrize("devices, data_", [(8192, 64), (16384, 128)])
def test_llama_3s_layouts_are_found(devices, data_):
    """First of all that fit 80 GB, if a layer keeps what a fused program keeps, whole batches of 16 M tokens, no context parallelism."""
    found = search(
        "llama-3.1-405b", "llama-3", devices, seq=8192, batch=2048, fused=True, memory=80e9, micro_batch=(1, 2)
    )
    assert found.place(Layout(tensor=8, pipeline=16, data=data_, virtual=8)) == 1
    assert len(found) > 50
    assert all(each.layout.ranks == devices for each in found.steps)


def test_shares_refuse_what_they_do_not_know():
    for name in ("t5-base", "vit-l-16", "mamba-2.8b"):
        if name in fk.model_names():
            with pytest.raises(ValueError, match=r"step on several devices|tensor=2"):
                step(name, Layout(tensor=2), "dgx-h100", seq=512, batch=1)


@pytest.mark.parametrize(
    "layout, asked, said",
    [
        ({"tensor": 3}, {}, "tensor=3: must divide the 32 heads"),
        ({"tensor": 16}, {}, "8 key-value heads"),
        ({"expert": 4, "data": 4}, {}, "has no experts"),
        ({"pipeline": 5}, {"batch": 20}, None),
        ({"pipeline": 40}, {"batch": 40}, "cannot be divided into 40 stages"),
        ({"pipeline": 4, "virtual": 2}, {"batch": 6}, "multiple of its 4 ranks"),
        ({"data": 4}, {"batch": 6}, "batch=6"),
        ({"context": 3}, {}, "context=3"),
    ],
)
def test_degrees_that_do_not_divide(layout, asked, said):
    ask = {"seq": 1024, "batch": 16} | asked
    if said is None:
        assert step("llama-3-8b", Layout(**layout), "dgx-h100", **ask).seconds > 0
        return
    with pytest.raises(ValueError, match=said):
        step("llama-3-8b", Layout(**layout), "dgx-h100", **ask)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"tensor": 0}, "tensor=0"),
        ({"zero": 4}, "zero=4"),
        ({"expert": 3}, "expert=3: must divide"),
        ({"virtual": 2}, "virtual=2"),
        ({"recompute": "some"}, "recompute='some'"),
        ({"schedule": "waves"}, "schedule='waves'"),
        ({"regather": "some"}, "regather='some': must be one of 'all', 'context', 'none'"),
        ({"sequence": "no"}, "sequence='no': must be True or False"),
        ({"zero": True}, "zero=True: a stage of ZeRO"),
    ],
)
def test_layouts_that_cannot_be(wrong, said):
    with pytest.raises((TypeError, ValueError), match=said):
        Layout(**wrong)


@pytest.mark.parametrize(
    "wrong, said",
    [
        ({"layout": "tp8"}, r"layout='tp8': must be a Layout, such as Layout\(tensor=8"),
        ({"cluster": "dgx-h999"}, "cluster='dgx-h999' is not a known cluster; did you mean dgx-h100"),
        ({"overlap": "data"}, r"overlap='data': must be a tuple or a list; of one value \('data',\)"),
        ({"memory": "80GB"}, "memory='80GB': must be a number of bytes"),
        ({"memory": -1}, "memory=-1: must be a finite number of bytes above 0"),
        ({"dispatch_bytes": -1}, "dispatch_bytes=-1"),
        ({"combine_bytes": 0}, "combine_bytes=0"),
        ({"kernel": "flashy"}, "kernel='flashy': must be one of 'flash', 'math'"),
        ({"dropout": "no"}, "dropout='no': must be True or False"),
        ({"fused": 2}, "fused=2: must be True or False"),
        ({"dtype": "fp99"}, "dtype='fp99' is not a known number format"),
        ({"layout": Layout(tensor=8, regather="context"), "fused": True}, "fused=True with regather='context'"),
    ],
)
def test_what_step_is_asked_is_checked(wrong, said):
    asked = {"layout": Layout(), "cluster": "dgx-h100", "seq": 512, "batch": 8} | wrong
    with pytest.raises((TypeError, ValueError), match=said):
        step("llama-3-8b", **asked)


def test_shares_have_every_parameter():
    for name in ("llama-3-8b", "gpt2", "gemma-2-9b", "qwen3-30b-a3b"):
        model = fk.load(name)
        assert shares(model, 1024, "flash", False).params == model.params


def test_a_rank_of_dualpipe_has_two_stages_and_p_plus_one_micro_batches():
    """arXiv:2412.19437, table 2: parameters twice, PP + 1 activations instead of PP. Of equal layers 5/4 of what 1F1B's first rank holds."""
    asked = {"model": "llama-3-8b", "cluster": "dgx-h100", "seq": 1024, "batch": 64}
    one, two = (step(layout=Layout(pipeline=4, data=2, schedule=name), **asked).memory for name in ("1f1b", "dualpipe"))
    assert two.layers == one.layers * 5 // 4
    assert two.weights == 2 * one.weights + 2 * 4096  # embedding and head are equal, and the last norm comes on top


def test_the_fullest_rank_of_dualpipe_lies_between_the_ends():
    """DeepSeek-V3's first stage has three dense layers, its last two have three layers of experts each, all others four: those of the third rank
    and the third last hold 17 micro-batches of four layers, 4,096 tokens each."""
    model = fk.load("deepseek-v3")
    layout = Layout(pipeline=16, data=128, expert=64, schedule="dualpipe")
    held = step(model, layout, "deepseek-h800", seq=4096, batch=15360, memory=1e15).memory
    with_experts, _ = model.blocks[1]
    run = model._whole(4096, 1, "bf16", None)
    layer = sum(each.bytes for each in of_layer(model, with_experts, run, "flash", False))
    assert held.layers == 17 * 4 * layer and held.ends == 0


# -- the fullest rank of a pipeline ------------------------------------------------------------------------------


def plans_of_pipelines(count):
    """Models whose stages have equal layers, one fewer at the ends or in between, dense layers first, or a large head; every schedule."""
    draw = random.Random(1605)
    names = ("llama-3.1-405b", "llama-3-8b", "gpt2", "deepseek-v3", "mixtral-8x7b", "gemma-2-9b")
    settings = {
        (name, fused): Setting(fk.load(name), cluster("dgx-h100"), 1024, 768, fused=fused, memory=1e15)
        for name in names
        for fused in (False, True)
    }
    while count:
        degrees = {
            "pipeline": draw.choice([2, 3, 4, 5, 6, 8, 12, 16, 32]), "virtual": draw.choice([1, 1, 1, 2, 3, 4, 8]), "data": draw.choice([2, 8, 16]),
            "tensor": draw.choice([1, 2, 4]), "schedule": draw.choice(["gpipe", "1f1b", "1f1b", "interleaved", "interleaved-zero-bubble"]),
            "recompute": draw.choice(["none", "selective", "full"]), "zero": draw.choice([0, 1, 2, 3]),
        }  # fmt: skip
        try:
            plan = Plan(draw.choice([*settings.values()]), Layout(**degrees))
        except ValueError:
            continue
        count -= 1
        yield plan


def test_no_rank_of_a_pipeline_holds_more_than_the_fullest():
    """Every rank asked. Often it is neither the first nor the last, and its number is in the name."""
    between = 0
    for plan in plans_of_pipelines(200):
        layout, held = plan.layout, plan.memory()
        every = [plan.memory_of(i).peak for i in range(layout.pipeline)]
        assert held.peak == max(every), layout
        [said] = re.findall(r"rank (\d+) of the pipeline", held.name)
        assert every[int(said)] == max(every), layout
        between += max(every) > max(every[0], every[-1])
    assert between > 30


def worked_off(model, layout, micro_batches):
    """Of each rank the most layers, over all micro-batches, whose activations are there at once, as the schedule is worked off piece by piece."""
    chunks = layout.pipeline * layout.virtual
    one_each = stages(shares(model, 1024, "flash", False), chunks, 1)
    sizes = [sum(stage.kinds) for stage in one_each]
    run = pipeline(
        stages=layout.pipeline, micro_batches=micro_batches, virtual=layout.virtual, schedule=layout.order
    ).timeline()
    holds, most = [0] * layout.pipeline, [0] * layout.pipeline
    for work in sorted(run, key=lambda work: work.start):
        holds[work.rank] += sizes[work.stage] if work.kind == "forward" else -sizes[work.stage]
        most[work.rank] = max(most[work.rank], holds[work.rank])
    return most


def kept_by_a_layer(model, seq):
    """By the last kind of its layers, without recompute."""
    run = model._whole(seq, 1, "bf16", None)
    return sum(each.bytes for each in of_layer(model, model.blocks[-1][0], run, "flash", False))


@pytest.mark.parametrize("replicas, second", [(128, 128), (64, 141)])
def test_llama_3s_second_rank_is_its_fullest(replicas, second):
    """The first of 128 stages has the embedding instead of a layer: the first rank has 7 layers, the second 8. That many layers' activations are there at
    most when the schedule is worked off, of 16 or 32 micro-batches."""
    model, layout = fk.load("llama-3.1-405b"), Layout(tensor=8, pipeline=16, data=replicas, virtual=8)
    most = worked_off(model, layout, 2048 // replicas)
    assert most[:2] == [112, second] and max(most) == second
    held = step(model, layout, "llama-3", seq=8192, batch=2048).memory
    assert held.layers == Fraction(second * kept_by_a_layer(model, 8192), 8)
    assert held.name == f"llama-3.1-405b, training step, rank 1 of the pipeline of {layout}"


@pytest.mark.parametrize("name, p", [("deepseek-v3", 16), ("llama-3.1-405b", 16), ("llama-3-8b", 5), ("gpt2", 8)])
def test_layers_of_the_fullest_rank_are_those_of_a_schedule_worked_off(name, p):
    """With 1F1B stages may be as unequal as they like. Of one kind of layers the most in flight is the schedule's."""
    model, layout = fk.load(name), Layout(pipeline=p, data=2)
    most = worked_off(model, layout, 2 * p)
    held = step(model, layout, "dgx-h100", seq=1024, batch=4 * p, memory=1e15).memory
    at = int(re.findall(r"rank (\d+) of", held.name)[0])
    assert held.layers == most[at] * kept_by_a_layer(model, 1024)
