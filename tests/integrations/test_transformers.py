"""The callback in a real ``Trainer``, on a CPU."""

import json
import math

import pytest

import flopkit as fk

torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
pytest.importorskip("accelerate")

from flopkit.integrations import TransformersCallback, number_formats  # noqa: E402

TOY = fk.Device("toy", peak={"bf16": 3e13, "fp32": 1e13}, bandwidth=1e12)
CONFIG = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 128,
    "max_position_embeddings": 64, "tie_word_embeddings": False,
}  # fmt: skip
SEQ = 16


class Data(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, place):
        ids = (torch.arange(SEQ) + place) % 128
        return {"input_ids": ids, "labels": ids}


class Watcher(transformers.TrainerCallback):
    """Sees logs as a reporter does."""

    def __init__(self):
        self.seen = []

    def on_log(self, args, state, control, logs=None, **_):
        self.seen.append(dict(logs))


class Clock(transformers.TrainerCallback):
    """A step takes a second, an evaluation 100 seconds a batch, a checkpoint 1,000."""

    now = 0.0

    def __call__(self):
        return self.now

    def on_step_begin(self, args, state, control, **_):
        self.now += 1

    def on_prediction_step(self, args, state, control, **_):
        self.now += 100

    def save(self, *_):
        self.now += 1000


def trainer(tmp_path, callbacks=(), **args):
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**CONFIG))
    settings = {
        "per_device_train_batch_size": 2, "gradient_accumulation_steps": 2, "max_steps": 6, "logging_steps": 2, "use_cpu": True, "report_to": [],
        "save_strategy": "no", "disable_tqdm": True, **args,
    }  # fmt: skip
    args = transformers.TrainingArguments(output_dir=str(tmp_path), **settings)
    return transformers.Trainer(
        model=model, args=args, train_dataset=Data(), eval_dataset=Data(), callbacks=list(callbacks)
    )


def test_the_trainer_s_own_logs_have_the_metrics(tmp_path):
    callback = TransformersCallback(seq=SEQ, device=TOY)
    run = trainer(tmp_path, [callback])
    run.train()
    training = [line for line in run.state.log_history if "loss" in line]
    assert len(training) == 3
    flops = fk.models.transformer(
        layers=2, d_model=32, heads=4, kv_heads=2, d_ff=64, vocab=128, gated=True
    ).train_step(seq=SEQ, batch=4).model_flops  # fmt: skip
    for line in training:
        assert (
            line["mfu"] == pytest.approx(flops / line["step_seconds"] / 1e13) and line["hfu"] > line["mfu"]
        )  # the scores that a flash kernel computes again
        assert (
            line["tokens_per_second"]
            == pytest.approx(4 * SEQ / line["step_seconds"])
            == line["tokens_per_second_per_device"]
        )
    [last] = [line for line in run.state.log_history if "train_runtime" in line]
    mean = sum(line["step_seconds"] for line in training) / 3
    assert last["train_step_seconds"] == pytest.approx(mean)
    assert last["train_step_seconds"] * 6 <= last["train_runtime"] * 1.05
    json.dumps(run.state.log_history)


class Of(Data):
    """As many sequences, of as many tokens."""

    def __init__(self, sequences, tokens):
        self.sequences, self.tokens = sequences, tokens

    def __len__(self):
        return self.sequences

    def __getitem__(self, place):
        return {"input_ids": torch.arange(self.tokens), "labels": torch.arange(self.tokens)}


@pytest.mark.parametrize(
    ("data", "tokens", "settings"),
    [
        (Of(10, SEQ), [4 * SEQ, 4 * SEQ, 2 * SEQ], {"num_train_epochs": 1}),  # an epoch ends within a step
        (Of(7, SEQ), [4 * SEQ, 3 * SEQ], {"num_train_epochs": 1}),  # and within a batch
        (Of(8, 2 * SEQ), [8 * SEQ, 8 * SEQ], {"num_train_epochs": 1}),  # longer sequences than it was told
        (Of(6, SEQ), [4 * SEQ, 2 * SEQ], {"num_train_epochs": 1, "activation_checkpointing": True}),
    ],
)
def test_what_the_model_is_given_is_counted(tmp_path, data, tokens, settings):
    clock = Clock()
    callback = TransformersCallback(seq=SEQ, device=TOY, clock=clock)
    run = trainer(tmp_path, [clock, callback], max_steps=-1, logging_steps=1, **settings)
    run.train_dataset = data
    run.train()
    training = [line for line in run.state.log_history if "loss" in line]
    assert [line["tokens_per_second"] for line in training] == tokens
    model = fk.models.transformer(layers=2, d_model=32, heads=4, kv_heads=2, d_ff=64, vocab=128, gated=True)
    a_token = model.train_step(seq=data.tokens).flops_per_token
    assert [line["mfu"] for line in training] == [pytest.approx(n * a_token / 1e13) for n in tokens]
    [last] = [line for line in run.state.log_history if "train_runtime" in line]
    assert last["train_tokens_per_second"] == pytest.approx(sum(tokens) / len(tokens))
    assert not run.model._forward_pre_hooks


def test_sequences_that_nobody_describes_end_no_training(tmp_path):
    """An odd length in the first step; the meter is made to know of none beyond."""
    callback = TransformersCallback(seq=SEQ, device=TOY)
    run = trainer(tmp_path, [callback], max_steps=2, logging_steps=1)
    run.train_dataset = Of(8, SEQ + 1)
    on_train_begin = callback.on_train_begin

    def begun(*args, **kwargs):
        on_train_begin(*args, **kwargs)
        callback.loop.meter._amounts = lambda lengths: fk.load("gpt2").train_step(seq=5000)

    callback.on_train_begin = begun
    with pytest.warns(RuntimeWarning, match="no MFU of these steps: "):
        run.train()
    assert run.state.global_step == 2 and not any("mfu" in line for line in run.state.log_history)


def test_the_peak_is_that_of_the_format(tmp_path, monkeypatch):
    """The trainer's own where none is told; one without a peak ends the training before it begins."""
    two = fk.Device("two", peak={"bf16": 2e13, "fp16": 4e13, "fp32": 1e13, "tf32": 1.5e13}, bandwidth=1e12)
    for dtype, settings, peak in (
        (None, {}, 1e13), (None, {"bf16": True}, 2e13), ("fp16", {"bf16": True}, 4e13), (None, {"weights": torch.bfloat16}, 2e13),
        (None, {"tf32": True}, 1.5e13),
    ):  # fmt: skip
        clock, weights, rounds = Clock(), settings.pop("weights", torch.float32), settings.pop("tf32", False)
        callback = TransformersCallback(1e12, device=two, dtype=dtype, clock=clock)
        run = trainer(tmp_path, [clock, callback], max_steps=2, **settings)
        run.model.to(weights)
        monkeypatch.setattr(number_formats, "tf32_switches", lambda rounds=rounds: (rounds, False))
        run.train()
        [line] = [line for line in run.state.log_history if "loss" in line]
        assert line["mfu"] == pytest.approx(1e12 / line["step_seconds"] / peak) and line["step_seconds"] == 1
    run = trainer(tmp_path, [TransformersCallback(1e12, device=two, dtype="fp8")])
    with pytest.raises(ValueError, match="two has no peak for fp8"):
        run.train()
    assert run.state.global_step == 0
    run = trainer(tmp_path, [TransformersCallback(1e12, device=fk.Device("one", peak={"bf16": 1e13}, bandwidth=1e12))])
    with pytest.raises(ValueError, match="one has no peak for fp32; it has bf16"):
        run.train()
    run = trainer(tmp_path, [TransformersCallback(1e12, device=two)])
    run.model.lm_head.to(torch.bfloat16)
    with pytest.raises(ValueError, match="the weights are in bfloat16 and float32: give dtype="):
        run.train()


@pytest.mark.parametrize(
    ("settings", "early"),
    [
        ({}, True), ({"activation_checkpointing_kwargs": {"use_reentrant": False}}, True),
        ({"activation_checkpointing_kwargs": {"use_reentrant": True}}, False),
    ],
)  # fmt: skip
def test_the_recompute_is_the_one_that_the_checkpoint_does(tmp_path, settings, early):
    """Without `use_reentrant`, which transformers 5 switches off, torch stops when it has what the backward pass needs."""
    callback = TransformersCallback(seq=SEQ, device=TOY)
    run = trainer(tmp_path, [callback], activation_checkpointing=True, max_steps=1, **settings)
    run.train()
    ids = torch.arange(SEQ).repeat(4, 1)
    report = fk.count(lambda: run.model(input_ids=ids, labels=ids).loss.backward())
    by_program = report.recompute.flops / report.model_flops
    step = callback.loop.meter._works[0].under("TORCH")
    again = step.checkpointed.flops + step.scores_again.flops  # a flash kernel's own, which the count has, too
    assert again / step.model_flops == pytest.approx(by_program, rel=1e-9)
    to_the_end = (1 - 2 * 32 * 128 / (step.model_flops / 3 / (4 * SEQ))) / 3  # all but the head's forward pass
    assert (by_program < 0.95 * to_the_end) is early


@pytest.mark.parametrize("attached", [True, False])
def test_reporters_see_them_where_it_is_attached(tmp_path, attached):
    watcher, callback = Watcher(), TransformersCallback(1e9, device=TOY, prefix="perf/")
    run = trainer(tmp_path, [watcher])
    if attached:
        assert callback.attach(run).attach(run) is callback
        assert run.callback_handler.callbacks.count(callback) == 1
    else:
        run.add_callback(callback)
    run.train()
    losses = [logs for logs in watcher.seen if "loss" in logs]
    assert len(losses) == 3 and all(("perf/mfu" in logs) is attached for logs in losses)
    assert all("perf/mfu" in line for line in run.state.log_history if "loss" in line)


EACH, OTHER = (
    {"eval_strategy": "steps", "eval_steps": 1},
    {"eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2},
)
EPOCH = {
    "eval_strategy": "epoch",
    "max_steps": -1,
    "num_train_epochs": 2,
    "per_device_train_batch_size": 16,
    "logging_steps": 1,
}


@pytest.mark.parametrize(("how", "logs"), [(EACH, 3), (OTHER, 3), (EPOCH, 4)])
@pytest.mark.parametrize("attached", [True, False])
def test_an_evaluation_is_in_no_step(tmp_path, how, logs, attached):
    """After each step, after each second one and before a checkpoint, and at the end of an epoch."""
    clock = Clock()
    callback = TransformersCallback(1e9, device=TOY, clock=clock)
    run = trainer(tmp_path, [clock], **how)
    callback.attach(run) if attached else run.callback_handler.callbacks.insert(
        len(run.callback_handler.callbacks) - 1, callback
    )
    run._save_checkpoint = clock.save
    run.train()
    training = [line for line in run.state.log_history if "loss" in line]
    assert len(training) == logs and clock.now > 800
    assert [line["step_seconds"] for line in training] == [1] * logs
    assert not any("mfu" in line for line in run.state.log_history if "eval_loss" in line)


def test_recompute_and_devices_are_the_trainer_s(tmp_path):
    callback = TransformersCallback(seq=SEQ, device=TOY, count=4)
    run = trainer(tmp_path, [callback], activation_checkpointing=True)
    run.train()
    line = next(line for line in run.state.log_history if "loss" in line)
    step = callback.loop.meter._works[0]
    assert step.hardware_flops > step.model_flops
    assert line["hfu"] / line["mfu"] == pytest.approx(step.hardware_flops / step.model_flops)
    assert line["tokens_per_second"] == pytest.approx(4 * line["tokens_per_second_per_device"])


def test_what_it_refuses(tmp_path):
    with pytest.raises(ValueError, match="give one of them"):
        TransformersCallback(device=TOY)
    with pytest.raises(ValueError, match="give one of them"):
        TransformersCallback(1e9, seq=8, device=TOY)
    run = trainer(tmp_path, [TransformersCallback(seq=SEQ, device=TOY)])
    run.model.model.embed_tokens.weight.requires_grad_(False)
    with pytest.raises(ValueError, match=r"1 parameters are frozen, model\.embed_tokens\.weight among them"):
        run.train()


def test_a_checkpoint_every_few_layers_is_not_described(tmp_path):
    settings = {"activation_checkpointing": True, "activation_checkpointing_kwargs": {"every_n_layers": 2}}
    run = trainer(tmp_path, [TransformersCallback(seq=SEQ, device=TOY)], **settings)
    with pytest.raises(ValueError, match="of some layers only: give work="):
        run.train()


def test_an_impossible_step_ends_no_training(tmp_path):
    run = trainer(tmp_path, [TransformersCallback(1e30, device=TOY)])
    with pytest.warns(RuntimeWarning, match="MFU is impossible"):
        run.train()
    assert not any("mfu" in line or math.isnan(line.get("loss", 0)) for line in run.state.log_history)
