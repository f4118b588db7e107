"""Every operator of torch is one of: counted, element-wise, free, composite, or on the list of those that nobody explains."""

import inspect
import re
from collections import defaultdict
from fnmatch import fnmatchcase

import pytest
import torch

import flopkit as fk
from flopkit.counter.calls import OpCall, name_of
from flopkit.counter.formulas import rule_for
from flopkit.counter.formulas.elementwise import RECIPES, is_pointwise, plain
from flopkit.counter.formulas.unknown import OPENED, UNEXPLAINED, reason_for
from flopkit.counter.registry import FORMULAS

SPACES = ("aten", "prims", "torchvision")


def operators():
    """Every overload of every operator that is registered."""
    for full in torch._C._dispatch_get_all_op_names():
        space, _, rest = full.partition("::")
        if space in SPACES:
            name, _, overload = rest.partition(".")
            yield getattr(getattr(getattr(torch.ops, space), name), overload or "default")


def unknown():
    return {name_of(op) for op in operators() if (rule := rule_for(op)).opens and not rule.composite}


def test_torch_has_what_it_always_had():
    """The walk is no empty one."""
    names = {name_of(op) for op in operators()}
    assert (
        len(names) > 1200
        and {"aten::mm", "aten::relu_", "aten::_foreach_add_", "aten::_fused_adamw_", "prims::add"} <= names
    )


def test_what_is_unknown_is_on_the_list():
    left = {name for name in unknown() if not reason_for(name)}
    assert not left, f"no formula, and no reason why not: {sorted(left)}"


def test_the_list_names_nothing_that_is_explained():
    assert not set(UNEXPLAINED) & set(FORMULAS)
    assert OPENED <= set(UNEXPLAINED)
    there = {full.partition(".")[0] for full in torch._C._dispatch_get_all_op_names()} - set(FORMULAS)
    spaces = {name.partition("::")[0] for name in there}
    for pattern in UNEXPLAINED:
        if "*" in pattern and pattern.partition("::")[0] in spaces:
            assert any(fnmatchcase(name, pattern) for name in there), pattern


def test_each_reason_is_a_sentence():
    assert all(len(reason) > 15 and reason[-1] != "." for reason in UNEXPLAINED.values())


def test_an_in_place_operator_counts_as_its_other_form():
    """relu_ and relu, relu.out: the same FLOPs an element; a name that is only spelled differently is no other operator."""
    by_name = {}
    for op in operators():
        name = name_of(op)
        if name.startswith("aten::") and not rule_for(op).opens:
            by_name.setdefault(plain(name), set()).add(
                is_pointwise(op, name) if plain(name) not in ("max", "min") else None
            )
    mixed = {name for name, kinds in by_name.items() if len(kinds) > 1}
    assert mixed <= {"zero", "copy"}, mixed


def test_a_formula_asks_for_arguments_that_its_operators_have():
    """torch renames one now and then (the `grad` of `_cdist_backward` in 2.14), and `call.get` would find None there."""
    arguments, together = defaultdict(set), defaultdict(list)
    for op in operators():
        arguments[name_of(op)] |= {argument.name for argument in op._schema.arguments}
    for name, formula in FORMULAS.items():
        together[formula].append(name.removesuffix("_"))
    asked, odd = 0, set()
    for formula, names in together.items():
        if all(
            name in arguments for name in names
        ):  # else the one that has it may be among those that this torch lacks
            for argument in re.findall(r'\bcall(?:\.get\(|\[)"(\w+)"', inspect.getsource(formula)):
                asked += 1
                if argument not in set.union(*(arguments[name] for name in names)):
                    odd.add((formula.__name__, argument))
    assert asked > 80 and not odd


def test_each_gradient_is_found():
    starts = {name for name, formula in FORMULAS.items() if "call.gradient" in inspect.getsource(formula)}
    backward = [op for op in operators() if name_of(op) in starts and "backward" in name_of(op)]
    assert len(backward) > 30
    for op in backward:
        call = OpCall(op, (), {argument.name: "given" for argument in op._schema.arguments}, None)
        assert call.gradient == "given", op


def test_recipes_name_operators():
    there = {plain(name_of(op)) for op in operators()}
    assert set(RECIPES) <= there
    assert not {f"aten::{name}" for name in RECIPES} & set(FORMULAS), "explained twice"


def test_what_is_on_the_list_is_listed_when_it_runs():
    x, labels = torch.zeros(3, 5), torch.zeros(3, 5, dtype=torch.int64)
    report = fk.count(torch.nn.functional.multilabel_margin_loss, x, labels)
    assert [row["operator"] for row in report.uncounted] == ["multilabel_margin_loss_forward"]
    assert report.coverage < 1
    with pytest.raises(fk.UncountedError, match="multilabel_margin_loss_forward"):
        fk.count(torch.nn.functional.multilabel_margin_loss, x, labels, strict=True)


F, IMAGE, TABLE, LABELS = torch.nn.functional, torch.ones(1, 2, 8, 8), torch.ones(5, 4), torch.tensor([0, 3, 3])
RARE = {
    "multi_margin_loss": lambda: F.multi_margin_loss(torch.ones(3, 4), LABELS),
    "fractional_max_pool2d": lambda: F.fractional_max_pool2d(IMAGE, 2, 4),
    "embedding_renorm_": lambda: F.embedding(LABELS, TABLE.clone(), max_norm=1.0),
    "renorm": lambda: TABLE.renorm(2, 0, 1.0),
    "segment_reduce": lambda: torch.segment_reduce(TABLE, "sum", lengths=torch.tensor([2, 3])),
    "ormqr": lambda: torch.ormqr(TABLE, torch.ones(4), torch.ones(5, 3)),
    "linalg_ldl_factor_ex": lambda: torch.linalg.ldl_factor(torch.eye(3)),
    "linalg_ldl_solve": lambda: torch.linalg.ldl_solve(
        torch.eye(3), torch.ones(3, dtype=torch.int32), torch.ones(3, 2)
    ),
    "_fake_quantize_learnable_per_tensor_affine": lambda: torch._fake_quantize_learnable_per_tensor_affine(
        TABLE, torch.ones(1), torch.zeros(1), 0, 9
    ),
}


@pytest.mark.parametrize("name", RARE)
def test_what_few_programs_call_is_listed(name):
    assert [row["operator"] for row in fk.count(RARE[name]).uncounted] == [name]


@pytest.mark.parametrize("name", ["_sparse_semi_structured_mm", "_sparse_semi_structured_addmm", "_cslt_sparse_mm", "cudnn_affine_grid_generator",
                                  "cudnn_affine_grid_generator_backward", "_grid_sampler_2d_cpu_fallback"])  # fmt: skip
def test_what_no_kernel_here_runs_is_listed(name):
    work = rule_for(getattr(torch.ops.aten, name).default).formula(OpCall(None, (TABLE,), {}, TABLE))
    assert reason_for(f"aten::{name}")
    assert (work.status, work.bytes) == ("unknown", 2 * 4 * 20)  # read and written


def test_a_product_that_is_fused_with_its_communication_is_not_taken_for_communication():
    pytest.importorskip("torch.distributed._symmetric_memory")
    rules = [
        rule_for(getattr(torch.ops.symm_mem, name).default) for name in ("fused_all_gather_matmul", "_async_input_mm")
    ]
    assert all(rule.formula(OpCall(None, (TABLE,), {}, TABLE)).status == "unknown" for rule in rules)
    gathers = rule_for(torch.ops._c10d_functional.all_gather_into_tensor.default)
    assert gathers.formula(OpCall(None, (TABLE,), {}, TABLE)).status == "free"


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_what_torch_writes_decompositions_in_is_what_it_calls(device):
    """On a real device an operator of prims calls those of aten; on meta nothing runs, and it is listed."""
    x = torch.ones(4, 5, device=device)
    report = fk.count(lambda: torch.ops.prims.transpose(torch.ops.prims.add(x, x), [1, 0]))
    if device == "cpu":
        assert (report.vector_flops, report.bytes, report.uncounted) == (20, 2 * 80, [])  # x is read once
    else:
        assert {row["operator"] for row in report.uncounted} == {"prims.add", "prims.transpose"}
        assert report.vector_flops == 0
