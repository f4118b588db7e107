"""The model behind the figure of the backward pass, against a Llama of torch that runs on the meta device."""

import random

import pytest

import flopkit as fk
from flopkit.book.gallery import backward_stack

torch = pytest.importorskip("torch")
nn, functional = torch.nn, torch.nn.functional

FIGURE = backward_stack()
WIDTH, HIDDEN, VOCABULARY = 4096, 14336, 128256


class Product(nn.Module):
    """A matrix, and beside it an adapter, base first as in PEFT."""

    def __init__(self, d_in, d_out, how, rank):
        super().__init__()
        self.base = nn.Linear(d_in, d_out, bias=False)
        self.base.weight.requires_grad_(how == "trained")
        self.adapter = (
            nn.Sequential(nn.Linear(d_in, rank, bias=False), nn.Linear(rank, d_out, bias=False))
            if how == "LoRA"
            else None
        )

    def forward(self, x):
        y = self.base(x)
        return y if self.adapter is None else y + self.adapter(x) * 2.0


class Layer(nn.Module):
    def __init__(self, how, rank):
        super().__init__()
        self.q, self.o = (Product(WIDTH, WIDTH, how, rank) for _ in range(2))
        self.k, self.v = (Product(WIDTH, 1024, how, rank) for _ in range(2))
        self.gate, self.up = (Product(WIDTH, HIDDEN, how, rank) for _ in range(2))
        self.down = Product(HIDDEN, WIDTH, how, rank)
        self.before, self.between = (nn.RMSNorm(WIDTH).requires_grad_(how == "trained") for _ in range(2))

    def forward(self, x):
        h = self.before(x)
        q, k, v = (one(h).unflatten(-1, (-1, 128)).transpose(1, 2) for one in (self.q, self.k, self.v))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.o(mixed.transpose(1, 2).flatten(2))
        h = self.between(x)
        return x + self.down(functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self, embedded, quarters, head, rank, checkpoint):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH)
        self.embedding.weight.requires_grad_(embedded == "trained")
        self.layers = nn.ModuleList(Layer(how, rank) for how in quarters for _ in range(8))
        self.norm = nn.RMSNorm(WIDTH).requires_grad_(quarters[-1] == "trained")
        self.head = Product(WIDTH, VOCABULARY, head, rank)
        self.checkpoint = checkpoint

    def forward(self, tokens):
        from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

        x = self.embedding(tokens)
        for layer in self.layers:
            if self.checkpoint == "none":
                x = layer(x)
            else:
                with set_checkpoint_early_stop("early" in self.checkpoint):
                    x = checkpoint(layer, x, use_reentrant=False)
        return self.head(self.norm(x))


def run(settings):
    quarters = [settings[name] for name in ("first", "second", "third", "fourth")]
    with torch.device("meta"):
        model = Llama(settings["embedded"], quarters, settings["head"], settings["rank"], settings["checkpoint"])
        tokens = torch.zeros(1, settings["length"], dtype=torch.long)
    with fk.counting(attention="flash" if "flash" in settings["again"] else "math") as report:
        out = model(tokens)
        if out.requires_grad:
            out.sum().backward()
    matrices = [p for p in model.parameters() if p.dim() == 2]
    trained = sum(p.numel() for p in matrices if p.requires_grad)
    if "EXACT" in settings["pairs"]:  # by itself a report is under TORCH
        report = report.under(fk.conventions.EXACT)
    return report, trained, sum(p.numel() for p in matrices)


def drawn(n):
    rng = random.Random("backward")
    return [{name: rng.choice(control.options) for name, control in FIGURE.controls.items()} for _ in range(n)]


@pytest.mark.parametrize("settings", [*FIGURE.presets.values(), *drawn(8)], ids=str)
def test_a_program_does_what_the_figure_says(settings):
    settings = {**FIGURE.settings(), **settings, "length": 512}
    report, trained, params = run(settings)
    found = FIGURE.at(**settings)
    assert report.model_flops == found["whole_forward"] + found["model"]
    assert found["params"] == trained and found["trained"] == trained / params
    if "flash" in settings["again"]:  # a math kernel executes what the mask hides, too
        assert report.forward.flops == found["whole_forward"]
        assert report.backward.flops == found["model"]
        assert report.recompute.flops == found["extra"]
        assert report.flops == found["step"]


LORA_ABOVE = {"third": "LoRA", "fourth": "LoRA", "first": "frozen", "second": "frozen", "head": "frozen"}


@pytest.mark.parametrize(
    "pairs, ratio, lora", [("visible ones (EXACT)", 0.594, 0.712), ("every score (TORCH)", 0.639, 0.744)]
)
def test_a_reader_who_counts_finds_what_the_chapter_prints(pairs, ratio, lora):
    """Exercise 6 and the guess at the head of the chapter, run as programs: the counter prints TORCH, `.under` the other."""
    settings = {**FIGURE.settings(), "pairs": pairs}
    full, _, _ = run(settings)
    adapters, _, _ = run({**settings, **FIGURE.presets["LoRA, rank 16"]})
    upper, _, _ = run({**settings, **FIGURE.presets["Head only"], **LORA_ABOVE})
    assert full.convention == (fk.conventions.TORCH if "TORCH" in pairs else fk.conventions.EXACT)
    assert round(upper.backward.flops / upper.forward.flops, 3) == ratio
    assert round(adapters.model_flops / full.model_flops, 3) == lora
    assert upper.backward.flops == FIGURE.at(**{**settings, **FIGURE.presets["Head only"], **LORA_ABOVE})["model"]
    assert FIGURE.at(**{**settings, **FIGURE.presets["LoRA, rank 16"]})["of_full"] == pytest.approx(lora, abs=5e-4)


def test_the_parts_are_those_of_the_program():
    settings = {**FIGURE.settings(), **FIGURE.presets["Upper half"], "length": 256}
    report, _, _ = run(settings)
    layer = {row["module"]: row for row in report.by_module(depth=2)}
    for row in FIGURE.rows(**settings):
        if row["part"].startswith("layers"):
            first, last = map(int, row["part"].removeprefix("layers ").split("–"))
            inside = [layer[f"layers.{i - 1}"] for i in range(first, last + 1)]
            assert sum(one["forward"] for one in inside) == row["forward"]
            assert sum(one["backward"] + one["recompute"] for one in inside) == pytest.approx(
                row["times"] * row["forward"]
            )


def test_with_everything_trained_the_model_does_twice_the_forward_pass():
    assert FIGURE.at()["ratio"] == 2
    assert FIGURE.at(again="kept (math)")["executed"] == 2
    assert [row["times"] for row in FIGURE.rows(again="kept (math)")] == [2] * 6


def test_the_gain_of_a_norm_below_asks_for_a_gradient():
    frozen = FIGURE.at(embedded="frozen")
    assert frozen["ratio"] == 2 and frozen["trained"] < 1
    assert (
        FIGURE.at(**FIGURE.presets["LoRA, rank 16"])["ratio"]
        < FIGURE.at(**{**FIGURE.presets["LoRA, rank 16"], "embedded": "trained"})["ratio"]
    )


def test_frozen_on_top_of_trained_still_passes_the_gradient_on():
    rows = {row["part"]: row for row in FIGURE.rows(**FIGURE.presets["Lowest quarter"])}
    assert rows["output head"]["times"] == 1
    assert rows["layers 25–32"]["weight"] == 0 and rows["layers 25–32"]["times"] > 1


def test_nothing_trained_below_costs_nothing():
    rows = {row["part"]: row for row in FIGURE.rows(**FIGURE.presets["Head only"])}
    assert rows["layers 25–32"]["times"] == 0 and rows["output head"]["times"] == 1


def test_the_description_says_what_the_figure_shows():
    everything, head = FIGURE.description(), FIGURE.description(**FIGURE.presets["Head only"])
    assert "layers 1–8 trained" in everything and everything.endswith(f"{FIGURE.texts()['executed']} the forward pass.")
    assert "layers 1–8 frozen" in head and "the output head trained" in head
