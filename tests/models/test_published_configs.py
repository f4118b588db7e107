"""Published ``config.json`` files: read to the last parameter, or refused by name.

The right values are those of transformers 5.23.0 (torch 2.13.0, on meta): the class that the file names, tied weights once, and the products of one
pass over 128 tokens (128 in the encoder and 128 in the decoder where there are both). Where the right value is of a part of what the file
describes, or transformers reads another thing than the checkpoint holds, ``reason`` says so.
"""

import json
from pathlib import Path

import pytest
from family_samples import merged

import flopkit as fk
from flopkit.models.files.aliases import alias_of
from flopkit.models.files.text_parts import part_for_text

FILES = json.loads((Path(__file__).parents[1] / "data" / "published_configs.json").read_text("utf-8"))
READ = sorted(name for name, each in FILES.items() if "refused" not in each)
REFUSED = sorted(set(FILES) - set(READ))
COUNTED = sorted(name for name in READ if "flops" in FILES[name])
BEYOND = merged("BEYOND")
LENGTHS = ("exact_4096", "exact_32768")


def read(name):
    return fk.from_hf(FILES[name]["config"])


@pytest.mark.parametrize("name", READ)
def test_each_parameter_is_there(name):
    assert read(name).params == FILES[name]["params"], FILES[name].get("reason", FILES[name]["source"])


@pytest.mark.parametrize("name", COUNTED)
def test_the_products_of_a_pass(name):
    """Without what transformers' code runs beside the algorithm."""
    model, config = read(name), FILES[name]["config"]
    kind = part_for_text(config)[0]["model_type"]
    beside = BEYOND[kind](model, 128, 1) if kind in BEYOND else 0
    assert model.forward(seq=128).under("TORCH").flops == FILES[name]["flops"] - beside


@pytest.mark.parametrize("name", [name for name in READ if {*LENGTHS} & set(FILES[name])])
def test_windows_and_masks_that_the_file_leaves_to_its_class(name):
    (key,) = {*LENGTHS} & set(FILES[name])
    length = int(key.removeprefix("exact_"))
    model = read(name)
    assert model.forward(seq=length).under("EXACT").flops == FILES[name][key]
    if f"kv_{length}" in FILES[name]:
        assert model.kv_bytes(context=length) == FILES[name][f"kv_{length}"]


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_described_is_refused_by_name(name):
    with pytest.raises(ValueError, match="is not described here") as caught:
        read(name)
    assert f"model_type='{FILES[name]['config']['model_type']}'" in str(caught.value)


def test_the_files_are_many_and_of_many_types():
    assert len(READ) > 135 and len(REFUSED) >= 2 and len({read(name).active_params for name in READ}) > 90
    assert len({part_for_text(FILES[name]["config"])[0]["model_type"] for name in READ}) > 40


@pytest.mark.parametrize("name", sorted(FILES))
def test_each_says_where_it_was_read_and_no_path_of_a_stranger(name):
    assert FILES[name]["source"] and FILES[name]["class"]
    assert "_name_or_path" not in json.dumps(FILES[name]["config"])


# ---------------------------------------------------------------------------------------------------- the same in the catalogue

SAME_MODEL = {
    "simai.deepseek_v3": "deepseek-v3", "simai.deepseek_R1_0528": "deepseek-r1", "ome.gpt_oss_120b": "gpt-oss-120b", "ome.gpt_oss_20b": "gpt-oss-20b",
    "tt.kimi_k2_pytorch": "kimi-k2", "gh.bge_m3": "bge-m3", "ome.smollm_1.7b": "smollm-1.7b", "ome.qwen3_4b": "qwen3-4b", "ome.gemma_7b": "gemma-7b",
}  # fmt: skip


def known_by_name():
    """Published files of models that the catalogue has, by their Hub ids or by hand."""
    known = fk.model_names()
    yield from SAME_MODEL.items()
    for name in READ:
        publisher, _, model = name.removeprefix("aic.").partition(".")
        if name.startswith("aic.") and (found := alias_of(f"{publisher}/{model}", known)):
            yield name, found


KNOWN = dict(known_by_name())


@pytest.mark.parametrize("name", KNOWN)
def test_the_catalogue_stores_its_weights_as_the_published_file_does(name):
    """`load` and `from_hf` of one checkpoint give the same bytes, and bf16 where it is asked for."""
    ours, file = fk.load(KNOWN[name]), read(name)
    assert ours.formats == file.formats and ours.weight_bytes() == file.weight_bytes()
    assert ours.weight_bytes("bf16") == 2 * ours.params
    if ours.writes:
        assert ours.decode(context=64, batch=2).bytes == file.decode(context=64, batch=2).bytes
        both = (ours, fk.from_hf(FILES[name]["config"] | {"quantization_config": None}))
        plain, other = (fk.serving.decode(each, "h100-sxm", context=64, weights="bf16") for each in both)
        assert (plain.memory, plain.seconds) == (other.memory, other.seconds)


PACKED = {
    # name: bytes of its weights in GB; published: 65.25, 13.76, 1,029 and 595.1 with a part for pictures
    "gpt-oss-120b": 65.2, "gpt-oss-20b": 13.8, "kimi-k2": 1029.2, "kimi-k2.6": 594.2,
}  # fmt: skip


def test_models_that_are_published_in_few_bits_are_known_so():
    found = {
        name
        for name in fk.models.config_names()
        if (formats := fk.load(name).formats) is not None and formats.only is None
    }
    assert found == {
        "deepseek-r1", "deepseek-v3", "deepseek-v3.1", "deepseek-v3.2", "deepseek-v4-flash", "deepseek-v4-pro", "devstral-2-123b",
        "devstral-small-2-24b", "gpt-oss-120b", "gpt-oss-20b", "kimi-k2", "kimi-k2.5", "kimi-k2.6", "mimo-v2-flash", "minimax-m2",
        "minimax-m2.5", "minimax-m2.7",
    }  # fmt: skip
    assert {name: round(fk.load(name).weight_bytes() / 1e9, 1) for name in PACKED} == PACKED
    assert set(KNOWN.values()) >= {
        "deepseek-v3",
        "deepseek-r1",
        "kimi-k2",
        "gpt-oss-120b",
        "gpt-oss-20b",
        "deepseek-v4-flash",
    }


def test_an_id_that_the_catalogue_knows_is_not_asked_of_the_hub(monkeypatch):
    """One rule for `load`, `serving.decode` and the command line."""

    def asked(*args, **more):
        raise AssertionError("the Hub was asked")

    monkeypatch.setattr("flopkit.models.files.hub.fetched", asked)
    monkeypatch.setattr("flopkit.models.files.hub.cached", asked)
    by_id = fk.serving.decode("openai/gpt-oss-120b", "h100-sxm", context=64)
    assert by_id.memory == fk.serving.decode(fk.load("openai/gpt-oss-120b"), "h100-sxm", context=64).memory
    with pytest.raises(AssertionError, match="the Hub was asked"):
        fk.serving.decode("openai/another", "h100-sxm", context=64)
