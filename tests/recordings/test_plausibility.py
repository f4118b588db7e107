"""What is above the peak is found by computation; what is suspect is computed here, from the rows themselves."""

from types import SimpleNamespace

import pytest

import flopkit as fk
from flopkit.recordings.plausibility import judged
from flopkit.recordings.rates import rate

FIND = fk.recordings.find


def one(*args, **kwargs):
    (row,) = FIND(*args, **kwargs).rows
    return row


def by(rows, *keys):
    return {tuple(row[key] for key in keys): row for row in rows}


# -- the work of a row ----------------------------------------------------------------------------------------------


def test_training_by_hand():
    """Llama 3 8B: 6 FLOPs a weight but the embedding table, and 6·layers·d·seq for causal attention."""
    eager, compiled = FIND(dataset="torchtitan", precision="bf16", count=8).rows
    weights, attention = 8_030_261_248 - 128_256 * 4096, 6 * 32 * 4096 * 8192
    for row in (eager, compiled):
        assert row["flops_per_s"] == pytest.approx(8 * row["value"] * (6 * weights + attention), rel=1e-3)
        assert row["share"] == pytest.approx(row["flops_per_s"] / (8 * 989.4e12))
    assert (round(eager["share"], 3), round(compiled["share"], 3)) == (0.300, 0.347)
    assert "causal attention over 8,192 tokens" in eager["counted"]
    assert "no length is stated" in FIND(dataset="torchtitan", count=128)[0]["counted"]


def test_training_agrees_with_the_mfu_that_the_author_states():
    rows = [row for row in FIND(dataset="ml_engineering", kind="training") if row["stated_mfu"]]
    assert len(rows) == 14
    for row in rows:
        assert abs(row["share"] - row["stated_mfu"]) < 0.006, row["seq"]


def test_networks_by_hand():
    offline = by(FIND("resnet50-v1.5", dataset="mlperf_inference"), "device", "count", "unit")
    row = offline["A100-SXM4", 1, "images/s"]
    assert row["share"] == pytest.approx(37479.5 * 2 * 4_089_184_256 / 624e12)
    trained = by(
        FIND("resnet50-v1.5", kind="training", dataset="nvidia_examples", device="a100-sxm-80gb"), "count", "precision"
    )
    assert trained[1, "tf32"]["flops_per_s"] == pytest.approx(3 * 938 * 2 * 4_089_184_256)
    assert trained[8, "fp16"]["share"] == pytest.approx(3 * 16621 * 2 * 4_089_184_256 / (8 * 312e12))
    timed = by(FIND("vgg16", dataset="torchvision_gpus", device="a100"), "kind", "precision")["inference", "fp16"]
    assert timed["flops_per_s"] == pytest.approx(12 * fk.models.vision.cnn("vgg16").flops / (timed["value"] / 1e3))


def test_a_network_that_has_another_size_is_not_counted_as_ours():
    row = dict(kind="inference", unit="images/s", value=1, count=1, workload="resnet50")
    assert rate(row).value == fk.models.vision.cnn("resnet50").flops
    assert rate(row | {"image": 288}) is None
    assert rate(row | {"image": 288, "gmacs": 6.8}).value == 2 * 6.8e9
    assert rate(row | {"kind": "backward"}).value == 2 * rate(row).value
    assert rate(row | {"kind": "training"}).value == 3 * rate(row).value
    assert rate(row | {"workload": "alexnet-caffe"}) is None


def test_decoding_by_hand():
    torchao = by(FIND("llama-3-8b", dataset="torchao", kind="decode"), "precision", "setting")
    plain = torchao["bf16", "torch.compile, not quantised"]
    weights = 2 * (8_030_261_248 - 128_256 * 4096)
    assert plain["weights_GB"] == pytest.approx(weights / 1e9, abs=0.005), "decimal GB, without the table"
    assert plain["bytes_per_s"] == pytest.approx(95.64 * weights, rel=1e-3)
    assert plain["share_of"] == "the bandwidth of a100-sxm-80gb" and plain["share"] == pytest.approx(0.704, abs=5e-4)
    llama_cpp = by(
        FIND("llama-3-8b", dataset="llama_cpp", kind="decode", device="rtx-4090", count=1), "precision", "seq"
    )
    assert llama_cpp["fp16", 512]["share"] == pytest.approx(54.84 * 14.96 * 2**30 / 1008e9)
    row = dict(kind="decode", unit="tokens/s", value=100, count=1, workload="llama-3-8b", precision="bf16", batch=1)
    assert rate(row).value == pytest.approx(100 * weights, rel=1e-4)
    assert rate(row | {"precision": "int8"}).value == pytest.approx(100 * weights / 2, rel=1e-4)
    assert rate(row | {"precision": "q4_k_m"}) is None, "its bytes are not known"


def test_gpt_fast_prints_the_bytes_of_the_weights():
    rows = FIND("llama-2-7b", dataset="gpt_fast", precision="bf16", count=1, device="a100").rows
    assert rows[0]["bytes_per_s"] == pytest.approx(1397.31e9)
    eight = FIND("llama-2-7b", dataset="gpt_fast", precision="bf16", count=8)[0]
    assert eight["bytes_per_s"] == pytest.approx(8 * 704.10e9) and eight["share"] == pytest.approx(704.10 / 2039)


def test_decoding_reads_the_experts_that_a_token_chooses():
    row = FIND("mixtral-8x7b", dataset="gpt_fast", precision="bf16", count=2)[0]
    attention, expert, head = 4096 * (2 * 4096 + 2 * 1024), 3 * 4096 * 14336, 4096 * 32_000
    assert row["bytes_per_s"] == pytest.approx(96.67 * 2 * (32 * (attention + 2 * expert) + head), rel=1e-3)
    assert "decode(context=1, weights='bf16')" in row["counted"]


def test_sequences_and_batches_count_their_tokens():
    row = dict(kind="training", workload="llama-3-8b", count=1, unit="tokens/s", value=1, batch=4, seq=2048)
    token = rate(row).value
    assert rate(row | {"unit": "sequences/s"}).value == pytest.approx(2048 * token)
    assert rate(row | {"unit": "ms", "value": 1000}).value == pytest.approx(4 * 2048 * token)
    assert rate(row | {"unit": "sequences/s", "seq": None}) is None
    assert rate(row | {"unit": "ms", "seq": None}) is None
    assert rate(row | {"unit": "tokens/s", "seq": None}).value < token, "without attention"


def test_prefill_leaves_the_head_out_and_serving_reads_the_prompts():
    row = by(FIND("llama-3-8b", dataset="llama_cpp", kind="prefill", device="rtx-3090", count=1), "precision", "seq")[
        "fp16", 512
    ]
    layers = 8_030_261_248 - 2 * 128_256 * 4096
    assert row["flops_per_s"] == pytest.approx(4444.65 * (2 * layers + 2 * 32 * 4096 * 513), rel=1e-3)
    assert row["share"] < 1 < 4444.65 * 2 * 8.03e9 / 71e12, "2·N tokens a second would be above the peak"
    served = by(FIND("llama-3.1-8b", dataset="tensorrt_llm", device="h100"), "prompt", "output")[2048, 128]
    assert served["flops_per_s"] == pytest.approx(3450 * 17 * 2 * layers, rel=1e-3)


def test_products_by_size():
    rows = FIND(dataset="deepseek_kernels", kind="matmul", workload="matmul").rows
    assert len(rows) == 18
    for row in rows:
        seconds = 2 * row["m"] * row["n"] * row["k"] / row["flops_per_s"]
        moved = row["m"] * row["k"] + row["k"] * row["n"] + 2 * row["m"] * row["n"]  # FP8 in, BF16 out
        assert moved / seconds == pytest.approx(row["bandwidth_GBps"] * 1e9, rel=0.006), (
            "two printed columns, one product"
        )
    best = max(FIND(dataset="deepbench_gemm", device="v100", precision="fp16"), key=lambda row: row["share"])
    assert (best["m"], best["n"], best["k"]) == (4096, 7000, 4096) and round(best["share"], 2) == 0.90


def test_without_a_known_work_there_is_no_rate():
    assert rate(dict(kind="kernel", unit="ms", value=1, count=1, workload="rms-norm")) is None
    assert rate(dict(kind="training", unit="min/1000 iterations", value=2, count=1, workload="llama-3-8b")) is None
    assert rate(dict(kind="inference", unit="ms", value=1, count=1, workload="vgg16", batch=None)) is None
    assert rate(dict(kind="training", unit="tokens/s", value=2, count=1, workload="gnmt")) is None


# -- above the peak -------------------------------------------------------------------------------------------------


def test_a_share_above_one_is_above_the_peak_and_nothing_else_is():
    for row in FIND():
        assert (row["verdict"] == "above the peak") == (row["share"] is not None and row["share"] > 1)
        assert bool(row["why"]) == (row["verdict"] in ("above the peak", "suspect"))
        assert (row["share"] is None) == (row["share_of"] is None)


def test_winograd_on_the_v100():
    rows = FIND("convolution", dataset="deepbench_conv", precision="fp32").rows
    above = [row for row in rows if row["verdict"] == "above the peak"]
    assert (len(above), len(rows)) == (20, 94)
    best = max(above, key=lambda row: row["share"])
    assert round(best["share"], 2) == 2.35 and best["setting"] == "WINOGRAD_NONFUSED" and best["kernel_h"] == 3
    assert "235.3 % of the fp32 peak of v100-sxm" in best["why"] and "above its limit" in best["why"]
    assert "fewer multiplications" in best["why"]
    assert max(row["share"] for row in FIND(dataset="deepbench_conv", precision="fp16")) < 1, (
        "tensor cores: no Winograd"
    )


def test_above_a_peak_that_the_source_states():
    rows = FIND(dataset="cnn_benchmarks", verdict="above the peak").rows
    assert {row["workload"] for row in rows} == {"vgg16", "vgg19"}
    assert all("cuDNN 5" in row["setting"] for row in rows), "cuDNN 4 and Torch's own code have no Winograd"
    stated, known = "the fp32 peak that the source states", "the fp32 peak of gtx-1080-ti"
    assert {row["share_of"] for row in rows} == {stated, known}
    row = by(rows, "workload", "device", "kind")["vgg16", "GeForce GTX 1080 Ti", "inference"]
    assert row["share_of"] == known and row["share"] == pytest.approx(16 * 30.94e9 / 41.26e-3 / 11.34e12, rel=1e-3)


def test_little_above_the_peak():
    row = one(dataset="timm", verdict="above the peak")
    assert (row["workload"], row["device_name"], row["share_of"]) == (
        "repvgg_b3",
        "rtx-5090",
        "the fp16 peak of rtx-5090",
    )
    assert "100.4 %" in row["why"] and "below its limit, 1.1 × peak" in row["why"], "a higher clock may explain it"


def test_where_the_rows_above_the_peak_are():
    found = {row["dataset"] for row in FIND(verdict="above the peak")}
    assert found == {"cnn_benchmarks", "deepbench_conv", "llama_cpp", "timm", "torchvision_gpus"}
    row = one(dataset="llama_cpp", verdict="above the peak")
    assert row["device_name"] == "rtx-4080" and row["share"] == pytest.approx(1.048, abs=1e-3)
    assert "twice as much with sums in fp16" in row["why"], "the peak is that of sums in fp32"


@pytest.mark.parametrize(
    ("value", "verdict", "words"),
    [
        (900, "possible", ""),
        (989.4, "possible", ""),
        (1000, "above the peak", "below its limit"),
        (1200, "above the peak", "above its limit"),
    ],
)
def test_the_border(value, verdict, words):
    source = SimpleNamespace(suspicion=lambda row: "", above_peak="", peaks={})
    row = dict(
        kind="matmul", unit="TFLOP/s", value=value, count=1, device="H100", device_name="h100-sxm", precision="bf16"
    )
    found = judged(row, source)
    assert found["verdict"] == verdict and words in found["why"]
    assert judged(row | {"unit": "TFLOP/s/GPU", "count": 8}, source)["share"] == pytest.approx(value / 989.4)
    assert judged(row | {"precision": "int4"}, source)["verdict"] == "not judged", "no peak in that format"
    doubted = judged(row, SimpleNamespace(suspicion=lambda row: "a wrong clock", above_peak="", peaks={}))
    assert (
        doubted["verdict"] == ("above the peak" if verdict == "above the peak" else "suspect")
        and "a wrong clock" in doubted["why"]
    )


def test_decoding_faster_than_the_memory_is_above_the_peak():
    source = SimpleNamespace(suspicion=lambda row: "", above_peak="", peaks={})
    row = dict(
        kind="decode",
        unit="tokens/s",
        count=1,
        workload="llama-3-8b",
        batch=1,
        precision="bf16",
        device="H100",
        device_name="h100-sxm",
    )
    assert judged(row | {"value": 200}, source)["verdict"] == "possible"
    found = judged(row | {"value": 250}, source)
    assert found["verdict"] == "above the peak" and "of the bandwidth of h100-sxm" in found["why"]
    assert judged(row | {"value": 250, "count": 2}, source)["verdict"] == "possible"


# -- suspect --------------------------------------------------------------------------------------------------------


def test_no_collection_scales_better_than_its_devices():
    """Where more devices are far more than proportionally faster, the rows are marked."""
    keys = ("dataset", "table", "workload", "device", "precision", "batch", "seq", "setting")
    groups = {}
    for row in FIND():
        if row["unit"].endswith("/s") and row["dataset"] != "lambda_machines":
            groups.setdefault(tuple(row[key] for key in keys), {}).setdefault(row["count"], []).append(row)
    odd = set()
    for counts in groups.values():
        if 1 in counts:
            for count, rows in counts.items():
                if max(row["value"] for row in rows) > 1.5 * count * max(row["value"] for row in counts[1]):
                    odd |= {(row["dataset"], row["workload"]) for row in rows}
                    assert all(row["verdict"] == "suspect" for row in [*rows, *counts[1]]), rows[0]
    assert odd == {("nvidia_examples", f"efficientnet-{name}") for name in ("b4", "widese-b0", "widese-b4")}


def test_layouts_without_a_kernel_are_suspect():
    trained = by(FIND(dataset="timm", kind="training"), "table", "workload")
    pairs = {
        name: (trained.get(("train-3090", name)), row)
        for (table, name), row in trained.items()
        if table == "train-3090-nhwc"
    }
    slow = {name for name, (planar, last) in pairs.items() if planar and planar["value"] > 2 * last["value"]}
    marked = {row["workload"] for row in FIND(dataset="timm", verdict="suspect")}
    assert slow == marked and "regnetx_064" in marked and all(name.startswith("regnet") for name in marked)


def test_prefill_that_a_quantised_model_outruns_is_suspect():
    """Four-bit weights save no arithmetic, so half-precision weights do not read a prompt twice as slowly."""
    rows = [row for row in FIND(dataset="llama_cpp", kind="prefill", workload="llama-3-8b") if row["table"] != "apple"]
    pairs = by(rows, "device", "count", "seq", "precision")
    slow = {(d, c) for (d, c, seq, p), row in pairs.items()
            if p == "fp16" and seq == 512 and 1.5 * row["value"] < pairs[d, c, seq, "q4_k_m"]["value"]}  # fmt: skip
    marked = {(row["device"], row["count"]) for row in FIND(dataset="llama_cpp", verdict="suspect")}
    assert (
        slow
        == marked
        == {("A100 SXM 80GB", 1), ("A100 SXM 80GB", 4), ("L40S 48GB", 1), ("L40S 48GB", 4), ("RTX 5000 Ada 32GB", 4)}
    )


def test_what_runs_at_the_limit_of_memory_is_suspect():
    row = one(dataset="github_threads", verdict="suspect")
    assert row["value"] == 32.8 and "allocator stalls" in row["why"]


def test_half_precision_that_is_none_is_suspect():
    rows = FIND(dataset="torchvision_gpus", verdict="suspect").rows
    assert rows and {(row["device"], row["precision"]) for row in rows} == {("GTX 1080 Ti", "fp16")}
    for row in rows:
        if row["flops_per_s"]:
            assert row["flops_per_s"] > 5 * 177e9, "five times the fp16 peak of the card, or more"
