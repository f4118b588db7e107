"""What people give for a configuration: files, folders, Hub ids, other tools' files; each is read, or named with what to give instead."""

import contextlib
import http.server
import json
import re
import sys
import threading
import time

import pytest
from gguf_files import U64, tensors, written

import flopkit as fk
from flopkit.models import families, hf_config
from flopkit.models.catalogue import any_model
from flopkit.models.files import hub
from flopkit.models.files.config_files import configuration
from flopkit.models.files.unknown_types import UnknownTypeError, unknown_type

with contextlib.suppress(ImportError):
    import huggingface_hub.constants  # noqa: F401  it reads HF_HUB_OFFLINE when it is imported, and here tests set it

LLAMA = hf_config("llama-3-8b")
META = {
    "dim": 4096, "ffn_dim_multiplier": 1.3, "multiple_of": 1024, "n_heads": 32, "n_kv_heads": 8, "n_layers": 32, "norm_eps": 1e-05,
    "rope_theta": 500000.0, "use_scaled_rope": True, "vocab_size": 128256,
}  # fmt: skip
MISTRAL = {
    "dim": 4096, "n_layers": 32, "head_dim": 128, "hidden_dim": 14336, "n_heads": 32, "n_kv_heads": 8, "norm_eps": 1e-05,
    "vocab_size": 32768, "rope_theta": 1000000.0,
}  # fmt: skip


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path_factory):
    """No cache and no network but what a test gives."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_ENDPOINT", "TRANSFORMERS_OFFLINE", "HF_HUB_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path_factory.mktemp("home")))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def saved(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), "utf-8")
    return path


# ------------------------------------------------------------------------------------------------------------------ places


def test_a_folder_is_what_transformers_saves(tmp_path):
    saved(tmp_path / "my-llama" / "config.json", LLAMA)
    model = fk.from_hf(tmp_path / "my-llama")
    assert model.params == 8_030_261_248 and model.name == "my-llama"
    assert any_model(str(tmp_path / "my-llama")) == model == fk.from_hf(f"{tmp_path}/my-llama/")
    (tmp_path / "empty").mkdir()
    with pytest.raises(
        ValueError, match=rf"^{re.escape(str(tmp_path))}/empty: this folder has no config.json; in it: nothing"
    ):
        fk.from_hf(tmp_path / "empty")
    saved(tmp_path / "other" / "notes.json", {})
    with pytest.raises(ValueError, match="this folder has no config.json; in it: notes.json"):
        fk.from_hf(tmp_path / "other")
    saved(
        tmp_path / "tuned" / "adapter_config.json",
        {"peft_type": "LORA", "base_model_name_or_path": "meta-llama/Llama-3.1-8B"},
    )
    with pytest.raises(
        ValueError, match=r"tuned/adapter_config.json: this is an adapter \('LORA'\) of 'meta-llama/Llama-3.1-8B'"
    ):
        fk.from_hf(tmp_path / "tuned")


@pytest.mark.parametrize(
    "said, name",
    [
        (None, "folder"), ("", "folder"), ("meta-llama/Meta-Llama-3-8B", "meta-llama/Meta-Llama-3-8B"), ("gpt2", "gpt2"),
        ("/home/somebody/.cache/torch/BAAI_bge-large-en/", "folder"), ("./llama", "folder"), (r"C:\models\llama", "folder"),
        ("out/checkpoint/7", "folder"), (7, "folder"),
    ],
)  # fmt: skip
def test_captions_name_what_the_reader_knows(tmp_path, said, name):
    """And not a path on the computer of whoever saved the file."""
    path = saved(tmp_path / "folder" / "config.json", LLAMA | ({} if said is None else {"_name_or_path": said}))
    assert fk.from_hf(path).name == name
    other = saved(tmp_path / "qwen.of.mine.json", json.loads(path.read_text()))
    assert fk.from_hf(other).name == name.replace("folder", "qwen.of.mine")
    assert fk.from_hf(json.loads(path.read_text())).name == name.replace("folder", "llama")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_encodings(tmp_path, encoding):
    path = tmp_path / "config.json"
    path.write_bytes(json.dumps(LLAMA | {"_name_or_path": "né"}, ensure_ascii=False).encode(encoding))
    assert fk.from_hf(path).params == 8_030_261_248 and fk.from_hf(path).name == "né"


def test_infinity_is_a_number(tmp_path):
    """In Python's spelling, and in that of transformers 5."""
    path = tmp_path / "config.json"
    path.write_text(
        json.dumps(LLAMA)[:-1] + ', "time_step_limit": [0.0, Infinity], "other": [{"__float__": "-Infinity"}]}'
    )
    assert fk.from_hf(path).params == 8_030_261_248
    assert configuration(path).config["time_step_limit"] == [0, float("inf")] and configuration(path).config[
        "other"
    ] == [-float("inf")]


def test_what_is_no_json_is_named_with_its_line(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{\n "model_type": "llama",\n}')
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: not a JSON file: .*line 3 column 1"):
        fk.from_hf(path)
    path.write_text('{\n // Llama\n "model_type": "llama"}')
    with pytest.raises(ValueError, match=r"not a JSON file: .*line 2 column 2"):
        fk.from_hf(path)


@pytest.mark.parametrize("text", ["nothing.json", "a/b/c/d", "./nothing", "x" * 5000, "a\0b", "llama-3-8b"])
def test_a_place_where_nothing_is(text):
    with pytest.raises(
        FileNotFoundError, match="there is no such file or folder; give the path of a config.json, a Hub id"
    ) as error:
        fk.from_hf(text)
    assert len(str(error.value)) < 500 and ("fk.load('llama-3-8b')" in str(error.value)) == (text == "llama-3-8b")


def test_errors_name_the_file(tmp_path):
    path = saved(tmp_path / "config.json", LLAMA | {"intermediate_size": None})
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: .*lacks 'intermediate_size'"):
        fk.from_hf(path)
    saved(path, LLAMA | {"num_hidden_layers": "32"})
    with pytest.raises(TypeError, match=rf"^{re.escape(str(path))}: num_hidden_layers='32'"):
        fk.from_hf(path)
    saved(path, LLAMA | {"vocab_size": [1]})
    with pytest.raises(TypeError, match=rf"^{re.escape(str(path))}: vocab_size="):
        fk.from_hf(path)


# --------------------------------------------------------------------------------------------------------------- around it


def test_what_holds_one_configuration(tmp_path):
    for content in (
        [LLAMA],
        {"config": LLAMA},
        {"id": "meta-llama/Meta-Llama-3-8B", "config": LLAMA},
        [{"config": LLAMA}],
    ):
        assert fk.from_hf(content).params == fk.from_hf(saved(tmp_path / "x.json", content)).params == 8_030_261_248
    with pytest.raises(ValueError, match="this is a list of 2 dictionaries: give one of them"):
        fk.from_hf([LLAMA, LLAMA])
    with pytest.raises(
        ValueError,
        match=r"the Hub's API says of 'meta-llama/Llama-3.2-1B', whose config has no sizes, only 'architectures', 'model_type'",
    ):
        fk.from_hf(
            {
                "modelId": "meta-llama/Llama-3.2-1B",
                "config": {"architectures": ["LlamaForCausalLM"], "model_type": "llama"},
            }
        )


@pytest.mark.parametrize(
    "content, message",
    [
        ({"metadata": {"total_size": 16_060_522_496}, "weight_map": {}}, r"index of weights in several files, 16.06 GB in all; give the config.json"),
        ({"weight_map": {}}, r"index of weights in several files; give"),
        ({"peft_type": "LORA", "r": 16, "base_model_name_or_path": "org/base"}, r"an adapter \('LORA', r=16\) of 'org/base': give that model.*LoRA\(rank=16\)"),
        ({"_from_model_config": True, "eos_token_id": 2}, r"generation_config.json, about sampling"),
        ({"do_sample": True, "temperature": 0.6}, r"generation_config.json"),
        ({"tokenizer_class": "LlamaTokenizer", "model_max_length": 4096}, r"tokenizer_config.json"),
        ({"added_tokens": [], "pre_tokenizer": None, "model": {}}, r"tokenizer.json"),
        ({"image_processor_type": "ViTImageProcessor", "size": 224}, r"preprocessor_config.json"),
        ({"feature_extractor_type": "WhisperFeatureExtractor"}, r"preprocessor_config.json"),
        ({"_class_name": "UNet2DConditionModel", "sample_size": 64}, r"'UNet2DConditionModel' of diffusers.*fk.count\(model"),
        ({"_class_name": "FluxPipeline", "text_encoder": ["transformers", "CLIPTextModel"], "vae": ["diffusers", "AutoencoderKL"]},
         r"model_index.json, a 'FluxPipeline' of diffusers made of text_encoder/ \(CLIPTextModel\), vae/ \(AutoencoderKL\); text_encoder/config.json"),
        ([{"idx": 0, "path": "", "type": "sentence_transformers.models.Transformer"}], r"modules.json"),
        ({"log_history": [], "global_step": 5}, r"trainer_state.json"),
    ],
)  # fmt: skip
def test_files_that_lie_beside_a_configuration_are_named(tmp_path, content, message):
    path = saved(tmp_path / "given.json", content)
    with pytest.raises(
        ValueError,
        match=rf"^{re.escape(str(path))}: this is .*{message}|^{re.escape(str(path))}: this configures .*{message}",
    ):
        fk.from_hf(path)


@pytest.mark.parametrize(
    "head, message",
    [
        ((60).to_bytes(8, "little") + b'{"a": 1}' + b" " * 60, "a safetensors file: weights; give the config.json beside it"),
        (b"PK\x03\x04" + bytes(60), r"a zip file, such as torch.save writes \(pytorch_model.bin\)"),
        (b"\x80\x02}q\x00." + bytes(60), "a pickle"),
        (b"\x89HDF\r\n\x1a\n" + bytes(60), r"an HDF5 file"),
        (b"tjgg" + bytes(60), "a GGML file, older than GGUF"),
    ],
)  # fmt: skip
def test_weights_are_named_and_never_opened(tmp_path, head, message):
    path = tmp_path / "model.bin"
    path.write_bytes(head)
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: this is {message}"):
        fk.from_hf(path)


def test_files_of_transformers_2_have_no_model_type(tmp_path):
    """The sizes of the published distilbert-base-cased and roberta-base: its do_sample does not make the first a file about sampling."""
    old = {
        "activation": "gelu", "dim": 768, "do_sample": False, "hidden_dim": 3072, "max_position_embeddings": 512, "n_heads": 12, "n_layers": 6,
        "sinusoidal_pos_embds": False, "tie_weights_": True, "vocab_size": 28996,
    }  # fmt: skip
    roberta = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "vocab_size": 50265}
    for content in (old, roberta):
        path = saved(tmp_path / "config.json", content)
        with pytest.raises(
            ValueError,
            match=r"no 'model_type': files older than transformers 3 have none: write it in, (such as|where)",
        ) as error:
            fk.from_hf(path)
        assert not isinstance(error.value, UnknownTypeError)


# ------------------------------------------------------------------------------------------------- Meta's and Mistral's files


def test_params_json_of_meta(tmp_path):
    saved(tmp_path / "Llama3.1-8B" / "params.json", META)
    model = fk.from_hf(tmp_path / "Llama3.1-8B")
    assert model.params == 8_030_261_248 and model.name == "Llama3.1-8B" and model.notes == ()
    large = META | {"dim": 8192, "n_layers": 80, "n_heads": 64, "multiple_of": 4096}
    assert fk.from_hf(large).params == fk.load("llama-3.1-70b").params == 70_553_706_496
    second = {"dim": 4096, "multiple_of": 256, "n_heads": 32, "n_layers": 32, "norm_eps": 1e-05, "vocab_size": -1}
    assert fk.from_hf(second).params == 6_738_415_616  # Touvron et al. 2023, the weights of Llama-2-7B
    assert fk.from_hf(second).notes == ("vocab_size=-1: 32000, the tokenizer of Llama 1 and 2",)
    small = META | {"dim": 2048, "n_layers": 16, "ffn_dim_multiplier": 1.5, "multiple_of": 256}
    assert fk.from_hf(small).params == 1_235_814_400 and "the head is the embedding" in fk.from_hf(small).notes[0]


def test_params_json_of_mistral():
    assert fk.from_hf(MISTRAL).params == 7_248_023_552
    first = fk.from_hf(MISTRAL | {"sliding_window": 4096, "vocab_size": 32000})
    assert (
        first.kv_bytes(context=32768)
        == fk.load("mistral-7b").kv_bytes(context=32768)
        == fk.load("mistral-7b").kv_bytes(context=4096)
    )
    mixtral = fk.from_hf(MISTRAL | {"vocab_size": 32000, "moe": {"num_experts": 8, "num_experts_per_tok": 2}})
    assert (mixtral.params, mixtral.active_params) == (46_702_792_704, fk.load("mixtral-8x7b").active_params)


@pytest.mark.parametrize(
    "params, message",
    [
        (META | {"vision_chunk_size": 448}, "'vision_chunk_size' of Meta's params.json is not described here; give the model's config.json"),
        (META | {"quantization_args": {"scheme": "x"}}, "'quantization_args' of Meta's"),
        (MISTRAL | {"vision_encoder": {"hidden_size": 1024}}, "'vision_encoder' of Mistral's"),
        (MISTRAL | {"sliding_window": [1, 2]}, "sliding_window="),
        (MISTRAL | {"moe": {"num_experts": 8}}, "moe=.* of Mistral's"),
        (MISTRAL | {"model_type": "mamba"}, "model_type='mamba' of Mistral's"),
        ({k: v for k, v in META.items() if k != "vocab_size"}, "params.json lacks 'vocab_size': add it"),
        ({k: v for k, v in META.items() if k != "multiple_of"}, "params.json lacks 'multiple_of'"),
        (META | {"dim": "4096"}, "dim='4096': a size must be a whole number"),
        (META | {"ffn_dim_multiplier": "x"}, "ffn_dim_multiplier='x'"),
    ],
)  # fmt: skip
def test_params_json_that_is_not_described(params, message):
    with pytest.raises((ValueError, TypeError), match=message):
        fk.from_hf(params)


# --------------------------------------------------------------------------------------------------------------------- GGUF

SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
}
MOE = {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
KINDS = {
    "llama": ("llama", {}), "llama, tied": ("llama", {"tie_word_embeddings": True}), "llama, biases": ("llama", {"attention_bias": True}),
    "llama, heads of their own": ("llama", {"head_dim": 20}),
    "mixtral": ("llama", {"num_local_experts": 6, "num_experts_per_tok": 2}),
    "mistral": ("llama", {"sliding_window": 32}),
    "qwen2": ("qwen2", {}), "qwen2_moe": ("qwen2moe", MOE | {"num_experts": 6, "shared_expert_intermediate_size": 40}),
    "qwen3": ("qwen3", {"head_dim": 16}), "qwen3_moe": ("qwen3moe", MOE | {"num_experts": 6, "head_dim": 16}),
    "gemma": ("gemma", {"head_dim": 16}),
    "gemma2": ("gemma2", {"head_dim": 16, "sliding_window": 32}),
    "gemma3_text": ("gemma3", {"head_dim": 16, "sliding_window": 32, "num_hidden_layers": 7}),
    "phi3": ("phi3", {"sliding_window": None, "pad_token_id": 0}),
}  # fmt: skip


def keys(arch, config):
    """What llama.cpp's convert_hf_to_gguf.py writes of sizes."""
    said = {
        "general.architecture": arch, "general.type": "model", "general.name": "Small", "general.file_type": 15,
        "tokenizer.ggml.tokens": [f"<{i}>" for i in range(96)], "tokenizer.ggml.scores": [0.5] * 70_000, "general.tags": ["a", "b"],
        f"{arch}.block_count": config.num_hidden_layers, f"{arch}.context_length": U64(64), f"{arch}.embedding_length": config.hidden_size,
        f"{arch}.feed_forward_length": config.intermediate_size, f"{arch}.attention.head_count": config.num_attention_heads,
        f"{arch}.attention.head_count_kv": config.num_key_value_heads, f"{arch}.attention.layer_norm_rms_epsilon": 1e-5,
        f"{arch}.attention.causal": True,
    }  # fmt: skip
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    said |= {
        f"{arch}.attention.key_length": head_dim,
        f"{arch}.attention.value_length": head_dim,
        f"{arch}.rope.dimension_count": head_dim,
    }
    experts = getattr(config, "num_local_experts", None) or getattr(config, "num_experts", None)
    if experts:
        said |= {f"{arch}.expert_count": experts, f"{arch}.expert_used_count": config.num_experts_per_tok}
        said |= {f"{arch}.expert_feed_forward_length": config.moe_intermediate_size} if arch != "llama" else {}
        said |= (
            {f"{arch}.expert_shared_feed_forward_length": config.shared_expert_intermediate_size}
            if arch == "qwen2moe"
            else {}
        )
    if getattr(config, "sliding_window", None):
        said[f"{arch}.attention.sliding_window"] = config.sliding_window
    return said


def made(name):
    """The same model by transformers: its configuration, and what it is on meta."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    arch, changed = KINDS[name]
    kind = name.split(",")[0]
    if kind not in families() and kind not in dict(fk.models.architectures.SAME):
        pytest.skip(f"{kind} is not described here")
    config = transformers.CONFIG_MAPPING[kind](**SIZES | changed)
    with torch.device("meta"):
        return arch, config, transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("how", [{}, {"version": 2}, {"order": ">"}], ids=["v3", "v2", "big-endian"])
def test_the_header_of_a_gguf_file(tmp_path, name, how):
    arch, config, model = made(name)
    held = tensors(model, gemma=arch in ("gemma2", "gemma3"))
    tables = {"rope_freqs.weight": (8,)}  # angles that llama.cpp keeps as a tensor, and nothing learned
    path = written(tmp_path / "Small-Q4_K_M.gguf", keys(arch, config), held | tables, **how)
    read, plain = fk.from_hf(path), fk.from_hf(config.to_dict())
    assert read.params == sum(each.numel() for each in model.parameters()) == plain.params
    assert read.forward(seq=40).flops == plain.forward(seq=40).flops and read.kv_bytes(context=50) == plain.kv_bytes(
        context=50
    )
    assert read.name == "Small-Q4_K_M" and "the file's weights are Q4_K_M (GGUF)" in read.notes


def test_a_gguf_file_in_a_folder_and_in_parts(tmp_path):
    arch, config, model = made("llama")
    held = list(tensors(model).items())
    for number in (1, 2):
        split = {"split.no": number - 1, "split.count": 2, "split.tensors.count": len(held)}
        fields = keys(arch, config) if number == 1 else {}
        written(tmp_path / f"small-0000{number}-of-00002.gguf", fields | split, dict(held[number - 1 :: 2]))
    assert fk.from_hf(tmp_path).params == sum(each.numel() for each in model.parameters())
    (tmp_path / "small-00002-of-00002.gguf").unlink()
    with pytest.raises(ValueError, match="one of 2 files, and small-00002-of-00002.gguf does not lie beside it"):
        fk.from_hf(tmp_path / "small-00001-of-00002.gguf")


@pytest.mark.parametrize(
    "fields, held, message",
    [
        ({"general.architecture": "mamba"}, {}, r"its general.architecture 'mamba' is not described here, only llama, qwen2.*; give the config.json"),
        ({"general.architecture": "rwkv", "general.repo_url": "https://huggingface.co/o/m"}, {}, "that it was made of, https://huggingface.co/o/m"),
        ({"general.architecture": "clip"}, {}, "general.type is 'mmproj': a part of a model"),
        ({"general.type": "adapter"}, {}, "general.type is 'adapter': a part of a model"),
        ({}, {"token_embd.weight": None}, "no token_embd.weight: a file of words without weights"),
        ({"llama.block_count": None}, {}, "it lacks llama.block_count"),
        ({"llama.attention.head_count_kv": [2, 2, 1]}, {}, "head_count_kv differs from layer to layer"),
        ({"llama.attention.value_length": 7}, {}, "value_length=7 differs"),
        ({}, {"blk.0.attn_q.scale": (48,)}, "its tensors hold .* numbers, and a llama of these sizes .*: this variant is not described here"),
        ({"llama.feed_forward_length": 81}, {}, "its tensors hold"),
    ],
)  # fmt: skip
def test_a_gguf_file_that_is_not_described(tmp_path, fields, held, message):
    arch, config, model = made("llama")
    said = {key: each for key, each in (keys(arch, config) | fields).items() if each is not None}
    path = written(tmp_path / "x.gguf", said, {k: v for k, v in (tensors(model) | held).items() if v})
    with pytest.raises(ValueError, match=rf"^{re.escape(str(path))}: .*{message}"):
        fk.from_hf(path)


def test_a_gguf_file_that_is_broken(tmp_path):
    arch, config, model = made("llama")
    path = written(tmp_path / "x.gguf", keys(arch, config), tensors(model))
    whole = path.read_bytes()
    for data, message in [
        (whole[:200], "the file ends before its header does"), (whole[:4] + b"\x01" + whole[5:], "version 1 of GGUF"),
        (whole[:24] + b"\xff" * 8 + whole[32:], "a text of .* bytes in its header"), (whole[:5], "version 3|the file ends"),
    ]:  # fmt: skip
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"x.gguf: a GGUF file: .*{message}"):
            fk.from_hf(path)


# ------------------------------------------------------------------------------------------------------------------ the Hub


def cached(home, name, config, commit="0a1b", ref=True):
    folder = home / "hub" / f"models--{name.replace('/', '--')}"
    saved(folder / "snapshots" / commit / "config.json", config)
    if ref:
        (folder / "refs").mkdir(exist_ok=True)
        (folder / "refs" / "main").write_text(commit)
    return folder


def test_a_hub_id_is_read_from_the_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    folder = cached(tmp_path, "meta-llama/Meta-Llama-3-8B", LLAMA | {"_name_or_path": "/somebody's"})
    for given in (
        "meta-llama/Meta-Llama-3-8B", "https://huggingface.co/meta-llama/Meta-Llama-3-8B", folder,
        "https://huggingface.co/meta-llama/Meta-Llama-3-8B/blob/main/config.json", "hf.co/meta-llama/Meta-Llama-3-8B?x=1",
        "https://huggingface.co/meta-llama/Meta-Llama-3-8B/tree/0a1b",
    ):  # fmt: skip
        model = fk.from_hf(given)
        assert (model.params, model.name) == (8_030_261_248, "meta-llama/Meta-Llama-3-8B"), given
    assert any_model("meta-llama/Meta-Llama-3-8B") == fk.load("llama-3-8b")  # one of the catalogue is not looked for
    cached(
        tmp_path, "meta-llama/Meta-Llama-3-8B", LLAMA | {"num_hidden_layers": 16}, commit="2c3d"
    )  # main has moved on
    assert fk.from_hf("meta-llama/Meta-Llama-3-8B").blocks[0][1] == 16
    cached(tmp_path, "org/one", LLAMA, ref=False)
    assert fk.from_hf("org/one").params == 8_030_261_248 and any_model("org/one") == fk.from_hf("org/one")
    cached(tmp_path, "org/two", LLAMA, ref=False), cached(tmp_path, "org/two", LLAMA, commit="b", ref=False)
    with pytest.raises(FileNotFoundError, match="no config.json of it in the Hub's cache"):  # which of two is not known
        fk.from_hf("org/two")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match="HF_HUB_OFFLINE forbids to ask the Hub"):
        fk.from_hf("org/one")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("HF_HOME", "")
    assert fk.from_hf("org/one").name == "org/one"


def test_a_folder_comes_before_a_hub_id(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    saved(tmp_path / "org" / "name" / "config.json", LLAMA)
    assert fk.from_hf("org/name").params == 8_030_261_248


def test_offline_the_way_out_is_named():
    with pytest.raises(
        FileNotFoundError, match=r"HF_HUB_OFFLINE forbids.* known here by name: llama-3.3-70b\. Or save its config.json"
    ):
        fk.from_hf("meta-llama/Llama-3.3-70B-Instruct")
    with pytest.raises(FileNotFoundError, match=r"forbids to ask the Hub\. Or save its config.json"):
        fk.from_hf("somebody/something-Instruct")
    assert fk.load("Llama-3.3-70B-Instruct") == fk.load("llama-3.3-70b")
    for page in ("https://huggingface.co/datasets/a/b", "https://huggingface.co/meta-llama"):
        with pytest.raises(ValueError, match="is not about one model; give org/name"):
            fk.from_hf(page)
    with pytest.raises(ValueError, match=r"addresses of huggingface.co alone"):
        fk.from_hf("https://example.org/config.json")


@pytest.mark.parametrize(
    "name, known",
    [
        ("meta-llama/Llama-2-7b-chat-hf", "llama-2-7b"), ("meta-llama/Meta-Llama-3-8B-Instruct", "llama-3-8b"), ("google/gemma-2-9b-it", "gemma-2-9b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"), ("mistralai/Mistral-7B-Instruct-v0.3", ""), ("org/llama-3-8b-tuned", ""),
    ],
)  # fmt: skip
def test_names_on_the_hub_that_are_known_otherwise(name, known):
    assert hub.catalogue_name(name) == known


class Server(http.server.BaseHTTPRequestHandler):
    asked: list = []

    def do_GET(self):
        self.asked.append(self.path)
        name = self.path.split("/resolve/")[0].strip("/")
        status = {"org/gated": 401, "org/closed": 403, "org/none": 404, "org/ill": 500}.get(name, 200)
        body = json.dumps(LLAMA).encode() if status == 200 else b"no"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(monkeypatch):
    pytest.importorskip("huggingface_hub")
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Server) as found:
        threading.Thread(target=found.serve_forever, args=(0.02,), daemon=True).start()
        Server.asked.clear()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{found.server_port}/")
        monkeypatch.delenv("HF_HUB_OFFLINE")
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield found
        found.shutdown()


def test_a_hub_id_is_asked_for_once_and_without_weights(server):
    model = fk.from_hf("org/name")
    assert (model.params, model.name) == (8_030_261_248, "org/name")
    assert Server.asked == ["/org/name/resolve/main/config.json"]
    fk.from_hf("https://huggingface.co/org/name/blob/v2/config.json")
    assert Server.asked[1:] == ["/org/name/resolve/v2/config.json"]


@pytest.mark.parametrize(
    "name, message",
    [
        ("org/gated", "the Hub answered 401: it asks who you are, or has no such model"), ("org/closed", "answered 403: it does not let you in"),
        ("org/none", "answered 404: it has no such model"), ("org/ill", "answered 500: try again later"),
    ],
)  # fmt: skip
def test_what_the_hub_does_not_give_is_asked_for_once(server, name, message):
    with pytest.raises(FileNotFoundError, match=rf"^{name}: no file or folder of this name.*{message}"):
        fk.from_hf(name)
    assert Server.asked == [f"/{name}/resolve/main/config.json"]


def test_a_hub_that_is_not_there_is_said_at_once(server, monkeypatch):
    server.shutdown(), server.server_close()
    start = time.monotonic()
    with pytest.raises(ConnectionError, match=r"org/name: .*the Hub did not answer \(http://127.0.0.1:\d+: .*refused"):
        fk.from_hf("org/name")
    assert time.monotonic() - start < 8


def test_a_hub_that_hangs_is_left(server, monkeypatch):
    monkeypatch.setattr(hub, "SECONDS", 0.3)
    monkeypatch.setattr(Server, "do_GET", lambda self: time.sleep(1.5))
    start = time.monotonic()
    with pytest.raises(ConnectionError, match="the Hub did not answer"):
        fk.from_hf("org/name")
    assert time.monotonic() - start < 8


def test_without_huggingface_hub_it_is_named(monkeypatch):
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match="to ask the Hub: pip install huggingface_hub"):
        fk.from_hf("org/name")


# ------------------------------------------------------------------------------------------------------------ unknown types


def test_no_real_type_is_taken_for_another():
    """Near letters are no kinship: whoever follows llama4_text to llama gets a ninth of its parameters."""
    types = set(pytest.importorskip("transformers").CONFIG_MAPPING)
    for kind in types:
        said = str(unknown_type(kind, {}, types - {kind}))
        assert "did you mean" not in said and "fk.count_hf(config, seq=…)" in said, kind


@pytest.mark.parametrize("kind", ["minimax_text_01", "minimax_m1", "phi3small", "grok-1", "phi4mm"])
def test_a_type_that_transformers_does_not_have_is_not_sent_to_it(kind):
    """count_hf cannot know it either: both say how its own code is counted."""
    assert kind not in pytest.importorskip("transformers").CONFIG_MAPPING
    with pytest.raises(UnknownTypeError, match=r"code lies beside the checkpoint.*fk\.count\(model, ids\)") as told:
        fk.from_hf({"model_type": kind, "hidden_size": 64})
    assert "pip install" not in str(told.value)
    assert ("words are a minimax" in str(told.value)) == kind.startswith("minimax")
    with pytest.raises(ValueError, match=r"a newer one may know it; .*fk\.count\(model, ids\)"):
        fk.count_hf({"model_type": kind, "hidden_size": 64}, seq=8)
    assert "minimax" in fk.models.families()


def test_the_outer_type_and_the_inner_one_are_named():
    whole = {"model_type": "qwen9_vl", "text_config": {"model_type": "qwen9_vl_text", "hidden_size": 8}}
    with pytest.raises(
        UnknownTypeError,
        match=r"^model_type='qwen9_vl' \(its text_config: 'qwen9_vl_text'\) is not described here; transformers 5.23 does not have it",
    ):
        fk.from_hf(whole)
    with pytest.raises(
        UnknownTypeError, match=r"^model_type='new_vl' \(its text_config has none\) is not described here"
    ):
        fk.from_hf({"model_type": "new_vl", "text_config": {"hidden_size": 8}})
    deeper = {
        "model_type": "omni",
        "thinker_config": {"model_type": "thinker", "text_config": {"model_type": "omni_text"}},
    }
    assert "model_type='omni' (its thinker_config.text_config: 'omni_text')" in str(
        unknown_type("omni_text", deeper, ["llama"])
    )
