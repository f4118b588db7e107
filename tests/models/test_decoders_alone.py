"""Classes that keep the decoder of an encoder-decoder: transformers builds that alone, so the whole is no answer."""

import inspect

import pytest
from family_samples import seq2seq

import flopkit as fk
from flopkit.models.files.unknown_types import UnknownTypeError

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')


def decoders_alone():
    """The classes for causal text of the families that are read as encoder-decoders."""
    for kind in seq2seq.SMALL:
        module = inspect.getmodule(transformers.AutoModelForSeq2SeqLM._model_mapping.get(
            transformers.CONFIG_MAPPING[kind], transformers.WhisperForConditionalGeneration))  # fmt: skip
        yield from ((kind, name) for name in vars(module) if name.endswith("ForCausalLM"))


DECODERS = list(decoders_alone())


def test_there_are_such_classes():
    assert {"WhisperForCausalLM", "BartForCausalLM", "MBartForCausalLM", "PLBartForCausalLM", "PegasusForCausalLM", "BlenderbotForCausalLM",
            "BlenderbotSmallForCausalLM", "MarianForCausalLM"} <= {name for _, name in DECODERS}  # fmt: skip


@pytest.mark.parametrize("kind, name", DECODERS)
def test_the_decoder_alone_is_refused_by_name_and_can_be_counted(kind, name):
    config = {**transformers.CONFIG_MAPPING[kind](**seq2seq.SMALL[kind]).to_dict(), "architectures": [name]}
    assert fk.from_hf({**config, "architectures": None}).encoder is not None
    with pytest.raises(UnknownTypeError, match=rf"{name}.*the decoder of a {kind} by itself .*fk\.count_hf"):
        fk.from_hf(config)
    assert fk.count_hf({**config, "is_encoder_decoder": False}, seq=8).flops > 0
