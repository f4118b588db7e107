"""Files as people have them, with keys that are missing, null or of no use, beside the class of transformers that they name."""

import pytest
import torch

import flopkit as fk

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
SEQ = 128
D = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}
BERT = D | {"max_position_embeddings": 132}
T5 = {"d_model": 64, "d_ff": 128, "d_kv": 16, "num_heads": 4, "num_layers": 3, "vocab_size": 100}
OPT = {key: value for key, value in D.items() if key != "intermediate_size"} | {
    "ffn_dim": 128,
    "max_position_embeddings": 130,
}
FALCON = {key: value for key, value in D.items() if key != "intermediate_size"} | {
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "alibi": False,
}
GPT_2 = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 128, "vocab_size": 100, "n_ctx": 1024}
ODD = {
    "a Llama with nulls": ("llama", "LlamaForCausalLM", D | {"num_key_value_heads": None, "head_dim": None, "rope_scaling": None}),
    "a reward model of one label": ("llama", "LlamaForSequenceClassification", D | {"id2label": {"0": "LABEL_0"}, "pad_token_id": 0}),
    "labels by their number": ("llama", "LlamaForTokenClassification", D | {"num_labels": 5}),
    "a switch that is off": ("qwen2", "Qwen2ForCausalLM", D | {"num_key_value_heads": 2, "use_sliding_window": False, "sliding_window": 131072, "max_window_layers": 2}),
    "a window of some layers": ("qwen2", "Qwen2ForCausalLM", D | {"num_key_value_heads": 2, "use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    "heads wider than the model": ("qwen3", "Qwen3ForCausalLM", D | {"num_key_value_heads": 2, "head_dim": 32, "tie_word_embeddings": True}),
    "GPT-2 of 2019": ("gpt2", "GPT2LMHeadModel", GPT_2 | {"_num_labels": 1, "n_inner": None, "summary_type": "cls_index"}),
    "three classes of GPT-2": ("gpt2", "GPT2ForSequenceClassification", GPT_2 | {"id2label": {"0": "a", "1": "b", "2": "c"}}),
    "BERT of 2018": ("bert", "BertForPreTraining", BERT | {"type_vocab_size": 2}),
    "names of entities": ("bert", "BertForTokenClassification", BERT | {"_num_labels": 9, "id2label": {str(i): str(i) for i in range(9)}}),
    "a BERT that writes": ("bert", "BertLMHeadModel", BERT | {"is_decoder": True}),
    "sentences of XLM-R": ("xlm-roberta", "XLMRobertaModel", BERT | {"type_vocab_size": 1, "output_past": True}),
    "old words for DistilBERT": ("distilbert", "DistilBertForQuestionAnswering", {"dim": 64, "hidden_dim": 128, "n_heads": 4, "n_layers": 2, "vocab_size": 100, "max_position_embeddings": 132, "tie_weights_": True, "sinusoidal_pos_embds": False}),
    "ELECTRA's discriminator": ("electra", "ElectraForPreTraining", BERT | {"embedding_size": 32}),
    "the encoder of T5": ("t5", "T5EncoderModel", T5 | {"feed_forward_proj": "gated-gelu"}),
    "the encoder of mT5": ("mt5", "MT5EncoderModel", T5 | {"tie_word_embeddings": False}),
    "the encoder of UMT5": ("umt5", "UMT5EncoderModel", T5),
    "T5 with its tasks": ("t5", "T5ForConditionalGeneration", T5 | {"task_specific_params": {}, "n_positions": 512}),
    "OPT-350m": ("opt", "OPTForCausalLM", OPT | {"word_embed_proj_dim": 32, "do_layer_norm_before": False}),
    "an OPT whose norms learn nothing": ("opt", "OPTForCausalLM", OPT | {"layer_norm_elementwise_affine": False, "enable_bias": False, "activation_function": "gelu"}),
    "Falcon-40B": ("falcon", "FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    "Falcon-RW": ("falcon", "FalconForCausalLM", FALCON | {"multi_query": False, "parallel_attn": False, "bias": True, "alibi": True}),
    "Falcon2-11B": ("falcon", "FalconForCausalLM", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2, "num_ln_in_parallel_attn": 1, "ffn_hidden_size": 200}),
    "BLOOM in other words": ("bloom", "BloomModel", {"n_embed": 64, "num_attention_heads": 4, "n_layer": 2, "vocab_size": 100, "seq_length": 2048}),
    "StableLM 2 12B": ("stablelm", "StableLmForCausalLM", D | {"num_key_value_heads": 2, "qk_layernorm": True, "use_parallel_residual": True}),
    "GPT-Neo": ("gpt_neo", "GPTNeoForCausalLM", {"hidden_size": 64, "num_heads": 4, "num_layers": 4, "attention_types": [[["global", "local"], 2]], "vocab_size": 100, "window_size": 16, "max_position_embeddings": 130, "intermediate_size": None}),
    "StarCoder without one head for all": ("gpt_bigcode", "GPTBigCodeForCausalLM", GPT_2 | {"multi_query": False, "n_inner": 128}),
    "two words for one activation": ("gemma2", "Gemma2ForCausalLM", D | {"num_key_value_heads": 2, "head_dim": 32, "sliding_window": 16, "sliding_window_size": 16, "hidden_act": "gelu_pytorch_tanh"}),
    "DeepSeek without a latent of queries": ("deepseek_v2", "DeepseekV2ForCausalLM", D | {"moe_intermediate_size": 32, "q_lora_rank": None, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "num_key_value_heads": 4, "topk_method": "greedy"}),
    "MiniCPM3, whose values are as wide as a share of the model": ("minicpm3", "MiniCPM3ForCausalLM", D | {"q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "num_key_value_heads": 4, "scale_emb": 12, "dim_model_base": 256}),
}  # fmt: skip


@pytest.mark.parametrize("what", ODD)
def test_odd_files(what):
    kind, name, sizes = ODD[what]
    config = transformers.AutoConfig.for_model(kind, **sizes)
    with torch.device("meta"):
        model = getattr(transformers, name)._from_config(config, dtype=torch.bfloat16).eval()
        ids = torch.zeros(1, SEQ, dtype=torch.long)
    given = {"input_ids": ids} | (
        {"decoder_input_ids": ids} if config.is_encoder_decoder and "Encoder" not in name else {}
    )
    report = fk.count(lambda: model(**given))
    ours = fk.from_hf({"model_type": kind, "architectures": [name], **sizes})
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=SEQ).under("TORCH").flops == report.flops


def test_mimo_v2_flash_as_it_was_published():
    """Its file says the tokens before the one that looks, and the order of layers in numbers."""
    sizes = D | {
        "num_hidden_layers": 7, "num_key_value_heads": 1, "head_dim": 24, "v_head_dim": 12, "moe_intermediate_size": 32, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "n_shared_experts": None, "sliding_window": 16, "sliding_window_size": 16, "swa_num_attention_heads": 4,
        "swa_num_key_value_heads": 2, "swa_head_dim": 24, "swa_v_head_dim": 12, "hybrid_layer_pattern": [0, 1, 1, 1, 1, 0, 1],
        "moe_layer_freq": [0, 1, 1, 1, 1, 1, 1], "partial_rotary_factor": 0.334, "layernorm_epsilon": 1e-5, "routed_scaling_factor": None,
    }  # fmt: skip
    with torch.device("meta"):
        model = transformers.MiMoV2FlashForCausalLM._from_config(
            transformers.AutoConfig.for_model("mimo_v2_flash", **sizes)
        )
    ours = fk.from_hf({"model_type": "mimo_v2_flash", "architectures": ["MiMoV2FlashForCausalLM"], **sizes})
    assert ours.params == sum(p.numel() for p in model.parameters())
    windows = [ours.blocks[kind][0].mixer.window for kind in ours.order]
    assert windows == [layer.self_attn.sliding_window for layer in model.model.layers]


def test_a_default_that_does_not_fit_is_named():
    """MiniCPM3 has as many heads of keys and values as of queries, and 40 where a file leaves them out."""
    sizes = {
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_attention_heads": 8,
        "num_hidden_layers": 2,
        "vocab_size": 100,
    }
    with pytest.raises(
        ValueError, match="num_key_value_heads=40: flopkit supports minicpm3 only with num_key_value_heads=8"
    ):
        fk.from_hf({"model_type": "minicpm3", **sizes})


TIMM = {"num_features": 2048, "pretrained_cfg": {"input_size": [3, 224, 224]}}


@pytest.mark.parametrize(
    "config, said",
    [
        ({"architecture": "resnet50", "num_classes": 1000} | TIMM, r"timm's config.json of a 'resnet50'.*fk.load\('resnet50'\)"),
        ({"architecture": "resnet18.a1_in1k", "model_type": "timm_wrapper"} | TIMM, r"fk.load\('resnet18'\)"),
        ({"architecture": "convnext_tiny", "num_classes": 1000}, r"build it by timm.*fk.count\("),
        ({"model_type": "resnet"}, r"fk.load\('resnet50'\)"),
        ({"model_type": "resnet", "layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [2, 2, 2, 2]}, r"fk.load\('resnet18'\)"),
        ({"model_type": "resnet", "hidden_sizes": [64, 128, 256, 512]}, "fk.count_hf"),
        ({"model_type": "mobilenet_v2", "depth_multiplier": 1.0}, "fk.count_hf"),
    ],
)  # fmt: skip
def test_convolutional_networks_are_named(config, said):
    with pytest.raises(ValueError, match=said):
        fk.from_hf(config)


@pytest.mark.parametrize(
    "sizes, name",
    [
        ({}, "resnet50"),
        ({"layer_type": "basic", "hidden_sizes": [64, 128, 256, 512], "depths": [3, 4, 6, 3]}, "resnet34"),
    ],
)
def test_a_resnet_of_transformers_is_that_of_torchvision(sizes, name):
    with torch.device("meta"):
        model = transformers.ResNetForImageClassification(transformers.ResNetConfig(**sizes, num_labels=1000)).eval()
        report = fk.count(model, torch.zeros(1, 3, 224, 224))
    assert sum(p.numel() for p in model.parameters()) == fk.load(name).params
    assert report.flops == fk.load(name).forward().under("TORCH").flops


def test_a_damaged_gguf_is_not_taken_for_json(tmp_path):
    (tmp_path / "half.gguf").write_bytes(bytes.fromhex("858d00ff") * 8)
    with pytest.raises(ValueError, match=r"half\.gguf: a GGUF file begins with the letters GGUF.*download it again"):
        fk.from_hf(tmp_path / "half.gguf")


@pytest.mark.parametrize(
    "kind, said",
    [
        ("kimi_linear", {"num_experts": 6, "num_local_experts": 4}),
        ("mixtral", {"num_experts": 6, "num_local_experts": 4}),
        ("qwen3_moe", {"num_experts": 6, "num_local_experts": 4}),
        ("gpt2", {"n_layer": 2, "num_hidden_layers": 3}),
        ("llama", {"n_layers": 2, "num_hidden_layers": 3}),
    ],
)
def test_two_numbers_for_one_size_are_refused(kind, said):
    """transformers takes the last for one family, the first for another, whatever their order."""
    first, second = said.items()
    for both in (said, dict([second, first])):
        with pytest.raises(ValueError, match=" are two numbers for one size: leave out the one that is wrong"):
            fk.from_hf({"model_type": kind, **both})
    fk.from_hf({"model_type": kind, **dict.fromkeys(said, 8)})
