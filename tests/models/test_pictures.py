"""The picture part of models of text and images, and the tower beside that of the texts, against transformers' own classes."""

import re

import numpy as np
import picture_samples as samples
import pytest
import torch
from family_samples import dual
from picture_samples import PARTS, PATCHES

import flopkit as fk
from flopkit.models.architectures.pictures import picture_types, pictures_of

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

FIXED = [name for name in PARTS if not samples.of_any_size(name)]
FREE = [name for name in PARTS if samples.of_any_size(name)]
IN_TEXT = ("language_model", "text_model")


def built(name, device="meta", **changed):
    kind = name.partition(",")[0]
    config = transformers.AutoConfig.for_model(kind, **PARTS[name] | changed)
    with torch.device(device):
        model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16).eval()
    return config.to_dict() | {"architectures": [type(model).__name__]}, model


def part_of(config):
    return pictures_of(config, config["text_config"]["hidden_size"])


def in_text(model):
    """Parameters of the decoder and its head."""
    named = (
        (any(part in name for part in IN_TEXT) or name.startswith("lm_head"), each.numel())
        for name, each in model.named_parameters()
    )
    return sum(count for inside, count in named if inside)


@pytest.mark.parametrize("name", PARTS)
def test_text_and_pictures_are_the_whole_model(name):
    config, model = built(name)
    ours, whole = fk.from_hf(config), sum(each.numel() for each in model.parameters())
    assert ours.params == in_text(model)
    assert ours.params + ours.pictures.params == whole
    assert any(f"{ours.pictures.params:,} parameters, is Model.pictures" in each for each in ours.notes)


def unread_by(report, layers):
    """Products of layers and heads of a tower that run in transformers, and that nothing reads."""
    found = 0
    for row in report.by_module():
        layer = re.search(r"(?:encoder|transformer)\.layers?\.(\d+)$", row["module"])
        if row["module"].endswith(".head") or (layer and int(layer[1]) >= layers):
            found += row["flops"]
    return found


@pytest.mark.parametrize("name", PARTS)
def test_products_are_those_of_transformers(name):
    """Its towers run to the end, and what is not read of them comes off; Gemma 4 takes means of squares by a product with a matrix of
    shares, which comes off, too."""
    config, model = built(name, "meta" if samples.on_meta(name) else "cpu")
    ours, report = part_of(config), fk.count(samples.shown(name, model))
    size = {"seq": PATCHES} if samples.of_any_size(name) else {"batch": samples.pictures_shown(name)}
    means = 2 * PATCHES * (PATCHES // 4) * 48 if name.startswith("gemma4") else 0
    unread = unread_by(report, ours.layers)
    assert ours.forward(**size).under("TORCH").flops == report.flops - unread - means
    vision = config["vision_config"]
    read = config.get("vision_feature_layer", -1)
    heads = vision["model_type"].startswith("siglip") and vision["vision_use_head"]
    assert (unread > 0) == (heads or read not in (-1, [-1]))


@pytest.mark.parametrize("name", FIXED)
def test_tokens_that_the_decoder_gets(name):
    config, model = built(name, "meta" if samples.on_meta(name) else "cpu")
    ours, theirs = part_of(config), samples.shown(name, model)()
    if name.startswith(("llava_next", "llava_onevision")):  # rows end in a token, and edges are cut off
        assert ours.image_tokens is None and theirs.pooler_output[0].shape[-2] != 3 * 16
        return
    given = getattr(theirs, "pooler_output", theirs)
    rows = sum(each.shape[:-1].numel() for each in given)
    assert ours.image_tokens * samples.pictures_shown(name) == rows
    assert ours.image_tokens == ours.tokens_for(ours.patches.tokens)


@pytest.mark.parametrize("name", FREE)
def test_tokens_of_a_picture_of_any_size(name):
    config, model = built(name, "cpu")
    ours, given = part_of(config), samples.shown(name, model)().pooler_output
    rows = (
        given.shape[:-1].numel() if isinstance(given, torch.Tensor) else sum(each.shape[:-1].numel() for each in given)
    )
    assert ours.tokens_for(PATCHES) == rows and ours.image_tokens is None
    if name != "llava, pixtral":  # each patch is a token
        with pytest.raises(ValueError, match="not divisible"):
            ours.tokens_for(PATCHES + 1)


READERS = (
    "llava", "gemma3", "cohere2_vision", "lfm2_vl", "gemma4", "mistral3", "llama4", "glm4v", "smolvlm", "internvl", "kimi_k25", "minimax_m3_vl",
    "exaone4_5", "qwen2_vl", "qwen2_5_vl", "qwen3_vl",
)  # fmt: skip


@pytest.mark.parametrize("name", READERS)
def test_what_a_file_leaves_out_is_what_transformers_takes(name):
    """Each key of the tower by itself; where sizes then contradict each other, the part is not described."""
    read = 0
    for key in PARTS[name]["vision_config"].keys() - {"model_type"}:
        vision = {each: value for each, value in PARTS[name]["vision_config"].items() if each != key}
        file = {"model_type": name, **PARTS[name], "vision_config": vision}
        ours = part_of(file)
        if ours is None:
            continue
        read += 1
        _, model = built(name, vision_config=vision)
        assert ours.params == sum(each.numel() for each in model.parameters()) - in_text(model), key
        silent = key == "image_size" and name == "mistral3"  # rotary positions need no size of a picture
        if not silent and not isinstance(PARTS[name]["vision_config"][key], bool | str):
            assert any(f"vision_config.{key} is missing" in each for each in ours.notes), key
    assert read > 2


@pytest.mark.parametrize("name", PARTS)
def test_several_sizes_at_once_and_no_gradient_of_pixels(name):
    """Each product comes back as two, the first one of a picture as one; an array of sizes gives what each gives by itself."""
    ours = part_of({"model_type": name.partition(",")[0], **PARTS[name]})
    key, sizes = ("seq", np.array([PATCHES, 2 * PATCHES])) if samples.of_any_size(name) else ("batch", np.array([2, 4]))
    each = [ours.forward(**{key: int(size)}) for size in sizes]
    both = ours.forward(**{key: sizes})
    for what in ("flops", "vector_flops", "bytes"):
        assert list(getattr(both, what)) == [getattr(one, what) for one in each], what
    step = ours.train_step(**{key: int(sizes[0])})
    patches = next(part.flops for part in each[0].parts if part.name == "patches")
    assert step.backward.flops == 2 * step.forward.flops - patches


def test_each_type_has_a_sample():
    assert {name.partition(",")[0] for name in PARTS} == set(picture_types())


CHECKPOINTS = {
    # HuggingFaceTB/SmolVLM-256M-Instruct
    256_484_928: (
        {"model_type": "idefics3", "scale_factor": 4, "tie_word_embeddings": False},
        {"vocab_size": 49280, "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
         "num_key_value_heads": 3, "model_type": "llama"},
        {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 512,
         "patch_size": 16},
    ),
    # google/paligemma-3b-pt-224
    2_923_466_480: (
        {"model_type": "paligemma", "projection_dim": 2048},
        {"vocab_size": 257216, "hidden_size": 2048, "intermediate_size": 16384, "num_hidden_layers": 18, "num_attention_heads": 8,
         "num_key_value_heads": 1, "model_type": "gemma"},
        {"hidden_size": 1152, "intermediate_size": 4304, "num_hidden_layers": 27, "num_attention_heads": 16, "patch_size": 14,
         "model_type": "siglip_vision_model", "vision_use_head": False},
    ),
    # mistralai/Mistral-Small-3.1-24B-Instruct-2503
    24_011_361_280: (
        {"model_type": "mistral3", "transformers_version": "4.50.0.dev0"},
        {"vocab_size": 131072, "hidden_size": 5120, "intermediate_size": 32768, "num_hidden_layers": 40, "num_attention_heads": 32,
         "num_key_value_heads": 8, "head_dim": 128, "sliding_window": None, "model_type": "mistral"},
        {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14,
         "hidden_act": "silu", "model_type": "pixtral"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("params", CHECKPOINTS)
def test_published_checkpoints_hold_as_many_numbers(params):
    """The numbers that the published safetensors files hold together."""
    whole, text, vision = CHECKPOINTS[params]
    ours = fk.from_hf(whole | {"text_config": text, "vision_config": vision})
    assert ours.params + ours.pictures.params == params


def test_a_window_that_does_not_divide_is_refused():
    config, _ = built("qwen2_5_vl")
    with pytest.raises(ValueError, match="seq"):
        pictures_of(config, 32).forward(seq=24)


@pytest.mark.parametrize(
    "name, changed",
    [
        ("llava", {"vision_feature_layer": 9}),
        ("llava", {"vision_feature_layer": 0}),
        ("llava", {"vision_config": {"model_type": "dinov2"}}),
        ("llava, pixtral", {"vision_feature_select_strategy": "default"}),
        ("mistral3", {"vision_feature_layer": [-1, -2]}),
        ("mistral3", {"vision_config": samples.CLIP}),
        ("llama4", {"vision_config": samples.LLAMA_4 | {"vision_output_dim": 48}}),
        ("llama4", {"vision_config": samples.LLAMA_4 | {"pixel_shuffle_ratio": 0.75}}),
        ("glm4v", {"vision_config": samples.GLM | {"out_hidden_size": 48}}),
        ("internvl", {"downsample_ratio": 0.3}),
        ("smolvlm", {"scale_factor": 3}),
        ("kimi_k25", {"vision_config": samples.KIMI | {"vt_hidden_size": 64}}),
        ("gemma4", {"vision_config": samples.GEMMA_4 | {"num_key_value_heads": 3}}),
        ("qwen2_vl", {"vision_config": samples.QWEN | {"embed_dim": 36, "hidden_size": 32}}),
    ],
)
def test_what_is_not_described_is_not_counted(name, changed):
    config, _ = built(name)
    assert fk.from_hf(config).pictures is not None
    ours = fk.from_hf(config | changed)
    assert ours.pictures is None
    assert any("vision_config is not counted" in each for each in ours.notes)


@pytest.mark.parametrize("kind", ["clip", "siglip", "siglip2"])
def test_the_tower_beside(kind):
    """Two pictures and two texts; each part of ours beside its module there, and the similarity of each pair."""
    config = transformers.AutoConfig.for_model(kind, **dual.SMALL[kind])
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config, dtype=torch.bfloat16).eval()
        given = dual.INPUTS[kind](torch.zeros(2, 16, dtype=torch.long))
    rows = {row["module"]: row["flops"] for row in fk.count(lambda: model(**given)).by_module()}
    ours = fk.from_hf(config.to_dict()).forward(seq=16, batch=2).under("TORCH")
    found = {each.name: each.flops for each in ours.parts}
    assert found["pictures, layers"] == sum(rows[f"vision_model.encoder.layers.{i}"] for i in range(2))
    assert found["pictures, patches"] == rows["vision_model.embeddings.patch_embedding"]
    assert found["layers"] == sum(rows[f"text_model.encoder.layers.{i}"] for i in range(3))
    assert found["similarity"] == 2 * 2 * 2 * (24 if kind == "clip" else 48)


def test_clip_as_openai_published_it():
    """Radford et al. 2021 give no number; transformers counts 149,620,737 of ViT-B/16 and 427,616,513 of ViT-L/14 (its
    ``from_pretrained`` on the published files, in which most sizes of the texts' tower are left out)."""
    base = {
        "model_type": "clip",
        "architectures": ["CLIPModel"],
        "text_config": {},
        "vision_config": {"patch_size": 16},
    }
    assert fk.from_hf(base).params == 149_620_737
    assert "text_config.vocab_size is missing: 49408, as transformers takes it" in fk.from_hf(base).notes
    large = {
        "model_type": "clip", "projection_dim": 768,
        "text_config_dict": {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12, "projection_dim": 768},
        "vision_config": {"hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16, "patch_size": 14},
    }  # fmt: skip
    assert fk.from_hf(large).params == 427_616_513


def test_a_tower_by_itself_has_a_type_of_its_own():
    for name in ("CLIPTextModel", "CLIPVisionModelWithProjection"):
        with pytest.raises(ValueError, match=f"{name}.*beside model_type='clip'.*clip_vision_model"):
            fk.from_hf({"model_type": "clip", "architectures": [name], "vision_config": {}})


@pytest.mark.parametrize("tower", ["text", "vision"])
def test_a_tower_of_clip_with_its_projection(tower):
    name = {"text": "CLIPTextModelWithProjection", "vision": "CLIPVisionModelWithProjection"}[tower]
    sizes = dual.SMALL[f"clip_{tower}_model"]
    with torch.device("meta"):
        model = getattr(transformers, name)(transformers.AutoConfig.for_model(f"clip_{tower}_model", **sizes))
    ours = fk.from_hf({"model_type": f"clip_{tower}_model", "architectures": [name], **sizes})
    assert ours.params == sum(each.numel() for each in model.parameters())


def test_deit_with_a_teacher():
    sizes = {
        "hidden_size": 32,
        "intermediate_size": 80,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_labels": 10,
    }
    name = "DeiTForImageClassificationWithTeacher"
    with torch.device("meta"):
        model = getattr(transformers, name)(transformers.DeiTConfig(**sizes)).eval()
        pixels = torch.zeros(2, 3, 224, 224)
    ours = fk.from_hf({"model_type": "deit", "architectures": [name], **sizes})
    assert ours.params == sum(each.numel() for each in model.parameters())
    assert ours.forward(batch=2).under("TORCH").flops == fk.count(lambda: model(pixels)).flops


@pytest.mark.parametrize("kind", ["clip", "siglip", "dinov2", "yolos"])
def test_training_needs_no_gradient_of_pixels(kind):
    """Each product comes back as two, the first one of a picture as one."""
    family = dual.SMALL[kind] if kind in dual.SMALL else {"num_labels": 3, "num_hidden_layers": 2}
    ours = fk.from_hf({"model_type": kind, **family})
    step = ours.train_step(batch=2, **({} if ours.patches else {"seq": 16}))
    patches = next(
        each.flops
        for each in ours.forward(batch=2, **({} if ours.patches else {"seq": 16})).parts
        if "patches" in each.name
    )
    assert step.backward.flops == 2 * step.forward.flops - patches


def test_windows_that_are_moved_hide_pairs():
    """The masks that transformers makes for Swin-T's stages, and no window is moved in the last one."""
    ours = fk.from_hf({"model_type": "swin", "embed_dim": 96})
    layers = {each.name: each for each in ours.forward().parts if "layers" in each.name}
    swin = transformers.models.swin.modeling_swin
    for stage, side in ((1, 56), (2, 28), (3, 14)):
        config = transformers.SwinConfig()
        layer = swin.SwinLayer(config, 96, (side, side), 3, shift_size=3)
        mask = layer.get_attn_mask(side, side, torch.float32, torch.device("cpu"))
        seen = int((mask == 0).sum())
        name = "layers" if stage == 1 else f"stage {stage}, layers"
        plain, moved = (layers[f"{name}, kind {kind}"] for kind in (1, 2))
        assert plain.under("TORCH").flops == moved.under("TORCH").flops == plain.flops
        width, count = 96 * 2 ** (stage - 1), {1: 1, 2: 1, 3: 3}[stage]
        assert plain.flops - moved.flops == count * 4 * width * (side**2 * 49 - seen)
    assert "stage 4, layers" in layers
    assert ours.train_step().backward.flops == 2 * ours.forward().flops - 2 * 56 * 56 * 48 * 96


def test_partial_training_of_several_stages_is_refused():
    ours = fk.from_hf({"model_type": "swin", "embed_dim": 96})
    with pytest.raises(ValueError, match="only trained='all' is known"):
        ours.train_step(trained="head")
    with pytest.raises(ValueError, match="what its poolers, towers and heads of several layers keep is not known here"):
        ours.train_memory(kernel="math")


def test_layers_that_nothing_reads_are_parameters_that_do_no_work():
    """CLIP-L/14-336 as LLaVA 1.5 reads it: without its 24th layer and the norm behind it."""
    tower = {
        "model_type": "clip_vision_model", "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 24, "num_attention_heads": 16,
        "image_size": 336, "patch_size": 14, "projection_dim": 768,
    }  # fmt: skip
    text = {
        "model_type": "llama",
        "vocab_size": 96,
        "hidden_size": 4096,
        "intermediate_size": 80,
        "num_hidden_layers": 1,
        "num_attention_heads": 32,
    }
    found = fk.from_hf(
        {"model_type": "llava", "text_config": text, "vision_config": tower, "vision_feature_layer": -2}
    ).pictures
    layer = 4 * (1024 * 1024 + 1024) + 2 * 1024 * 4096 + 4096 + 1024 + 2 * 2 * 1024
    assert found.params - found.active_params == layer + 2 * 1024
    assert found.forward().params_by_role["position"] == 1024 * (24**2 + 1) + 1024  # and the class token
