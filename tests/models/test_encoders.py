"""Encoders of text: the classes that few other families have, the tables' ends, and windows on both sides."""

import pytest
import torch
from family_samples import merged
from family_samples.encoders import SMALL
from family_samples.sizes import BATCH, SEQ

import flopkit as fk
from flopkit.models import architectures

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

OTHER = {
    "choice": "AutoModelForMultipleChoice", "pretraining": "AutoModelForPreTraining", "next": "AutoModelForNextSentencePrediction",
    "text": "AutoModelForCausalLM",
}  # fmt: skip


def built(kind, auto, **sizes):
    config = transformers.AutoConfig.for_model(kind, **SMALL[kind] | sizes)
    if type(config) not in getattr(transformers, auto)._model_mapping:
        pytest.skip(f"transformers has no {auto} of {kind}")
    with torch.device("meta"):
        model = getattr(transformers, auto).from_config(config, dtype=torch.bfloat16)
    return config.to_dict() | {"architectures": [type(model).__name__]}, model.eval()


@pytest.mark.parametrize("task, kind", [(task, kind) for task in OTHER for kind in SMALL])
def test_classes_that_few_families_have(task, kind):
    config, model = built(kind, OTHER[task])
    shape = (1, BATCH, SEQ) if task == "choice" else (BATCH, SEQ)
    ids = torch.zeros(shape, dtype=torch.long, device="meta")
    report = fk.count(lambda: model(input_ids=ids))
    ours = fk.from_hf(config)
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=SEQ, batch=BATCH).under("TORCH").flops == report.flops
    assert ours.trained_params("head") <= ours.params
