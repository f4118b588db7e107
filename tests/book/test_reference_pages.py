"""The digits in the prose of README and of the pages "Hardware" and "Conventions", which have no cells to say them."""

import itertools
import re
import shlex
from pathlib import Path

import flopkit as fk
from book_ext import hardware_page
from flopkit.book.gallery import one_run
from flopkit.cli import main
from flopkit.published import presets

BOOK = Path(__file__).resolve().parents[2] / "book"


def test_what_the_readme_says_of_one_run():
    """The three shares of the preface's figure; the one that counts a multiply-add as one FLOP is a mistake and no convention."""
    text = " ".join((BOOK.parent / "README.md").read_text("utf8").split())
    called = {row["recipe"]: f"{row['called']:.0%}".replace("%", " %") for row in one_run().rows()}
    wrong, ours, palm = (
        called[name] for name in ("EXACT, a multiply-add as one", "visible scores (EXACT)", "6N and all scores (PaLM)")
    )
    assert f"That is {wrong}, {ours} or {palm} of the GPUs' peak" in text
    assert f"{ours} and {palm} follow two conventions, and {wrong} is a mistake" in text and "a lie" not in text
    assert f"{one_run().settings()['tokens_per_s']:,} tokens/s on each of eight H100s" in text
    assert "*What does my model cost?*" in text, "the calculator is one of the ways in"


def test_the_readme_shows_what_the_commands_print(capsys):
    """Each line after a ``$`` is run, and begins with what stands below it; the commands without their output are known, and end well."""
    blocks = re.findall(r"(?m)^    .*\n(?:    .*\n)*", (BOOK.parent / "README.md").read_text("utf8"))
    lines = [line.strip() for block in blocks for line in block.splitlines()]
    (shown,) = (at for at, line in enumerate(lines) if line.startswith("$ "))
    until = next(at for at in range(shown + 1, len(lines)) if not re.match(r"llama|- ", lines[at]))
    assert main(shlex.split(lines[shown])[4:]) == 0
    assert capsys.readouterr().out.splitlines()[: until - shown - 1] == lines[shown + 1 : until] and until > shown + 2
    asked = [shlex.split(line)[3:] for line in lines if re.match("python -m flopkit (count|train|doctor) ", line)]
    assert len(asked) >= 2 and [words for words in asked if main(words)] == []


def test_what_hardware_says_of_its_devices():
    page = (BOOK / "hardware.md").read_text("utf8")
    device = {name: fk.device(name) for name in fk.device_names()}
    h100, h200 = device["h100-sxm"], device["h200"]
    assert f"An H100 SXM has a ridge of {h100.ridge('bf16'):.0f}." in page
    assert f"{1 - 1 / h100.ridge('bf16'):.1%}".replace("%", " %") + " of this device's arithmetic stays idle" in page
    assert f"{h200.bandwidth / h100.bandwidth:.2f} times its bandwidth" in page
    assert f"its ridge falls to {h200.ridge('bf16'):.0f}," in page
    large = fk.matmul(m=8192, k=8192, n=8192)
    assert large.intensity > 2000 > h100.ridge("bf16"), "thousands of FLOPs per byte"
    peaks = [f"{device[name].peak('bf16') / 1e12:,.4g}" for name in ("h100-sxm", "h200", "h800-sxm", "gaudi-3")]
    assert "{}, {} and {} TFLOP/s for H100, H200 and H800".format(*peaks) in page
    assert f"and our source {peaks[3]}" in page and "1835 TFLOP/s" in device["gaudi-3"].notes
    both = [each for each in device.values() if {"bf16", "fp16"} <= set(each.dtypes)]
    assert {each.name for each in both if each.peak("bf16") != each.peak("fp16")} == {"mi100"}, (
        "one peak for them, but for one"
    )
    assert 2 * device["mi100"].peak("bf16") == device["mi100"].peak("fp16")
    p100 = device["p100-sxm"]
    assert round(p100.peak("fp16") / p100.peak("fp32")) == 2
    boards = [f"{device[name].bandwidth / 1e9:.0f}" for name in ("p100-sxm", "p100-pcie")]
    assert "{} and {} GB/s for the two boards of the P100".format(*boards) in page


def cells():
    """Of each device, by column."""
    heads = hardware_page.HEAD
    every = (one for group in hardware_page.GROUPS for one in hardware_page.devices(group))
    return {one.name: dict(zip(heads, hardware_page.row(one), strict=True)) for one in every}


def test_hardware_tells_no_units_from_no_source():
    """fp8 came with Hopper, Ada, CDNA 3 and TPU v5p, fp4 with Blackwell, CDNA 4 and Trainium3."""
    rows = cells()
    assert set(rows) == set(fk.device_names())
    dashes = {
        head: {name for name, row in rows.items() if row[head] == "–"}
        for head in ("fp8", "fp4", "int8", "16 bit", "fp32")
    }
    assert (
        {"p40", "t4", "a100-sxm-80gb", "a30", "rtx-3060", "rtx-a6000", "mi250x-gcd", "tpu-v5e"}
        <= dashes["fp8"]
        <= dashes["fp4"]
    )
    assert not {name for name in dashes["fp8"] if re.match(r"h\d|l\d|rtx-[45]|b\d|g[bh]|mi3|tpu-v5p|tpu-v[67]", name)}
    assert {"h100-sxm", "l40s", "rtx-4080", "mi300x", "mi325x", "tpu-v7x", "gaudi-3", "trainium2"} <= dashes["fp4"]
    assert not {
        name for name in dashes["fp4"] if re.match(r"b\d|gb|rtx-50[5-9]0|rtx-pro|mi35|mi45|rubin|trainium3", name)
    }
    assert (
        dashes["16 bit"] == {"p40", "k80", "k80-die", "m60", "m60-die", "titan-xp", "gtx-1080-ti"}
        and not dashes["fp32"]
        and "v100-sxm" in dashes["int8"]
    )
    for head, key in (("fp8", "fp8"), ("fp4", "fp4"), ("int8", "int8"), ("fp32", "fp32")):
        assert {name for name, row in rows.items() if row[head] not in "?–"} == {
            name for name in rows if key in fk.device(name).dtypes
        }
    for head, unknown in (
        ("fp8", "b100 gb10 l20 l40 rtx-6000-ada rtx-pro-6000 rtx-pro-6000-max-q"),
        ("fp4", "b100 gb10 mi350x rtx-pro-6000 rtx-pro-6000-max-q"),
    ):
        found = {name for name, row in rows.items() if row[head] == "?"}
        assert found == {*unknown.split()}, f"units for {head} without a peak; a device without units belongs in LACKS"
    page = (BOOK / "hardware.md").read_text("utf8")
    assert "A dash (–) means that the device has no such units." in page and "A question mark" in page


def test_a_row_of_hardware():
    assert list(cells()["h100-sxm"].values()) == [
        *("**h100-sxm**", "2022", "989.4", "1,978.9", "–", "1,978.9", "67"),
        *("3.35 TB/s", "295", "85.52", "450", "794.5", "700"),
    ]


def test_hardware_shows_each_maker_with_the_newest_first():
    page = (BOOK / "hardware.md").read_text("utf8")
    for group in hardware_page.GROUPS:
        assert f"hardware_page:{group}\n" in page and getattr(hardware_page, group)().count("\n") > 4
        rows = hardware_page.devices(group)
        for one, after in itertools.pairwise(rows):
            assert one.vendor != after.vendor or one.year >= after.year


def test_the_sources_of_each_device_fold():
    text = hardware_page.sources()
    shown = re.findall(r"<summary>([^:]+): ", text)
    assert sorted(shown) == sorted(fk.device_names()) and text.count("</details>") == len(shown)
    assert "Memory: [Modal, J. Thundergolfer, what nvidia-smi reports](https://thundergolfer.com" in text


def test_what_a_driver_reports():
    """Of the H100 and the H200, in MiB, as nvidia-smi prints them."""
    page = (BOOK / "hardware.md").read_text("utf8")
    h100, h200 = (mib * 2**20 for mib in (81_559, 143_771))
    assert f"{h100 / 1e9:.1f} for an H100 of 80 GB, {h200 / 1e9:.1f} for an H200 of 141 GB" in page
    assert [h100, h200] == [fk.device(name).memory for name in ("h100-sxm", "h200")]


def test_what_conventions_says_of_its_models():
    page = (BOOK / "conventions.md").read_text("utf8")
    steps = {name: fk.load(name).train_step(seq=seq) for name, seq in (("llama-3-8b", 8192), ("gpt2", 1024), ("deepseek-v3", 4096))}  # fmt: skip

    def giga(model, convention):
        return steps[model].under(convention).flops_per_token / 1e9

    exact, torch, palm = (giga("llama-3-8b", name) for name in ("EXACT", "TORCH", "PALM"))
    assert f"TORCH is {torch - exact:.1f} GFLOPs above EXACT" in page
    assert f"PALM is another {palm - torch:.1f} above TORCH" in page
    llama, gpt2, deepseek = (fk.load(name) for name in steps)
    assert f"the embedding's {llama.vocab * llama.d_model / 1e6:.0f} million parameters" in page
    head = 6 * gpt2.vocab * gpt2.d_model / 1e9 / giga("gpt2", "EXACT")
    assert f"loses the head, {100 * head:.0f} % of the step" in page
    assert f"has {deepseek.params / 1e9:.0f} billion parameters" in page
    assert f"a token uses {deepseek.active_params / 1e9:.1f} billion" in page
    times = giga("deepseek-v3", "SIX_N") / giga("deepseek-v3", "EXACT")
    assert f"gives {times:.0f} times what EXACT gives" in page
    same = {}
    for name in presets():
        same.setdefault(tuple(giga(model, name) for model in steps), []).append(name)
    pairs = sorted(sorted(names) for names in same.values() if len(names) > 1)
    assert pairs == [["DEEPSEEK", "MEGATRON"], ["MAXTEXT_2024", "TORCH"], ["MEGATRON_2021", "MEGATRON_2022"], ["PALM", "TORCHTITAN_2024"]]  # fmt: skip
    assert "Four rows have two names." in page and "Twenty conventions" in page and len(presets()) == 20
