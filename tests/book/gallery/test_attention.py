"""The models behind the figures on attention, against numbers derived by hand."""

from itertools import product

import pytest

from flopkit.book.gallery import attention_crossing, attention_pairs
from flopkit.book.gallery.attention import EIGHT

PAIRS = attention_pairs()
CROSSING = attention_crossing()


# -- the pairs --------------------------------------------------------------------------------------------------


def test_eight_tokens_by_eye():
    # 1 + 2 + … + 8 pairs, 32 heads, 128 multiply-adds for a score and 128 for a value.
    found = PAIRS.at()
    assert found["pairs"] == 36 and found["hidden"] == 28 and found["share"] == 36 / 64
    assert found["flops"] == 2 * 36 * 32 * 256
    assert found["torch"] == 2 * 64 * 32 * 256


@pytest.mark.parametrize("tokens", [8, 8192, 131_072])
def test_what_counts_exceeds_what_is_hidden_by_the_diagonal(tokens):
    # Below the diagonal and above it lie equally many pairs, and on it one for each token; the panel shows every digit.
    found = PAIRS.at(tokens=tokens)
    assert found["pairs"] - found["hidden"] == tokens
    shown = PAIRS.texts(tokens=tokens)
    assert shown["pairs"] != shown["hidden"]


def test_bytes_of_both_kernels():
    # 2 bytes each: Q and output 8·32·128, K and V 8·8·128; the math kernel moves 32·8·8 scores four times.
    found = PAIRS.at()
    assert found["flash"] == 2 * (2 * 8 * 32 * 128 + 2 * 8 * 8 * 128)
    assert found["math"] - found["flash"] == 4 * 2 * 32 * 8 * 8


@pytest.mark.parametrize("tokens, cached, span", list(product([1, 3, 8], [0, 2, 9], [1, 2, 5, 40])))
def test_pairs_one_by_one(tokens, cached, span):
    places = range(cached, cached + tokens)
    keys = range(cached + tokens)
    seen = {
        "full": tokens * (cached + tokens),
        "causal": sum(key <= place for place in places for key in keys),
        "window": sum(place - span < key <= place for place in places for key in keys),
    }
    for mask, pairs in seen.items():
        assert PAIRS.at(tokens=tokens, cached=cached, span=span, mask=mask)["pairs"] == pairs


def test_sharing_saves_bytes_and_no_flops():
    names = PAIRS.controls["sharing"].options
    found = [PAIRS.at(tokens=64, heads=32, sharing=name) for name in names]
    assert [each["kv_heads"] for each in found] == [32, 16, 8, 4, 1]
    assert len({each["flops"] for each in found}) == 1
    assert [each["cache"] for each in found] == [2 * 2 * 128 * n for n in (32, 16, 8, 4, 1)]


@pytest.mark.parametrize(
    "heads, kv_heads",
    [(1, [1, 1, 1, 1, 1]), (4, [4, 2, 1, None, 1]), (12, [12, 6, 3, None, 1]), (128, [128, 64, 32, 16, 1])],
)
def test_heads_that_cannot_be_shared_are_refused(heads, kv_heads):
    for name, want in zip(PAIRS.controls["sharing"].options, kv_heads, strict=True):
        found = PAIRS.at(heads=heads, sharing=name)
        assert bool(found["uneven"]) == (want is None)
        assert want is None or found["kv_heads"] == want
        assert (CROSSING.texts(heads=heads, sharing=name)["rest"] == "–") == (want is None)
    assert PAIRS.description(heads=12, sharing=EIGHT).startswith(
        "12 query heads cannot be split like this: one for 8 query heads"
    )
    assert CROSSING.description(heads=12, sharing=EIGHT, head="192, values 128 (latent)").startswith("A log-log plot")


def test_decode_has_the_group_as_its_intensity():
    # One query of 32 heads over T keys of 8: 4·32·128·T FLOPs, 4·8·128·T bytes and a little more.
    found = PAIRS.at(**PAIRS.presets["Llama-3-8B, decode step"])
    assert found["share"] == 1 and found["flops"] == found["torch"] == 4 * 32 * 128 * 8192
    assert 3.99 < found["intensity"] < 4


def test_a_window_reads_only_what_it_sees():
    # One query, 100 keys near enough.
    found = PAIRS.at(tokens=1, cached=8191, mask="window", span=100)
    assert found["pairs"] == 100
    assert found["flash"] == 2 * (2 * 32 * 128 + 2 * 100 * 8 * 128)


def test_deepseek_decodes_on_its_latents():
    # Keys of 576, of which 512 serve as values: each token is cached and read once, 1,152 bytes.
    found = PAIRS.at(**PAIRS.presets["DeepSeek-V3, decode step (absorbed)"])
    assert found["cache"] == 2 * 576
    assert found["flops"] == 2 * 128 * 4096 * (576 + 512)
    assert found["flash"] == 2 * (128 * 576 + 4096 * 576 + 128 * 512)


def test_chunks_sum_to_the_whole():
    chunks = [PAIRS.at(tokens=16, cached=16 * n) for n in range(4)]
    assert sum(each["flops"] for each in chunks) == PAIRS.at(tokens=64)["flops"]


# -- the crossing -----------------------------------------------------------------------------------------------

LLAMA = 2 * (4096 * 128 * (2 * 32 + 2 * 8) + 3 * 4096 * 14336)  # two FLOPs a weight: 436,207,616


def test_llama_3_8b():
    found = CROSSING.at()
    assert found["rest"] == LLAMA == 436_207_616
    assert found["torch"] == 4 * 32 * 128 * 8192
    assert found["core"] == 4 * 32 * 128 * 8193 / 2
    assert (found["crossing"], found["crossing_torch"]) == (53_247, 26_624)


def test_at_the_crossing_both_are_equal():
    assert CROSSING.at(length=53_247)["share"] == 0.5
    assert CROSSING.at(length=26_624)["share_torch"] == 0.5
    assert {26_624, 53_247} <= set(CROSSING.controls["length"].options)  # the slider stops there
    assert CROSSING.at(length=26_624, mask="full")["share"] == 0.5
    assert CROSSING.at(mask="full")["crossing"] == 26_624


@pytest.mark.parametrize("span", [1024, 26_624, 26_625, 30_000, 53_246, 53_247, 100_000])
def test_the_window_meets_where_it_says(span):
    found = CROSSING.at(mask="window", span=span)["crossing"]
    if span <= 26_624:  # a token meets fewer than w keys on average
        assert found == "never"
        assert CROSSING.at(mask="window", span=span, length=2**40)["share"] < 0.5
    else:
        assert CROSSING.at(mask="window", span=span, length=int(found))["share"] >= 0.5
        assert CROSSING.at(mask="window", span=span, length=int(found) - 1)["share"] < 0.5


def test_deepseek_v3():
    # Weights a token meets: the latent projections, and nine experts of 2,048, as wide as one MLP of 18,432.
    attention = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    found = CROSSING.at(**CROSSING.presets["DeepSeek-V3"])
    assert found["projections"] == 2 * attention
    assert found["rest"] == 2 * (attention + 3 * 7168 * 18432)
    assert found["torch"] == 2 * 128 * (192 + 128) * 8192


def test_gpt_2():
    # 12·d² weights: four projections of d², an MLP of 8·d². Equal, every score, at 24·d²/4d = 6d.
    found = CROSSING.at(**CROSSING.presets["GPT-2"])
    assert found["rest"] == 24 * 768**2
    assert (found["crossing"], found["crossing_torch"]) == (12 * 768 - 1, 6 * 768)


def test_the_curves_follow_the_model():
    rows = {row["length"]: row for row in CROSSING.rows()}
    assert rows[1024]["core"] == 4 * 32 * 128 * 1025 / 2
    assert {row["rest"] for row in rows.values()} == {LLAMA}


@pytest.mark.parametrize("figure", [PAIRS, CROSSING], ids=lambda figure: figure.name)
def test_it_draws_at_every_preset(figure):
    pytest.importorskip("vl_convert")
    for settings in figure.presets.values():
        assert "<path" in figure.svg(width=340, **settings)
