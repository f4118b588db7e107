"""What frameworks print: flopkit's number of each formula against a second one, written from the same source without flopkit, and that one
against the numbers that the frameworks print themselves."""

import importlib.util
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from trainer_formulas import FORMULAS, sizes, torchtitan, verl

import flopkit as fk
from book_ext import trainers_page
from flopkit.models.files.configs import hf_config
from flopkit.published import Trainer, trainer, trainer_names, trainers
from flopkit.published.audit import MODELS
from flopkit.recordings.bridge import SEQUENCES

SEQ = {**MODELS, "gpt2": 1024}
WITHOUT = {"transformers", "trainmeter", "lightning"}  # whose own code is run below
CLOSE = {"olmo-core": 1e-6, "llm.c": 5e-4}  # the norm before the head; a padded vocabulary
PAGE = (Path(__file__).parents[2] / "book" / "trainers.md").read_text("utf8")


@pytest.mark.parametrize("name", [name for name in trainer_names() if name not in WITHOUT])
@pytest.mark.parametrize("factor", [1, 0.5, 4])
def test_each_formula_is_that_of_its_source(name, factor):
    one = trainer(name)
    for model in (*one.models, *one.also):
        seq = min(int(SEQ[model] * factor), 1024 if model == "gpt2" else 10**6)
        theirs = FORMULAS[name](sizes(hf_config(model)), seq)
        assert one.flops_per_token(model, seq) == pytest.approx(theirs, rel=CLOSE.get(name, 1e-12)), model


@pytest.mark.parametrize("name", trainer_names())
def test_the_reasons_are_the_whole_difference(name):
    """EXACT by a route of its own: a training step, or a prefill."""
    one = trainer(name)
    for model in (*one.models, *one.also):
        seq = SEQ[model]
        found = fk.load(model)
        exact = found.prefill(prompt=seq).flops / seq if one.serves else found.train_step(seq=seq).flops_per_token
        reasons = sum(cause.share for cause in one.causes(model, seq))
        assert one.flops_per_token(model, seq) == pytest.approx(exact * (1 + reasons), rel=1e-9)


def test_a_window_longer_than_the_text_is_none():
    for name in ("megatron-bridge", "maxtext", "verl", "olmo-core", "torchtitan"):
        assert trainer(name).flops_per_token("gpt-oss-120b", 64) == pytest.approx(
            FORMULAS[name](sizes(hf_config("gpt-oss-120b")), 64), rel=1e-6
        )


VERL = [  # sizes, lengths, TFLOP, from tests/utils/test_flops_counter.py of the version that was read
    ("llama", {"vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 32}, (149226491215872, 536372695793664)),
    ("qwen3_moe", {"vocab_size": 151936, "hidden_size": 2048, "num_hidden_layers": 48, "num_key_value_heads": 4, "num_attention_heads": 32, "head_dim": 128, "moe_intermediate_size": 768, "num_experts_per_tok": 8, "num_experts": 128}, (78593069678592, 306570470621184)),
    ("gpt_oss", {"vocab_size": 201088, "hidden_size": 2880, "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64, "intermediate_size": 2880, "num_local_experts": 32, "num_experts_per_tok": 4, "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12}, (91780464771072, 323953008574464)),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "config", "printed"), VERL)
def test_verl_gives_the_integers_of_its_own_tests(kind, config, printed):
    found = sizes({"model_type": kind, **config})
    for lengths, flops in zip(([512, 1024, 2048], [4096] * 3), printed, strict=True):
        assert sum(verl(found, t) * t for t in lengths) == pytest.approx(flops, rel=1e-14)


def test_torchtitan_gives_the_integers_of_pull_request_4300():
    """Before it, and after it with windowed layers at min(T, W): gpt-oss 120b and 20b, 4,096 tokens."""
    for model, before, after in (("gpt-oss-120b", 38_044_854_144, 34_534_221_696), ("gpt-oss-20b", 26_481_681_792, 24_141_260_160)):  # fmt: skip
        found = sizes(hf_config(model))
        assert torchtitan(found, 4096) == before
        less = sum(found.windowed) * 12 * found.heads * found.q * (4096 - 128)
        assert torchtitan(found, 4096) - less == after
    assert round(trainer("torchtitan").flops_per_token("gpt-oss-120b", 4096)) == 38_044_854_144


def test_nemo_rl_gives_the_numbers_of_its_own_tests():
    """Within the 5 % that its tests allow: FLOPs of 128 sequences."""
    for model, seq, printed in (("llama-3-8b", 8192, 5.31e16), ("llama-3.1-70b", 8192, 4.71e17), ("qwen3-30b-a3b", 4096, 1.21e16), ("qwen3-235b-a22b", 4096, 7.76e16)):  # fmt: skip
        assert FORMULAS["nemo-rl"](sizes(hf_config(model)), seq) * 128 * seq == pytest.approx(printed, rel=0.05)


@pytest.mark.parametrize("model", [*MODELS, "gpt2"])
def test_total_flos_is_what_transformers_computes(model):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    config = transformers.AutoConfig.for_model(**hf_config(model))
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(config)
    inputs = {"input_ids": torch.empty(2, 8, dtype=torch.long, device="meta")}
    found = transformers.Trainer.floating_point_ops(SimpleNamespace(model=built), inputs) / 16
    assert trainer("transformers").flops_per_token(model, SEQ[model]) == pytest.approx(found, rel=1e-9)


@pytest.mark.skipif(importlib.util.find_spec("trainmeter") is None, reason="trainmeter is not installed")
def test_trainmeter_computes_what_the_page_says():
    from trainmeter import ModelShape, flops_per_token

    for model, seq in MODELS.items():
        config, loaded = hf_config(model), fk.load(model)
        embedding = config["vocab_size"] * config["hidden_size"]
        shape = ModelShape(loaded.params, embedding, config["num_hidden_layers"], config["hidden_size"], seq)
        assert trainer("trainmeter").flops_per_token(model, seq) == pytest.approx(
            flops_per_token(shape, "titan"), rel=1e-9
        )


def test_lightning_counts_by_torch():
    """measure_flops is torch's counter; a Llama of two layers, and the same formula."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    config = {**hf_config("llama-3-8b"), "num_hidden_layers": 2}
    with torch.device("meta"):
        llama = transformers.AutoModelForCausalLM.from_config(
            transformers.AutoConfig.for_model(**config), attn_implementation="eager"
        )
        ids = torch.empty(1, 256, dtype=torch.long)
    if importlib.util.find_spec("lightning"):
        from lightning.fabric.utilities.throughput import measure_flops

        flops = measure_flops(llama, lambda: llama(ids).logits, lambda logits: logits.sum())
    else:
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            llama(ids).logits.sum().backward()
        flops = counter.get_total_flops()
    s = sizes(config)
    matmuls = s.layers * (s.h * s.q * (2 * s.heads + 2 * s.kv) + 3 * s.h * s.f) + s.h * s.v
    assert flops / 256 == 6 * matmuls + 12 * s.layers * s.heads * s.q * 256
    whole, seq = sizes(hf_config("llama-3-8b")), SEQ["llama-3-8b"]
    matmuls = (
        whole.layers * (whole.h * whole.q * (2 * whole.heads + 2 * whole.kv) + 3 * whole.h * whole.f)
        + whole.h * whole.v
    )
    assert trainer("lightning").flops_per_token("llama-3-8b", seq) == pytest.approx(
        6 * matmuls + 12 * 32 * 4096 * seq, rel=1e-12
    )


def test_nvidia_s_tables_come_out():
    """265 rows of the source, of which 14 have a second figure: all but one within 1 % or their rounding, by the formula of their release. Three releases print tokens/s
    of whole sequences; of the others all but two are within 0.5 %."""
    rows = fk.recordings.megatron_bridge()
    assert len(rows) == 265 + 14
    assert [(row["release"], row["model"], row["printed"]) for row in rows if not row["agrees"]] == [
        ("26.08", "nemotron-3-ultra-550b-a55b", 923)
    ]
    finer = [row for row in rows if f"r{row['release']}" not in SEQUENCES]
    assert len(finer) == 172 + 31
    assert [row["model"] for row in finer if abs(row["by ours"] - 1) >= 0.005] == ["gpt-oss-120b"]
    assert sum(row["verdict"] != "not reproduced" for row in rows) > 0.8 * len(rows), (
        "inside the rounding of their own digits"
    )
    assert {row["model"] for row in rows if abs(row["by EXACT"] - 1) >= 0.005} == {
        row["model"] for row in rows if row["why"]
    }
    per_token = {(row["model"], row["seq"]): row["GFLOPs"] for row in rows}
    assert per_token["gpt-oss-120b", 8192] == pytest.approx(
        30.79, rel=2e-3
    )  # 6 · 92.9 M · 36 + 6 · 579.13 M + 6 · 36 · 4096 · T


def test_a_name_or_a_model_that_is_not_there():
    with pytest.raises(ValueError, match="torchtitan"):
        trainer("torchtitn")
    with pytest.raises(ValueError, match="TRL"):
        trainer("trl").flops_per_token("gpt-oss-120b", 4096)
    with pytest.raises(ValueError, match="gpt2"):
        trainers("gpt3", seq=8)


def test_every_formula_says_where_it_was_read():
    for name in trainer_names():
        one = trainer(name)
        assert isinstance(one, Trainer) and all((one.does, one.formula, one.fix, one.function, one.date))
        assert one.url.startswith("https://") and one.commit in one.url
        assert re.fullmatch(r"[0-9a-f]{40}|v?\d+\.\d+\.\d+", one.commit)


def test_the_page_says_what_its_tables_say():
    """The prose has digits of its own: how many tools, the groups, the conversion."""
    shown = [name for name in trainer_names() if name != trainers_page.OLD]
    assert len(shown) == 16 and "sixteen training frameworks and servers" in PAGE
    assert {"Megatron-LM", "Megatron-Bridge", "MaxText", "NeMo RL", "verl"} == {trainer(name).title for name in shown if trainer(name).scores == "half"} - {"llm.c"}  # fmt: skip
    assert "Megatron-LM, Megatron-Bridge, MaxText, NeMo RL and verl" in PAGE
    share = trainers("llama-3-8b", seq=32_768)
    [titan] = [row["by EXACT"] for row in share if row["framework"] == "torchtitan"]
    assert f"50 / {titan:.3f} = {50 / titan:.0f} % by EXACT" in PAGE
    text = "\n".join(
        (trainers_page.training(), trainers_page.small(), trainers_page.serving(), trainers_page.reasons())
    )
    links, targets = set(re.findall(r'href="#([\w-]+)"', text)), set(re.findall(r'id="([\w-]+)"', text))
    assert links == targets and len(targets) == 16
    assert (
        "**278 of the 279 figures come out within 1 % or their rounding, 257 of them within 0.5 %**"
        in trainers_page.bridge_in_words()
    )
    assert "at 40 % MFU by the count of" in trainers_page.spread()
