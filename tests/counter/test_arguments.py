"""What `fk.count` is given: what is its own, what goes to the program, and what is refused."""

from __future__ import annotations

import pytest
import torch
from cases import U
from torch import nn

import flopkit as fk

X = torch.ones(4, 8)


def product(*_):
    return X @ torch.ones(8, 8)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(8, 8)

    def forward(self, x, scale=1.0):
        return self.layer(x) * scale


def test_everything_but_strict_goes_to_the_function():
    seen = {}

    def function(*args, fn=None, name=None, **kwargs):
        seen.update(args=args, fn=fn, name=name, **kwargs)
        return 3

    assert fk.count(function, 1, fn=2, name=3, attention=4, strict=True).flops == 0
    assert seen == {"args": (1,), "fn": 2, "name": 3, "attention": 4}


@pytest.mark.parametrize("wrong", [3, None, "model", X, [], {}])
def test_what_cannot_be_called(wrong):
    with pytest.raises(TypeError, match="cannot be called: pass a model or a function"):
        fk.count(wrong)


def test_options_are_checked():
    with pytest.raises(TypeError, match=r"strict=1.*True or False"):
        fk.count(product, strict=1)
    with (
        pytest.raises(ValueError, match="attention='eager'.*'auto'.*'flash' or 'math'"),
        fk.counting(attention="eager"),
    ):
        pass


def test_results_that_are_no_tensors():
    for result in (None, 3, "text", object(), {"a": X}, [X], (x for x in ())):
        assert fk.count(lambda r=result: (product(), r)[1]).flops == U


def test_arguments_go_to_the_function():
    seen = {}

    def fn(*args, **kwargs):
        seen.update(args=args, kwargs=kwargs)
        return X @ X.t()

    words = {"fn": 1, "attention": "math", "name": "n", "convention": fk.conventions.TORCH, "args": 2, "kwargs": 3, "depth": 4,
             "self": 5, "device": "cpu"}  # fmt: skip
    assert fk.count(fn, 1, "two", strict=False, **words).flops == 2 * 4 * 4 * 8
    assert seen == {"args": (1, "two"), "kwargs": words}
    model = Scaled()
    assert fk.count(model, X, scale=2.0).model_flops == fk.count(model, x=X).model_flops == U
    assert "strict" not in seen["kwargs"]


def test_wrong_arguments():
    with pytest.raises(TypeError, match="strict"):
        fk.count(lambda: None, strict="yes")
    with pytest.raises(ValueError, match="auto.*flash.*math"), fk.counting(attention="fast"):
        pass
    with pytest.raises(TypeError):
        fk.count()
    with pytest.raises(TypeError, match="missing 1 required positional argument"):
        fk.count(nn.Linear(8, 8))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        fk.count(nn.Linear(8, 8), torch.ones(4, 9))
    with pytest.raises((TypeError, AttributeError)):
        fk.count(nn.Linear(8, 8), [1, 2, 3])
    assert torch._C._len_torch_dispatch_stack() == 0


def test_counting_as_torchs_counter_is_used():
    x = torch.ones(4, 8)
    counter = fk.counting()
    with counter:
        x @ x.T
    for name in ("flops", "get_total_flops", "model_flops"):
        with pytest.raises(
            AttributeError, match=f"has no '{name}': the report has the numbers, `with fk.counting\\(\\) as"
        ):
            getattr(counter, name)
    with pytest.raises(TypeError, match=r"no decorator.*call fk.count\(function, x\)"):

        @counter
        def step():
            return x @ x.T


def test_counting_may_be_entered_again():
    x, flops = torch.ones(4, 8), []
    counter = fk.counting()
    for _ in range(2):
        with counter as report:
            x @ x.T
        flops.append(report.flops)
    assert flops == [2 * 4 * 4 * 8] * 2
    with counter as report:
        with pytest.raises(RuntimeError, match=r"entered already: call fk.counting\(\) again"):
            counter.__enter__()
        x @ x.T
    assert report.flops == flops[0]
