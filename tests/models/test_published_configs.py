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
from flopkit.models.text_parts import part_for_text

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
