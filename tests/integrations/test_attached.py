"""`python -m flopkit run`: a program that knows nothing of it. Its losses, its exit code and its names are those of a run by itself."""

import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_pre_hook

import flopkit as fk
from flopkit.cli import main
from flopkit.integrations import attached, passports, watched_steps

ROOT = Path(fk.__file__).parents[1]
HOOKS = Path(attached.__file__).parent / "on_path" / "sitecustomize.py"

spec = importlib.util.spec_from_file_location("flopkit_on_path", HOOKS)
on_path = importlib.util.module_from_spec(spec)
spec.loader.exec_module(on_path)

ASKED = {
    "steps": 3, "every": 1e9, "device": None, "peak": None, "dtype": None, "convention": "TORCH", "uncompiled": False,
    "json": None, "passport": None, "flopkit": str(ROOT), "command": ["python", "train.py"],
}  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_compiled():
    """Other tests of this process may have compiled something."""
    if "torch._dynamo.utils" in sys.modules:
        sys.modules["torch._dynamo.utils"].counters.clear()


@contextlib.contextmanager
def attachment(folder, **asked):
    """What `run` does in a process of its own, in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FLOPKIT_RUN_FOLDER", str(folder))
        hook = on_path.Hook(json.dumps({**ASKED, **asked}))
    handle = register_optimizer_step_pre_hook(hook)
    try:
        yield hook
    finally:
        handle.remove()
        hook.end()


def run_of(hook):
    return passports.of(hook.attachment)


def train(model, steps, batch=lambda k: torch.ones(4, 8), micro=1, optimizer=None, after=lambda k: None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=0.01)
    for k in range(steps):
        for _ in range(micro):
            model(batch(k)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        after(k)
    return optimizer


def python(folder, script, *words, before=(), **more):
    """Run a script, with *before* in front of ``python``."""
    (folder / "train.py").write_text(script)
    return subprocess.run(
        [*before, sys.executable, "train.py", *words], cwd=folder, capture_output=True, text=True, encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}, timeout=300, **more,
    )  # fmt: skip


RUN = (sys.executable, "-m", "flopkit", "run")

PROGRAM = """
import os, sys, torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack as modes
class Data(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, i): return torch.full((16,), i), len(modes())
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(50, 16), torch.nn.Dropout(0.2), torch.nn.Linear(16, 50))
optimizer = torch.optim.AdamW(model.parameters())
schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.9)
scaler = torch.amp.GradScaler("cpu")
seen = 0
for step in range(8):
    loader = torch.utils.data.DataLoader(Data(), 2, num_workers=1 if step in (3, 6) else 0)
    for x, watched in loader:
        seen += int(watched.sum()) * (loader.num_workers > 0)
        with torch.autocast("cpu", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), x.flatten())
        scaler.scale(loss).backward()
    scaler.step(optimizer); scaler.update(); schedule.step(); optimizer.zero_grad()
    print(step, loss.item().hex(), torch.rand(1).item().hex())
print(sys.argv[1:], __name__, __file__, os.getcwd(), seen, input(), [p for p in sys.path if "on_path" in p])
print("flopkit" not in dir(), "words on stderr", file=sys.stderr)
sys.exit(7)
"""


def test_a_program_does_what_it_does_by_itself(tmp_path):
    """Losses, random numbers, arguments, names, standard input, exit code; and nobody watches its workers."""
    alone = python(tmp_path, PROGRAM, "--lr", "3", "--", "-x", input="typed\n")
    counted = python(
        tmp_path, PROGRAM, "--lr", "3", "--", "-x", input="typed\n",
        before=(*RUN, "--json", "lines.jsonl", "--passport", "pass", "--every", "0.0001", "--peak", "1T", "--"),
    )  # fmt: skip
    assert alone.returncode == counted.returncode == 7
    assert (
        counted.stdout == alone.stdout
        and "['--lr', '3', '--', '-x'] __main__" in alone.stdout
        and "0 typed []" in alone.stdout
    )
    assert alone.stderr == "True words on stderr\n"
    said = counted.stderr.removeprefix(alone.stderr)
    assert said.startswith("flopkit: 8 optimiser steps, mean of 3: ") and said.count("\n") == 1 and "MFU" in said
    lines = [json.loads(line) for line in (tmp_path / "lines.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["counted", "steps", "steps", "steps", "end"]
    flops = 3 * 2 * 64 * 16 * 50  # forward and backward, of 64 tokens
    assert lines[0]["model_flops"] == lines[0]["hardware_flops"] == flops  # two micro-batches of 2 × 16 tokens
    assert lines[0]["tokens"] == 64 and lines[0]["samples"] == 4 and lines[0]["uncounted"] == []
    for line in lines[1:4]:
        assert line["mfu"] == pytest.approx(flops / line["seconds"] / 1e12)
        assert line["tokens_per_s"] == pytest.approx(64 / line["seconds"])
    passport = json.loads((tmp_path / "pass.json").read_text())
    assert passport["step"]["counted"] == [4, 5] and passport["run"]["steps"] == 8 and passport["run"]["timed"] == 3
    assert passport["models"] == [
        {"class": "torch.nn.modules.container.Sequential", "in": [], "parameters": 1650, "trained": 1650, "dtypes": ["float32"], "sharded": False}
    ]  # fmt: skip
    assert passport["optimizer"] == "torch.optim.adamw.AdamW" and passport["memory"]["most_resident"] > 1e7
    assert passport["device"] | {"name": ""} == {
        "type": "cpu", "name": "", "peak": 1e12, "formats": ["bf16"], "peak_of": "the peak that --peak gives", "peak_source": "given as --peak",
    }  # fmt: skip
    assert passport["versions"]["torch"] == torch.__version__ and passport["versions"]["flopkit"] == fk.__version__
    page = (tmp_path / "pass.md").read_text()
    assert (
        "| parameters | 1,650, trained 1,650, in float32 |" in page
        and "steps 4, 5; all others are taken to do the same" in page
    )


def test_a_program_that_dies_dies_as_by_itself(tmp_path):
    """In the counted step, so that the counter is at work."""
    script = (
        "import torch\nmodel = torch.nn.Linear(2, 2)\noptimizer = torch.optim.SGD(model.parameters())\n"
        "for k in range(9):\n    if k == 4:\n        raise KeyError('gone')\n"
        "    model(torch.ones(1, 2)).sum().backward(); optimizer.step()\n"
    )
    ran = python(tmp_path, script, before=(*RUN, "--"))
    assert (
        ran.returncode == 1
        and ran.stdout == ""
        and ran.stderr.startswith("Traceback (most recent call last):\n  File ")
    )
    said = ran.stderr.partition("KeyError: 'gone'\n")[2]
    assert (
        "a single step was counted" in said
        and "4 optimiser steps" in said
        and "flopkit" not in ran.stderr.partition("KeyError")[0]
    )


def test_a_program_without_torch(tmp_path):
    """Another sitecustomize is loaded, too, and the words of the program pass unchanged."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "sitecustomize.py").write_text("import builtins\nbuiltins.theirs = 'theirs'\n")
    (tmp_path / "train.py").write_text(
        "import sys\nprint(theirs, sys.modules['sitecustomize'].__file__.split('/')[-2])\nsys.exit('no')"
    )
    ran = subprocess.run(
        [*RUN, "--", sys.executable, "train.py"], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(tmp_path / "own")))},
    )  # fmt: skip
    assert ran.returncode == 1 and ran.stdout == "theirs own\n"
    assert ran.stderr == "no\nflopkit: this program never imported torch; nothing was counted\n"


RANKS = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 16 ))
optimizer = torch.optim.SGD(model.parameters())
x = torch.ones(3 + dist.get_rank(), 8)
for k in range(8):
    loss = model(x).square().mean(); loss.backward(); optimizer.step(); optimizer.zero_grad()
total = loss.detach().clone(); dist.all_reduce(total)
if dist.get_rank() == 0: print(total.item().hex())
dist.destroy_process_group()
"""


def test_the_ranks_of_torchrun(tmp_path):
    """Each counts its own step; rank 0 speaks, and says whose numbers these are."""
    (tmp_path / "train.py").write_text(RANKS)
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    counted = subprocess.run(
        [*RUN, "--passport", "ddp", "--", *torchrun], cwd=tmp_path, capture_output=True, text=True, env=env, timeout=300
    )
    assert counted.returncode == 0 and counted.stdout.startswith("0x"), counted.stderr
    said = [line for line in counted.stderr.splitlines() if line.startswith("flopkit: ")]
    assert len(said) == 2 and "rank 0's of 2" in said[0] and "(Linear)" in said[0] and "rank 0's of 2" in said[1]
    passport = json.loads((tmp_path / "ddp.json").read_text())
    each = [2 * 2 * rows * 8 * 16 for rows in (3, 4)]  # forward, and the gradient of the weight
    assert [rank["model_flops"] for rank in passport["ranks"]["on_this_machine"]] == each
    assert passport["step"]["model_flops"] == each[0] and passport["models"][0]["in"] == ["DistributedDataParallel"]


def test_a_step_is_what_fk_count_counts(tmp_path, capsys):
    model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 8))
    optimizer = torch.optim.AdamW(model.parameters())
    with attachment(tmp_path) as hook:
        train(model, 6, micro=3, optimizer=optimizer)
    whole = fk.count(train, model, 1, micro=3, optimizer=optimizer)
    step = run_of(hook)["step"]
    assert step["model_flops"] == whole.model_flops > 0 and step["counted"] == [3, 4]
    assert {name: step[f"{name}_flops"] for name in ("forward", "backward")} == {
        "forward": whole.forward.flops, "backward": whole.backward.flops,
    }  # fmt: skip
    assert "steps 3 and 4 counted (Sequential): " in capsys.readouterr().err
    assert not _global_optimizer_post_hooks and not torch.nn.modules.module._global_forward_pre_hooks


def test_two_optimisers_make_one_step(tmp_path):
    """As in a GAN whose critic steps three times as often: the step is the generator's."""
    critic, generator = nn.Linear(8, 1, bias=False), nn.Linear(2, 8, bias=False)
    often, seldom = torch.optim.SGD(critic.parameters()), torch.optim.SGD(generator.parameters())
    noise = torch.ones(5, 2)
    with attachment(tmp_path, steps=4) as hook:
        for _ in range(8):
            for _ in range(3):
                critic(generator(noise).detach()).mean().backward()
                often.step()
            critic(generator(noise)).mean().backward()
            seldom.step()
    made, judged = 2 * 5 * 2 * 8, 2 * 5 * 8
    # thrice: both forward, the critic's weight; once: both forward, and both gradients but that of the noise
    assert run_of(hook)["step"]["model_flops"] == 3 * (made + 2 * judged) + 2 * made + 3 * judged
    assert run_of(hook)["run"]["steps"] == 8 and run_of(hook)["optimizer"].endswith(".SGD")


def test_optimisers_that_call_each_other_step_once(tmp_path):
    class Own(torch.optim.SGD):
        def step(self, closure=None):
            return super().step(closure)

    model = nn.Linear(8, 8)
    train(model, 1)  # torch wraps the step of both classes
    with attachment(tmp_path) as hook:
        train(model, 6, optimizer=Own(model.parameters(), lr=0.1))
    assert run_of(hook)["run"]["steps"] == 6


def test_a_step_that_fails_is_forgotten(tmp_path):
    class Failing(torch.optim.SGD):
        fails = True

        def step(self, closure=None):
            if self.fails:
                raise RuntimeError("out of memory")
            return super().step(closure)

    model = nn.Linear(8, 8)
    optimizer = Failing(model.parameters(), lr=0.1)
    with attachment(tmp_path) as hook:
        for _ in range(2):
            with pytest.raises(RuntimeError, match="out of memory"):
                optimizer.step()
        Failing.fails = False
        train(model, 6, optimizer=optimizer)
    assert run_of(hook)["run"]["steps"] == 6 and run_of(hook)["step"]["model_flops"] == 2 * 2 * 4 * 8 * 8


def test_a_closure_is_a_part_of_its_step(tmp_path):
    model = nn.Linear(8, 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure():
        optimizer.zero_grad()
        loss = model(torch.ones(4, 8)).square().mean()
        loss.backward()
        return loss

    with attachment(tmp_path) as hook:
        for _ in range(6):
            optimizer.step(closure)
    assert run_of(hook)["step"]["model_flops"] == 2 * 2 * 4 * 8 * 8


def test_an_evaluation_in_one_of_the_counted_steps(tmp_path):
    """After one that differs, four in a row are the same: that is the step, and the passport says which one was not."""
    model = nn.Linear(8, 8)

    def evaluate(k):
        if k == 2:  # after the third step: in the second counted one
            with torch.no_grad():
                model(torch.ones(100, 8))

    with attachment(tmp_path, steps=3) as hook:
        train(model, 8, after=evaluate)
    found = run_of(hook)
    assert found["step"]["model_flops"] == 2 * 2 * 4 * 8 * 8 and found["step"]["counted"] == [3, 4, 5, 6, 7, 8]
    assert (
        "not all the same, the last one stands for all others: step 3 1.024 kFLOPs, step 4 13.82 kFLOPs, step 5 1.024 kFLOPs"
        in found["notes"][-1]
    )
    assert "an evaluation, a generation or a logging pass ran in some" in found["notes"][-1]


def test_steps_that_differ_are_refused(tmp_path, capsys):
    with attachment(tmp_path, peak=1e9) as hook:
        train(nn.Linear(8, 8), 15, batch=lambda k: torch.ones(4 + k, 8))
    found = run_of(hook)
    assert "model_flops" not in found["step"] and "mfu" not in found["run"] and found["run"]["timed"] == 4
    said = capsys.readouterr().err
    assert (
        "not counted: step 3 1.536 kFLOPs, step 4 1.792 kFLOPs, step 5 2.048 kFLOPs" in said
        and "step 11 3.584 kFLOPs: their sizes differ, by 2.33 ×" in said
    )


def test_a_program_that_ends_while_its_steps_differ_has_no_flops(tmp_path, capsys):
    with attachment(tmp_path, peak=1e9) as hook:
        train(nn.Linear(8, 8), 6, batch=lambda k: torch.ones(4 + k, 8))
    found = run_of(hook)
    assert "model_flops" not in found["step"] and found["step"]["counted"] == [3, 4, 5, 6]
    assert "not counted: step 3 1.536 kFLOPs, step 4 1.792 kFLOPs" in capsys.readouterr().err


def test_a_loop_that_evaluates_after_every_second_step(tmp_path, capsys):
    model = nn.Linear(8, 8)

    def batch(k):
        if k % 2:
            with torch.no_grad():
                model(torch.ones(4, 8))
        return torch.ones(4, 8)

    with attachment(tmp_path, peak=1e9) as hook:
        train(model, 12, batch=batch)
    found = run_of(hook)
    step, evaluation = 2 * 2 * 4 * 8 * 8, 2 * 4 * 8 * 8
    assert found["step"]["model_flops"] == step + evaluation // 2
    assert found["step"]["counted"] == [3, 4, 5, 6, 7, 8] and found["step"]["repeat"] == [7, 8]
    assert "the mean of the last 2" in capsys.readouterr().err
    assert "all others are taken to do what the last 2 did, on average" in passports.as_markdown(found)


def test_one_step_that_differs_is_not_taken_for_all(tmp_path):
    """Twice as many rows from the third counted step on: what ran twice at first is not what ran since."""
    with attachment(tmp_path, peak=1e9) as hook:
        train(nn.Linear(8, 8), 12, batch=lambda k: torch.ones(4 if k in (0, 1, 2, 4) else 8, 8))
    found = run_of(hook)
    assert found["step"]["model_flops"] == 2 * 2 * 8 * 8 * 8 and found["step"]["repeat"] == [9]
    assert "all others are taken to do what step 9 did" in passports.as_markdown(found)


def test_what_has_no_formula_is_named_and_there_is_no_mfu(tmp_path, capsys):
    @torch.library.custom_op("attached::halved", mutates_args=())
    def halved(x: torch.Tensor) -> torch.Tensor:
        return torch.from_numpy(x.numpy() / 2)

    with attachment(tmp_path, peak=1e9, steps=2) as hook:
        train(nn.Linear(8, 8), 6, batch=lambda k: halved(torch.ones(4, 8)))
    found = run_of(hook)
    assert "mfu" not in found["run"] and "model_flops_per_s" not in found["run"] and "samples_per_s" in found["run"]
    assert found["step"]["uncounted"][0]["operator"] == "attached.halved"
    assert "not counted: attached.halved (1 call), so no MFU" in capsys.readouterr().err
    assert "| NOT COUNTED | attached.halved, 1 call |" in passports.as_markdown(found)


def test_compiled_functions_are_refused_in_words(tmp_path, capsys):
    """They would run uncompiled in the counted steps; with --uncompiled they do."""

    class Model(nn.Linear):
        def forward(self, x):
            return super().forward(x).relu()

    model = Model(8, 8)
    model.compile(backend="aot_eager")
    torch._dynamo.reset()
    try:
        with attachment(tmp_path) as hook:
            train(model, 6)
        assert "not counted: the program runs compiled functions (torch.compile)" in capsys.readouterr().err
        assert "model_flops" not in run_of(hook)["step"] and run_of(hook)["run"]["timed"] == 4
        with attachment(tmp_path, uncompiled=True) as hook:
            train(model, 6)
        assert run_of(hook)["step"]["model_flops"] == 2 * 2 * 4 * 8 * 8
        torch._dynamo.utils.counters.clear()
        with attachment(tmp_path) as hook:
            train(nn.Linear(8, 8), 6)
            compiled = torch.compile(lambda x: x.sin() + 1, backend="aot_eager")
            compiled(torch.ones(4, 8))
        assert "compiled functions ran after the counted steps" in run_of(hook)["notes"][-1]
    finally:
        torch._dynamo.reset()


def test_a_step_in_the_backward_pass_is_refused(tmp_path):
    layer = nn.Linear(8, 8)
    one = torch.optim.SGD([layer.weight], lr=0.1)
    layer.weight.register_post_accumulate_grad_hook(lambda _: one.step())
    with attachment(tmp_path) as hook:
        for _ in range(6):
            layer(torch.ones(4, 8)).sum().backward()
    assert "steps inside of the backward pass" in run_of(hook)["notes"][0]


def test_a_mode_of_the_program_s_own_is_refused(tmp_path):
    from torch.utils.flop_counter import FlopCounterMode

    with attachment(tmp_path) as hook, FlopCounterMode(display=False) as own:
        train(nn.Linear(8, 8), 6)
    assert "at work in a _FlopCounterMode" in run_of(hook)["notes"][0] or "FlopCounterMode" in run_of(hook)["notes"][0]
    assert own.get_total_flops() == 6 * 2 * 2 * 4 * 8 * 8


@pytest.mark.parametrize(("made", "says"), [(1, "1 optimiser step, and"), (2, "2 optimiser steps, and the first that is counted is step 5; --steps 2")])  # fmt: skip
def test_too_few_steps(tmp_path, capsys, made, says):
    with attachment(tmp_path, steps=5):
        train(nn.Linear(8, 8), made)
    assert says in capsys.readouterr().err


def test_another_optimiser_begins_anew(tmp_path):
    with attachment(tmp_path) as hook:
        train(nn.Linear(8, 8), 6)
        train(nn.Linear(8, 16), 7)
    found = run_of(hook)
    assert found["step"]["model_flops"] == 2 * 2 * 4 * 8 * 16 and found["run"]["steps"] == 7
    assert "the first 6 steps of torch.optim.sgd.SGD, which is gone, are not in these numbers" in found["notes"]


def test_tokens_are_those_of_the_first_embedding_outside_of_a_checkpoint(tmp_path):
    class Text(nn.Module):
        def __init__(self):
            super().__init__()
            self.words, self.places, self.out = nn.Embedding(9, 8), nn.Embedding(6, 8), nn.Linear(8, 8)

        def forward(self, x):
            return self.out(torch.utils.checkpoint.checkpoint(self.embed, x, use_reentrant=False))

        def embed(self, x):
            return self.words(x) + self.places(torch.arange(x.shape[1])[None])

    with attachment(tmp_path) as hook:
        train(Text(), 6, batch=lambda k: torch.ones(4, 6, dtype=torch.int64), micro=2)
    assert run_of(hook)["step"]["tokens"] == 2 * 4 * 6 and run_of(hook)["step"]["samples"] == 8


def test_labels_are_no_tokens(tmp_path):
    class Labelled(nn.Module):
        def __init__(self):
            super().__init__()
            self.labels = nn.Embedding(9, 8)

        def forward(self, x):
            return self.labels(x)

    with attachment(tmp_path) as hook:
        train(Labelled(), 6, batch=lambda k: torch.ones(4, dtype=torch.int64))
    assert run_of(hook)["step"]["tokens"] is None and run_of(hook)["step"]["samples"] == 4


def test_the_convention_and_a_device(tmp_path):
    class Causal(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.Linear(8, 24, bias=False)

        def forward(self, x):
            q, k, v = self.qkv(x).bfloat16().chunk(3, -1)
            return nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    batch = lambda k: torch.ones(1, 2, 4, 8)
    flops = {}
    for convention in ("TORCH", "EXACT"):
        with attachment(tmp_path, convention=convention, device="h100-sxm") as hook:
            train(Causal(), 6, batch=batch)
        found = run_of(hook)
        flops[convention] = found["step"]["model_flops"]
        assert (
            found["step"]["convention"] == convention and found["device"]["peak_source"] == fk.device("h100-sxm").source
        )
        assert found["run"]["mfu"] < 1e-3 and set(found["device"]["formats"]) == {"fp32", "bf16"}
    hidden = 3 * 2 * 2 * 2 * 8 * (16 - 10)  # forward and backward, two products, two heads, of 8, pairs
    assert flops["TORCH"] - flops["EXACT"] == hidden


def test_an_impossible_rate_is_said_once_and_is_no_mfu(tmp_path, capsys):
    card = fk.device("h100-sxm")
    with attachment(tmp_path, device="h100-sxm") as hook:
        train(nn.Linear(8, 8), 6)
        run = hook.attachment
        for _ in range(2):
            assert "mfu" not in run.rates(1e-15)
    assert capsys.readouterr().err.count("is impossible") == 1 and card.name == "h100-sxm"


def test_our_own_failure_is_said_and_the_program_goes_on(tmp_path, capsys, monkeypatch):
    def broken(*args):
        raise LookupError("no such thing")

    monkeypatch.setattr(attached, "WatchedStep", broken)
    with attachment(tmp_path) as hook:
        train(nn.Linear(8, 8), 6)
    assert hook.attachment.phase == "off"
    assert capsys.readouterr().err.count("LookupError: no such thing") >= 1


def test_a_closed_stderr_and_a_file_that_cannot_be_written_stop_nothing(tmp_path, monkeypatch):
    with (tmp_path / "err").open("w") as closed:
        monkeypatch.setattr(sys, "stderr", closed)
    with attachment(tmp_path, json=str(tmp_path / "no" / "where")) as hook:
        optimizer = train(nn.Linear(8, 8), 6)
    assert hook.attachment.phase == "off" and optimizer.state_dict() and "no/where" in hook.attachment.why_not


def test_a_watched_step_leaves_nothing_behind():
    model = nn.Linear(8, 8)
    step = watched_steps.WatchedStep([torch.optim.SGD(model.parameters())])
    model(torch.ones(2, 8))
    step.stop()
    step.stop()
    model(torch.ones(2, 8))
    assert step.facts()["model_flops"] == 2 * 2 * 8 * 8 and not torch.nn.modules.module._global_forward_pre_hooks


BAD = [
    ([], "there is no command: write it after --"),
    (["--"], "there is no command"),
    (["--", "nowhere-to-be-found"], "there is no program of that name on the PATH"),
    (["--", sys.executable, "nowhere.py"], "nowhere.py: there is no such script"),
    (["--", sys.executable, "-u", "-W", "error", "nowhere.py"], "nowhere.py: there is no such script"),
    (["--", sys.executable, "-I", "x.py"], "-I has Python pass over PYTHONPATH"),
    (["--", sys.executable, "-uE", "-c", "1"], "-E has Python pass over PYTHONPATH"),
    (["--steps", "1", "--", sys.executable, "-c", "1"], "--steps 1: must be at least 2"),
    (["--every", "0", "--", sys.executable, "-c", "1"], "--every 0: must be a number of seconds"),
    (["--every", "nan", "--", sys.executable, "-c", "1"], "--every nan: must be a number of seconds"),
    (["--convention", "PALM", "--", sys.executable, "-c", "1"], "PALM"),
    (["--device", "h101", "--", sys.executable, "-c", "1"], "h101"),
    (["--device", "h100-sxm", "--dtype", "nvfp4", "--", sys.executable, "-c", "1"], "nvfp4"),
    (["--dtype", "bf15", "--", sys.executable, "-c", "1"], "bf15"),
    (["--peak", "-3", "--", sys.executable, "-c", "1"], "--peak"),
    (["--peak", "3T", "--device", "h200", "--", sys.executable, "-c", "1"], "give one of them"),
    (["--json", "no/where.jsonl", "--", sys.executable, "-c", "1"], "--json no/where.jsonl: there is no folder"),
    (["--passport", "", "--", sys.executable, "-c", "1"], "--passport '': names no file"),
    (["--passport", "no/where", "--", sys.executable, "-c", "1"], "--passport no/where: there is no folder"),
]


@pytest.mark.parametrize(("words", "says"), BAD)
def test_bad_input_is_one_line(capsys, tmp_path, monkeypatch, words, says):
    monkeypatch.chdir(tmp_path)
    assert main(["run", *words]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and says in shown.err and shown.err.count("\n") == 1, shown.err


def test_a_script_in_the_place_of_a_program(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    assert main(["run", "--", "train.py"]) == 2
    assert "train.py: write python train.py" in capsys.readouterr().err


posix = pytest.mark.skipif(os.name == "nt", reason="there is no such shell")


def shell(folder, line, **more):
    return subprocess.run(
        [*RUN, "--", "sh", "-c", line], cwd=folder, capture_output=True, text=True, timeout=300,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}, **more,
    )  # fmt: skip


@posix
def test_a_command_that_is_no_python_says_that_nothing_was_counted(tmp_path):
    """`run -- ls` said nothing; its output and its exit code are still its own, and nothing is left behind."""
    ran = shell(tmp_path, "echo out; echo err >&2; exit 3")
    assert (ran.stdout, ran.returncode) == ("out\n", 3)
    assert ran.stderr.startswith("err\nflopkit: sh started no Python that flopkit could enter, so no step was seen")
    assert "python -m flopkit run -- python train.py" in ran.stderr and not list(tmp_path.iterdir())


@posix
def test_a_shell_that_starts_python_leaves_the_word_to_it(tmp_path):
    ran = shell(tmp_path, f"{sys.executable} -c 'print(1)'; {sys.executable} -c 'print(2)'")
    assert ran.stdout == "1\n2\n" and "started no Python" not in ran.stderr
    assert ran.stderr.count("nothing was counted") == 2 and "never imported torch" in ran.stderr
    assert not list(tmp_path.iterdir())


@posix
def test_who_waits_for_all_its_children_finds_no_other(tmp_path):
    """What watches is no child of the command, and a signal of the terminal does not end it."""
    ran = shell(tmp_path, "wait; ps -o pid= --ppid $$ | wc -l; kill -INT 0", start_new_session=True)
    assert int(ran.stdout) <= 2, "the two of that line"
    assert ran.returncode == -2 and "started no Python" in ran.stderr
