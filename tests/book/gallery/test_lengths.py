"""The figure of growing tokens, by hand: pairs of tokens and weights of the layers, from sizes that are written here."""

import pytest

import flopkit as fk
from flopkit.book.gallery import token_growth
from flopkit.book.gallery.lengths import MODELS, SHORT
from flopkit.book.gallery.models import PAIRS

FIGURE = token_growth()
EXACT, TORCH = PAIRS
LENGTHS = (512, 5000, 131072, 2**20)


def seen(length, window=None):
    """Tokens that a token sees on average, one after another counted."""
    first = min(length, window or length)
    return (first * (first + 1) / 2 + (length - first) * first) / length


def by_hand(weights, cores):
    """FLOPs of a token by length: two per weight, and 4 per feature of all heads and token that it sees. *cores*: layers, features, window."""
    return lambda length: 2 * weights + sum(4 * layers * wide * seen(length, window) for layers, wide, window in cores)


LLAMA = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336) + 4096 * 128256
MISTRAL = 32 * (4096 * (2 * 4096 + 2 * 1024) + 3 * 4096 * 14336) + 4096 * 32000
GEMMA = 48 * (3840 * (2 * 4096 + 2 * 2048) + 3 * 3840 * 15360) + 3840 * 262208
DENSE = {
    "llama": by_hand(LLAMA, [(32, 4096, None)]),
    "mistral": by_hand(MISTRAL, [(32, 4096, 4096)]),
    "gemma": by_hand(GEMMA, [(8, 4096, None), (40, 4096, 1024)]),
}


@pytest.mark.parametrize("key", DENSE)
@pytest.mark.parametrize("length", LENGTHS)
def test_full_and_windowed_attention_by_hand(key, length):
    flops = DENSE[key]
    assert FIGURE.at(length=length)[key] == pytest.approx(flops(length) / flops(SHORT), rel=1e-9)


@pytest.mark.parametrize(("key", "layers", "wide"), [("qwen", 8, 4096), ("nemotron", 10, 64 * 128)])
def test_only_the_attention_of_a_hybrid_grows(key, layers, wide):
    """Between two multiples of every chunk, a token of a hybrid gains the pairs of its few attention layers, and nothing else."""
    short = fk.load(MODELS[key][1]).forward(seq=SHORT).flops / SHORT
    at = {length: FIGURE.at(length=length)[key] for length in (4096, 131072)}
    gained = 4 * layers * wide * (seen(131072) - seen(4096)) / short
    assert at[131072] - at[4096] == pytest.approx(gained, rel=2e-3)
    assert at[4096] > 1


def test_a_counter_that_takes_all_pairs_sees_no_window():
    """Llama-3-8B and Mistral-7B v0.1 have the same layers: under TORCH they differ by the head alone, under EXACT by 17 times."""
    every, visible = (FIGURE.at(length=2**20, pairs=pairs) for pairs in (TORCH, EXACT))
    assert every["mistral"] / every["llama"] == pytest.approx(
        (LLAMA + 2 * 32 * 4096 * SHORT) / (MISTRAL + 2 * 32 * 4096 * SHORT), rel=0.01
    )
    assert visible["llama"] / visible["mistral"] > 16
    ranks = sorted(MODELS, key=visible.get)
    assert ranks == ["mistral", "nemotron", "gemma", "qwen", "llama"]
