"""Each family that a config.json may name: parameters and products are those of the model in transformers, on meta, to the last one."""

import re

import pytest
import torch
from family_samples import merged
from family_samples.sizes import BATCH, DECODER, EXPERTS, SEQ

import flopkit as fk
from flopkit.models import architectures, families

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SMALL, CLASSES, BEYOND, HARMLESS = (merged(name) for name in ("SMALL", "CLASSES", "BEYOND", "HARMLESS"))
INPUTS, NOT_BY_LAYER, NOT_ON_META = merged("INPUTS"), merged("NOT_BY_LAYER"), merged("NOT_ON_META")
EAGER, DEVICES, CAST = merged("EAGER"), merged("DEVICES"), merged("CAST")
DOTS_1 = DECODER | EXPERTS | {
    "num_hidden_layers": 6, "head_dim": 16, "n_routed_experts": 8, "n_shared_experts": 2, "first_k_dense_replace": 2, "sliding_window": 8,
    "layer_types": [f"{kind}_attention" for kind in ("sliding", "full", "sliding", "sliding", "full", "sliding")],
}  # fmt: skip


# a type that transformers does not have is compared with what was published of it
FAMILIES = [kind for kind in families() if kind in transformers.CONFIG_MAPPING]
KINDS = sorted({*FAMILIES, *(kind for kind in architectures.SAME if kind in transformers.CONFIG_MAPPING)})
TASKS = {
    "none": "AutoModel", "sequence": "AutoModelForSequenceClassification", "token": "AutoModelForTokenClassification",
    "answer": "AutoModelForQuestionAnswering", "image": "AutoModelForImageClassification",
}  # fmt: skip


def small(kind):
    return SMALL[kind if kind in SMALL else architectures.SAME[kind]]


def built(kind, auto="", **sizes):
    """The configuration as transformers would save it with its model, and the model, on meta where it can run there."""
    config = transformers.AutoConfig.for_model(kind, **(sizes or small(kind)))
    asked = getattr(transformers, auto or CLASSES.get(kind, "AutoModelForCausalLM"))
    if not hasattr(asked, "_model_mapping"):  # a class by itself, of a part that no Auto class knows
        with torch.device(DEVICES.get(kind, "meta")):
            model = asked._from_config(config, dtype=torch.bfloat16)
        return config.to_dict() | {"architectures": [asked.__name__]}, model.eval()
    mapped = asked._model_mapping[type(config)]
    if isinstance(mapped, tuple):  # several classes for one task
        config.architectures = [mapped[0].__name__]
    with torch.device(DEVICES.get(kind, "meta")):
        model = getattr(transformers, auto or CLASSES.get(kind, "AutoModelForCausalLM")).from_config(
            config, dtype=torch.bfloat16, **({"attn_implementation": "eager"} if kind in EAGER else {})
        )
    model = model.to(torch.bfloat16) if kind in CAST else model
    return config.to_dict() | {"architectures": [type(model).__name__]}, model.eval()


def described(kind):
    """The small configuration of a type, as transformers would save it where it has the type."""
    return built(kind)[0] if kind in transformers.CONFIG_MAPPING else {"model_type": kind, **small(kind)}


def inputs(kind):
    with torch.device(DEVICES.get(kind, "meta")):
        ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
        return INPUTS[kind](ids) if kind in INPUTS else {"input_ids": ids}


def compare(kind, config, model, embedded=False):
    ours = fk.from_hf(config)
    given = inputs(kind)
    if embedded and kind not in INPUTS:  # transformers looks for padding among tokens, which on meta are none
        given = {
            "inputs_embeds": torch.zeros(
                BATCH, SEQ, ours.embedding_dim or ours.d_model, dtype=torch.bfloat16, device=model.device
            )
        }
    report = fk.count(lambda: model(**given))
    assert ours.params == sum(p.numel() for p in model.parameters())
    forward = ours.forward(batch=BATCH) if ours.patches is not None else ours.forward(seq=SEQ, batch=BATCH)
    assert forward.under("TORCH").flops == report.flops - beyond(kind, ours)


def beyond(kind, ours):
    return BEYOND[kind](ours) if kind in BEYOND else 0


def test_each_family_is_compared():
    assert set(FAMILIES) <= set(SMALL) <= {*families(), *architectures.SAME}


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_products_are_those_of_transformers(kind):
    compare(kind, *built(kind))


NAMES = {
    "none": "MODEL_MAPPING_NAMES", "sequence": "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES",
    "token": "MODEL_FOR_TOKEN_CLASSIFICATION_MAPPING_NAMES", "answer": "MODEL_FOR_QUESTION_ANSWERING_MAPPING_NAMES",
    "image": "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES",
}  # fmt: skip


def has_class(task, kind):
    return kind in getattr(transformers.models.auto.modeling_auto, NAMES[task])


@pytest.mark.parametrize("task, kind", [(task, kind) for task in TASKS for kind in KINDS if has_class(task, kind)])
def test_each_class_has_its_head(task, kind):
    """Where transformers has a class for the task, and takes the same inputs for it, so has flopkit, and refuses it otherwise."""
    mapping = getattr(transformers, TASKS[task])._model_mapping
    if type(transformers.AutoConfig.for_model(kind)) not in mapping:
        pytest.skip(f"transformers has no {TASKS[task]} of {kind}")
    config, model = built(
        kind,
        TASKS[task],
        **small(kind) | {"num_labels": 2} | ({"num_labels": 3, "pad_token_id": 0} if task == "sequence" else {}),
    )
    if task not in architectures.tasks(architectures.SAME.get(kind, kind)):
        with pytest.raises(
            ValueError, match=f"architectures: this class of {kind} is not described here; classes that end in"
        ):
            fk.from_hf(config)
        return
    if task in NOT_ON_META.get(kind, "").split():
        assert fk.from_hf(config).params == sum(p.numel() for p in model.parameters())
        return
    compare(kind, config, model, embedded=task == "sequence")


LABELLED = [
    ("bart", "AutoModelForQuestionAnswering"), ("mbart", "AutoModelForQuestionAnswering"), ("gptj", "AutoModelForQuestionAnswering"),
    ("opt", "AutoModelForQuestionAnswering"), ("bert", "AutoModelForPreTraining"), ("albert", "AutoModelForPreTraining"),
]  # fmt: skip


@pytest.mark.parametrize("kind, auto", LABELLED)
@pytest.mark.parametrize("labels", [{"num_labels": 5}, {}])
def test_heads_that_read_the_labels_and_those_that_do_not(kind, auto, labels):
    """Some heads have a width of their own, whatever id2label says; others follow it."""
    built_with, model = built(kind, auto, **small(kind) | labels)  # a head may have changed the labels in it
    file = transformers.AutoConfig.for_model(kind, **small(kind) | labels).to_dict()
    ours = fk.from_hf({**file, "architectures": built_with["architectures"]})
    assert ours.params == sum(p.numel() for p in model.parameters())


def test_how_many_labels_a_bart_has_where_its_file_names_none():
    _, model = built("bart", "AutoModelForSequenceClassification", **small("bart"))
    file = {"model_type": "bart", "architectures": ["BartForSequenceClassification"], **small("bart")}
    assert fk.from_hf(file).params == sum(p.numel() for p in model.parameters())


@pytest.mark.parametrize("head_dim", [4, 24])
def test_a_head_of_cohere2_is_as_wide_as_the_file_says(head_dim):
    compare("cohere2", *built("cohere2", **small("cohere2") | {"head_dim": head_dim}))


@pytest.mark.parametrize(
    "kind, changed, why",
    [
        ("bart", {"tie_word_embeddings": False}, "share a table in transformers 4 and have two beside it"),
        ("m2m_100", {"tie_word_embeddings": False}, "supports m2m_100 only tied"),
        ("t5", {"is_gated_act": True}, "is_gated_act=True beside feed_forward_proj='relu': they contradict each other"),
        ("umt5", {"is_gated_act": False}, "is_gated_act=False beside feed_forward_proj='gated-gelu'"),
        ("zamba2", {"tie_word_embeddings": False}, "only with tie_word_embeddings=True"),
        ("nemotron_h", {"tie_word_embeddings": True}, "only with tie_word_embeddings=False"),
        ("kimi_linear", {"tie_word_embeddings": True}, "only with tie_word_embeddings=False"),
    ],
)
def test_ties_that_change_with_the_code_are_refused(kind, changed, why):
    """transformers builds another model than flopkit's, or, of the last two, does not do what the file says."""
    config, model = built(kind, **small(kind) | changed)
    usual = fk.from_hf({**config, **dict.fromkeys(changed)}).params
    assert (usual == sum(p.numel() for p in model.parameters())) == (kind in ("nemotron_h", "kimi_linear"))
    with pytest.raises(ValueError, match=re.escape(why)):
        fk.from_hf(config)


@pytest.mark.parametrize("kind", sorted(set(FAMILIES) - {*BEYOND, *NOT_BY_LAYER}))
def test_layer_by_layer(kind):
    """Each layer of ours beside the one that stands in its place there, its mixer and its MLP apart."""
    config, model = built(kind)
    report = fk.count(lambda: model(**inputs(kind)))
    rows = {row["module"]: row["flops"] for row in report.by_module() if row["flops"]}
    ours = fk.from_hf(config)
    lists = [name for name, module in model.named_modules() if isinstance(module, torch.nn.ModuleList)]
    lists = [name for name in lists if not re.search(r"\.\d", name)]
    stacks = {lists[0]: ours} if ours.encoder is None else {lists[0]: ours.encoder, lists[-1]: ours}
    seq = SEQ if ours.patches is None else ours.patches.tokens
    for stack, whole in stacks.items():
        order = whole.order or (0,) * whole.layers
        assert len(order) == whole.layers
        tokens = whole.frames.tokens if whole.frames is not None else seq
        for place, which in enumerate(order):
            layer = whole.layer(which, seq=tokens, batch=BATCH).under("TORCH")
            assert layer.flops == rows[f"{stack}.{place}"], place
            names = [part.name for part in layer.parts]
            mixed = sum(part.flops for part in layer.parts[: names.index("attention_sum")])
            inside = {flops for name, flops in rows.items() if name.startswith(f"{stack}.{place}.")}
            assert mixed in inside, (place, mixed, inside)


@pytest.mark.parametrize("kind", ["qwen2_moe", "qwen3_moe"])
def test_windows_beside_experts(kind):
    config, model = built(
        kind, **SMALL[kind] | {"num_hidden_layers": 5, "mlp_only_layers": [1, 2], "use_sliding_window": True, "sliding_window": 8}
    )  # fmt: skip
    ours = fk.from_hf(config)
    assert ours.params == sum(p.numel() for p in model.parameters())
    for place, theirs in zip(ours.order, model.model.layers, strict=True):
        block = ours.blocks[place][0]
        assert (block.mixer.window or 0) == (getattr(theirs.self_attn, "sliding_window", None) or 0)
        assert hasattr(block.mlp, "top_k") == hasattr(theirs.mlp, "experts")


def test_dense_layers_and_experts_with_and_without_a_window():
    """dots.llm1, of which transformers has the layers, and `from_hf` no reader."""
    sizes = {
        "d_model": 32, "vocab": 96, "layers": 6, "d_ff": 80, "dense": 2,
        "attention": fk.models.Attention(heads=4, kv_heads=2, head_dim=16, qk_norm="head"),
        "experts": fk.models.Experts(experts=8, top_k=2, d_ff=24, shared_d_ff=48),
    }  # fmt: skip
    window = fk.models.WindowedLayers(8, layers=4, dense=1)
    ours = fk.models.transformer(**sizes, window=window, order=(0, 1, 2, 2, 3, 2))
    _, model = built("dots1", **DOTS_1)
    report = fk.count(lambda: model(**inputs("dots1")))
    assert ours.params == sum(p.numel() for p in model.parameters())
    assert ours.forward(seq=SEQ, batch=BATCH).under("TORCH").flops == report.flops
    rows = {row["module"]: row["flops"] for row in report.by_module()}
    for place, (which, theirs) in enumerate(zip(ours.order, model.model.layers, strict=True)):
        assert ours.blocks[which][0].mixer.window == theirs.self_attn.sliding_window
        assert ours.layer(which, seq=SEQ, batch=BATCH).under("TORCH").flops == rows[f"model.layers.{place}"]
    whole = fk.models.transformer(**sizes)
    unseen = sum(token + 1 - 8 for token in range(8, SEQ))  # pairs of a head in one sequence
    exact = (each.forward(seq=SEQ, batch=BATCH).flops for each in (whole, ours))
    assert next(exact) - next(exact) == 4 * BATCH * unseen * 4 * 2 * 2 * 16


# Keys of a configuration that change nothing of what is counted, by the family that has them ("": any), and why.
HARMLESS[""] = {
    "about the file": "transformers_version architectures _name_or_path problem_type dtype is_encoder_decoder",
    "about a call": "output_hidden_states output_attentions output_router_logits return_dict use_cache chunk_size_feed_forward",
    "which words are special": "pad_token_id eos_token_id bos_token_id decoder_start_token_id forced_eos_token_id",
    "positions that are turned have no table": "max_position_embeddings",
    "which experts are chosen, not how many": "norm_topk_prob n_group topk_group topk_method",
    "a factor of scores or of logits": "query_pre_attn_scalar scale_attn_weights scale_attn_by_inverse_layer_idx scale_decoder_outputs",
    "how it was trained": "pretraining_tp classifier_dropout rescale_prenorm_residual",
}  # fmt: skip
WINDOWED = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}


def told(config):
    """What a configuration comes to; why it is refused, where it is."""
    try:
        model = fk.from_hf(config)
        passes = [model.forward(batch=BATCH, **({"seq": SEQ} if model.patches is None else {}))]
        if model.writes and model.encoder is None:
            passes.append(model.decode(context=SEQ))
    except (ValueError, TypeError) as error:
        return str(error)
    return [model.params, model.active_params, *((each.flops, each.vector_flops, each.bytes) for each in passes)]


def others(value):
    """Other values that a key may have."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [2 * value or 1, value + 1]
    if isinstance(value, list) and value and isinstance(value[0], str):
        return [["sliding_attention"] * len(value), ["full_attention"] * len(value)]
    return {type(None): [8, True], str: ["another"]}.get(type(value), [])


def ignored(kind, config):
    """The keys that its reader does not look at."""
    base = told(config)
    changed = {key: others(value) for key, value in config.items() if key != "model_type"}
    return {
        key
        for key, values in changed.items()
        if values and all(told({**config, key: value}) == base for value in values)
    }


@pytest.mark.parametrize("kind", KINDS)
def test_no_key_that_matters_is_passed_over(kind):
    """A reader that ignores a size, a window or a switch goes red here."""
    config, _ = built(kind)
    found = ignored(kind, config)
    if "use_sliding_window" in config:
        found &= ignored(kind, built(kind, **small(kind) | WINDOWED)[0])
    known = {
        key
        for kinds, why in HARMLESS.items()
        if not kinds or kind in kinds.split()
        for keys in why.values()
        for key in keys.split()
    }
    assert sorted(found - known) == [], (
        f"{kind}: say in flopkit/models/architectures/ what these stand for, refuse them, or write here why they don't matter"
    )


def test_a_key_that_is_passed_over_is_seen(monkeypatch):
    config, _ = built("llama")
    before = ignored("llama", config)
    reader = architectures.ARCHITECTURES["llama"]
    monkeypatch.setitem(
        architectures.ARCHITECTURES,
        "llama",
        lambda c, name: reader(type(c)({**c.fields, "mlp_bias": False}, c.kind), name),
    )
    assert ignored("llama", config) - before == {"mlp_bias"}


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_left_out_is_what_transformers_takes(kind):
    """One key of the small configuration left out at a time, in the file and in transformers."""
    for key in small(kind):
        sizes = {name: value for name, value in small(kind).items() if name != key}
        try:
            whole = transformers.AutoConfig.for_model(kind, **sizes).to_dict()
        except Exception:
            continue  # transformers itself refuses what does not go together
        whole.pop("architectures", None)
        ours, theirs = told({"model_type": kind, **sizes}), told(whole)
        assert ours == theirs or (isinstance(ours, str) and isinstance(theirs, str)), key


@pytest.mark.parametrize(
    "changed",
    [
        {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 90, "use_double_wide_mlp": True},
        {"hidden_size_per_layer_input": 8, "attention_k_eq_v": True, "num_global_key_value_heads": 4},
    ],
)
def test_the_small_models_of_gemma_4(changed):
    """Inputs for each layer, and layers that take their keys and values from an earlier one."""
    plain = {
        key: value for key, value in SMALL["gemma4_text"].items() if key not in ("enable_moe_block", "attention_k_eq_v")
    }
    config, model = built("gemma4_text", **plain | {"num_kv_shared_layers": 2, "num_hidden_layers": 12} | changed)
    compare("gemma4_text", config, model)
    ours = fk.from_hf(config)
    own = [ours.blocks[kind][0].mixer for kind in ours.order[:10]]
    assert ours.kv_bytes(context=64) == sum(
        2 * 2 * min(64, each.window or 64) * each.kv_heads * each.head_dim for each in own
    )
