"""Layers with a state beside others: what decoding, training and multi-token prediction see of them, by hand and from transformers' modules."""

import pytest
import torch
from family_samples import merged
from test_memory import kept

import flopkit as fk
from flopkit.models import (
    MLP,
    Attention,
    Block,
    Experts,
    GatedDelta,
    GatedRecurrence,
    Model,
    Parallel,
    SelectiveScan,
    SharedBlock,
    ShortConv,
    StateSpace,
)
from flopkit.models.stacks.parts import Run

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SMALL = merged("SMALL")
CONTEXT = 40


def read(kind, **more):
    return fk.from_hf({"model_type": kind, **SMALL[kind], **more})


@pytest.mark.parametrize(
    "kind",
    [
        "nemotron_h",
        "granitemoehybrid",
        "bamba",
        "falcon_h1",
        "jamba",
        "lfm2",
        "zamba2",
        "mamba",
        "qwen3_5_text",
        "kimi_linear",
    ],
)
def test_the_cache_is_what_transformers_keeps(kind):
    """States, inputs of convolutions, keys and values of attention alone: numbers that lie in transformers' cache after a text."""
    config = transformers.AutoConfig.for_model(kind, **SMALL[kind])
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    out = model(input_ids=torch.ones(2, CONTEXT, dtype=torch.long), use_cache=True)
    cache = out.get("past_key_values") or out.cache_params
    found = 0
    for layer in cache.layers:
        for name in ("keys", "values", "conv_states", "recurrent_states"):
            held = getattr(layer, name, None)
            tensors = held.values() if isinstance(held, dict) else held if isinstance(held, (list, tuple)) else [held]
            found += sum(each.numel() for each in tensors if isinstance(each, torch.Tensor))
    assert read(kind).kv_bytes(context=CONTEXT, batch=2, dtype={"rest": "fp8", "states": "fp8"}) == found


def test_a_step_of_mamba_reads_each_weight_once_and_its_states():
    """One token: 2 FLOPs for each number of a matrix, 4 taps of each channel, and C with the state of each channel."""
    model = read("mamba")
    inner, rank, state, layers = 96, 2, 6, 3
    matrices = 32 * 2 * inner + inner * (rank + 2 * state) + rank * inner + inner * 32
    step = model.decode(context=100)
    assert step.flops == 2 * (layers * (matrices + 4 * inner + inner * state) + 32 * 96)
    assert step.flops == model.decode(context=5000).flops
    weights = model.params  # tied: the head reads the table, and the embedding a row of it
    states = layers * (inner * state + 4 * inner)
    assert step.bytes == 2 * (weights + 32) + 2 * (states + layers * inner * state)


def test_experts_behind_a_latent_with_squared_relu():
    """Nemotron-3: two matrices an expert on the latent, the shared MLP on the whole width; an activation is two operations."""
    plain = Experts(experts=6, top_k=2, d_ff=24, gated=False)
    latent = Experts(experts=6, top_k=2, d_ff=24, gated=False, act="relu2", latent=16, shared_d_ff=40)
    run = Run(2, 5, 5)
    flops, vector = (
        {each.cost.name: getattr(each.cost, what) for each in latent.parts(run, 32)}
        for what in ("flops", "vector_flops")
    )
    assert flops["router"] == 2 * 10 * 32 * 6
    assert flops["experts"] == 2 * 10 * 2 * 2 * 16 * 24
    assert flops["latent_down"] == flops["latent_up"] == 2 * 10 * 32 * 16
    assert flops["shared_up_proj"] == 2 * 10 * 32 * 40
    silu = next(each.cost.vector_flops for each in plain.parts(run, 16) if each.cost.name == "experts")
    assert silu - vector["experts"] == (3 - 2) * 10 * 2 * 24
    assert vector["shared_relu2"] == 2 * 10 * 40


@pytest.mark.parametrize("bias", [False, True])
def test_a_short_convolution_keeps_what_the_list_says(bias):
    sizes = SMALL["lfm2"] | {"conv_bias": bias}
    mixer = (
        transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model("lfm2", **sizes))
        .model.layers[0]
        .conv
    )
    x = torch.ones(2, 9, 32, requires_grad=True)
    ours = read("lfm2", conv_bias=bias).blocks[0][0].mixer
    assert isinstance(ours, ShortConv)
    listed = sum(each.bytes for each in ours.kept(Run(2, 9, 9, dtype="fp32"), 32, "math", False))
    assert kept(mixer, lambda: mixer(x)) == listed + x.nbytes


@pytest.mark.parametrize("latent", [16, None])
def test_experts_behind_a_latent_keep_what_the_list_says(latent):
    config = transformers.AutoConfig.for_model(
        "nemotron_h", **SMALL["nemotron_h"] | {"moe_latent_size": latent, "norm_topk_prob": False}
    )
    model = transformers.AutoModelForCausalLM.from_config(config, experts_implementation="grouped_mm")
    mixer, x = model.model.layers[1].mixer.train(), torch.ones(2, 16, 32, requires_grad=True)
    ours = read("nemotron_h", moe_latent_size=latent).blocks[1][0].mlp
    listed = sum(each.bytes for each in ours.kept(Run(2, 16, 16, dtype="fp32"), 32, "math", False))
    assert kept(mixer, lambda: mixer(x)) == listed + x.nbytes


@pytest.mark.parametrize("kind", ["mamba", "falcon_h1", "zamba2", "kimi_linear", "minimax", "recurrent_gemma"])
def test_memory_that_is_not_known_is_refused(kind):
    with pytest.raises(ValueError, match="is not known here, so neither is the memory of training"):
        read(kind).train_memory(seq=16, kernel="math")


def test_layers_of_one_kind_each_train_as_their_parts_do():
    """Nemotron-H: a layer that is an MLP alone keeps what the MLP of a whole layer keeps, and no layer has more than one branch."""
    attention, mlp = Attention(heads=4, kv_heads=2, head_dim=8), MLP(d_ff=80, act="relu2", gated=False)
    whole = Model(name="whole", d_model=32, vocab=96, blocks=((Block(mixer=attention, mlp=mlp), 2),))
    apart = Model(
        name="apart",
        d_model=32,
        vocab=96,
        blocks=((Block(mixer=attention), 2), (Block(mixer=None, mlp=mlp), 2)),
        order=(0, 1, 0, 1),
    )
    assert whole.params == apart.params
    assert whole.train_step(seq=16).hardware_flops == apart.train_step(seq=16).hardware_flops
    assert whole.train_memory(seq=16).layers == apart.train_memory(seq=16).layers
    assert whole.kv_bytes(context=9) == apart.kv_bytes(context=9)


def test_adapters_beside_one_of_two_mixers_leave_the_other_alone():
    """Falcon-H1 with adapters beside Mamba's first matrix: in the first layer nothing flows back through attention, in the second all does."""
    attention, mamba = Attention(heads=4, kv_heads=2, head_dim=8), StateSpace(heads=4, head_dim=8, state=6, chunk=8)
    mixer = Parallel(branches=(attention, mamba))
    back = []
    for layers in (1, 2):
        model = Model(name="parallel", d_model=32, vocab=96, blocks=((Block(mixer=mixer), layers),))
        back.append(model.train_step(seq=16, trained=fk.LoRA(rank=4, targets="in_proj")).backward.flops)
    first = back[0] - 2 * 16 * 32 * 96  # the head's input has a gradient
    core = next(each.cost.flops for each in mamba.parts(Run(1, 16, 16), 32) if each.cost.name == "state_space")
    conv = 2 * 16 * (32 + 2 * 6) * 4
    adapter = 2 * 16 * (32 * 4 + 4 * (32 + 44 + 4))
    assert first == adapter + 2 * 16 * 4 * 80 + conv + 2 * core + 2 * 16 * 32 * 32
    assert back[1] - back[0] > 2 * 16 * 32 * (32 + 16 + 16 + 32)
    alone, beside = (
        Model(name="one", d_model=32, vocab=96, blocks=((Block(mixer=each), 1),)) for each in (attention, mixer)
    )
    steps = [each.train_step(seq=16, trained=fk.LoRA(rank=4, targets="q_proj")) for each in (alone, beside)]
    assert steps[0].backward.flops == steps[1].backward.flops


def test_shared_blocks_count_once_and_run_each_time():
    """Zamba2: two blocks serve three layers; the third has the adapters, the matrix and the Mamba of its own."""
    model = read("zamba2")
    firsts = [block.mixer.first for block, _ in model.blocks if isinstance(block.mixer, SharedBlock)]
    assert firsts == [True, False]
    once, again = (model.layer(kind, seq=16) for kind in (1, 2))
    assert (once.flops, once.vector_flops) == (again.flops, again.vector_flops)
    attention, mlp, norms = 3 * 64 * 64 + 64 * 32, 3 * 32 * 80, 64 + 32
    assert once.params - again.params == attention + mlp + norms
    with pytest.raises(ValueError, match="only trained='all' is known where layers share weights"):
        model.train_step(seq=16, trained="head")


def test_a_decay_for_each_feature_has_two_matrices_and_a_bias_a_feature():
    sizes = {"heads": 3, "k_heads": 3, "k_dim": 8, "v_dim": 8}
    blocks = (((Block(mixer=GatedDelta(**sizes, **more)), 1),) for more in ({}, {"decay_rank": 5}, {"gate_rank": 5}))
    plain, decay, gate = (Model(name="delta", d_model=32, vocab=96, blocks=each).params for each in blocks)
    assert decay - plain == 32 * 5 + 5 * 24 + 24 - (32 * 3 + 3)
    assert gate - plain == 32 * 5 + 5 * 24 - 32 * 24


def test_a_gated_recurrence_by_hand():
    """De et al. 2024: three projections with biases, four taps a channel, two gates of four blocks, a state of one number a channel."""
    mixer = GatedRecurrence(channels=48, blocks=4)
    costs = {each.cost.name: each.cost for each in mixer.parts(Run(2, 5, 5), 32)}
    assert sum(cost.flops for cost in costs.values()) == 2 * 10 * (3 * 32 * 48 + 4 * 48 + 2 * 48 * 12)
    assert sum(cost.params for cost in costs.values()) == 3 * 32 * 48 + 2 * 48 + 32 + 5 * 48 + 2 * (48 * 12 + 48) + 48
    assert costs["recurrence"].vector_flops == 9 * 10 * 48
    assert mixer.held(100) == 48 + 3 * 48


QWEN = {"num_hidden_layers": 4, "mtp_num_hidden_layers": 1}


def test_multi_token_prediction():
    """Qwen3.5 predicts with a layer of full attention, Nemotron-3 with one of attention and experts; both join by one matrix, with three norms."""
    plain, more = (
        fk.from_hf({"model_type": "qwen3_5_text", **SMALL["qwen3_5_text"], **QWEN}, mtp=mtp) for mtp in (False, True)
    )
    layer = 32 * (2 * 4 * 16 + 2 * 2 * 16) + 4 * 16 * 32 + 2 * 16 + 3 * 32 * 80 + 2 * 32
    assert more.params - plain.params == layer + 2 * 32 * 32 + 3 * 32
    sizes = {"model_type": "nemotron_h", **SMALL["nemotron_h"], "num_nextn_predict_layers": 1}
    plain, more = (fk.from_hf(sizes, mtp=mtp) for mtp in (False, True))
    attention, latent = 32 * (4 * 16 + 2 * 2 * 16) + 4 * 16 * 32, 2 * 32 * 16
    experts = 32 * 6 + 6 * 2 * 16 * 24 + latent + 2 * 32 * 40
    assert more.params - plain.params == attention + experts + 2 * 32 + 2 * 32 * 32 + 3 * 32
    with pytest.raises(
        ValueError,
        match="mtp=True: what the layer for multi-token prediction of this model consists of is not described",
    ):
        fk.from_hf(sizes | {"mtp_layers_block_type": ["linear_attention", "moe"]}, mtp=True)


@pytest.mark.parametrize(("kind", "changed", "message"), [
    ("nemotron_h", {"num_hidden_layers": 5}, "num_hidden_layers=5: hybrid_override_pattern or layers_block_type has 6"),
    ("nemotron_h", {"layers_block_type": ["rwkv"]}, "'rwkv' is not described here"),
    ("granitemoehybrid", {"layer_types": ["mamba", "conv", "mamba"]}, "layer_types: must name 3 layers"),
    ("bamba", {"mamba_d_head": 7}, "mamba_d_head=7: 4 heads of 64 features have 16"),
    ("falcon_h1", {"projectors_bias": True}, "projectors_bias beside another mamba_proj_bias"),
    ("kimi_linear", {"mlp_layer_types": ["dense"]}, "mlp_layer_types has 1 entries for 3 layers"),
    ("kimi_linear", {"layer_types": None, "linear_attn_config": {"full_attn_layers": [1], "kda_layers": [3]}}, "must name each of 3 layers once"),
    ("zamba2", {"num_key_value_heads": 2}, "with use_shared_attention_adapter there are as many"),
])  # fmt: skip
def test_what_does_not_go_together_is_refused(kind, changed, message):
    with pytest.raises(ValueError, match=message):
        read(kind, **changed)


def test_norms_of_a_selective_scan():
    """Jamba's have weights, Falcon Mamba's have none."""
    sizes = {"channels": 64, "state": 6, "rank": 5}
    models = (
        Model(name="scan", d_model=32, vocab=96, blocks=((Block(mixer=SelectiveScan(**sizes, norms=norms)), 1),))
        for norms in ("", "plain", "weighted")
    )
    none, plain, weighted = models
    assert none.params == plain.params == weighted.params - (5 + 6 + 6)
    assert none.forward(seq=4).vector_flops < plain.forward(seq=4).vector_flops < weighted.forward(seq=4).vector_flops
