"""No number looks at a display name: every cost, part and kept tensor gets the same name, and all answers stay what they were.

One name for all is harder than a translation: what tells two parts from one another by their names falls together, too.
"""

from functools import cache, partial
from typing import get_args

import pytest
from models.test_families import described

import flopkit as fk
from flopkit.cost import Cost
from flopkit.models import MATRICES, ConvNet, LastLayers, LoRA, families
from flopkit.models.checkpoints.quantized.reading import formats_in
from flopkit.models.serving.serving_pass import decoded, prefilled
from flopkit.models.stacks import passes
from flopkit.models.stacks.parts import BranchName, Role, Run
from flopkit.models.training import sharded
from flopkit.models.training.finetuning import training_of
from flopkit.parallel import ranks
from flopkit.parallel.shares import gathered, shares
from flopkit.training.memory import Kept

SEQ = 24
NAMES = [
    "gpt2", "llama-3-8b", "llama-2-70b", "mixtral-8x7b", "deepseek-v3", "deepseek-v3.2", "deepseek-v4-flash", "gemma-2-9b", "gemma-4-e4b",
    "olmo-2-7b", "palm-540b", "gopher-280b", "gpt-oss-20b", "qwen3-30b-a3b", "qwen3-next-80b-a3b", "qwen2.5-vl-7b", "llama-4-scout",
    "nemotron-3-nano-30b-a3b", "glm-4.5-air", "kimi-k2", "t5-base", "whisper-tiny", "bert-base", "deberta-v3-base", "modernbert-base",
    "vit-b-16", "clip-vit-base-patch32", "resnet50", "vgg16", "efficientnet_b0",
]  # fmt: skip
ADAPTERS = [  # of attention, of MLPs, of experts' neighbours, of latents, of layers with a state
    ("q_proj", "v_proj"), ("attention", "mlp"), "down_proj", "shared_up_proj", "shared_gate", ("q_up", "kv_up"), ("in_proj", "out_proj"),
]  # fmt: skip
TRAINED = {"all": "all", "head": "head", "last": LastLayers(1)} | {
    f"adapters {targets}": LoRA(rank=4, targets=targets, base="nf4") for targets in ADAPTERS
}
STORED = (None, "bf16", "nf4", "q4_k_m", {"experts": "mxfp4", "attention": "fp8", "router": "fp32", "rest": "nf4"})
GROUP = {"num_bits": 4, "type": "int", "symmetric": True, "strategy": "group", "group_size": 32}
CHECKPOINTS = [
    {"quant_method": "gptq", "bits": 4, "group_size": 128},
    {"quant_method": "fp8", "weight_block_size": [128, 128], "modules_to_not_convert": ["model.layers.0.self_attn", "lm_head", "mlp.gate"]},
    {"quant_method": "compressed-tensors", "format": "pack-quantized", "ignore": ["lm_head", "re:.*self_attn.q_proj", "re:.*mlp.(gate|down_proj)$"],
     "config_groups": {"group_0": {"targets": ["Linear"], "weights": GROUP}}},
]  # fmt: skip


def model_of(name):
    return fk.load(name) if name in NAMES else fk.from_hf(described(name))


def of_cost(cost):
    return dict(cost.macs_by_kind), dict(cost.vector_by_kind), cost.bytes, dict(cost.params_by_role)


def of_step(step):
    return [of_cost(each) for each in (step.forward, step.backward, step.checkpointed, step.scores_again, step.outside)]


def of_memory(memory):
    sums = ("weights", "gradients", "optimizer", "layers", "ends", "again", "gathered", "loss")
    return [getattr(memory, each) for each in sums], [(each.bytes, each.core) for each in memory.kept]


def of_pass(served):
    return of_cost(served.cost), [(each.group, each.flops, each.bytes) for each in served.pieces]


def of_checkpoint(model, said):
    formats, notes = formats_in({"quantization_config": said}, model)
    return str(formats), formats.others, notes, model.weight_bytes(formats)


def of_shares(model):
    return {
        name: value for name, value in vars(shares.__wrapped__(model, SEQ, "math", True)).items() if name != "model"
    }


def of_parallel_step(model, **saving):
    for each in (shares, gathered, *vars(ranks).values()):
        if hasattr(each, "cache_clear"):
            each.cache_clear()
    layout = fk.parallel.Layout(tensor=2, data=2, recompute="selective")
    step = fk.parallel.step(model, layout, "dgx-h100", seq=SEQ, batch=4, **saving)
    return step.seconds, step.parts, step.sent, of_memory(step.memory)


def questions(model):
    """What can be asked of a model, by name."""
    if isinstance(model, ConvNet):
        yield "forward", lambda: of_cost(model.forward(batch=2))
        yield "step", lambda: of_step(model.train_step(batch=2))
        yield "memory", lambda: of_memory(model.train_memory(batch=2))
        yield "sizes", model._sizes
        return
    sizes = {} if model.patches is not None and model.patches.tokens else {"seq": SEQ}
    yield "params", lambda: (model.params, model.active_params)
    yield "forward", lambda: of_cost(model.forward(**sizes))
    for recompute, stop in (("selective", False), ("full", False), ("full", True)):
        yield (
            f"step, {recompute}, {stop}",
            lambda r=recompute, s=stop: of_step(model.train_step(**sizes, recompute=r, early_stop=s)),
        )
    for name, trained in TRAINED.items():
        yield f"step, {name}", lambda t=trained: of_step(model.train_step(**sizes, trained=t))
        yield f"params, {name}", lambda t=trained: model.trained_params(t)
        yield f"memory, {name}", lambda t=trained: of_memory(model.train_memory(**sizes, trained=t, kernel="math"))
    for how in ({"dropout": True}, {"precision": "autocast"}, {"precision": "fsdp", "shards": 4}):
        yield f"memory, {how}", lambda h=how: of_memory(model.train_memory(**sizes, **h))
    yield (
        "groups",
        lambda: sharded.groups_of(training_of(model, TRAINED["adapters ('attention', 'mlp')"]), "mixed", False),
    )
    for weights in STORED:
        ask = {"weights": weights, "kv_cache": None, "experts": "expected", "batch": 2}
        yield f"bytes, {weights}", lambda w=weights: model.weight_bytes(w)
        yield f"prefill, {weights}", lambda a=ask: of_pass(prefilled(model, prompt=SEQ, prefix=0, **a))
        yield f"decode, {weights}", lambda a=ask: of_pass(decoded(model, context=SEQ, new=1, **a))
    for said in CHECKPOINTS:
        yield f"checkpoint, {said['quant_method']}", partial(of_checkpoint, model, said)
    yield "shares", lambda: of_shares(model)
    yield "parallel", lambda: of_parallel_step(model)
    yield "parallel, narrow", lambda: of_parallel_step(model, activations="deepseek-v3", weigh_inside=True)
    yield "parallel, run again", lambda: of_parallel_step(model, mla_up_proj=True)


def answered(name):
    model, found = model_of(name), {}
    for question, ask in questions(model):
        try:
            found[question] = ask()
        except ValueError as error:
            found[question] = f"refused: {error}"
    return found


answers = cache(answered)  # under their own names, for both tests that ask


def rename(monkeypatch):
    """Call every cost and every kept tensor by the same name."""
    made, kept = Cost.__post_init__, Kept.__new__

    def nameless(cost):
        object.__setattr__(cost, "name", "a part")
        made(cost)

    monkeypatch.setattr(Cost, "__post_init__", nameless)
    monkeypatch.setattr(Cost, "named", lambda self, name: self._altered(name="a part", _open=False))
    monkeypatch.setattr(Kept, "__new__", lambda cls, name, *fields, **more: kept(cls, "a part", *fields, **more))


@pytest.mark.parametrize("name", [*NAMES, *families()])
def test_all_answers_are_the_same_under_other_names(name, monkeypatch):
    before = answers(name)
    rename(monkeypatch)
    after = answered(name)
    wrong = [question for question in before if repr(before[question]) != repr(after[question])]
    assert not wrong, (wrong, before[wrong[0]], after[wrong[0]])


def test_each_question_is_answered_by_some_model():
    """So that the test above does not compare refusals alone."""
    missing = None
    for name in NAMES:
        found = answers(name)
        refused = {question for question, answer in found.items() if isinstance(answer, str)}
        missing = refused if missing is None or len(found) < 10 else missing & refused
    assert not missing


def test_the_names_that_a_table_shows_are_other_ones_indeed(monkeypatch):
    rename(monkeypatch)
    model = fk.load("llama-3-8b")
    assert {row["part"].strip() for row in model.table(seq=8)} == {"a part", "total"}
    assert {row["tensor"] for row in model.train_memory(seq=8).layer_table()} == {"a part", "total"}


# --------------------------------------------------------------------------------------------------- what stands in their place


def layers(model):
    """The parts of each kind of layer in training and decoding, and what its branches keep."""
    for stack in (model, *([model.encoder] if model.encoder else [])):
        for block, _ in stack.blocks:
            for decode in (False, True) if stack.causal else (False,):
                run = Run(2, 1 if decode else 16, 16, causal=stack.causal, decode=decode, encoded=16)
                yield block, run, stack.d_model, passes.layer(stack, block, run)


@pytest.mark.parametrize(
    "name", [*(name for name in NAMES if name not in ("resnet50", "vgg16", "efficientnet_b0")), *families()]
)
def test_each_matrix_of_a_layer_says_which_it_is(name):
    for block, run, width, parts in layers(model_of(name)):
        for part in parts:
            assert part.role in get_args(Role) and part.branch in ("", *get_args(BranchName))
            assert part.matrix in ("", *MATRICES)
            assert bool(part.matrix) or not (part.shape or part.matrices), part
        known = {part.matrix for part in parts}
        for _, branch in block.branches if not run.decode else ():
            try:
                kept = branch.kept(run, width, "math", True)
            except ValueError:
                continue
            assert all({*each.weights_of} <= known for each in kept)
