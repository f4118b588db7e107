"""The picture part of models of text and images, and the tower beside that of the texts, against transformers' own classes."""

import pytest
import torch
from family_samples import dual

import flopkit as fk
from flopkit.models.architectures.pictures import pictures_of

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

TOWER = {
    "hidden_size": 48, "intermediate_size": 56, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32, "patch_size": 8,
}  # fmt: skip
TEXT = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 8, "bos_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
SECTIONS = {"rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0}}
QWEN = {"depth": 4, "num_heads": 4, "patch_size": 8}
LATER = QWEN | {"hidden_size": 48, "out_hidden_size": 32, "intermediate_size": 56}
THIRD = LATER | {"num_position_embeddings": 16, "deepstack_visual_indexes": [1, 2]}
LLAMA = {"model_type": "llama", **TEXT}
CLIP, SIGLIP = ({"model_type": f"{name}_vision_model", **TOWER} for name in ("clip", "siglip"))

PARTS = {
    "llava": {"text_config": LLAMA, "vision_config": CLIP},
    "llava, one layer earlier": {
        "text_config": LLAMA, "vision_config": SIGLIP, "vision_feature_layer": -3, "vision_feature_select_strategy": "full",
        "multimodal_projector_bias": False,
    },
    "llava, by number": {"text_config": LLAMA, "vision_config": CLIP, "vision_feature_layer": 1},
    "gemma3": {"text_config": TEXT, "vision_config": TOWER, "mm_tokens_per_image": 4},
    "gemma3, no head": {"text_config": TEXT, "vision_config": TOWER | {"vision_use_head": False}, "mm_tokens_per_image": 4},
    "qwen2_vl": {"text_config": TEXT | SECTIONS, "vision_config": QWEN | {"embed_dim": 48, "hidden_size": 32, "mlp_ratio": 3}},
    "qwen2_5_vl": {
        "text_config": TEXT | SECTIONS, "vision_config": LATER | {"window_size": 32, "fullatt_block_indexes": [1, 3]},
    },
    "qwen3_vl": {"text_config": TEXT | SECTIONS, "vision_config": THIRD},
    "qwen3_5": {"text_config": TEXT | SECTIONS, "vision_config": LATER | {"num_position_embeddings": 16}},
    "qwen3_vl_moe": {"text_config": TEXT | SECTIONS, "vision_config": THIRD},
}  # fmt: skip
GRID = (1, 8, 12)  # pictures, and patches from top to bottom and from left to right
PATCHES = 8 * 12


def built(name, device="meta"):
    kind = name.partition(",")[0]
    config = transformers.AutoConfig.for_model(kind, **PARTS[name])
    with torch.device(device):
        model = transformers.AutoModelForImageTextToText.from_config(config, dtype=torch.bfloat16).eval()
    return config.to_dict() | {"architectures": [type(model).__name__]}, model


def in_text(model):
    """Parameters of the decoder and its head."""
    named = (
        ("language_model" in name or name.startswith("lm_head"), each.numel())
        for name, each in model.named_parameters()
    )
    return sum(count for inside, count in named if inside)


@pytest.mark.parametrize("name", PARTS)
def test_text_and_pictures_are_the_whole_model(name):
    config, model = built(name)
    pictures = pictures_of(config, 32)
    whole = sum(each.numel() for each in model.parameters())
    assert in_text(model) + pictures.params == whole


@pytest.mark.parametrize("name", PARTS)
def test_from_hf_keeps_text_and_pictures_apart(name):
    config, model = built(name)
    ours = fk.from_hf(config)
    assert ours.params == in_text(model)
    assert f"{ours.pictures.params:,} parameters, is Model.pictures" in ours.notes[-1]
    assert ours.params + ours.pictures.params == sum(each.numel() for each in model.parameters())


@pytest.mark.parametrize("name", PARTS)
def test_products_are_those_of_transformers(name):
    """Its towers run to the end, and what LLaVA and Gemma 3 do not read of them comes off."""
    qwen = name.startswith("qwen")
    config, model = built(name, "cpu" if qwen else "meta")
    ours = pictures_of(config, 32)
    if qwen:
        pixels = torch.zeros(PATCHES, 3 * 2 * 8 * 8, dtype=torch.bfloat16)
        report = fk.count(lambda: model.model.get_image_features(pixels, torch.tensor([GRID])))
        forward = ours.forward(seq=PATCHES)
        assert ours.image_tokens is None
    else:
        pixels = torch.zeros(2, 3, 32, 32, dtype=torch.bfloat16, device="meta")
        report = fk.count(lambda: model.model.get_image_features(pixels))
        forward = ours.forward(batch=2)
    rows = {row["module"]: row["flops"] for row in report.by_module()}
    unread = 0
    for module, flops in rows.items():
        place = module.rpartition("encoder.layers.")[2]
        if module.rpartition(".")[2] == "head" or (place.isdigit() and int(place) >= ours.layers):
            unread += flops
    assert forward.under("TORCH").flops == report.flops - unread
    assert (unread > 0) == (name.startswith("llava") or name == "gemma3")


@pytest.mark.parametrize("name, tokens", [("llava", 16), ("llava, one layer earlier", 16), ("gemma3", 4)])
def test_tokens_that_the_decoder_gets(name, tokens):
    config, model = built(name)
    pixels = torch.zeros(1, 3, 32, 32, dtype=torch.bfloat16, device="meta")
    theirs = model.model.get_image_features(pixels).pooler_output
    assert pictures_of(config, 32).image_tokens == theirs[0].shape[-2] == tokens


def test_a_window_that_does_not_divide_is_refused():
    config, _ = built("qwen2_5_vl")
    with pytest.raises(ValueError, match="seq"):
        pictures_of(config, 32).forward(seq=24)


@pytest.mark.parametrize(
    "changed",
    [{"vision_feature_layer": [-2, -3]}, {"vision_feature_layer": -1}, {"vision_config": {"model_type": "dinov2"}}],
)
def test_what_is_not_described_is_not_counted(changed):
    config, _ = built("llava")
    ours = fk.from_hf(config | changed)
    assert ours.pictures is None
    assert "vision_config is not counted" in ours.notes[-1]


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
