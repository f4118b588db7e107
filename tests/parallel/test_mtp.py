"""Multi-token prediction on several devices: as on one; on the last rank, with an embedding; published layouts divide the layers with it."""

from __future__ import annotations

import pytest

import flopkit as fk
from flopkit.parallel import Layout, cluster, search, step
from flopkit.parallel.plans import Plan, Setting
from flopkit.recordings import bridge_runs

WITH, WITHOUT = fk.load("deepseek-v3", mtp=True), fk.load("deepseek-v3")
ASKED = {"seq": 4096, "batch": 4096}
# of the layer, by hand: attention, router and 256 + 1 experts as in the 58 others; three norms beside those; a matrix that joins
EXPERTS = 256 * 3 * 7168 * 2048
MTP = WITH.params - WITHOUT.params
TABLE = 129280 * 7168


def ranks(pipeline, virtual=1, model=WITH, schedule="1f1b"):
    layout = Layout(pipeline=pipeline, virtual=virtual, data=256 // pipeline, expert=16, schedule=schedule)
    return Plan(Setting(model, cluster("dgx-b200"), 4096, 4096), layout).ranks


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize("name, kernel", [("deepseek-v3", "flash"), ("qwen3.5-35b-a3b", "math")])
def test_one_device_is_one_device(name, kernel, recompute):
    model = fk.load(name, mtp=True)
    found = step(model, Layout(zero=0, recompute=recompute), "dgx-h100", seq=2048, batch=1, kernel=kernel)
    whole = model.train_step(seq=2048, recompute=recompute)
    held = model.train_memory(seq=2048, precision="mixed-fp32-gradients", recompute=recompute, kernel=kernel)
    work = found.seconds * fk.device("h100-sxm").peak("bf16")
    assert work * found.mfu == pytest.approx(whole.model_flops, rel=1e-12)
    assert work * found.hfu == pytest.approx(whole.hardware_flops, rel=1e-12)
    assert (found.memory.states, found.memory.layers, found.memory.ends, found.memory.peak) == (held.states, held.layers, held.ends, held.peak)  # fmt: skip
    assert any(each.startswith("multi-token prediction runs on the last rank, and") for each in found.supposes)


def test_work_of_all_ranks_is_that_of_the_model():
    layout = Layout(pipeline=8, data=4, expert=4)
    plan = Plan(Setting(WITH, cluster("dgx-b200"), 4096, 64), layout)
    assert plan.times().executed == pytest.approx(WITH.train_step(seq=4096, batch=64).hardware_flops, rel=1e-12)


def test_published_stages():
    """Megatron-Bridge's pp_layout is ``Et*4|(t*4|)*14tmL``: sixteen stages, four layers in each but the last, which has one and multi-token prediction. Ours have three in the
    first and two in the last. Without the layer no 16 equal stages can be made."""
    assert [sum(rank.kinds) for rank in ranks(16)] == [3, *[4] * 14, 2]
    assert [sum(each) for each in ranks(2, 8)[1].virtual] == [*[4] * 7, 2]
    with pytest.raises(ValueError, match="61 layers"):
        ranks(2, 8, WITHOUT)
    with pytest.raises(ValueError, match="62 layers .with embedding and head 64. cannot be divided into 64 stages"):
        Plan(Setting(WITH, cluster("dgx-b200"), 4096, 4096), Layout(pipeline=64, data=4))
    assert {run.layout.virtual for run in bridge_runs() if "deepseek-v3, 256 × DGX-GB" in run.run and run.model.mtp} == {4, 8}  # fmt: skip
    found = search(WITH, "dgx-gb300", 256, **ASKED, pipeline=(2,), virtual=(8, 7), expert=(32,), tensor=(1,))
    assert found.tried == 9 and "virtual=7" in found.refused[0].layout


def test_weights_of_the_last_rank():
    """Two layers with experts of 58, the one for multi-token prediction, the head, the last norm and an embedding of its own; with DualPipe the first stage is there, too, and lends its own."""
    layout = Layout(pipeline=16, data=16, expert=16, zero=0)
    plan = Plan(Setting(WITH, cluster("dgx-b200"), 4096, 4096), layout)
    layer = MTP - 2 * 7168 * 7168 - 3 * 7168
    rest = 3 * (layer - EXPERTS) + 2 * 7168 * 7168 + 3 * 7168 + 2 * TABLE + 7168
    assert plan.memory_of(15).weights == 2 * (rest + 3 * EXPERTS // 16)
    both = Layout(pipeline=16, data=16, expert=16, zero=0, schedule="dualpipe")
    apart = [Plan(Setting(WITH, cluster("dgx-b200"), 4096, 4096), each) for each in (layout, both)]
    one_way = apart[0].memory_of(0).weights + apart[0].memory_of(15).weights
    assert one_way - apart[1]._both_of(0, 15, "").weights == 2 * TABLE


def test_activations_wait_on_the_last_rank():
    """One micro-batch of multi-token prediction, whatever the depth; fused without outputs of norms and activations."""
    layout = Layout(pipeline=16, data=16, expert=16)
    last = {
        (model.mtp is not None, fused): Plan(Setting(model, cluster("dgx-b200"), 4096, 4096, fused=fused), layout).memory_of(15)
        for model in (WITH, WITHOUT) for fused in (False, True)
    }  # fmt: skip
    held = {which: memory.ends for which, memory in last.items()}
    on_one = [model.train_memory(seq=4096).ends for model in (WITH, WITHOUT)]
    assert held[True, False] - held[False, False] == on_one[0] - on_one[1]
    dropped = held[True, False] - held[True, True]
    assert held[False, False] == held[False, True] and 0 < dropped < held[True, False] / 2
    assert dropped == (last[False, False].layers - last[False, True].layers) / 3  # three layers like it


def test_its_experts_are_sent_their_tokens():
    """The last rank has two layers with experts and this one: four all-to-alls each, of 8 · 7,168 numbers of two bytes a token, 15/16 of which leave."""
    layout = Layout(pipeline=16, data=16, expert=16, recompute="full")
    asked = {"precision": "mixed-fp32-gradients", "overlap": ()}
    plan = Plan(Setting(WITH, cluster("dgx-gb200"), 4096, 4096, **asked), layout)
    sent = plan._one(plan.ranks[15], *_traffic(plan), 1)[1]["expert"].bytes
    one = 4096 * 8 * 7168 * 2 * 15 / 16
    assert sent == pytest.approx((2 * 6 + 4) * one)  # full recompute sends again, but not this layer's


def _traffic(plan):
    from flopkit.parallel import traffic
    from flopkit.parallel.plans import OVERLAPS

    place = plan.setting.cluster
    inside = {name: plan.layout.in_node(place, name) for name in OVERLAPS}
    return traffic.of_micro_batch(plan.numbers, plan.layout, place, inside, plan.setting.formats), plan.setting.peak


@pytest.mark.parametrize("layout, said", [({"tensor": 2}, "tensor=2"), ({"data": 2, "zero": 3}, "zero=3")])
def test_what_is_not_known_is_refused(layout, said):
    with pytest.raises(ValueError, match=f"{said}: how ranks divide the layer for multi-token prediction"):
        step(WITH, Layout(**layout), "dgx-h100", seq=4096, batch=2)


@pytest.mark.parametrize("saving", [{"activations": "deepseek-v3"}, {"mla_up_proj": True}, {"weigh_inside": True}])
def test_it_keeps_less_as_other_layers_do(saving):
    """The last rank has two layers like it, whose savings are twice its own; what up-projections make again is there on its turn, too."""
    layout = Layout(pipeline=16, data=16, expert=16)
    plain, less = (
        Plan(Setting(WITH, cluster("dgx-b200"), 4096, 4096, fused=True, **more), layout).memory_of(15)
        for more in ({}, saving)
    )
    assert 0 < plain.ends - less.ends == (plain.layers - less.layers) / 2
    assert (less.again > plain.again) == ("mla_up_proj" in saving)
