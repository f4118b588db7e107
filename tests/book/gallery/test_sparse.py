"""The figure of experts between two dense layers: times by hand, and where each becomes compute-bound by trying token after token."""

import pytest

import flopkit as fk
from flopkit.book.gallery import sparse_and_dense
from flopkit.book.gallery.sparse import EXPERTS

FIGURE = sparse_and_dense()
H100 = fk.device("h100-sxm")
DEEPSEEK, QWEN, MIXTRAL = EXPERTS


@pytest.mark.parametrize("tokens", [1, 128, 262144])
def test_the_times_of_deepseek_by_hand(tokens):
    """256 experts of three 7,168 x 2,048 matrices in bf16, 8 for a token; a layer also reads and writes its tokens, and a small router."""
    expert = 3 * 7168 * 2048
    found = FIGURE.at(tokens=tokens)
    for name, read, used in (("sparse", min(256, 8 * tokens), 8), ("active", 8, 8), ("whole", 256, 256)):
        moved = 2 * read * expert + 2 * 2 * tokens * 7168
        by_hand = max(2 * tokens * used * expert / 989.4e12, moved / 3.35e12)
        assert found[f"{name}_seconds"] == pytest.approx(by_hand, rel=0.011), name  # the router is at most a hundredth
    assert found["weights"] == 2 * 256 * expert


@pytest.mark.parametrize("shown", EXPERTS)
def test_where_each_becomes_compute_bound(shown):
    """Tried from token to token: before the knee bytes take longer, from it on FLOPs do. That of the experts is E/k times as far."""
    sizes = EXPERTS[shown]
    found = FIGURE.at(sizes=shown)
    layers = {
        "sparse": sizes,
        "active": {**sizes, "d_ff": sizes["top_k"] * sizes["d_ff"], "experts": 1, "top_k": 1},
        "whole": {**sizes, "d_ff": sizes["experts"] * sizes["d_ff"], "experts": 1, "top_k": 1},
    }
    for name, size in layers.items():
        first = found[f"{name}_from"]
        at = [fk.roofline(fk.moe(tokens=int(n), **size), H100).bound for n in (first - 1, first)]
        assert at == ["memory", "compute"], name
    ratio = sizes["experts"] / sizes["top_k"]
    assert found["sparse_from"] / found["active_from"] == pytest.approx(ratio, rel=0.12)
    # few tokens: as long as the full size. Many: as long as the active size
    few, many = FIGURE.at(sizes=shown, tokens=64), FIGURE.at(sizes=shown, tokens=262144)
    assert few["sparse_seconds"] == pytest.approx(few["whole_seconds"], rel=0.01)
    assert many["sparse_seconds"] == pytest.approx(many["active_seconds"], rel=0.02)


def test_gpus_that_share_the_experts():
    """Each of 64 holds 4 of 256 experts, reads a 64th of the weights, and sends 63 of 64 rows to another."""
    alone, many = FIGURE.at(), FIGURE.at(gpus=64)
    assert many["weights"] == alone["weights"] / 64 == 2 * 4 * 3 * 7168 * 2048
    assert many["exchange"] == 2 * 128 * 8 * 7168 * 2 * 63 / 64 and alone["exchange"] == 0
    assert many["sparse_seconds"] == pytest.approx((many["weights"] + 4 * 128 * 7168) / 3.35e12, rel=0.01)
    assert many["sparse_from"] < alone["sparse_from"] / 60
    assert many["active_seconds"] == alone["active_seconds"]
    assert (
        FIGURE.at(sizes=MIXTRAL, gpus=64)["weights"]
        == FIGURE.at(sizes=MIXTRAL, gpus=8)["weights"]
        == 2 * 3 * 4096 * 14336
    )
