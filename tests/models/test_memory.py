"""Memory of a training step: counted on programs of torch tensor by tensor, and as papers print it."""

import weakref
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.utils.checkpoint import checkpoint_sequential

import flopkit as fk
from flopkit.models import Segments, StateSpace
from flopkit.models.stacks.parts import Run
from flopkit.models.training.activations import of_layers
from flopkit.models.training.finetuning import training_of
from flopkit.training import PRECISIONS

transformers = pytest.importorskip("transformers", reason='needs transformers: pip install "flopkit[peers]"')

SEQ, BATCH, WIDTH, VOCAB, HEADS = 16, 2, 32, 96, 4
TOKENS = SEQ * BATCH
LLAMA = {
    "model_type": "llama", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 80, "num_hidden_layers": 4,
    "num_attention_heads": HEADS, "num_key_value_heads": 2, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
GPT = {
    "model_type": "gpt2", "vocab_size": VOCAB, "n_embd": WIDTH, "n_layer": 4, "n_head": HEADS, "n_positions": 64, "resid_pdrop": 0.0,
    "embd_pdrop": 0.0, "attn_pdrop": 0.0, "bos_token_id": 1, "eos_token_id": 2, "activation_function": "gelu", "loss_type": "ForCausalLM",
}  # fmt: skip
BERT = {
    "model_type": "bert", "vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 80, "num_hidden_layers": 4,
    "num_attention_heads": HEADS, "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
VIT = {
    "model_type": "vit", "hidden_size": WIDTH, "intermediate_size": 80, "num_hidden_layers": 4, "num_attention_heads": HEADS,
    "image_size": 16, "patch_size": 4, "num_labels": 10, "hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0,
}  # fmt: skip
DEEPSEEK = LLAMA | {
    "model_type": "deepseek_v3", "num_key_value_heads": HEADS, "q_lora_rank": 24, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "moe_intermediate_size": 24, "n_routed_experts": 8, "num_experts_per_tok": 2, "n_shared_experts": 1, "n_group": 2,
    "topk_group": 1, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1,
}  # fmt: skip
EXPERTS = LLAMA | {"num_experts_per_tok": 2, "moe_intermediate_size": 24}
MIXTRAL = EXPERTS | {"model_type": "mixtral", "num_local_experts": 8, "intermediate_size": 24, "sliding_window": None}
QWEN3 = EXPERTS | {"model_type": "qwen3_moe", "num_experts": 8, "head_dim": 8, "norm_topk_prob": False}
QWEN2 = QWEN3 | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 40}
T5 = {
    "model_type": "t5", "vocab_size": VOCAB, "d_model": WIDTH, "d_kv": 16, "d_ff": 80, "num_layers": 3, "num_decoder_layers": 2,
    "num_heads": HEADS, "relative_attention_num_buckets": 32, "dropout_rate": 0.0, "feed_forward_proj": "relu", "decoder_start_token_id": 0,
    "pad_token_id": 0,
}  # fmt: skip
GATED = T5 | {"feed_forward_proj": "gated-silu", "tie_word_embeddings": False}
CLASSES = {"bert": "AutoModelForMaskedLM", "vit": "AutoModelForImageClassification", "t5": "AutoModelForSeq2SeqLM"}
TURNED = {"llama": WIDTH // HEADS, "deepseek_v3": 4}  # features of a head that are turned by their position
ATTENTION = {"flash": "sdpa", "math": "eager"}
LOSS_SCALE = 4  # bytes: the mean over the labels keeps how many there are


def built(sizes, kernel="flash", experts="grouped_mm"):
    config = transformers.AutoConfig.for_model(**sizes)
    made = getattr(transformers, CLASSES.get(sizes["model_type"], "AutoModelForCausalLM"))
    how = {"experts_implementation": experts} if "num_experts_per_tok" in sizes else {}
    model = made.from_config(config, attn_implementation=ATTENTION[kernel], **how).train()
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    if sizes["model_type"] == "vit":
        return model, lambda: model(pixel_values=torch.zeros(BATCH, 3, 16, 16), labels=ids[:, 0]).loss
    more = {} if sizes["model_type"] == "bert" else {"use_cache": False}
    return model, lambda: model(input_ids=ids, labels=ids, **more).loss


def kept(model, run):
    """Bytes of the storages that autograd keeps while *run* runs, weights and integers left out."""
    own = {each.untyped_storage().data_ptr() for each in (*model.parameters(), *model.buffers())}
    found = {}

    def pack(tensor):
        storage = tensor.untyped_storage()
        if (tensor.is_floating_point() or tensor.is_complex()) and storage.data_ptr() not in own:
            found[storage.data_ptr()] = tensor  # kept alive, so that no address comes twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        out = run()
    assert out.requires_grad
    return sum(tensor.untyped_storage().nbytes() for tensor in found.values())


class Adapted(torch.nn.Module):
    """A frozen dense layer with an adapter beside it."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base
        self.low = torch.nn.Linear(base.in_features, rank, bias=False)
        self.high = torch.nn.Linear(rank, base.out_features, bias=False)

    def forward(self, x):
        return self.base(x) + self.high(self.low(x))


def ours(sizes, **more):
    seq = None if sizes["model_type"] == "vit" else SEQ  # an image says how many tokens it is
    return fk.from_hf(sizes).train_memory(seq=seq, batch=BATCH, precision="fp32", **more)


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_gpt_2_keeps_what_the_list_says(kernel):
    memory = ours(GPT, kernel=kernel)
    assert kept(*built(GPT, kernel)) == memory.layers + memory.ends + LOSS_SCALE
    assert sum(each.bytes for each in memory.kept) * 4 == memory.layers


@pytest.mark.parametrize("kernel", ["flash", "math"])
@pytest.mark.parametrize("sizes", [BERT, VIT], ids=["bert", "vit"])
def test_encoders_keep_what_the_list_says(sizes, kernel):
    """With the head for masked words, and with that for classes, which begins with the pixels of the images."""
    memory = ours(sizes, kernel=kernel)
    assert kept(*built(sizes, kernel)) == memory.layers + memory.ends + LOSS_SCALE
    assert sum(each.bytes for each in memory.kept) * 4 == memory.layers


@pytest.mark.parametrize("sizes", [BERT, VIT], ids=["bert", "vit"])
def test_an_encoder_whose_layers_are_checkpointed(sizes):
    model, run = built(sizes)
    model.activation_checkpointing_enable({"use_reentrant": False})
    memory = ours(sizes, recompute="full")
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE


@pytest.mark.parametrize("sizes", [BERT | {"tie_word_embeddings": False}, VIT], ids=["bert", "vit"])
def test_an_encoder_whose_head_alone_is_trained(sizes):
    model, run = built(sizes)
    model.base_model.requires_grad_(False)
    memory = ours(sizes, trained="head")
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE


def test_gpt_2_as_published_keeps_three_tensors_more():
    """Its GELU is written out, x³, tanh and products, and each of these operators keeps something of its own."""
    memory = ours(GPT)
    found = kept(*built(GPT | {"activation_function": "gelu_new"}))
    assert found - LOSS_SCALE - memory.layers - memory.ends == 4 * 3 * TOKENS * 4 * WIDTH * 4


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_llama_keeps_what_the_list_says_and_what_transformers_writes_out(kernel):
    """The norm is written out as two products, of which each keeps an input; without flash, keys and values are repeated for each head."""
    memory = ours(LLAMA, kernel=kernel)
    norms, angles = (2 * 4 + 1) * TOKENS * WIDTH * 4, 2 * SEQ * WIDTH // HEADS * 4
    repeated = 0 if kernel == "flash" else 4 * 2 * TOKENS * WIDTH // 2 * 4
    assert kept(*built(LLAMA, kernel)) == memory.layers + memory.ends + LOSS_SCALE + norms + angles + repeated


@pytest.mark.parametrize("sizes", [T5, GATED], ids=["relu", "gated"])
def test_t5_keeps_what_the_list_says_and_what_transformers_writes_out(sizes):
    """Cross-attention has the encoder's keys and values, and its output is there once for all layers of the decoder. A norm is written out
    as in Llama: two in each of three layers and three in each of two, and one behind each stack."""
    memory = ours(sizes, kernel="math")
    norms = (2 * 3 + 3 * 2 + 2) * TOKENS * WIDTH * 4
    assert kept(*built(sizes, "math")) == memory.layers + memory.ends + LOSS_SCALE + norms


def test_cross_attention_keeps_keys_and_values_as_long_as_the_encoder_s_text():
    model, longer = fk.from_hf(T5), 24
    run = Run(BATCH, SEQ, SEQ, encoded=longer, dtype="fp32")
    layers = of_layers(training_of(model, "all"), run, "none", "math", False).there
    theirs, _ = built(T5, "math")
    ids = torch.zeros(BATCH, SEQ, dtype=torch.long)
    found = kept(theirs, lambda: theirs(input_ids=ids.new_zeros(BATCH, longer), labels=ids, use_cache=False).loss)
    norms = ((2 * 3 + 1) * longer + (3 * 2 + 1) * SEQ) * BATCH * WIDTH * 4
    assert found == layers + ours(T5, kernel="math").ends + LOSS_SCALE + norms


@pytest.mark.parametrize("sizes", [T5, GATED], ids=["relu", "gated"])
def test_t5_with_every_layer_checkpointed(sizes):
    """Both stacks keep their learned biases. transformers hands on biases of zeros for cross-attention and a mask for each sequence, too."""
    model, run = built(sizes, "math")
    model.activation_checkpointing_enable({"use_reentrant": False})
    memory = ours(sizes, kernel="math", recompute="full")
    norms, zeros, mask = 2 * TOKENS * WIDTH * 4, HEADS * SEQ**2 * 4, BATCH * SEQ**2 * 4
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE + norms + zeros + mask
    # the decoder's layer is the larger one; its input comes back as the one that is kept
    assert memory.again == sum(each.bytes for each in memory.kept) - TOKENS * WIDTH * 4


def test_t5_of_one_layer_in_each_stack_hands_on_no_biases():
    one = T5 | {"num_layers": 1, "num_decoder_layers": 1}
    model, run = built(one, "math")
    model.activation_checkpointing_enable({"use_reentrant": False})
    memory = ours(one, kernel="math", recompute="full")
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE + 2 * TOKENS * WIDTH * 4 + BATCH * SEQ**2 * 4


@pytest.mark.parametrize("kernel", ["flash", "math"])
@pytest.mark.parametrize("sizes", [MIXTRAL, QWEN3, QWEN2], ids=["mixtral", "qwen3-moe", "qwen2-moe"])
def test_experts_keep_what_the_list_says_and_what_transformers_writes_out(sizes, kernel):
    """Grouped products of the tokens in the order of their experts. Norms, angles and repeated heads as in Llama, Qwen3's norms of queries
    and keys among them. Mixtral divides the chosen probabilities by their sum, in place, which keeps them once more, and the sum."""
    memory, layers, family = ours(sizes, kernel=kernel), 4, sizes["model_type"]
    norms = (2 * layers + 1) * TOKENS * WIDTH + (layers * TOKENS * (HEADS + 2) * 8 if family == "qwen3_moe" else 0)
    angles, repeated = 2 * SEQ * WIDTH // HEADS, 0 if kernel == "flash" else layers * 2 * TOKENS * WIDTH // 2
    divided = layers * TOKENS * (2 + 1) if family == "mixtral" else 0
    found = kept(*built(sizes, kernel))
    assert found == memory.layers + memory.ends + LOSS_SCALE + (norms + angles + repeated + divided) * 4


@pytest.mark.parametrize(("experts", "each"), [("eager", WIDTH), ("batched_mm", 3 * WIDTH * 24)])
def test_experts_by_other_algorithms_keep_more(experts, each):
    """For each chosen expert of a token: the loop over experts its weighted output, of which ``index_add_`` reads the shape alone; the
    batched products a copy of its three matrices."""
    grouped, other = (kept(*built(MIXTRAL, experts=name)) for name in ("grouped_mm", experts))
    assert other - grouped == 4 * 2 * TOKENS * each * 4


@pytest.mark.parametrize("kernel", ["flash", "math"])
@pytest.mark.parametrize("q_lora", [24, None])
@pytest.mark.parametrize("family", ["deepseek_v2", "deepseek_v3"])
def test_latent_attention_keeps_what_the_list_says_and_what_transformers_writes_out(family, q_lora, kernel):
    """Norms as in Llama, those of the latents among them. What transformers cuts out of a wider tensor without a copy holds all of it: the
    latent of keys and values the rope key beside it and, with flash, the values the keys that ``kv_up`` makes beside them. A flash kernel
    lays its output out as its queries, which a concatenation has put head by head; so the output is copied for the next product."""
    layers, nope, rope, v_head_dim = 4, 8, 4, 12 if kernel == "flash" else 8  # flash on CPUs has one head dimension
    sizes = DEEPSEEK | {"model_type": family, "head_dim": rope, "q_lora_rank": q_lora, "v_head_dim": v_head_dim}
    sizes.pop("num_nextn_predict_layers")
    memory = ours(sizes, kernel=kernel)
    norms = (2 * layers + 1) * TOKENS * WIDTH + layers * TOKENS * ((q_lora or 0) + 16)
    views = layers * TOKENS * (rope + (HEADS * nope if kernel == "flash" else 0))
    copied = layers * TOKENS * HEADS * v_head_dim if kernel == "flash" else 0
    angles = (2 if family == "deepseek_v3" else 1) * SEQ * rope  # V2 turns by half as many complex numbers
    divided = 3 * TOKENS * (2 + 1) if family == "deepseek_v3" else 0  # in the layers with experts, as Mixtral
    more = norms + views + copied + angles + divided
    assert kept(*built(sizes, kernel)) == memory.layers + memory.ends + LOSS_SCALE + more * 4


def predicting_more(sizes, kernel):
    """The same model with transformers' layer for multi-token prediction behind it, and the sum of both losses."""
    model, _ = built(sizes, kernel)
    model.config.num_mtp_layers = 1
    more = transformers.modeling_layers.MtpModel(model, 1).train()
    ids, places = torch.zeros(BATCH, SEQ, dtype=torch.long), torch.arange(SEQ)[None]

    def run():
        found = model(input_ids=ids, labels=ids, use_cache=False, output_hidden_states=True)
        hidden = more.forward_layer(0, found.hidden_states[-1], places, None, input_ids=ids)
        logits = more._project_to_logits(hidden)
        return found.loss + 0.3 * model.loss_function(logits, ids, VOCAB)

    return torch.nn.ModuleList([model, more]), run


@pytest.mark.parametrize("kernel", ["flash", "math"])
@pytest.mark.parametrize("sizes", [LLAMA, DEEPSEEK], ids=["llama", "deepseek-v3"])
def test_multi_token_prediction_keeps_one_layer_more_and_what_joins_it(sizes, kernel):
    """One layer more as transformers writes it out, its three norms and angles too."""
    plain = fk.from_hf(sizes)
    layer = plain.blocks[-1][0]
    without, with_it = (
        replace(plain, mtp=mtp).train_memory(seq=SEQ, batch=BATCH, precision="fp32", kernel=kernel)
        for mtp in (None, layer)
    )
    alone = replace(plain, blocks=((layer, 1),), order=()).train_memory(
        seq=SEQ, batch=BATCH, precision="fp32", kernel=kernel
    )
    longer = kept(*built(sizes | {"num_hidden_layers": 5}, kernel))
    norms, angles = 3 * TOKENS * WIDTH * 4, 2 * SEQ * TURNED[sizes["model_type"]] * 4
    joined = with_it.ends - without.ends - alone.layers
    assert with_it.layers == without.layers
    assert kept(*predicting_more(sizes, kernel)) == longer + joined + LOSS_SCALE + norms + angles


def test_with_every_layer_checkpointed_only_their_inputs_are_kept():
    model, run = built(GPT)
    model.activation_checkpointing_enable({"use_reentrant": False})
    memory = ours(GPT, recompute="full")
    assert memory.layers == 4 * TOKENS * WIDTH * 4
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE
    layer = sum(each.bytes for each in memory.kept)
    assert memory.again == layer - TOKENS * WIDTH * 4
    assert memory.activations == memory.layers + max(memory.ends, memory.again)


def in_segments(sizes, segments, **more):
    """The layers of a model of transformers, which reads its input from a table, run by checkpoint_sequential, and a sum as the loss."""
    model, _ = built(sizes)
    x = torch.zeros(BATCH, SEQ, WIDTH).requires_grad_()
    blocks = list(model.transformer.h)
    return model, lambda: checkpoint_sequential(blocks, segments, x, use_reentrant=False, **more).sum()


@pytest.mark.parametrize("every", [1, 2, 4])
def test_segments_of_layers(every):
    """checkpoint_sequential keeps all of its last segment and computes the others again, up to the last product."""
    model, run = in_segments(GPT, 4 // every)
    memory, step = (
        ours(GPT, recompute=Segments(every)),
        fk.from_hf(GPT).train_step(seq=SEQ, batch=BATCH, recompute=Segments(every), early_stop=True),
    )
    assert kept(model, run) == memory.layers
    with fk.counting() as report:
        in_segments(GPT, 4 // every)[1]().backward()
    # without a head, whose FLOPs a Step has
    assert report.recompute.flops == step.under("TORCH").recompute.flops
    layers = fk.from_hf(GPT).train_step(seq=SEQ, batch=BATCH, recompute="full").checkpointed.flops
    whole = fk.from_hf(GPT).train_step(seq=SEQ, batch=BATCH, recompute=Segments(every)).checkpointed.flops
    assert whole == layers * (4 - every) // 4


def test_segments_of_different_layers():
    """Two dense layers and four of experts: the largest segment that comes back may not be the last one."""
    sizes = {
        "d_model": 32,
        "heads": 4,
        "vocab": 96,
        "layers": 6,
        "d_ff": 4096,
        "experts": fk.models.Experts(experts=4, top_k=1, d_ff=8),
    }
    model = fk.models.transformer(name="mixed", dense=2, **sizes)
    large, small = (
        sum(each.bytes for each in fk.models.Model(**{**vars(model), "blocks": (block,)}).train_memory(seq=SEQ).kept)
        for block in model.blocks
    )
    edge = SEQ * 32 * 2
    assert large > 10 * small
    for order, inputs in (((0, 0, 1, 1, 1, 1), 0), ((1, 1, 0, 0, 1, 1), 1)):
        memory = fk.models.Model(**{**vars(model), "order": order}).train_memory(seq=SEQ, recompute=Segments(layers=2))
        assert memory.layers == 2 * edge + 2 * small
        # the segment of large layers comes back when those above it are gone; its own input is in its list
        assert memory.layers + memory.again == inputs * edge + 2 * large


@pytest.mark.parametrize("reentrant", [True, False])
def test_early_stop_is_what_torch_does(reentrant):
    """Llama's last product of each layer is computed again by the older checkpoint only."""
    model, run = built(LLAMA)
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    with fk.counting() as report:
        run().backward()
    step = fk.from_hf(LLAMA).train_step(seq=SEQ, batch=BATCH, recompute="full", early_stop=not reentrant)
    assert report.recompute.flops == step.under("TORCH").recompute.flops
    assert report.model_flops == step.under("TORCH").model_flops


MAMBA = {
    "model_type": "mamba2", "vocab_size": VOCAB, "hidden_size": WIDTH, "num_hidden_layers": 3, "num_heads": 4, "head_dim": 16, "state_size": 24,
    "n_groups": 2, "expand": 2, "conv_kernel": 4, "chunk_size": 8, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip


@pytest.mark.parametrize("sizes", [LLAMA, MAMBA], ids=["llama", "mamba2"])
def test_early_stop_leaves_out_the_last_product_whatever_its_name(sizes):
    """The difference alone, for transformers' Mamba-2 executes more than the algorithm."""
    executed = {}
    for reentrant in (True, False):
        model, run = built(sizes, "math")
        model.activation_checkpointing_enable({"use_reentrant": reentrant})
        with fk.counting() as report:
            run().backward()
        executed[reentrant] = report.recompute.flops
    last = 2 * TOKENS * {"llama": 80, "mamba2": 64}[sizes["model_type"]] * WIDTH * sizes["num_hidden_layers"]
    whole, short = (
        fk.from_hf(sizes).train_step(seq=SEQ, batch=BATCH, recompute="full", early_stop=stop).recompute.flops
        for stop in (False, True)
    )
    assert whole - short == last == executed[True] - executed[False]


BEHIND = {  # what reads the output of the last product: a norm, the weights of the experts
    "gemma2": {
        "head_dim": 8, "query_pre_attn_scalar": 8, "sliding_window": 64, "max_position_embeddings": 128, "attn_logit_softcapping": None,
        "final_logit_softcapping": None,
    },
    "mixtral": {"num_local_experts": 4, "num_experts_per_tok": 2, "sliding_window": None},
}  # fmt: skip


@pytest.mark.parametrize("family", BEHIND)
@pytest.mark.parametrize("reentrant", [True, False])
def test_early_stop_leaves_out_no_product_whose_output_is_read(family, reentrant):
    sizes = LLAMA | {"model_type": family} | BEHIND[family]
    model, run = built(sizes, "math")
    model.activation_checkpointing_enable({"use_reentrant": reentrant})
    with fk.counting() as report:
        run().backward()
    step = fk.from_hf(sizes).train_step(seq=SEQ, batch=BATCH, recompute="full", early_stop=not reentrant)
    assert report.recompute.flops == step.under("TORCH").checkpointed.flops


def test_a_product_whose_output_a_norm_or_a_router_reads_is_computed_again():
    experts = fk.models.Experts(experts=4, top_k=2, d_ff=8)
    for sizes in ({"norms": "both"}, {"norms": "post"}, {"experts": experts, "d_ff": None}):
        model = fk.models.transformer(**{"d_model": 32, "heads": 4, "vocab": 96, "layers": 2, "d_ff": 80} | sizes)
        whole, early = (
            model.train_step(seq=SEQ, recompute="full", early_stop=stop).hardware_flops for stop in (False, True)
        )
        assert whole == early


def test_korthikanti_2022_by_its_closed_form():
    """Equations 1, 2 and 6: 34 + 5as/h bytes a token and feature; 34 with selective recompute, 2 with full. They leave out statistics."""
    for d_model, heads, layers in ((6144, 64, 48), (12288, 96, 96), (20480, 128, 105), (25600, 160, 128)):
        gpt = fk.models.transformer(
            d_model=d_model,
            heads=heads,
            layers=layers,
            vocab=51200,
            d_ff=4 * d_model,
            act="gelu",
            gated=False,
            rotary=0,
            norm="layer",
        )
        seq, unit = 2048, 2048 * d_model * layers
        statistics = layers * 2 * 2 * 2048 * 4
        memory = {
            policy: gpt.train_memory(seq=seq, recompute=policy, kernel="math", dropout=True)
            for policy in ("none", "selective", "full")
        }
        assert memory["none"].layers - statistics == 34 * unit + 5 * heads * seq * 2048 * layers
        assert memory["selective"].layers - statistics == 34 * unit
        assert memory["full"].layers == 2 * unit
        # section 4.3: 4sbh(1 + v/h) for the last norm, the head and the loss
        assert memory["none"].ends - 2 * 2048 * 4 == 4 * 2048 * (d_model + 51200)


@pytest.mark.parametrize(("precision", "each"), [("fp32", 16), ("bf16", 8)])
def test_states_are_what_torch_holds(precision, each):
    model, run = built(GPT)
    model = model.to({"fp32": torch.float32, "bf16": torch.bfloat16}[precision])
    optimizer = torch.optim.AdamW(model.parameters())
    run().backward()
    optimizer.step()
    states = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    held = sum(tensor.nbytes for tensor in (*model.parameters(), *(p.grad for p in model.parameters()), *states))
    memory = fk.from_hf(GPT).train_memory(seq=SEQ, precision=precision)
    assert held == memory.states == each * fk.from_hf(GPT).params


def test_states_of_mixed_precision():
    """ZeRO's 16 bytes, Megatron-Core's 18; 8-bit Adam saves 6 of Adam's 8."""
    model = fk.from_hf(GPT)
    for precision, optimizer, each in (
        ("mixed", "adam", 16),
        ("mixed-fp32-gradients", "adam", 18),
        ("mixed", "adam-8bit", 10),
        ("mixed-fp32-gradients", "adam-16bit", 14),
    ):
        assert model.train_memory(seq=SEQ, precision=precision, optimizer=optimizer).states == each * model.params


@pytest.mark.parametrize("decay", [False, True])
def test_a_step_of_adam_is_what_torch_does(decay):
    weights = [torch.nn.Parameter(torch.ones(8, 4)), torch.nn.Parameter(torch.ones(5))]
    optimizer = torch.optim.AdamW(weights, weight_decay=0.1 if decay else 0, foreach=False)
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    with fk.counting() as report:
        optimizer.step()
    scalars = 2 * 1  # the number of the step, a tensor for each weight
    cost = fk.training.adam_step(params=37, precision="fp32", weight_decay=decay)
    assert report.optimizer.vector_flops - scalars == cost.vector_flops
    assert cost.flops == report.optimizer.flops == 0


def test_bytes_of_a_step_of_adam():
    moved = {
        name: fk.training.adam_step(params=10, precision=name).bytes
        for name in ("fp32", "mixed", "mixed-fp32-gradients", "bf16")
    }
    assert moved == {"fp32": 280, "mixed": 280, "mixed-fp32-gradients": 300, "bf16": 140}


def test_a_sweep_is_its_points():
    import numpy as np

    model, seqs = fk.load("deepseek-v3"), np.array([1, 4096, 100_000])
    for recompute in ("none", "selective", "full"):
        swept = model.train_memory(seq=seqs, recompute=recompute).total
        assert [model.train_memory(seq=int(seq), recompute=recompute).total for seq in seqs] == swept.tolist()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: m.train_memory(seq=8, recompute="some"), "recompute='some'"),
        (lambda m: m.train_memory(seq=8, recompute=Segments(5)), "must divide the 32 layers"),
        (lambda m: m.train_step(seq=8, recompute=Segments(5)), "must divide the 32 layers"),
        (lambda m: m.train_memory(seq=8, precision="fp7"), "precision='fp7'"),
        (lambda m: m.train_memory(seq=8, optimizer="lion"), "optimizer='lion'"),
        (lambda m: m.train_memory(seq=8, kernel="fast"), "kernel='fast'"),
        (lambda m: m.train_memory(seq=0), "seq=0"),
        (lambda m: fk.load("t5-base").train_memory(seq=8), "learned biases .* give kernel='math'"),
        (
            lambda m: fk.load("t5-base").train_memory(seq=8, kernel="math", recompute=Segments(layers=2)),
            "t5-base has two",
        ),
        (lambda m: fk.load("t5-base").train_memory(seq=8, kernel="math", trained="head"), "only trained='all'"),
        (lambda m: fk.training.adam_step(params=8, precision="fp7"), "precision='fp7'"),
    ],
)
def test_what_makes_no_sense_is_refused(call, message):
    with pytest.raises((ValueError, TypeError), match=message):
        call(fk.load("llama-3-8b"))


@pytest.mark.parametrize("targets", [("q_proj", "v_proj"), ("q_proj", "down_proj"), ("gate_proj", "o_proj")], ids=str)
def test_beside_adapters_no_input_of_a_frozen_layer_is_kept(targets):
    """What transformers' Llama keeps with adapters written out, beside the list: the first layer's inputs that lead to nothing trained."""
    rank = 4
    model, run = built(LLAMA)
    model.requires_grad_(False)
    for layer in model.model.layers:
        for group in (layer.self_attn, layer.mlp):
            for name in targets:
                if hasattr(group, name):
                    setattr(group, name, Adapted(getattr(group, name), rank))
    lora = fk.LoRA(rank=rank, targets=targets)
    memory, full = ours(LLAMA, trained=lora), ours(LLAMA)
    first = TOKENS * WIDTH * 4 + TOKENS * 4  # the input of the first norm and its statistics
    if (
        "q_proj" not in targets
    ):  # queries, keys, values and the log-sums of the scores lie before anything that is trained, too
        first += (WIDTH + 2 * WIDTH // 2) * TOKENS * 4 + TOKENS * HEADS * 4
    angles = 2 * SEQ * WIDTH // HEADS * 4
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE + angles - first
    adapters = fk.from_hf(LLAMA).trained_params(lora) * 4
    assert (memory.weights, memory.gradients, memory.optimizer) == (full.weights + adapters, adapters, 2 * adapters)


def test_an_adapter_of_the_dense_layers_keeps_nothing_in_layers_of_experts():
    """What it keeps beside an adapter of attention: one layer of four has a ``gate_proj``."""
    sizes = {name: value for name, value in DEEPSEEK.items() if name != "num_nextn_predict_layers"} | {"head_dim": 4}
    found, told = [], []
    for targets in (("o_proj",), ("o_proj", "gate_proj")):
        model, run = built(sizes, "math")
        model.requires_grad_(False)
        for layer in model.model.layers:
            for group in (layer.self_attn, layer.mlp):
                for name in targets:
                    if hasattr(group, name):
                        setattr(group, name, Adapted(getattr(group, name), 4))
        found.append(kept(model, run))
        told.append(ours(sizes, kernel="math", trained=fk.LoRA(rank=4, targets=targets)).layers)
    assert found[1] - found[0] == told[1] - told[0] == TOKENS * (WIDTH + 4) * 4


HYBRID = QWEN2 | {
    "model_type": "qwen3_next", "head_dim": 16, "num_hidden_layers": 1, "linear_num_value_heads": 6, "linear_num_key_heads": 2,
    "linear_key_head_dim": 7, "linear_value_head_dim": 12, "linear_conv_kernel_dim": 4, "layer_types": ["linear_attention"],
}  # fmt: skip


def surplus(mixer, seq, dtype):
    """Numbers of 4 bytes that transformers keeps beside the list: the gated norm's output before its weight, for the norm is written out;
    and in fp32, where nothing is copied to be so, all of a wider tensor of which only a part is read."""
    tokens, wide = BATCH * seq, dtype == "fp32"
    if isinstance(mixer, StateSpace):
        return tokens * (mixer.heads * mixer.head_dim + (2 * mixer.groups * mixer.state if wide else 0))
    values = tokens * mixer.heads * mixer.v_dim
    cut = wide and mixer.heads == mixer.k_heads  # else the heads of queries and keys are repeated, and all is copied
    return (values if wide else values // 2) + (values + tokens * mixer._channels if cut else 0)


LENGTHS = [(family, dtype, seq) for family, dtype, lengths in (
    ("mamba2", "fp32", (9, 16, 20, 64)), ("mamba2", "bf16", (9, 16, 20, 64)),  # with a single chunk some layouts are the same
    ("qwen3_next", "fp32", (1, 20, 140)), ("qwen3_next", "bf16", (1, 20, 64, 128, 140)),  # padding brings keys and queries in order
) for seq in lengths]  # fmt: skip


@pytest.mark.parametrize(("family", "dtype", "seq"), LENGTHS)
@pytest.mark.parametrize("heads", ["more values", "as many"])
def test_layers_with_a_state_keep_what_the_list_says(family, dtype, seq, heads):
    """transformers' modules in which the algorithm is written out, with a last chunk that is full or not."""
    if family == "mamba2":
        sizes = MAMBA | {"num_hidden_layers": 1, "n_groups": 4 if heads == "as many" else 2}
    else:
        sizes = HYBRID | {"linear_num_key_heads": 6 if heads == "as many" else 2}
    model, _ = built(sizes, "math")
    mixer = model.backbone.layers[0].mixer if family == "mamba2" else model.model.layers[0].linear_attn
    torch_dtype = {"fp32": torch.float32, "bf16": torch.bfloat16}[dtype]
    x = torch.ones(BATCH, seq, WIDTH, dtype=torch_dtype, requires_grad=True)
    ours = fk.from_hf(sizes).blocks[0][0].mixer
    listed = sum(each.bytes for each in ours.kept(Run(BATCH, seq, seq, dtype=dtype), WIDTH, "math", False))
    found = kept(mixer.to(torch_dtype), lambda: mixer(x))
    assert found == listed + x.nbytes + 4 * surplus(ours, seq, dtype)


def test_a_model_with_states_keeps_what_its_layers_keep():
    """Mamba-2 as a whole, with norms as in Llama."""
    memory, mixer = ours(MAMBA, kernel="math"), fk.from_hf(MAMBA).blocks[0][0].mixer
    more = (3 + 1) * WIDTH * TOKENS + 3 * surplus(mixer, SEQ, "fp32")
    assert kept(*built(MAMBA, "math")) == memory.layers + memory.ends + LOSS_SCALE + 4 * more
    full = ours(MAMBA, kernel="math", recompute="full")
    assert full.layers == 3 * TOKENS * WIDTH * 4
    for sizes in (MAMBA, HYBRID):
        with pytest.raises(ValueError, match="kernel='flash': what a fused kernel keeps of .* give kernel='math'"):
            ours(sizes)


def test_beside_adapters_of_a_state_nothing_is_kept_for_frozen_weights():
    """Mamba-2 with adapters beside its first projections: no input of its skip, and nothing of the first norm."""
    model, run = built(MAMBA, "math")
    model.requires_grad_(False)
    for layer in model.backbone.layers:
        layer.mixer.in_proj = Adapted(layer.mixer.in_proj, 4)
    memory, mixer = (
        ours(MAMBA, kernel="math", trained=fk.LoRA(rank=4, targets="in_proj")),
        fk.from_hf(MAMBA).blocks[0][0].mixer,
    )
    wider, first = 3 * (surplus(mixer, SEQ, "fp32") - TOKENS * 64), TOKENS * WIDTH + TOKENS
    assert kept(model, run) == memory.layers + memory.ends + LOSS_SCALE + 4 * (wider - first)


def autocast(run):
    def inside():
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run()

    return inside


def test_autocast_keeps_a_copy_in_16_bits_of_every_matrix_and_of_what_each_dense_layer_reads():
    """Each of q, k, v, gate and up casts the fp32 output of the norm for itself. Norms and angles are written out as in fp32."""
    model, run = built(LLAMA)
    memory = fk.from_hf(LLAMA).train_memory(seq=SEQ, batch=BATCH, precision="autocast")
    written_out = (2 * 4 + 1) * TOKENS * WIDTH * 4 + 2 * SEQ * WIDTH // HEADS * 4
    assert kept(model, autocast(run)) == memory.layers + memory.ends + LOSS_SCALE + written_out
    assert memory.states == 16 * fk.from_hf(LLAMA).params


def test_autocast_of_a_dense_layer_for_queries_keys_and_values_together_casts_its_input_once():
    """GPT-2's one product makes all three, so two copies of its input fewer are kept in each of four layers."""
    memory = fk.from_hf(GPT).train_memory(seq=SEQ, batch=BATCH, precision="autocast")
    model, run = built(GPT)
    assert kept(model, autocast(run)) == memory.layers + memory.ends + LOSS_SCALE - 4 * 2 * TOKENS * WIDTH * 2


def test_autocast_holds_its_copies_of_checkpointed_layers_until_the_forward_pass_ends():
    """So a second pass inside of the same context casts no weight again; and the account has all matrices among the ends."""
    from torch.utils._python_dispatch import TorchDispatchMode

    class Casts(TorchDispatchMode):
        found = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            if func is torch.ops.aten._to_copy.default and any(args[0] is weight for weight in weights):
                self.found += 1
            return func(*args, **(kwargs or {}))

    model, run = built(LLAMA)
    model.activation_checkpointing_enable({"use_reentrant": False})
    weights = [each for name, each in model.named_parameters() if "proj" in name]
    with torch.autocast("cpu", dtype=torch.bfloat16), Casts() as casts:
        run()
        run()
    assert casts.found == len(weights) == 7 * 4
    plain, full = (
        fk.from_hf(LLAMA).train_memory(seq=SEQ, recompute=each, precision="autocast") for each in ("none", "full")
    )
    assert full.ends - plain.ends == 2 * sum(weight.numel() for weight in weights)


@pytest.mark.parametrize(
    ("sizes", "more", "what"),
    [
        (BERT, {}, "a head of several layers"), (T5, {"kernel": "math"}, "an encoder"), (MIXTRAL, {}, "Experts"), (VIT, {}, "patches"),
        (LLAMA, {"trained": "head"}, "trained='all'"),
    ],
)  # fmt: skip
def test_autocast_of_what_is_not_known_is_refused(sizes, more, what):
    seq = None if sizes is VIT else SEQ
    with pytest.raises(ValueError, match="autocast.*" + what):
        fk.from_hf(sizes).train_memory(seq=seq, precision="autocast", **more)


def test_bytes_a_parameter_of_each_precision():
    """DeepSpeed's and Megatron's 16 and 18, 20 with both gradients (MS-AMP's table), fp32 weights under autocast 16, all bf16 8."""
    llama = fk.load("llama-3-8b")
    found = {
        name: llama.train_memory(seq=1, precision=name).states / llama.params for name in PRECISIONS if name != "fsdp"
    }
    assert found == {
        "fp32": 16,
        "mixed": 16,
        "mixed-fp32-gradients": 18,
        "mixed-both-gradients": 20,
        "autocast": 16,
        "bf16": 8,
    }


def test_the_peak_has_the_gradients_of_the_loss():
    """The start of a real backward pass: beside the log-probabilities, their gradient and that of the logits are there at once."""
    tokens, vocab = 7, 50
    alive, most = Counter(), [0]  # tensors by where their numbers are: a detached one has those of another

    class Watched(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if isinstance(result, torch.Tensor) and result.shape == (tokens, vocab):
                alive[result.data_ptr()] += 1
                weakref.finalize(result, alive.subtract, [result.data_ptr()])
                most[0] = max(most[0], held())
            return result

    def held():
        return 4 * tokens * vocab * sum(count > 0 for count in alive.values())

    hidden = torch.randn(tokens, 8, requires_grad=True)
    weight = torch.randn(vocab, 8, requires_grad=True)
    with Watched():
        loss = torch.nn.functional.cross_entropy(hidden @ weight.T, torch.zeros(tokens, dtype=torch.int64))
        kept = held()
        loss.backward()
    llama = fk.models.transformer(
        d_model=8, layers=1, d_ff=16, vocab=vocab, attention=fk.models.Attention(heads=1, kv_heads=1, head_dim=8)
    )
    memory = llama.train_memory(seq=tokens)
    assert kept == 4 * tokens * vocab and most[0] == 12 * tokens * vocab
    assert memory.loss == most[0] - kept
    assert memory.peak == memory.total - memory.activations + memory.layers + max(
        memory.ends + memory.loss, memory.again
    )
    assert str(memory.peak) in repr(memory.table().rows) and memory.peak > memory.total
    *shares, of_peak = [row.get("share") for row in memory.table().rows]
    assert (
        of_peak is None and shares[-1] == 1 and sum(shares[:-1]) == pytest.approx(1)
    )  # the peak is no share of the total


def test_layers_that_run_again_can_take_more_than_the_loss():
    """Then nothing of the loss is there at the peak: it is that of the total."""
    wide = fk.models.transformer(
        d_model=512, layers=4, d_ff=4096, vocab=16, attention=fk.models.Attention(heads=4, kv_heads=4, head_dim=128)
    )
    memory = wide.train_memory(seq=64, recompute="full")
    assert memory.ends + memory.loss < memory.again and memory.peak == memory.total
    assert wide.train_memory(seq=64).peak > wide.train_memory(seq=64).total
