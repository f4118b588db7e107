"""Documents of unequal lengths in one batch: as each of them by itself, as programs that pack them are counted, and what is refused."""

import array
from collections import Counter
from dataclasses import replace

import numpy
import pytest
import sympy
import torch
from torch import nn

import flopkit as fk
from flopkit.models import (
    MLP,
    Attention,
    Block,
    Experts,
    GatedDelta,
    Head,
    Indexer,
    LatentAttention,
    LightningAttention,
    Model,
    ShortConv,
    StateSpace,
    WindowedLayers,
    transformer,
)
from flopkit.sizes import lengths_of

LENGTHS = [5, 1, 17, 40, 9, 1, 8, 16]  # around windows and chunks of 8
TOKENS = sum(LENGTHS)
SIZES = {"vocab": 96, "d_model": 32, "layers": 2}
HEADS = {"heads": 4, "kv_heads": 2, "head_dim": 8}
LATENT = LatentAttention(heads=4, q_lora=20, kv_lora=12, qk_nope=8, qk_rope=4, v_head_dim=6)


def alone(mixer, **more):
    layer = Block(mixer=mixer, mlp=MLP(d_ff=80), **more)
    return Model(name="small", d_model=32, vocab=96, blocks=((layer, 3),))


def encoder_decoder():
    cross = Attention(**HEADS, cross=True)
    layer = Block(mixer=Attention(**HEADS), mlp=MLP(d_ff=80))
    encoder = Model(name="encoder", d_model=32, vocab=96, blocks=((layer, 2),), causal=False, head="none")
    both = Block(mixer=Attention(**HEADS), cross=cross, mlp=MLP(d_ff=80))
    return Model(name="both", d_model=32, vocab=96, blocks=((both, 2),), encoder=encoder)


MODELS = {
    "dense": transformer(**SIZES, **HEADS, d_ff=80),
    "windows": transformer(**SIZES, **HEADS, d_ff=80, window=WindowedLayers(8, layers=1)),
    "latent": transformer(**SIZES, d_ff=80, attention=LATENT),
    "experts": transformer(**SIZES, **HEADS, d_ff=80, experts=Experts(experts=8, top_k=2, d_ff=24), dense=1),
    "more tokens": Model(
        name="mtp", d_model=32, vocab=96, blocks=((Block(mixer=LATENT, mlp=MLP(d_ff=80)), 2),), mtp=Block(mixer=LATENT, mlp=MLP(d_ff=80))
    ),
    "gated delta": alone(GatedDelta(heads=4, k_heads=2, k_dim=8, v_dim=12, chunk=8)),
    "state space": alone(StateSpace(heads=4, head_dim=16, state=24, groups=2, chunk=8)),
    "encoder-decoder": encoder_decoder(),
    "lightning": alone(LightningAttention(heads=4, head_dim=16, chunk=8)),
    "short convolutions": alone(ShortConv(channels=32, conv=3)),
    "chunked scores": alone(Attention(**HEADS, chunk=8)),
    "indexer": alone(replace(LATENT, selected=8, indexer=Indexer(heads=2, head_dim=8, rotary=4))),
    "labels of texts": replace(transformer(**SIZES, **HEADS, d_ff=80), head=Head(outputs=3, each="sequence", bias=True)),
    "labels of tokens": replace(transformer(**SIZES, **HEADS, d_ff=80), head=Head(outputs=3, bias=True)),
    **{name: fk.load(name) for name in ("bert-base", "gpt2", "gemma-2-2b", "gpt-oss-20b", "deepseek-v3", "t5-base", "gopher-280b")},
}  # fmt: skip


def whisper():
    sizes = {
        f"{side}_{what}": n
        for side in ("encoder", "decoder")
        for what, n in (("layers", 2), ("attention_heads", 4), ("ffn_dim", 80))
    }
    return fk.from_hf({"model_type": "whisper", "d_model": 32, "vocab_size": 96, "num_mel_bins": 8, **sizes})


def summed(costs):
    """The work of several passes by kind, contraction and element-wise."""
    found = Counter(), Counter()
    for cost in costs:
        for kinds, more in zip(found, (cost.macs_by_kind, cost.vector_by_kind), strict=True):
            for kind, n in more.items():
                kinds[kind] += n
    return tuple(map(dict, found))


@pytest.mark.parametrize("name", MODELS)
def test_a_pass_is_that_of_each_document_by_itself(name):
    model = MODELS[name]
    packed, each = model.forward(lengths=LENGTHS), [model.forward(seq=s) for s in LENGTHS]
    assert (packed.macs_by_kind, packed.vector_by_kind) == summed(each)
    assert type(packed.flops) is int and packed.params == model.params
    asked = ("EXACT", "TORCH", "PALM", "MEGATRON", "CHINCHILLA")
    for convention in asked:
        assert packed.under(convention).flops == sum(one.under(convention).flops for one in each)


@pytest.mark.parametrize("how", [{}, {"recompute": "selective"}, {"recompute": "full", "early_stop": True}])
@pytest.mark.parametrize("name", ["dense", "windows", "latent", "experts", "gated delta", "encoder-decoder"])
def test_so_is_a_training_step(name, how):
    model = MODELS[name]
    for convention in ("EXACT", "TORCH", "LLM_FOUNDRY", "MEGATRON_2022"):
        packed = model.train_step(lengths=LENGTHS, **how).under(convention)
        each = [model.train_step(seq=s, **how).under(convention) for s in LENGTHS]
        assert packed.model_flops == sum(one.model_flops for one in each)
        assert packed.hardware_flops == sum(one.hardware_flops for one in each)
        assert packed.tokens == TOKENS and packed.flops_per_token == packed.model_flops / TOKENS


@pytest.mark.parametrize("name", [name for name in MODELS if "-" not in name])
def test_equal_documents_are_a_batch_of_sequences(name):
    """To the last byte and in every part: weights and rows of positions are read once."""
    model = MODELS[name]
    assert model.forward(lengths=[40] * 6, dtype="fp8") == model.forward(seq=40, batch=6, dtype="fp8")
    assert model.forward(lengths=[40] * 2, batch=3) == model.forward(seq=40, batch=6)


def test_each_text_of_a_dual_encoder_has_a_picture():
    clip = fk.from_hf({"model_type": "clip", "text_config": {}, "vision_config": {}})
    packed, batch = clip.forward(lengths=[40] * 6), clip.forward(seq=40, batch=6)
    assert packed == batch
    rows = {each.name: each.flops for each in clip.forward(lengths=LENGTHS).parts}
    assert rows["similarity"] == 2 * len(LENGTHS) ** 2 * 512
    pictures = {name: flops for name, flops in rows.items() if name.startswith("pictures")}
    assert pictures == {
        name: clip.forward(seq=7, batch=len(LENGTHS)).parts[place].flops
        for place, name in enumerate(rows)
        if name in pictures
    }


@pytest.mark.parametrize("name", MODELS)
def test_a_table_of_documents_has_the_rows_of_each_by_itself(name):
    model = MODELS[name]
    packed, each = model.table(lengths=LENGTHS), [list(model.table(seq=s)) for s in LENGTHS]
    assert f"1 × {TOKENS} tokens in {len(LENGTHS)} documents" in str(packed).splitlines()[0]
    for place, row in enumerate(packed):
        assert row["FLOPs"] == sum(rows[place]["FLOPs"] for rows in each) and row["part"] == each[0][place]["part"]
        assert row["params"] == each[0][place]["params"]
    *_, last = packed
    whole = model.forward(lengths=LENGTHS)
    assert (last["FLOPs"], last["bytes"], last["params"]) == (whole.flops, whole.bytes, model.params)


@pytest.mark.parametrize("recompute", ["none", "selective", "full"])
@pytest.mark.parametrize(
    "name",
    [
        "dense",
        "windows",
        "latent",
        "experts",
        "more tokens",
        "encoder-decoder",
        "short convolutions",
        "labels of texts",
    ],
)
def test_memory_is_that_of_each_document_by_itself(name, recompute):
    """Weights are there once, and the tensors of all documents."""
    model = MODELS[name]
    packed = model.train_memory(lengths=LENGTHS, recompute=recompute)
    each = [model.train_memory(seq=s, recompute=recompute) for s in LENGTHS]
    assert packed.states == each[0].states == 16 * model.params
    for what in ("layers", "ends", "again", "activations"):
        assert getattr(packed, what) == sum(getattr(one, what) for one in each)
    if name not in ("encoder-decoder", "short convolutions", "labels of texts"):  # a row a token, and nothing else
        assert packed.activations == model.train_memory(seq=TOKENS, recompute=recompute).activations


def test_how_large_scores_are_the_rows_say():
    with pytest.raises(
        ValueError, match=r"kernel='math' beside lengths=\[5, .* give kernel='flash', or of rows .* seq= and batch="
    ):
        MODELS["dense"].train_memory(lengths=LENGTHS, kernel="math")
    with pytest.raises(
        ValueError, match="kernel='flash': what a fused kernel keeps of the gated delta rule is not known"
    ):
        MODELS["gated delta"].train_memory(lengths=LENGTHS)
    for asked in (MODELS["dense"].table, MODELS["dense"].train_memory):
        with pytest.raises(ValueError, match="seq=4 beside lengths="):
            asked(seq=4, lengths=LENGTHS)


@pytest.mark.parametrize("name", ["gpt2", "t5-base", "deepseek-v3", "gemma-2-2b"])
def test_equal_documents_are_a_batch_of_sequences_in_models_people_have(name):
    assert MODELS[name].forward(lengths=[40] * 6) == MODELS[name].forward(seq=40, batch=6)


def test_the_order_makes_no_difference_and_batch_repeats_them():
    model = MODELS["windows"]
    assert model.forward(lengths=sorted(LENGTHS)) == model.forward(lengths=LENGTHS)
    assert model.forward(lengths=LENGTHS, batch=3) == model.forward(lengths=LENGTHS * 3)
    assert (
        model.train_step(lengths=LENGTHS, batch=3).hardware_flops
        == 3 * model.train_step(lengths=LENGTHS).hardware_flops
    )
    symbol = sympy.Symbol("n", integer=True, positive=True)
    assert (
        model.forward(lengths=LENGTHS, batch=symbol).flops.subs(symbol, 3) == model.forward(lengths=LENGTHS * 3).flops
    )


def test_pairs_and_chunks_by_hand():
    """Lengths 3, 1 and 2: 6 + 1 + 3 pairs of 9 + 1 + 4 positions; in a window of 2, 5 + 1 + 3; in chunks of 2, 2 + 1 + 1."""
    documents = lengths_of([3, 1, 2])
    assert (documents.tokens, documents.longest, documents.count, documents.squares) == (6, 3, 3, 14)
    assert (documents.seen(), documents.seen(2), documents.seen(1), documents.seen(3), documents.chunks(2)) == (
        10,
        9,
        6,
        10,
        4,
    )
    for width in (1, 2, 5, 8, 40, 100):
        asked = [sum(max(0, i - width + 1) <= j <= i for i in range(s) for j in range(s)) for s in LENGTHS]
        assert lengths_of(LENGTHS).seen(width) == sum(asked)
        asked = [sum(j <= i and i // width == j // width for i in range(s) for j in range(s)) for s in LENGTHS]
        assert lengths_of(LENGTHS).within(width) == sum(asked)
        chunks = [[s] if s < width else [width] * -(-s // width) for s in LENGTHS]
        assert lengths_of(LENGTHS).filled(width) == sum(map(sum, chunks))
        assert lengths_of(LENGTHS).filled_pairs(width) == sum(rows * rows for each in chunks for rows in each)


@pytest.mark.parametrize("huge", [[3_000_000_000, 3_000_000_001, 2**40], [2**31] * 4, [7, 10**25]])
def test_sums_are_exact_beyond_64_bits(huge):
    documents = lengths_of(huge)
    assert documents.squares == sum(s * s for s in huge) and documents.tokens == sum(huge)
    assert documents.seen() == sum(s * (s + 1) // 2 for s in huge)
    more = [max(s - 10**9, 0) for s in huge]
    assert documents.seen(10**9) == documents.seen() - sum(s * (s + 1) // 2 for s in more)
    assert documents.chunks(7) == sum(-(-s // 7) for s in huge)
    assert documents.filled_pairs(10**9) == sum(s * s if s < 10**9 else 10**18 * -(-s // 10**9) for s in huge)
    model = MODELS["dense"]
    assert model.forward(lengths=huge).flops == sum(model.forward(seq=s).flops for s in huge)


# -- programs -------------------------------------------------------------------------------------------------------------


transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

HF = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 80, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
    "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
PROGRAMS = {
    "llama": HF,
    "gemma2": HF | {"head_dim": 16, "sliding_window": 8},
    "qwen3_moe": HF | {"head_dim": 16, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 24},
}


@pytest.mark.filterwarnings(
    "ignore:flex_attention called without torch.compile", "ignore:_compile flag:DeprecationWarning"
)
@pytest.mark.parametrize("kind", PROGRAMS)
def test_packed_in_one_row_it_is_what_flex_attention_lets_through(kind):
    """transformers' own packing: positions that begin anew make a mask of documents, which the counter asks pair by pair."""
    config = transformers.AutoConfig.for_model(kind, **PROGRAMS[kind])
    program = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="flex_attention").eval()
    ids, places = torch.zeros(1, TOKENS, dtype=torch.long), torch.cat([torch.arange(s) for s in LENGTHS])[None]
    with torch.no_grad():
        report = fk.count(lambda: program(input_ids=ids, position_ids=places, use_cache=False))
    ours = fk.from_hf(config.to_dict())
    exact = report.under("EXACT")
    assert not exact.notes
    assert exact.model_flops == ours.forward(lengths=LENGTHS).flops < ours.forward(seq=TOKENS).flops
    assert report.model_flops == ours.forward(seq=TOKENS).under("TORCH").flops  # the whole row of the score matrix


class VarlenLayer(nn.Module):
    """A layer of one row of packed tokens, as torch's varlen attention takes them."""

    def __init__(self, window):
        super().__init__()
        self.q, self.o = nn.Linear(32, 32, bias=False), nn.Linear(32, 32, bias=False)
        self.k, self.v = nn.Linear(32, 16, bias=False), nn.Linear(32, 16, bias=False)
        self.up, self.gate, self.down = (
            nn.Linear(32, 80, bias=False),
            nn.Linear(32, 80, bias=False),
            nn.Linear(80, 32, bias=False),
        )
        self.window = window

    def forward(self, x, places):
        from torch.nn.attention.varlen import varlen_attn

        q, k, v = (each(x).unflatten(-1, (-1, 8)) for each in (self.q, self.k, self.v))
        longest = max(LENGTHS)
        out = varlen_attn(q, k, v, places, places, longest, longest, window_size=self.window, enable_gqa=True)
        x = x + self.o(out.flatten(-2))
        return x + self.down(torch.nn.functional.silu(self.gate(x)) * self.up(x))


@pytest.mark.parametrize(("window", "sizes"), [((-1, 0), {}), ((7, 0), {"window": 8}), ((-1, -1), None)])
def test_a_training_step_is_what_varlen_attention_does(window, sizes):
    """Forward, backward and the scores that the kernel computes again, on meta; without a mask, Σ s² positions."""
    pytest.importorskip("torch.nn.attention.varlen")
    with torch.device("meta"):
        layers = nn.ModuleList([VarlenLayer(window) for _ in range(3)]).to(torch.bfloat16)
        table = nn.Embedding(96, 32, dtype=torch.bfloat16)
        head = nn.Linear(32, 96, bias=False, dtype=torch.bfloat16)
        ids = torch.zeros(TOKENS, dtype=torch.long)
    places = torch.tensor([0, *numpy.cumsum(LENGTHS)], dtype=torch.int32)
    with fk.counting(strict=True) as report:
        x = table(ids)
        for layer in layers:
            x = layer(x, places)
        head(x).sum().backward()
    layer = Block(mixer=Attention(**HEADS, **(sizes or {})), mlp=MLP(d_ff=80))
    ours = Model(name="small", d_model=32, vocab=96, blocks=((layer, 3),), causal=sizes is not None)
    step = ours.train_step(lengths=LENGTHS)
    for convention in ("EXACT", "TORCH"):
        theirs, mine = report.under(convention), step.under(convention)
        assert (theirs.model_flops, theirs.hardware_flops) == (mine.model_flops, mine.hardware_flops)
    scores = step.under("TORCH").forward.macs_by_kind
    assert scores["scores"] + scores.get("hidden", 0) == 3 * 2 * 32 * sum(s * s for s in LENGTHS)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_ragged_it_is_what_jagged_tensors_do():
    """On the CPU torch has no causal form of them: an encoder."""
    mixer = {name: nn.Linear(32, 32, bias=False) for name in "qkvo"}
    head = nn.Linear(32, 96, bias=False)
    x = torch.nested.nested_tensor([torch.randn(s, 32) for s in LENGTHS], layout=torch.jagged)

    def program():
        q, k, v = (mixer[name](x).unflatten(-1, [4, 8]).transpose(1, 2) for name in "qkv")
        out = nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2)
        return head(mixer["o"](out))

    with torch.no_grad():
        report = fk.count(program)
    layer = Block(mixer=Attention(heads=4, kv_heads=4, head_dim=8))
    ours = Model(name="small", d_model=32, vocab=96, blocks=((layer, 1),), causal=False)
    assert (
        report.model_flops == ours.forward(lengths=LENGTHS).flops == ours.forward(lengths=LENGTHS).under("TORCH").flops
    )


# -- what is taken, and what is not ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [
        tuple(LENGTHS), numpy.array(LENGTHS), numpy.array(LENGTHS, "uint64"), numpy.array(LENGTHS, "int8"), torch.tensor(LENGTHS),
        torch.tensor(LENGTHS, dtype=torch.int32), array.array("i", LENGTHS), [numpy.int32(s) for s in LENGTHS], numpy.array(LENGTHS, object),
        numpy.diff(numpy.cumsum([0, *LENGTHS])), lengths_of(LENGTHS),
    ],
    ids=lambda given: f"{type(given).__name__} {getattr(given, 'dtype', '')}",
)  # fmt: skip
def test_lists_arrays_and_tensors(given):
    found = MODELS["dense"].forward(lengths=given)
    assert found.flops == MODELS["dense"].forward(lengths=LENGTHS).flops and type(found.flops) is int


@pytest.mark.parametrize(
    ("lengths", "says"),
    [
        ([], r"lengths=\[\]: there is no document; give the tokens of each, such as \[512, 3584\]"),
        ([512, 0], r"lengths\[1\]=0: a size must be at least 1"),
        ([0, 5, 5], r"lengths\[0\]=0: a size must be at least 1"),
        ([512, -3], r"lengths\[1\]=-3: a size must be at least 1"),
        ([512, 2.0], r"lengths\[1\]=2.0: a size must be an int, not a float; pass 2"),
        ([512, True], r"lengths\[1\]=True: a size must be a whole number, not a bool"),
        ([512, "3"], r"lengths\[1\]='3': a size must be a whole number, not text"),
        ([512, None], r"lengths\[1\]=None: a size must be a whole number, not NoneType"),
        ([512, sympy.Symbol("s")], r"lengths\[1\]=s: one whole number is wanted here"),
        ([10**31], r"lengths\[0\]=1000.*: a size must be at most 1e\+30"),
        (numpy.array([512.0, 3.0]), r"lengths\[0\]=512.0: a size must be an int, not a float; pass 512"),
        (torch.tensor([1.5]), r"lengths\[0\]=1.5: a size must be an int, not a float"),
        (torch.tensor([512, 0]), r"lengths\[1\]=0: a size must be at least 1"),
        ([0, 512, 4096], r"lengths=\[0, 512, 4096\]: these look like cu_seqlens.*; give numpy.diff\(cu_seqlens\)"),
        (torch.tensor([0, 512], dtype=torch.int32), r"these look like cu_seqlens"),
        ([[512], [3584, 8]], r"lengths=\[\[512\], \[3584, 8\]\]: must be one list for the whole batch; join those of its rows"),
        (numpy.ones((2, 2), int), r"must be one list for the whole batch"),
        (torch.empty(2, dtype=torch.int, device="meta"), r"a tensor on meta has no values; pass a list of ints"),
        (4096, r"lengths=4096: must be a list of the tokens of each document; of one length is seq=4096"),
        (torch.tensor(4096), r"lengths=4096: must be a list .* seq=4096"),
        ("512", r"lengths='512': must be a list of the tokens of each document, such as \[512, 3584\]"),
        ({512: 2}, r"lengths=\{512: 2\}: must be a list"),
        ({512, 8}, r"must be a list"),
    ],
    ids=lambda value: None if isinstance(value, str) else f"{value!r:.30}".replace("\n", ""),
)  # fmt: skip
def test_what_is_no_list_of_lengths(lengths, says):
    for call in (MODELS["dense"].forward, MODELS["dense"].train_step):
        with pytest.raises((ValueError, TypeError), match=says):
            call(lengths=lengths)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: MODELS["dense"].forward(seq=8, lengths=[8]), r"seq=8 beside lengths=\[8\]: .*; leave one out"),
        (lambda: MODELS["dense"].train_step(seq=8, lengths=[8]), r"seq=8 beside lengths=\[8\]"),
        (lambda: MODELS["dense"].forward(), "seq= is missing, .*, or lengths=, those of each document"),
        (lambda: MODELS["dense"].forward(lengths=[8], batch=0), "batch=0"),
        (lambda: fk.load("vit-b-16").forward(lengths=[197]), r"lengths=\[197\]: an image has 197 tokens in vit-b-16; leave lengths= out"),
        (lambda: fk.load("gpt2").forward(lengths=[8, 1025]), "gpt2 has learned positions for 1024 tokens, and 1025 are asked for"),
        (lambda: whisper().forward(lengths=[8]), r"lengths=\[8\]: each text of .* has sound of its own, of one length; give seq="),
        (lambda: fk.load("resnet50").train_step().packed([8]), "resnet50.*: which model this is a step of is not known"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused(call, says):
    with pytest.raises((ValueError, TypeError), match=says):
        call()


def test_many_short_documents_fit_where_one_long_does_not():
    assert fk.load("gpt2").forward(lengths=[1024] * 3) == fk.load("gpt2").forward(seq=1024, batch=3)


@pytest.mark.parametrize("convention", ["EXACT", "TORCH", "PALM"])
def test_the_same_step_over_other_documents(convention):
    model, how = MODELS["experts"], {"recompute": "full", "early_stop": True, "capacity": 1.25}
    step = model.train_step(seq=64, batch=3, **how).under(convention)
    other = model.train_step(lengths=LENGTHS, **how).under(convention)
    assert step.packed(LENGTHS) == other and step.packed(LENGTHS).convention == step.convention
    lora = {"trained": fk.LoRA(rank=2)}
    dense = MODELS["dense"]
    assert dense.train_step(seq=8, **lora).packed(LENGTHS) == dense.train_step(lengths=LENGTHS, **lora)
