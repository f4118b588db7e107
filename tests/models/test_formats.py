"""Formats of weights: the sizes of published checkpoints, tensors counted one by one, and what a config.json says of them."""

import math
import re
from fractions import Fraction
from typing import Any, NamedTuple

import altair
import numpy
import pytest
import sympy
import torch
import vega

import flopkit as fk
from flopkit import arithmetic
from flopkit.models import Formats, Storage, storage_names, transformer
from flopkit.models.checkpoints.quantized.modules import by_checkpoint, by_name, by_wildcard
from flopkit.models.storage import nbytes, stored
from flopkit.serving import batch_at_ridge, decode, intensity_limit, largest_batch, prefill

GPT_OSS = {"experts": "mxfp4", "rest": "bf16"}


# -- one format -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("name", "bits"), [
    ("mxfp4", 4.25), ("nvfp4", 4.5), ("mxfp8", 8.25), ("nf4", 4 + 8 / 64 + 32 / (64 * 256)), ("nf4_plain", 4.5), ("q4_0", 4.5),
    ("q4_1", 5.0), ("q5_0", 5.5), ("q5_1", 6.0), ("q8_0", 8.5), ("q2_k", 2.625), ("q3_k", 3.4375), ("q4_k", 4.5), ("q5_k", 5.5),
    ("q6_k", 6.5625), ("iq4_xs", 4.25), ("awq", 4 + 20 / 128), ("AWQ-g64", 4 + 20 / 64), ("fp8_block", 8 + 32 / 128**2),
])  # fmt: skip
def test_bits_of_a_number_with_its_scale(name, bits):
    """As the makers print them; of AWQ an fp16 scale and a zero of four bits a group."""
    assert stored(name).bits == Fraction(bits) and stored(name).source
    numbers = 2**20
    assert nbytes(numbers, name) == numbers * bits / 8


def test_names_of_blocks_are_found_and_others_have_near_ones():
    assert all(stored(name).name == name for name in storage_names())
    assert stored("Q4_K") is stored("q4k") and stored("bfloat16") == "bf16" and stored(torch.float16) == "fp16"
    with pytest.raises(ValueError, match=r"weights='q4_k_x' is not a known number format; did you mean .*q4_k_m"):
        fk.load("llama-3-8b").weight_bytes("q4_k_x")
    for bad in ("awq_g0", "nf5", "mxfp"):
        with pytest.raises(ValueError, match=f"'{bad}' is not a known number format"):
            stored(bad)


def test_four_bits_of_arithmetic_are_no_blocks():
    """A peak is that of the arithmetic; plain four bits have no scales."""
    b200 = fk.device("b200")
    assert b200.peak("nvfp4") == b200.peak("mxfp4") == b200.peak("fp4") and b200.peak("mxfp8") == b200.peak("fp8")
    assert stored("fp4") == "fp4" and stored("int4") == "int4" and nbytes(3, "fp4") == 2


def test_blocks_that_are_not_full_take_a_scale_each():
    small = Storage("two", 4, 32, rows=2, extra=16)
    # 3 rows of 40 numbers: two blocks a row, two pairs of rows
    assert small.nbytes(1, 40, 3) == (4 * 40 * 3 + 16 * 2 * 2) // 8
    assert small.nbytes(7, 40, 3) == 7 * small.nbytes(1, 40, 3)
    rows = Storage("a scale a row", 8, extra=16)
    assert rows.nbytes(1, 100, 30) == 100 * 30 + 2 * 30
    with pytest.raises(ValueError, match="depend on the matrix"):
        _ = rows.bits
    odd = Storage("odd", 3, 8)
    assert odd.nbytes(1, 3, 1) == 2  # nine bits, in whole bytes


# -- whole checkpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("model", "weights", "size", "most"), [
    ("gpt-oss-120b", GPT_OSS, 65.25e9, 5e6),  # sizes as lists of files round them, to 10 MB
    ("gpt-oss-20b", GPT_OSS, 13.76e9, 5e6),
    ("llama-3-8b", "q4_k_m", 4.92e9, 13e6),  # the file has a vocabulary besides, text of some 8 MB
    ("llama-3-70b", "Q4_K_M", 42.52e9, 13e6),
    ("llama-2-7b", "awq", 3.89e9, 5e6),  # TheBloke/Llama-2-7B-AWQ
    ("llama-2-7b", "gptq", 3.90e9, 7e6),  # TheBloke/Llama-2-7B-GPTQ, whose biases of nothing but zeros have 2.7 MB
    ("llama-3-8b", {"embedding": "bf16", "head": "bf16", "norms": "bf16", "rest": "nf4"}, 5.70e9, 5e6),  # QLoRA
    ("llama-3-8b", "nf4", 5.70e9, 5e6),
])  # fmt: skip
def test_published_checkpoints(model, weights, size, most):
    assert abs(size - fk.load(model).weight_bytes(weights)) <= most


def test_plain_formats_are_bits_times_parameters():
    for name in ("llama-3-8b", "qwen3-30b-a3b", "t5-base", "bert-base", "vit-b-16", "gpt2"):
        model = fk.load(name)
        assert model.weight_bytes() == model.weight_bytes("bf16") == 2 * model.params
        assert model.weight_bytes("int4") == math.ceil(model.params / 2)
        by_role = dict.fromkeys(("experts", "attention", "mlp", "router", "embedding", "head", "norms", "rest"), "fp32")
        assert model.weight_bytes(by_role) == 4 * model.params
        assert model.weight_bytes({**by_role, "rest": "bf16"}) == 4 * model.params


@pytest.mark.parametrize(
    "name", ["llama-3-8b", "gpt-oss-20b", "qwen3-30b-a3b", "deepseek-v3", "gemma-2-9b", "t5-base", "gpt2"]
)
def test_the_roles_share_all_weights(name):
    """Each weight has one role: the bytes that each role adds sum to the whole."""
    model = fk.load(name)
    roles = ("experts", "attention", "mlp", "router", "embedding", "head", "norms")
    bf16 = dict.fromkeys((*roles, "router", "rest"), "bf16")  # some are published in fewer bits
    more = [model.weight_bytes(bf16 | {role: "fp32"}) - model.weight_bytes(bf16) for role in roles]
    if model.tied:  # then the table is one tensor, with the format of the head
        assert more[4] == 0 < more[5]
    assert sum(more) == 2 * model.params


def test_what_roles_are():
    """Llama-3-8B by its sizes."""
    model, bf16 = fk.load("llama-3-8b"), 2 * fk.load("llama-3-8b").params
    added = {
        role: model.weight_bytes({role: "fp32"}) - bf16 for role in ("attention", "mlp", "embedding", "head", "norms")
    }
    assert added == {
        "attention": 2 * 32 * 2 * 4096 * (4096 + 1024), "mlp": 2 * 32 * 3 * 4096 * 14336, "embedding": 2 * 128256 * 4096,
        "head": 2 * 128256 * 4096, "norms": 2 * 65 * 4096,
    }  # fmt: skip


def test_cross_attention_is_attention():
    model = fk.load(
        "t5-base"
    )  # 12 layers of the encoder, 12 of the decoder with two kinds of attention; 32 × 12 biases of distance in each
    added = model.weight_bytes({"attention": "fp32"}) - model.weight_bytes()
    assert added == 2 * ((12 + 2 * 12) * 4 * 768 * 768 + 2 * 32 * 12)


def test_biases_and_routers_of_gpt_oss_stay_as_they_are():
    model = fk.load("gpt-oss-20b")
    experts = 24 * 32 * 3 * 2880 * 2880
    assert model.weight_bytes(GPT_OSS) == experts * 17 // 32 + 2 * (model.params - experts)
    chosen = 24 * 4 * 3 * 2880 * 2880
    others = (
        24 * (32 - 4) * (3 * 2880) + 201088 * 2880 - 2880
    )  # biases of idle experts, rows of the table that nobody reads
    step = model.decode(context=1, weights=GPT_OSS)
    assert step.bytes - model.kv_bytes(context=1) == chosen * 17 // 32 + 2 * (model.params - experts - others)


def test_gpt_oss_120b_reads_five_gigabytes_a_token():
    step = fk.load("gpt-oss-120b").decode(context=1, weights=GPT_OSS)
    assert step.bytes == pytest.approx(5.0e9, rel=0.01)
    many = fk.load("gpt-oss-120b").decode(context=1, batch=64, weights=GPT_OSS)  # 256 choices reach all 128 experts
    table = 201088 * 2880 - 64 * 2880
    assert many.bytes == fk.load("gpt-oss-120b").weight_bytes(GPT_OSS) - 2 * table + 64 * fk.load(
        "gpt-oss-120b"
    ).kv_bytes(context=1)


def test_tied_tables_are_one_tensor_in_the_format_of_the_head():
    model = fk.load("gemma-2-9b")
    table = model.vocab * model.d_model
    assert model.weight_bytes({"head": "q8_0"}) == 2 * (model.params - table) + table * 17 // 16
    assert model.weight_bytes({"embedding": "q8_0"}) == model.weight_bytes()


def test_what_a_quantiser_leaves_alone():
    model = fk.load("mixtral-8x7b")
    norms, routers = 65 * 4096, 32 * 8 * 4096
    packed = model.params - norms - routers
    assert model.weight_bytes("q4_0") == packed * 9 // 16 + 2 * (norms + routers)
    ends = 2 * 32000 * 4096
    assert model.weight_bytes("nf4_plain") == (packed - ends) * 9 // 16 + 2 * (norms + routers + ends)
    with pytest.raises(ValueError, match="norms='mxfp4'.*plain format"):
        model.weight_bytes({"norms": "mxfp4"})
    with pytest.raises(ValueError, match=r"weights=\{'expert': …\}: no role of weights; did you mean experts\?"):
        model.decode(context=8, weights={"expert": "mxfp4"})


@pytest.mark.parametrize("name", ["gpt-oss-20b", "gpt2", "deepseek-v3", "qwen2.5-0.5b"])
def test_mixtures_of_llama_cpp_are_refused_where_its_rule_is_another(name):
    with pytest.raises(ValueError, match="weights='q4_k_m': .*not known here; give a format by role"):
        fk.load(name).decode(context=8, weights="q4_k_m")


def test_the_layers_of_q4_k_m():
    """16 of 32 layers of Llama-3-8B have q6_k for values and the last matrix: 0–3, every third, 28–31."""
    model = fk.load("llama-3-8b")
    six = 16 * (4096 * 1024 + 4096 * 14336) + 128256 * 4096
    norms = 65 * 4096
    assert model.weight_bytes("q4_k_m") == (model.params - norms - six) * 9 // 16 + six * 105 // 128 + 4 * norms
    read = model.decode(context=1, weights="q4_k_m").bytes - model.kv_bytes(context=1)
    assert read == model.weight_bytes("q4_k_m") - (128256 - 1) * 4096 * 9 // 16


# -- tensors one by one -----------------------------------------------------------------------------------


def checkpoint(config, packed):
    """Bytes of a checkpoint of transformers' own model: of each matrix that *packed* names by its own rule, else bf16."""
    transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**config))
    found = 0
    for name, tensor in model.named_parameters():
        matrices = [tensor.shape[1:]] * tensor.shape[0] if tensor.dim() == 3 else [tensor.shape]
        if name.endswith("gate_up_proj"):  # published as two
            matrices = [(out // 2, into) for out, into in matrices for _ in range(2)]
        rule = packed(name) if tensor.dim() > 1 else None
        found += sum(rule(*shape) if rule else 2 * math.prod(shape) for shape in matrices)
    return found


def by_blocks(out, into):
    return out * into + 4 * math.ceil(out / 128) * math.ceil(into / 128)


ODD = {
    "vocab_size": 96,
    "hidden_size": 200,
    "intermediate_size": 150,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 130}
LATENT = {
    "q_lora_rank": 40, "kv_lora_rank": 300, "qk_nope_head_dim": 24, "qk_rope_head_dim": 8, "v_head_dim": 20, "n_routed_experts": 4,
    "num_experts_per_tok": 2, "moe_intermediate_size": 130, "n_shared_experts": 1, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
FP8 = {"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128], "activation_scheme": "dynamic"}}


@pytest.mark.parametrize("config", [
    {"model_type": "llama", **ODD, "tie_word_embeddings": False}, {"model_type": "qwen3", **ODD, "head_dim": 50, "tie_word_embeddings": True},
    {"model_type": "qwen3_moe", **ODD, **MOE, "head_dim": 50}, {"model_type": "deepseek_v3", **ODD, **LATENT},
], ids=lambda config: config["model_type"])  # fmt: skip
def test_blocks_of_fp8_tensor_by_tensor(config):
    def rule(name):
        return None if any(part in name for part in ("embed", "lm_head", "mlp.gate.")) else by_blocks

    model = fk.from_hf({**config, **FP8})
    assert model.weight_bytes() == checkpoint(config, rule)
    assert not any("quantization" in note or "block" in note for note in model.notes)
    half = {
        **FP8["quantization_config"],
        "modules_to_not_convert": ["lm_head", *(f"model.layers.{i}.self_attn" for i in (0, 2))],
    }
    model = fk.from_hf({**config, "quantization_config": half})
    assert model.weight_bytes() == checkpoint(
        config,
        lambda name: None if name.startswith(("model.layers.0.self_attn", "model.layers.2.self_attn")) else rule(name),
    )
    if config["model_type"] != "deepseek_v3":
        table = 96 * 200
        assert model.decode(context=1, batch=8).bytes == model.weight_bytes() - (
            0 if model.tied else 2 * table
        ) + 2 * 8 * 200 + model.kv_bytes(context=1, batch=8)


def test_mxfp4_tensor_by_tensor():
    config = {"model_type": "gpt_oss", **ODD, "hidden_size": 96, "intermediate_size": 160, "head_dim": 32, "num_local_experts": 4, "num_experts_per_tok": 2,
              "layer_types": ["sliding_attention", "full_attention"] * 2, "sliding_window": 4}  # fmt: skip

    def rule(name):  # matrices of experts lie the other way round; their rows along what comes in are multiples of 32
        return (lambda a, b: a * b * 17 // 32) if "experts." in name and "bias" not in name else None

    found = fk.from_hf({**config, "quantization_config": {"quant_method": "mxfp4"}})
    assert found.weight_bytes() == checkpoint(config, rule)


# -- config.json ------------------------------------------------------------------------------------------

LLAMA = {
    "model_type": "llama", "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 32, "tie_word_embeddings": False,
}  # fmt: skip
LINEAR = 32 * (4 * 4096**2 + 3 * 4096 * 11008)
ENDS, NORMS = 2 * 32000 * 4096, 65 * 4096
ROWS = 32 * (4 * 4096 + 2 * 11008 + 4096)  # outputs of all dense layers


def said(**quantization):
    return fk.from_hf({**LLAMA, "torch_dtype": "bfloat16", "quantization_config": quantization})


def group(bits=4, kind="int", strategy="group", size=128, activations=None, targets=("Linear",), **more):
    weights = {
        "num_bits": bits,
        "type": kind,
        "strategy": strategy,
        "group_size": size,
        "symmetric": True,
        "dynamic": False,
        **more,
    }
    return {"targets": list(targets), "weights": weights, "input_activations": activations}


def compressed(*groups, ignore=("lm_head",), **more):
    return said(
        quant_method="compressed-tensors",
        config_groups={f"group_{i}": one for i, one in enumerate(groups)},
        ignore=list(ignore),
        **more,
    )


INT8, FLOAT8 = {"num_bits": 8, "type": "int", "dynamic": True}, {"num_bits": 8, "type": "float", "dynamic": True}
FLOAT4 = {"num_bits": 4, "type": "float", "dynamic": "local", "group_size": 16}


@pytest.mark.parametrize(("model", "packed", "computes"), [
    (lambda: said(quant_method="awq", bits=4, group_size=128, zero_point=True, version="gemm"), LINEAR * (4 + 20 / 128) / 8, "bf16"),
    (lambda: said(quant_method="awq", w_bit=4, q_group_size=64), LINEAR * (4 + 20 / 64) / 8, "bf16"),
    (lambda: said(quant_method="gptq", bits=4, group_size=128), LINEAR * (4 + 20 / 128) / 8 + 4 * 32 * (6 * 4096 + 11008), "bf16"),
    (lambda: said(quant_method="gptq", bits=8, group_size=-1), LINEAR + 3 * ROWS + 4 * 32 * (6 * 4096 + 11008), "bf16"),
    (lambda: said(quant_method="auto-round", bits=4, group_size=128, sym=True, data_type="int", packing_format="auto_round:auto_gptq",
                  extra_config={"lm_head": {"bits": 16, "data_type": "float"}}), LINEAR * (4 + 20 / 128) / 8, "bf16"),
    (lambda: said(quant_method="bitsandbytes", load_in_8bit=True), LINEAR + 4 * ROWS, "int8"),
    (lambda: said(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_compute_dtype="bfloat16"), LINEAR * 4.5 / 8, "bf16"),
    (lambda: said(quant_method="bitsandbytes", load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
     LINEAR * (4 + 8 / 64 + 32 / 64 / 256) / 8, "fp32"),
    (lambda: said(quant_method="fbgemm_fp8", activation_scale_ub=1200.0), LINEAR + 4 * ROWS, "fp8"),
    (lambda: said(quant_method="fp8", weight_block_size=[128, 128]), LINEAR * (1 + 4 / 128**2), "fp8"),
    (lambda: said(quant_method="fp8", weight_block_size=[64, 32]), LINEAR * (1 + 4 / 64 / 32), "fp8"),
    (lambda: said(quant_method="fp8", weight_block_size=None), LINEAR, "fp8"),
    (lambda: compressed(group()), LINEAR * (4 + 16 / 128) / 8, "bf16"),
    (lambda: compressed(group(symmetric=False)), LINEAR * (4 + 20 / 128) / 8, "bf16"),
    (lambda: compressed(group(8, "float", "channel", None, FLOAT8)), LINEAR + 2 * ROWS, "fp8"),
    (lambda: compressed(group(8, "int", "channel", None, INT8)), LINEAR + 2 * ROWS, "int8"),
    (lambda: compressed(group(8, "float", "tensor", None, FLOAT8)), LINEAR, "fp8"),
    (lambda: compressed(group(8, "float", "block", None, FLOAT8, block_structure=[128, 128])), LINEAR * (1 + 2 / 128**2), "fp8"),
    (lambda: compressed(group(4, "float", "tensor_group", 16, FLOAT4)), LINEAR * 4.5 / 8, "fp4"),
    (lambda: compressed(group(4, "float", "tensor_group", 16)), LINEAR * 4.5 / 8, "bf16"),
    (lambda: compressed(group(4, "float", "group", 32)), LINEAR * 4.25 / 8, "bf16"),
    (lambda: said(quant_method="modelopt", quant_algo="NVFP4", ignore=["lm_head"]), LINEAR * 4.5 / 8, "fp4"),
    (lambda: said(quant_method="modelopt", quant_algo="FP8", exclude_modules=["lm_head"]), LINEAR, "fp8"),
])  # fmt: skip
def test_methods_of_quantisation(model, packed, computes):
    """Llama-2-7B: dense layers as the method stores them, embedding, head and norms in bf16."""
    found = model()
    assert found.notes == () and found.weight_bytes() == packed + 2 * (ENDS + NORMS)
    assert found.formats.arithmetic() == [computes]
    assert found.decode(context=1).bytes == packed + ENDS + 2 * NORMS + 2 * 4096 + found.kv_bytes(context=1)


def test_the_head_is_packed_where_the_file_says_so():
    assert (
        compressed(group(8, "float", "tensor", None, FLOAT8), ignore=()).weight_bytes()
        == LINEAR + ENDS // 2 + ENDS + 2 * NORMS
    )
    with_head, without = (said(quant_method="gptq", bits=4, group_size=128, lm_head=head) for head in (True, False))
    assert with_head.formats.head.name == "gptq" and without.formats.head == "bf16"


def test_layers_that_are_left_out():
    """One layer's attention, by each method's way of naming it; and all last matrices of the MLPs."""
    attention, down = 4 * 4096**2, 32 * 4096 * 11008
    packed = {"quant_method": "modelopt", "quant_algo": "FP8"}
    for model in (
        said(**packed, exclude_modules=["lm_head", "model.layers.3.self_attn*"]),
        said(
            quant_method="fp8", weight_block_size=None, modules_to_not_convert=["lm_head", "model.layers.3.self_attn"]
        ),
        compressed(group(8, "float", "tensor", None), ignore=["lm_head", "re:model\\.layers\\.3\\.self_attn\\..*"]),
        compressed(
            group(8, "float", "tensor", None),
            ignore=["lm_head", *(f"model.layers.3.self_attn.{x}_proj" for x in "qkvo")],
        ),
    ):
        assert model.notes == () and model.weight_bytes() == LINEAR + attention + 2 * (ENDS + NORMS)
        assert model.decode(context=1).bytes == LINEAR + attention + ENDS + 2 * NORMS + 2 * 4096 + model.kv_bytes(
            context=1
        )
        assert "some layers otherwise" in str(model.formats)
    model = compressed(group(8, "float", "tensor", None), ignore=["lm_head", "re:.*down_proj"])
    assert model.weight_bytes() == LINEAR + down + 2 * (ENDS + NORMS)


@pytest.mark.parametrize(
    ("entry", "layers"),
    [
        ("re:.*self_attn.*", range(32)),
        ("re:model.layers...self_attn.*", range(10)),  # a point is one digit
        (r"re:model\.layers\.(?:2|30)\.self_attn.*", (2, 30)),  # names no layer in the usual way
        (r"re:model\.layers\.[3-5].?\.self_attn.*", (3, 4, 5, 30, 31)),
        (r"re:model\.layers\.\d\d\.self_attn.*", range(10, 32)),
        (r"re:model\.layers\.(?P<digit>.)(?P=digit)\.self_attn.*", (11, 22)),
        (r"re:model\.layers\.\N{DIGIT TWO}\.self_attn.*", (2,)),
    ],
)
def test_entries_that_tell_layers_apart(entry, layers):
    names = [f"model.layers.{layer}.self_attn.q_proj" for layer in range(32)]
    assert [layer for layer, name in enumerate(names) if by_name(entry, name)] == list(layers)
    model = compressed(group(8, "float", "tensor", None), ignore=["lm_head", entry])
    assert model.weight_bytes() == LINEAR + len(layers) * 4 * 4096**2 + 2 * (ENDS + NORMS) and model.notes == ()


def test_groups_have_formats_of_their_own():
    attention = 32 * 4 * 4096**2
    model = compressed(
        group(targets=["re:.*mlp.*"]), group(8, "float", "tensor", None, FLOAT8, targets=["re:.*self_attn.*"])
    )
    assert model.weight_bytes() == (LINEAR - attention) * (4 + 16 / 128) / 8 + attention + 2 * (ENDS + NORMS)
    mixed = {
        f"model.layers.{i}.mlp.{x}_proj": {"quant_algo": "NVFP4"} for i in range(32) for x in ("gate", "up", "down")
    }
    model = said(quant_method="modelopt", quant_algo="MIXED_PRECISION", quantized_layers=mixed)
    assert model.weight_bytes() == (LINEAR - attention) * 4.5 / 8 + 2 * (attention + ENDS + NORMS)


def test_experts_and_routers_by_name():
    moe = {"model_type": "qwen3_moe", **ODD, **MOE, "head_dim": 50, "hidden_size": 256}
    fp8 = group(8, "float", "tensor", None, FLOAT8)
    routers, shared = 4 * 4 * 256, {"quant_method": "compressed-tensors", "config_groups": {"group_0": fp8}}
    with_routers, without = (
        fk.from_hf({**moe, "quantization_config": {**shared, "ignore": ignore}})
        for ignore in (["lm_head"], ["lm_head", "re:.*mlp.gate$"])
    )
    assert without.weight_bytes() - with_routers.weight_bytes() == routers
    experts = 4 * 4 * 3 * 256 * 130
    no_experts = fk.from_hf({**moe, "quantization_config": {**shared, "ignore": ["lm_head", "re:.*mlp.experts.*"]}})
    assert no_experts.weight_bytes() - with_routers.weight_bytes() == experts
    halves = fk.from_hf({**moe, "quantization_config": {**shared, "ignore": ["lm_head", "re:.*down_proj"]}})
    assert "some matrices of its experts" in halves.formats.unread
    assert halves.formats.unread in halves.notes[-1]


def test_the_absorbed_matrices_of_latent_attention_are_those_of_the_checkpoint():
    config = {"model_type": "deepseek_v3", **ODD, **LATENT}
    left = [f"model.layers.{i}.self_attn.kv_b_proj" for i in range(4)]
    model = fk.from_hf(
        {
            **config,
            "quantization_config": {"quant_method": "fp8", "weight_block_size": None, "modules_to_not_convert": left},
        }
    )
    plain = fk.from_hf({**config, "quantization_config": {"quant_method": "fp8", "weight_block_size": None}})
    behind = 4 * 300 * 4 * (24 + 20)
    assert (
        model.weight_bytes() - plain.weight_bytes()
        == behind
        == model.decode(context=1).bytes - plain.decode(context=1).bytes
    )

    rows = fk.from_hf({**config, "quantization_config": {"quant_method": "fbgemm_fp8"}})  # an fp32 scale a row
    assert rows.decode(context=1, batch=2).bytes == rows.weight_bytes() - 2 * (96 - 2) * 200 + rows.kv_bytes(
        context=1, batch=2
    )


@pytest.mark.parametrize(("quantization", "why"), [
    ({"quant_method": "aqlm"}, "method 'aqlm' is not read"), ({"quant_method": "hqq", "nbits": 4}, "method 'hqq' is not read"),
    ({"quant_method": "quark"}, "'quark' is not read"), ({"quant_method": "torchao", "quant_type": "int4_weight_only"}, "'torchao' is not read"),
    ({"quant_method": "eetq", "weights": "int8"}, "'eetq' is not read"), ({"quant_method": "bitnet"}, "'bitnet' is not read"),
    ({"quant_method": "auto-round", "bits": 4, "extra_config": {"model.layers.0.mlp.up_proj": {"bits": 8}}}, "extra_config"),
    ({"quant_method": "auto-round", "bits": 4, "data_type": "mx_fp"}, "data_type='mx_fp'"), ({"quant_method": "auto-round"}, "bits=None"),
    ({"quant_method": "auto-round", "bits": 4, "packing_format": "auto_round:llm_compressor"}, "packing_format"),
    ({"quant_method": "auto-round", "bits": 4, "act_bits": 8}, "act_bits=8"),
    ({}, "method None is not read"), ("fp8", "quantization_config='fp8' is not read"), ([], r"quantization_config=\[\] is not read"),
    ({"quant_method": "compressed-tensors"}, "no config_groups"), ({"quant_method": "gptq"}, "bits=None"),
    ({"quant_method": "gptq", "bits": "four"}, "bits='four'"), ({"quant_method": "gptq", "bits": 4, "dynamic": {"-:.*": {}}}, "dynamic"),
    ({"quant_method": "awq", "bits": 4, "group_size": 0}, "group_size=0"), ({"quant_method": "bitsandbytes"}, "neither load_in_4bit"),
    ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_quant_type": "nf3"}, "nf3"),
    ({"quant_method": "modelopt", "quant_algo": "W4A8_AWQ"}, "W4A8_AWQ"), ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "without quantized_layers"),
    ({"quant_method": "fp8", "weight_block_size": [0, 1]}, "weight_block_size"), ({"quant_method": "fp8", "modules_to_not_convert": "lm_head"}, "modules_to_not_convert"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": 1}}, "config_groups: a=1"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": group(strategy="token")}}, "strategy='token'"),
    ({"quant_method": "compressed-tensors", "config_groups": {"a": group()}, "sparsity_config": {"format": "sparse-24-bitmask"}}, "sparse-24"),
    ({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_quant_algo": "FP3"}, "kv_cache_quant_algo='FP3'"),
    ({"quant_method": "compressed-tensors", "format": "dense", "config_groups": {"a": group()}}, "format='dense'.*not compressed"),
    ({"quant_method": "compressed-tensors", "quantization_status": "frozen", "config_groups": {"a": group()}}, "quantization_status='frozen'"),
    ({"quant_method": "gptq", "bits": 4, "modules_in_block_to_quantize": 3}, "modules_in_block_to_quantize=3"),
])  # fmt: skip
def test_bytes_of_what_is_not_read_are_refused_unless_a_format_is_given(quantization, why):
    model = fk.from_hf({**LLAMA, "quantization_config": quantization})
    (note,) = model.notes
    assert re.search(why, note) and note.endswith("bytes of weights need weights=")
    for asked in (
        model.weight_bytes,
        lambda: model.decode(context=1),
        lambda: model.prefill(prompt=1),
        lambda: fk.serving.decode(model, "h100-sxm", context=1),
        lambda: fk.serving.largest_batch(model, "h100-sxm", context=1),
    ):
        with pytest.raises(ValueError, match=f"{why}.*how its weights are stored is not known; say it: weights="):
            asked()
    plain = fk.from_hf(LLAMA)
    assert model.params == plain.params and model.forward(seq=8) == plain.forward(seq=8)
    assert model.weight_bytes("bf16") == 2 * model.params
    for given in ("bf16", "nf4", {"rest": "int8"}):
        assert model.weight_bytes(given) == plain.weight_bytes(given)
        assert model.decode(context=8, weights=given).bytes == plain.decode(context=8, weights=given).bytes
    assert model.train_memory(seq=8).total == plain.train_memory(seq=8).total and "not known" in repr(model)


def test_gptq_of_some_modules_leaves_the_others():
    """Lists of modules that are packed together; what none of them names stays in bf16. Attention alone and MLPs alone save together what both save."""
    gptq = {"quant_method": "gptq", "bits": 4, "group_size": 128}
    attention = [["self_attn.k_proj", "self_attn.v_proj", "self_attn.q_proj"], ["self_attn.o_proj"]]
    mlps = [["mlp.gate_proj", "mlp.up_proj"], ["mlp.down_proj"]]

    def saved(*lists):
        said = {"modules_in_block_to_quantize": list(lists)} if lists else {}
        found = fk.from_hf({**LLAMA, "quantization_config": gptq | said})
        assert not found.notes
        return 2 * found.params - found.weight_bytes()

    assert saved(*attention, *mlps) == saved() == saved(*attention) + saved(*mlps)
    assert 0 < saved(*attention) < saved(*mlps)


def test_routers_that_are_no_module_stay_as_they_are():
    """Those of DeepSeek and Kimi are bare matrices: a quantiser of Linear modules passes them over without being told."""
    config = {"model_type": "deepseek_v3", **ODD, **LATENT, "n_routed_experts": 4, "num_experts_per_tok": 2}
    fp8 = {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": group(8, "float", "tensor", None, FLOAT8)},
    }
    said, unsaid = (
        fk.from_hf({**config, "quantization_config": {**fp8, "ignore": ["lm_head", *more]}})
        for more in (["re:.*mlp.gate$"], [])
    )
    assert (
        said.formats.of("router") == unsaid.formats.of("router") == "bf16"
        and said.weight_bytes() == unsaid.weight_bytes()
    )


def test_kimi_k2_5_has_as_many_bytes_as_its_files():
    """moonshotai/Kimi-K2.5 holds 595.1 GB, 471 million numbers of them in bf16 for pictures."""
    model = fk.load("kimi-k2.5")
    assert model.formats.of("router") == "bf16"
    assert round((model.weight_bytes() + 2 * model.pictures.params) / 1e9, 1) == 595.1


def test_what_is_taken_for_missing_lists_is_a_note():
    model = said(quant_method="fp8", activation_scheme="dynamic")
    assert model.notes == ("weight_block_size is missing: [128, 128], as transformers takes it",)
    assert model.weight_bytes() == LINEAR * (1 + 4 / 128**2) + 2 * (ENDS + NORMS)
    model = said(quant_method="modelopt", quant_algo="NVFP4")
    assert "names no modules that stay as they are" in model.notes[
        0
    ] and model.weight_bytes() == LINEAR * 4.5 / 8 + 2 * (ENDS + NORMS)
    model = said(
        quant_method="awq", modules_to_not_convert=["visual", "model.layers.0.input_layernorm", "some.adapter"]
    )
    assert len(model.notes) == 1 and "leaves out 'some.adapter'" in model.notes[0]


@pytest.mark.parametrize(
    ("dtype", "size"), [("float32", 4), ("float16", 2), ("bfloat16", 2), ("torch.float16", 2), (None, 2)]
)
@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_the_dtype_of_a_file(key, dtype, size):
    model = fk.from_hf({**LLAMA, key: dtype})
    assert model.notes == () and model.weight_bytes() == size * model.params
    assert model.decode(context=8).bytes == size * (model.params - 32000 * 4096 + 4096) + model.kv_bytes(context=8)
    assert model.decode(context=8, weights="bf16").bytes == fk.from_hf(LLAMA).decode(context=8).bytes


def test_a_dtype_that_is_none_is_a_note():
    for odd in ("auto", 16, "int8"):
        model = fk.from_hf({**LLAMA, "torch_dtype": odd})
        assert model.formats is None and "is not read: weights are counted as bf16" in model.notes[0]


def test_models_of_a_catalogue_are_in_the_format_of_their_files():
    assert fk.load("llama-3-8b").formats is None and fk.load("qwen3-30b-a3b").formats is None
    assert fk.load("gpt-oss-20b").weight_bytes() < fk.load("gpt-oss-20b").weight_bytes("bf16") / 3
    assert fk.load("deepseek-v3").weight_bytes() < 0.52 * fk.load("deepseek-v3").weight_bytes("bf16")


def test_parts_for_text_have_the_formats_of_the_whole_file():
    whole = {"model_type": "llava", "text_config": {**LLAMA, "torch_dtype": "float32"}, "torch_dtype": "float16"}
    assert fk.from_hf(whole).formats.only == "fp16"
    del whole["torch_dtype"]
    assert fk.from_hf(whole).formats.only == "fp32"
    whole["quantization_config"] = {
        "quant_method": "awq",
        "bits": 4,
        "group_size": 128,
        "modules_to_not_convert": ["vision_tower"],
    }
    assert fk.from_hf(whole).formats.mlp.name == "awq"


def test_the_cache_of_a_file():
    scheme = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False}
    for model in (
        compressed(group(), kv_cache_scheme=scheme), said(quant_method="modelopt", quant_algo="FP8", ignore=["lm_head"], kv_cache_scheme=scheme),
        said(quant_method="modelopt", quant_algo="FP8", ignore=["lm_head"], kv_cache_quant_algo="FP8"),
    ):  # fmt: skip
        rows = 2 * 32 * 4096
        assert model.decode(context=1001).bytes - model.decode(context=1).bytes == 1000 * rows
        assert (
            model.decode(context=1001, kv_cache="bf16").bytes - model.decode(context=1, kv_cache="bf16").bytes
            == 2000 * rows
        )
        assert decode(model, "h100-sxm", context=1000).memory == model.weight_bytes() + 1000 * rows
    assert (
        fk.load("llama-3-8b").kv_bytes(context=64, dtype="nvfp4")
        == fk.load("llama-3-8b").kv_bytes(context=64) * 4.5 / 16
    )


def test_ways_to_name_modules():
    name = "model.layers.1.mlp.gate"
    assert (
        by_checkpoint("model.layers.*.mlp.gate", name)
        and by_checkpoint("mlp.gate", name)
        and not by_checkpoint("mlp.gat", name)
    )
    assert not by_checkpoint("(", name) and not by_checkpoint("model.layers.1", "model.layers.12.mlp.gate")
    assert by_name("re:.*gate$", name) and not by_name("mlp.gate", name) and not by_name("re:(", name)
    assert (
        by_wildcard("*gate", name) and by_wildcard("model.layers.1", name) and not by_wildcard("model.layers.12", name)
    )


# -- serving, training, showing ---------------------------------------------------------------------------


def test_serving_takes_what_the_file_says():
    """Qwen3-32B in fp8 on an H100, 4,096 tokens: 9.87 ms with everything in fp8; the file leaves the head in bf16."""
    qwen = {
        "model_type": "qwen3", "vocab_size": 151936, "hidden_size": 5120, "intermediate_size": 25600, "num_hidden_layers": 64, "num_attention_heads": 64,
        "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
    }  # fmt: skip
    plain = fk.from_hf(qwen)
    model = fk.from_hf({**qwen, **FP8})
    assert round(1e3 * decode(plain, "h100-sxm", context=4096).seconds, 1) == 19.4
    assert round(1e3 * decode(plain, "h100-sxm", context=4096, weights="fp8").seconds, 2) == 9.87
    head = 151936 * 5120
    step = decode(model, "h100-sxm", context=4096)
    assert round(1e3 * step.seconds, 2) == 10.10 == round(9.868 + 1e3 * head * 1.0005 / 3.35e12, 2)
    assert step.memory == model.weight_bytes() + model.kv_bytes(context=4096)
    assert round(model.weight_bytes() / 1e9, 1) == 34.3  # Qwen/Qwen3-32B-FP8 on the Hub
    assert step.roofline.compute_seconds == pytest.approx(step.cost.flops / fk.device("h100-sxm").peak("fp8"))
    assert prefill(model, "h100-sxm", prompt=8192).seconds < 0.51 * prefill(plain, "h100-sxm", prompt=8192).seconds
    room = 81_559 * 2**20 - model.weight_bytes()  # what nvidia-smi reports
    assert largest_batch(model, "h100-sxm", context=4096) == room // model.kv_bytes(context=4096)
    assert intensity_limit(model, context=4096) == pytest.approx(intensity_limit(plain, context=4096), rel=1e-3)
    assert batch_at_ridge(model, "h100-sxm", context=64, compute="bf16") < batch_at_ridge(plain, "h100-sxm", context=64)


def test_the_peak_that_a_format_meets():
    llama = fk.load("llama-3-8b")

    def peak(device, **how):
        step = prefill(llama, device, prompt=8192, **how)
        return step.cost.flops / step.roofline.compute_seconds

    for stored_only in ("q4_k_m", "nf4", "awq", "mxfp4", GPT_OSS):
        assert peak("h100-sxm", weights=stored_only) == pytest.approx(fk.device("h100-sxm").peak("bf16"))
    assert peak("h100-sxm", weights="fp8_block") == pytest.approx(fk.device("h100-sxm").peak("fp8"))
    assert peak("b200", weights="nvfp4") == pytest.approx(fk.device("b200").peak("fp4"))
    assert peak("h100-sxm", weights={"mlp": "fp8", "rest": "bf16"}) == pytest.approx(fk.device("h100-sxm").peak("fp8"))
    with pytest.raises(ValueError, match="no peak for fp4.*stored in nvfp4, say how it computes, e.g. compute='bf16'"):
        decode(llama, "h100-sxm", context=8, weights="nvfp4")
    with pytest.raises(ValueError, match="no peak for fp8.*stored in fp8_block .*compute='bf16'"):
        decode(fk.from_hf({**LLAMA, **FP8}), "a100-sxm-80gb", context=8)


def test_the_base_of_qlora():
    llama, adapters = fk.load("llama-3-8b"), 2 * fk.load("llama-3-8b").trained_params(fk.LoRA(rank=16))
    for base in ("nf4", {"embedding": "bf16", "head": "bf16", "norms": "bf16", "rest": "nf4"}, Formats(rest="nf4")):
        memory = llama.train_memory(seq=512, trained=fk.LoRA(rank=16, base=base))
        assert round((memory.weights - adapters) / 1e9, 2) == 5.70
    assert llama.train_memory(seq=512, trained=fk.LoRA(rank=16, base="int4")).weights - adapters == llama.params // 2
    assert hash(fk.LoRA(rank=16, base={"rest": "nf4"})) == hash(fk.LoRA(rank=16, base=Formats(rest="nf4")))
    for bad in ("nf5", "q4_k_m"):
        with pytest.raises(ValueError, match=f"base='{bad}'"):
            fk.LoRA(rank=16, base=bad)


def test_four_readings_of_blocks():
    """Sizes as a sweep, in print and behind a slider."""

    def bytes_of(d_model):
        model = transformer(d_model=d_model, vocab=1000, layers=3, heads=8, head_dim=32, kv_heads=2, d_ff=4 * d_model)
        return model.decode(context=100, batch=2, weights={"head": "fp32", "rest": "q6_k"}).bytes + model.weight_bytes(
            "fp8_block"
        )

    widths = numpy.array([256, 300, 1024])
    exact = [bytes_of(int(width)) for width in widths]
    assert all(type(each) is int for each in exact) and bytes_of(widths).tolist() == exact
    symbol, parameter = sympy.Symbol("n", integer=True, positive=True), altair.param(name="n", value=4)
    assert [int(bytes_of(symbol).subs(symbol, int(n))) for n in widths] == exact
    expression = fk.arithmetic.vega(bytes_of(parameter))
    assert [vega.evaluate(expression, {"n": int(n)}) for n in widths] == pytest.approx(exact, rel=1e-12)


def test_models_say_their_formats():
    model = said(quant_method="awq", bits=4, group_size=64)
    assert "weights awq_g64 (attention, mlp), bf16 (rest)" in repr(model) and "awq_g64" in model._repr_html_()
    assert str(Formats(rest="q8_0")) == "q8_0" and repr(Formats(**GPT_OSS)) == "Formats: mxfp4 (experts), bf16 (rest)"
    assert model == said(quant_method="awq", bits=4, group_size=64) != said(quant_method="awq", bits=4, group_size=128)


class Width(NamedTuple):
    bits: Any


def test_formats_of_several_controls_stay_apart():
    # == of two Altair expressions is an expression, which is true to Python
    widths = {role: altair.param(name=f"of_{role}", value=8) for role in ("experts", "attention", "mlp", "rest")}
    model = fk.load("deepseek-v3")  # with dense layers, too
    by_role = {role: Width(width) for role, width in widths.items()}
    for said in map(arithmetic.vega, (model.weight_bytes(by_role), model.decode(context=1, weights=by_role).bytes)):
        assert all(f"of_{role}" in said for role in widths)
