"""Inference mode shows operators that torch takes apart elsewhere: what they move, and what they return, is the same in every mode."""

import pytest
import torch
import torch.nn.functional as F

import flopkit as fk

N = 100 * 100
MODES = {"gradients": torch.enable_grad, "no_grad": torch.no_grad, "inference": torch.inference_mode}

x = torch.ones(100, 100)
h = x.half()

MOVES = {
    "to bf16": (lambda: x.bfloat16(), 4 * N + 2 * N),
    "to fp32": (lambda: h.float(), 2 * N + 4 * N),
    "to another's dtype": (lambda: h.to(x), 2 * N + 4 * N),
    "type_as": (lambda: h.type_as(x), 2 * N + 4 * N),
    "to fp64": (lambda: x.to(torch.float64), 4 * N + 8 * N),
    "a copy": (lambda: x.to(x.dtype, copy=True), 8 * N),
    "a transpose made contiguous": (lambda: x.t().contiguous(), 8 * N),
    "a transpose flattened": (lambda: x.t().flatten(), 8 * N),
    "a transpose reshaped": (lambda: x.t().reshape(-1), 8 * N),
    "to the dtype it has": (lambda: x.float(), 0),
    "a reshape that is a view": (lambda: x.reshape(10, -1).contiguous().flatten().movedim(0, -1).to(x), 0),
    "chunks": (lambda: x.chunk(3)[0].narrow(0, 0, 2).T, 0),
    "dropout, evaluated": (lambda: F.dropout(x, 0.5, False), 0),
    "softmax in another dtype": (lambda: F.softmax(h, -1, dtype=torch.float32), 2 * N + 4 * N + 8 * N),
    "where, of a number": (lambda: torch.where(x > 0, x, 2.0), 4 * N + 1 * N + 4 + (1 + 4 + 4) * N + 4),
    "concatenated": (lambda: torch.concat([x, x.t()]), 16 * N),
}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MOVES)
def test_bytes(name, mode):
    program, bytes = MOVES[name]
    with MODES[mode]():
        report = fk.count(program, strict=True)
    assert report.bytes == bytes, report.by_op()
    assert report.flops == 0


@pytest.mark.parametrize("mode", MODES)
def test_what_may_be_a_view_is_one_while_counted(mode):
    with MODES[mode](), fk.counting():
        a = torch.zeros(3)
        for program in (
            lambda: F.dropout(a, 0.5, False),
            lambda: a.contiguous(),
            lambda: a.reshape(3, 1),
            lambda: a.to(torch.float32),
            lambda: a.flatten(),
        ):
            program().add_(1)
    assert a.tolist() == [5.0] * 3


PROGRAMS = {
    "rms_norm": lambda: F.rms_norm(x, (100,)),
    "log_softmax": lambda: F.log_softmax(x, -1),
    "std": lambda: x.std(),
    "var over rows": lambda: x.var(0),
    "prelu": lambda: F.prelu(x, torch.ones(1)),
    "relu6": lambda: F.relu6(x),
    "square": lambda: torch.square(x),
    "isfinite": lambda: torch.isfinite(x),
    "one_hot": lambda: F.one_hot(torch.arange(5)),
    "nanmean": lambda: x.nanmean(),
    "adaptive_avg_pool2d": lambda: F.adaptive_avg_pool2d(x[None, None], 5),
    "adaptive_avg_pool1d": lambda: F.adaptive_avg_pool1d(x[None], 5),
    "embedding_bag": lambda: F.embedding_bag(torch.arange(6).view(2, 3), x),
    "fftn": lambda: torch.fft.fftn(x),
    "repeat_interleave": lambda: x.repeat_interleave(2, 0),
    "matmul": lambda: x @ x[0],
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_mode_has_the_same_rows(name):
    found = []
    for mode in MODES.values():
        with mode():
            report = fk.count(PROGRAMS[name])
        found.append(
            (report.flops, report.vector_flops, report.bytes, sorted(row["operator"] for row in report.by_op()))
        )
    assert found[1] == found[2]
    assert found[0][:2] == found[2][:2]


@pytest.mark.parametrize("bias", [False, True])
def test_a_linear_layer_adds_its_bias_and_nothing_else(bias):
    w, b = torch.ones(30, 100), torch.ones(30)
    with torch.inference_mode():
        report = fk.count(F.linear, x, w, *[b] * bias, strict=True)
    assert (report.flops, report.vector_flops) == (2 * 100 * 100 * 30, 100 * 30 * bias)
