"""A whole training run against hours that were published, and budgets against the papers' own tables."""

import pytest

import flopkit as fk
from flopkit.training import LAWS, compute_optimal

PEAK = 989.4e12


@pytest.mark.parametrize(("name", "hours", "share"), [
    ("llama-3.1-8b", 1.46e6, 0.1485), ("llama-3.1-70b", 7.0e6, 0.270), ("llama-3.1-405b", 30.84e6, 0.345),
])  # fmt: skip
def test_published_hours_give_an_mfu(name, hours, share):
    """Llama 3.1's model card: hours of an H100, 15·10¹² tokens; the shares computed apart, from the sizes in config.json."""
    run = fk.load(name).training(tokens=15e12, device="h100-sxm", device_hours=hours)
    assert run.mfu == pytest.approx(share, rel=2e-3) and run.device_hours == pytest.approx(hours)
    assert run.kilowatt_hours == pytest.approx(0.7 * hours) and run.dollars is None


def by_hand():
    """FLOPs of a token of Llama-3-8B in training, sequences of 8,192: three passes over weights and visible pairs."""
    weights = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + 4096 * 128256
    return 3 * (2 * weights + 32 * 4 * 4096 * (8192 + 1) / 2)


def test_hours_from_an_mfu():
    run = fk.load("llama-3-8b").training(tokens=15e12, device="h100-sxm", count=1024, mfu=0.4, price=2.5)
    hours = 15e12 * by_hand() / (0.4 * PEAK) / 3600
    assert run.device_hours == pytest.approx(hours) and round(hours, -3) == 542_000
    assert run.hours == pytest.approx(hours / 1024) and run.days == pytest.approx(hours / 1024 / 24)
    assert run.dollars == pytest.approx(2.5 * hours)
    assert run.energy == pytest.approx(700 * 3600 * hours) and run.kilowatt_hours == pytest.approx(0.7 * hours)
    assert run.tokens_per_s == pytest.approx(0.4 * 1024 * PEAK / by_hand())
    assert run.flops == pytest.approx(15e12 * by_hand())


def test_there_and_back():
    model, sizes = (
        fk.load("mixtral-8x7b"),
        {"tokens": 2e12, "device": "a100-sxm-80gb", "count": 256, "seq": 4096, "goodput": 0.85},
    )
    run = model.training(mfu=0.35, **sizes)
    for how in ("device_hours", "hours", "tokens_per_s"):
        again = model.training(**{how: getattr(run, how)}, **sizes)
        assert again.mfu == pytest.approx(0.35) and again.seconds == pytest.approx(run.seconds)


def test_goodput_lengthens_the_run_and_not_the_steps():
    model, sizes = fk.load("llama-3-8b"), {"tokens": 1e12, "device": "h100-sxm", "count": 64}
    whole, half = (model.training(mfu=0.4, goodput=share, **sizes) for share in (1, 0.5))
    assert half.hours == pytest.approx(2 * whole.hours) and half.tokens_per_s == pytest.approx(whole.tokens_per_s)
    assert model.training(device_hours=1e6, goodput=0.5, **sizes).mfu == pytest.approx(
        2 * model.training(device_hours=1e6, **sizes).mfu
    )


def test_recompute_and_adapters():
    model, sizes = fk.load("llama-3-8b"), {"tokens": 1e9, "device": "h100-sxm", "mfu": 0.3}
    plain, again = (model.training(recompute=policy, **sizes) for policy in ("none", "full"))
    assert again.flops == plain.flops and again.hardware_flops / plain.hardware_flops == pytest.approx(1.31, abs=0.03)
    lora = model.training(trained=fk.LoRA(rank=8), **sizes)
    backward = 0.875 * 2 / 3 + 0.125  # of scores and values, an eighth, the whole backward pass
    assert lora.flops / plain.flops == pytest.approx(backward, abs=0.003)


def test_without_a_length_as_many_as_there_are_positions():
    assert fk.load("llama-3-8b").training(tokens=1e9, device="h100-sxm", mfu=0.4).seq == 8192
    assert fk.load("gpt2").training(tokens=1e9, device="h100-sxm", mfu=0.4).seq == 1024


def test_watts():
    model, sizes = fk.load("llama-3-8b"), {"tokens": 1e9, "mfu": 0.4}
    assert model.training(device="h100-sxm", watts=1400, **sizes).energy == pytest.approx(
        2 * model.training(device="h100-sxm", **sizes).energy
    )
    mute, own = (fk.Device("mine", peak={"bf16": 1e15}, bandwidth=1e12, watts=watts) for watts in (None, 300))
    assert model.training(device=mute, **sizes).energy is None
    run = model.training(device=own, **sizes)
    assert run.energy == pytest.approx(300 * run.seconds)


def test_it_says_what_it_knows():
    said = repr(fk.load("llama-3-8b").training(tokens=15e12, device="h100-sxm", count=8, mfu=0.4, price=2, goodput=0.9))
    for text in (
        "1.5e+13 tokens",
        "8 × NVIDIA H100",
        "40 % [EXACT]",
        "under SIX_N",
        "goodput: 90 %",
        "kWh at 700 W",
        "dollars",
    ):
        assert text in said
    mute = fk.Device("mine", peak={"bf16": 1e15}, bandwidth=1e12)
    one = repr(fk.load("llama-3-8b").training(tokens=15e12, device=mute, mfu=0.4))
    assert "kWh" not in one and "dollars" not in one and "days" not in one and "device-hours" in one


@pytest.mark.parametrize(("how", "message"), [
    ({}, "give one of mfu=, device_hours=.*given: none"),
    ({"mfu": 0.4, "hours": 3}, "given: mfu=0.4, hours=3"),
    ({"mfu": 40}, "mfu=40"),
    ({"mfu": 0}, "mfu=0"),
    ({"device_hours": 100}, "above its limit of"),
    ({"mfu": 0.4, "goodput": 1.1}, "goodput=1.1"),
    ({"mfu": 0.4, "price": -1}, "price=-1"),
    ({"mfu": 0.4, "tokens": 0}, "tokens=0"),
    ({"mfu": 0.4, "tokens": 1.5}, "tokens=1.5"),
    ({"mfu": 0.4, "count": 0}, "count=0"),
    ({"mfu": 0.4, "dtype": "fp4"}, "no peak for fp4"),
])  # fmt: skip
def test_what_makes_no_sense_is_refused(how, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fk.load("llama-3-8b").training(**{"tokens": 15e12, "device": "h100-sxm", **how})


def test_models_of_images_and_of_two_texts_are_refused():
    for name in ("vit-b-16", "t5-base"):
        with pytest.raises(ValueError, match="for a model that reads text alone"):
            fk.load(name).training(tokens=1e9, device="h100-sxm", mfu=0.4)


def test_the_laws_give_what_their_papers_print():
    rows = {row["law"]: row for row in compute_optimal(5.76e23)}  # Gopher's budget
    rule = rows["Chinchilla's rule of 20"]
    assert rule["parameters"] == pytest.approx(70e9, rel=0.02) and rule["tokens"] == pytest.approx(1.4e12, rel=0.02)
    again = rows["Chinchilla, fitted again"]  # "consistent with a ratio of about 20 tokens a parameter" at this budget
    assert 18 < again["tokens a parameter"] < 22
    for law in LAWS:
        assert rows[law.name]["tokens"] * rows[law.name]["FLOPs a token"] == pytest.approx(5.76e23)
    [a_day] = [row for row in compute_optimal(8.64e19) if row["law"] == "Kaplan"]
    assert a_day["parameters"] == pytest.approx(1.3e9)
    budget, deepseek = 3e20, LAWS[-1]
    assert budget / deepseek.a_token(budget) == pytest.approx(
        5.8316 * budget**0.4757, rel=2e-3
    )  # the paper's other equation


def test_the_fit_is_the_best_split_of_its_own_loss():
    """N moved by a hundredth at the same FLOPs makes 482.01·N^−0.3478 + 2085.43·D^−0.3658 larger."""
    [row] = [row for row in compute_optimal(1e24) if row["law"] == "Chinchilla, fitted again"]

    def loss(params):
        return 482.01 * params**-0.3478 + 2085.43 * (1e24 / 6 / params) ** -0.3658

    assert loss(row["parameters"]) < min(loss(0.99 * row["parameters"]), loss(1.01 * row["parameters"]))


def test_a_run_beside_the_laws():
    run = fk.load("llama-3-8b").training(tokens=15e12, device="h100-sxm", mfu=0.4)
    own, *laws = run.budgets()
    assert own["law"] == "this run" and own["tokens"] == 15e12 and own["parameters"] == fk.load("llama-3-8b").params
    assert own["tokens"] * own["FLOPs a token"] == pytest.approx(run.flops)
    assert [row["law"] for row in laws] == [law.name for law in LAWS]
    assert run.tokens_per_parameter == pytest.approx(1868, rel=1e-3)
