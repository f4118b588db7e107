"""A whole training step and a step of decoding: as the program is counted that does it, and as papers print it."""

import altair
import numpy
import pytest
import sympy
import torch
import vega

import flopkit as fk
from flopkit import gated_delta, state_space
from flopkit.models import MLP, Attention, Block, Experts, Model, transformer

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SIZES = {
    "model_type": "llama", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 80, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
SEQ, BATCH = 16, 2


def built(device="meta"):
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(**SIZES))
        return model.train(), torch.zeros(BATCH, SEQ, dtype=torch.long)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_a_training_step_is_what_a_program_does(recompute):
    """Model FLOPs, and those that are computed again: by flash, and by transformers' own checkpointing of each layer."""
    model, ids = built(torch.device("cpu"))
    if recompute == "full":
        model.activation_checkpointing_enable({"use_reentrant": True})
    with fk.counting() as report:
        model(input_ids=ids, use_cache=False).logits.sum().backward()
    step = fk.from_hf(SIZES).train_step(seq=SEQ, batch=BATCH, recompute=recompute)
    for convention in ("TORCH", "EXACT"):
        ours, theirs = step.under(convention), report.under(convention)
        assert ours.model_flops == theirs.model_flops
        assert ours.recompute.flops == theirs.recompute.flops
        assert ours.hardware_flops == theirs.hardware_flops


def test_selective_recompute_is_scores_and_values_again():
    step = fk.from_hf(SIZES).train_step(seq=SEQ, recompute="selective").under("MEGATRON_2022")
    core = fk.attention(batch=1, q=SEQ, kv=SEQ, heads=4, head_dim=8)
    assert step.hardware_flops - step.model_flops == 3 * core.flops


def test_decode_is_what_a_program_does():
    """With a cache: one new token a sequence; the cache grows and is read whole."""
    model, _ = built()
    context = 24
    with torch.device("meta"):
        cache = transformers.DynamicCache()
        model.eval()(input_ids=torch.zeros(BATCH, context - 1, dtype=torch.long), past_key_values=cache, use_cache=True)
        token = torch.zeros(BATCH, 1, dtype=torch.long)
    report = fk.count(lambda: model(input_ids=token, past_key_values=cache, use_cache=True))
    ours = fk.from_hf(SIZES).decode(context=context, batch=BATCH)
    assert ours.under("TORCH").flops == report.flops
    assert ours.flops == report.flops  # the newest token sees all others


def test_the_bytes_of_a_step_of_decoding_are_weights_and_cache():
    model = fk.load("llama-3-8b")
    for weights, size in (("bf16", 2), ("fp8", 1), ("int4", 0.5)):
        moved = model.decode(context=1000, batch=3, weights=weights).bytes
        read = model.params - 128256 * 4096 + 3 * 4096  # of the embedding's table one row a token
        assert moved == size * read + 3 * model.kv_bytes(context=1000)
    assert model.kv_bytes(context=1) == 2 * 32 * 8 * 128 * 2


def test_prefill_in_chunks_is_the_whole_with_a_head_a_chunk():
    model = fk.load("llama-3-8b")
    chunks = [model.prefill(prompt=1024, prefix=1024 * i) for i in range(4)]
    head = 2 * 4096 * 128256
    assert sum(chunk.flops for chunk in chunks) == model.prefill(prompt=4096).flops + 3 * head


@pytest.mark.parametrize("name", ["deepseek-v3"])
def test_deepseek_v3_by_its_published_numbers(name):
    """250 GFLOPs a token in training at 4,096 tokens, 260 with multi-token prediction; 70.272 kB of cache a token (arXiv:2505.09343)."""
    step = fk.load(name).train_step(seq=4096).under("DEEPSEEK")
    assert round(step.flops_per_token / 1e9) == 250
    assert fk.load(name).kv_bytes(context=1) == 70_272
    assert round(fk.load(name, mtp=True).train_step(seq=4096).under("DEEPSEEK").flops_per_token / 1e9) == 260


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.train_step(seq=8, recompute="some"), "recompute='some'"),
        (lambda m: m.train_step(), "seq= is missing"),
        (lambda m: m.decode(context=0), "context=0"),
        (lambda m: m.prefill(prompt=4, weights="fp7"), "fp7"),
        (lambda m: fk.load("vit-b-16").forward(seq=7), "seq=7: an image has 197 tokens in vit-b-16"),
        (lambda m: fk.load("vit-b-16").train_step(seq=numpy.array([197, 50])), "an image has 197 tokens"),
        (lambda m: fk.load("vit-b-16").kv_bytes(context=8), "vit-b-16 makes no text token by token: it has no cache"),
        (lambda m: fk.load("bert-base").kv_bytes(context=8), "it has no cache"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(fk.load("llama-3-8b"))


def test_four_readings():
    """A step and a token of decoding as a sweep, as a formula in print and behind a slider: the values of the exact integers."""
    lengths = numpy.array([1, 7, 4096])
    model = fk.load("mixtral-8x7b")
    for run in (
        lambda seq: model.train_step(seq=seq, batch=2, recompute="full").hardware_flops,
        lambda seq: model.train_step(seq=seq, recompute="selective").under("PALM").hardware_flops,
        lambda seq: model.train_step(seq=seq, trained=fk.LoRA(rank=16), recompute="full").hardware_flops,
        lambda seq: (
            model.train_step(
                seq=seq, trained=fk.models.LastLayers(4), recompute="selective", capacity=1.25
            ).hardware_flops
        ),
        lambda seq: model.train_memory(seq=seq, trained=fk.LoRA(rank=16)).total,
        lambda seq: model.decode(context=seq, batch=3, weights="fp8").bytes,
        lambda seq: model.prefill(prompt=seq).flops,
    ):
        exact = [run(int(n)) for n in lengths]
        assert all(type(n) is int for n in exact)
        assert run(lengths).tolist() == exact
        symbol, parameter = sympy.Symbol("n", integer=True, positive=True), altair.param(name="n", value=4)
        assert [int(run(symbol).subs(symbol, int(n))) for n in lengths] == exact
        expression = fk.arithmetic.vega(run(parameter))
        assert [vega.evaluate(expression, {"n": int(n)}) for n in lengths] == pytest.approx(exact, rel=1e-12)
    sweep = model.train_step(seq=lengths)
    assert "training step" in repr(sweep) and len(sweep.table()) == 5


HYBRID = {
    "model_type": "qwen3_next", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 4, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24,
    "shared_expert_intermediate_size": 40, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8,
    "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4,
}  # fmt: skip


def test_a_state_costs_the_same_at_any_length():
    """The delta rule by hand: three products of 8 × 12 a head and token, a cache of states; the layer with attention grows."""
    short, long = (fk.from_hf(HYBRID).decode(context=n) for n in (100, 1000))
    linear = {part.name: part.flops for part in short.parts}["layers, kind 1"]
    assert linear == {part.name: part.flops for part in long.parts}["layers, kind 1"]
    assert long.flops - short.flops == 2 * 900 * 4 * 2 * 16  # one layer of four, scores and values
    states = 4 * 8 * 12 + 4 * (2 * 2 * 8 + 4 * 12)
    assert fk.from_hf(HYBRID).kv_bytes(context=1000, dtype={"rest": "fp32", "states": "fp32"}) == 4 * (
        3 * states + 1000 * 2 * 2 * 16
    )
    recurrent, chunked = (
        gated_delta(batch=2, seq=64, heads=4, k_dim=8, v_dim=12, algorithm=name) for name in ("recurrent", "chunked")
    )
    assert recurrent.flops == 2 * 64 * 4 * 2 * 3 * 8 * 12
    assert chunked.flops == 2 * 64 * 4 * (2 * (64 * (16 + 12) + 3 * 96) + 64 * 20)
    assert (
        gated_delta(batch=2, seq=65, heads=4, k_dim=8, v_dim=12).flops == 2 * chunked.flops
    )  # a chunk that is not full


def test_mamba_2_by_hand():
    sizes = {"batch": 1, "seq": 512, "heads": 64, "head_dim": 64, "state": 128}
    assert state_space(**sizes, algorithm="recurrent").flops == 512 * 64 * 2 * 2 * 64 * 128
    each = 256 * 128 + 64 * (256 * 64 + 2 * 64 * 128)
    assert state_space(**sizes).flops == 512 * 2 * each
    assert state_space(**sizes, groups=8).flops - state_space(**sizes).flops == 512 * 2 * 7 * 256 * 128


def test_a_model_with_learned_positions_ends_where_they_end():
    """GPT-2 has 1,024 of them: no decoding beyond, and as many parameters in its last step as it has."""
    model = fk.load("gpt2")
    assert model.decode(context=1024).params == model.params
    for run in (lambda: model.decode(context=1025), lambda: model.prefill(prompt=1000, prefix=25)):
        with pytest.raises(ValueError, match=r"gpt2 has learned positions for 1024 tokens, and 1025 are asked for"):
            run()


@pytest.mark.parametrize("tied", [False, True])
def test_conventions_of_papers_by_hand(tied):
    """A model with one of everything: a matrix of each sort, norms, biases, positions; full scores of 16 tokens, 2·16·16·32 a layer."""
    seq, d, vocab, layers = 16, 32, 96, 3
    model = transformer(
        name="small", d_model=d, vocab=vocab, layers=layers, heads=4, d_ff=80, act="gelu", gated=False, bias=True, rotary=0,
        norm="layer", positions=64, tied=tied,
    )  # fmt: skip
    matrices = layers * (4 * d * d + 2 * d * 80)
    vectors = layers * (4 * d + 80 + d + 2 * 2 * d) + 2 * d  # biases, and two numbers a feature of each norm
    table, positions = vocab * d, 64 * d
    scores, visible = layers * 2 * d * seq * seq, layers * 2 * d * seq * (seq + 1) // 2
    everything = matrices + vectors + positions + (1 if tied else 2) * table
    assert model.params == everything
    by_hand = {
        "EXACT": seq * (matrices + table) + visible,
        "TORCH": seq * (matrices + table) + scores,
        "KAPLAN": seq * matrices + scores // 2,
        "PALM": seq * everything + scores,
        "CHINCHILLA": seq * (matrices + 2 * table) + scores + layers * 4 * seq * seq * 3 // 2,
        "CHINCHILLA_TABLE": seq * matrices + scores + layers * 4 * seq * seq * 3 // 2,
        "MEGATRON": seq * (matrices + table) + scores // 2,
        "MEGATRON_2021": seq * (matrices + table) + scores,
        "MEGATRON_2022": seq * (matrices + table) + scores,
        "DEEPSEEK": seq * (matrices + table) + scores // 2,
        "LLM_FOUNDRY": seq * everything + scores,
        "NANOGPT": seq * (everything - positions) + scores,
        "TORCHTITAN_2024": seq * everything + scores,
        "TORCHTITAN": seq * (matrices + vectors + positions + table) + scores,
        "MAXTEXT_2024": seq * (matrices + table) + scores,
        "MAXTEXT": seq * (matrices + table) + scores // 2,
        "VERL": seq * (matrices + 2 * table) + scores // 2,
        "SIX_N": seq * everything,
        "SIX_N_ACTIVE": seq * everything,
    }
    forward, step = model.forward(seq=seq), model.train_step(seq=seq)
    assert {name: forward.under(name).flops for name in by_hand} == {name: 2 * n for name, n in by_hand.items()}
    assert {name: step.under(name).model_flops for name in by_hand} == {name: 6 * n for name, n in by_hand.items()}
    assert set(by_hand) | {"FVCORE"} == set(fk.published.presets())
    assert forward.under("FVCORE").flops * 2 == forward.under("TORCH").flops


def test_experts_under_conventions_by_hand():
    """Router and idle experts: five of six are idle for a token."""
    model = transformer(
        name="six", d_model=8, vocab=10, layers=2, heads=2, experts=Experts(experts=6, top_k=1, d_ff=12)
    )
    forward = model.forward(seq=1)
    router, idle = 2 * 2 * 8 * 6, 2 * 2 * 5 * 3 * 8 * 12
    assert forward.under("MAXTEXT").flops - forward.under("MEGATRON").flops == router
    assert (
        forward.under("SIX_N").flops - forward.under("SIX_N_ACTIVE").flops
        == idle
        == 2 * (model.params - model.active_params)
    )


def test_states_in_the_cache_by_hand():
    """A state of 4 heads, 16 × 24 each, and four inputs of the convolution's 64 + 2·2·24 channels; read and written in each step."""
    config = {
        "model_type": "mamba2", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16,
        "state_size": 24, "n_groups": 2, "conv_kernel": 4,
    }  # fmt: skip
    assert fk.from_hf(config).kv_bytes(context=9, batch=2) == 2 * 2 * 3 * (4 * 16 * 24 + 4 * (64 + 2 * 2 * 24))
    model = fk.from_hf(config)
    read = 2 * (model.params - 96 * 32)  # all weights but the embedding's, of which a row a token
    step, first = model.decode(context=9, batch=2), model.decode(context=1, batch=2)
    assert first.bytes == read + 2 * 2 * 32 + model.kv_bytes(context=1, batch=2)  # nothing was there before
    assert step.bytes == first.bytes + 2 * 2 * 3 * 4 * 16 * 24
    chunk, start = (model.prefill(prompt=8, prefix=prefix).bytes for prefix in (8, 0))
    assert chunk - start == 2 * 3 * 4 * 16 * 24
    sizes = {"batch": 5, "seq": 1, "algorithm": "recurrent"}
    space = state_space(**sizes, heads=4, head_dim=16, state=24, groups=2)
    assert space.bytes == 2 * 5 * (2 * 64 + 2 * 2 * 24 + 2 * 64 * 24)
    assert space.vector_flops == 5 * 64 * 25
    delta = gated_delta(**sizes, heads=4, k_heads=2, k_dim=8, v_dim=12)
    assert delta.bytes == 2 * 5 * (2 * 2 * 8 + 2 * 4 * 12 + 2 * 4 * 8 * 12)
    assert delta.vector_flops == 5 * 4 * (2 * 96 + 3 * 12)


MINI = {
    "model_type": "bamba", "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "attn_layer_indices": [1], "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_n_groups": 2, "mamba_d_state": 24,
    "mamba_d_conv": 4, "mamba_expand": 2,
}  # fmt: skip
HELD = {  # numbers a token of keys and values, and of states with the inputs of convolutions, at any length
    "qwen3-next-80b-a3b": (12 * 2 * 2 * 256, 36 * (32 * 128 * 128 + 4 * 8192)),
    "bamba": (2 * 2 * 8, 2 * (4 * 16 * 24 + 4 * (4 * 16 + 2 * 2 * 24))),
    "mamba2": (0, 3 * (4 * 16 * 24 + 4 * (4 * 16 + 2 * 2 * 24))),
    "llama-3-8b": (32 * 2 * 8 * 128, 0),
}


def held_by(name):
    mamba = {
        "model_type": "mamba2", "vocab_size": 96, "hidden_size": 32, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16,
        "state_size": 24, "n_groups": 2, "conv_kernel": 4,
    }  # fmt: skip
    return fk.from_hf({"bamba": MINI, "mamba2": mamba}[name]) if name in ("bamba", "mamba2") else fk.load(name)


@pytest.mark.parametrize("name", HELD)
def test_a_format_of_the_cache_leaves_states_alone(name):
    """They are bf16 beside any cache, unless a format is named for them: what is held, what a step moves, what a device holds."""
    model, (token, states) = held_by(name), HELD[name]
    for context in (1, 1000):
        for kind, width in (("bf16", 2), ("fp8", 1), ("fp32", 4), ({"rest": "fp8"}, 1)):
            assert model.kv_bytes(context=context, batch=3, dtype=kind) == 3 * (2 * states + width * context * token)
        apart = {"keys": "fp8", "values": "fp8", "states": "fp32"}
        assert model.kv_bytes(context=context, dtype=apart) == 4 * states + context * token
        plain, narrow, wide = (model.decode(context=context, kv_cache=kind).bytes for kind in ("bf16", "fp8", apart))
        assert plain - narrow == context * token
        fixed = model.decode(context=context, kv_cache={"states": "fp32"}).bytes - plain
        assert wide - narrow == fixed and fixed <= 4 * states and (fixed > 2 * states) == (states > 0 and context > 1)
        bound = fk.serving.decode(model, "h100-sxm", context=context, kv_cache="fp8")
        assert bound.memory - model.weight_bytes() == 2 * states + context * token
    assert model.state_bytes(batch=3) == 6 * states and model.state_bytes(dtype="fp32") == 4 * states
    assert model.state_bytes(dtype={"rest": "fp8"}) == 2 * states == 2 * model.state_bytes(dtype={"states": "fp8"})
    parameter = altair.param(name="n", value=4)
    found = model.state_bytes(batch=parameter)
    assert vega.evaluate(fk.arithmetic.vega(found), {"n": 5}) == 10 * states


@pytest.mark.parametrize(("capacity", "rows"), [(1.25, 10), (1, 8), (0.5, 4), (4, 32)])
def test_rows_that_no_token_fills_are_executed_and_are_no_work_of_the_model(capacity, rows):
    """Every expert computes the same number of rows: the experts as three batched products, forward and backward, run by torch."""
    sizes = SIZES | {"model_type": "mixtral", "num_local_experts": 8, "num_experts_per_tok": 2}
    model = fk.from_hf(sizes)
    free = model.train_step(seq=SEQ, batch=BATCH)
    step = model.train_step(seq=SEQ, batch=BATCH, capacity=capacity)
    x, gate, up, down = (
        torch.ones(8, *shape, requires_grad=True) for shape in ((rows, 32), (32, 80), (32, 80), (80, 32))
    )
    with fk.counting() as report:
        ((x @ gate).relu() * (x @ up) @ down).sum().backward()
    chosen = 3 * 2 * SEQ * BATCH * 2 * 3 * 32 * 80  # by two experts a token
    assert step.model_flops == free.model_flops
    assert step.hardware_flops - free.hardware_flops == 3 * (report.flops - chosen)
    again = model.train_step(seq=SEQ, batch=BATCH, capacity=capacity, recompute="full").hardware_flops
    assert again - model.train_step(seq=SEQ, batch=BATCH, recompute="full").hardware_flops == 4 * (
        report.flops - chosen
    )
    with pytest.raises(ValueError, match="gpt2 has no experts"):
        fk.load("gpt2").train_step(seq=8, capacity=capacity)


def rows_touched(layer, before: int, new: int) -> int:
    """Rows of one layer's cache that *new* tokens behind *before* others read or write, pair by pair: those earlier ones that
    some query sees, and the new ones that the cache keeps."""
    chunk, width = layer.chunk, layer.window

    def sees(query: int, key: int) -> bool:
        near = width is None or query - key < width
        return key <= query and near and (chunk is None or query // chunk == key // chunk)

    queries = range(before, before + new)
    read = sum(any(sees(query, key) for query in queries) for key in range(before))
    return read + min(new, width or chunk or new)


@pytest.mark.parametrize("limit", [{}, {"window": 16}, {"chunk": 16}])
@pytest.mark.parametrize(
    "before, new", [(15, 1), (16, 1), (17, 1), (40, 1), (40, 5), (30, 5), (31, 2), (0, 9), (0, 40), (48, 40)]
)
def test_a_step_moves_the_rows_that_its_tokens_see(limit, before, new):
    """A cache holds a window or a chunk; at the beginning of a chunk a token sees itself alone, and several tokens see more than
    one window."""
    layer = Attention(heads=4, kv_heads=2, head_dim=8, **limit)
    model = Model(name="small", d_model=32, vocab=96, blocks=((Block(mixer=layer, mlp=MLP(d_ff=64)), 1),))
    found = model.prefill(prompt=new, prefix=before) if new > 5 else model.decode(context=before + new, new=new)
    read = (
        found.bytes - (model.params - 96 * 32 + new * 32) * 2
    )  # without weights: of the embedding's table one row a token
    assert read == 2 * 2 * 2 * 8 * rows_touched(layer, before, new)
