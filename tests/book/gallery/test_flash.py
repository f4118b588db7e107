"""Attention in separate kernels and in a flash kernel: against a program that torch runs, and numbers worked out by hand."""

import re

import pytest

import flopkit as fk
from flopkit.book.gallery import eager_and_flash
from flopkit.charts import theme

FIGURE = eager_and_flash()
BOTH, FORWARD = "forward and backward", "forward"


@pytest.mark.parametrize("head_dim", [32, 128])
def test_separate_kernels_move_what_a_plain_program_moves(head_dim):
    """What is as large as the scores moves 4 and 11 times."""
    torch = pytest.importorskip("torch")
    tokens = 2048

    def plain(q, k, v):
        return (q @ k.mT).softmax(-1) @ v

    for passes, transfers, products in ((FORWARD, 4, 2), (BOTH, 11, 6)):
        with torch.device("meta"):
            q, k, v = (
                torch.empty(1, 32, tokens, head_dim, dtype=torch.bfloat16).requires_grad_(passes == BOTH) for _ in "qkv"
            )
            grad = torch.empty(1, 32, tokens, head_dim, dtype=torch.bfloat16)
        with fk.counting() as report:
            out = plain(q, k, v)
            if passes == BOTH:
                out.backward(grad)
        found = FIGURE.at(tokens=tokens, head_dim=head_dim, passes=passes)
        scores = 2 * 32 * tokens**2
        assert (
            found["scores"] == scores
            and found["eager_flops"] == report.flops == products * 2 * 32 * tokens**2 * head_dim
        )
        copied = sum(
            row["bytes"] for row in report.by_op() if row["operator"] == "copy_"
        )  # a gradient, brought into order
        assert found["eager_bytes"] == report.bytes - copied
        assert transfers * scores < found["eager_bytes"] < (transfers + 1.5) * scores


def test_flash_by_hand():
    """4,096 tokens, 32 heads of 128 on an H100 in bf16: a pair costs 512 FLOPs forward and 1,280 backward; a tensor has 33.6 MB."""
    found = FIGURE.at()
    pairs, tensor = 32 * 4096**2, 2 * 32 * 4096 * 128
    assert found["flash_flops"] == (512 + 1280) * pairs and found["flash_bytes"] == (4 + 8) * tensor
    assert found["flash"] == pytest.approx((512 + 1280) * pairs / 989.4e12) and found["flash_bound"] == "compute"
    assert found["eager"] == pytest.approx(found["eager_bytes"] / 3.35e12), "every separate kernel is memory-bound"
    assert found["more"] == pytest.approx(1 / 6) and FIGURE.at(passes=FORWARD)["more"] == 0
    assert FIGURE.at(tokens=256)["flash_bound"] == "memory"


@pytest.mark.parametrize("device", FIGURE.controls["device"].options)
@pytest.mark.parametrize("head_dim", [32, 256])
def test_flash_is_never_slower_on_paper_unless_products_limit_both(device, head_dim):
    for tokens in FIGURE.controls["tokens"].options:
        found = FIGURE.at(tokens=tokens, head_dim=head_dim, device=device)
        assert found["eager_bytes"] > found["flash_bytes"] and found["flash"] >= found["flash_traffic"] * (1 - 1e-12)
        assert found["faster"] >= 6 / 7 - 1e-9


def test_exponentials_beside_the_products_of_the_forward_pass():
    """The chapter says how long those take that the figure leaves out. A multiprocessor gives 16 exponentials a clock (CUDA C++ programming guide, throughput of arithmetic instructions, 7.5 to 10.0)."""
    assert "Exponentials and launches are left out" in FIGURE.caption
    pair = 2 * 2 * 128  # FLOPs of a pair of tokens forward, which has one exponential
    for device, share in (("h100-sxm", 0.5), ("b200", 1)):
        assert (1 / 16) / (pair / fk.device(device).derivation.flops_per_clock["bf16"]) == share


@pytest.mark.parametrize("device", FIGURE.controls["device"].options)
def test_the_caption_says_where_the_dashes_are_hidden(device):
    """The bytes of separate kernels take all of their time with heads of up to 128; with 256 the products show on some devices."""
    assert "for separate kernels with heads of up to 128 it coincides with the solid line" in FIGURE.caption
    for passes in (FORWARD, BOTH):
        for head_dim in (32, 64, 128):
            rows = FIGURE.rows(device=device, passes=passes, head_dim=head_dim)
            assert max(row["eager"] / row["eager_traffic"] for row in rows) < 1.01
    if device.startswith("A100"):
        assert (
            FIGURE.rows(device=device, head_dim=256)[-1]["eager"]
            > 1.3 * FIGURE.rows(device=device, head_dim=256)[-1]["eager_traffic"]
        )


@pytest.mark.parametrize("tokens", [256, 65536])
def test_names_stand_at_the_ends_of_their_lines(tokens):
    """Beside a dot at the left, on a phone, a name lay across its own line and the other's. "Flash" stands below its line, clear of it."""
    pytest.importorskip("altair")
    svg = FIGURE.svg(width=360, tokens=tokens)
    ends = [
        re.findall(rf'M[^"]*L([\d.]+),([\d.]+)"[^>]*stroke="{colour}" stroke-width="2.5"', svg)[-1]
        for colour in (theme.ORANGE, theme.BLUE)
    ]
    names = [
        re.search(rf'anchor="end" transform="translate\(([\d.]+),([\d.]+)\)[^>]*>{name}<', svg).groups()
        for name in ("separate kernels", "flash")
    ]
    assert [x for x, _ in ends] == [x for x, _ in names]
    over, below = (float(name) - float(line) for (_, line), (_, name) in zip(ends, names, strict=True))
    assert over < -10 and below > 26 and "dashed: time of the bytes" in svg
