"""A search answers what `step` answers, layout by layout; DeepSeek-V3's published layout, what of its paper is known here and what is not."""

from __future__ import annotations

import dataclasses

import pytest

import flopkit as fk
from flopkit.models.activations import of_layer
from flopkit.parallel import Layout, cluster, search, step

# arXiv:2412.19437: section 3.2 (PP 16, EP 64 over 8 nodes, ZeRO-1, no tensor parallelism), 2.1.2 (a token goes to 4 nodes at most), 3.2.2 (all-to-alls
# overlap with arithmetic), 3.2.3 (RMSNorm and the input of SwiGLU's down projection are computed again), 3.3.3 (dispatch in FP8, combine in BF16),
# 4.2 (batch 15,360 of 4,096 tokens)
DEEPSEEK = Layout(pipeline=16, data=128, expert=64)
ASKED = {"seq": 4096, "batch": 15360, "overlap": ("data", "pipeline", "expert"), "dispatch_bytes": 1, "fused": True}


@pytest.mark.parametrize(
    "name, place, devices, tried, asked",
    [
        ("llama-3-8b", "dgx-h100", 64, {"zero": (1, 3)}, {"seq": 8192, "batch": 128}),
        ("deepseek-v3", "deepseek-h800", 2048, {"expert": (8, 64), "micro_batch": (1,)}, ASKED | {"expert_nodes": 4}),
    ],
)
def test_what_is_found_is_what_step_says(name, place, devices, tried, asked):
    found = search(name, place, devices, **tried, **asked)
    assert len(found) > 40
    assert all(each.fits for each in found.steps) and len({each.layout for each in found.steps}) == len(found)
    for each in found.steps[:: max(1, len(found) // 40)]:
        assert each == step(name, each.layout, place, **asked)


def test_deepseeks_published_layout_does_not_fit_by_what_is_known_here():
    """The second rank has four layers of experts and 15 micro-batches in flight. Beside the outputs of norms and of SwiGLU, sections 3.2.3 and 3.3.3 of the paper
    recompute the up-projections of MLA (queries, keys, values), cache the inputs of linear layers and of SwiGLU in FP8 (after attention: 12 bits), and
    keep Adam's moments in BF16. Only with these it would fit, and with 1F1B; DualPipe holds more."""
    held = step("deepseek-v3", DEEPSEEK, "deepseek-h800", **ASKED, expert_nodes=4)
    assert not held.fits and " rank 1 of the pipeline" in held.memory.name
    with pytest.raises(ValueError, match="is not among"):
        search("deepseek-v3", "deepseek-h800", 2048, tensor=(1,), expert=(64,), micro_batch=(1,), **ASKED).place(DEEPSEEK)  # fmt: skip
    model = fk.load("deepseek-v3")
    kept = {each.name: each.bytes for each in of_layer(model, model.blocks[1][0], model._whole(4096, 1, "bf16", None), "flash", False)}  # fmt: skip
    ours = sum(kept.values()) - sum(
        kept[name]
        for name in (
            "attention, input", "mlp, input", "experts, activated gate", "experts, down, input", "shared, activated gate", "shared, down, input",
        )
    )  # fmt: skip
    assert held.memory.layers == 15 * 4 * ours and round(held.memory.total / 1e9, 1) == 138.3
    again = ("queries", "keys", "values", "latent of queries", "latent of keys and values")
    in_fp8 = ("experts, inputs in their order", "experts, gate", "experts, up", "shared, gate", "shared, up")
    less = sum(kept[name] for name in again) + sum(kept[name] for name in in_fp8) / 2
    less += kept["output of the heads"] / 4
    moments = held.memory.optimizer / 3  # 8 of 12 bytes are moments, half of these
    assert 78e9 < held.memory.total - 15 * 4 * less - moments < 79e9
    both = step("deepseek-v3", dataclasses.replace(DEEPSEEK, schedule="dualpipe"), "deepseek-h800", **ASKED).memory
    assert both.total - 17 * 4 * less - both.optimizer / 3 > 99e9


def test_what_makes_deepseeks_layout_fast():
    """Were there room, layouts with a shorter pipeline or TP 2 would be faster by a few per cent. That a token goes to a node once is what makes EP 64 possible: without
    that EP 16 and less are faster by more than a quarter."""
    own = step("deepseek-v3", DEEPSEEK, "deepseek-h800", **ASKED, expert_nodes=4)
    tried = {"expert": (1, 8, 16, 32, 64, 128), "micro_batch": (1, 2), "memory": own.memory.total}
    found = search("deepseek-v3", "deepseek-h800", 2048, **tried, **ASKED, expert_nodes=4)
    print(
        f"{own}: place {found.place(DEEPSEEK)} of {len(found)} that fit, {own.seconds / found[0].seconds:.4f} of the fastest"
    )
    print("under these conditions:", "; ".join(own.supposes))
    assert len(found) > 400
    faster = [each.layout for each in found.steps if each.seconds < own.seconds * (1 - 1e-9)]
    assert faster and all(each.pipeline <= 8 and each.expert >= 64 for each in faster)
    assert own.seconds < 1.05 * found[0].seconds
    widely = search("deepseek-v3", "deepseek-h800", 2048, **tried, **ASKED)
    apart = next(each for each in widely.steps if each.layout == DEEPSEEK)
    assert widely[0].layout.expert <= 16 and apart.seconds > 1.25 * widely[0].seconds


def test_a_token_goes_to_a_node_once():
    """7,168 numbers of 1 byte there and 2 back, to 4 nodes of which 7/8 are others, forward and backward: 150,528 bytes a token and layer. The rank
    that sets the pace has 4 layers of experts."""
    place = cluster("deepseek-h800").replace(link=1e18)
    found = step("deepseek-v3", DEEPSEEK, place, **ASKED | {"overlap": ()}, expert_nodes=4)
    tokens = 4096 * 15360 // 128
    assert found.parts["expert"] == pytest.approx(4 * tokens * 150_528 / 50e9)
    near = 7168 * 3 * 8 * 7 / 8 * 2  # and inside of the nodes to all of its 8 experts
    assert found.sent["expert"] == pytest.approx(4 * tokens * (150_528 + near))
    plain, wide = (step("deepseek-v3", DEEPSEEK, place, **ASKED, expert_nodes=nodes) for nodes in (None, 64))
    assert plain.seconds == pytest.approx(wide.seconds)  # 8 nodes and 8 experts: no limit


def test_layers_that_stages_do_not_divide_are_tried():
    """DeepSeek-V3 has 61 layers: no number of equal stages but 61, with embedding and head 63."""
    found = search("deepseek-v3", "deepseek-h800", 2048, tensor=(1,), expert=(64,), micro_batch=(1,), **ASKED)
    assert {8, 16, 32} <= {each.layout.pipeline for each in found.steps}


@pytest.mark.parametrize(
    "name, asked, said",
    [
        ("llama-3-8b", {"precision": "mixed-fp8"}, "precision='mixed-fp8'"),
        ("llama-3-8b", {"overlap": ("everything",)}, "overlap='everything'"),
        ("llama-3-8b", {"batch": 0}, "batch=0"),
        ("mixtral-8x7b", {"expert_nodes": 0}, "expert_nodes=0"),
        ("t5-base", {}, "has an encoder"),
        ("llama-3-8b", {"recompute": "full"}, r"recompute='full': must be a tuple or a list; of one value \('full',\)"),
        ("llama-3-8b", {"recompute": ("some",)}, "recompute='some'"),
        ("llama-3-8b", {"tensor": 8}, r"tensor=8: must be a tuple or a list; of one value \(8,\)"),
        ("llama-3-8b", {"tensor": (0,)}, "tensor=0"),
        ("llama-3-8b", {"context": None}, "context=None: must be a tuple or a list"),
        ("llama-3-8b", {"micro_batch": ()}, r"micro_batch=\(\): there is nothing to try"),
        ("llama-3-8b", {"sequence": "no"}, "sequence='no': must be True or False"),
        ("llama-3-8b", {"regather": "some"}, "regather='some'"),
        ("llama-3-8b", {"recomput": ("full",)}, "search has no argument 'recomput'; did you mean recompute"),
        ("llama-3-8b", {"precisions": "fp32"}, "search has no argument 'precisions'; did you mean precision"),
        ("llama-3-8b", {"memory": "80GB"}, "memory='80GB': must be a number of bytes"),
    ],
)
def test_a_search_that_cannot_be_is_refused(name, asked, said):
    with pytest.raises((TypeError, ValueError), match=said):
        search(name, "dgx-h100", 8, **{"seq": 1024, "batch": 16} | asked)


def test_layouts_that_cannot_be_are_left_out():
    found = search("llama-3-8b", "dgx-h100", 16, seq=1024, batch=16, expert=(1, 4), schedule="dualpipe", memory=1e15)
    assert found.steps and {each.layout.expert for each in found.steps} == {1}
    assert all(each.layout.pipeline % 2 == 0 for each in found.steps)


@pytest.mark.parametrize(
    "asked, reason",
    [
        ({"tensor": (3,)}, "16 devices cannot be divided by tensor · context = 3"),
        ({"pipeline": (3,)}, "16 devices cannot be divided by tensor · context · pipeline = 3"),
        ({"tensor": (1,), "pipeline": (1,), "batch": 24}, "batch=24 cannot be divided among 16 data-parallel ranks"),
        ({"pipeline": (4,), "virtual": (3,)}, "32 layers cannot be divided into 12 equal stages"),
        (
            {"tensor": (1,), "pipeline": (1,), "micro_batch": (3,)},
            "4 sequences of a rank make no whole number of micro-batches of 3",
        ),
        ({"expert": (4,)}, "expert=4: llama-3-8b has no experts; give expert=1"),
        ({"expert": (32,)}, "16 ranks of a stage cannot be divided by expert=32"),
        ({"tensor": (16,), "pipeline": (1,)}, "tensor=16: must divide the 8 key-value heads of llama-3-8b"),
    ],
)
def test_a_search_says_why_it_found_nothing(asked, reason):
    found = search("llama-3-8b", "dgx-h100", 16, **{"seq": 1024, "batch": 64} | asked)
    assert len(found) == found.tried == 0 and found.supposes == ()
    assert any(each.reason.startswith(reason) for each in found.refused)
    assert found.refused[0].layout and "0 of 0 layouts fit; refused: " in str(found)


def test_a_search_without_room_says_what_the_least_takes():
    found = search("llama-3-8b", "dgx-h100", 16, seq=1024, batch=64, memory=1e9)
    roomy = search("llama-3-8b", "dgx-h100", 16, seq=1024, batch=64, memory=1e15)
    assert found.tried == roomy.tried == len(roomy) and not found.steps
    assert found.least == roomy.least == min(float(each.memory.peak) for each in roomy.steps)
    assert "of a rank's 1 GB" in str(found)
    with pytest.raises(
        ValueError, match="EP 4 is not among the 0 layouts that fit: expert=4: llama-3-8b has no experts"
    ):
        search(
            "llama-3-8b", "dgx-h100", 4, seq=1024, batch=64, expert=(4,), tensor=(1,), pipeline=(1,), micro_batch=(1,)
        ).place(Layout(data=4, expert=4))


def test_a_search_hands_on_what_all_layouts_share():
    asked = {"seq": 1024, "batch": 16, "tensor": (4,), "pipeline": (1,), "micro_batch": (1,), "recompute": ("none",)}
    found = search("llama-3-8b", "dgx-h100", 8, sequence=False, regather="none", **asked)
    assert [each.layout for each in found.steps] == [Layout(tensor=4, data=2, sequence=False, regather="none")]
