"""Element-wise work of MLPs and experts: what a family's activation costs in the program of transformers and in the closed form."""

import pytest
from family_samples.sizes import BATCH, SEQ
from test_families import KINDS, built, inputs, small

import flopkit as fk

WIDTHS = (
    "intermediate_size", "ffn_dim", "d_ff", "encoder_ffn_dim", "decoder_ffn_dim", "n_inner", "hidden_dim", "moe_intermediate_size",
    "shared_expert_intermediate_size", "dense_intermediate_size", "shared_intermediate_size", "intermediate_size_mlp", "block_ff_dim",
)  # fmt: skip
UNSAID = {  # whose samples leave the width to a rule
    **{key: {"n_inner": 64} for key in ("gpt2", "gpt_bigcode", "gptj", "codegen")}, "gpt_neo": {"intermediate_size": 64},
    "falcon": {"ffn_hidden_size": 64}, **{key: {"mlp_ratio": 2} for key in ("dinov2", "dinov2_with_registers", "swin")},
}  # fmt: skip
CUBE = (-1, "x³ is one power in the program and two multiplications in the recipe of gelu_tanh")
WRITTEN_OUT = {  # FLOPs of a hidden element that the program has more than the recipe, and why
    **dict.fromkeys(("albert", "phi", "mt5", "umt5", "gpt2", "gptj", "codegen", "gpt_neo"), CUBE),
    "apertus": (5, "xIELU computes both branches and a bound, and takes one; a kernel computes one"),
    **dict.fromkeys(("clip_text_model", "clip_vision_model"), (1, "x·sigmoid(1.702·x) divides and then multiplies")),
    "falcon_h1": (1, "a fixed multiplier of the gate, which Model.forward names as not counted"),
}
GATES = {"mt5", "umt5", "falcon_h1"}  # of these, those with three matrices
KNOWN = [kind for kind in KINDS if kind in UNSAID or any(isinstance(small(kind).get(key), int) for key in WIDTHS)]


def measured(kind, sizes):
    """Element-wise FLOPs and FLOPs by the closed form and of the program, and the model."""
    config, model = built(kind, **sizes)
    given, ours = inputs(kind), fk.from_hf(config)
    if ours.patches is not None:  # what is kept between calls, such as tables of positions, is made here
        model(**given)
    program = fk.count(lambda: model(**given))
    forward = ours.forward(batch=BATCH) if ours.patches is not None else ours.forward(seq=SEQ, batch=BATCH)
    return [forward.vector_flops, forward.under("TORCH").flops, program.vector_flops, program.flops], ours


@pytest.mark.parametrize("kind", KNOWN)
def test_wider_mlps_have_as_much_more_work_in_both(kind):
    """All widths doubled. A program that runs all its experts (Llama 4) has more of everything, so both are taken for each product."""
    narrow = UNSAID.get(kind) or {key: small(kind)[key] for key in WIDTHS if isinstance(small(kind).get(key), int)}
    before, ours = measured(kind, small(kind) | narrow)
    after, _ = measured(kind, small(kind) | {key: 2 * value for key, value in narrow.items()})
    vector, products, counted, executed = (b - a for a, b in zip(before, after, strict=True))
    assert vector > 0 and products > 0
    more, _ = WRITTEN_OUT.get(kind, (0, ""))
    elements = products // (2 * ours.d_model * (3 if kind in GATES else 2))
    assert (vector + more * elements) * executed == counted * products
