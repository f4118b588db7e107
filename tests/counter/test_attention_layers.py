"""nn.MultiheadAttention and torch's transformer layers: one count on every path that torch may take."""

import pytest
import torch
from torch import nn

import flopkit as fk
from flopkit.conventions import EXACT
from flopkit.counter.calls import OpCall
from flopkit.counter.formulas.attention_kernels import multi_head_attention

B, L, D, H, FF = 2, 6, 16, 4, 32
PROJECTIONS = 4 * 2 * B * L * D * D
CORE = 2 * 2 * B * L * L * D
VISIBLE = 2 * 2 * B * (L * (L + 1) // 2) * D
ENCODER = PROJECTIONS + CORE + 2 * 2 * B * L * D * FF


def kinds(report):
    """Multiply-adds of the forward pass, products and attention apart."""
    macs = report.forward.macs_by_kind
    return macs.get("products", 0), macs.get("scores", 0) + macs.get("hidden", 0)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_on_every_path(device, need_weights):
    layer = nn.MultiheadAttention(D, H, batch_first=True, device=device)
    x = torch.randn(B, L, D, device=device)

    def run():
        return layer(x, x, x, need_weights=need_weights)

    for train in (True, False):
        layer.train(train)
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                report = fk.count(run, strict=True)
            assert report.model_flops == report.flops == PROJECTIONS + CORE, (train, mode)
            products, scores = kinds(report)
            known = not need_weights or "_native_multi_head_attention" in [row["operator"] for row in report.by_op()]
            assert products + scores == (PROJECTIONS + CORE) // 2, (train, mode)
            assert scores == (CORE // 2 if known else 0), (train, mode)  # else the layer makes both products itself
    report = fk.count(lambda: run()[0].sum().backward(), strict=True)
    # x itself needs no gradient: the three projections have one product less.
    assert report.model_flops == PROJECTIONS + CORE + 2 * PROJECTIONS - 3 * PROJECTIONS // 4 + 2 * CORE


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize(("need_weights", "extra"), [(True, 0), (True, 1), (False, 0)])
def test_multi_head_attention_that_is_told_to_be_causal(device, need_weights, extra):
    """With weights the layer makes its products itself: all positions count under EXACT, too, and a note says so."""
    layer = nn.MultiheadAttention(D, H, batch_first=True, device=device, add_zero_attn=bool(extra))
    x = torch.randn(B, L, D, device=device)
    mask = nn.Transformer.generate_square_subsequent_mask(L, device=device)
    with fk.counting() as report:
        layer(x, x, x, attn_mask=mask, is_causal=True, need_weights=need_weights)[0].sum().backward()
    each = 2 * 2 * B * D
    pairs, visible = L * (L + extra), L * (L + 1) // 2 + extra * L
    rest = PROJECTIONS + 2 * PROJECTIONS - 3 * PROJECTIONS // 4
    assert report.model_flops == rest + 3 * each * pairs
    exact = report.under(EXACT)
    assert exact.model_flops == rest + 3 * each * (pairs if need_weights else visible)
    assert [("hand-written" in note) for note in exact.notes] == [True] * need_weights


def test_a_mask_that_multi_head_attention_gets_in_a_tensor_is_named():
    layer = nn.MultiheadAttention(D, H, batch_first=True)
    x = torch.randn(B, L, D)
    # A padding mask of truth values becomes one of numbers on the way.
    for options in (dict(attn_mask=torch.zeros(L, L)), dict(key_padding_mask=torch.zeros(B, L, dtype=torch.bool))):
        for need_weights in (True, False):
            report = fk.count(layer, x, x, x, need_weights=need_weights, **options).under(EXACT)
            assert report.model_flops == PROJECTIONS + CORE
            said = "hand-written" if need_weights else "a bias or a mask"
            assert any(said in note for note in report.notes)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_cross_attention(device):
    layer = nn.MultiheadAttention(D, H, batch_first=True, kdim=8, vdim=10, device=device).eval()
    x, k, v = (torch.randn(B, n, d, device=device) for n, d in ((L, D), (9, 8), (9, 10)))
    with torch.no_grad():
        report = fk.count(layer, x, k, v, need_weights=False)
    assert kinds(report) == (B * L * D * D * 2 + B * 9 * 8 * D + B * 9 * 10 * D, 2 * B * L * 9 * D)


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("options", [dict(), dict(norm_first=True), dict(activation="gelu"), dict(bias=False)], ids=str)
def test_encoder_layer_on_every_path(device, options):
    layer = nn.TransformerEncoderLayer(D, H, FF, batch_first=True, device=device, **options)
    x = torch.randn(B, L, D, device=device)
    for train in (True, False):
        layer.train(train)
        for mode in (torch.enable_grad, torch.no_grad, torch.inference_mode):
            with mode():
                report = fk.count(layer, x, strict=True)
            assert report.model_flops == report.flops == ENCODER, (train, mode)
            assert kinds(report) == ((ENCODER - CORE) // 2, CORE // 2), (train, mode)


def fast(layer, *args, **kwargs):
    """The report of a call that must take the fast path, as it does uncounted."""
    with torch.no_grad():
        report = fk.count(layer, *args, strict=True, **kwargs)
    assert "_transformer_encoder_layer_fwd" in [row["operator"] for row in report.by_op()]
    return report


def test_what_the_fast_path_does_element_by_element():
    """Of each token: biases, two sums, two norms of D numbers; of each inner number its activation."""
    layers = {
        name: nn.TransformerEncoderLayer(D, H, FF, batch_first=True, activation=name).eval()
        for name in ("relu", "gelu")
    }
    relu, gelu = (fast(layer, torch.randn(B, L, D)).vector_flops for layer in layers.values())
    each = [fk.activation(name, elements=B * L * FF).vector_flops for name in ("relu", "gelu")]
    assert gelu - relu == each[1] - each[0] > 0


def test_the_fast_path_stays_the_fast_path():
    layer = nn.TransformerEncoderLayer(D, H, FF, batch_first=True).eval()
    x = torch.randn(B, L, D)
    report = fast(layer, x)
    weights = 4 * D * D + 4 * D + 2 * D * FF + FF + D + 4 * D
    assert report.bytes == 4 * (weights + 2 * B * L * D)
    norms = 2 * fk.layer_norm(tokens=B * L, d=D).vector_flops
    biases = B * L * (4 * D + FF + D)
    assert report.vector_flops == biases + B * L * FF + norms + 2 * B * L * D + 6 * B * H * L * L
    attention = nn.MultiheadAttention(D, H, batch_first=True).eval()
    with torch.no_grad():
        report = fk.count(attention, x, x, x, strict=True)
    assert [row["operator"] for row in report.by_op()] == ["_native_multi_head_attention"]
    assert report.vector_flops == B * L * 4 * D + 6 * B * H * L * L


def test_the_fast_path_and_a_mask():
    layer = nn.TransformerEncoderLayer(D, H, FF, batch_first=True).eval()
    x = torch.randn(B, L, D)
    causal = nn.Transformer.generate_square_subsequent_mask(L)
    for told in (True, False):  # its operator gets but the tensor
        report = fast(layer, x, src_mask=causal, is_causal=told).under(EXACT)
        assert report.model_flops == report.flops == ENCODER
        assert any("a bias or a mask" in note for note in report.notes)
    with torch.enable_grad():
        trained = fk.count(lambda: layer.train()(x, src_mask=causal, is_causal=True)).under(EXACT)
    assert trained.model_flops == ENCODER - CORE + VISIBLE


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_an_encoder_that_leaves_the_padding_out():
    lengths = [4, 6]
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(D, H, FF, batch_first=True), 2).eval()
    x = torch.randn(B, L, D)
    padding = torch.arange(L).expand(B, L) >= torch.tensor(lengths).unsqueeze(1)
    with torch.no_grad():
        wanted = encoder(x, src_key_padding_mask=padding)
        results = []
        report = fk.count(lambda: results.append(encoder(x, src_key_padding_mask=padding)))
    torch.testing.assert_close(results[0], wanted)
    tokens, pairs = sum(lengths), sum(n * n for n in lengths)
    products = 2 * tokens * (4 * D * D + 2 * D * FF)
    assert report.model_flops == 2 * (products + 2 * 2 * pairs * D)
    assert report.flops == 2 * (
        products + 2 * 2 * B * L * L * D
    )  # projections on the tokens there are, scores on padded ones


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("train", [True, False])
def test_decoder_layer(device, train):
    layer = nn.TransformerDecoderLayer(D, H, FF, batch_first=True, device=device).train(train)
    x, memory = torch.randn(B, L, D, device=device), torch.randn(B, 9, D, device=device)
    report = fk.count(layer, x, memory)
    cross = 2 * B * D * D * (2 * L + 2 * 9) + 2 * 2 * B * L * 9 * D
    assert report.model_flops == PROJECTIONS + CORE + cross + 2 * 2 * B * L * D * FF
    assert kinds(report)[1] == (CORE + 2 * 2 * B * L * 9 * D) // 2


def test_one_operator_with_more_keys_than_queries():
    """2 sequences of 3 queries and 5 keys, 2 heads of 4: what query, key, value and output are projected with is 8 by 8."""
    with torch.device("meta"):
        q, k, w, b = torch.empty(2, 3, 8), torch.empty(2, 5, 8), torch.empty(24, 8), torch.empty(24)
        args = (q, k, k, 8, 2, w, b, torch.empty(8, 8), torch.empty(8))
    work = multi_head_attention(OpCall(torch.ops.aten._native_multi_head_attention.default, args, {}, (q, None)))
    pairs = 2 * 2 * 3 * 5
    assert work.model == {"products": (6 + 10 + 10 + 6) * 8 * 8, "scores": pairs * (4 + 4)}
    # A bias for each projected number; scale, and five for softmax, a score.
    assert work.vector == {"elementwise": (6 + 10 + 10 + 6) * 8, "softmax": pairs * (1 + 5)}
