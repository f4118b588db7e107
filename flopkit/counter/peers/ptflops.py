"""ptflops 0.7.5, its usual backend: hooks on layers of the very classes in its table, by sample, and functions of torch, by batch.

An activation or a pool that is a layer and calls a function counts as both. timm's attention, which has a rule where timm is
installed, counts here as without.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import Any

from flopkit.counter.peers.calls import Called, Hooked, asked, both, called, hooked, is_shape
from flopkit.counter.peers.families import family_of, rows_of
from flopkit.counter.peers.lines import lines, truth
from flopkit.counter.peers.seen import NO_NUMBER, Fails, Row, Seen
from flopkit.counter.told import Listed

__all__ = ["recurrent", "seen"]

UNIT = "MACs"
REALLY = "multiply-adds, and operations of norms, activations, pools and biases"

UNSEEN = "neither a layer in its table nor a function that it replaces computes {}: it counts 0"
BATCH = "it divides what layers do by the batch, and what functions do not"
DEFORMED = "deformable convolutions, which it knows, are not in this number"
_READS = ("Conv", "Linear", "BatchNorm", "InstanceNorm", "GroupNorm", "LayerNorm", "RNN", "GRU", "LSTM")
_ACTIVATIONS = ("ReLU", "PReLU", "ELU", "LeakyReLU", "ReLU6", "GELU")
_CALLED = {"relu": "activations", "prelu": "activations", "elu": "activations", "relu6": "activations", "gelu": "activations", "silu": "activations", "softmax": "softmax"}  # fmt: skip
_MACS = ("convolution", "dense", "recurrent", "attention", "projections")


def seen(source: Any) -> Seen:
    """What ``get_model_complexity_info`` would print of the forward passes that *source* watched."""
    ledger = source.ledger()
    macs: Counter[str] = Counter()
    added: Counter[str] = Counter()
    modules: Counter[str] = Counter()
    remarks = []
    for call in hooked(source):
        layer = call.layer
        if call.given is None or call.out is None:
            continue
        for family, each in _layer(call).items():
            times = call.times * layer.times  # each way to a layer that parents share is added up
            (macs if family in _MACS else added)[family] += times * each
            modules[layer.path.partition(".")[0]] += times * each
        if layer.kind.__name__ == "DeformConv2d":
            remarks.append(DEFORMED)
    _measured(ledger.roots)
    functions: float = 0
    for use in called(source):
        for family, found in _function(use).items():
            functions += use.times * found
            (macs if family in _MACS else added)[family] += int(use.times * found)
    _attend(source, macs)
    value = int(sum(_average(ledger.roots, root, flops) for root, flops in modules.items()) + functions)
    total, rows = rows_of(source, {f: 2 * n for f, n in macs.items()}, {f: 2 * n for f, n in added.items()}, UNSEEN)
    gap = (
        value - sum(macs.values()) - sum(added.values())
    )  # (what is by sample is less, and the number is cut to a whole one)
    if gap:
        rows.append(Row("all of the batch but one", 0, 0, 2 * gap, BATCH))
    return Seen("ptflops", value, UNIT, REALLY, total, rows, tuple(dict.fromkeys(remarks)))


def _average(roots: Any, root: str, flops: int) -> float:
    """What the layers below *root* did in one pass for one sample, once for each pass."""
    batches = [(length, times) for (path, length, *_), times in roots.items() if path == root]
    samples = sum((1 if length is None else length) * times for length, times in batches)
    return flops / samples * sum(times for _, times in batches) if samples else float(flops)


def _measured(roots: Any) -> None:
    """It asks for the length of what a model is given first, and divides by it."""
    if roots and not any(length for _, length, *_ in roots):
        raise Fails(NO_NUMBER)


def _attend(source: Any, macs: Counter[str]) -> None:
    """Projections of attention layers stand among dense ones, unless the whole layer ran as one operator; scores where they ran."""
    ran = [line for line in lines(source) if line.phase == "forward" and truth(line)]
    apart = not any(family_of(line.group) == "attention" for line in ran)
    whole = any("native_multi_head" in line.group for line in ran)
    projections = macs.pop("projections", 0)
    macs["attention" if whole else "dense"] += projections
    if apart:
        macs["dense"] += macs.pop("attention", 0)


def _layer(call: Hooked) -> dict[str, int]:
    """Its rules go by the very class: one derived from it has none."""
    layer, given, out = call.layer, call.given, call.out
    if not layer.kind.__module__.startswith("torch.nn.modules"):
        return {}
    kind, it = layer.kind.__name__, layer.settings
    if not call.placed and (kind.startswith(_READS) or "Pool" in kind):  # hooks are told what was given by position
        raise Fails(NO_NUMBER)
    if kind in ("Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d"):
        places = given[0] * prod((given if "Transpose" in kind else out)[2:])
        kernel = prod(it["kernel_size"]) * it["in_channels"] * (it["out_channels"] // it["groups"])
        bias = given[0] * prod(out[1:]) if "bias" in layer.parameters else 0
        return {"convolution": kernel * places, "biases": bias}
    if kind == "Linear":
        places = prod(given[:-1])
        return {
            "dense": places * given[-1] * out[-1],
            "biases": places * out[-1] if "bias" in layer.parameters else 0,
        }
    if kind in _ACTIVATIONS:
        return {"activations": prod(out)}
    if "Pool" in kind and kind.startswith(("Max", "Avg", "AdaptiveMax", "AdaptiveAvg")):
        return {"pools": prod(given)}
    if kind[:-2] in ("BatchNorm", "InstanceNorm") or kind in ("GroupNorm", "LayerNorm"):
        return {"norms": prod(given) * (2 if it.get("affine") else 1)}
    if kind == "Upsample":
        return {"upsampling": prod(out[1:])}
    if kind in ("RNN", "GRU", "LSTM", "RNNCell", "GRUCell", "LSTMCell"):
        if not is_shape(given) or len(given) < 2:
            raise Fails(NO_NUMBER)
        return recurrent(layer, given, 1)
    if kind != "MultiheadAttention":
        return {}
    if call.placed != 3 or len(given[0]) < 3:
        raise Fails(NO_NUMBER)
    return _attention(layer, given)


def recurrent(layer: Any, given: Any, fma: int) -> dict[str, int]:
    """A recurrent layer by the rule that ptflops and calflops share: products, and gates, sums and biases; both ways as one, twice.

    With *fma* 2 a product of a row takes one addition less than multiplications.
    """
    kind, hidden, shapes = layer.kind.__name__, layer.settings["hidden_size"], layer.parameters
    cell = kind.endswith("Cell")
    products = extra = 0
    for number in range(1 if cell else layer.settings["num_layers"]):
        end = "" if cell else f"_l{number}"
        for name in (f"weight_ih{end}", f"weight_hh{end}"):
            products += fma * prod(shapes[name])
            extra -= (fma - 1) * shapes[name][0]
        extra += hidden * {"RNN": 1, "GRU": 7, "LSTM": 10}[kind.removesuffix("Cell")]
        extra += sum(shapes[name][0] for name in (f"bias_ih{end}", f"bias_hh{end}") if name in shapes)
    times = given[0] if cell else given[0] * given[1] * (2 if layer.settings["bidirectional"] else 1)
    return {"recurrent": times * products, "gates": times * extra}


def _attention(layer: Any, given: Any) -> dict[str, int]:
    q, k, v = given[:3]
    heads = layer.settings["num_heads"]
    batch, place = (q[0], 1) if layer.settings["batch_first"] else (q[1], 0)
    width, last = q[2], v[2]
    queries, keys, values = q[place], k[place], v[place]
    pairs = queries * keys
    biases = (queries + keys + values) * width if "in_proj_bias" in layer.parameters else 0
    return {
        "projections": batch * (queries * width**2 + keys * k[2] ** 2 + values * last**2 + queries * last**2),
        "attention": batch * heads * pairs * (width // heads + last // heads),
        "softmax": batch * heads * pairs,
        "scaling": batch * queries * width,
        "biases": batch * (biases + queries * last),
    }


def _function(call: Called) -> dict[str, float]:
    name = call.name
    if name == "multi_head_attention_forward":
        it = asked(call)
        if not it.weights:
            return {}
        return {
            "softmax": it.scores,
            "products of attention, a second time": 2 * it.scores * it.head,
            "masks": it.mask or 0,
        }
    if name in _CALLED:
        return {_CALLED[name]: prod(call.x)}
    if "_pool" in name:
        return {"pools": prod(call.x)}
    if name in ("interpolate", "upsample"):
        return {"upsampling": _interpolate(call)}
    if any(word in call.named for word in ("mat2", "batch1", "batch2")) and name != "addmm":
        raise Fails(NO_NUMBER)  # its functions have other names for these
    if name in ("matmul", "mm", "bmm"):
        return {"dense": prod(call.x) * call.given(1, "other")[-1]}
    if name in ("addmm", "baddbmm"):
        batch = "batch" if name == "baddbmm" else "mat"
        first, second = call.given(1, f"{batch}1"), call.given(2, f"{batch}2")
        return {"dense": prod(first) * second[-1], "sums": prod(call.x) if call.named.get("beta", 1) != 0 else 0}
    return {"sums and products": both(call.x, call.given(1, "other"))} if name in ("add", "mul") else {}


def _interpolate(call: Called) -> float:
    x, size, factor = call.x, call.given(1, "size"), call.given(2, "scale_factor")
    if size is not None:
        return prod(x[:2]) * (prod(size) if isinstance(size, tuple) else size ** (len(x) - 2))
    if isinstance(factor, Listed):
        raise Fails(NO_NUMBER)
    if isinstance(factor, tuple):
        return float(prod(x) * prod(map(int, factor)))
    return float(prod(x) * factor ** (len(x) - 2))
