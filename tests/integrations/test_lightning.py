"""The callback in a real Lightning ``Trainer``, on a CPU; skipped where Lightning is not installed."""

import csv
import warnings

import pytest

import flopkit as fk

torch = pytest.importorskip("torch")
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    lightning = pytest.importorskip("lightning")
    from lightning.pytorch.loggers import CSVLogger

from flopkit.integrations import LightningCallback  # noqa: E402

TOY = fk.Device("toy", peak={"bf16": 3e12, "fp32": 1e12}, bandwidth=1e12)
pytestmark = pytest.mark.filterwarnings("ignore")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


CLOCK = Clock()  # a step takes a second, a batch of validation 100


class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64)

    def training_step(self, batch, place):
        CLOCK.now += 1
        return self.layer(batch[0]).square().mean()

    def validation_step(self, batch, place):
        CLOCK.now += 100

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def run(tmp_path, callback, **settings):
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(64, 64)), batch_size=4)
    settings = {"max_steps": 4, "log_every_n_steps": 2, "logger": CSVLogger(tmp_path), **settings}
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, callbacks=[callback], enable_progress_bar=False, enable_model_summary=False, **settings
    )  # fmt: skip
    trainer.fit(Net(), data, data)
    with open(trainer.logger.log_dir + "/metrics.csv") as file:
        return trainer, list(csv.DictReader(file))


def test_its_loggers_have_the_metrics(tmp_path):
    step = fk.load("gpt2").train_step(seq=8)
    trainer, rows = run(tmp_path, LightningCallback(step, device=TOY, prefix="perf/", clock=CLOCK))
    assert len(rows) == 2
    for row in rows:
        assert float(row["perf/mfu"]) == pytest.approx(
            step.model_flops / float(row["perf/step_seconds"]) / 1e12, rel=1e-4
        )
        assert float(row["perf/tokens_per_second"]) == pytest.approx(8 / float(row["perf/step_seconds"]), rel=1e-4)
    assert float(trainer.callback_metrics["perf/mfu"]) == pytest.approx(float(rows[-1]["perf/mfu"]), rel=1e-4)


def test_a_step_is_one_of_the_optimiser(tmp_path):
    callback = LightningCallback(1e6, device=TOY)
    _, rows = run(tmp_path, callback, accumulate_grad_batches=3, max_steps=4)
    assert callback.loop.meter.steps == 4 and len(rows) == 2


def test_a_validation_is_in_no_step(tmp_path):
    before = CLOCK.now
    _, rows = run(tmp_path, LightningCallback(1e6, device=TOY, clock=CLOCK), val_check_interval=1, limit_val_batches=2)
    assert CLOCK.now - before > 800
    assert [float(row["step_seconds"]) for row in rows if row["step_seconds"]] == [1, 1]


def test_the_peak_is_that_of_the_format(tmp_path):
    two = fk.Device("two", peak={"bf16": 2e12, "fp16": 4e12, "fp32": 1e12}, bandwidth=1e12)
    for dtype, precision, peak in (
        (None, "32-true", 1e12), (None, "bf16-mixed", 2e12), (None, "bf16-true", 2e12), ("fp16", "32-true", 4e12)
    ):  # fmt: skip
        callback = LightningCallback(1e11, device=two, dtype=dtype, clock=CLOCK)
        _, rows = run(tmp_path, callback, max_steps=2, precision=precision)
        assert float(rows[-1]["mfu"]) == pytest.approx(1e11 / float(rows[-1]["step_seconds"]) / peak, rel=1e-4)


class Words(lightning.LightningModule):
    """Two dimensions of whole numbers a batch."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Embedding(10, 4)

    def training_step(self, batch, place):
        CLOCK.now += 1
        ids = batch["input_ids"] if isinstance(batch, dict) else batch[0]
        return self.table(ids).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def read(tmp_path, work, batches, *, accumulate=1, steps=2, module=Words):
    """What is logged of a training on these batches."""
    trainer = lightning.Trainer(
        accelerator="cpu", devices=1, callbacks=[LightningCallback(work, device=TOY, clock=CLOCK)], max_steps=steps, log_every_n_steps=steps,
        accumulate_grad_batches=accumulate, logger=CSVLogger(tmp_path), enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
    )  # fmt: skip
    trainer.fit(module(), torch.utils.data.DataLoader(batches, batch_size=None))
    return {name: float(value) for name, value in trainer.callback_metrics.items()}


IDS = torch.zeros(3, 8, dtype=torch.long)


@pytest.mark.parametrize("batch", [{"input_ids": IDS, "labels": IDS}, (IDS, IDS)])
def test_the_tokens_of_the_batches_are_those_of_the_work(tmp_path, batch):
    """A step of one micro-batch, where three are gathered, gave a third of the MFU, and nobody said so."""
    whole = fk.load("gpt2").train_step(seq=8, batch=9)
    found = read(tmp_path, whole, [batch] * 6, accumulate=3)
    assert found["mfu"] == pytest.approx(whole.model_flops / 3 / 1e12) and found["tokens_per_second"] == 72 / 3
    small = fk.load("gpt2").train_step(seq=8, batch=3)
    with pytest.warns(RuntimeWarning, match=r"no MFU of these 2 steps: work= has 48 tokens .* replicas had 144\."):
        assert "mfu" not in read(tmp_path, small, [batch] * 6, accumulate=3)


def test_the_images_of_the_batches_are_those_of_the_work(tmp_path):
    class Pictures(Words):
        def training_step(self, batch, place):
            CLOCK.now += 1
            return self.table.weight.sum() * batch[0].mean()

    pictures = [(torch.ones(4, 3, 8, 8), torch.zeros(4))] * 2
    assert read(tmp_path, fk.load("resnet50").train_step(batch=4), pictures, module=Pictures)["mfu"] > 0
    with pytest.warns(RuntimeWarning, match=r"work= has 16 images for them, and the batches of all 1 replicas had 8\."):
        assert "mfu" not in read(tmp_path, fk.load("resnet50").train_step(batch=8), pictures, module=Pictures)


def test_a_later_log_begins_anew(tmp_path):
    """Two steps that differ, and two that do not."""
    step = fk.load("gpt2").train_step(seq=8, batch=3)
    batches = [(IDS[:2],), (IDS,), (IDS,), (IDS,)]
    with pytest.warns(RuntimeWarning, match="work= has 48 tokens .* had 40"):
        callback = LightningCallback(step, device=TOY, clock=CLOCK)
        trainer = lightning.Trainer(
            accelerator="cpu", devices=1, callbacks=[callback], max_steps=4, log_every_n_steps=2, logger=CSVLogger(tmp_path),
            enable_progress_bar=False, enable_model_summary=False, enable_checkpointing=False,
        )  # fmt: skip
        trainer.fit(Words(), torch.utils.data.DataLoader(batches, batch_size=None))
    assert trainer.callback_metrics["mfu"] == pytest.approx(step.model_flops / 1e12)
    assert callback.loop.meter.steps == 2


def test_the_strategy_says_how_many_have_batches_of_their_own():
    """With tensor parallelism they are fewer than the processes; where a strategy does not say, nothing is compared."""
    from types import SimpleNamespace

    from flopkit.integrations.of_lightning import _replicas

    parallel = SimpleNamespace(distributed_sampler_kwargs={"num_replicas": 2, "rank": 0})
    assert _replicas(SimpleNamespace(strategy=parallel, world_size=8)) == 2
    assert _replicas(SimpleNamespace(strategy=SimpleNamespace(), world_size=1)) == 1
    assert _replicas(SimpleNamespace(strategy=SimpleNamespace(), world_size=8)) is None


@pytest.mark.parametrize("device", [TOY, None])
@pytest.mark.parametrize(
    ("work", "says"), [(None, "flops=None"), ("gpt2", "flops='gpt2'"), (-1, "flops=-1"), (float("nan"), "flops=nan"), (fk.load("gpt2"), "not Model")]
)  # fmt: skip
def test_what_is_no_work_is_refused_before_the_training(work, says, device):
    with pytest.raises((TypeError, ValueError), match=says):
        LightningCallback(work, device=device)


def test_a_precision_of_several_formats_asks_for_them():
    class Trainer:
        precision, world_size, global_step = "transformer-engine", 1, 0

    with pytest.raises(ValueError, match="the trainer's precision is 'transformer-engine': give dtype="):
        LightningCallback(1e11, device=TOY).on_train_start(Trainer(), Net())
    only = fk.Device("only", peak={"fp32": 1e12}, bandwidth=1e12)
    Trainer.precision = "32-true"
    callback = LightningCallback(1e11, device=only)  # without bf16, which nobody asked for
    callback.on_train_start(Trainer(), Net())
    assert callback.loop is not None
    with pytest.raises(ValueError, match="is not a device in the data"):
        LightningCallback(1e11, device="h1000")
