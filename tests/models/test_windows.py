"""Which pairs of tokens each layer sees: the closed form, and the weights of attention that transformers' eager masks leave above 0."""

import re

import pytest
import torch
from test_families import CLASSES, INPUTS, KINDS, small, transformers

import flopkit as fk

N, WINDOW = 24, 8
WHOLE, WINDOWED = "full_attention", "sliding_attention"
UNIFORM = {
    "mistral",
    "ministral3",
    "mixtral",
    "phi3",
    "phimoe",
    "starcoder2",
    "qwen3_moe",
}  # whose classes read no layer_types
NOT_HERE = {"minimax", "nemotron_h", "modernbert-decoder"}  # of which flopkit reads one window alone
AUTO = ("AutoModelForCausalLM", "AutoModelForMaskedLM", "AutoModel")


def windowed(kind):
    if kind in INPUTS or CLASSES.get(kind, AUTO[0]) not in AUTO:
        return False
    try:
        known = transformers.AutoConfig.for_model(kind, **small(kind)).to_dict()
    except ValueError:
        return False
    return "sliding_window" in known and isinstance(known.get("num_attention_heads"), int)


SLIDING = [kind for kind in KINDS if windowed(kind)]


def changed(kind, how):
    layers = small(kind).get("num_hidden_layers", 3)
    said = {"sliding_window": WINDOW, "use_sliding_window": True, "max_window_layers": 1}
    types = [WHOLE] + [WINDOWED] * (layers - 1)
    return small(kind) | {
        "said": {"sliding_window": WINDOW}, "switched on": said, "listed": said | {"layer_types": types},
        "switched off": {"sliding_window": WINDOW, "use_sliding_window": False, "layer_types": [WHOLE] * layers},
    }[how]  # fmt: skip


def theirs(kind, sizes):
    config = transformers.AutoConfig.for_model(kind, **sizes)
    torch.manual_seed(0)
    asked = getattr(transformers, CLASSES.get(kind, AUTO[0]))
    model = asked.from_config(config, attn_implementation="eager", dtype=torch.float32).eval()
    with torch.no_grad():
        found = model(input_ids=torch.randint(3, 40, (1, N)), output_attentions=True, use_cache=False).attentions
    return config.to_dict(), [int((each > 0).sum()) for each in found if each is not None]


def ours(config):
    """Pairs of each layer, for all heads: the softmax has 6 FLOPs for each."""
    model = fk.from_hf(config)
    costs = [model.layer(kind, seq=N) for kind in model.layer_order("pairs")]
    return [cost.vector_by_kind["softmax"] // 6 for cost in costs if "softmax" in cost.vector_by_kind]


@pytest.mark.parametrize("how", ["said", "switched on", "listed", "switched off"])
@pytest.mark.parametrize("kind", [kind for kind in SLIDING if kind not in NOT_HERE])
def test_pairs_are_those_of_transformers(kind, how):
    sizes = changed(kind, how)
    if kind in UNIFORM and "layer_types" in sizes and not (kind == "qwen3_moe" and how == "switched off"):
        with pytest.raises(ValueError, match=f"class of {kind} reads no layer_types and gives each layer the window"):
            fk.from_hf({"model_type": kind, **sizes})
        assert len(set(theirs(kind, sizes)[1])) == 1
        return
    try:
        config, found = theirs(kind, sizes)
    except Exception as refused:  # what transformers does not build has no pairs
        pytest.skip(f"transformers: {refused}"[:200])
    assert ours(config) == found


@pytest.mark.parametrize("kind", [kind for kind in SLIDING if kind != "qwen3_vl_moe_text"])  # whose class reads none
def test_a_window_of_no_tokens_is_none_or_refused(kind):
    """0 stands for none, as null does, or is refused; by their masks alone transformers' classes would hide each token even from itself."""
    said = {"use_sliding_window": True, "max_window_layers": 0}
    if kind in ("qwen2_moe", "smollm3", "dots1"):
        said |= {key: value for key, value in changed(kind, "listed").items() if key == "layer_types"}
    try:
        found = ours({"model_type": kind, **small(kind), **said, "sliding_window": 0})
    except ValueError as refused:
        assert re.search(r"window=0: (a size must be at least 1|flopkit supports)|and no window", str(refused))
        return
    assert found == ours({"model_type": kind, **small(kind), **said, "sliding_window": None})
    assert len(set(found)) == 1


@pytest.mark.parametrize("kind", ["mistral", "qwen2", "qwen2_moe", "qwen3_moe", "smollm3", "gemma2"])
def test_layers_with_a_window_where_there_is_none_are_refused(kind):
    """Null, or switched off: transformers raises, masks by 0 tokens, or (SmolLM3) masks in eager mode what its flash attention sees."""
    types = [WINDOWED] * small(kind).get("num_hidden_layers", 3)
    off = {"sliding_window": WINDOW, "use_sliding_window": False} if kind[0] in "qs" else {"sliding_window": None}
    with pytest.raises(ValueError, match="and no window: sliding_window is null, or use_sliding_window is off"):
        fk.from_hf({"model_type": kind, **small(kind), **off, "layer_types": types})


@pytest.mark.parametrize("kind", sorted(UNIFORM - {"qwen3_moe"}))
def test_a_list_that_agrees_with_the_class_is_read(kind):
    layers = small(kind).get("num_hidden_layers", 3)
    said = {"model_type": kind, **small(kind), "sliding_window": WINDOW}
    assert ours(said | {"layer_types": [WINDOWED] * layers}) == ours(said) != ours(said | {"sliding_window": None})
    assert ours(said | {"sliding_window": None, "layer_types": [WHOLE] * layers}) == ours(
        said | {"sliding_window": None}
    )


def test_an_empty_list_says_nothing_of_a_window():
    sizes = small("qwen2_moe") | {
        "model_type": "qwen2_moe",
        "use_sliding_window": True,
        "sliding_window": 8,
        "max_window_layers": 1,
    }
    with pytest.raises(ValueError, match=r"layer_types=\[\]: must say of each layer"):
        fk.from_hf(sizes | {"layer_types": []})
