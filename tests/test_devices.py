"""Devices: peaks against what they are made of, ridge points by hand, names, and what goes wrong."""

import copy
import json
import pickle
import re
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import numpy
import pytest
from device_data import FIELDS, REQUIRED, TEXT, check, check_aliases, check_entry
from printed_devices import DRIVERS, GEFORCE, PRINTED, REPORTED

import flopkit as fk
from flopkit import device_data
from flopkit.derivations import Derivation

CONTRACT = (
    "p100-sxm v100-sxm t4 a10 a100-sxm-40gb a100-sxm-80gb a100-pcie-80gb l4 l40s h100-sxm h100-pcie h200 b200 mi300x rtx-4090"
).split()
EVERY = [(name, dtype) for name in fk.device_names() for dtype in fk.device(name).dtypes]


@pytest.mark.parametrize("name", CONTRACT)
def test_names_of_the_contract(name):
    assert name in fk.device_names()
    assert fk.device(name).name == name


@pytest.mark.parametrize(
    "name, dtype, terms, low, high",
    [
        # units x tensor cores x fused multiply-adds per clock x 2 x Hz, and the interval of the printed peak
        ("t4", "fp16", (40, 8, 64, 2, 1590e6), 64.5e12, 65.5e12),
        ("v100-sxm", "fp16", (80, 8, 64, 2, 1530e6), 124.5e12, 125.5e12),
        ("a100-sxm-80gb", "bf16", (108, 4, 256, 2, 1410e6), 311.5e12, 312.5e12),
        ("h100-sxm", "bf16", (132, 4, 512, 2, 1830e6), 989.35e12, 989.45e12),
        ("h100-sxm", "fp32", (132, 128, 1, 2, 1980e6), 66.5e12, 67.5e12),
        ("h100-sxm", "fp8", (132, 4, 1024, 2, 1830e6), 1978.85e12, 1978.95e12),
        ("rtx-4090", "bf16", (128, 4, 64, 2, 2520e6), 165.15e12, 165.25e12),
        ("rtx-4090", "fp16_fp16acc", (128, 4, 128, 2, 2520e6), 330.25e12, 330.35e12),
        ("p100-sxm", "fp32", (56, 64, 1, 2, 1480e6), 10.55e12, 10.65e12),
        ("mi300x", "bf16", (304, 4, 256, 2, 2100e6), 1307.35e12, 1307.45e12),
        ("tpu-v4", "bf16", (8, 128, 128, 2, 1050e6), 274.5e12, 275.5e12),
    ],
)
def test_peak_is_what_it_is_made_of(name, dtype, terms, low, high):
    product = 1.0
    for term in terms:
        product *= term
    device = fk.device(name)
    assert device.derivation.peak(dtype) == pytest.approx(product, rel=1e-12)
    assert low <= product <= high, "the hand-made product rounds to the printed peak"
    assert low <= device.peak(dtype) <= high


def test_every_derivation_gives_its_peak():
    known = [(n, d) for n, d in EVERY if fk.device(n).derivation and d in fk.device(n).derivation.flops_per_clock]
    assert len(known) > 150
    for name, dtype in known:
        device = fk.device(name)
        assert device.derivation.peak(dtype) == pytest.approx(device.peak(dtype), rel=0.0125), (name, dtype)
        rate = device.derivation.flops_per_clock[dtype]
        assert rate & (rate - 1) == 0, f"{name} {dtype}: {rate} FLOP/clock is no power of two"


@pytest.mark.parametrize(
    "name, peak, bandwidth, ridge",
    [
        ("h100-sxm", 989.4e12, 3.35e12, 295.3),
        ("h200", 989.5e12, 4.8e12, 206.1),
        ("a100-sxm-80gb", 312e12, 2.039e12, 153.0),
        ("a100-pcie-80gb", 312e12, 1.935e12, 161.2),
        ("b200", 2250e12, 8e12, 281.3),
        ("mi300x", 1307.4e12, 5.3e12, 246.7),
    ],
)
def test_ridge_by_hand(name, peak, bandwidth, ridge):
    device = fk.device(name)
    assert (device.peak("bf16"), device.bandwidth) == (peak, bandwidth)
    assert device.ridge("bf16") == pytest.approx(ridge, abs=0.051)


@pytest.mark.parametrize("name, dtype", EVERY)
def test_limit_is_never_below_the_peak(name, dtype):
    device = fk.device(name)
    limit = device.limit(dtype)
    assert isinstance(limit, float)
    assert device.peak(dtype) <= limit <= 1.11 * device.peak(dtype)
    assert limit.rule


def test_limit_by_the_highest_clock():
    assert fk.device("h200").limit("bf16") == 132 * 4096 * 1980e6 == 1_070_530_560_000_000
    assert "1,980 MHz" in fk.device("h200").limit("bf16").rule
    assert fk.device("h100-sxm").limit("fp8") == 132 * 8192 * 1980e6
    assert fk.device("b200").limit("bf16") == pytest.approx(2.3824e15, rel=1e-4)  # 148 x 8192 x 1965 MHz


def test_limit_without_a_known_clock():
    limit = fk.device("rtx-4090").limit("bf16")
    assert limit == pytest.approx(181.72e12)
    assert "1.1 × peak" in limit.rule
    assert fk.Device("x", peak={"bf16": 1e14}, bandwidth=1e12).limit("bf16") == pytest.approx(1.1e14)


def test_limit_where_the_print_rounds_up():
    limit = fk.device("a100-sxm-80gb").limit("bf16")  # 108 x 2048 x 1410 MHz is 311.87, printed as 312
    assert limit == 312e12
    assert "311.9 TFLOP/s" in limit.rule


def test_dense_and_sparse_stay_apart():
    # The numbers that product pages print first for these parts are the sparse ones.
    advertised = {"h100-sxm": 1979e12, "l4": 242e12, "b200": 4500e12, "a100-sxm-80gb": 624e12, "rtx-4090": 330.3e12}
    for name, sparse in advertised.items():
        assert fk.device(name).peak("bf16") == pytest.approx(sparse / 2, rel=2e-3), name
        assert fk.device(name).sparse_peak("bf16") == pytest.approx(sparse, rel=2e-3), name
    for name in ("t4", "v100-sxm", "p100-sxm", "tpu-v4", "mi250x"):
        assert not fk.device(name).sparse
        with pytest.raises(ValueError, match=f"{name} prints no sparse peak for .*for none"):
            fk.device(name).sparse_peak(fk.device(name).dtypes[-1])


@pytest.mark.parametrize(
    "spelled, name",
    [
        # what torch.cuda.get_device_name() says
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100-sxm"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("NVIDIA A100-SXM4-40GB", "a100-sxm-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-sxm-80gb"),
        ("NVIDIA A100-PCIE-40GB", "a100-pcie-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-pcie-80gb"),
        ("Tesla T4", "t4"),
        ("Tesla V100-SXM2-32GB", "v100-sxm"),
        ("Tesla P100-SXM2-16GB", "p100-sxm"),
        ("Tesla P100-PCIE-16GB", "p100-pcie"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA L4", "l4"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("AMD Instinct MI300X", "mi300x"),
        ("HL-225H", "gaudi-2"),  # hl-smi
        ("HL-325L", "gaudi-3"),
        # other spellings
        ("H100_SXM", "h100-sxm"),
        ("h100.sxm", "h100-sxm"),
        (" rtx4090 ", "rtx-4090"),
        ("H100-SXM5", "h100-sxm"),
        ("GB200 (per GPU)", "gb200"),
        ("TPU v6e (Trillium)", "tpu-v6e"),
        ("MI250X (2 GCD)", "mi250x"),
        ("Gaudi3", "gaudi-3"),
        ("Intel® Gaudi® 3 AI Accelerator", "gaudi-3"),
        # nvidia-smi -L and lspci
        ("GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-1b2c3d4e)", "a100-sxm-80gb"),
        ("NVIDIA H200 (UUID: GPU-1b2c3d4e)", "h200"),
        ("NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)", "h100-sxm"),
        ("3D controller: NVIDIA Corporation TU104GL [Tesla T4] (rev a1)", "t4"),
        ("AD102GL [L40S]", "l40s"),
        ("NVIDIA Corporation GA100 [A100 PCIe 40GB]", "a100-pcie-40gb"),
        ("VGA compatible controller: NVIDIA Corporation AD102 [GeForce RTX 4090] (rev a1)", "rtx-4090"),
        ("Advanced Micro Devices, Inc. [AMD/ATI] Aqua Vanjaram [Instinct MI300X]", "mi300x"),
    ],
)
def test_spellings(spelled, name):
    assert fk.device(spelled).name == name


def test_a_device_is_taken_as_it_is():
    assert fk.device(fk.device("t4")) is fk.device("t4")


@pytest.mark.parametrize(
    "name, hint",
    [
        ("h100", "did you mean h100-sxm, h100-pcie or h100-nvl?"),
        ("a100", "a100-sxm-40gb, a100-sxm-80gb, a100-pcie-40gb or a100-pcie-80gb?"),
        ("rtx 4080 supr", "did you mean rtx-4080-super?"),
        ("Trainum2", "did you mean trainium2?"),
        ("gaudi", "did you mean gaudi-2 or gaudi-3?"),
        ("mi300", "did you mean mi300x or mi300a?"),
        ("A100-80G", "did you mean a100-sxm-80gb or a100-pcie-80gb?"),
        ("h100_80g", "did you mean h100-sxm or h100-pcie?"),
        ("4090", "did you mean rtx-4090?"),
        ("Tesla V100-SXM2-16GB-LS", "did you mean v100-sxm-16gb?"),
        ("8x H100", "; it says how many: flopkit.device('H100'), count=8; flopkit.device_names()"),
        ("v5p-128", "; it is a slice of a pod: flopkit.device('tpu-v5p'), count=64;"),
        ("v5litepod-8", "; it is a slice of a pod: flopkit.device('tpu-v5e'), count=8;"),
        ("p5.48xlarge", "; it is a machine, of one or more h100-sxm: "),
        ("DGX-H100", "; it is a machine: name one of its cards, and say how many in count=;"),
        ("gfx942", "; it is an architecture, which mi300a, mi300x or mi325x has;"),
        ("cuda:0", "; flopkit.device() asks torch which card it uses;"),
        ("AMD EPYC 9654", "; of a processor, flopkit.ceilings() measures what it reaches"),
        ("NVIDIA A40-48Q", "; a virtual GPU is a share of a card;"),
        ("NVIDIA H200 MIG 1g.18gb", "; a MIG slice has a share of its card's peak and bandwidth;"),
        ("RTX 4090 Laptop GPU", "; a laptop's part has other peaks than the card of its number"),
        ("rtx 6000", "did you mean quadro-rtx-6000 or rtx-6000-ada?"),
        ("A100-80", "did you mean a100-sxm-80gb or a100-pcie-80gb?"),
        ("a100-40", "did you mean a100-sxm-40gb or a100-pcie-40gb?"),
        ("h1oo", "did you mean h100-sxm, h100-pcie or h100-nvl?"),
        ("RTX 4O90", "did you mean rtx-4090?"),
        ("v6e", "did you mean tpu-v6e?"),
        ("AMD Instinct MI250X / MI250", "did you mean mi250x, mi250, mi250-gcd or mi250x-gcd?"),
        ("Aldebaran/MI200 [Instinct MI250X/MI250]", "did you mean mi250x, mi250, mi250-gcd or mi250x-gcd?"),
        ("NVIDIA H100 96GB HBM3", "; of that name the data has none with 96 GB, but 80 GB;"),
        ("NVIDIA A100-SXM-64GB", "; of that name the data has none with 64 GB, but 40 GB or 80 GB;"),
        ("NVIDIA B200 192GB", "; of that name the data has none with 192 GB, but 180 GB;"),
        ("7900xtx", "did you mean rx-7900-xtx?"),
        ("9070xt", "did you mean rx-9070-xt?"),
        ("7900", "did you mean rx-7900-xtx, rx-7900-xt or radeon-pro-w7900?"),
        ("8x 7900xtx", "; it says how many: flopkit.device('7900xtx'), count=8;"),
        ("AMD Radeon RX 7900 GRE", "; other cards of the data, with other peaks, are rx-7900-xtx or rx-7900-xt;"),
        ("AMD Instinct MI60 / MI50", "did you mean mi50 or mi60?"),
        ("AMD Radeon Graphics", "; flopkit.device_names() lists them"),
        ("A16", "did you mean a16-gpu?"),
        ("RTX 5000", "did you mean quadro-rtx-5000 or rtx-5000-ada?"),
        ("Quadro RTX 4000", "; other cards of the data, with other peaks, are quadro-rtx-5000 or quadro-rtx-6000;"),
        ("NVIDIA GeForce RTX 5090 D", "; other cards of the data, with other peaks, are rtx-5090;"),
        ("NVIDIA RTX PRO 5000 72GB Blackwell", "; of that name the data has none with 72 GB, but 48 GB;"),
        (
            "NVIDIA RTX PRO 4500 Blackwell Server Edition",
            "; other cards of the data, with other peaks, are rtx-pro-4500;",
        ),
        ("Jetson AGX Orin", "did you mean jetson-agx-orin-64gb?"),
        ("Jetson AGX Orin 32GB", "; of that name the data has none with 32 GB, but 64 GB;"),
        *(
            (
                one,
                "alike, which have other peaks and other memory; the AGX Orin with 64 GB is flopkit.device('jetson-agx-orin-64gb');",
            )
            for one in ("Orin", "Orin (nvgpu)", "NVIDIA Orin")
        ),
        *(
            (one, "; two cards, of 2015 and of 2016, have that name, and the TITAN Xp is another;")
            for one in ("TITAN X", "NVIDIA TITAN X (Pascal)", "GeForce GTX TITAN X")
        ),
        (
            "Tesla M4",
            "; apple-m4 is Apple's and not NVIDIA's; write 'apple-m4', or a device of NVIDIA: m60 or m60-die;",
        ),
        ("NVIDIA MI300X", "; mi300x is AMD's and not NVIDIA's; write 'mi300x', or a device of NVIDIA: p100-sxm, "),
        ("v2-8", "; it is a slice of a pod: flopkit.device('tpu-v2'), count=4;"),
        ("gfx1100", "; it is an architecture, which rx-7900-xtx, rx-7900-xt or radeon-pro-w7900 has;"),
        ("Strix Halo", "; it is an architecture, which radeon-8060s has;"),
        ("4x RTX 3090", "; it says how many: flopkit.device('RTX 3090'), count=4;"),
        ("1024xH100", "; it says how many: flopkit.device('H100'), count=1024;"),
        ("2x4090", "; it says how many: flopkit.device('4090'), count=2;"),
        ("H100 SXM5 x 8", "; it says how many: flopkit.device('H100 SXM5'), count=8;"),
        ("8×MI300X", "; it says how many: flopkit.device('MI300X'), count=8;"),
        ("gpu_8x_h100_sxm5", "; it says how many: flopkit.device('h100-sxm5'), count=8;"),
        ("tpu-v5-lite-podslice", "; it is a slice of a pod: flopkit.device('tpu-v5e'), with count=;"),
        ("gfx942:sramecc+:xnack-", "; it is an architecture, which mi300a, mi300x or mi325x has;"),
        ("sm_90a", "; it is an architecture, which an H100, H200, H20 or GH200 has;"),
        ("compute_90", "; it is an architecture, which an H100, H200, H20 or GH200 has;"),
        ("Hopper", "; it is an architecture, which an H100, H200, H20 or GH200 has;"),
        ("mps:0", "; mps is a kind of device, and several have it: name the card;"),
        ("H100:8", "; it says how many: flopkit.device('H100'), count=8;"),
        ("tpu7x-128", "; it is a slice of a pod: flopkit.device('tpu-v7x'), count=64;"),
        ("NVIDIA H20-5e", "; other cards of the data, with other peaks, are h20;"),
        ("NVIDIA A800 40GB Active", "; other cards of the data, with other peaks, are a800-sxm or a800-pcie-80gb;"),
        (
            "NVIDIA RTX A1000",
            "; other cards of the data, with other peaks, are rtx-a2000, rtx-a2000-12gb, rtx-a4000 or rtx-a4500;",
        ),
        ("AMD Instinct MI300X HF", "; other cards of the data, with other peaks, are mi300x or mi300a;"),
        ("Tesla V100S-PCIE-32GB", "; other cards of the data, with other peaks, are v100-sxm, v100-sxm-16gb, "),
        ("Apple M4 Ultra", "; other cards of the data, with other peaks, are apple-m4, apple-m4-pro or apple-m4-max;"),
        ("Ascend910B3", "; other cards of the data, with other peaks, are ascend-950dt;"),
        ("Tesla M40 24GB", "; other cards of the data, with other peaks, are m60 or m60-die;"),
        ("warp drive", "; flopkit.device_names() lists them"),
        ("", "; flopkit.device_names() lists them"),
    ],
)
def test_unknown_name(name, hint):
    with pytest.raises(ValueError) as error:
        fk.device(name)
    assert f"name={name!r}" in str(error.value) and hint in str(error.value)


MACHINES = {  # as AWS, Google Cloud, Azure and Oracle list them
    "h100-sxm": "p5.48xlarge|ml.p5.48xlarge|a3-highgpu-8g|a3-megagpu-8g|Standard_ND96isr_H100_v5|ND H100 v5|ND-H100-v5|BM.GPU.H100.8",
    "h100-nvl": "Standard_NC40ads_H100_v5|NC H100 v5",
    "h200": "p5e.48xlarge|p5en.48xlarge|a3-ultragpu-8g|Standard_ND96isr_H200_v5|ND H200 v5",
    "b200": "p6-b200.48xlarge|a4-highgpu-8g|BM.GPU.B200.8",
    "gb200": "p6e-gb200|p6e-gb200.36xlarge|u-p6e-gb200x72|a4x-highgpu-4g|Standard_ND128isr_NDR_GB200_v6|ND GB200 v6",
    "gb300": "u-p6e-gb300x72|a4x-maxgpu-4g-metal|Standard_ND128isr_GB300_v6",
    "a100-sxm-40gb": "p4d.24xlarge|ml.p4d.24xlarge|a2-highgpu-1g|Standard_ND96asr_v4|ND A100 v4|BM.GPU4.8|BM.GPU.B4.8",
    "a100-sxm-80gb": "p4de.24xlarge|a2-ultragpu-8g|Standard_ND96amsr_A100_v4|NDm A100 v4|BM.GPU.A100-v2.8",
    "a100-pcie-80gb": "Standard_NC24ads_A100_v4|NC A100 v4",
    "k80-die": "p2.xlarge|p2.16xlarge",
    "m60-die": "g3.4xlarge|g3s.xlarge|Standard_NV12s_v3",
    "v100-sxm": "p3dn.24xlarge|Standard_ND40rs_v2",
    "v100-pcie-16gb": "Standard_NC6s_v3",
    "t4": "g4dn.xlarge|Standard_NC64as_T4_v3",
    "mi300x": "Standard_ND96isr_MI300X_v5|BM.GPU.MI300X.8",
    "l4": "g6.12xlarge|gr6.4xlarge|g2-standard-12",
    "l40s": "g6e.48xlarge|BM.GPU.L40S.4",
    "a10": "Standard_NV36ads_A10_v5|VM.GPU.A10.2",
    "tpu-v5p": "ct5p-hightpu-4t",
    "tpu-v6e": "ct6e-standard-8t",
    "tpu-v7x": "tpu7x-standard-4t",
    "trainium2": "trn2.48xlarge|trn2u.48xlarge",
}


@pytest.mark.parametrize(
    ("card", "machine"), [(card, one) for card, all_ in MACHINES.items() for one in all_.split("|")]
)
def test_a_machine_is_told_by_its_card(card, machine):
    with pytest.raises(
        ValueError, match=rf"; it is a machine, of one or more {card}: flopkit\.device\('{card}'\), with count=;"
    ):
        fk.device(machine)
    assert fk.device(card).name == card


@pytest.mark.parametrize(
    "machine",
    [
        "Standard_D96s_v5",
        "g5g.xlarge",
        "g4ad.xlarge",
        "m5.24xlarge",
        "n1-standard-8",
        "c3-highcpu-8",
    ],
)
def test_a_machine_without_a_card_of_the_data(machine):
    with pytest.raises(ValueError) as error:
        fk.device(machine)
    assert "it is a machine" not in str(error.value) and "did you mean" not in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        *(
            "NVIDIA H20-5e",
            "MI308X",
            "Trainium4",
            "NVIDIA GeForce RTX 4090 Laptop GPU",
            "NVIDIA GeForce RTX 5090 D",
            "NVIDIA GeForce RTX 5090 D v2",
            "h1000",
        ),
        *(
            "NVIDIA GeForce RTX 4060 Laptop GPU",
            "NVIDIA H200 MIG 1g.18gb",
            "GRID A100D-10C MIG 1-10C",
            "NVIDIA L2S",
            "TPU v8",
        ),
        *("AMD Instinct MI430X", "NVIDIA A100X", "Tesla K40m", "NVIDIA RTX 5880 Ada Generation", "Ascend 910B"),
        *(
            "NVIDIA GeForce RTX 5060",
            "Quadro P6000",
            "Apple M4 Ultra",
            "NVIDIA M4",
            "GTX 1660 Ti",
            "RTX PRO 4000 Blackwell",
            "Tesla V100S-PCIE-32GB",
            "NVIDIA A100-SXM-64GB",
        ),
        *("Tesla P100-PCIE-12GB", "NVIDIA H100 80GB HBM2e", "NVIDIA RTX PRO 6000 Blackwell Server Edition MIG 1g.24gb"),
    ],
)
def test_a_card_of_another_class_is_not_offered(name):
    with pytest.raises(ValueError) as error:
        fk.device(name)
    assert "did you mean" not in str(error.value)
    line = re.search(r"fk\.Device\(.*memory=\.\.\.\)", str(error.value))[0]
    assert line == f"fk.Device({name!r}, peak={{'bf16': ...}}, bandwidth=..., memory=...)"
    filled = line.replace("'bf16': ...", "'bf16': 148e12").replace("=...", "=4e12")
    assert eval(filled, {"fk": fk}).name == name


@pytest.mark.parametrize("name", [3, 1.5, ["t4"], True])
def test_not_a_name(name):
    with pytest.raises(TypeError, match=re.escape(f"name={name!r}") + ".*must be a name"):
        fk.device(name)


def test_unknown_format():
    with pytest.raises(ValueError, match=r"dtype='bf16': t4 has no peak for bf16; it has fp32, fp16, int8, int4"):
        fk.device("t4").peak("bf16")
    with pytest.raises(ValueError, match=r"dtype='bf17' is not a known number format; did you mean bf16"):
        fk.device("t4").ridge("bf17")
    with pytest.raises(ValueError, match="p100-sxm has no peak for fp8"):
        fk.device("p100-sxm").limit("fp8")


def test_spellings_of_formats():
    torch = pytest.importorskip("torch")
    h100 = fk.device("h100-sxm")
    assert h100.peak(torch.bfloat16) == h100.peak("bfloat16") == h100.peak("BF16") == 989.4e12
    assert h100.peak(torch.float8_e4m3fn) == h100.peak("fp8")
    assert fk.device("a100-sxm-80gb").peak("float16_nontensor") == 78e12


def test_one_of_your_own():
    mine = fk.Device("mine", peak={"bfloat16": 100e12, "fp32": 10e12}, bandwidth=2e12, memory=16e9)
    assert mine.dtypes == ("bf16", "fp32")
    assert (mine.ridge("bf16"), mine.memory, mine.source) == (50.0, 16e9, "given by the caller")
    assert mine.derivation is None and mine.link_bandwidth is None


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"peak": 989e12}, "peak=.*give FLOP/s by number format"),
        ({"peak": {}}, "peak=.*give FLOP/s by number format"),
        ({"peak": {"bf16": -1}}, r"peak\['bf16'\]=-1: must be a finite number of FLOP/s above 0"),
        ({"peak": {"bf16": float("nan")}}, r"peak\['bf16'\]=nan: must be a finite"),
        ({"peak": {"bf17": 1e12}}, "dtype='bf17'"),
        ({"bandwidth": 0}, "bandwidth=0: must be a finite number of bytes/s above 0"),
        ({"bandwidth": "3 TB/s"}, "bandwidth='3 TB/s': must be a number of bytes/s"),
        ({"memory": True}, "memory=True: must be a number of bytes"),
        ({"name": 3}, "name=3: must be text"),
        ({"peak": {"bf16": 1e12, "bfloat16": 2e12}}, "two of these names are the same number format"),
        ({"peak": {"bf16": numpy.array([1e12, 2e12])}}, r"peak\['bf16'\]=array.*must be a number of FLOP/s"),
        ({"sparse": "bf16"}, r"sparse='bf16': give number formats in a list, e.g. sparse=\['bf16'\]"),
        ({"sparse": ["bf16", "fp8"]}, r"sparse=\['bf16', 'fp8'\]: of these, mine has a dense peak for \['bf16'\] only"),
        ({"memory": 1e9, "usable": 2e9}, "usable=2000000000.0: more than the memory, 1000000000.0 bytes"),
        ({"ceilings": {"fp8": 1e12}}, r"ceilings=\['fp8'\]: of these, mine has a dense peak for \[\] only"),
        ({"watts": 0}, "watts=0: must be a finite number of watts above 0"),
        ({"derivation": "132 SM"}, "derivation='132 SM': must be a flopkit.devices.Derivation"),
    ],
)
def test_one_of_your_own_gone_wrong(wrong, message):
    with pytest.raises((TypeError, ValueError), match=message):
        fk.Device(**({"name": "mine", "peak": {"bf16": 1e12}, "bandwidth": 1e12} | wrong))


def test_a_device_does_not_change():
    device = fk.device("t4")
    with pytest.raises(AttributeError, match=r"make another with flopkit.Device\(...\) to set bandwidth"):
        device.bandwidth = 1.0
    with pytest.raises(AttributeError, match="name stays"):
        del device.name
    with pytest.raises(TypeError):
        device._peaks["fp16"] = 1.0
    with pytest.raises(TypeError):
        device.derivation.flops_per_clock["fp16"] = 1
    assert hash(copy.deepcopy(device)) == hash(device)
    assert pickle.loads(pickle.dumps(device)) == device != fk.device("l4")
    limit = pickle.loads(pickle.dumps(device.limit("fp16")))
    assert (limit, limit.rule) == (device.limit("fp16"), device.limit("fp16").rule)


def test_current_device(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    assert fk.device().name == "h200"
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200 MIG 1g.18gb")
    with pytest.raises(ValueError, match=r"NVIDIA H200 MIG 1g\.18gb.*fk\.Device\("):
        fk.device()


def test_a_card_of_another_size_under_the_same_name(monkeypatch):
    """The driver says "RTX 4060 Ti" of the part with 8 GB, too, and "MI300X" of an eighth of one."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA GeForce RTX 4060 Ti")
    for mib, fits in ((16380, True), (15922, True), (8188, False)):
        said = SimpleNamespace(total_memory=mib * 2**20)
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda *_, said=said: said)
        if fits:
            assert fk.device().name == "rtx-4060-ti"
        else:
            with pytest.raises(ValueError, match=r"8\.0 GiB; rtx-4060-ti has 16\.0.*device\('rtx-4060-ti'\) takes it"):
                fk.device()


def test_no_current_device(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match=r"no CUDA device.*flopkit.device\('h100-sxm'\)"):
        fk.device()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(ModuleNotFoundError, match="install torch, or name a device"):
        fk.device()


@pytest.mark.parametrize("name", fk.device_names())
def test_every_device_says_where_it_is_from(name):
    device = fk.device(name)
    assert re.search(r"\(read \d{4}-\d\d(-\d\d)?\)", device.source)
    assert (device.memory or 6e9) >= 6e9 and 60e9 <= device.bandwidth <= 25e12
    assert 2014 <= device.year <= 2026 and 15 <= (device.watts or 50) <= 1500
    assert set(device.sparse) <= set(device.dtypes)
    assert all(rate >= 1e11 for rate in map(device.peak, device.dtypes))
    assert all(0.45 < device.ceiling(key) / device.peak(key) < 1 for key in device.ceilings)
    for field in ("memory", "usable", "link_bandwidth"):
        assert (getattr(device, field) is not None) == (field in device.sources)
    assert ("ceilings" in device.sources) == bool(device.ceilings)
    assert device.title in repr(device) and name in repr(device)
    page = device._repr_html_()
    assert "read 20" in page and page.count("<tr>") == len(device.dtypes) + 1


def test_derivation_reads_as_a_product():
    made_of = Derivation("SM", 10, 1e9, {"fp16": 1024}, highest_clock=2e9)
    assert made_of.text("fp16") == "10 SM × 1,024 FLOP/clock × 1,000 MHz = 10.24 TFLOP/s"
    assert fk.Device("x", peak={"fp16": 10e12}, bandwidth=1e12, derivation=made_of).limit("fp16") == 20.48e12


@pytest.mark.parametrize("name", fk.device_names())
def test_the_numbers_that_are_printed(name):
    assert name in PRINTED or name in GEFORCE, (
        f"tests/printed_devices.py lacks {name}: copy its numbers from the document"
    )
    if name in GEFORCE:
        return
    memory, bandwidth, link, peaks = PRINTED[name]
    known = fk.device(name)
    assert known.bandwidth == pytest.approx(bandwidth * 1e9, rel=1e-12)
    assert (known.memory is None) == (memory is None) and (memory is None or 0.98 < known.memory / memory / 1e9 < 1.1)
    assert known.link_bandwidth == (link and link * 1e9 / 2), "makers print both directions together"
    printed = dict(pair.split("=") for pair in peaks.split())
    assert {key: known.peak(key) / 1e12 for key in known.dtypes} == pytest.approx(
        {k: float(v) for k, v in printed.items()}
    )


@pytest.mark.parametrize("name", GEFORCE)
def test_a_geforce_does_what_its_family_does_per_clock(name):
    memory, bandwidth, fp32, family = GEFORCE[name]
    known, whole = fk.device(name), fk.device(family)
    assert known.bandwidth == bandwidth * 1e9 and 0.98 < known.memory / memory / 1e9 < 1.1
    assert known.peak("fp32") == pytest.approx(fp32 * 1e12, rel=2e-3)
    assert set(known.dtypes) == set(whole.dtypes) and known.sparse == whole.sparse
    for key in known.dtypes:
        shares = [each.peak(key) / each.peak("fp32") for each in (known, whole)]
        assert shares[0] == pytest.approx(shares[1], rel=0.01), key


def test_memory_is_what_the_driver_reports():
    reported = {name: mib for mib, cards in REPORTED.items() for name in cards.split()}
    for name in fk.device_names():
        card = fk.device(name)
        if name in reported:
            assert card.memory == reported[name] * 2**20 and "decimal" not in card.sources["memory"], name
            assert card.usable is None or 0.94 < card.usable / card.memory <= 1
        elif card.memory is not None:
            assert card.sources["memory"] == "as the maker prints it, read as decimal GB", name
            assert card.memory % 1e9 == 0 and card.usable is None
    assert fk.device("h100-sxm").memory == 85_520_809_984
    assert fk.device("h100-sxm").usable == 81_090 * 2**20  # torch's total_memory


@pytest.mark.parametrize(
    ("name", "one_direction"),
    [
        *(("p100-sxm", 80), ("v100-sxm", 150), ("a100-sxm-80gb", 300), ("h100-sxm", 450), ("h200", 450), ("h20", 450)),
        *(("h800-sxm", 200), ("b200", 900), ("gb300", 900), ("rubin", 1800)),
        *(("mi300x", 448), ("mi325x", 448), ("mi355x", 535.5)),  # seven links of 64 or 76.5
        *(
            ("tpu-v5e", 200),
            ("tpu-v5p", 600),
            ("tpu-v6e", 400),
            ("tpu-v7x", 600),
        ),  # Google prints 400, 1200, 800, 1200 of both
        *(("trainium2", 640), ("gaudi-3", 600), ("a100-pcie-80gb", 32)),
    ],
)
def test_links_are_in_one_direction(name, one_direction):
    assert fk.device(name).link_bandwidth == one_direction * 1e9


def test_the_link_of_a_tpu_v4_agrees_with_the_all_reduce_that_google_prints():
    for name, whole, chips in (("tpu-v4", 1.1e15, 4096), ("tpu-v5e", 51.2e12, 256)):
        assert fk.device(name).link_bandwidth == pytest.approx(whole / chips, rel=0.01)


@pytest.mark.parametrize(
    ("part", "whole"),
    [
        *(("mi250-gcd", "mi250"), ("mi250x-gcd", "mi250x"), ("tpu-v3-core", "tpu-v3"), ("tpu-v7x-core", "tpu-v7x")),
        *(("k80-die", "k80"), ("m60-die", "m60"), ("tpu-v2-core", "tpu-v2")),
    ],
)
def test_a_die_or_core_is_half_of_its_chip(part, whole):
    one, both = fk.device(part), fk.device(whole)
    assert one.dtypes == both.dtypes and one.bandwidth == both.bandwidth / 2
    assert all(one.peak(key) == pytest.approx(both.peak(key) / 2) for key in one.dtypes)
    assert one.memory == both.memory / 2
    assert one.usable == both.usable is None or one.usable == pytest.approx(both.usable / 2, rel=1e-4)
    assert f"half of {whole}" in one.notes.lower() and part in both.notes


def test_what_a_device_is_taken_for():
    """Halves and wholes go together, a product begins the names of its forms, and a family the names of its products but for Grace's."""
    kin = {name: device_data.kin(name) for name in fk.device_names()}
    halved = {one.product: one.halves for one in kin.values() if one.halves}
    for name, one in kin.items():
        assert name.startswith(one.product), f"product={one.product!r} of {name} is no beginning of this name"
        assert one.product.removeprefix("g").startswith(one.family.removeprefix("g")), (
            f"family={one.family!r} of {name} is no beginning of product={one.product!r}"
        )
        assert not one.half or halved.get(one.product, one.half) == one.half, name
        assert not (one.half and one.halves), name
        for key, (rate, who) in one.also.items():
            assert rate != fk.device(name).peak(key) == pytest.approx(rate, rel=0.25) and who, name
    forms = {name for name, one in kin.items() if one.product == "a100"}
    assert forms == {"a100-sxm-40gb", "a100-sxm-80gb", "a100-pcie-40gb", "a100-pcie-80gb"}
    assert {"h100-nvl", "h20", "gh200-96gb"} <= {name for name, one in kin.items() if one.family == kin["h200"].family}
    assert device_data.kin("a card of one's own") == device_data.Kin()
    bases = {name: base / 1e6 for name in kin if (made := fk.device(name).derivation) and (base := made.base_clock)}
    assert bases == {"a10": 885, "rtx-4090": 2235}
    assert pickle.loads(pickle.dumps(fk.device("a10"))).derivation.base_clock == 885e6


def test_a_stack_of_a_max_1550():
    """Intel prints both stacks together, 52 TFLOP/s in fp32 and 839 in bf16; torchtitan takes 1300 MHz for 1600."""
    stack = fk.device("Intel(R) Data Center GPU Max 1550")
    for key, card in (("fp32", 52e12), ("bf16", 839e12), ("fp16", 839e12)):
        assert 2 * stack.peak(key) == pytest.approx(card, rel=0.01)
        assert stack.derivation.peak(key) == pytest.approx(stack.peak(key), rel=1e-3)
    assert fk.doctor(tflops_per_device=400, device="max-1550-stack").verdict == "high"  # it was called impossible
    found = fk.doctor(tflops_per_device=100, device="max-1550-stack", reported="29.34 %")
    assert found.mfu == pytest.approx(100 / 419.4) and found.explanations[0].name == "340.8 TFLOP/s for the peak"


@pytest.mark.parametrize(
    ("name", "printed"), [(name, one) for name, all_ in DRIVERS.items() for one in all_.split("|")]
)
def test_what_drivers_and_frameworks_print(name, printed):
    assert fk.device(printed).name == name


@pytest.mark.parametrize("bare", ["P100", "V100", "A100", "A800", "H100", "H800", "nvidia p100", "Tesla P100", "h800"])
def test_a_name_of_several_boards_is_none_of_them(bare):
    with pytest.raises(ValueError, match=rf"is not a device in the data; did you mean {bare.split()[-1].lower()}-"):
        fk.device(bare)
    assert fk.device("NVIDIA H800").name == "h800-sxm"  # what its driver prints, and PCIe with its own


def test_the_letters_of_a_driver_and_the_name_of_the_chip():
    assert fk.device("TPU v3").name == "tpu-v3-core", "one core to JAX"
    assert {fk.device(one).name for one in ("tpu-v3", "TPU-v3", "TPU-V3", "TPU v3 (chip)")} == {"tpu-v3"}
    for either in ("tpu v3", "TPU_v3", "TPU V3", "Tpu v3", "tpuv3"):
        with pytest.raises(
            ValueError,
            match="is tpu-v3-core to its driver, letter for letter, and tpu-v3 else; write tpu-v3-core or tpu-v3$",
        ):
            fk.device(either)
    assert fk.device("amd instinct mi250x").name == "mi250x-gcd" != fk.device("MI250X").name
    # AI-Hypercomputer/maxtext#8: 36.75 TFLOP/s a JAX device of a v3-8 are 59.8 %
    assert fk.mfu(36.75e12, seconds=1, device="TPU v3") == pytest.approx(0.5976, abs=5e-4)


def test_ceilings():
    assert fk.device("mi300x").ceiling("bf16") == 708e12
    assert "h100" not in fk.device("mi300x").sources["ceilings"] and "AMD" in fk.device("mi300x").sources["ceilings"]
    with pytest.raises(ValueError, match="nobody published a ceiling of h200 for bf16; one is known for fp8"):
        fk.device("h200").ceiling("bf16")
    with pytest.raises(ValueError, match="of t4 for fp16; none is known"):
        fk.device("t4").ceiling("fp16")
    assert "794.5 TFLOP/s" in str(fk.device("h100-sxm").table()) and "measured" not in str(fk.device("t4").table())


# -- an entry of devices.toml gone wrong ----------------------------------------------------------------------------

ENTRY = {
    "title": "A card", "vendor": "Somebody", "year": 2026, "family": "c", "product": "card", "sources": ["sheet"], "memory_GB": 16, "bandwidth_GBps": 900,
    "peak_TFLOPs": {"bf16": 100}, "derivation": {"unit": "SM", "units": 50, "clock_MHz": 1000},
    "flops_per_clock": {"bf16": 2048},
}  # fmt: skip
SOURCES = {"sheet": {"title": "A data sheet", "read": "2026-08"}}


def test_an_entry_is_read():
    card = fk.Device("card", **device_data.read(ENTRY, SOURCES))
    assert (card.peak("bf16"), card.bandwidth, card.source) == (100e12, 900e9, "A data sheet (read 2026-08)")
    assert card.derivation.peak("bf16") == 50 * 2048 * 1e9
    assert (card.memory, card.sources["memory"]) == (16e9, "as the maker prints it, read as decimal GB")
    bare = fk.Device("card", **device_data.read({key: ENTRY[key] for key in REQUIRED}, SOURCES))
    assert bare.derivation is None and bare.memory is None and not bare.sources
    said = {"memory_MiB": 15_000, "memory_source": "sheet", "usable_MiB": 14_000, "usable_source": "sheet"}
    driven = fk.Device("card", **device_data.read(ENTRY | said, SOURCES))
    assert (driven.memory, driven.usable) == (15_000 * 2**20, 14_000 * 2**20)
    assert driven.sources["usable"] == "A data sheet (read 2026-08)"
    for entry in (ENTRY, {key: ENTRY[key] for key in REQUIRED}):
        check_entry("card", entry, SOURCES)


@pytest.mark.parametrize("field", [*REQUIRED, "flops_per_clock", "derivation"])
def test_a_field_that_is_missing(field):
    with pytest.raises(ValueError, match=rf"^devices\.toml, \[card\]: the field {field} is missing$"):
        check_entry("card", {key: value for key, value in ENTRY.items() if key != field}, SOURCES)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"link_GBPs": 600}, "link_GBPs is not a field; did you mean link_GBps?"),
        ({"highest_clock": 1000}, "highest_clock is not a field; did you mean highest_clock_MHz?"),
        ({"cost": 3}, "cost is not a field; known: title, vendor, year"),
        ({"memory_MiB": 16384}, "memory_MiB and memory_source stand together"),
        ({"base_clock_MHz": 800}, "base_clock_MHz and base_clock_source stand together"),
        ({"also_TFLOPs": {"bf16": 90}}, "also_TFLOPs and also_source stand together"),
        ({"link_source": "sheet"}, "link_GBps and link_source stand together"),
        ({"link_GBps": 1, "link_source": "shet"}, "sources: shet is not in [sources]; did you mean sheet?"),
        ({"sources": ["shet"]}, "sources: shet is not in [sources]; did you mean sheet?"),
        ({"derivation": {"unit": "SM", "units": 50}}, "derivation: the field clock_MHz is missing"),
        (
            {"derivation": {"unit": "SM", "units": 50, "clock": 1}},
            "derivation: clock is not a field; did you mean clock_MHz?",
        ),
    ],
)
def test_a_field_that_is_wrong(more, message):
    with pytest.raises(ValueError, match="^" + re.escape(f"devices.toml, [card]: {message}")):
        check_entry("card", ENTRY | more, SOURCES)


@pytest.mark.parametrize("alias", ["T4", "NVIDIA T4-16GB", "Tesla t4"])
def test_an_alias_that_another_device_has(alias):
    for aliases in ({"t4": ["T4-16GB"], "card": [alias]}, {"card": [alias], "t4": ["T4-16GB"]}):
        with pytest.raises(
            ValueError, match=r"^devices\.toml, \[(card|t4)\]: aliases: '.*' already stands for (t4|card)$"
        ):
            check_aliases(aliases)


def test_the_aliases_of_one_device_may_repeat_each_other():
    check_aliases({"t4": ["T4", "Tesla T4"]})
    assert device_data.aliases()["P100-SXM2"] == "p100-sxm"


@pytest.mark.parametrize(
    ("was", "slip", "message"),
    [
        ("vendor = ", "maker = ", "[p100-sxm]: maker is not a field"),
        ('link_GBps = 80\nlink_source = "ml-engineering-network"\n', "", None),
        ("link_GBps = 80\n", "", "[p100-sxm]: link_GBps and link_source stand together"),
        ("year = 2016\n", "", "[p100-sxm]: the field year is missing"),
        ('["a100-whitepaper", ', '["a100", ', "[p100-sxm]: sources: a100 is not in [sources]"),
        ('"P100-SXM2", ', '"P100-SXM2", "Tesla T4", ', "[p100-sxm]: aliases: 'Tesla T4' already stands for t4"),
    ],
)
def test_the_whole_file_is_checked(was, slip, message):
    slipped = TEXT.replace(was, slip, 1)
    assert slipped != TEXT
    if message is None:
        check(slipped)
        return
    with pytest.raises(ValueError, match=re.escape(f"devices.toml, {message}")):
        check(slipped)


def test_the_head_of_the_data_explains_every_field():
    head = TEXT.split("[sources]")[0]
    assert [field for field in FIELDS if f"\n# {field:<17} " not in head] == []
    assert f"Required: {', '.join(REQUIRED)}." in head


def test_the_schema():
    jsonschema = pytest.importorskip("jsonschema")
    schema = json.loads(Path(fk.__file__).parent.joinpath("data/devices.schema.json").read_text("utf8"))
    assert set(schema["$defs"]["device"]["properties"]) == set(FIELDS)
    assert set(schema["$defs"]["device"]["required"]) == set(REQUIRED)
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    data = tomllib.loads(TEXT)
    assert not [error.message for error in validator.iter_errors(data)]
    for slip in (
        {"memory_MiB": 1.5},
        {"year": "2026"},
        {"link_GBps": -1},
        {"sparse": ["bf-16"]},
        {"price": 3},
        {"link_source": "t4"},
    ):
        assert list(validator.iter_errors(data | {"t4": data["t4"] | slip})), slip


def test_a_slow_device_is_a_device():
    abacus = fk.Device("abacus", peak={"fp32": 0.5}, bandwidth=0.25)
    assert abacus.ridge("fp32") == 2
