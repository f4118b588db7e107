"""What the zoo asks of a model: counted beside an uncounted run, torch's own counter, and a walk that shares no code with the package.

The walk stands above autograd and the dispatcher, at the functions that a model calls by name. It knows the shapes of a product's
operands, which of them want a gradient, which module called, and whether a gradient arrived.
"""

from __future__ import annotations

import contextlib
import copy
import math
import random
from collections import Counter
from unittest import mock

import numpy as np
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

import flopkit as fk

# Operators for which torch's counter has another number, and why.
WRONG_IN_TORCH = {
    "scaled_dot_product_attention": "no formula for the kernels of a CPU",
    "convolution_backward": "the weight's gradient is not divided by groups",
    "torchvision.deform_conv2d": "no formula",
    "torchvision._deform_conv2d_backward": "no formula",
    "_grouped_mm": "no formula",
    "dot": "no formula",
    "linalg_solve_triangular": "no formula",
    "mkldnn_rnn_layer": "no formula for the fused layer",
    "mkldnn_rnn_layer_backward": "no formula for the fused layer",
}

# What torch says where a tensor has no values, where a model has others on the CPU, and where a grouped product has no rule for float32.
REFUSALS = ("meta", "to be on same device", "Expected inputs of BF16 type")

# ------------------------------------------------------------------------------------------------------------------ the walk


def times(macs, *operands):
    """A product: its multiply-adds, and those of its gradients, one as large for each operand that wants one."""
    return macs, macs * sum(t.requires_grad for t in operands)


def matmul(out, a, b, **_):
    return times(out.numel() * a.shape[-1], a, b)


def linear(out, input, weight, bias=None):
    return times(out.numel() * input.shape[-1], input, weight)


def addmm(out, c, *operands, **named):
    a, b = operands or [named[name] for name in ("mat1", "mat2", "batch1", "batch2") if name in named]
    return times(out.numel() * a.shape[-1], a, b)


def convolution(out, input, weight, *_, **__):
    return times(out.numel() * weight[0].numel(), input, weight)


def transposed(out, input, weight, *_, **__):
    return times(input.numel() * weight[0].numel(), input, weight)


def einsum(out, equation, *operands):
    """Of two operands; an ellipsis is one letter. What sums over nothing is no product."""
    operands = operands[0] if isinstance(operands[0], (list, tuple)) else operands
    sizes = {}
    for letters, t in zip(equation.replace(" ", "").split("->")[0].split(","), operands, strict=True):
        named = letters.replace("...", "")
        if named != letters:
            assert letters.startswith("..."), f"einsum {equation}: this walk knows an ellipsis in front"
            sizes["..."] = max(sizes.get("...", 1), t.shape[: t.dim() - len(named)].numel())
        sizes.update(zip(named, t.shape[t.dim() - len(named) :], strict=True))
    pairs = math.prod(sizes.values())
    if len(operands) == 1 or pairs == out.numel():
        return 0, 0
    assert len(operands) == 2, f"einsum {equation}: this walk knows products of two"
    return times(pairs, *operands)


def attention(out, query, key, value, attn_mask=None, *_, **__):
    """A fused kernel computes the gradients of queries, keys and values, wanted or not; two products stop where none is wanted."""
    pairs = query.shape[:-1].numel() * key.shape[-2]
    scores, values = pairs * query.shape[-1], pairs * value.shape[-1]
    weights_want = any(t is not None and t.requires_grad for t in (query, key, attn_mask))
    wanted = scores * (query.requires_grad + key.requires_grad) + values * (weights_want + value.requires_grad)
    return scores + values, 2 * (scores + values), 2 * (scores + values) - wanted


def grouped(out, rows, matrices, *_, **__):
    """Each row meets the matrix of its group."""
    return times(rows.shape[0] * matrices[0].numel(), rows, matrices)


def triangular(out, matrix, right, **_):
    """Row by row n² FLOPs for each column. The gradients of the right-hand side are such a solve, those of the matrix a product."""
    n = matrix.shape[-1]
    return n * out.numel() // 2, n * out.numel() // 2 + n * out.numel() * matrix.requires_grad


def lstm(out, x, states, weights, has_biases, *_):
    """Each step multiplies by every matrix once. The kernel also computes the gradient of each initial state, which nobody wants."""
    batch = states[0].shape[1]
    recurrent = sum(w.numel() for w in weights[1 :: 4 if has_biases else 2])
    macs = x.shape[:-1].numel() * sum(w.numel() for w in weights if w.dim() == 2)
    return *times(macs, x, weights[0]), batch * recurrent


def gru_cell(out, x, state, to_input, to_state, *_):
    of_input, of_state = (times(t.shape[:-1].numel() * w.numel(), t, w) for t, w in ((x, to_input), (state, to_state)))
    return of_input[0] + of_state[0], of_input[1] + of_state[1]


PRODUCTS = {
    **dict.fromkeys(("matmul", "__matmul__", "mm", "bmm"), matmul),
    "__rmatmul__": lambda out, b, a: matmul(out, a, b),
    "linear": linear,
    **dict.fromkeys(("addmm", "baddbmm"), addmm),
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "deform_conv2d"), convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), transposed),
    "einsum": einsum,
    "scaled_dot_product_attention": attention,
    **dict.fromkeys(("grouped_mm", "_grouped_mm"), grouped),
    "linalg_solve_triangular": triangular,
    "lstm": lstm,
    "gru_cell": gru_cell,
}


class Walk(TorchFunctionMode):
    """FLOPs of the products that a model calls by name, by module without children; backward those that a gradient reached."""

    def __init__(self):
        super().__init__()
        self.forward, self.backward, self.unwanted = Counter(), Counter(), 0
        self.module = None

    def watch(self, model):
        for name, module in model.named_modules():
            if not [*module.children()]:
                module.register_forward_pre_hook(lambda *_, name=name: setattr(self, "module", name))
                module.register_forward_hook(lambda *_: setattr(self, "module", None))

    def __enter__(self):
        # Functions that are written in Python, such as multi_head_attention_forward, are walked through.
        self.through = mock.patch.object(F, "has_torch_function", lambda operands: False)
        self.through.start()
        return super().__enter__()

    def __exit__(self, *error):
        self.through.stop()
        return super().__exit__(*error)

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        product = PRODUCTS.get(getattr(func, "__name__", ""))
        if product is None:
            return out
        module = self.module
        forward, backward, *unwanted = product(out, *args, **(kwargs or {}))
        self.forward[module] += 2 * forward
        first = out[0] if isinstance(out, tuple) else out
        if not first.requires_grad:
            return out
        first.register_hook(lambda gradient: self.backward.update({module: 2 * backward}))
        self.unwanted += 2 * sum(unwanted)
        # What is changed in place afterwards is not what the hook is on.
        return (first.clone(), *out[1:]) if isinstance(out, tuple) else first.clone()


# ----------------------------------------------------------------------------------------------------------------- the runs


def tensors(tree):
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def without_fast_path():
    """`nn.MultiheadAttention` has one kernel for the whole layer, and does not take it where a mode such as the walk is at work."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def run(model, inputs, train, walk=None):
    """What a copy of a model returns and, in training, the gradients of its parameters."""
    model, inputs = copy.deepcopy(model).train(train), copy.deepcopy(inputs)
    if walk is not None:
        if not train:
            model.requires_grad_(False)  # torch's counter fails at a view of a parameter where there are no gradients
        walk.watch(model)
    seed(1)
    with without_fast_path(), contextlib.nullcontext() if train else torch.inference_mode():
        out = model(**inputs) if isinstance(inputs, dict) else model(*inputs)
    if not train:
        return tensors(out), {}
    sum(t.abs().square().mean() for t in tensors(out) if t.requires_grad).backward()
    gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
    return [t.detach() for t in tensors(out)], gradients


def seed(n):
    random.seed(n)
    np.random.seed(n)
    torch.manual_seed(n)


def same(one, other):
    """Bit by bit; what is not a number in one is none in the other."""
    alike = one.dtype == other.dtype and one.shape == other.shape
    return alike and bool(((one == other) | ((one != one) & (other != other))).all())


def check(model, inputs, *, uncounted=(), uncounted_in_training=(), backward=True, meta=True):
    """A model without gradients, then in training: values, gradients, FLOPs by phase and by module, and what torch's counter prints.

    `uncounted` names the operators without a formula. `backward=False`: the walk does not see all of the backward pass.
    `meta=False`: a model that asks for values may refuse to run without them.
    """
    for train in (False, True):
        values, gradients = run(model, inputs, train)
        with fk.counting() as report:
            counted, gradients_counted = run(model, inputs, train)
        assert values and (gradients or not train)
        differ = [n for n, (one, other) in enumerate(zip(values, counted, strict=True)) if not same(one, other)]
        equal("outputs that differ", differ, [])
        equal("parameters with a gradient", set(gradients_counted), set(gradients))
        equal("gradients that differ", [n for n, g in gradients.items() if not same(g, gradients_counted[n])], [])
        unknown = {row["operator"] for row in report.uncounted}
        equal("uncounted", unknown, set(uncounted_in_training if train else uncounted))

        with FlopCounterMode(display=False) as theirs, Walk() as walk:
            run(model, inputs, train, walk)
        seen = report.as_seen_by("torch")
        equal("as seen by torch", int(seen), theirs.get_total_flops())
        otherwise = {row["operator"] for row in (*seen.missed, *seen.too_many)}
        equal("operators that torch counts otherwise", otherwise - set(WRONG_IN_TORCH), set())

        assert walk.forward.total() > 0
        phases = {"forward": walk.forward, **({"backward": walk.backward} if backward else {})}
        for phase, found in phases.items():
            equal(phase, getattr(report, phase).flops, found.total())
            by_module = {name: flops for name, flops in found.items() if flops and name is not None}
            equal(f"{phase} by module", rows_of(report, model, by_module, phase), by_module)
        if backward:
            equal("model FLOPs", report.model_flops, walk.forward.total() + walk.backward.total() - walk.unwanted)

        try:
            with fk.counting() as without_values:
                run(copy.deepcopy(model).to("meta"), on_meta(inputs), train)
        except (RuntimeError, NotImplementedError) as refused:
            assert not meta and any(reason in str(refused) for reason in REFUSALS), refused
        else:
            equal("model FLOPs on meta", without_values.model_flops, report.model_flops)


def equal(what, ours, theirs):
    if isinstance(ours, dict) and ours != theirs:  # only the rows that differ
        ours, theirs = (
            {k: v for k, v in one.items() if other.get(k) != v} for one, other in ((ours, theirs), (theirs, ours))
        )
    assert ours == theirs, f"{what}: {ours} in the report, {theirs} expected"


def rows_of(report, model, names, phase):
    """FLOPs of these modules. One that has several names may have a row for each."""
    rows = {row["module"]: row[phase] for row in report.by_module()}
    aliases = {}
    for name, module in model.named_modules(remove_duplicate=False):
        aliases.setdefault(module, []).append(name)
    return {name: sum(rows.get(alias, 0) for alias in aliases[model.get_submodule(name)]) for name in names}


def on_meta(inputs):
    return tree_map_only(torch.Tensor, lambda t: t.to("meta"), inputs)
