"""Encoder-decoders that serve: the encoder reads its source once, and its keys and values keep that length whatever is written."""

import altair
import numpy as np
import pytest
import sympy
import torch
import vega

import flopkit as fk
from flopkit.arithmetic import vega as expression_of
from flopkit.models import MLP, Attention, Block, Experts, Model
from flopkit.serving import (
    batch_at_ridge,
    capacity,
    decode,
    intensity_limit,
    largest_batch,
    prefill,
    request,
    speculate,
)

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SOUND = ["whisper-large-v3", "whisper-large-v3-turbo", "whisper-tiny"]
TEXT = ["bart-large-cnn", "flan-t5-small", "nllb-200-distilled-600m", "t5-base"]
WIDTH, LAYERS, FEATURES, VOCABULARY, FRAMES = 1280, 32, 5120, 51866, 1500  # of Whisper large v3


def test_a_step_of_whisper_by_hand():
    """Queries, keys, values and output of the text, queries and output of what sees the sound, the MLP, the head; then both caches."""
    model = fk.load("whisper-large-v3")
    matrices = LAYERS * (6 * WIDTH**2 + 2 * WIDTH * FEATURES) + WIDTH * VOCABULARY
    for context in (1, 448):
        seen = LAYERS * WIDTH * (context + FRAMES)
        assert model.decode(context=context).flops == 2 * matrices + 4 * seen
        assert model.kv_bytes(context=context) == 2 * 2 * seen == model.kv_bytes(context=context, source=FRAMES)
    step = model.decode(context=448)
    # three norms; biases of q, v, o, of q, o, of the MLP; the last norm; a row of words and one of positions
    vectors = LAYERS * (6 + 3 + 2 + 1) * WIDTH + LAYERS * FEATURES + 2 * WIDTH + 2 * WIDTH
    assert step.bytes == 2 * (matrices + vectors) + model.kv_bytes(context=448)
    assert round(step.bytes / 1e9, 3) == 1.921 and model.kv_bytes(context=448) == 319_160_320


def test_the_pass_over_a_prompt_of_whisper_by_hand():
    """The encoder reads 3,000 frames of 128 bins by two convolutions; keys and values of its output are made once; one head."""
    model, prompt = fk.load("whisper-large-v3"), 4
    sound = 2 * 3 * (128 * WIDTH * 2 * FRAMES + WIDTH**2 * FRAMES)
    layer = 2 * FRAMES * (4 * WIDTH**2 + 2 * WIDTH * FEATURES) + 4 * FRAMES**2 * WIDTH
    text = 2 * prompt * (6 * WIDTH**2 + 2 * WIDTH * FEATURES) + 4 * WIDTH * (
        prompt * (prompt + 1) // 2 + prompt * FRAMES
    )
    seen = 2 * FRAMES * 2 * WIDTH**2
    cost = model.prefill(prompt=prompt)
    assert cost.flops == sound + LAYERS * (layer + text + seen) + 2 * WIDTH * VOCABULARY
    read = model.params - (448 - prompt) * WIDTH + prompt * WIDTH  # rows of positions and of the tied table
    assert cost.bytes == 2 * read + model.kv_bytes(context=prompt)  # the encoder's own keys and values stay on the chip


@pytest.mark.parametrize("name", SOUND + TEXT)
@pytest.mark.parametrize("prompt", [1, 48])
def test_a_prefill_is_at_least_the_encoder(name, prompt):
    model = fk.load(name)
    parts = model.forward(seq=prompt).parts
    encoder = sum(each.flops for each in parts if each.name.startswith("encoder, "))
    assert 0 < encoder < model.prefill(prompt=prompt).flops
    assert model.prefill(prompt=prompt).params == model.params


T5 = {
    "model_type": "t5", "vocab_size": 96, "d_model": 32, "d_ff": 80, "num_layers": 2, "num_decoder_layers": 3, "num_heads": 4, "d_kv": 8,
    "decoder_start_token_id": 0,
}  # fmt: skip
WHISPER = {
    "model_type": "whisper", "vocab_size": 96, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 80, "decoder_ffn_dim": 64, "num_mel_bins": 10, "max_source_positions": 20,
    "max_target_positions": 24, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 3,
}  # fmt: skip
M2M = {
    "model_type": "m2m_100", "vocab_size": 96, "d_model": 32, "encoder_layers": 2, "decoder_layers": 3, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "encoder_ffn_dim": 80, "decoder_ffn_dim": 64, "max_position_embeddings": 60,
}  # fmt: skip


@pytest.mark.parametrize(("config", "source"), [(T5, 30), (M2M, 30), (WHISPER, 20)], ids=["t5", "nllb", "whisper"])
def test_the_passes_and_the_cache_are_those_of_transformers(config, source):
    """A first token and, four later, one more: FLOPs of both calls, and the numbers in the two caches."""
    batch, ours = 2, fk.from_hf(config)
    config = transformers.AutoConfig.for_model(**config)
    sound = config.model_type == "whisper"
    kind = transformers.AutoModelForSpeechSeq2Seq if sound else transformers.AutoModelForSeq2SeqLM
    model = kind.from_config(config).eval()
    heard = (
        {"input_features": torch.zeros(batch, 10, 2 * source)}
        if sound
        else {"input_ids": torch.ones(batch, source).long()}
    )
    cache = transformers.EncoderDecoderCache(transformers.DynamicCache(), transformers.DynamicCache())
    text, out = torch.ones(batch, 5).long(), {}

    def first():
        out.update(model(**heard, decoder_input_ids=text[:, :1], past_key_values=cache, use_cache=True))

    how = {"batch": batch} | ({} if sound else {"source": source})
    with torch.no_grad():
        report = fk.count(first)
        assert ours.prefill(prompt=1, **how).under("TORCH").flops == report.flops
        if not sound:
            assert ours.prefill(prompt=source, batch=batch).under("TORCH").flops == report.flops
        encoded = (out["encoder_last_hidden_state"],)
        more = {"encoder_outputs": encoded, "past_key_values": cache, "use_cache": True}
        model(**more, decoder_input_ids=text[:, 1:4])
        report = fk.count(lambda: model(**more, decoder_input_ids=text[:, 4:]))
    assert ours.decode(context=5, **how).flops == report.flops
    held = sum(
        tensor.numel()
        for each in (cache.self_attention_cache, cache.cross_attention_cache)
        for layer in each.layers
        for tensor in (layer.keys, layer.values)
    )
    assert ours.kv_bytes(context=5, dtype="fp8", **how) == held


@pytest.mark.parametrize("name", SOUND + TEXT)
def test_a_chunk_behind_a_prefix_does_not_hear_again(name):
    """What lies in a decoder's cache has seen the encoder's output: the rest is decoding, with the head on the last token alone."""
    model = fk.load(name)
    source = {} if name in SOUND else {"source": 70}
    chunk, step = model.prefill(prompt=3, prefix=5, **source), model.decode(context=8, new=3, **source)
    assert chunk.flops == step.flops - 2 * 2 * model.d_model * model.vocab
    start = model.prefill(prompt=5, **source)
    assert start.flops + chunk.flops == model.prefill(prompt=8, **source).flops + 2 * model.d_model * model.vocab
    symbol = sympy.Symbol("n", integer=True)
    for wrong in (symbol, np.array([0, 3])):
        with pytest.raises(
            ValueError, match=f"whether the encoder of {name} runs depends on it; give a number, 0 where"
        ):
            model.prefill(prompt=3, prefix=wrong)
    assert model.prefill(prompt=3, prefix=np.array([5, 6]), **source).flops[0] == chunk.flops


def test_the_cache_of_the_source_does_not_grow_with_the_answer():
    model, h100 = fk.load("nllb-200-distilled-600m"), fk.device("h100-sxm")
    token = 2 * 2 * 12 * 1024  # a layer of twelve keeps 1,024 keys and values of a token
    caches = [model.kv_bytes(context=context, source=400) for context in (1, 2, 101)]
    assert caches == [token * 401, token * 402, token * 501]
    assert model.decode(context=101, source=400).bytes - model.decode(context=1, source=400).bytes == 100 * token
    found = request(model, h100, prompt=400, output=101)
    assert found.first.memory == model.weight_bytes() + 401 * token
    assert found.step.memory.tolist() == [model.weight_bytes() + (401 + n) * token for n in range(1, 101)]
    assert found.first.seconds == prefill(model, h100, prompt=1, source=400).seconds
    steps = [decode(model, h100, context=n, source=400).seconds for n in range(2, 102)]
    assert found.seconds == pytest.approx(found.first.seconds + sum(steps), rel=1e-12)
    two = request(model, h100, prompt=2, source=400, output=3)  # a start token, and the one that names the language
    assert two.step.memory.tolist() == [model.weight_bytes() + (400 + n) * token for n in (3, 4)]


@pytest.mark.parametrize("name", ["whisper-large-v3", "t5-base"])
def test_what_fits_holds_text_and_source(name):
    model, source = fk.load(name), {} if name in SOUND else {"source": 700}
    one = model.kv_bytes(context=96, **source)
    found = capacity(model, "h100-sxm", context=96, block=1, **source)
    assert found.sequence_bytes == one and found.sequences == largest_batch(model, "h100-sxm", context=96, **source)
    assert found.sequences == int((found.available - model.weight_bytes()) // one)
    blocks = -(-(1500 if name in SOUND else 700) // 64) * 64
    assert capacity(model, "h100-sxm", context=65, block=64, **source).sequence_bytes == one // (
        96 + (1500 if name in SOUND else 700)
    ) * (128 + blocks)
    with pytest.raises(ValueError, match="a number of blocks says nothing"):
        print(found.blocks)
    assert decode(model, "h100-sxm", context=96, batch=3, **source).memory == model.weight_bytes() + 3 * one


def test_bounds_over_batches_and_drafts_see_the_source():
    t5 = fk.load("t5-base")
    many, more = (t5.decode(context=64, source=900, batch=2**40 * n) for n in (1, 2))
    limit = (more.flops - many.flops) / (more.bytes - many.bytes)
    assert intensity_limit(t5, context=64, source=900) == pytest.approx(limit)
    assert limit < intensity_limit(t5, context=64)
    first = batch_at_ridge(t5, "h100-sxm", context=64, part="dense", source=900)
    assert first == batch_at_ridge(t5, "h100-sxm", context=64, part="dense")  # no cache is in the dense layers
    how = {"context": 20, "drafted": 2, "acceptance": 0.5, "draft": "t5-base"}
    found = speculate("flan-t5-large", "h100-sxm", source=300, **how)
    seconds = 2 * decode(t5, "h100-sxm", context=20, source=300).seconds
    seconds += decode("flan-t5-large", "h100-sxm", context=22, new=3, source=300).seconds
    assert found.seconds == pytest.approx(seconds)
    # without it, the source is as long as the context, and verifying makes it no longer
    assert (
        speculate("flan-t5-large", "h100-sxm", **how).seconds
        == speculate("flan-t5-large", "h100-sxm", source=20, **how).seconds
    )


@pytest.mark.parametrize("run", [
    lambda m, n: m.prefill(prompt=3, source=n).flops, lambda m, n: m.prefill(prompt=n).bytes, lambda m, n: m.kv_bytes(context=7, source=n),
    lambda m, n: m.decode(context=7, source=n, kv_cache="fp8").bytes, lambda m, n: m.decode(context=n).flops,
    lambda m, n: prefill(m, "h100-sxm", prompt=2, source=n).memory, lambda m, n: decode(m, "h100-sxm", context=9, source=n).in_order.seconds,
])  # fmt: skip
def test_a_source_in_four_readings(run):
    model, lengths = fk.load("t5-base"), np.array([1, 7, 4096])
    exact = [run(model, int(n)) for n in lengths]
    assert len(set(exact)) == 3 and np.asarray(run(model, lengths)).tolist() == pytest.approx(exact, rel=1e-12)
    symbol, parameter = sympy.Symbol("n", integer=True, positive=True), altair.param(name="n", value=4)
    assert [float(run(model, symbol).subs(symbol, int(n))) for n in lengths] == pytest.approx(exact, rel=1e-12)
    expression = expression_of(run(model, parameter))
    assert [vega.evaluate(expression, {"n": int(n)}) for n in lengths] == pytest.approx(exact, rel=1e-12)


def test_the_experts_of_an_encoder_are_chosen_by_chance_too():
    mixture = Experts(experts=16, top_k=2, d_ff=24)
    sizes = {"heads": 4, "kv_heads": 4, "head_dim": 8}
    encoder = Model(
        name="encoder",
        d_model=32,
        vocab=96,
        blocks=((Block(mixer=Attention(**sizes), mlp=mixture), 2),),
        causal=False,
        head="none",
    )
    block = Block(mixer=Attention(**sizes), cross=Attention(**sizes, cross=True), mlp=MLP(d_ff=48))
    model = Model(name="mixture", d_model=32, vocab=96, blocks=((block, 2),), encoder=encoder)
    most, chosen = (model.prefill(prompt=1, source=8, experts=how).bytes for how in ("most", "expected"))
    assert most - chosen == pytest.approx(2 * 2 * 3 * 32 * 24 * 16 * (1 - 2 / 16) ** 8)


@pytest.mark.parametrize(("run", "says"), [
    (lambda: fk.load("llama-3-8b").decode(context=8, source=8), "source=8: llama-3-8b has no encoder; leave source= out"),
    (lambda: fk.load("llama-3-8b").prefill(prompt=8, source=8), "has no encoder"),
    (lambda: fk.load("llama-3-8b").kv_bytes(context=8, source=8), "has no encoder"),
    (lambda: capacity("llama-3-8b", "h100-sxm", context=8, source=8), "has no encoder"),
    (lambda: request("llama-3-8b", "h100-sxm", prompt=8, output=8, source=8), "has no encoder"),
    (lambda: fk.load("whisper-tiny").decode(context=8, source=100), "source=100: the encoder of whisper-tiny makes 1500 tokens of any sound"),
    (lambda: fk.load("whisper-tiny").decode(context=8, source=sympy.Symbol("n")), "source=n: the encoder of whisper-tiny makes 1500"),
    (lambda: fk.load("bart-large-cnn").decode(context=8, source=1025), "source=1025: .* has learned positions for 1024 tokens; give at most"),
    (lambda: fk.load("bart-large-cnn").prefill(prompt=1025), "has learned positions for 1024 tokens"),
    (lambda: fk.load("t5-base").decode(context=8, source=0), "source=0"),
])  # fmt: skip
def test_a_source_that_is_none(run, says):
    with pytest.raises(ValueError, match=says):
        run()
