"""The decoder of a model of text and pictures or sound: the one that transformers builds from the same file."""

import itertools

import pytest
import torch
from family_samples import merged
from family_samples.sizes import DECODER

import flopkit as fk
from flopkit.models import architectures
from flopkit.models.files.text_parts import FLAT, HANDED_ON, OF_THE_PART, TEXT_TYPES, UNTIED

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SMALL = merged("SMALL")
TIED = "tie_word_embeddings"


def whole_types():
    """Each model of transformers with a part for text that flopkit describes, and the type of that part."""
    for outer in transformers.CONFIG_MAPPING:
        whole = transformers.CONFIG_MAPPING[outer]
        if (spec := getattr(whole, "sub_configs_defaults", {}).get("text_config")) is None:
            continue
        kind = getattr(spec, "model_type", None) or spec.config_class.model_type
        if architectures.SAME.get(kind, kind) in architectures.ARCHITECTURES and kind in SMALL:
            yield outer, kind


WHOLE = dict(whole_types())


def file_of(outer, tied, within, **more):
    inside = {"model_type": WHOLE[outer], **SMALL[WHOLE[outer]]} | ({} if within is None else {TIED: within})
    inside.pop("architectures", None)
    saved_by = {"transformers_version": "5.23.0"}
    return {"model_type": outer, "text_config": inside, **saved_by} | ({} if tied is None else {TIED: tied}) | more


def test_the_types_of_parts_are_those_of_transformers():
    wrong = {outer: WHOLE[outer] for outer in TEXT_TYPES if outer in WHOLE and TEXT_TYPES[outer] != WHOLE[outer]}
    assert wrong == {} and len(set(TEXT_TYPES) & set(WHOLE)) > 15
    assert all(
        f"{outer}_text" == kind
        for outer, kind in WHOLE.items()
        if outer not in TEXT_TYPES and kind.endswith("_text") and outer in ("gemma3", "qwen3_vl")
    )


def shares_its_table(config):
    """Whether the model that transformers builds has one table as head and embedding; None: it has no head to look at."""
    for auto in (
        "AutoModelForImageTextToText",
        "AutoModelForMultimodalLM",
        "AutoModelForSeq2SeqLM",
        "AutoModelForCausalLM",
    ):
        known = getattr(transformers, auto)._model_mapping
        if type(config) in known:
            with torch.device("meta"):
                model = getattr(transformers, auto).from_config(config)
            head = model.get_output_embeddings()
            return None if head is None else head.weight is model.get_input_embeddings().weight
    return None


@pytest.mark.parametrize("outer", sorted(WHOLE))
def test_tied_or_not_as_transformers_has_it(outer):
    """All that whole and part may say of it."""
    seen, failed, own = 0, [], outer in (*UNTIED, *OF_THE_PART)
    for tied, within in itertools.product((None, True, False), repeat=2):
        config = file_of(outer, tied, within)
        try:
            theirs = transformers.AutoConfig.for_model(**config)
        except Exception as error:
            failed.append(error)
            continue
        found = shares_its_table(theirs) if own or not hasattr(theirs, TIED) else bool(getattr(theirs, TIED))
        try:
            ours = fk.from_hf(config)
        except ValueError as error:
            if "is no decoder, and nothing by itself" in str(error):
                return
            if outer in UNTIED and "does not tie the head" in str(error):
                assert found is False and True in (tied, within), (tied, within)
            elif "missing of the whole" in str(error):
                assert tied is None and within is not None, (tied, within)
                continue
            else:  # how such a decoder is tied by itself is another test
                assert "only tied" in str(error) or "only with tie_word_embeddings" in str(error)
        else:
            if not ours.writes:  # CLIP, which has no head
                return
            assert found in (None, ours.tied), (tied, within)
        seen += 1
    if len(failed) == 9:
        pytest.skip(f"transformers refuses such a part: {failed[0]}")
    assert seen >= 6, failed


@pytest.mark.parametrize("outer", ["sam3", "omdet-turbo"])
def test_a_text_tower_of_a_model_that_writes_no_text_is_refused(outer):
    with pytest.raises(ValueError, match="its part for text, a 'clip_text_model', is no decoder"):
        fk.from_hf(file_of(outer, None, None))


@pytest.mark.parametrize("labels", [5, 1, None])
@pytest.mark.parametrize(
    "outer, name",
    [
        ("gemma3", "Gemma3ForSequenceClassification"),
        ("qwen3_5", "Qwen3_5ForSequenceClassification"),
        ("qwen3_5", "Qwen3_5ForTokenClassification"),
        ("qwen3_asr", "Qwen3ASRForTokenClassification"),
    ],
)
def test_labels_are_those_of_the_whole(outer, name, labels):
    """A reward model of a model of text and pictures: its head is as wide as the whole says, whatever its part for text says."""
    config = transformers.AutoConfig.for_model(outer, **({} if labels is None else {"num_labels": labels}))
    with torch.device("meta"):
        model = getattr(transformers, name)._from_config(config)
    head = sum(p.numel() for part, module in model.named_children() if part != "model" for p in module.parameters())
    file = config.to_dict() | {"architectures": [name]}
    file["text_config"] = file["text_config"] | {"id2label": {str(i): str(i) for i in range(7)}}
    bare = fk.from_hf(file | {"architectures": [name[: name.index("For")] + "Model"]})
    assert fk.from_hf(file).params - bare.params == head


def test_what_stands_beside_the_decoder_is_noted_where_no_part_of_the_file_names_it():
    """Fuyu, whose one product of patches has no configuration of its own."""
    config = transformers.AutoConfig.for_model("fuyu")
    with torch.device("meta"):
        model = transformers.FuyuForCausalLM._from_config(config)
    ours = fk.from_hf(config.to_dict() | {"architectures": ["FuyuForCausalLM"]})
    beside = sum(p.numel() for p in model.model.vision_embed_tokens.parameters())
    assert ours.params == sum(p.numel() for p in model.parameters()) - beside and beside > 0
    assert "the part for text of a fuyu: what the model has beside it is not counted" in ours.notes


PICTURES = {
    "qwen2_vl": 4,
    "qwen2_5_vl": 4,
    "qwen3_vl": 4,
    "llava": 1,
    "mistral3": 1,
    "gemma3": 1,
    "glm4v": 1,
    "glm4v_moe": 1,
    "qwen3_vl_moe": 1,
    "internvl": 1,
}


@pytest.mark.parametrize("outer", sorted(PICTURES))
def test_parameters_and_products_of_the_decoder(outer):
    config = file_of(outer, None, None)
    whole = transformers.AutoConfig.for_model(**config)
    with torch.device("meta"):
        model = transformers.AutoModelForImageTextToText.from_config(whole, dtype=torch.bfloat16).eval()
    ours = fk.from_hf({**config, "architectures": [type(model).__name__]})
    assert ours.params == sum(
        p.numel() for name, p in model.named_parameters() if "language_model" in name or "lm_head" in name
    )


@pytest.mark.parametrize("outer", ["qwen2_vl", "qwen2_5_vl"])
def test_early_files_have_the_numbers_of_the_decoder_in_the_whole(outer):
    """As published: no text_config; a file that leaves numbers out has what transformers takes."""
    for left in ("", "vocab_size", "intermediate_size"):
        flat = {key: value for key, value in SMALL[FLAT[outer]].items() if key != left} | {TIED: True}
        theirs = transformers.AutoConfig.for_model(outer, **flat)
        with torch.device("meta"):
            model = transformers.AutoModelForImageTextToText.from_config(theirs, dtype=torch.bfloat16)
        ours = fk.from_hf({"model_type": outer, **flat, "vision_config": {}})
        assert ours.params == sum(
            p.numel() for name, p in model.named_parameters() if "language_model" in name or "lm_head" in name
        )
        assert any("vision_config is not counted" in each for each in ours.notes)
        assert any(left in each for each in ours.notes)


def test_early_files_of_llava_are_those_of_a_llama():
    config = {
        **DECODER,
        "model_type": "llava",
        "architectures": ["LlavaLlamaForCausalLM"],
        "mm_vision_tower": "a tower",
    }
    assert fk.from_hf(config).params == fk.from_hf({**DECODER, "model_type": "llama"}).params
    with pytest.raises(ValueError, match="model_type='llava' is not described here"):
        fk.from_hf({**config, "architectures": ["LlavaForConditionalGeneration"]})


def test_a_part_without_a_type_names_the_whole():
    with pytest.raises(ValueError, match="model_type='another' .its text_config has none. is not described here"):
        fk.from_hf({"model_type": "another", "text_config": DECODER})


def test_a_class_that_the_part_names_is_one_of_its_own_type():
    """DeepSeek-VL2's config.json names no class of the whole."""
    part = {"model_type": "llama", **SMALL["llama"], "architectures": ["LlamaForCausalLM"]}
    assert fk.from_hf({"model_type": "llava", "text_config": part}).writes
    with pytest.raises(ValueError, match="a class of model_type='llama' begins with Llama"):
        fk.from_hf({"model_type": "llava", "text_config": part | {"architectures": ["Qwen2ForCausalLM"]}})
    tiny = {
        "model_type": "deepseek_v2",
        "use_mla": False,
        "kv_lora_rank": None,
        "architectures": ["DeepseekV2ForCausalLM"],
    }
    with pytest.raises(ValueError, match="use_mla=False: flopkit supports deepseek_v2 only with use_mla=True"):
        fk.from_hf({"model_type": "deepseek_vl_v2", "language_config": tiny})


def test_whole_and_part_that_contradict_each_other():
    with pytest.raises(
        ValueError,
        match="tie_word_embeddings is False in text_config, and missing of the whole, where transformers takes True for a mistral3",
    ):
        fk.from_hf(file_of("mistral3", None, False))
    assert not fk.from_hf(file_of("mistral3", False, True)).tied
    assert "llava" in HANDED_ON and fk.from_hf(file_of("llava", False, True)).tied


# What transformers 4.57.1 built of its own defaults with no word on it: {outer: whether one table}; 5.23.0 has True for each.
BY_TRANSFORMERS_4 = dict.fromkeys(["mistral3", "internvl", "janus", "ovis2", "deepseek_vl", "granite_speech"], False) | {
    "gemma3": True, "llava_next": False,
}  # fmt: skip


@pytest.mark.parametrize("outer", BY_TRANSFORMERS_4)
def test_a_file_of_transformers_4_is_tied_as_its_part_is(outer):
    """A default was left out of the file, and that of the part counted: Mistral-Small-3.1's head is its own."""
    old = file_of(outer, None, None, transformers_version="4.57.1")
    ours = fk.from_hf(old)
    assert bool(ours.tied) is BY_TRANSFORMERS_4[outer]
    assert f"{TIED} is missing: {bool(ours.tied)}, as transformers takes it" in ours.notes
    for within in (True, False):
        assert fk.from_hf(file_of(outer, None, within, transformers_version="4.57.1")).tied == within


def test_a_file_that_leaves_open_whether_the_head_is_tied():
    """transformers 4 and 5 differ, and nothing says which saved it."""
    for outer in ("mistral3", "internvl", "janus", "ovis2", "deepseek_vl", "kimi_k25", "granite_speech", "lighton_ocr"):
        with pytest.raises(
            ValueError, match=f"transformers 5 takes True for a {outer}, transformers 4 .* add it beside"
        ):
            fk.from_hf(file_of(outer, None, None, transformers_version=None))
        assert fk.from_hf(file_of(outer, None, None)).tied
        assert not fk.from_hf(file_of(outer, False, None, transformers_version=None)).tied
    assert fk.from_hf(file_of("gemma3", None, None, transformers_version=None)).tied  # where both are the same


def test_published_files_without_a_word_on_it():
    """Mistral-Small-3.1 has 24.01 billion numbers, 439 million of them in its part for pictures."""
    text = {"vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32,
            "num_key_value_heads": 8, "head_dim": 128, "sliding_window": None, "model_type": "mistral"}  # fmt: skip
    saved = {"model_type": "mistral3", "text_config": text, "transformers_version": "4.50.0.dev0"}
    assert fk.from_hf(saved).params == 23_572_403_200


@pytest.mark.parametrize("whole, part", [(True, None), (False, None), (False, True), (True, False), (None, True)])
def test_an_older_word_for_tied_wins(whole, part):
    config = file_of("lfm2_vl", None, None)
    config["text_config"] |= {} if part is None else {"tie_embedding": part}
    config |= {} if whole is None else {"tie_embedding": whole}
    theirs = transformers.AutoConfig.for_model(**config)
    assert fk.from_hf(config).tied == theirs.tie_word_embeddings


def test_a_part_alone_that_is_not_tied_contradicts_its_whole():
    config = file_of("lfm2_vl", None, None)
    config["text_config"] |= {"tie_embedding": False}
    with pytest.raises(ValueError, match="missing of the whole, where transformers takes True for a lfm2_vl"):
        fk.from_hf(config)


def test_prompts_of_paligemma_count_as_causal_and_that_is_said():
    """A file that transformers saved has the switch, and a published one has not."""
    config = file_of("paligemma", None, None) | {"vision_config": {"model_type": "siglip_vision_model"}}
    saved = transformers.AutoConfig.for_model(**config).to_dict()
    assert saved["text_config"]["use_bidirectional_attention"] is True
    ours = fk.from_hf(config)
    assert ours.params == fk.from_hf(saved).params and ours.causal
    assert all("see each other in both directions" in each.notes[-1] for each in (ours, fk.from_hf(saved)))
    with pytest.raises(ValueError, match="use_bidirectional_attention"):
        fk.from_hf({"model_type": "gemma", **SMALL["gemma"], "use_bidirectional_attention": True})
