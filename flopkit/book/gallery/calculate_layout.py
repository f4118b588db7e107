"""How do many devices share a training step? Seconds, bytes and the memory of a rank on a layout.

Controls beside those of `any_model`: ``length``, tokens of a sequence; ``device`` (`device_choice`); ``recompute`` (of `POLICIES`); ``states`` (of
`STATES`); ``tensor``, ``context_ranks``, ``pipeline``, ``data_ranks``, ``expert_ranks`` and ``virtual``, the degrees of `flopkit.parallel.Layout`;
``micro_batch``, sequences of a rank at once; ``step_batch``, sequences of a step on all devices; ``zero`` (of `ZERO`); ``keeps`` (of `KEEPS`);
``nodes`` (of `NODES`).

Results: those of `parallel_layout.a_step`, with ``part_…`` in seconds; ``gpu_flops``, that the device which sets the pace executes in a step;
``exposed``, seconds of exchanges that do not hide behind arithmetic; ``sent``, bytes that this device sends; ``tokens_per_s`` of all;
``verdict``, as in `calculate_fit`. A sentence or "":
``no_zero``, ``no_nodes``, why a control has no effect. ``layout_answer``: a sentence with names of results in braces.

`flopkit.parallel.step` gives the same. All layers of a pipeline are alike here, but for layers without experts, which are the first. Layers with a window
beside others are known where there is no pipeline, for there it does not matter where they stand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

from flopkit import conventions
from flopkit.arithmetic import is_zero, maximum, same, total, where
from flopkit.book.gallery.any_model import MLPS, PLACES, Nothing, idle, in_each_style, kinds, model_of, refuse, sizes
from flopkit.book.gallery.calculate_fit import CLOSE, SPARE, verdict
from flopkit.book.gallery.calculate_gathered import if_many, in_layers
from flopkit.book.gallery.calculate_kept import WAYS, of_their_sort
from flopkit.book.gallery.calculate_mfu import PASSES
from flopkit.book.gallery.parallel_layout import MOST_IN_NODE, Asked, Degrees, a_step, divide, indivisible
from flopkit.dtypes import nbytes
from flopkit.models import Block, Model
from flopkit.models.stacks.blocks import Branch
from flopkit.models.stacks.parts import Run
from flopkit.models.training import activations
from flopkit.models.training.finetuning import training_of
from flopkit.parallel.clusters import cluster
from flopkit.parallel.holding import experts_gathered
from flopkit.parallel.plans import OVERLAPS
from flopkit.parallel.shares import Divided, Layer, Summed, kept_by, layer_of, params_divided, summed_of

__all__ = ["AXES", "KEEPS", "NODES", "PARTS", "ZERO", "layout"]

PARTS = ("arithmetic", "recompute", "tensor", "context", "expert", "pipeline", "bubble", "data")
AXES = OVERLAPS
HIDDEN = ("data", "pipeline")  # what runs beside arithmetic, as `flopkit.parallel.step` has it without being told
STEP = "A step takes at least {seconds}, so the MFU is at most {mfu}: bounds that real runs miss. "
FITS = STEP + "It fits: the fullest rank holds {memory}."
BARELY = STEP + f"It fits with {CLOSE}: " + "the fullest rank holds {memory}."
TOO_LARGE = "It does not fit: the fullest rank would hold {memory}. Use more ranks, divide more with ZeRO, or recompute. If it did, a step would take at least {seconds}."
ZERO = {
    "0: nothing": {"stage": 0},
    "1: states of the optimiser": {"stage": 1},
    "2: gradients, too": {"stage": 2},
    "3: weights, too": {"stage": 3},
}
"""What data-parallel ranks divide."""
KEEPS = {"all that PyTorch keeps": {"fused": 0}, "no outputs of norms and activations": {"fused": 1}}
"""What a layer keeps for its backward pass; the second is ``fused=True`` of `flopkit.parallel.step`."""


def _nodes() -> dict[str, dict[str, float]]:
    names = {
        "dgx-h100": "DGX H100", "dgx-a100": "DGX A100", "dgx-b200": "DGX B200", "dgx-b300": "DGX B300", "deepseek-h800": "DeepSeek’s H800",
        "gcp-a3-high": "A3 High", "gcp-a3-mega": "A3 Mega", "aws-p4d": "p4d",
    }  # fmt: skip
    found = {}
    for name, title in names.items():
        place = cluster(name)
        if place.per_node != MOST_IN_NODE:
            raise ValueError(f"{name}: nodes of {place.per_node}; the calculator is made for {MOST_IN_NODE}")
        rates = {"link": place.link, "network": place.network}
        found[f"{title}: {place.link / 1e9:g} and {place.network / 1e9:g} GB/s"] = rates
    return found


NODES = _nodes()
"""Rates of nodes of eight devices, bytes/s of a device in one direction: over the links in the node, and between nodes."""


def layout(s: Any, **c: Any) -> None:
    """Seconds of a step and where they go, bytes that are sent, and the memory of the fullest rank."""
    length, batch, states, device, nodes = c["length"], c["step_batch"], c["states"], c["device"], c["nodes"]
    n = sizes(s, c, length)
    of_stage = c["tensor"] * c["context_ranks"] * c["data_ranks"]
    # of what cannot be: one, so that there is something to compute
    s.experts_among = where(c["experts"] > 0, where(of_stage % c["expert_ranks"] > 0, 1, c["expert_ranks"]), 1)
    degrees = Degrees(
        c["tensor"], c["pipeline"], c["data_ranks"], c["zero"].stage, c["virtual"], c["micro_batch"], context=c["context_ranks"], expert=s.experts_among
    )  # fmt: skip
    divide(s, degrees, batch)
    idle(s, c, length)
    in_layers(s, n)
    s.gathered_of_experts = 1.0 * experts_gathered(degrees)
    s.gathered_if_many = if_many(s, n, s.gathered_of_experts)
    numbers = _numbers(s, n, Run(1, length, length))
    a_step(s, numbers, degrees, Asked(
        link=nodes.link, network=nodes.network, peak=device.peak, room=device.usable, batch=batch, recompute=c["recompute"],
        hides={name: int(name in HIDDEN) for name in AXES}, state=(states.weight, states.gradient, states.optimizer), gathered=s.gathered_if_many,
        fused=c["keeps"].fused, parts=PARTS, sends=True, kinds=lambda sort, layers: _kinds(s, c, sort, layers),
    ))  # fmt: skip
    _refuse(s, c, degrees, of_stage)
    s.bytes_data = 1 * s.data_bytes
    s.wire_data = 1 * s.data_seconds
    s.gpu_flops = (s.part_arithmetic + s.part_recompute) * device.peak
    s.exposed = total(getattr(s, f"part_{name}") for name in AXES)
    s.sent = total(getattr(s, f"bytes_{name}") for name in AXES)
    s.verdict = verdict(s.memory, s.room)
    s.layout_answer = where(s.memory <= s.room, where((1 + SPARE) * s.memory > s.room, BARELY, FITS), TOO_LARGE)
    s.longest, s.most = 1 * s.seconds, maximum(s.memory, s.room)  # where the two axes end
    s.tokens_per_s = batch * length / s.seconds
    alone = "One data-parallel rank has nothing to divide its states with."
    several = where(
        degrees.data * degrees.context > 1, 1, where(s.experts_among > 1, degrees.tensor > s.experts_among, 0)
    )
    s.no_zero = where(several > 0, "", alone)
    s.no_act = where(s.sparse_layers < n["layers"], "", s.no_mlp)
    s.no_embedded = ""  # without weights it is kept for the backward pass all the same
    s.no_nodes = where(s.devices > 1, "", "One device exchanges nothing.")


def _kinds(s: Any, c: Mapping[str, Any], sort: str, layers: Any) -> tuple[Any, Any]:
    """How many of a rank's layers have no experts, and how many have them: the first rank has those without, where there are both."""
    if sort in ("first", "opening"):
        without = where(s.sparse_layers > 0, s.without_experts, layers)
    else:
        without = where(s.sparse_layers > 0, 0, layers)
    setattr(s, f"without_{sort}", without)
    return getattr(s, f"without_{sort}"), layers - getattr(s, f"without_{sort}")


def _refuse(s: Any, c: Mapping[str, Any], degrees: Degrees, of_stage: Any) -> None:
    latent, experts, split = c["kv_lora"] > 0, c["experts"] > 0, degrees.pipeline > 1
    refuse(
        s, c, "length",
        (c["states"].autocast > 0, "Under autocast it is not known here what a step on several devices keeps."),
        (c["head_bias"] > 0, "How devices divide the bias of a head is not known here."),
        (where(latent, 0, c["kv_heads"] % c["tensor"]) > 0, "{tensor} of tensor parallelism do not divide the {kv_heads} key-value heads."),
        (c["heads"] % c["tensor"] > 0, "{tensor} of tensor parallelism do not divide the {heads} heads."),
        (c["length"] % c["context_ranks"] > 0, "{context_ranks} of context parallelism do not divide a sequence of {length}."),
        (where(experts, c["experts"] % c["expert_ranks"], 0) > 0, "{expert_ranks} of expert parallelism do not divide the {experts} experts."),
        (where(experts, of_stage % c["expert_ranks"], 0) > 0, "{expert_ranks} of expert parallelism do not divide those of a stage, tensor × context × data."),
        *indivisible(s, c["layers"], degrees, of_model="The {layers} layers", batch="a step of {step_batch}"),
        (where(split, s.mixed, 0) > 0, "Layers with a window and others stand in an order that this page does not know: choose a pipeline of 1, or ask fk.parallel.step."),
        (where(split, where(s.sparse_layers > 0, s.without_experts, 0), 0) > s.layers_first / degrees.virtual,
         "More layers without experts than the first stage has: this page divides no such model, fk.parallel.step does."),
    )  # fmt: skip


# --- numbers of the model, as `flopkit.parallel.shares` has them ---------------------------------------------------------------------------

_ENDS = ("head_flops", "embedding", "head", "before", "after", "ends", "log_probs", "loss", "model_flops")
_DIVIDED = ("flops", "params", "kept", "fused")


def _numbers(s: Any, n: Mapping[str, Any], run: Run) -> Any:
    """Numbers of a model for one sequence, with two kinds of layers: without experts, and with them."""
    model = model_of(n)
    s.without_experts = n["layers"] - s.sparse_layers
    s.mixed = where(n["window"] < run.q, where(s.narrow > 0, s.whole, 0), 0)
    s.edge = 1 * activations.boundary(model, run)
    _of_mixers(s, n, model, run)
    _of_mlps(s, n, model, run)
    _of_norms(s, n, model, run)
    _of_ends(s, n, model, run)
    _of_sums(s, n)

    def layer(mlp: str, **more: Any) -> Layer:
        divided: dict[str, Any] = {
            what: Divided(*(_layer(s, mlp, f"{what}_{part}") for part in Divided._fields)) for what in _DIVIDED
        }
        mixer: dict[str, Any] = {
            name: getattr(s, f"mixer_{name}", 0) for name in ("again", "core", "kept_core", "keys_values")
        }
        summed = Summed(*(getattr(s, f"{mlp}_summed_{part}") for part in Summed._fields))
        return Layer(layers=0, summed=summed, **divided, **mixer, chosen=n["chosen"], **more)

    ends = {name: getattr(s, f"of_{name}") for name in _ENDS}
    found = (layer("dense", dispatched=0), layer("sparse", dispatched=getattr(s, "sparse_dispatched", 0)))
    return SimpleNamespace(kinds=found, layers=n["layers"], tied=n["tied"], edge=s.edge, mtp=None, **ends)


def _layer(s: Any, mlp: str, what: str) -> Any:
    """Set what a layer with this sort of MLP has of something, as ``layer_dense_flops_features``, and give it; 0 where it has nothing of it."""
    found = total(getattr(s, f"{half}_{what}", 0) for half in ("mixer", mlp, "around"))
    if is_zero(found):
        return 0
    setattr(s, f"layer_{mlp}_{what}", 1 * found)
    return getattr(s, f"layer_{mlp}_{what}")


def _set(s: Any, half: str, found: Mapping[str, Any]) -> None:
    for name, value in found.items():
        if not is_zero(value):
            setattr(s, f"{half}_{name}", value)


def _flat(what: str, divided: Divided) -> dict[str, Any]:
    return {f"{what}_{part}": value for part, value in divided._asdict().items()}


def _worked(model: Model, block: Block, run: Run) -> dict[str, Any]:
    """What a layer that is half of one computes and exchanges."""
    alone = replace(model, blocks=((block, 1),))
    stack = next(part for part in alone.parts(run) if part.place == "layers")
    found = layer_of(alone, block, 1, stack, run, *WAYS)
    return _flat("flops", found.flops) | {
        name: getattr(found, name) for name in ("again", "core", "keys_values", "dispatched")
    }


def _held(branch: Branch, d_model: Any, run: Run, more_than: Branch | None = None) -> dict[str, Any]:
    """Parameters of a branch and what it keeps inside of it; beside another branch those tensors that the other one does not have."""
    parts, kept = branch.parts(run, d_model), branch.kept(run, d_model, *WAYS)
    if more_than is not None:
        known = {each.cost.name for each in more_than.parts(run, d_model)}
        held = {each.name for each in more_than.kept(run, d_model, *WAYS)}
        parts = [each for each in parts if each.cost.name not in known]
        kept = [each for each in kept if each.name not in held]
    inside, core, fused = kept_by(kept)
    return _flat("params", params_divided(parts)) | _flat("kept", inside) | _flat("fused", fused) | {"kept_core": core}


def _of_mixers(s: Any, n: Mapping[str, Any], model: Model, run: Run) -> None:
    """Set what the attention of a layer has: ``mixer_flops_features`` and so on. With windows in some layers, their mean."""
    made = kinds(n)
    sorts = (*made["heads"], *made["latent"])
    every = [
        {} if is_zero(count) else _worked(model, Block(mixer=make()), run) | _held(make(), n["d_model"], run)
        for count, make in sorts
    ]
    names = dict.fromkeys(name for each in every for name in each)
    found = {name: _of_sorts(s, n, *(each.get(name, 0) for each in every)) for name in names}

    def norms(qk_norm: str) -> dict[str, Any]:
        if is_zero(s.whole + s.narrow):
            return {}
        plain, normed = (kinds(n, style)["heads"][0][1]() for style in ("none", qk_norm))
        return _held(normed, n["d_model"], run, more_than=plain)

    more = in_each_style({"qk_norm": n["qk_norm"]}, norms)
    for name, value in found.items():
        beside = more.get(name, 0)
        if not is_zero(beside):
            beside = where(s.whole + s.narrow > 0, beside, 0)
        if not is_zero(both := total((value, beside))):
            setattr(s, f"mixer_{name}", both)


def _of_sorts(s: Any, n: Mapping[str, Any], whole: Any, narrow: Any, queries: Any, alone: Any) -> Any:
    """The value of that sort of attention that the layers have; with windows in some of them the mean."""
    heads = whole
    if not same(whole, narrow):
        mean = (s.whole * whole + s.narrow * narrow) / n["layers"]
        heads = where(s.mixed > 0, mean, where(s.narrow > 0, narrow, whole))
    return heads if is_zero(queries) and is_zero(alone) else of_their_sort(s, heads, queries, alone)


def _of_mlps(s: Any, n: Mapping[str, Any], model: Model, run: Run) -> None:
    """Set what the MLP of a layer has, without experts (``dense_``) and with them (``sparse_``)."""
    made = dict(zip(MLPS, kinds(n)["mlp"], strict=True))
    worked = {name: {} if is_zero(count) else _worked(model, Block(mixer=None, mlp=make()), run) for name, (count, make) in made.items()}  # fmt: skip

    def of_kinds(found: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        names = dict.fromkeys(name for each in found.values() for name in each)
        gated, plain, sparse = ({name: found[mlp].get(name, 0) for name in names} for mlp in MLPS)
        dense = {
            f"dense_{name}": where(n["gated_layers"] > 0, gated[name], plain[name])
            for name in names
            if not same(gated[name], plain[name])
        }
        alike = {f"dense_{name}": gated[name] for name in names if same(gated[name], plain[name])}
        return dense | alike | {f"sparse_{name}": value for name, value in sparse.items()}

    def held(act: str) -> dict[str, Any]:
        branches = dict(zip(MLPS, kinds(n, act=act)["mlp"], strict=True))
        return of_kinds(
            {
                name: {} if is_zero(count) else _held(make(), n["d_model"], run)
                for name, (count, make) in branches.items()
            }
        )

    for found in (of_kinds(worked), in_each_style({"act": n["act"]}, held)):
        for name, value in found.items():
            if not is_zero(value):
                setattr(s, name, value)


def _of_norms(s: Any, n: Mapping[str, Any], model: Model, run: Run) -> None:
    """Set what stands around the branches of a layer, norms: ``around_params_whole``, ``around_kept_tokens``."""

    def params(place: str) -> dict[str, Any]:
        block = Block(mixer=Nothing(), mlp=Nothing(), norms=PLACES[place])
        return {"params_whole": replace(model, blocks=((block, 1),)).layer(seq=1).params}

    def kept(norm_kind: str, place: str) -> dict[str, Any]:
        block = Block(mixer=Nothing(), mlp=Nothing(), norms=PLACES[place])
        found = activations.of_layer(replace(model, norm=norm_kind), block, run, *WAYS)
        fused = total(each.bytes for each in found if each.remade)
        return {"kept_tokens": total(each.bytes for each in found), "fused_tokens": fused}

    _set(s, "around", in_each_style({"place": n["place"]}, params))
    _set(s, "around", in_each_style({"norm_kind": n["norm_kind"], "place": n["place"]}, kept))


def _of_sums(s: Any, n: Mapping[str, Any]) -> None:
    """Set what tensor-parallel ranks add up of attention and an MLP, ``dense_summed_outputs`` and so on."""
    s.shared_here = where(n["shared_d_ff"] > 0, 1, 0)
    branches = {"dense": ((1, 1), (0, 0)), "sparse": ((1, s.shared_here), (0, 1))}
    for mlp, flags in branches.items():

        def summed(place: str, mlp: str = mlp, flags: Any = flags) -> dict[str, Any]:
            return {f"{mlp}_summed_{part}": value for part, value in summed_of(PLACES[place], *flags)._asdict().items()}

        for name, value in in_each_style({"place": n["place"]}, summed).items():
            setattr(s, name, 1 * value)


def _of_ends(s: Any, n: Mapping[str, Any], model: Model, run: Run) -> None:
    """Set what stands before and behind the layers: ``of_head_flops`` and so on."""
    parts = model.parts(run)

    def params(place: str) -> Any:
        return total(each.cost.params for each in parts if each.place == place)

    def behind(norm_kind: str) -> dict[str, Any]:
        around_ends = replace(model, norm=norm_kind)
        ends = {"bare": around_ends, "normed": replace(around_ends, embedding_norm=True)}
        return {name: activations.of_ends(training_of(each, "all"), run, *WAYS) for name, each in ends.items()}

    _set(s, "behind", in_each_style({"norm_kind": n["norm_kind"]}, behind))
    table = total(each.cost.params for each in parts if each.role == "table" and each.split == "vocab")
    s.of_embedding, s.of_head = 1 * table, n["vocab"] * n["d_model"]
    s.of_before, s.of_after = params("before") - table + s.embedding_norm, 1 * params("after")
    s.of_head_flops = total(each.cost.flops for each in parts if each.place == "head")
    s.of_ends = where(n["embedded"] > 0, s.behind_normed, s.behind_bare)
    s.of_log_probs = nbytes(run.q * n["vocab"], "fp32")
    s.of_loss = 1 * activations.of_loss(model, run)
    s.of_model_flops = PASSES * conventions.EXACT.flops(model.forward(seq=run.q).macs_by_kind)
