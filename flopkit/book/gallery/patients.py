"""The patients of the clinic: four steps, each as rows of FLOPs, bytes and launches, before and after each cure.

Everything that grows with the batch is for one sample; what a step moves only once, such as weights, stands by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from flopkit.book.gallery.flash import eager_kernels
from flopkit.book.gallery.rest import ROW_STEPS, STEPS
from flopkit.cost import Cost
from flopkit.layers.attentions import attention
from flopkit.layers.embeddings import rotary
from flopkit.layers.normalisations import layer_norm, rms_norm
from flopkit.layers.pointwise import activation, cross_entropy, residual
from flopkit.layers.products import dense
from flopkit.models.catalogue import load
from flopkit.models.vision import cnn, cnn_backward, cnn_kinds
from flopkit.training.backward import attention_backward, dense_backward
from flopkit.training.optimizers import adam_step

__all__ = ["ADAM_LOOP", "CONTEXT", "GELU", "GELU_KERNELS", "PATIENTS"]

CONTEXT = 1024
"""Tokens of a sequence that is trained, and keys that a decode step reads."""
GELU = (18, 28)
"""Times that a tanh GELU written in single operators reads or writes each element, forward and backward."""
GELU_KERNELS = (8, 11)
ADAM_LOOP = 20
"""Times that AdamW in single operators reads or writes a number for each parameter, in eight kernels."""
ADAM_KERNELS = 8
LLAMA_KERNELS = {"norm": 8, "rotary": 10, "swiglu": 2, "sum": 1}
"""Kernels of a Llama's operators where each step of one is a kernel; a rotary turn is of queries and of keys."""
CHAIN = 2**24
"""Elements of a sample of the patient that is nothing but a chain."""
NOTHING: dict[str, float] = dict.fromkeys(
    (
        "flops", "moved", "weights", "by_hand_flops", "by_hand_moved", "softmax_moved", "flash_flops", "flash_moved", "plain_moved",
        "fused_moved", "loop_moved", "one_moved", "model_flops", "batch", "single", "loads", "products_launches",
        "by_hand_launches", "flash_launches", "plain_launches", "fused_launches", "loop_launches", "one_launches",
    ),
    0.0,
)  # fmt: skip


def _by_batch(cost: Callable[[int], Cost]) -> dict[str, float]:
    """FLOPs and bytes of one more sample, and the bytes that do not grow with the batch."""
    one, two = cost(1), cost(2)
    more = float(two.bytes - one.bytes)
    return {"flops": float(one.flops), "moved": more, "weights": float(one.bytes) - more}


def _adam(params: int, tensors: int) -> dict[str, float]:
    return {
        "loop_moved": 4.0 * ADAM_LOOP * params,
        "one_moved": float(adam_step(params=params, precision="fp32").bytes),
        "loop_launches": float(ADAM_KERNELS * tensors),
        "one_launches": 1.0,
    }


@cache
def decode() -> dict[str, float]:
    """Llama-3.2-1B makes one token for each sequence, eagerly, in bf16."""
    net: Any = load("llama-3.2-1b")
    [(block, layers)] = net.blocks
    d, f, mixer = net.d_model, block.mlp.d_ff, block.mixer
    q, k = mixer.heads * mixer.head_dim, mixer.kv_heads * mixer.head_dim
    shapes = [(d, q), (d, k), (d, k), (q, d), (d, f), (d, f), (f, d)]

    def products(tokens: int) -> Cost:
        each_layer = [dense(tokens=tokens, d_in=a, d_out=b) for a, b in shapes]
        return Cost.total(
            "products", [layers * each for each in each_layer] + [dense(tokens=tokens, d_in=d, d_out=net.vocab)]
        )

    core = layers * attention(
        batch=1, q=1, kv=CONTEXT, heads=mixer.heads, head_dim=mixer.head_dim, kv_heads=mixer.kv_heads
    )
    norm, add = rms_norm(tokens=1, d=d), residual(elements=d)
    turn = rotary(batch=1, seq=1, heads=mixer.heads + mixer.kv_heads, head_dim=mixer.head_dim)
    act = activation("swiglu", elements=f)
    steps = STEPS["norm"] * d + ROW_STEPS + 2 * d
    plain = 2 * steps + STEPS["rotary"] * (q + k) + STEPS["activation"] * f + 2 * add.bytes
    fused = 2 * (add + norm).fused(not_read=d).bytes + turn.bytes + act.bytes
    in_steps, in_one = LLAMA_KERNELS["norm"], 1
    return NOTHING | _by_batch(products) | {
        "by_hand_flops": float(core.flops), "flash_flops": float(core.flops), "by_hand_moved": float(core.bytes), "flash_moved": float(core.bytes),
        "plain_moved": float(layers * plain + steps), "fused_moved": float(layers * fused + norm.bytes),
        "model_flops": float(products(1).flops + core.flops), "batch": 1.0,
        "products_launches": float(layers * len(shapes) + 1), "by_hand_launches": float(layers), "flash_launches": float(layers),
        "plain_launches": float(layers * (2 * in_steps + LLAMA_KERNELS["rotary"] + LLAMA_KERNELS["swiglu"] + 2) + in_steps),
        "fused_launches": float(layers * (2 * in_one + 1 + 1) + in_one),
    }  # fmt: skip


@cache
def gpt() -> dict[str, float]:
    """A training step of GPT-2 in fp32, with GELU and attention by hand and AdamW parameter by parameter."""
    net: Any = load("gpt2")
    [(block, layers)] = net.blocks
    d, heads, vocab, seq, dtype = net.d_model, block.mixer.heads, net.vocab, CONTEXT, "fp32"
    head_dim, e = d // heads, 4 * seq * d  # bytes of the residual stream
    shapes = [(d, 3 * d), (d, d), (d, 4 * d), (4 * d, d)]

    def there_and_back(tokens: int, d_in: int, d_out: int, bias: bool) -> Cost:
        size: dict[str, Any] = {"tokens": tokens, "d_in": d_in, "d_out": d_out, "bias": bias, "dtype": dtype}
        return dense(**size) + dense_backward(**size)

    def products(batch: int) -> Cost:
        each_layer = [there_and_back(batch * seq, a, b, True) for a, b in shapes]
        return Cost.total(
            "products", [layers * each for each in each_layer] + [there_and_back(batch * seq, d, vocab, False)]
        )

    forward, backward = eager_kernels(tokens=seq, head_dim=head_dim, heads=heads, dtype=dtype)
    by_hand = [each for each in (*forward, *backward) if each.flops]
    softmax = [each for each in (*forward, *backward) if not each.flops]
    size: dict[str, Any] = {"batch": 1, "q": seq, "kv": seq, "heads": heads, "head_dim": head_dim, "mask": "causal", "dtype": dtype}  # fmt: skip
    flash = attention(**size) + attention_backward(**size)
    norm = layer_norm(tokens=seq, d=d, dtype=dtype).bytes
    # A norm and the sum before it. In single kernels: 2 and 3 forward, 3 and 3 (the gradients' sum) backward; fused: 4 and 4.
    pair, pair_fused = norm + 3 * e + 6 * e, norm + 2 * e + 4 * e
    logits = 4 * seq * vocab
    loss = cross_entropy(tokens=seq, vocab=vocab, dtype=dtype).bytes
    return NOTHING | _by_batch(products) | _adam(net.params, 12 * layers + 4) | {
        "by_hand_flops": float(layers * sum(each.flops for each in by_hand)),
        "by_hand_moved": float(layers * sum(each.bytes for each in by_hand)),
        "softmax_moved": float(layers * sum(each.bytes for each in softmax)),
        "flash_flops": float(layers * flash.flops), "flash_moved": float(layers * flash.bytes),
        # The loss in single kernels writes the logarithms; backward, the gradient of these, then 3 for the logits.
        "plain_moved": float(layers * (2 * pair + sum(GELU) * 4 * e) + norm + 3 * e + loss + 5 * logits),
        "fused_moved": float(layers * (2 * pair_fused + 5 * 4 * e) + norm + 3 * e + loss + 2 * logits),
        "model_flops": float(net.train_step(seq=seq).flops_per_token * seq), "batch": 16.0, "single": 1.0,
        "products_launches": float(layers * len(shapes) * 4 + 3), "by_hand_launches": float(8 * layers), "flash_launches": float(2 * layers),
        "plain_launches": float(layers * (8 + sum(GELU_KERNELS)) + 2 + 4), "fused_launches": float(layers * 6 + 2 + 2),
    }  # fmt: skip


@cache
def resnet() -> dict[str, float]:
    """A training step of ResNet-50 in bf16, whose main process loads its images."""
    kinds = cnn_kinds("resnet50")

    def parts(batch: int) -> list[Cost]:
        return [*cnn("resnet50", batch=batch).parts, *cnn_backward("resnet50", batch=batch).parts]

    def of(*chosen: str) -> Callable[[int], Cost]:
        return lambda batch: Cost.total("parts", [part for part in parts(batch) if kinds[part.name] in chosen])

    def sums(batch: int) -> Cost:
        return Cost.total("sums", [part for part in parts(batch) if part.name.endswith(".add")])

    convolving = ("convolution", "pointwise", "depthwise", "dense")
    number = {kind: sum(kinds[part.name] == kind for part in cnn("resnet50").parts) for kind in set(kinds.values())}
    layers = sum(number.get(kind, 0) for kind in convolving)
    added = sum(part.name.endswith(".add") for part in cnn("resnet50").parts)
    tensors = layers + 1 + 2 * number["norm"]
    plain, norms, other = (_by_batch(of(*chosen))["moved"] for chosen in (("norm", "activation", "other"), ("norm",), ("other",)))  # fmt: skip
    return NOTHING | _by_batch(of(*convolving)) | _adam(cnn("resnet50").params, tensors) | {
        # Fused, an activation rides on its norm, and a sum reads one map more where it read two and wrote one.
        "plain_moved": plain, "fused_moved": norms + other - 2 / 3 * _by_batch(sums)["moved"],
        "model_flops": float(cnn("resnet50").flops + cnn_backward("resnet50").flops), "batch": 64.0, "loads": 1.0,
        "products_launches": float(3 * layers - 1), "plain_launches": float(2 * (number["norm"] + number["activation"] + number["other"])),
        "fused_launches": float(2 * (number["norm"] + number["other"] - added)),
    }  # fmt: skip


def chain() -> dict[str, float]:
    """A tanh GELU in single operators over a large fp32 tensor, and nothing else."""
    return NOTHING | {
        "plain_moved": 4.0 * GELU[0] * CHAIN, "fused_moved": float(activation("gelu", elements=CHAIN, dtype="fp32").bytes),
        "batch": 4.0, "single": 1.0, "plain_launches": float(GELU_KERNELS[0]), "fused_launches": 1.0,
    }  # fmt: skip


PATIENTS: dict[str, Callable[[], dict[str, float]]] = {
    "Llama-3.2-1B, decode, batch 1": decode,
    "GPT-2, training in fp32, batch 16": gpt,
    "ResNet-50, loads its own images": resnet,
    "GELU in single operators": chain,
}
"""What the reader sees, and the function that counts it."""
