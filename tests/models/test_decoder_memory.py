"""What the layers of OLMo and Command R+ keep for their backward pass, beside what autograd keeps of transformers' models."""

import pytest
from test_memory import BATCH, HEADS, LLAMA, LOSS_SCALE, SEQ, TOKENS, WIDTH, built, kept, ours

HEAD, LAYERS = WIDTH // HEADS, 4
ANGLES = 2 * SEQ * HEAD


@pytest.mark.parametrize("kernel", ["flash", "math"])
def test_norms_without_weights_keep_what_the_list_says(kernel):
    """As Llama, but for its norms, which are one operator."""
    sizes = LLAMA | {"model_type": "olmo", "num_key_value_heads": HEADS}
    memory = ours(sizes, kernel=kernel)
    assert kept(*built(sizes, kernel)) == memory.layers + memory.ends + LOSS_SCALE + ANGLES * 4


@pytest.mark.parametrize("norms", [False, True], ids=["plain", "norms of queries and keys"])
def test_parallel_branches_and_norms_of_each_head(norms):
    """Its norms are written out: three tensors of the input's size and the reciprocal deviations, for the input, means and deviations."""
    sizes = LLAMA | {"model_type": "cohere", "use_qk_norm": norms, "tie_word_embeddings": False, "pad_token_id": 0}
    memory = ours(sizes)
    wide, rows = (LAYERS + 1) * TOKENS * WIDTH, (LAYERS + 1) * TOKENS
    if norms:
        wide, rows = wide + LAYERS * TOKENS * (HEADS + 2) * HEAD, rows + LAYERS * TOKENS * (HEADS + 2)
    assert kept(*built(sizes)) == memory.layers + memory.ends + LOSS_SCALE + (2 * wide - rows + ANGLES) * 4
    assert BATCH * SEQ == TOKENS
