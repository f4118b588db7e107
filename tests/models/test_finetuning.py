"""A step that trains a part of a model: as torch runs it with frozen weights and with adapters written out, and as papers print it."""

from functools import partial

import altair
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

import flopkit as fk
from flopkit.models import MLP, Attention, Block, LastLayers, LoRA, Model, Parallel, Segments, StateSpace

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SIZES = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
MIXTRAL = SIZES | {"model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
VIT = {
    "model_type": "vit",
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "image_size": 16,
    "patch_size": 4,
    "num_labels": 1000,
}
SEQ, BATCH, RANK = 16, 2, 4
EVERY = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")


class Adapted(nn.Module):
    """A frozen dense layer with an adapter beside it."""

    def __init__(self, base):
        super().__init__()
        self.base = base
        self.low = nn.Linear(base.in_features, RANK, bias=False)
        self.high = nn.Linear(RANK, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.high(self.low(x))


def built(trained, sizes=SIZES):
    """The same choice made by hand in a model of transformers."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**sizes)).train()
    if trained == "all":
        return model
    model.requires_grad_(False)
    if isinstance(trained, fk.LoRA):
        for layer in model.model.layers:
            for group in (layer.self_attn, getattr(layer, "mlp", None)):
                for name in trained.targets:
                    if hasattr(group, name):
                        setattr(group, name, Adapted(getattr(group, name)))
        return model
    model.lm_head.requires_grad_(True)
    if trained != "head":
        for part in (*model.model.layers[-trained.layers :], model.model.norm):
            part.requires_grad_(True)
    return model


TRAINED = [
    "all", "head", *map(LastLayers, (1, 2, 3)), fk.LoRA(rank=RANK), fk.LoRA(rank=RANK, targets=EVERY), fk.LoRA(rank=RANK, targets=("o_proj",)),
    fk.LoRA(rank=RANK, targets="down_proj"), fk.LoRA(rank=RANK, targets=("up_proj", "k_proj")),
]  # fmt: skip


@pytest.mark.parametrize("tied", [False, True], ids=["own head", "tied"])
@pytest.mark.parametrize("trained", TRAINED, ids=str)
def test_what_torch_runs(trained, tied):
    """Each phase, and what flash computes again, whatever is frozen; and the numbers that have a gradient."""
    sizes = SIZES | {"tie_word_embeddings": tied}
    model = built(trained, sizes)
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    with fk.counting() as report:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    ours = fk.from_hf(sizes)
    step = ours.train_step(seq=SEQ, batch=BATCH, trained=trained)
    for convention in ("TORCH", "EXACT"):
        counted, told = report.under(convention), step.under(convention)
        assert told.model_flops == counted.model_flops
        assert told.hardware_flops == counted.hardware_flops
    assert ours.trained_params(trained) == sum(each.numel() for each in model.parameters() if each.grad is not None)


@pytest.mark.parametrize("trained", [LastLayers(1), fk.LoRA(rank=RANK)], ids=str)
def test_layers_without_a_backward_pass_are_not_computed_again(trained):
    model = built(trained)
    for layer in model.model.layers:
        layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    with fk.counting() as report, set_checkpoint_early_stop(False):
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    step = fk.from_hf(SIZES).train_step(seq=SEQ, batch=BATCH, trained=trained, recompute="full")
    for convention in ("TORCH", "EXACT"):
        assert step.under(convention).hardware_flops == report.under(convention).hardware_flops
        assert step.under(convention).model_flops == report.under(convention).model_flops


@pytest.mark.parametrize("targets", ["down_proj", "q_proj"])
def test_where_the_last_product_has_an_adapter_its_second_matrix_is_left_out(targets):
    lora = fk.LoRA(rank=RANK, targets=targets)
    executed = {}
    for stop in (True, False):
        model = built(lora)
        for layer in model.model.layers:
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)
        with set_checkpoint_early_stop(stop):
            executed[stop] = counted(model).hardware_flops
        step = fk.from_hf(SIZES).train_step(seq=SEQ, batch=BATCH, trained=lora, recompute="full", early_stop=stop)
        assert step.under("TORCH").hardware_flops == executed[stop]
    spared = {"down_proj": RANK * 32, "q_proj": 80 * 32}[targets]
    assert executed[False] - executed[True] == 3 * 2 * SEQ * BATCH * spared


def test_the_first_product_of_a_model_of_images_has_no_gradient_of_its_input():
    model = transformers.AutoModelForImageClassification.from_config(transformers.AutoConfig.for_model(**VIT)).train()
    with fk.counting() as report:
        model(torch.zeros(BATCH, 3, 16, 16)).logits.sum().backward()
    ours = fk.from_hf(VIT)
    step = ours.train_step(batch=BATCH)
    assert step.under("TORCH").model_flops == report.under("TORCH").model_flops
    conv = 2 * BATCH * 16 * 3 * 16 * 32
    assert step.model_flops == 3 * ours.forward(batch=BATCH).flops - conv


def test_experts_and_several_kinds_of_layers():
    """Attention is adapted, the experts are frozen: they have the gradient of their input, and no other."""
    model = built(fk.LoRA(rank=RANK), MIXTRAL)
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    with fk.counting() as report:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    step = fk.from_hf(MIXTRAL).train_step(seq=SEQ, batch=BATCH, trained=fk.LoRA(rank=RANK))
    assert step.under("TORCH").model_flops == report.under("TORCH").model_flops
    v3 = fk.load("deepseek-v3")  # three dense layers stand before 58 with experts
    sparse = v3.trained_params(LastLayers(58)) - v3.trained_params("head") - v3.d_model
    assert (
        v3.trained_params(LastLayers(61)) - v3.trained_params(LastLayers(58)) + sparse
        == v3.params - 2 * v3.vocab * v3.d_model - v3.d_model
    )


LATENT = SIZES | {
    "model_type": "deepseek_v2", "num_key_value_heads": 4, "head_dim": 4, "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8,
    "qk_rope_head_dim": 4, "v_head_dim": 12, "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1,
    "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
}  # fmt: skip


def counted(model):
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    with fk.counting() as report:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    return report.under("TORCH")


@pytest.mark.parametrize(
    ("target", "theirs"),
    [("q_proj", "q_proj"), ("kv_down", "kv_a_proj_with_mqa"), ("kv_up", "kv_b_proj"), ("o_proj", "o_proj")],
)
def test_in_the_first_layer_of_latent_attention_only_what_is_behind_an_adapter_has_a_gradient(target, theirs):
    model = built("head", LATENT)
    model.lm_head.requires_grad_(False)
    for layer in model.model.layers:
        setattr(layer.self_attn, theirs, Adapted(getattr(layer.self_attn, theirs)))
    report = counted(model)
    step = fk.from_hf(LATENT).train_step(seq=SEQ, batch=BATCH, trained=fk.LoRA(rank=RANK, targets=target))
    assert step.under("TORCH").model_flops == report.model_flops


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("o_proj",), ("down_proj",), EVERY], ids=str)
def test_where_both_branches_read_one_norm_neither_waits_for_the_other(targets):
    """Cohere's layers: in the first one the MLP reads nothing that attention's adapters change."""
    sizes = {name: SIZES[name] for name in SIZES if name != "model_type"} | {"pad_token_id": 0}
    lora = fk.LoRA(rank=RANK, targets=targets)
    report = counted(built(lora, sizes | {"model_type": "cohere"}))
    ours = fk.models.transformer(
        d_model=32, vocab=96, layers=3, heads=4, kv_heads=2, d_ff=80, norms="parallel", norm="layer", norm_bias=False, tied=True
    )  # fmt: skip
    step = ours.train_step(seq=SEQ, batch=BATCH, trained=lora).under("TORCH")
    assert (step.model_flops, step.forward.flops) == (report.model_flops, report.forward.flops)


STATES = {
    "qwen3_next": SIZES | {
        "model_type": "qwen3_next", "head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
        "shared_expert_intermediate_size": 40, "num_hidden_layers": 4, "linear_num_value_heads": 4, "linear_num_key_heads": 2,
        "linear_key_head_dim": 8, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
    },
    "mamba2": {
        "model_type": "mamba2", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16,
        "state_size": 24, "n_groups": 2, "expand": 2, "conv_kernel": 4, "chunk_size": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
    },
}  # fmt: skip


@pytest.mark.parametrize("trained", [LoRA(rank=4), LoRA(rank=4, targets="v_proj"), LastLayers(1)])
def test_branches_side_by_side_may_stand_in_any_order(trained):
    """What flows inside of the second one has a name of its own, and is followed all the same."""
    attention, state = Attention(heads=4, kv_heads=2, head_dim=16), StateSpace(heads=4, head_dim=16, state=8)

    def step(*branches):
        block = Block(mixer=Parallel(branches=branches), mlp=MLP(d_ff=128))
        return Model(name="both", d_model=64, vocab=100, blocks=((block, 2),), order=(0, 0)).train_step(
            seq=32, trained=trained
        )

    assert step(attention, state).backward.flops == step(state, attention).backward.flops


@pytest.mark.parametrize("family", STATES)
def test_a_frozen_state_passes_both_gradients_of_its_products_on(family):
    """What all weights' gradients cost: what transformers executes beside the algorithm is the same with and without them, but for
    its convolutions, which run on past the last token."""
    sizes = STATES[family]
    everything, model = built("all", sizes), built("all", sizes)
    model.requires_grad_(False)
    for name, module in list(model.named_modules()):
        if name.endswith(("in_proj_qkvz", "mixer.in_proj")):
            setattr(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2], Adapted(module))
    ours, lora = fk.from_hf(sizes), fk.LoRA(rank=RANK, targets="in_proj")
    mixer, layers = ours.blocks[0][0].mixer, ours.blocks[0][1]
    past = 2 * BATCH * layers * mixer.conv * (mixer.conv - 1) * mixer._channels
    whole, step = (ours.train_step(seq=SEQ, batch=BATCH, trained=each).under("TORCH") for each in ("all", lora))
    theirs = counted(everything).model_flops - counted(model).model_flops
    assert whole.model_flops - step.model_flops == theirs - past


def test_as_printed():
    """Hu et al. 2022, tables 4 and 15: GPT-3 with adapters beside queries and values has 4.7M, 37.7M and 301.9M trained numbers."""
    gpt = fk.load("gpt-3-175b")
    for rank, printed in ((1, "4.7"), (8, "37.7"), (64, "302.0")):
        assert f"{gpt.trained_params(fk.LoRA(rank=rank)) / 1e6:.1f}" == printed


@pytest.mark.parametrize(
    ("trained", "message"),
    [
        ("heads", "trained='heads'"), (LastLayers(33), r"trained=LastLayers\(layers=33\): llama-3-8b has 32 layers"),
        (fk.LoRA(rank=8, targets=("wq",)), "targets='wq'.*q_proj, k_proj"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(trained, message):
    with pytest.raises(ValueError, match=message):
        fk.load("llama-3-8b").train_step(seq=8, trained=trained)


@pytest.mark.parametrize("ask", ["train_step", "train_memory"])
@pytest.mark.parametrize(
    ("bare", "instead"),
    [
        ({"trained": 2}, r"trained=2: give fk.models.LastLayers\(2\)"), ({"trained": 0}, "trained=0: give 'all', 'head'"),
        ({"trained": True}, "trained=True: give 'all'"), ({"trained": 1.5}, "trained=1.5: give 'all'"),
        ({"recompute": 4}, r"recompute=4: give fk.models.Segments\(layers=4\)"), ({"recompute": 0}, "recompute=0: give 'none'"),
        ({"recompute": True}, "recompute=True: give 'none'"), ({"recompute": None}, "recompute=None: give 'none'"),
    ],
)  # fmt: skip
def test_a_bare_number_is_told_what_it_could_count(ask, bare, instead):
    with pytest.raises(TypeError, match=instead):
        getattr(fk.load("llama-3-8b"), ask)(seq=8, **bare)


@pytest.mark.parametrize("kind", [LastLayers, Segments])
def test_layers_are_a_whole_number(kind):
    with pytest.raises(ValueError, match="layers=0: a size must be at least 1"):
        kind(0)
    for wrong in (True, "2", 1.5):
        with pytest.raises(TypeError, match="layers="):
            kind(wrong)


@pytest.mark.parametrize("name", ["t5-base"])
def test_models_with_an_encoder_are_refused(name):
    with pytest.raises(ValueError, match=r"only trained='all'"):
        fk.load(name).train_step(seq=8, trained="head")


@pytest.mark.parametrize(
    ("name", "trained"),
    [("llama-3-8b", "head"), *((name, LastLayers(2)) for name in ("llama-3-8b", "gpt2", "deepseek-v2-lite"))],
)
def test_segments_of_layers_of_which_some_are_frozen_are_refused(name, trained):
    """A step and its memory alike: in a segment, layers may be frozen that nothing computes again."""
    for ask in ("train_step", "train_memory"):
        if (ask, trained) == ("train_memory", "head"):  # the layers keep nothing, whatever the policy
            continue
        with pytest.raises(
            ValueError,
            match=r"recompute=Segments\(layers=1\): segments of layers of which only some are trained are not known",
        ):
            getattr(fk.load(name), ask)(seq=8, trained=trained, recompute=Segments(1))


def test_bad_ranks_and_formats_are_refused():
    with pytest.raises(ValueError, match="rank"):
        fk.LoRA(rank=0)
    with pytest.raises(ValueError, match="targets is empty"):
        fk.LoRA(rank=8, targets=())
    for odd in (5, None, [1], {"q_proj"}, altair.param("p", value=8)):  # a parameter would be gone through for ever
        with pytest.raises(TypeError, match="^targets=.*: must be names of dense layers"):
            fk.LoRA(rank=8, targets=odd)
    with pytest.raises((ValueError, KeyError), match="fp7"):
        fk.LoRA(rank=8, base="fp7")
