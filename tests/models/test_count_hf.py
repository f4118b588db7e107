"""count_hf: transformers' own class on meta. Where a closed form is there it must give the same; else published sizes and sums by hand."""

import json
import sys

import pytest

import flopkit as fk
from flopkit.cli import main
from flopkit.models import hf_config
from flopkit.models.architectures import ARCHITECTURES
from flopkit.peers.of_transformers import built

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

SMALL = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip
KNOWN = {
    "llama-3.2-1b": {"num_hidden_layers": 2}, "gpt2": {"n_layer": 2}, "bert-base": {"num_hidden_layers": 2}, "t5-base": {"num_layers": 2},
    "vit-b-16": {"num_hidden_layers": 2, "num_labels": 1000}, "mixtral-8x7b": {"num_hidden_layers": 1},
}  # fmt: skip


def config(kind, **changed):
    """The defaults of a type with other values, as a file has them."""
    return transformers.CONFIG_MAPPING[kind](**changed).to_dict()


@pytest.mark.parametrize("name", KNOWN)
def test_the_closed_form_says_the_same(name):
    said = hf_config(name) | KNOWN[name]
    model, sizes = fk.from_hf(said), {} if name == "vit-b-16" else {"seq": 48}
    report = fk.count_hf(said, batch=3, **sizes)
    assert report.flops == model.forward(batch=3, **sizes).under("TORCH").flops and report.uncounted == []
    if name in ("llama-3.2-1b", "gpt2", "mixtral-8x7b"):  # the mask that they run with is causal
        assert report.under("EXACT").flops == model.forward(batch=3, **sizes).flops
    assert built(said).params == model.params
    assert any(f"on meta in bf16: {model.params:,} parameters" in note for note in report.notes)


@pytest.mark.parametrize("name", ["llama-3.2-1b", "gpt2", "bert-base", "t5-base"])
def test_a_training_step(name):
    said = hf_config(name) | KNOWN[name]
    report, again = (fk.count_hf(said, seq=48, batch=3, train=train) for train in (True, False))
    assert report.model_flops == 3 * again.flops == 3 * again.forward.flops and again.backward.flops == 0
    assert report.forward.flops == again.flops and "backward of the sum of all results, without dropout" in report.notes


def test_lfm2_by_hand():
    """No closed form: layers of gated short convolutions, 3·d·d in and d·d out, and an MLP; one of attention."""
    said = config(
        "lfm2", **SMALL, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False, conv_L_cache=3
    )
    report, tokens = fk.count_hf(said, seq=16, batch=2), 32
    short = 4 * 32 * 32 + 3 * 32
    attention, mlp, head = 32 * (32 + 2 * 16) + 32 * 32, 3 * 32 * 64, 32 * 96
    scores = 2 * 2 * 2 * 16 * 16 * 32
    padded = 2 * 2 * 2 * 3 * 32  # the convolution runs on over two positions of padding in each text
    assert report.flops == 2 * tokens * (short + attention + 2 * mlp + head) + scores + padded
    assert report.under("EXACT").flops == report.flops - scores + 2 * 2 * 2 * 32 * 16 * 17 // 2


@pytest.mark.parametrize(
    "said, sizes, params, note",
    [
        # the published numbers: clip-vit-base-patch32 151.3 M (its model card), whisper-tiny 39 M (Radford et al. 2022, table 1, head and
        # embedding once 37.8 M), wav2vec 2.0 base 95 M (Baevski et al. 2020, section 4.2), ResNet-50 25.6 M (torchvision), OPT-125M
        (lambda: config("clip"), {"seq": 77}, 151_277_313, None),
        (lambda: config("whisper", vocab_size=51865), {"seq": 32}, 37_760_640, "the encoder hears 3,000 frames"),
        (lambda: config("wav2vec2"), {"seq": 16000}, 94_371_712, "seq counts samples of sound"),
        (lambda: config("resnet", num_labels=1000) | {"architectures": ["ResNetForImageClassification"]}, {}, 25_557_032, "does not say the size of an image: 224 × 224"),
        (lambda: config("opt"), {"seq": 32}, 125_239_296, None),
    ],
    ids=["clip", "whisper", "wav2vec2", "resnet", "opt"],
)  # fmt: skip
def test_kinds_of_inputs(said, sizes, params, note):
    report, made = fk.count_hf(said(), **sizes), built(said())
    assert made.params == params and report.flops > 0 and report.uncounted == []
    assert note is None or any(note in each for each in report.notes)
    twice = fk.count_hf(said(), batch=2, **sizes)
    both = 2 * 512 * (2 * 2 - 2) * (made.model.config.model_type == "clip")  # each text is compared with each picture
    assert twice.flops == 2 * report.flops + both


def test_resnet_50_is_torchvisions():
    said = config("resnet", num_labels=1000) | {"architectures": ["ResNetForImageClassification"]}
    assert fk.count_hf(said).flops == fk.load("resnet50").forward(batch=1).under("TORCH").flops


def test_of_text_and_pictures_text_alone_runs():
    text = SMALL | {"rope_scaling": {"type": "mrope", "mrope_section": [1, 1, 2], "rope_type": "default"}}
    vision = {"depth": 1, "embed_dim": 16, "hidden_size": 32, "num_heads": 2}
    said = config("qwen2_vl", text_config=text, vision_config=vision)
    report = fk.count_hf(said, seq=16)
    assert "text alone runs: vision_config is in the parameters, and not in the FLOPs" in report.notes
    plain = fk.from_hf({"model_type": "qwen2", "tie_word_embeddings": said["tie_word_embeddings"]} | SMALL)
    assert report.flops == plain.forward(seq=16).under("TORCH").flops and built(said).params > plain.params


def test_experts_run_as_grouped_products():
    said = config("olmoe", **SMALL, num_experts=6, num_experts_per_tok=2)
    layer = 32 * (2 * 32 + 2 * 16) + 32 * 6 + 2 * 3 * 32 * 64
    assert fk.count_hf(said, seq=16).flops == 2 * 16 * (2 * layer + 32 * 96) + 2 * 2 * 2 * 16 * 16 * 32
    assert not any("every expert" in note for note in fk.count_hf(said, seq=16).notes)


def test_a_class_that_runs_every_expert_says_so():
    said = config(
        "llama4_text", **SMALL, intermediate_size_mlp=64, head_dim=8, num_local_experts=4, num_experts_per_tok=1
    )
    assert (
        "this class runs every expert on every token: a program that chooses experts does less"
        in fk.count_hf(said, seq=16).notes
    )


def test_the_class_is_the_one_that_the_file_names():
    said = hf_config("llama-3.2-1b") | {"num_hidden_layers": 2}
    bare = fk.count_hf(said | {"architectures": ["LlamaModel"]}, seq=8).flops
    judge = fk.count_hf(said | {"architectures": ["LlamaForSequenceClassification"], "num_labels": 1}, seq=8).flops
    assert fk.count_hf(said, seq=8).flops - bare == 2 * 8 * 2048 * 128256 and judge - bare == 2 * 8 * 2048
    old = {k: v for k, v in hf_config("t5-base").items() if k != "architectures"} | {
        "architectures": ["T5WithLMHeadModel"],
        "num_layers": 2,
    }
    report = fk.count_hf(old, seq=8)  # a name of transformers 2
    assert any("has no such class: T5ForConditionalGeneration is counted" in note for note in report.notes)
    masked = fk.count_hf({k: v for k, v in config("distilbert").items() if k != "architectures"}, seq=8)
    assert "architectures is missing: DistilBertForMaskedLM is counted" in masked.notes
    pair = fk.count_hf(
        {k: v for k, v in config("bart", encoder_layers=1, decoder_layers=1).items() if k != "architectures"}, seq=8
    )
    assert "architectures is missing: BartForConditionalGeneration is counted" in pair.notes


def test_what_a_file_says_besides_is_said():
    said = hf_config("llama-3.2-1b") | {"num_hidden_layers": 2, "architectures": ["LlamaForCausalLM"]}
    report = fk.count_hf(
        said | {"quantization_config": {"quant_method": "fp8"}, "auto_map": {"AutoModel": "x.Y"}}, seq=8
    )
    assert report.flops == fk.count_hf(said, seq=8).flops
    assert "quantization_config: counted as if its weights were bf16" in report.notes
    assert any(
        "names code of its own (auto_map), which is not run; LlamaForCausalLM of transformers" in note
        for note in report.notes
    )


LLAMA = hf_config("llama-3.2-1b") | {"num_hidden_layers": 1}


@pytest.mark.parametrize(
    "said, sizes, error, message",
    [
        (LLAMA | {"model_type": "qwen2", "architectures": ["LlamaForCausalLM"]}, {"seq": 8}, ValueError, r"the file contradicts itself: model_type='qwen2'.*takes 'llama'"),
        (LLAMA | {"model_type": "own", "architectures": ["OwnModel"], "auto_map": {"AutoModel": "own.Own"}}, {"seq": 8}, ValueError, r"only code of its repository \(auto_map\) builds this model, and flopkit runs none"),
        (LLAMA | {"model_type": "own"}, {"seq": 8}, ValueError, r"model_type='own' is not known to transformers 5"),
        (LLAMA | {"architectures": ["LlamaForRobots"]}, {"seq": 8}, ValueError, r"architectures=\['LlamaForRobots'\]: transformers .* has no such class"),
        (LLAMA | {"architectures": ["LlamaTokenizer"]}, {"seq": 8}, ValueError, r"is no model of torch"),
        ({k: v for k, v in LLAMA.items() if k != "model_type"}, {"seq": 8}, ValueError, r"neither a 'model_type' nor 'architectures'"),
        (LLAMA | {"hidden_size": "x"}, {"seq": 8}, ValueError, r"does not read this configuration"),
        (LLAMA | {"num_attention_heads": 3, "num_key_value_heads": 2, "head_dim": None}, {"seq": 8}, ValueError, r"does not read|cannot be built|does not run"),
        (LLAMA, {}, TypeError, r"seq= is missing, the tokens of a sequence for LlamaForCausalLM"),
        (LLAMA, {"seq": 0}, ValueError, r"seq=0"),
        (LLAMA, {"seq": 8, "batch": -1}, ValueError, r"batch=-1"),
        (LLAMA, {"seq": 8, "train": "yes"}, TypeError, r"train='yes'"),
        (hf_config("bert-base"), {"seq": 513}, ValueError, r"seq=513: BertForMaskedLM has learned positions for 512 tokens"),
        (hf_config("gpt2"), {"seq": 1025}, ValueError, r"seq=1025: GPT2LMHeadModel has learned positions for 1,024 tokens"),
        (lambda: config("opt"), {"seq": 2049}, ValueError, r"seq=2049: OPTForCausalLM has learned positions for 2,048 tokens"),
        (lambda: config("roberta", max_position_embeddings=514), {"seq": 513}, ValueError, r"seq=513: \w+ has learned positions for 512 tokens"),
        ({"model_type": "bloom", "num_layers": 24, "n_head": 16, "hidden_dim": 1024, "vocab_size": 96}, {"seq": 8}, ValueError, "hidden_dim=1024 stands here, which is no key of a bloom for transformers, and it takes hidden_size=64: call it hidden_size"),
        ({"model_type": "step3p7", "hidden_size": 4032, "num_hidden_layers": 45, "num_attention_heads": 64}, {"seq": 8}, ValueError, "hidden_size=4032 stands here.*call it hidden_size, in its text_config"),
        (lambda: config("blip"), {"seq": 8}, ValueError, r"BlipFor\w+ of transformers .* does not run without values.*: fk.count\(model"),
        (lambda: config("grounding-dino"), {"seq": 8}, ValueError, r"GroundingDino\w+ of transformers .* does not run without values, with the inputs that flopkit makes"),
        ({"weight_map": {}}, {"seq": 8}, ValueError, r"this is the index of weights"),
    ],
)  # fmt: skip
def test_what_cannot_be_counted_is_said(said, sizes, error, message):
    with pytest.raises(error, match=message):
        fk.count_hf(said() if callable(said) else said, **sizes)


def test_what_meta_refuses_names_model_class_and_operator(tmp_path):
    """A loop over the experts that were chosen: how many there are stands in values."""
    said = config(
        "longcat_flash", vocab_size=96, hidden_size=32, ffn_hidden_size=64, num_layers=1, num_hidden_layers=2, num_attention_heads=2,
        q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8, head_dim=8, qk_head_dim=16,
        expert_ffn_hidden_size=16, n_routed_experts=4, zero_expert_num=2, moe_topk=2, num_key_value_heads=2,
    )  # fmt: skip
    (tmp_path / "config.json").write_text(json.dumps(said))
    with pytest.raises(
        ValueError,
        match=r"config.json: LongcatFlashForCausalLM of transformers .* does not run without values.*nonzero",
    ):
        fk.count_hf(tmp_path, seq=8)


def test_nothing_is_left_behind():
    from transformers.utils import logging

    hooks = torch.nn.modules.module._global_module_registration_hooks
    before = (
        torch.get_default_dtype(),
        torch.get_default_device(),
        logging.get_verbosity(),
        dict(hooks),
        torch.is_grad_enabled(),
    )
    fk.count_hf(LLAMA, seq=8, train=True)
    with pytest.raises(ValueError, match="does not run"):
        fk.count_hf(config("grounding-dino"), seq=8)
    assert before == (
        torch.get_default_dtype(),
        torch.get_default_device(),
        logging.get_verbosity(),
        dict(hooks),
        torch.is_grad_enabled(),
    )
    assert fk.count(torch.nn.Linear(2, 3), torch.ones(1, 2)).flops == 12


@pytest.mark.parametrize("missing", ["torch", "transformers"])
def test_without_torch_or_transformers_the_way_out_is_named(monkeypatch, missing):
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=rf"{missing} is not installed: pip install torch transformers"):
        fk.count_hf(LLAMA, seq=8)


# -------------------------------------------------------------------------------------------------------- the command line


@pytest.fixture
def lfm2(tmp_path, monkeypatch):
    """The file of a type without a closed form: of one whose closed form is taken away."""
    monkeypatch.delitem(ARCHITECTURES, "lfm2")
    said = config("lfm2", **SMALL, layer_types=["conv", "full_attention"], block_auto_adjust_ff_dim=False)
    path = tmp_path / "small-lfm" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(said))
    return path


def printed(capsys, *argv):
    assert main(list(argv)) == 0
    return capsys.readouterr().out


def test_the_command_line_says_which_of_the_two_answered(capsys, lfm2):
    found = json.loads(printed(capsys, "count", str(lfm2), "--seq", "16", "--batch", "2", "--json"))
    made, report = built(lfm2), fk.count_hf(lfm2, seq=16, batch=2).under("EXACT")
    assert (found["FLOPs"], found["FLOPs_a_token"], found["parameters"]) == (
        report.flops,
        report.flops / 32,
        made.params,
    )
    assert found["weights_in_bf16"] == 2 * made.params and found["model"] == "small-lfm" and found["seq"] == 16
    assert found["answered_by"] == f"counted: {made.made_by}, for there is no closed form"
    text = printed(capsys, "count", str(lfm2), "--seq", "16")
    assert "small-lfm, forward: 1 × 16 tokens, convention EXACT; counted: Lfm2ForCausalLM of transformers" in text
    assert "convention EXACT; by a closed form" in printed(capsys, "count", "gpt2", "--seq", "16")
    found = json.loads(printed(capsys, "count", str(lfm2), "--seq", "16", "--train", "--convention", "TORCH", "--json"))
    assert found["model_FLOPs"] == 3 * fk.count_hf(lfm2, seq=16).flops
    assert (
        found["hardware_FLOPs"] - found["model_FLOPs"] == 2 * 16 * 16 * 32
    )  # scores that flash attention computes again


@pytest.mark.parametrize(
    "options, message",
    [
        (["--seq", "16", "--train", "--lora", "8"], "--lora needs a closed form: "), (["--seq", "16", "--device", "h200"], "--device needs a closed form"),
        ([], "--seq is missing"), (["--seq", "16", "--convention", "SIX_N"], "under that convention"),
    ],
)  # fmt: skip
def test_what_the_command_line_cannot_say_of_a_program(capsys, lfm2, options, message):
    assert main(["count", str(lfm2), *options]) == 2
    assert message in capsys.readouterr().err


def test_an_error_of_the_closed_form_is_not_hidden(capsys, tmp_path, monkeypatch):
    """For a type that it describes, transformers does not answer instead."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA | {"hidden_act": "tanhshrink"}))
    monkeypatch.setattr("flopkit.cli.count.built", lambda *_: pytest.fail("transformers was asked"))
    assert main(["count", str(path), "--seq", "8"]) == 2
    assert "tanhshrink" in capsys.readouterr().err


def test_without_transformers_the_command_line_names_the_type(capsys, lfm2, monkeypatch):
    monkeypatch.setattr("flopkit.cli.count.find_spec", lambda name: None)
    assert main(["count", str(lfm2), "--seq", "8"]) == 2
    assert "model_type='lfm2' is not described here; count it by transformers itself" in capsys.readouterr().err
