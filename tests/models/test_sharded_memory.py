"""Memory of a training step that is divided among devices: what FSDP2 gathers, to the byte of torch's own tracker."""

import gc
from dataclasses import replace
from itertools import accumulate
from math import ceil

import numpy as np
import pytest
import torch
from torch import nn

import flopkit as fk
from flopkit.models import LastLayers
from flopkit.models.training.finetuning import training_of
from flopkit.models.training.sharded import gathered_bytes
from flopkit.training import PRECISIONS

dist = torch.distributed
transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
pytestmark = pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed")

LLAMA = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False,
}  # fmt: skip
QWEN = LLAMA | {"model_type": "qwen2"}  # biases
MIXTRAL = LLAMA | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2, "sliding_window": None}
TOKENS = torch.zeros(1, 1, dtype=torch.long)  # so that weights are all that counts


@pytest.fixture
def ranks():
    """Process groups that send nothing, of as many ranks as are asked for."""
    fake = pytest.importorskip("torch.testing._internal.distributed.fake_pg")

    def started(size):
        dist.init_process_group("fake", store=fake.FakeStore(), rank=0, world_size=size)
        return dist.init_device_mesh("cpu", (size,))

    yield started
    if dist.is_initialized():
        dist.destroy_process_group()


class Adapted(nn.Module):
    """A frozen dense layer with two small ones beside it."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, rank, bias=False, dtype=base.weight.dtype)
        self.up = nn.Linear(rank, base.out_features, bias=False, dtype=base.weight.dtype)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


def adapt(model):
    model.requires_grad_(False)
    for layer in model.model.layers:
        for name in ("q_proj", "v_proj"):
            setattr(layer.self_attn, name, Adapted(getattr(layer.self_attn, name), 4))


def the_last(model):
    model.requires_grad_(False)
    for each in (*model.model.layers[-1:], model.model.norm, model.lm_head):
        each.requires_grad_(True)


def only_the_head(model):
    model.requires_grad_(False)
    model.lm_head.requires_grad_(True)


def again(model):
    wrapper = pytest.importorskip("torch.distributed.algorithms._checkpoint.checkpoint_wrapper")
    for place, layer in enumerate(model.model.layers):
        model.model.layers[place] = wrapper.checkpoint_wrapper(layer)


def divided(sizes, mesh, freeze=None, policy=None):
    """A model of transformers under FSDP2: a group for each layer, one for the embedding, one for norm and head."""
    fsdp = pytest.importorskip("torch.distributed.fsdp")
    config = transformers.AutoConfig.for_model(**sizes)
    how = {"experts_implementation": "grouped_mm"} if "num_experts_per_tok" in sizes else {}
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager", **how).train()
    if freeze:
        freeze(model)
    how = {"mesh": mesh, "reshard_after_forward": True} | (
        {} if policy is None else {"mp_policy": fsdp.MixedPrecisionPolicy(**policy)}
    )
    inner = model.model
    ends = [inner.embed_tokens], [inner.norm, model.lm_head]
    for group in (*([each] for each in inner.layers), *([ends[0] + ends[1]] if sizes["tie_word_embeddings"] else ends)):
        fsdp.fully_shard(group, **how)
    return fsdp.fully_shard(model, **how)


def step(model):
    logits = model(input_ids=TOKENS, use_cache=False).logits
    nn.functional.cross_entropy(logits.flatten(0, 1).float(), TOKENS.flatten()).backward()


def tracked(model):
    """The most bytes at once of what torch's tracker calls unsharded parameters and gradients, and of the buffers."""
    tools = pytest.importorskip("torch.distributed._tools.fsdp2_mem_tracker")
    kinds = [
        getattr(tools._FSDPRefType, name)
        for name in ("UNSHARDED_PARAM", "UNSHARDED_GRAD", "ALL_GATHER", "REDUCE_SCATTER")
    ]
    seen = []

    class Tracker(tools.FSDPMemTracker):
        def __torch_dispatch__(self, *args, **kwargs):
            found = super().__torch_dispatch__(*args, **kwargs)
            for held in self.get_tracker_snapshot("current").values():
                seen.append(sum(held[kind] for kind in kinds))
            return found

    tracker = Tracker(model, torch.optim.SGD([each for each in model.parameters() if each.requires_grad], lr=0))
    tracker.track_inputs((TOKENS,))
    with tracker:
        step(model)
        seen.clear()  # the first step initialises
        step(model)
    return max(seen)


def foretold(sizes, precision, trained="all"):
    return gathered_bytes(training_of(fk.from_hf(sizes), trained), precision)


LORA = fk.LoRA(rank=4)
FSDP = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
HALF = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.bfloat16}


@pytest.mark.parametrize(
    ("sizes", "precision", "policy", "trained", "freeze"),
    [
        (LLAMA, "fp32", None, "all", None), (LLAMA, "fsdp", FSDP, "all", None), (LLAMA, "mixed", HALF, "all", None),
        (QWEN, "fp32", None, "all", None), (MIXTRAL, "fp32", None, "all", None),
        (LLAMA, "fp32", None, LORA, adapt), (LLAMA, "fp32", None, "head", only_the_head),
    ],
)  # fmt: skip
def test_what_fsdp_gathers_is_that_of_torchs_tracker_to_the_byte(ranks, sizes, precision, policy, trained, freeze):
    """Where a layer is larger than the head: of the last group the tracker keeps a buffer that torch has freed."""
    assert tracked(divided(sizes, ranks(4), freeze, policy)) == foretold(sizes, precision, trained)


def allocated(model):
    """The most bytes that a step takes from the allocator beside the shares, gradients among them."""
    for _ in range(2):
        step(model)
    gc.collect()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        step(model)
    events = [each for each in profile.profiler.kineto_results.events() if each.name() == "[memory]"]
    return max(accumulate(each.nbytes() for each in sorted(events, key=lambda each: each.start_ns())))


BIG = LLAMA | {"hidden_size": 128, "intermediate_size": 256}
HEAD = BIG | {"vocab_size": 4096}
ONE = {"num_hidden_layers": 1}
TIED = {"tie_word_embeddings": True}
EXPERTS = BIG | {"num_experts_per_tok": 2, "moe_intermediate_size": 128}
QWEN3 = EXPERTS | {
    "model_type": "qwen3_moe",
    "num_experts": 8,
    "head_dim": 32,
    "mlp_only_layers": [1],
    "decoder_sparse_step": 1,
}
DEEPSEEK = EXPERTS | {
    "model_type": "deepseek_v3", "num_key_value_heads": 4, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_nope_head_dim": 16, "qk_rope_head_dim": 16,
    "v_head_dim": 32, "n_routed_experts": 8, "n_shared_experts": 1, "n_group": 2, "topk_group": 1, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0,
}  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "trained", "freeze", "share"),
    [
        (HEAD, "all", None, 1), (HEAD | ONE, "all", None, 0), (BIG | TIED, "all", None, 0), (HEAD | TIED, "all", None, 0),
        (HEAD, LORA, adapt, 0), (BIG | TIED, LORA, adapt, 0), (BIG | {"vocab_size": 1024}, LastLayers(1), the_last, 0),
        (BIG, "all", again, 0), (QWEN3, "all", None, 0), (DEEPSEEK, "all", None, 0),
    ],
)  # fmt: skip
def test_a_step_allocates_what_fsdp_gathers_and_the_activations_of_a_token(ranks, sizes, trained, freeze, share):
    """With one matrix for embedding and head; with layers of several kinds in their order; and where layers are computed again, for they are not
    gathered once more for that. Where the head's sum is the most: and a share of it, before it is added to the gradients of earlier passes.
    """
    expected = foretold(sizes, "fp32", trained)
    rest = (
        allocated(divided(sizes, ranks(4), freeze))
        - expected
        - share * (sizes["vocab_size"] + 1) * sizes["hidden_size"] * 4 // 4
    )
    assert 0 <= rest < 0.02 * expected


def test_fsdp_rounds_the_first_dimension_up(ranks):
    """Of 64 and 32 rows three ranks gather 66 and 33: the formula leaves that out, as it says. Gradients are whole tensors."""
    rows = [(64, 64), (32, 64), (32, 64), (64, 64), (96, 64), (96, 64), (64, 96), (64, 1), (64, 1)]
    exact, padded = sum(a * b for a, b in rows), sum(3 * ceil(a / 3) * b for a, b in rows)
    assert tracked(divided(LLAMA, ranks(3))) == 4 * (3 * padded + exact)
    assert foretold(LLAMA, "fp32") == 4 * 4 * exact


def test_shares_are_whole_bytes_and_one_of_one_is_all():
    llama = fk.load("llama-3-8b")
    whole, third = (llama.train_memory(seq=4096, batch=2, shards=shards) for shards in (1, 3))
    assert whole == llama.train_memory(seq=4096, batch=2) and whole.gathered == 0
    assert "gathered layers" not in [row["part"] for row in whole.table()]
    assert [third.weights, third.gradients, third.optimizer] == [ceil(llama.params * each / 3) for each in (2, 2, 12)]
    assert (third.layers, third.ends, third.again, third.kept) == (whole.layers, whole.ends, whole.again, whole.kept)
    assert third.total == third.states + third.activations + third.gathered
    assert [row["bytes"] for row in third.table()][-3:] == [third.gathered, third.total, third.peak]


def test_layers_are_gathered_in_the_weights_format_and_summed_in_the_gradients():
    """Llama-3-8B: 218,112,000 parameters a layer, 525,340,672 in norm and head, whose gradients are the most: beside 16-bit ones their sum."""
    layer, head = 218_112_000, 525_340_672
    found = {name: fk.load("llama-3-8b").train_memory(seq=1, shards=8, precision=name).gathered for name in PRECISIONS}
    assert found == {
        "fp32": 4 * layer + 8 * head, "mixed": 2 * layer + 4 * head, "mixed-fp32-gradients": 2 * layer + 6 * head,
        "mixed-both-gradients": 2 * layer + 4 * head, "autocast": 4 * layer + 8 * head, "bf16": 2 * layer + 4 * head,
        "fsdp": 2 * layer + 6 * head,
    }  # fmt: skip


def test_a_base_of_few_bits_is_divided_and_gathered_as_it_is_stored():
    """torchtune's NF4Tensor: data and scales are divided. A layer of Llama-3-70B: 855,638,016 numbers of 4 + 8/64 + 32/(64·256) bits, two norms
    in bf16; head and embedding are larger."""
    whole, shared = (
        fk.load("llama-3-70b").train_memory(seq=1, trained=fk.LoRA(rank=8, base="nf4"), shards=n) for n in (1, 2)
    )
    assert shared.weights == ceil(whole.weights / 2)
    layer = (
        855_638_016 * (4 + 8 / 64 + 32 / 64 / 256) / 8 + 2 * 8192 * 2 + 2 * 8 * (8192 + 8192 + 8192 + 1024)
    )  # q_proj and v_proj
    head = 2 * 128_256 * 8192 + 2 * 8192
    assert shared.gathered == layer + 2 * head


def test_all_readings_agree():
    sympy, altair = pytest.importorskip("sympy"), pytest.importorskip("altair")
    for name in ("llama-3-8b", "llama-3.2-1b"):
        model = fk.load(name)
        plain = [model.train_memory(seq=64, shards=shards).total for shards in (1, 3, 8)]
        assert model.train_memory(seq=64, shards=np.array([1, 3, 8])).total.tolist() == plain
        n = sympy.Symbol("n", positive=True, integer=True)
        assert [model.train_memory(seq=64, shards=n).total.subs(n, value) for value in (1, 3, 8)] == plain
        assert "ceil" in str(model.train_memory(seq=64, shards=altair.param(name="n", value=8)).total.to_dict())


def test_what_is_not_known_is_refused():
    t5, llama = fk.load("t5-base"), fk.load("llama-3-8b")
    assert t5.train_memory(seq=8, kernel="math", shards=1)
    with pytest.raises(ValueError, match="shards: t5-base has an encoder"):
        t5.train_memory(seq=8, kernel="math", shards=2)
    with pytest.raises(ValueError, match="multi-token prediction"):
        replace(llama, mtp=llama.blocks[0][0]).train_memory(seq=8, shards=64)
    with pytest.raises(ValueError, match="shards"):
        llama.train_memory(seq=8, shards=0)
    with pytest.raises(ValueError, match="give shards="):
        llama.train_memory(seq=8, precision="fsdp")
    with pytest.raises(ValueError, match="give shards="):
        llama.train_memory(seq=8, precision="fsdp", shards=np.array([1, 2]))
    with pytest.raises(ValueError, match="precision='fsdp'"):
        fk.load("resnet50").train_memory(precision="fsdp")


def test_the_largest_batch_of_a_device_among_several():
    llama = fk.load("llama-3-8b")
    how = {"seq": 2048, "precision": "fsdp", "recompute": "full", "shards": 8}
    batch = fk.training.largest_batch(llama, "h100-sxm", **how)
    card = fk.device("h100-sxm")
    assert llama.train_memory(batch=batch, **how).peak <= card.usable < llama.train_memory(batch=batch + 1, **how).peak
