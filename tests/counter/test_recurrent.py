"""LSTM, GRU and plain recurrent layers: 2·B·G·H·(I + H) FLOPs a step and direction, the same model FLOPs whatever runs them."""

import itertools

import pytest
import torch
from cases import REAL, WAYS, Table, call, g, t
from programs import at, backward, count, leaf, row
from torch.nn.utils.rnn import pack_sequence

import flopkit as fk
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas import recurrent
from flopkit.macs import Recurrent

nn = torch.nn
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
OPTIONS = (
    {},
    {"bidirectional": True},
    {"num_layers": 2},
    {"num_layers": 2, "bidirectional": True},
    {"batch_first": True},
    {"bias": False},
    {"num_layers": 2, "dropout": 0.5},
)
CASES = [(kind, options) for kind in GATES for options in OPTIONS] + [
    ("LSTM", {"proj_size": 3}),
    ("LSTM", {"proj_size": 3, "num_layers": 2}),
]


def truth(kind, lengths, size=4, hidden=6, num_layers=1, bidirectional=False, proj_size=0, **_):
    """FLOPs (forward, backward with a gradient of the input, what of it the input's is), step by step.

    The backward pass takes each weight's gradient at each step, and hands the state's gradient to each step but the first.
    """
    forward = back = of_input = 0
    fed, rows = proj_size or hidden, GATES[kind] * hidden
    for layer in range(num_layers):
        for _, length in itertools.product(range(1 + bidirectional), lengths):
            width = size if layer == 0 else (1 + bidirectional) * fed
            for step in range(length):
                own = 2 * rows * width
                again = 2 * rows * fed
                down = 2 * hidden * proj_size
                forward += own + again + down
                back += 2 * own + again + 2 * down + (again if step else 0)
                of_input += own if layer == 0 else 0
    return forward, back, of_input


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize(("kind", "options"), CASES, ids=str)
def test_layers(kind, options):
    forward, back, _ = truth(kind, [5, 5], **options)
    for place in ("cpu", "meta"):
        with at(place) as device:
            model = getattr(nn, kind)(4, 6, **options, device=device)
            x = leaf(*((2, 5, 4) if options.get("batch_first") else (5, 2, 4)), device=device)
            report = fk.count(lambda model=model, x=x: backward(model(x)[0]))
            assert (report.forward.flops, report.model_flops - report.forward.flops) == (forward, back), place
            with torch.no_grad():
                assert fk.count(model, x).flops == forward
            with torch.inference_mode():
                assert fk.count(model, x).flops == forward


@pytest.mark.parametrize("kind", GATES)
def test_what_needs_no_gradient_is_not_in_the_model(kind):
    forward, back, of_input = truth(kind, [5, 5])
    of_start = 2 * 2 * GATES[kind] * 6 * 6  # of the initial state
    weights = forward
    for place in ("cpu", "meta"):
        with at(place) as device:
            model = getattr(nn, kind)(4, 6, device=device)

            def taken(x, *state, model=model):
                report = count(lambda: model(x, *state)[0])
                return report.model_flops - report.forward.flops

            x = leaf(5, 2, 4, device=device)
            assert taken(x.detach()) == back - of_input
            states = [leaf(1, 2, 6, device=device) for _ in range(1 + (kind == "LSTM"))]
            given = tuple(states) if kind == "LSTM" else states[0]
            assert taken(x, given) == back + of_start
            for parameter in model.parameters():
                parameter.requires_grad_(False)
            assert taken(x) == back - weights


def test_the_fused_kernel_takes_every_gradient():
    """oneDNN's backward pass executes the gradients of input and initial state, too: twice the forward pass, whatever is needed."""
    model = nn.LSTM(4, 6)
    report = fk.count(lambda: backward(model(torch.randn(5, 2, 4))[0]))
    if not any(r["operator"] == "mkldnn_rnn_layer" for r in report.by_op().rows):
        pytest.skip("torch without oneDNN")
    assert row(report, "mkldnn_rnn_layer_backward", "backward")["flops"] == 2 * report.forward.flops
    assert report.model_flops < report.flops
    assert report.uncounted == []


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True}], ids=str)
def test_packed_sequences_count_their_true_lengths(kind, options):
    lengths = [5, 2, 2]
    forward, back, of_input = truth(kind, lengths, **options)
    if options:
        # Backwards in time the two short sequences set in later, their initial states beside the long one's state, and torch takes
        # the gradient of that whole step.
        back += 2 * options["num_layers"] * 2 * GATES[kind] * 6 * 6
    packed = pack_sequence([torch.randn(n, 4) for n in lengths])
    model = getattr(nn, kind)(4, 6, **options)
    report = count(lambda: model(packed)[0].data)
    assert (report.forward.flops, report.model_flops - report.forward.flops) == (forward, back - of_input)
    with torch.no_grad():
        assert fk.count(model, packed).flops == forward


@pytest.mark.parametrize("kind", GATES)
@pytest.mark.parametrize("place", ["cpu", "meta", "fake"])
def test_cells_and_unbatched(kind, place):
    forward, back, _ = truth(kind, [1, 1])
    with at(place) as device:
        cell = getattr(nn, f"{kind}Cell")(4, 6, device=device)
        x = leaf(2, 4, device=device)
        report = count(lambda: cell(x))
        assert (report.forward.flops, report.backward.flops) == (forward, back)
        model, x = getattr(nn, kind)(4, 6, device=device), leaf(5, 4, device=device)
        assert count(lambda: model(x)[0]).forward.flops == truth(kind, [5])[0]


def test_element_wise_work_of_the_fused_layer_is_that_of_its_parts():
    """oneDNN's layer against the same layer on meta, where torch takes it apart."""
    with torch.no_grad():
        for bias in (True, False):
            whole = fk.count(nn.LSTM(4, 6, bias=bias), torch.randn(5, 2, 4))
            parts = fk.count(nn.LSTM(4, 6, bias=bias, device="meta"), torch.randn(5, 2, 4, device="meta"))
            assert whole.vector_flops == parts.vector_flops


# cuDNN's and MIOpen's layers run nowhere here: a call is made by hand, with the tensors they would be given.


def by_hand(name, mask=None, packed=False, layers=2, both=True, projected=0):
    steps, batch, size, hidden = 5, 3, 4, 6
    rows = 8 if packed else steps * batch  # lengths 5, 2, 1
    with torch.device("meta"):
        x = torch.empty(rows, size) if packed else torch.empty(steps, batch, size)
        state = torch.empty(layers * (1 + both), batch, projected or hidden)
        cell = torch.empty(layers * (1 + both), batch, hidden)
        weight = [torch.empty(24, size), torch.empty(24, 6), torch.empty(24), torch.empty(24)] * layers * (1 + both)
        buffer = torch.empty(sum(w.numel() for w in weight))
        out = torch.empty(*x.shape[:-1], (projected or hidden) * (1 + both))
    given = {
        "input": x, "weight": weight, "weight_stride0": 4, "weight_buf": buffer, "hx": state, "cx": cell, "mode": 2, "hidden_size": hidden,
        "proj_size": projected, "num_layers": layers, "batch_first": False, "dropout": 0.0, "train": True, "bidirectional": both,
        "batch_sizes": [3, 2, 1, 1, 1] if packed else [], "dropout_state": None,
    }  # fmt: skip
    if mask is not None:
        given |= {
            "output": out,
            "grad_output": out,
            "grad_hy": None,
            "grad_cy": None,
            "reserve": out,
            "output_mask": mask,
        }
    func = getattr(torch.ops.aten, name).default
    return OpCall(func, (), given, (out, state, cell))


LENGTHS = {True: [5, 2, 1], False: [5, 5, 5]}


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("projected", [0, 3])
def test_cudnn(packed, projected):
    options = dict(num_layers=2, bidirectional=True, proj_size=projected)
    forward, back, of_input = truth("LSTM", LENGTHS[packed], **options)
    ahead = recurrent.forward(by_hand("_cudnn_rnn", packed=packed, projected=projected))
    assert 2 * sum(ahead.model.values()) == forward
    for x, weights in itertools.product((True, False), (True, False)):
        work = recurrent.backward(
            by_hand("_cudnn_rnn_backward", [x, False, False, weights], packed, projected=projected)
        )
        assert 2 * sum(work.model.values()) == back - of_input * (not x) - forward * (not weights)
    whole = recurrent.backward(by_hand("_cudnn_rnn_backward", [True] * 4, packed, projected=projected))
    assert sum(whole.model.values()) == sum(whole.executed.values()) == forward  # 2 · FLOPs forward, as multiply-adds


@pytest.mark.parametrize(("mode", "kind"), list(enumerate(["RNN", "RNN", "LSTM", "GRU"])), ids=str)
def test_gates_of_each_kind(mode, kind):
    for steps in ([], [5, 5, 5]):
        sizes = Recurrent(GATES[kind], rows=sum(steps), batch=3, inputs=4, hidden=6, layers=2, directions=2)
        assert 2 * sizes.forward == truth(kind, steps, num_layers=2, bidirectional=True)[0]
    call = by_hand("_cudnn_rnn")
    call.kwargs["mode"] = mode
    assert (
        2 * recurrent.forward(call).model["products"]
        == truth(kind, LENGTHS[False], num_layers=2, bidirectional=True)[0]
    )


@pytest.mark.parametrize(("mode", "cell"), [(0, 1 + 1), (1, 1 + 1), (2, 4 + 3 * 3 + 2 + 4), (3, 3 + 2 * 3 + 1 + 4)])
def test_element_wise_work_of_a_unit(mode, cell):
    """Each gate adds its two products; a sigmoid is three FLOPs, tanh and relu one. LSTM: three sigmoids, two tanh, three products, a sum.
    GRU: two sigmoids, tanh, (h - n)·z + n, r·(W·h). Two biases for each gate."""
    for weights, biases in ((4, 2 * (1, 1, 4, 3)[mode]), (2, 0)):
        call = by_hand("_cudnn_rnn", layers=3)
        call.kwargs |= {"mode": mode, "weight": call.kwargs["weight"][:weights] * 3 * 2}
        assert recurrent.forward(call).vector == {"elementwise": 3 * 2 * (5 * 3) * 6 * (cell + biases)}


def test_a_projection_of_three_layers():
    sizes = Recurrent(4, rows=5, batch=1, inputs=4, hidden=6, layers=3, directions=2, projected=2)
    assert sizes.projection == 3 * 2 * 5 * 6 * 2


def test_the_library_tells_biases_by_the_number_of_weights():
    """Two layers in two directions, 15 rows of 6 units: four weights for each with biases; projected and without biases three. Backward is taken
    as twice as many."""
    units = 2 * 2 * 15 * 6
    assert recurrent.forward(by_hand("_cudnn_rnn")).vector == {"elementwise": units * (19 + 8)}
    call = by_hand("_cudnn_rnn", projected=3)
    call.kwargs["weight"] = call.kwargs["weight"][:3] * 4
    assert recurrent.forward(call).vector == {"elementwise": units * 19}
    back = recurrent.backward(by_hand("_cudnn_rnn_backward", [True] * 4))
    assert back.vector == {"elementwise": 2 * units * (19 + 8)}


def test_a_library_without_a_buffer_reads_its_weights():
    for name, formula, mask in (
        ("_cudnn_rnn", recurrent.forward, None),
        ("_cudnn_rnn_backward", recurrent.backward, [True] * 4),
    ):
        call, apart = by_hand(name, mask), by_hand(name, mask)
        apart.kwargs["weight_buf"] = None
        assert formula(call).bytes == formula(apart).bytes  # the buffer holds the same weights, and is not read twice


def test_a_call_without_steps():
    call = by_hand("_cudnn_rnn")
    call.kwargs["input"] = torch.empty(0, 3, 4, device="meta")
    assert recurrent.forward(call).model == {"products": 0}


def test_miopen_is_the_same_and_weights_are_read_once():
    cudnn, miopen = recurrent.forward(by_hand("_cudnn_rnn")), recurrent.forward(by_hand("miopen_rnn"))
    assert cudnn.model == miopen.model
    call = by_hand("_cudnn_rnn")
    numbers = sum(w.numel() for w in call["weight"][:4]) + sum(
        call[name].numel() * times for name, times in (("input", 1), ("hx", 1), ("cx", 1))
    )
    assert cudnn.bytes == 4 * (numbers + sum(t.numel() for t in call.outputs))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::UserWarning")
@pytest.mark.parametrize("kind", ["LSTM", "GRU"])
def test_quantised_layers_are_listed(kind):
    """Their products run inside, where nobody sees them, and what is packed does not show."""
    model = torch.ao.quantization.quantize_dynamic(nn.Sequential(getattr(nn, kind)(4, 6)), {nn.LSTM, nn.GRU})
    report = fk.count(model, torch.ones(5, 2, 4))
    assert [r["operator"] for r in report.uncounted] == [f"quantized_{kind.lower()}"]
    assert report.flops == 0 and report.uncounted[0]["bytes"] >= 4 * 5 * 2 * (4 + 6)


def test_no_steps():
    assert Recurrent(gates=4, rows=0, batch=0, inputs=4, hidden=6).forward == 0
    assert Recurrent(gates=4, rows=0, batch=2, inputs=4, hidden=6).backward(state=False) == 0


def test_no_sequences():
    report = fk.count(nn.LSTM(4, 6), torch.ones(5, 0, 4))
    assert (report.flops, report.vector_flops) == (0, 0)


def test_only_the_gradient_of_the_first_cell():
    """It passes the later steps' gates, and with them the hidden states from the last step back to the second: not nothing."""
    lstm, cell = nn.LSTM(4, 6).requires_grad_(False), torch.zeros(1, 2, 6, requires_grad=True)
    with fk.counting() as report:
        out, _ = lstm(torch.ones(5, 2, 4), (torch.zeros(1, 2, 6), cell))
        out.sum().backward()
    assert report.model_flops - report.forward.flops == 2 * (5 - 1) * 2 * 24 * 6


# -- a table: gates · (inputs + hidden) a step -----------------------------------------------------------------------

TABLE = Table()
case = TABLE.case

# fmt: off
case("LSTM cell", lambda: call(nn.LSTMCell(4, 6), t(3, 4), (g(3, 6), g(3, 6))), 2 * 3 * 24 * 10, 2 * 3 * 24 * (4 + 2 * 6))
case("GRU cell", lambda: call(nn.GRUCell(4, 6), g(3, 4), g(3, 6)), 2 * 3 * 18 * 10, 4 * 3 * 18 * 10)
case("RNN cell", lambda: call(nn.RNNCell(4, 6), g(3, 4), g(3, 6)), 2 * 3 * 6 * 10, 4 * 3 * 6 * 10)
case("LSTM", lambda: call(nn.LSTM(4, 6), g(5, 3, 4), (g(1, 3, 6), g(1, 3, 6))), 2 * 15 * 24 * 10, 4 * 15 * 24 * 10)
case("LSTM, two layers, two directions", lambda: call(nn.LSTM(4, 6, num_layers=2, bidirectional=True, batch_first=True), g(3, 5, 4), (g(4, 3, 6), g(4, 3, 6))),
     2 * 15 * 2 * 24 * (10 + 18), 4 * 15 * 2 * 24 * (10 + 18))
case("LSTM with a projection", lambda: call(nn.LSTM(4, 6, proj_size=2), g(5, 3, 4), (g(1, 3, 2), g(1, 3, 6))),
     2 * 15 * (24 * (4 + 2) + 6 * 2), 4 * 15 * (24 * (4 + 2) + 6 * 2))
case("GRU", lambda: call(nn.GRU(4, 6), g(5, 3, 4), g(1, 3, 6)), 2 * 15 * 18 * 10, 4 * 15 * 18 * 10)
case("RNN", lambda: call(nn.RNN(4, 6, nonlinearity="tanh"), g(5, 3, 4), g(1, 3, 6)), 2 * 15 * 6 * 10, 4 * 15 * 6 * 10)
case("RNN with relu, unbatched", lambda: call(nn.RNN(4, 6, nonlinearity="relu"), g(5, 4), g(1, 6)), 2 * 5 * 60, 4 * 5 * 60)
case("LSTM, packed", lambda: call(lambda m, p: m(p)[0].data, nn.LSTM(4, 6), nn.utils.rnn.pack_padded_sequence(t(5, 2, 4), torch.tensor([5, 2]))),
     2 * 7 * 24 * 10, 2 * 7 * 24 * 10 + 2 * 5 * 24 * 6, ways=REAL)
# fmt: on


@pytest.mark.filterwarnings("ignore:LSTM with projections is not supported with oneDNN")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", TABLE)
def test_flops(name, way):
    TABLE.check(name, way)
