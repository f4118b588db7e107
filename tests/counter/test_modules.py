"""Work by module: named as in `named_modules`, forward and backward, however modules are shared, wrapped or called."""

from __future__ import annotations

import _thread
import dataclasses
import queue
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import flopkit as fk
from flopkit.counter.watch import state as watched

UNIT = 2 * 4 * 8 * 8  # a batch of 4 through 8 × 8
PHASES = ("forward", "backward", "recompute", "optimizer")


def linear():
    return nn.Linear(8, 8)


def data(grad=True):
    return torch.ones(4, 8, requires_grad=grad)


def parts(report, *phases):
    """Products by module and phase, of modules that have any; sums are checked on the way."""
    rows = {row["module"]: row for row in report.by_module()}
    assert len(rows) == len(report.by_module().rows), "a name stands twice"
    tops = {name for name in rows if not name or not any(name.startswith(f"{other}.") for other in rows if other)}
    if "" in rows and len(tops) > 1:  # one root, whose own row is the empty name, and what stands beside it
        tops = {"", *(name for name in tops if name == "(no module)" or name[:1].isupper())}
    for column in ("flops", "model_flops", "vector_flops", "bytes", *PHASES):
        whole = sum(rows[name][column] for name in tops)
        theirs = getattr(report, column)
        assert whole == (theirs.flops if column in PHASES else theirs), column
    for row in rows.values():
        assert row["flops"] == sum(row[phase] for phase in PHASES)
    return {
        name: tuple(row[phase] / UNIT for phase in phases or ("forward", "backward"))
        for name, row in rows.items()
        if row["flops"]
    }


class Net(nn.Module):
    def __init__(self, forward, **children):
        super().__init__()
        for name, child in children.items():
            setattr(self, name, child)
        self.run = forward

    def forward(self, *args):
        return self.run(self, *args)


def trained(module, x=None):
    x = data() if x is None else x
    return parts(fk.count(lambda: module(x).sum().backward()))


def test_one_module_alone_has_the_empty_name():
    assert trained(linear()) == {"": (1, 2)}


def test_names_are_those_of_named_modules():
    model = nn.Sequential(linear(), nn.Sequential(nn.ReLU(), linear()), nn.ModuleDict({"k": linear()}))
    model.forward = lambda x: model[2]["k"](model[1](model[0](x)))
    found = trained(model)
    assert found == {"": (3, 6), "0": (1, 2), "1": (1, 2), "1.1": (1, 2), "2": (1, 2), "2.k": (1, 2)}
    assert set(found) <= {name for name, _ in model.named_modules()}


def test_rows_stand_in_the_order_of_the_calls():
    model = Net(lambda self, x: self.a(self.b(x)), a=linear(), b=linear())
    rows = fk.count(model, data()).by_module()
    assert [row["module"] for row in rows] == ["", "b", "a"]
    assert [row["share"] for row in rows] == [1, 0.5, 0.5]


def test_depth():
    model = nn.Sequential(nn.Sequential(nn.Sequential(linear())))
    report = fk.count(model, data())
    assert [[row["module"] for row in report.by_module(depth=d)] for d in (0, 1, 2, None)] == [
        [""],
        ["", "0"],
        ["", "0", "0.0"],
        ["", "0", "0.0", "0.0.0"],
    ]


def test_a_module_that_two_parents_share():
    shared = linear()
    parent = [Net(lambda self, x: self.sh(x), sh=shared) for _ in range(2)]
    model = Net(lambda self, x: self.q(self.p(x)), p=parent[0], q=parent[1])
    assert trained(model) == {"": (2, 4), "p": (1, 2), "p.sh": (1, 2), "q": (1, 2), "q.sh": (1, 2)}
    assert trained(model, data(grad=False)) == {"": (2, 3), "p": (1, 1), "p.sh": (1, 1), "q": (1, 2), "q.sh": (1, 2)}


def test_a_module_that_is_below_itself():
    shared = linear()
    inner = [Net(lambda self, x: self.sh(x), sh=shared) for _ in range(2)]
    model = Net(lambda self, x: self.q(self.p(x)), p=inner[0], q=inner[1])
    inner[1].up = model
    assert trained(model) == {"": (2, 4), "p": (1, 2), "p.sh": (1, 2), "q": (1, 2), "q.sh": (1, 2)}


def test_a_module_that_holds_itself():
    model = Net(
        lambda self, x: self.list["one"][0](self.a(x)),
        a=linear(),
        list=nn.ModuleDict({"one": nn.ModuleList([linear()])}),
    )
    model.me = model.list.me = model
    model.list["one"].append(model.list["one"])
    assert trained(model) == {"": (2, 4), "a": (1, 2), "list": (1, 2), "list.one": (1, 2), "list.one.0": (1, 2)}
    only = Net(lambda self, x: self.a(x), a=linear())
    only.me = only
    assert trained(only) == {"": (1, 2), "a": (1, 2)}


def test_modules_that_are_added_and_thrown_away_while_their_model_is_called():
    def run(self, x):
        self.new = linear()
        x = self.new(self.a(x))
        del self.new
        self.list.append(linear())
        return self.list[-1](x)

    model = Net(run, a=linear(), list=nn.ModuleList([linear()]))
    report = fk.count(model, data())
    assert parts(report) == {"": (3, 0), "a": (1, 0), "new": (1, 0), "list": (1, 0), "list.1": (1, 0)}


def test_a_module_called_twice_and_one_with_two_names():
    assert trained(Net(lambda self, x: self.a(self.a(x)), a=linear())) == {"": (2, 4), "a": (2, 4)}
    one = linear()
    assert trained(Net(lambda self, x: self.b(self.a(x)), a=one, b=one)) == {"": (2, 4), "a": (2, 4)}


def test_siblings_of_one_class():
    model = Net(lambda self, x: self.b(self.a(x)), a=linear(), b=linear())
    assert trained(model) == {"": (2, 4), "a": (1, 2), "b": (1, 2)}


def test_a_module_whose_input_needs_no_gradient():
    model = Net(lambda self, x: self.c(self.b(self.a(x))), a=linear(), b=linear(), c=linear())
    model.a.requires_grad_(False)
    assert trained(model, data(grad=False)) == {"": (3, 3), "a": (1, 0), "b": (1, 1), "c": (1, 2)}


@dataclasses.dataclass
class Output:
    y: torch.Tensor
    n: int = 3


@pytest.mark.parametrize("pack", [Output, lambda y: (y, None), lambda y: {"y": y}, lambda y: [[y]]])
def test_outputs_of_any_kind(pack):
    def unpack(found):
        while not isinstance(found, torch.Tensor):
            found = found.y if isinstance(found, Output) else found["y"] if isinstance(found, dict) else found[0]
        return found

    inner = Net(lambda self, x: pack(self.a(x)), a=linear())
    model = Net(lambda self, x: self.b(unpack(self.d(x))), d=inner, b=linear())
    assert trained(model) == {"": (2, 4), "d": (1, 2), "d.a": (1, 2), "b": (1, 2)}


def test_recursion():
    model = Net(lambda self, x, n=3: self.a(x) if n == 0 else self(self.a(x), n - 1), a=linear())
    assert trained(model) == {"": (4, 8), "a": (4, 8)}


def test_a_grandchild_that_is_called_past_its_parent():
    model = Net(lambda self, x: self.inner[1][0](x), inner=nn.Sequential(linear(), nn.Sequential(linear())))
    assert trained(model) == {"": (1, 2), "inner": (1, 2), "inner.1": (1, 2), "inner.1.0": (1, 2)}


def test_several_modules_from_outside():
    x = data()
    a, b = linear(), linear()
    report = fk.count(lambda: [b(a(x)).sum().backward() for _ in range(2)])
    assert parts(report) == {"Linear": (2, 4), "Linear (2)": (2, 4)}
    layers = nn.ModuleList([linear(), linear()])
    assert parts(fk.count(lambda: [layer(x) for layer in layers])) == {"Linear": (1, 0), "Linear (2)": (1, 0)}
    one, two = nn.Sequential(linear()), nn.Sequential(linear())
    assert parts(fk.count(lambda: two(one(x)))) == {
        "Sequential": (1, 0),
        "Sequential.0": (1, 0),
        "Sequential (2)": (1, 0),
        "Sequential (2).0": (1, 0),
    }


def test_a_loss_beside_the_model_leaves_its_names_alone():
    model, loss = nn.Sequential(linear(), linear()), nn.MSELoss()
    report = fk.count(lambda: loss(model(data()), torch.zeros(4, 8)).backward())
    assert parts(report) == {"": (2, 4), "0": (1, 2), "1": (1, 2)}
    assert {"", "0", "1", "MSELoss"} <= {row["module"] for row in report.by_module()}


def test_a_child_called_after_its_root():
    model = nn.Sequential(linear(), linear())
    assert parts(fk.count(lambda: (model(data()), model[0](data())))) == {"": (3, 0), "0": (2, 0), "1": (1, 0)}


def test_a_module_that_is_registered_nowhere_stands_below_its_caller():
    hidden = [linear()]
    model = Net(lambda self, x: hidden[0](self.a(x)), a=linear())
    assert trained(model) == {"": (2, 4), "a": (1, 2), "(Linear)": (1, 2)}
    made = Net(lambda self, x: linear()(linear()(self.a(x))), a=linear())
    assert trained(made) == {"": (3, 6), "a": (1, 2), "(Linear)": (2, 4)}


def test_modules_that_come_and_go_take_no_new_names():
    model = linear()

    def steps():
        for _ in range(5):
            nn.MSELoss()(model(data()), torch.zeros(4, 8)).backward()

    names = [row["module"] for row in fk.count(steps).by_module()]
    assert sorted(names) == ["(no module)", "Linear", "MSELoss"]


def test_after_an_exception_the_failed_module_is_left():
    wrong = nn.Sequential(linear(), nn.Linear(3, 3))
    after = linear()

    def run():
        with pytest.raises(RuntimeError):
            wrong(data())
        after(data())

    assert parts(fk.count(run)) == {"": (1, 0), "0": (1, 0), "Linear": (1, 0)}


def test_hooks_of_the_users_own_belong_to_the_module():
    eye = torch.eye(8)
    model = nn.Sequential(linear(), linear())
    model.register_forward_hook(lambda m, i, o: o @ eye)
    model[0].register_forward_pre_hook(lambda m, i: (i[0] @ eye,))
    assert trained(model) == {"": (4, 6), "0": (2, 3), "1": (1, 2)}


def test_parametrisations_are_modules_too():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(linear()), linear())
    found = parts(fk.count(model, data(grad=False)))
    name = "0.parametrizations.weight.0"
    assert name in dict(model.named_modules())
    assert found[name] == found["0.parametrizations"] and found[name][0] > 0
    assert found["0"][0] == 1 + found[name][0]
    weight_norm = nn.Sequential(nn.utils.parametrizations.weight_norm(linear()))
    assert trained(weight_norm) == {"": (1, 2), "0": (1, 2)}


def test_functional_call():
    model = nn.Sequential(linear(), linear())
    weights = {name: p.detach().requires_grad_() for name, p in model.named_parameters()}
    report = fk.count(lambda: torch.func.functional_call(model, weights, (data(),)).sum().backward())
    assert parts(report) == {"": (2, 4), "0": (1, 2), "1": (1, 2)}


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_blocks(reentrant):
    blocks = nn.ModuleList(nn.Sequential(linear(), nn.Tanh(), linear()) for _ in range(2))

    def forward(self, x):
        for block in self.b:
            x = checkpoint(block, x, use_reentrant=reentrant)
        return x

    model = Net(forward, b=blocks)
    last = 1 if reentrant else 0  # early stop leaves out the last product
    report = fk.count(lambda: model(data()).sum().backward())
    assert parts(report, "forward", "backward", "recompute") == {
        "": (4, 8, 2 + 2 * last),
        "b": (4, 8, 2 + 2 * last),
        **{
            f"b.{i}{child}": work
            for i in (0, 1)
            for child, work in (("", (2, 4, 1 + last)), (".0", (1, 2, 1)), (".2", (1, 2, last)))
        },
    }


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_a_function_of_shared_modules(reentrant):
    shared = linear()
    model = Net(
        lambda self, x: checkpoint(lambda t: self.q(self.p(t)).tanh(), x, use_reentrant=reentrant),
        p=Net(lambda self, x: self.sh(x), sh=shared),
        q=Net(lambda self, x: self.sh(x), sh=shared),
    )
    report = fk.count(lambda: model(data()).sum().backward())
    each = (1, 2, 1)
    assert parts(report, "forward", "backward", "recompute") == {
        "": (2, 4, 2),
        "p": each,
        "p.sh": each,
        "q": each,
        "q.sh": each,
    }


def test_what_double_backward_makes_belongs_to_the_module_it_came_from():
    model = Net(lambda self, x: self.b(self.a(x).tanh()), a=linear(), b=linear())
    x = data()

    def penalty():
        (g,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        g.pow(2).sum().backward()

    found = parts(fk.count(penalty))
    # First dx through b and a. Then 1·W_b gives dW_b; d·W_a gives dW_a and dd; and, through tanh, a's own two.
    assert found == {"": (2, 2 + 1 + 2 + 2), "a": (1, 1 + 2 + 2), "b": (1, 1 + 1)}


def test_wrappers():
    children = {"0": (1, 2), "1": (1, 2)}
    plain = nn.Sequential(linear(), linear())
    traced = torch.fx.symbolic_trace(plain)
    assert trained(traced) == {"": (2, 4), **children}
    compiled = torch.compile(plain, backend="eager")
    assert trained(compiled) == {
        "": (2, 4),
        "_orig_mod": (2, 4),
        **{f"_orig_mod.{name}": work for name, work in children.items()},
    }
    assert set(trained(compiled)) <= {name for name, _ in compiled.named_modules()}
    plain.compile(backend="eager")
    assert trained(plain) == {"": (2, 4), **children}


class Replicated(nn.Module):
    """What `nn.DataParallel` does, on devices that are there: shallow copies of the module's tree."""

    def __init__(self, module):
        super().__init__()
        self.module = module

    def copy(self, module):
        replica = module._replicate_for_data_parallel()
        replica._parameters = {}
        for name, parameter in module._parameters.items():
            setattr(replica, name, None if parameter is None else parameter.view_as(parameter))
        for name, child in module._modules.items():
            replica._modules[name] = self.copy(child)
        return replica

    def forward(self, x):
        with ThreadPoolExecutor(2) as pool:
            return torch.cat(list(pool.map(lambda replica: replica(x), [self.copy(self.module) for _ in range(2)])))


def test_replicas_stand_below_their_caller():
    model = Replicated(nn.Sequential(linear(), linear()))
    found = parts(fk.count(lambda: [model(data()) for _ in range(3)]))
    assert found == {"": (12, 0), "(Sequential)": (12, 0), "(Sequential).0": (6, 0), "(Sequential).1": (6, 0)}


def test_deep_nesting():
    model = linear()
    for _ in range(60):
        model = nn.Sequential(model)
    found = trained(model)
    assert len(found) == 61 and set(found.values()) == {(1, 2)}
    assert ".".join(["0"] * 60) in found


def test_work_outside_of_modules():
    w = torch.ones(8, 8)
    model = linear()
    report = fk.count(lambda: model(data()) @ w)
    assert {row["module"]: row["flops"] / UNIT for row in report.by_module()} == {"": 1, "(no module)": 1}
    assert [row["module"] for row in fk.count(lambda: data() @ w).by_module()] == ["(no module)"]
    loss = model(data()).sum()
    assert [row["module"] for row in fk.count(loss.backward).by_module()] == ["(no module)"]


def test_at_depth_0_several_models_have_a_row_each():
    one, two = nn.Sequential(linear()), nn.Sequential(linear(), linear())
    with fk.counting() as report:
        one(data())
        two(data())
    found = {row["module"]: row["flops"] / UNIT for row in report.by_module(depth=0)}
    assert found == {"Sequential": 1, "Sequential (2)": 2, "(no module)": 0}
    assert [row["module"] for row in fk.count(two, data()).by_module(depth=0)] == [""]


@pytest.mark.parametrize("reentrant", [True, False])
def test_a_checkpoint_around_plain_operators_belongs_to_the_module_around(reentrant):
    inner = Net(lambda self, x: checkpoint(lambda t: (t @ self.w).tanh() @ self.w, x, use_reentrant=reentrant))
    inner.w = nn.Parameter(torch.ones(8, 8))
    model = Net(lambda self, x: self.b(self.a(x)), a=inner, b=linear())
    report = fk.count(lambda: model(data()).sum().backward())
    again = 2 if reentrant else 1
    assert parts(report, "forward", "backward", "recompute") == {
        "": (3, 6, again),
        "a": (2, 4, again),
        "b": (1, 2, 0),
    }


def test_a_module_that_another_branch_holds_keeps_its_registered_name():
    encoder = Net(lambda self, x: self.a(x), a=linear())
    decoder = Net(lambda self, x: encoder.a(x))  # not its own: weights that are tied by hand
    model = Net(lambda self, x: self.dec(self.enc(x)), enc=encoder, dec=decoder)
    assert trained(model) == {"": (2, 4), "enc": (2, 4), "enc.a": (2, 4)}


def test_of_a_modules_names_the_first_of_named_modules_is_taken():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.enc = nn.ModuleDict({"emb": linear(), "deep": nn.Sequential(linear())})
            self.tied, self.short = self.enc["emb"], self.enc["deep"][0]

        def forward(self, x):
            return self.short(self.enc["emb"](self.tied(x)))

    model = Tied()
    assert {"enc.emb", "enc.deep.0"} < {name for name, _ in model.named_modules()}
    assert trained(model) == {"": (3, 6), "enc": (3, 6), "enc.emb": (2, 4), "enc.deep": (1, 2), "enc.deep.0": (1, 2)}


def test_a_child_that_is_replaced_while_counting_has_its_own_name():
    model = Net(lambda self, x: self.b(self.a(x)), a=linear(), b=nn.Sequential(linear()))

    def steps():
        model(data())
        del model.b
        model.c = linear()
        model.run = lambda self, x: self.c(self.a(x))
        model(data())

    assert parts(fk.count(steps)) == {"": (4, 0), "a": (2, 0), "b": (1, 0), "b.0": (1, 0), "c": (1, 0)}


# -- backward in one thread, forward in others -------------------------------------------------------------------


def far_along():
    """Let this thread's numbers be past those of threads that start now: autograd counts in each from zero."""
    x = torch.ones(1, requires_grad=True)
    for _ in range(200):
        x = x * 1


def in_threads(*calls):
    found = [None] * len(calls)

    def run(place):
        found[place] = calls[place]()

    for place in range(len(calls)):
        thread = threading.Thread(target=run, args=(place,))
        thread.start()
        thread.join()
    return found


def test_work_that_could_be_of_two_threads_belongs_to_no_module():
    far_along()
    a, b = nn.Sequential(linear()), Net(lambda self, x: self.inner(x), inner=linear())
    for step in (lambda y, z: (y + z).sum().backward(), lambda y, z: (y.sum().backward(), z.sum().backward())):
        report = fk.count(lambda step=step: step(*in_threads(lambda: a(data()), lambda: b(data()))))
        rows = {row["module"]: (row["forward"] / UNIT, row["backward"] / UNIT) for row in report.by_module()}
        assert rows["(no module)"] == (0, 4)
        assert rows["Sequential"] == rows["Sequential.0"] == rows["Net"] == rows["Net.inner"] == (1, 0)
        assert [note for note in report.notes if "several threads" in note] == report.notes


def test_work_of_one_other_thread_or_of_one_module_in_several_is_found():
    far_along()
    model = nn.Sequential(linear(), linear())
    report = fk.count(lambda: in_threads(lambda: model(data()))[0].sum().backward())
    assert parts(report) == {"": (2, 4), "0": (1, 2), "1": (1, 2)} and report.notes == []
    report = fk.count(lambda: sum(in_threads(lambda: model(data()), lambda: model(data()))).sum().backward())
    assert parts(report) == {"": (4, 8), "0": (2, 4), "1": (2, 4)} and report.notes == []


def test_what_a_thread_has_not_made_is_not_its_own():
    """A thread that only ran a few nodes is not asked for later ones, though it has not ended; one without gradients not at all."""
    far_along()
    model, other = nn.Sequential(linear(), linear()), linear()
    pool = ThreadPoolExecutor(1)

    def run():
        with torch.no_grad():
            other(data())
        return other(data(grad=False))

    def program():
        pool.submit(run).result()
        in_threads(lambda: [data() * 1 for _ in range(50)] and model(data()).sum().backward())

    with pool:
        report = fk.count(program)
    rows = {row["module"]: (row["forward"] / UNIT, row["backward"] / UNIT) for row in report.by_module()}
    assert rows["0"] == rows["1"] == (1, 2) and report.notes == []


@pytest.mark.parametrize("reentrant", [True, False])
def test_steps_with_checkpoints_whose_backward_runs_in_autograds_own_thread(monkeypatch, reentrant):
    """Both threads' numbers start at zero, and what is recomputed in one goes through those that the other has made."""

    def nested(frame):
        around = 0
        while frame is not None:
            around += frame.f_code is watched.ENGINE
            frame = frame.f_back
        return around > 1  # the thread below is not started by autograd, and has one too many

    monkeypatch.setattr(watched, "_is_nested", nested)
    model = Net(
        lambda self, x: self.head(checkpoint(self.body, self.first(x), use_reentrant=reentrant)),
        first=linear(), body=nn.Sequential(linear(), nn.Tanh(), linear(), nn.Tanh()), head=linear(),
    )  # fmt: skip
    todo, done = queue.Queue(), queue.Queue()

    def engine(watcher):
        with watcher:
            while (loss := todo.get()) is not None:
                loss.backward()
                done.put(sys.exc_info()[0])

    def steps():
        for _ in range(4):
            todo.put(model(data()).sum())
            done.get(timeout=30)

    with fk.counting() as report:
        _thread.start_new_thread(engine, (report._source.mode,))
        in_threads(steps)
        todo.put(None)
    found = parts(report, "forward", "backward", "recompute")
    again = {"0": (4, 8, 4), "2": (4, 8, 4)}
    assert report.notes == []
    assert found == {
        "": (16, 32, 8), "first": (4, 8, 0), "body": (8, 16, 8), "head": (4, 8, 0),
        **{f"body.{name}": work for name, work in again.items()},
    }  # fmt: skip


def test_a_module_may_have_an_argument_called_module():
    class Called(nn.Module):
        def forward(self, module):
            return module @ module

    assert fk.count(Called(), module=torch.ones(2, 2)).flops == 16


def test_many_modules_within_one_another():
    model = nn.Linear(2, 2)
    for _ in range(100):
        model = nn.Sequential(model)
    report = fk.count(model, torch.ones(3, 2))
    assert report.by_module()[-1]["module"] == ".".join(["0"] * 100)
    assert report.by_module()[-1]["flops"] == 2 * 3 * 2 * 2


@pytest.mark.parametrize("when", ["before the count", "in the count"])
def test_a_module_that_was_compiled_by_its_method_has_a_row(when):
    class Own(nn.Module):
        def forward(self, x):
            return x @ torch.ones(4, 8)

    model = nn.Sequential(nn.Linear(4, 4), Own())
    if when == "before the count":
        model[1].compile(backend="eager")

    def program(x):
        if when == "in the count":
            model[1].compile(backend="eager")
        return model(x)

    report = fk.count(program, torch.ones(2, 4))
    flops = {row["module"]: row["flops"] for row in report.by_module() if row["flops"]}
    assert flops == {"": 192, "0": 64, "1": 128}
    assert model[1]._compiled_call_impl is not None and nn.Module._compiled_call_impl is None
