"""Lists of modules in a quantization_config, by the names that checkpoints give them; and files in which two tools left their words."""

import re

import pytest
import torch
from family_samples import merged

import flopkit as fk
from flopkit.models.architectures import ARCHITECTURES, SAME
from flopkit.models.checkpoints.quantized.modules import dense_parts

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
SMALL = merged("SMALL")
LAYER = re.compile(r"\.(?:layers|blocks|h)\.(\d+)\.")
UNNAMED = {
    "gemma3n_text": "altup",  # which mixes copies of the stream, and is never packed
    "zamba2": "adapter",  # lists of lists
}


def decoders():
    """Families whose classes transformers builds, with layers under a name that lists of modules use, each a layer here."""
    for kind in sorted(SMALL):
        if (
            SAME.get(kind, kind) in ARCHITECTURES
            and kind in transformers.models.auto.modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        ):
            model = fk.from_hf({"model_type": kind, **SMALL[kind]})
            if model.causal and model.encoder is None and kind not in ("biogpt", "longcat_flash"):
                yield kind


@pytest.mark.parametrize("kind", list(decoders()))
def test_every_module_of_a_layer_has_its_name(kind):
    """What no name claims stays packed where a list leaves it out."""
    model = fk.from_hf({"model_type": kind, **SMALL[kind]})
    with torch.device("meta"):
        built = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **SMALL[kind]))
    order = model.layer_order("")
    modules = [
        name
        for name, module in built.named_modules()
        if isinstance(module, torch.nn.Linear | transformers.pytorch_utils.Conv1D) and LAYER.search(name)
    ]
    modules += [
        name.removesuffix(".weight")
        for name, number in built.named_parameters()
        if number.dim() > 1 and "experts." in name
    ]
    for layer, block in enumerate(order):
        names = [tuple(each.names.of(layer)) for each in dense_parts(model, SAME.get(kind, kind)) if each.kind == block]
        own = [name for name in modules if int(LAYER.search(name)[1]) == layer]
        claimed = {
            name for name in own for each in names if name in each or name.startswith(tuple(f"{one}." for one in each))
        }
        assert own and not [name for name in own if name not in claimed and UNNAMED.get(kind, "-") not in name], kind


def packed(kind, quantization, **more):
    """A small model whose rows are whole blocks."""
    sizes = (
        SMALL[kind]
        | ({"moe_intermediate_size": 32} if "moe_intermediate_size" in SMALL[kind] else {})
        | {"tie_word_embeddings": False}
    )
    return fk.from_hf({"model_type": kind, **sizes, **more, "quantization_config": quantization})


def in_bytes(model, experts):
    """Bytes of the experts, so many numbers, where nothing else is packed."""
    return model.weight_bytes() - 2 * (model.params - experts)


def test_an_mlp_beside_experts_is_left_out_alone():
    """nvidia/Gemma-4-26B-A4B-NVFP4 leaves out mlp, router and attention of each layer: the experts are what is packed."""
    left = [f"model.language_model.layers.{i}.{what}*" for i in range(8) for what in ("mlp", "router", "self_attn")]
    model = packed("gemma4_text", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", *left]})
    experts = 8 * 6 * 3 * 32 * SMALL["gemma4_text"]["hidden_size"]
    assert not any("leaves out" in note for note in model.notes) and in_bytes(model, experts) == experts * 4.5 / 8


def test_experts_that_were_packed_once_more():
    """nvidia/DeepSeek-V4-Flash-NVFP4: fp8 in blocks, as DeepSeek published it, but for experts, which ModelOpt packed again."""
    fp8 = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    sizes = SMALL["deepseek_v4"]
    experts = sizes["num_hidden_layers"] * sizes["n_routed_experts"] * 3 * 32 * sizes["hidden_size"]
    layers = {
        f"layers.{i}.ffn.experts": {"group_size": 16, "quant_algo": "NVFP4"} for i in range(sizes["num_hidden_layers"])
    }
    again = fp8 | {"quant_algo": "MIXED_PRECISION", "moe_quant_algo": "NVFP4", "quantized_layers": layers}
    rest = packed("deepseek_v4", fp8, expert_dtype="fp4").weight_bytes() - experts * 4.25 / 8
    model = packed("deepseek_v4", again, expert_dtype="fp4")
    assert (
        model.weight_bytes() - rest == pytest.approx(experts * 4.5 / 8, abs=1)
        and model.formats.of("attention").name == "fp8_block"
    )
    for odd in ({"quant_algo": "NVFP4"}, {"quant_algo": "MIXED_PRECISION"}):
        with pytest.raises(ValueError, match="without quantized_layers"):
            packed("deepseek_v4", fp8 | odd).weight_bytes()
    model = packed(
        "deepseek_v4",
        fp8 | {"quant_algo": "MIXED_PRECISION", "quantized_layers": {"layers.0.moe": {"quant_algo": "NVFP4"}}},
    )
    with pytest.raises(ValueError, match=r"'layers\.0\.moe' is packed, which is no part that is known here"):
        model.weight_bytes()


def test_an_indexer_is_a_part_of_attention():
    """nvidia/GLM-5.1-NVFP4 leaves out self_attn, and the layer behind the last, which is that of multi-token prediction."""
    layers = SMALL["glm_moe_dsa"]["num_hidden_layers"]
    left = [*(f"model.layers.{i}.self_attn*" for i in range(layers)), "*.mlp*", f"model.layers.{layers}*", "lm_head"]
    model = packed("glm_moe_dsa", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": left})
    assert model.notes == () and model.weight_bytes() == 2 * model.params


def test_young_routers_are_no_modules():
    """nvidia/Qwen3.5-122B-A10B-NVFP4 leaves out the gate of the shared expert, which is a module, and does not name the router."""
    left = ["*.linear_attn*", "*.self_attn*", "*.mlp.shared_expert*", "lm_head"]
    model = packed("qwen3_5_moe_text", {"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": left})
    sizes = SMALL["qwen3_5_moe_text"]
    experts = sizes["num_hidden_layers"] * sizes["num_experts"] * 3 * 32 * sizes["hidden_size"]
    assert in_bytes(model, experts) == experts * 4.5 / 8


def test_modelopt_without_its_name():
    """Qwen3-32B-FP8-Static-PerTensor, of aiconfigurator, has ModelOpt's words and no quant_method."""
    sizes = {"quant_algo": "FP8", "ignore": ["lm_head"], "kv_cache_scheme": "FP8"}
    model, named = (packed("qwen3", each) for each in (sizes, sizes | {"quant_method": "modelopt"}))
    assert (
        model.notes == ()
        and model.formats.kv_cache == "fp8"
        and model.weight_bytes() == named.weight_bytes() < 2 * model.params
    )


def test_a_layer_of_two_halves_is_not_told_by_its_number():
    """A layer of LongCat-Flash is two of flopkit's."""
    plain, told = (
        {"quant_method": "fp8", "modules_to_not_convert": [left]} for left in ("lm_head", "model.layers.1.mlps.0")
    )
    assert packed("longcat_flash", plain).weight_bytes() < 2 * packed("longcat_flash", plain).params
    with pytest.raises(ValueError, match="names layers of a longcat_flash by number"):
        packed("longcat_flash", told).weight_bytes()


PLAIN = {key: value for key, value in fk.models.hf_config("llama-3-8b").items() if key != "torch_dtype"}


@pytest.mark.parametrize(
    ("name", "gigabytes", "more"),
    [
        ("llama-3-8b", 4.52, {}),  # mlx-community/Meta-Llama-3-8B-Instruct-4bit
        ("llama-3.2-1b", 0.695, {}),  # mlx-community/Llama-3.2-1B-Instruct-4bit, whose table is tied
        ("qwen3-30b-a3b", 17.2, {f"model.layers.{i}.mlp.gate": {"group_size": 64, "bits": 8} for i in range(48)}),
    ],
)
def test_files_of_mlx_pack_tables_too(name, gigabytes, more):
    """Sizes of the files on the Hub, which say it under one key or under two."""
    said = {"group_size": 64, "bits": 4, **more}
    model = fk.from_hf(fk.models.hf_config(name) | {"quantization": said})
    assert model.weight_bytes() / 1e9 == pytest.approx(gigabytes, rel=2e-3)
    both = fk.from_hf(fk.models.hf_config(name) | {"quantization": said, "quantization_config": said})
    assert both.weight_bytes() == model.weight_bytes()


def test_what_mlx_packs_otherwise():
    """A module left as it is, one of more bits, and what is not read."""
    said = {"group_size": 64, "bits": 4, "mode": "affine"}
    plain = fk.from_hf(PLAIN | {"quantization": said})
    one = 4096 * 14336
    left = fk.from_hf(PLAIN | {"quantization": said | {"model.layers.3.mlp.down_proj": False}})
    more = fk.from_hf(PLAIN | {"quantization": said | {"model.layers.3.mlp.down_proj": {"group_size": 64, "bits": 6}}})
    assert (
        left.weight_bytes() - plain.weight_bytes() == one * 11.5 / 8
        and more.weight_bytes() - plain.weight_bytes() == one / 4
    )
    for odd, why in (({"mode": "new"}, "mode='new'"), ({"lm_head": {"bits": 8}}, "lm_head in a format of its own")):
        with pytest.raises(ValueError, match=why):
            fk.from_hf(PLAIN | {"quantization": said | odd}).weight_bytes()
    with pytest.raises(ValueError, match="quantization_config='awq' is not read"):
        fk.from_hf(PLAIN | {"quantization": "awq"}).weight_bytes()


def test_fp8_with_a_scale_for_activations_has_one_for_a_tensor():
    """AutoFP8's files, such as neuralmagic/Meta-Llama-3-8B-Instruct-FP8, have no blocks, and say nothing of them."""
    model = fk.from_hf(
        PLAIN
        | {"quantization_config": {"quant_method": "fp8", "activation_scheme": "static", "ignored_layers": ["lm_head"]}}
    )
    ends = 2 * 128256 * 4096 + 65 * 4096
    assert model.weight_bytes() == model.params - ends + 2 * ends and not any(
        "weight_block_size" in note for note in model.notes
    )
