"""The command line, in a process of its own and by calling `main`: what it prints is what the functions give."""

import contextlib
import json
import subprocess
import sys
import tomllib
from importlib.resources import files
from pathlib import Path

import pytest

import flopkit as fk
from flopkit.cli import main
from flopkit.cli.program import COMMANDS
from flopkit.measuring.running import BAR

ROOT = Path(fk.__file__).parents[1]
TITAN = ["--tokens-per-s", "53336", "--model", "llama-3.1-8b", "--seq", "8192", "--device", "h100-sxm", "--count", "8"]


def said(capsys, *argv):
    assert main(argv) == 0
    shown = capsys.readouterr()
    assert shown.err == ""
    return shown.out


def data(capsys, *argv):
    return json.loads(said(capsys, *argv, "--json"))


def test_in_a_process_of_its_own():
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-m", "flopkit", "count", "llama-3-8b", "--seq", "8192"],
        capture_output=True, text=True, cwd=ROOT, encoding="utf-8",
    )  # fmt: skip
    assert ran.returncode == 0 and ran.stderr == ""
    assert "llama-3-8b, forward: 1 × 8,192 tokens, convention EXACT" in ran.stdout and "8,030,261,248" in ran.stdout


@pytest.mark.parametrize("argv", [[], ["devices", "h100"], ["count", "llama-9"], ["doctor"], ["cout"]])
def test_an_error_is_one_line_and_code_2(argv):
    ran = subprocess.run([sys.executable, "-m", "flopkit", *argv], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 2 and ran.stdout == ""
    assert ran.stderr.startswith("flopkit: ") and ran.stderr.count("\n") == 1 and "Traceback" not in ran.stderr


def test_a_pipe_that_closes_early():
    """As `flopkit devices | head -1` does: no traceback."""
    ran = subprocess.Popen(
        [sys.executable, "-m", "flopkit", "devices"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT
    )
    ran.stdout.close()
    assert ran.stderr.read() == b""
    ran.stderr.close()
    assert ran.wait() == 0


@pytest.mark.parametrize(
    ("argv", "loaded"), [(["--help"], set()), (["--version"], set()), (["devices", "--json"], {"devices"})]
)
def test_a_command_is_loaded_where_it_is_asked_for(argv, loaded):
    """So the help is there at once, and the table of devices does not wait for models."""
    code = (
        "import sys\nfrom flopkit.cli import main\ntry:\n    main(sys.argv[1:])\nfinally:\n"
        "    print(*(name for name in sys.modules if name.startswith('flopkit')), file=sys.stderr)"
    )
    ran = subprocess.run([sys.executable, "-c", code, *argv], capture_output=True, text=True, cwd=ROOT)
    assert ran.returncode == 0
    modules = set(ran.stderr.split())
    assert {name for name in COMMANDS if f"flopkit.cli.{name}" in modules} == loaded
    assert not {"flopkit.models", "flopkit.experiments"} & modules


def test_the_script_is_the_same():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert project["scripts"] == {"flopkit": "flopkit.cli:main"}


def test_devices(capsys):
    rows = data(capsys, "devices")
    assert [row["name"] for row in rows] == fk.device_names()
    text = said(capsys, "devices")
    assert all(f"\n{name} " in text for name in fk.device_names())
    one = data(capsys, "devices", "NVIDIA H200")
    h200 = fk.device("h200")
    t4 = next(row for row in data(capsys, "devices") if row["name"] == "t4")
    assert (t4["fp16"], t4["bf16"]) == (65e12, None)
    assert one["formats"]["bf16"]["peak"] == h200.peak("bf16") and one["bandwidth"] == 4.8e12 and one["name"] == "h200"
    assert "989.5 TFLOP/s" in said(capsys, "devices", "h200")


def test_count_a_forward_pass(capsys):
    found = data(capsys, "count", "llama-3-8b", "--seq", "8192", "--batch", "2")
    cost = fk.load("llama-3-8b").forward(seq=8192, batch=2)
    assert (found["FLOPs"], found["parameters"]) == (cost.flops, 8030261248)
    assert found["FLOPs_a_token"] == cost.flops / 16384 and found["convention"] == "EXACT"
    assert found["KV_cache_a_token"] == 131072


def test_count_a_training_step(capsys):
    found = data(
        capsys, "count", "llama-3-8b", "--seq", "8192", "--train", "--recompute", "full", "--convention", "palm"
    )
    step = fk.load("llama-3-8b").train_step(seq=8192, recompute="full").under("PALM")
    assert found["model_FLOPs"] == step.model_flops and found["hardware_FLOPs"] == step.hardware_flops
    assert found["FLOPs_a_token"] == 6 * 8030261248 + 12 * 32 * 32 * 128 * 8192
    assert "training step: 1 × 8,192 tokens, convention PALM" in said(
        capsys, "count", "llama-3-8b", "--seq", "8192", "--train", "--convention", "PALM"
    )


def test_count_adapters(capsys):
    found = data(capsys, "count", "llama-3-8b", "--seq", "2048", "--train", "--lora", "16")
    lora, llama = fk.LoRA(rank=16), fk.load("llama-3-8b")
    assert found["model_FLOPs"] == llama.train_step(seq=2048, trained=lora).model_flops
    assert found["trained"] == 6815744 and found["parameters"] == llama.params
    assert found["training_memory"] == llama.train_memory(seq=2048, trained=lora).peak
    found = data(capsys, "count", "llama-3-8b", "--seq", "2048", "--train", "--lora", "16", "--shards", "4")
    assert (found["shards"], found["training_memory"]) == (
        4,
        llama.train_memory(seq=2048, trained=lora, shards=4).peak,
    )


def test_count_a_config(capsys, tmp_path, monkeypatch):
    configs = json.loads((files("flopkit") / "data" / "hf_configs.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(configs["qwen3-30b-a3b"]["config"]))
    monkeypatch.chdir(tmp_path)
    found = data(capsys, "count", "config.json", "--seq", "4096")
    model = fk.load("qwen3-30b-a3b")
    assert (found["parameters"], found["active"]) == (model.params, model.active_params)
    assert found["FLOPs"] == model.forward(seq=4096).flops


def test_what_a_configuration_leaves_out_is_said(capsys, tmp_path):
    path = tmp_path / "config.json"
    config = {key: value for key, value in fk.models.hf_config("mistral-7b").items() if key != "num_key_value_heads"}
    path.write_text(json.dumps(config))
    assert "num_key_value_heads is missing: 8, as transformers takes it" in said(
        capsys, "count", str(path), "--seq", "8"
    )
    assert data(capsys, "count", str(path), "--seq", "8")["notes"] == [
        "num_key_value_heads is missing: 8, as transformers takes it"
    ]
    assert data(capsys, "count", "gpt2", "--seq", "8")["notes"] == []


def test_a_terminal_is_not_told_what_a_file_says(capsys, tmp_path):
    """Escape sequences clear screens and set titles."""
    path = tmp_path / "config.json"
    evil = "\x1b[2J\x1b]0;pwned\x07evil\x9b\u202e"
    path.write_text(json.dumps({**fk.models.hf_config("llama-3-8b"), "_name_or_path": evil}))
    assert "\\u001b[2J\\u001b]0;pwned\\u0007evil\\u009b\\u202e, forward: 1 × 8 tokens" in said(
        capsys, "count", str(path), "--seq", "8"
    )
    text = said(capsys, "count", str(path), "--seq", "8", "--json")
    assert json.loads(text)["model"] == evil and not set(text) & {"\x1b", "\x07", "\x9b", "\u202e"}


def test_an_error_does_not_repeat_a_whole_file(capsys, tmp_path):
    path = tmp_path / "config.json"
    for changed in ({"model_type": "x" * 10**6}, {"hidden_size": "x" * 10**6}, {"hidden_act": "x" * 10**6}):
        path.write_text(json.dumps({**fk.models.hf_config("llama-3-8b"), **changed}))
        assert main(["count", str(path), "--seq", "8"]) == 2
        assert len(capsys.readouterr().err) < 1000
    assert main(["devices", "x" * 10**6]) == 2
    assert len(capsys.readouterr().err) < 2100


def test_out_of_memory_is_one_line(capsys, monkeypatch):
    monkeypatch.setattr("flopkit.cli.count.any_model", lambda name: (_ for _ in ()).throw(MemoryError))
    assert main(["count", "gpt2", "--seq", "8"]) == 2
    assert capsys.readouterr().err == "flopkit: not enough memory\n"


def test_linear_attention_has_a_cache_that_does_not_grow_and_its_memory_is_not_known(capsys, tmp_path):
    config = {
        "model_type": "mamba2", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16,
        "state_size": 24, "n_groups": 2, "conv_kernel": 4,
    }  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(config))
    found, states = data(capsys, "count", str(tmp_path / "config.json"), "--seq", "8"), 3 * 2 * (4 * 16 * 24 + 160 * 4)
    assert (
        found["KV_cache"] == fk.from_hf(config).kv_bytes(context=8) == fk.from_hf(config).kv_bytes(context=9) == states
    )
    assert (found["KV_cache,_of_it_states"], found["KV_cache_a_token"]) == (states, 0)
    trained = data(capsys, "count", str(tmp_path / "config.json"), "--seq", "8", "--train")
    assert (
        trained["model_FLOPs"] == fk.from_hf(config).train_step(seq=8).model_flops
        and trained["training_memory"] is None
    )
    assert "not known here" in said(capsys, "count", "t5-base", "--seq", "8", "--train")
    assert data(capsys, "count", "gpt-oss-20b", "--seq", "8")["KV_cache_a_token"] == 24 * 2 * 8 * 64 * 2


@pytest.mark.parametrize("device", [[], ["--device", "h200-sxm"]])
def test_a_token_of_the_cache_has_neither_states_nor_the_source(capsys, device):
    """Qwen3-Next: twelve layers of two heads of 256, and 36 states; Whisper: 32 layers of 1,280, and 1,500 tokens of sound."""
    for seq in (16, 4096):
        found = data(capsys, "count", "qwen3-next-80b-a3b", "--seq", str(seq), *device)
        assert found["KV_cache_a_token"] == 2 * 12 * 2 * 2 * 256 == 24576
        states = 2 * 36 * (32 * 128 * 128 + 4 * 8192)
        assert found["KV_cache,_of_it_states"] == states and found["KV_cache"] == states + seq * 24576
        found = data(capsys, "count", "t5-base", "--seq", str(seq), "--source", "512", "--batch", "2", *device)
        token = 2 * 2 * 12 * 768
        assert (found["KV_cache_a_token"], found["KV_cache,_of_it_source"]) == (token, 2 * 512 * token)
        assert found["KV_cache"] == 2 * (512 + seq) * token
    heard = data(capsys, "count", "whisper-large-v3", "--seq", "448", *device)
    assert (heard["KV_cache_a_token"], heard["KV_cache"]) == (2 * 2 * 32 * 1280, 2 * 2 * 32 * 1280 * 1948)
    if device:
        step = fk.serving.decode("t5-base", "h200-sxm", context=4096, batch=2, source=512)
        assert found["decoding_step,_at_least"] == step.seconds
        fits = fk.serving.largest_batch("t5-base", "h200-sxm", context=4096, source=512)
        assert found["texts_that_fit_at_once"] == fits


@pytest.mark.parametrize("argv", [["resnet50"], ["bert-base", "--seq", "8"], ["t5-base", "--seq", "8", "--train"]])
def test_a_source_is_for_decoding(capsys, argv):
    assert main(["count", *argv, "--source", "8"]) == 2
    assert "--source is for cache and decoding of an encoder-decoder" in capsys.readouterr().err


def test_a_model_of_images_knows_its_tokens(capsys):
    found = data(capsys, "count", "vit-b-16", "--batch", "3")
    assert found["FLOPs"] == fk.load("vit-b-16").forward(batch=3).flops and "KV_cache_a_token" not in found
    assert found["FLOPs_a_token"] == found["FLOPs"] / (3 * 197)


def test_a_convolutional_network_is_asked_for_images(capsys):
    model, sizes = fk.load("resnet50"), {"batch": 8, "height": 192, "width": 160}
    options = [word for name, value in sizes.items() for word in (f"--{name}", str(value))]
    found = data(capsys, "count", "ResNet-50", *options)
    assert found["FLOPs"] == 8 * found["FLOPs_an_image"] == model.forward(**sizes).flops
    assert found["model"] == "resnet50" and {name: found[name] for name in sizes} == sizes
    assert not {"seq", "FLOPs_a_token", "KV_cache_a_token"} & set(found)
    found, step = (
        data(capsys, "count", "resnet50", "--train", *options, "--convention", "fvcore"),
        model.train_step(**sizes),
    )
    assert 2 * found["model_FLOPs"] == step.model_flops and 2 * found["FLOPs_an_image"] == step.flops_per_image
    assert found["training_memory"] == model.train_memory(**sizes).total
    assert "resnet50, forward: 1 × 224 × 224 pixels, convention EXACT" in said(capsys, "count", "resnet50")


def test_doctor(capsys):
    found = data(capsys, "doctor", *TITAN, "--reported", "39%")
    ours = fk.doctor(tokens_per_s=53336, model="llama-3.1-8b", seq=8192, device="h100-sxm", count=8, reported="39%")
    assert found["mfu"] == ours.mfu and found["verdict"] == "possible" and found["reported"] == 0.39
    assert [each["name"] for each in found["explanations"]] == [each.name for each in ours.explanations] != []
    assert found["convention"] == "EXACT" and len(found["considered"]) == len(ours.considered)
    assert said(capsys, "doctor", *TITAN, "--reported", "0.39") == f"{ours!r}\n"
    table = said(capsys, "doctor", *TITAN)
    at = TITAN.index("--model")
    assert said(capsys, "doctor", TITAN[at + 1], *TITAN[:at], *TITAN[at + 2 :]) == table
    assert "sparse peak" in table and "MFU 34.68 %" in table


def test_doctor_takes_what_logs_print(capsys):
    run = ["doctor", "mixtral-8x7b", "--seq", "2048", "--device", "h100-sxm", "--count", "16"]
    ours = fk.doctor(
        model="mixtral-8x7b", seq=2048, device="h100-sxm", count=16, step_seconds="5912.1 ms", global_batch=128, reported="220.9 TFLOP/s",
    )  # fmt: skip
    by_hand = ["--step-seconds", "5912.1 ms", "--global-batch", "128", "--reported", "220.9 TFLOP/s"]
    line = (
        "elapsed time per iteration (ms): 5912.1 | throughput per GPU (TFLOP/s/GPU): 220.9 | global batch size:   128 |"
    )
    for more in (by_hand, ["--log", line]):
        found = data(capsys, *run, *more)
        assert found["mfu"] == ours.mfu and found["explanations"][0]["name"] == ours.explanations[0].name
        assert found["explanations"][0]["chance"] == ours.explanations[0].chance < 0.04
    assert data(capsys, *run, "--log", line, "--reported", "20 %")["reported"] == 0.2
    alone = [
        "doctor",
        "gpt2",
        "--seq",
        "1024",
        "--device",
        "v100-sxm",
        "--dtype",
        "fp16",
        "--log",
        "iter 2980: loss 3.9, time 1099.18ms, mfu 15.34%",
    ]
    assert data(capsys, *alone, "--global-batch", "60")["reported"] == pytest.approx(0.153)
    flops = data(
        capsys,
        "doctor",
        "--log",
        "completed step: 7, seconds: 2.167, TFLOP/s: 36.722, loss: 2.191",
        "--device",
        "tpu-v3",
    )
    assert flops["mfu"] == pytest.approx(36.722 / 123)
    flops = data(capsys, "doctor", "--tflops-per-device", "400", "--device", "h100-sxm")
    assert flops["mfu"] == pytest.approx(400 / 989.4) and flops["convention"] == "FLOPs as given"


def test_doctor_of_a_run_with_more_to_say(capsys):
    run = {"model": "llama-3-8b", "seq": 8192, "device": "h100-sxm", "count": 8}
    words = [
        "doctor",
        "llama-3-8b",
        "--seq",
        "8192",
        "--device",
        "h100-sxm",
        "--count",
        "8",
        "--tokens",
        "1.5B",
        "--device-hours",
        "64",
    ]
    more = {
        ("--lora", "16"): {"trained": fk.LoRA(rank=16)},
        ("--lengths", "512,3584"): {"lengths": [512, 3584]},
        ("--dtype", "linear=fp8,rest=bf16"): {"dtype": {"linear": "fp8", "rest": "bf16"}},
        ("--parallel", "tp=2,cp=4"): {"parallel": {"tp": 2, "cp": 4}},
    }
    for options, arguments in more.items():
        found, ours = data(capsys, *words, *options), fk.doctor(**run, tokens="1.5B", device_hours=64, **arguments)
        assert (found["mfu"], found["hfu"]) == (ours.mfu, ours.hfu)
        assert [each["name"] for each in found["considered"]] == [each.name for each in ours.considered]


def test_an_impossible_run_is_an_answer_and_no_error(capsys):
    found = data(capsys, "doctor", "--tokens-per-s", "30000", *TITAN[2:8])
    assert found["verdict"] == "impossible" and found["explanations"]


def test_measure(capsys, monkeypatch):
    monkeypatch.setitem(BAR, "disable", True)  # on a busy machine it takes so long that a bar is shown
    found = data(capsys, "measure", "matmul_sizes", "--scale", "toy", "--device", "cpu")
    assert [each["params"]["n"] for each in found["results"]] == [16, 32, 32] and found["prediction"]
    text = said(capsys, "measure", "matmul_sizes", "--scale", "toy", "--device", "cpu")
    assert "n=32, data=zeros" in text and "Predicted: " in text and " FLOP/s" in text


def test_measure_ceilings(capsys, monkeypatch):
    """What `fk.ceilings` gives is printed; measuring them takes its time and has tests of its own."""
    held = {"low": 9.9e10, "high": 1.01e11, "steady": True, "verdict": "ok"}
    traffic = {"copy": {"bytes_per_s": 1e10, **held}}
    found, asked = (
        fk.measuring.Ceilings(
            "my CPU", "cpu", {"fp32": {"flops_per_s": 1e11, "shape": [8, 8, 8], **held}}, traffic, 1e-6, "2026-01-01"
        ),
        [],
    )
    monkeypatch.setattr(
        "flopkit.cli.measure.ceilings", lambda device, time_budget: asked.append((device, time_budget)) or found
    )
    assert data(capsys, "measure", "ceilings", "--device", "cpu", "--time-budget", "1") == found.record()
    assert said(capsys, "measure", "Ceilings") == f"{found!r}\n" and asked == [("cpu", 1.0), (None, None)]


def test_record(capsys, tmp_path, monkeypatch):
    """Without --out the recording goes where `flopkit.recordings` looks for the reader's own."""
    monkeypatch.setenv("FLOPKIT_RECORDINGS", str(tmp_path / "kept"))
    here = ["record", "--only", "matmul_sizes", "--scale", "toy", "--device", "cpu"]
    found = data(capsys, *here, "--who", "A. Reader")
    assert (found["new"], found["experiments"][0]["cases"], found["experiments"][0]["failed"]) == (3, 3, "")
    assert Path(found["file"]).parent == tmp_path / "kept" and "0 of them new" in said(capsys, *here)
    mine = fk.recordings.records("matmul_sizes")
    assert len(mine) == 3 and {case.owner for case in mine} == {"yours"}
    assert [row["experiment"] for row in data(capsys, "record", "--list")] == list(fk.experiments.NAMES)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["count", "llama-3-8b"], "--seq is missing, the tokens of a sequence: e.g. --seq 4096"),
        (["count", "clip-vit-base-patch16"], "e.g. --seq 77: clip-vit-base-patch16 has positions for no more"),
        (["count", "roberta-base"], "e.g. --seq 512: "),  # of 514 rows two are for no token
        (
            ["count", "resnet50", "--seq", "8"],
            "--seq: resnet50 reads images and no tokens; --height and --width are their size",
        ),
        (["count", "vgg16", "--height", "16"], "--height 16 is too small for vgg16"),
        (["count", "resnet50", "--train", "--lora", "8"], "of resnet50 either 'all' is trained or the 'head' alone"),
        (
            ["count", "resnet50", "--train", "--recompute", "full"],
            "resnet50 has no equal layers that could be recomputed",
        ),
        (["count", "resnet50", "--convention", "SIX_N"], "give EXACT or TORCH, or a model of text"),
        (
            ["count", "gpt2", "--seq", "8", "--width", "8"],
            "--width is for convolutional networks: gpt2 has no images of that size",
        ),
        (
            ["doctor", "resnet50", *TITAN[:2], "--seq", "8", "--device", "h100-sxm"],
            "resnet50 reads images: it has no tokens",
        ),
        (["count", "llama-3-8b", "--seq", "0"], "--seq 0: a size must be at least 1"),
        (["count", "llama-3-8b", "--seq", "8k"], "--seq: '8k' is not a whole number: write it in digits, such as 8192"),
        (["count", "llama-3-9b", "--seq", "1"], "llama-3-8b"),
        (["count", "llama-3-8b", "--seq", "8", "--convention", "PLAM"], "did you mean PALM"),
        (["count", "llama-3-8b", "--seq", "8", "--recompute", "full"], "--recompute goes with --train"),
        (["count", "llama-3-8b", "--seq", "8", "--lora", "8"], "--lora goes with --train"),
        (["count", "llama-3-8b", "--seq", "8", "--shards", "8"], "--shards goes with --train"),
        (["count", "llama-3-8b", "--seq", "8", "--train", "--shards", "0"], "shards"),
        (["count", "t5-base", "--seq", "8", "--train", "--shards", "2"], "not known here"),
        (["count", "resnet50", "--train", "--shards", "2"], "how resnet50 is divided among devices is not known here"),
        (["count", "llama-3-8b", "--seq", "8", "--train", "--lora", "0"], "rank"),
        (["doctor", "gpt2", *TITAN], "name one model"),
        (["count", "llama-3-8b", "--seq", "8", "--batch", "0"], "--batch 0: a size"),
        (["count", "no.json", "--seq", "8"], "no.json"),
        (["devices", "h100"], "did you mean"),
        (["devices", "h100-sxmm"], "did you mean h100-sxm?"),
        (["devices", "h200-nvll"], "did you mean h200-nvl?"),
        (["doctor", *TITAN, "--reported", "1.04"], "may be a share"),
        (["doctor", *TITAN, "--dtype", "fp4"], "has no peak for fp4"),
        (["doctor", *TITAN[:1], "nan", *TITAN[2:]], "--tokens-per-s nan"),
        (["doctor", *TITAN[:1], "-5", *TITAN[2:]], "--tokens-per-s -5"),
        (["doctor", *TITAN, "--recompute", "some"], "invalid choice: 'some'"),
        (["doctor"], "--tokens-per-s"),
        (["doctor", "gpt2", "--seq", "8", "--tokens-per-s", "5"], "--device is missing"),
        (["doctor", *TITAN, "--tokens", "1B", "--device-hours", "3"], "--tokens-per-s and --tokens are 2 rates"),
        (["doctor", *TITAN, "--log", "5 tok/s/GPU"], "--log has a rate: leave out the other one"),
        (["doctor", *TITAN[2:], "--log", "loss: 5"], "no rate of a log that is known here"),
        (
            ["doctor", *TITAN[2:], "--log", "5 steps, 1.85it/s"],
            "--step-seconds goes with --global-batch, which is missing",
        ),
        (["doctor", *TITAN, "--parallel", "tp=3"], "does not divide --count 8"),
        (["doctor", *TITAN, "--parallel", "tp"], "write names and values, such as tp=4,cp=2"),
        (["doctor", *TITAN, "--lengths", "5,x"], "--lengths: 'x' is not a whole number"),
        (["measure", "matmul"], "did you mean matmul_"),
        (["measure", "matmul_sizes", "--scale", "huge"], "invalid choice: 'huge'"),
        (["measure", "matmul_sizes", "--scale", "toy", "--time-budget", "-1"], "--time-budget -1"),
        (["record", "--only", "matmul_sizes,matmul", "--out", "x.json"], "did you mean matmul_"),
        (["record", "--out", ""], "--out '': names no file or folder"),
        (["counters", "--read", ""], "--read '': names no file or folder"),
        (["counters", "--out", " "], "--out ' ': names no file or folder"),
        (["count", "gpt2", "--seq", "8", "--batch", "1" + "0" * 400], "--batch 1e+400: a size must be at most 1e+30"),
        (["measure", "ceilings", "--scale", "toy"], "--scale goes with an experiment"),
        ([], "name a command: devices, count,"),
        (["--json"], "name a command: devices, count,"),
        (["cuont"], "'cuont' is not a command; did you mean count"),
        (["count", "gpt2", "--sek", "8"], "did you mean --seq?; see python -m flopkit count --help"),
        (["count", "gpt2", "bert", "--seq", "8"], "unknown argument 'bert'"),
        (["run", "python", "train.py"], "the command goes after --, such as python -m flopkit run -- python train.py"),
        (["run", "--step", "5", "--", "python"], "did you mean --steps"),
        (["counters", "--read", "/no/folder"], "no cases.json: name a folder that"),
        (["train", "gpt2", "--tokens", "1B", "--device", "x9", "--mfu", "0.4"], "python -m flopkit devices lists them"),
    ],
)
def test_bad_input(capsys, argv, message):
    assert main(argv) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and message in shown.err and shown.err.count("\n") == 1, shown.err


@pytest.mark.parametrize("argv", [["measure", "matmul_sizes"], ["measure", "ceilings"], ["record"]])
def test_a_device_that_is_not_here(capsys, monkeypatch, argv):
    monkeypatch.setattr("flopkit.machine.kind", lambda: "cpu")
    assert main([*argv, "--device", "cuda"]) == 2
    assert "torch finds no CUDA device here" in capsys.readouterr().err


@pytest.mark.parametrize(
    "text", ["{", "[1, 2]", '{"model_type": "llama"}', "\x00", "[" * 100_000, '{"model_type": 3}', ""]
)
def test_a_config_that_is_none(capsys, tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    assert main(["count", str(path), "--seq", "8"]) == 2
    shown = capsys.readouterr()
    assert shown.err.startswith("flopkit: ") and shown.err.count("\n") == 1 and shown.out == ""


def test_enormous_numbers_are_no_traceback(capsys):
    with contextlib.suppress(SystemExit):
        assert main(["count", "gpt2", "--seq", "1024", "--batch", "1" + "0" * 400]) in (0, 2)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS)])
def test_the_examples_of_the_help_run(capsys, command, tmp_path, monkeypatch):
    configs = json.loads((files("flopkit") / "data" / "hf_configs.json").read_text("utf-8"))
    (tmp_path / "config.json").write_text(json.dumps(configs["mistral-7b"]["config"]))
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as ended:
        main([*command, "--help"])
    assert ended.value.code == 0
    lines = capsys.readouterr().out.partition("examples:")[2].splitlines()
    examples = [line.split()[3:] for line in lines if line.strip()]
    if command == ["run"]:  # which becomes another program: that its options are understood is seen before
        monkeypatch.setattr("flopkit.cli.run.shutil.which", lambda name: name)
        monkeypatch.setattr("os.execve", lambda program, words, environment: sys.exit(program in words))
        Path("train.py").touch()
        for example in examples:
            with pytest.raises(SystemExit, match="True"):
                main(example)
        return
    assert len(examples) >= 2 and all(main(example) == 0 for example in examples)


def test_the_format_of_the_weights(capsys, tmp_path):
    """An option, else what the file says; a card without a peak for it only stores it."""
    llama = {"model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
             "num_attention_heads": 32, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}  # fmt: skip
    path = tmp_path / "config.json"
    path.write_text(json.dumps(llama))
    assert main(["count", str(path), "--seq", "64", "--device", "a100-sxm-80gb"]) == 0
    assert "weights in fp8_block (attention, mlp), bf16 (rest)  7.002 GB" in capsys.readouterr().out
    assert main(["count", str(path), "--seq", "64", "--weights", "Q4_K_M"]) == 0
    assert "weights in q6_k (head), fp32 (norms), q4_k (rest), some layers otherwise" in capsys.readouterr().out
    path.write_text(json.dumps(llama | {"quantization_config": {"quant_method": "hqq"}}))
    assert main(["count", str(path), "--seq", "64"]) == 0
    told = capsys.readouterr().out
    assert "'hqq' is not read" in told and "846.8 GFLOPs" in told
    assert ["weights", "not", "known", "here"] in map(str.split, told.splitlines())
    assert main(["count", str(path), "--seq", "64", "--device", "h100-sxm"]) == 2
    assert "how its weights are stored is not known; say it: --weights 'bf16'" in capsys.readouterr().err
    assert main(["count", str(path), "--seq", "64", "--weights", "bf16", "--device", "h100-sxm"]) == 0
    assert "weights in bf16" in capsys.readouterr().out
    assert main(["count", "llama-2-7b", "--seq", "64", "--weights", "q8_0"]) == 0
    assert "weights in q8_0   7.16 GB" in capsys.readouterr().out  # the file of llama.cpp: 7.16 GB
    assert main(["count", "llama-2-7b", "--seq", "64", "--weights", "q8_9"]) == 2
    assert "--weights 'q8_9' is not a known number format; did you mean q8_0" in capsys.readouterr().err
    assert main(["count", "resnet50", "--weights", "fp8"]) == 2
    assert "--weights is for transformers" in capsys.readouterr().err


def test_a_decoding_step_has_both_bounds_and_says_how_many_texts_fit(capsys):
    argv = ["count", "llama-3-8b", "--seq", "2048", "--batch", "512", "--device", "h100-sxm"]
    found, step = data(capsys, *argv), fk.serving.decode("llama-3-8b", "h100-sxm", context=2048, batch=512)
    assert found["decoding_step,_at_least"] == step.seconds
    assert found["its_parts_in_order,_at_least"] == step.in_order.seconds > 1.07 * step.seconds
    assert found["texts_that_fit_at_once"] == fk.serving.largest_batch("llama-3-8b", "h100-sxm", context=2048)
    mixture = data(capsys, "count", "mixtral-8x7b", "--seq", "64", "--batch", "3", "--device", "mi300x")
    bound = fk.serving.decode("mixtral-8x7b", "mi300x", context=64, batch=3)
    assert mixture["its_experts_by_chance,_in_order,_at_least"] == bound.expected.in_order.seconds < bound.seconds


TRAIN = ["train", "llama-3.1-8b", "--tokens", "15e12", "--device", "h100-sxm"]


def test_train(capsys):
    run = fk.load("llama-3.1-8b").training(tokens=15e12, device="h100-sxm", count=1024, mfu=0.4, price=2, goodput=0.9)
    argv = [*TRAIN, "--count", "1024", "--mfu", "40%", "--price", "2", "--goodput", "90%"]
    found = data(capsys, *argv)
    assert found["device_hours"] == run.device_hours and found["dollars"] == run.dollars
    assert found["kilowatt_hours"] == run.kilowatt_hours and found["mfu"] == pytest.approx(0.4)
    text = said(capsys, *argv, "--budgets")
    assert f"{run.device_hours:,.0f}" in text and "Chinchilla's rule of 20" in text
    assert len(data(capsys, *argv, "--budgets")["budgets"]) == 5
    assert round(data(capsys, *TRAIN, "--device-hours", "1.46e6")["mfu"], 4) == 0.1485
    as_printed = ["train", "llama-3.1-8b", "--tokens", "15T", "--device", "h100-sxm", "--device-hours"]
    assert (
        data(capsys, *as_printed, "1.46M")
        == data(capsys, *as_printed, "1,460,000")
        == data(capsys, *TRAIN, "--device-hours", "1.46e6")
    )
    lora = data(capsys, *argv, "--lora", "8", "--seq", "2048")
    assert lora["seq"] == 2048 and lora["device_hours"] < 0.72 * run.device_hours


@pytest.mark.parametrize(("more", "message"), [
    ([], "give one of --mfu, --device-hours,"), (["--mfu", "a%"], "'a%' is not a share"), (["--mfu", "40"], "write 0.4 or 40%"), (["--mfu", "400"], "--mfu 400.0: must be at most 1"),
    (["--hours", "x"], "'x' is not a number: write 15e12, 15T or 1,000,000"), (["--hours", "1,5"], "'1,5' is not a number"),
])  # fmt: skip
def test_train_refuses_in_a_line(capsys, more, message):
    assert main([*TRAIN, *more]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1
    assert main(["train", "resnet50", *TRAIN[2:], "--mfu", "0.4"]) == 2
    assert "a run is told in tokens" in capsys.readouterr().err
