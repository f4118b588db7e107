"""A search answers what `step` answers, layout by layout; DeepSeek-V3's published layout, what of its paper is known here and what is not."""

from __future__ import annotations

import dataclasses

import pytest

import flopkit as fk
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


# sections 3.2.3 (norms and MLA's up-projections are computed again) and 3.3.3 (bf16 moments; FP8 and E5M6 for what is kept)
PRINTED = {"optimizer": "adam-16bit", "mla_up_proj": True, "activations": "deepseek-v3"}

# of a token in a layer with experts, in bytes: inputs of two norms of 7,168 and of MLA's two (1,536 and 512 numbers) in bf16, the rope key, four statistics of
# norms and 128 log-sums in fp32, 256 chances and 8 of the chosen; what attention makes, 128 · 128 numbers of 12 bits, inputs of 8 experts, and inputs of SwiGLU
# in 8 experts and a shared one, 8 bits, all these with 4 bytes a 128 numbers
TILES = {"attention": (16384, 12), "inputs of experts": (8 * 7168, 8), "SwiGLU": (9 * 2 * 2048, 8)}
A_TOKEN = (
    2 * 2 * 7168 + 2 * (1536 + 512) + 2 * 64 + 4 * 4 + 4 * 128 + 4 * 256 + 4 * 8
    + sum(numbers * bits // 8 + numbers // 32 for numbers, bits in TILES.values())
)  # fmt: skip
OUTPUTS = 2 * 8 * 7168  # of experts, which the gradient of the router's weights reads where these multiply them
AGAIN = 2 * (1536 + 512 + 128 * (192 + 192 + 128))  # latents behind their norms, queries, keys and values


def published(**more):
    return step("deepseek-v3", dataclasses.replace(DEEPSEEK, **more.pop("layout", {})), "deepseek-h800", **ASKED, expert_nodes=4, **more)  # fmt: skip


def test_deepseeks_layout_as_its_paper_saves_memory():
    """With 1F1B the second rank holds 15 micro-batches of four layers: 138 GB without the savings and 80 with them. DualPipe holds 17, and everything else twice:
    102 GB. Were experts' outputs not kept, because the router's weights multiply earlier, which the paper does not say, 70."""
    plain = published()
    assert (
        not plain.fits and " rank 1 of the pipeline" in plain.memory.name and round(plain.memory.peak / 1e9, 1) == 138.3
    )
    one_way, inside = published(**PRINTED), published(**PRINTED, weigh_inside=True)
    assert (
        one_way.memory.layers == 15 * 4 * 4096 * (A_TOKEN + OUTPUTS) and inside.memory.layers == 15 * 4 * 4096 * A_TOKEN
    )
    assert one_way.memory.again == inside.memory.again == 4096 * AGAIN
    moments = plain.memory.optimizer / 3  # of 12 bytes 8 are moments, which are halved
    assert plain.memory.states - one_way.memory.states == pytest.approx(moments, abs=2)
    assert one_way.fits and round(one_way.memory.peak / 1e9, 1) == 80.0
    both, both_inside = (
        published(layout={"schedule": "dualpipe"}, **PRINTED, weigh_inside=weigh) for weigh in (False, True)
    )
    assert both_inside.memory.layers == 17 * 4 * 4096 * A_TOKEN and both_inside.fits and not both.fits
    assert [round(each.memory.peak / 1e9, 1) for each in (both, both_inside)] == [101.5, 69.6]


def test_up_projections_that_run_again_are_executed():
    """Of each token and layer 2 · (1,536 · 128 · 192 + 512 · 128 · 256) FLOPs more, in 61 layers; not by the model's FLOPs."""
    plain, again = published(), published(mla_up_proj=True)
    work = [each.hfu * each.seconds * 2048 * fk.device("h800-sxm").peak("bf16") for each in (plain, again)]
    tokens = 15360 * 4096
    assert work[1] - work[0] == pytest.approx(61 * tokens * 2 * (1536 * 128 * 192 + 512 * 128 * 256), rel=1e-6)
    assert again.mfu * again.seconds == pytest.approx(plain.mfu * plain.seconds)
    assert "up-projections of latent attention run again" in again.supposes


def test_deepseeks_layout_shares_the_first_place_with_dualpipe():
    """Of all that fit with DualPipe, the savings of the paper and early weights, at the bf16 peak; with 64 and 128 ranks of experts a step takes as long.
    With 1F1B a shorter pipeline fits, too, and is faster by 7 %. At the FP8 peak of all products the network decides, and fewer ranks of experts are faster
    by a quarter."""
    tried = {
        "expert": (1, 8, 16, 32, 64, 128),
        "micro_batch": (1, 2),
        "recompute": ("none",),
        "expert_nodes": 4,
        "weigh_inside": True,
    }
    found = {}
    for schedule, dtype in (("dualpipe", "bf16"), ("1f1b", "bf16"), ("dualpipe", "fp8")):
        ours = search("deepseek-v3", "deepseek-h800", 2048, schedule=schedule, dtype=dtype, **tried, **ASKED, **PRINTED)
        own = next(each for each in ours.steps if each.layout == dataclasses.replace(DEEPSEEK, schedule=schedule))
        found[schedule, dtype] = own.seconds / ours[0].seconds
        if (schedule, dtype) == ("dualpipe", "bf16"):
            assert ours.place(own.layout) == 1 and len(ours) > 80
            alike = [each for each in ours.steps if each.seconds < own.seconds * (1 + 1e-9)]
            assert {each.layout.expert for each in alike} == {64, 128}
            # with 32 more ranks have the same experts, in more nodes
            assert ours[2].layout.expert == 32 and 1.005 < ours[2].seconds / own.seconds < 1.01
            assert ours[3].seconds > 1.02 * own.seconds
    assert (
        found["dualpipe", "bf16"] == 1 and round(found["1f1b", "bf16"], 3) == 1.076 and found["dualpipe", "fp8"] > 1.25
    )


@pytest.mark.parametrize(
    "name, asked, said",
    [
        ("llama-3-8b", {"mla_up_proj": True}, "mla_up_proj=True: llama-3-8b has no latent attention"),
        ("deepseek-v3", {"mla_up_proj": "yes"}, "mla_up_proj='yes': must be True or False"),
        ("deepseek-v3", {"mla_up_proj": True, "recompute": "full"}, "mla_up_proj=True with recompute='full'"),
        ("llama-3-8b", {"weigh_inside": True, "fused": True}, "weigh_inside=True: llama-3-8b has no experts"),
        ("deepseek-v3", {"weigh_inside": True}, "weigh_inside=True: .*give fused=True"),
        ("deepseek-v3", {"activations": "fp8"}, "activations='fp8': must be one of 'as computed', 'deepseek-v3'"),
        ("deepseek-v3", {"activations": "deepseek-v3", "precision": "fp32"}, "activations='deepseek-v3' with precision='fp32'"),
    ],
)  # fmt: skip
def test_savings_that_cannot_be(name, asked, said):
    layout = Layout(recompute=asked.pop("recompute", "none"))
    with pytest.raises((TypeError, ValueError), match=said):
        step(name, layout, "dgx-h100", seq=512, batch=1, **asked)


def test_kept_formats_of_a_dense_layer():
    """Llama's inputs of linear layers in 8 bits and what attention makes in 12, with scales; inputs of SwiGLU stay, for the paper has them in MoE alone."""
    plain, narrow = (
        step("llama-3-8b", Layout(), "dgx-h100", seq=512, batch=1, activations=each, memory=1e15).memory
        for each in ("as computed", "deepseek-v3")
    )
    eight = 4096 + 4096 + 14336  # inputs of attention, of the MLP, and of its down projection
    less = eight * (2 - 1 - 1 / 32) + 4096 * (2 - 1.5 - 1 / 32)
    assert plain.layers - narrow.layers == 32 * 512 * less


def test_what_makes_deepseeks_layout_fast():
    """Were there room, layouts with a shorter pipeline or TP 2 would be faster by a few per cent. That a token goes to a node once is what makes EP 64 possible: without
    that EP 16 and less are faster by a quarter."""
    own = step("deepseek-v3", DEEPSEEK, "deepseek-h800", **ASKED, expert_nodes=4)
    tried = {"expert": (1, 8, 16, 32, 64, 128), "micro_batch": (1, 2), "memory": own.memory.total}
    found = search("deepseek-v3", "deepseek-h800", 2048, **tried, **ASKED, expert_nodes=4)
    print(
        f"{own}: place {found.place(DEEPSEEK)} of {len(found)} that fit, {own.seconds / found[0].seconds:.4f} of the fastest"
    )
    print("under these conditions:", "; ".join(own.supposes))
    assert len(found) > 400
    faster = [each.layout for each in found.steps if each.seconds < own.seconds * (1 - 1e-9)]
    assert faster and all(each.expert >= 64 for each in faster)
    assert {each.pipeline for each in faster if each.expert == 64} <= {2, 4, 8}
    assert own.seconds < 1.05 * found[0].seconds
    widely = search("deepseek-v3", "deepseek-h800", 2048, **tried, **ASKED)
    apart = next(each for each in widely.steps if each.layout == DEEPSEEK)
    assert widely[0].layout.expert <= 16 and 1.24 < apart.seconds / widely[0].seconds < 1.26


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
