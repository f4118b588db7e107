"""Files that lie about and are for other programs, or say their sizes in other words: refused, with what to give instead."""

import json

import pytest

import flopkit as fk
from flopkit.models.files.recognised import unwrapped

LLAMA = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
    "num_attention_heads": 32,
}  # fmt: skip
EAGLE_3 = LLAMA | {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 1, "draft_vocab_size": 16000}
MLC = {  # of Llama 3 8B
    "model_type": "llama", "quantization": "q4f16_1", "vocab_size": 128256, "context_window_size": 8192, "model_config": {
        "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
        "vocab_size": 128256,
    },
}  # fmt: skip


@pytest.mark.parametrize(
    "file, why",
    [
        ({"model_type": "bloom", "n_layer": 24, "n_head": 16, "hidden_dim": 1024, "vocab_size": 250880},
         "hidden_size is missing, and hidden_dim=1024 stands here, which is no key of a bloom: call it hidden_size"),
        ({"model_type": "gpt2", "n_layer": 24, "n_head": 16, "hidden_dim": 1024, "vocab_size": 50257},
         "n_embd is missing, and hidden_dim=1024 stands here, which is no key of a gpt2: call it n_embd"),
        ({"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64, "ffn_dim": 28672, "vocab_size": 32000},
         "intermediate_size is missing, and ffn_dim=28672 stands here"),
        ({"model_type": "llama", "vocab_size": 128256, "model_config": MLC["model_config"]},
         "model_config.intermediate_size=14336 stands here, which is not read there"),
        ({"model_type": "gpt2", "num_layers": 6, "vocab_size": 50257},  # DistilGPT2 as llm-analysis has it; transformers takes 12 layers
         "n_layer is missing, and num_layers=6 stands here, which is no key of a gpt2: call it n_layer"),
        ({"model_type": "llama", "hidden_size": 8192, "n_heads": 64}, "num_attention_heads is missing, and n_heads=64 stands here"),
    ],
)  # fmt: skip
def test_a_default_never_stands_in_for_a_size_in_other_words(file, why):
    with pytest.raises(ValueError) as error:
        fk.from_hf(file)
    assert why in str(error.value)


def test_a_size_in_the_words_of_the_family_is_no_other_word():
    """DistilBERT's hidden_dim is the width of its MLP, and BLOOM's n_embed its own."""
    distilbert = {"model_type": "distilbert", "n_layers": 6, "n_heads": 12, "hidden_dim": 3072, "vocab_size": 30522}
    assert "dim is missing: 768, as transformers takes it" in fk.from_hf(distilbert).notes
    bloom = {"model_type": "bloom", "n_embed": 1024, "num_attention_heads": 16, "n_layer": 24, "vocab_size": 250880}
    assert fk.from_hf(bloom).params == 559_214_592  # bigscience/bloom-560m
    same = LLAMA | {"dim": 4096, "n_layers": 32}
    assert fk.from_hf(same).params == fk.from_hf(LLAMA).params


@pytest.mark.parametrize(
    "classes", [["LlamaForCausalLMEagle3"], ["DFlashDraftModel"], ["MedusaModel"], ["Eagle3Speculator"]]
)
def test_draft_models_by_their_class(classes):
    with pytest.raises(
        ValueError, match=f"a draft model of speculative decoding \\('{classes[0]}'\\), which reads hidden"
    ):
        fk.from_hf(LLAMA | {"architectures": classes})


@pytest.mark.parametrize(
    "file, why",
    [
        (EAGLE_3, "this configures a draft model of speculative decoding ('LlamaForCausalLM')"),
        (LLAMA | {"dflash_config": {"mask_token_id": 5}}, "this configures a draft model of speculative decoding, which"),
        (MLC, "this is mlc-chat-config.json, in MLC's words; give the config.json"),
        ({"dim": 7168, "inter_dim": 18432, "moe_inter_dim": 2048, "n_layers": 61, "n_heads": 128, "vocab_size": 129280}, "DeepSeek's own inference code"),
        ({"hidden_size": 2880, "num_hidden_layers": 36, "num_experts": 128, "experts_per_token": 4, "swiglu_limit": 7.0}, "original/config.json of a gpt-oss"),
        ({"pretrained_config": {"architecture": "LlamaForCausalLM", "hidden_size": 4096}, "build_config": {}}, "an engine of TensorRT-LLM"),
        ({"d_model": 768, "n_layer": 24, "vocab_size": 50277, "ssm_cfg": {}, "rms_norm": True}, "for the code of state-spaces/mamba"),
        ({"embed_dim": 512, "vision_cfg": {"layers": 12}, "text_cfg": {"width": 512}}, "this is for open_clip"),
        ({"model": {"type": "phi3", "decoder": {"hidden_size": 3072}}, "search": {}}, "this is genai_config.json, of ONNX Runtime"),
        ({"model_format": "gguf", "model_family": "llama", "model_type": "8.0B", "file_type": "Q4_0"}, "what Ollama says of a GGUF file"),
        ({"general.architecture": "llama", "llama.block_count": 32, "llama.embedding_length": 4096}, "the metadata of a GGUF file"),
        ({"word_embedding_dimension": 384, "pooling_mode_mean_tokens": True}, "1_Pooling/config.json"),
        ({"producer": {"name": "modelopt"}, "quantization": {"quant_algo": "NVFP4"}}, "this is hf_quant_config.json"),
        ({"bits": 4, "group_size": 128, "desc_act": False}, "about formats and not about sizes"),
        ({"zero_point": True, "q_group_size": 128, "w_bit": 4, "version": "GEMM"}, "about formats and not about sizes"),
    ],
)  # fmt: skip
def test_files_of_other_programs(tmp_path, file, why):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(file), "utf-8")
    with pytest.raises(ValueError) as error:
        fk.from_hf(path)
    assert why in str(error.value) and str(path) in str(error.value)


def test_a_file_of_an_unknown_type_that_has_sizes_is_not_called_empty(tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "step3p7", "hidden_size": 4096, "num_hidden_layers": 45}), "utf-8")
    with pytest.raises(ValueError, match="model_type='step3p7' is not described here"):
        fk.from_hf(path)


TEXT = json.dumps(LLAMA)[:-1]


@pytest.mark.parametrize(
    "text, why",
    [
        (TEXT + ",\n}", "a comma stands before a closing bracket: remove it"),
        ("{// the model\n" + TEXT[1:] + "}", "JSON has no comments: remove them"),
        (str(LLAMA), "this is a dictionary of Python: pass it itself"),
        (TEXT + ', "tie_word_embeddings": False}', "this is a dictionary of Python: pass it itself"),
        ("```json\n" + TEXT + "}\n```", "it stands between signs of Markdown: remove them"),
        (" \n", "there is nothing in it"),
        (TEXT[:-30], "the file ends early: copy it again"),
        (TEXT, "the file ends early: copy it again"),
        ("version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 2\n", "git lfs pull brings the file"),
        ("<!doctype html><html></html>", "this is a page of the web: download the file itself"),
    ],
)
def test_text_that_is_no_json_says_what_to_do(tmp_path, text, why):
    path = tmp_path / "config.json"
    path.write_text(text, "utf-8")
    with pytest.raises(ValueError, match="not a JSON file: ") as error:
        fk.from_hf(path)
    assert str(error.value).count(why) == 1 and "\n" not in str(error.value)


def test_a_quantised_model_is_no_file_about_formats():
    assert unwrapped(LLAMA | {"bits": 4, "group_size": 128, "desc_act": False})["hidden_size"] == 4096


@pytest.mark.parametrize(
    "said, kind",
    [
        ({"num_hidden_groups": 1, "type_vocab_size": 2, "embedding_size": 128}, "albert"),
        ({"type_vocab_size": 2}, "bert"),
        ({"n_ctx": 1024}, "gpt2"),
        ({"architectures": ["Qwen2MoeForCausalLM"]}, "qwen2_moe"),
        ({"architecture": "LlamaForCausalLM"}, "llama"),
        ({"architectures": ["OpenMoeForCausalLM"], "type_vocab_size": 2}, ""),
        ({"embedding_size": 128, "type_vocab_size": 2}, ""),
    ],
)
def test_the_type_that_a_file_without_one_may_be_of(said, kind):
    """What the message offers is one that the file fits; a wrong one would be counted."""
    with pytest.raises(ValueError, match="the configuration has no 'model_type'") as error:
        fk.from_hf({"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 30522} | said)
    assert (f'"model_type": "{kind}"' in str(error.value)) == bool(kind) and (
        '"model_type": "' in str(error.value)
    ) == bool(kind)


@pytest.mark.parametrize("name", ["/tmp/model/config.json", "config.json", "models\\small.gguf"])
def test_load_says_what_reads_a_file(name):
    with pytest.raises(ValueError, match=r"fk.load takes the name of a model; a config.json, .* is read by fk.from_hf"):
        fk.load(name)


def test_load_says_what_reads_a_dictionary():
    with pytest.raises(TypeError, match=r"is read by fk.from_hf"):
        fk.load(LLAMA)


@pytest.mark.parametrize(
    "kind, name", [("internlm2", "InternLM2ForRewardModel"), ("qwen2", "Qwen2ForProcessRewardModel")]
)
def test_a_class_of_the_family_that_is_not_described_is_not_called_wrong(kind, name):
    with pytest.raises(ValueError, match=f"this class of {kind} is not described here; where its code lies"):
        fk.from_hf(LLAMA | {"model_type": kind, "architectures": [name]})
