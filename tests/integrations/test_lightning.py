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

TOY = fk.Device("toy", peak={"bf16": 1e12}, bandwidth=1e12)
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
    two = fk.Device("two", peak={"bf16": 1e12, "fp16": 4e12}, bandwidth=1e12)
    for dtype, peak in ((None, 1e12), ("fp16", 4e12)):
        _, rows = run(tmp_path, LightningCallback(1e11, device=two, dtype=dtype, clock=CLOCK), max_steps=2)
        assert float(rows[-1]["mfu"]) == pytest.approx(1e11 / float(rows[-1]["step_seconds"]) / peak, rel=1e-4)
