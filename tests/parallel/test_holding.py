"""What a rank holds at its peak: the gradients of the loss among it, as real backward passes have them."""

from __future__ import annotations

import weakref
from collections import Counter
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch.utils._python_dispatch import TorchDispatchMode

import flopkit as fk
from flopkit.models import transformer
from flopkit.parallel import Layout, search, step

dist = torch.distributed


class Watched(TorchDispatchMode):
    """The most bytes of tensors with *numbers* numbers that are there at once, each storage counted once."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.alive, self.most = numbers, Counter(), 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if any("DTensor" in kind.__name__ for kind in types):
            return NotImplemented
        result = func(*args, **(kwargs or {}))
        for each in torch.utils._pytree.tree_leaves(result):
            if isinstance(each, torch.Tensor) and each.numel() == self.numbers:
                at = each.untyped_storage()._cdata, each.nbytes
                self.alive[at] += 1
                weakref.finalize(each, self.alive.subtract, [at])
        self.most = max(self.most, self.held())
        return result

    def held(self):
        return sum(size for (_, size), count in self.alive.items() if count > 0)


@pytest.mark.skipif(not dist.is_available(), reason="torch was built without distributed")
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("ranks, batch", [(4, 1), (2, 3)])
def test_the_loss_of_divided_logits_as_torch_runs_it(ranks, batch):
    """A loss of logits that tensor-parallel ranks divide by words. When it begins to go back, the log-probabilities are there (among the ends). In the pass three
    tensors more are: the two gradients that ``Memory.loss`` has, and the exponentials, which a loss on one device does not write out."""
    from torch.distributed.tensor import DTensor, Shard
    from torch.distributed.tensor.parallel import loss_parallel

    tokens, d, vocab = 6, 8, 40
    model = transformer(name="small", d_model=d, heads=4, layers=1, d_ff=16, vocab=vocab)
    memory = step(model, Layout(tensor=ranks, micro_batch=batch), "dgx-h100", seq=tokens, batch=batch).memory
    with fk.simulate_ranks(ranks):
        mesh = dist.init_device_mesh("cpu", (ranks,))
        hidden = torch.randn(batch * tokens, d)
        weight = torch.randn(vocab // ranks, d, requires_grad=True)
        logits = hidden @ weight.T
        target = torch.zeros(batch * tokens, dtype=torch.long)
        with loss_parallel(), Watched(batch * tokens * vocab // ranks) as watched:
            loss = F.cross_entropy(DTensor.from_local(logits, mesh, [Shard(1)], run_check=False), target)
            del logits
            forward = watched.held()
            watched.most = 0
            loss.backward()
    assert forward == 4 * batch * tokens * vocab // ranks and memory.loss == 2 * forward
    assert watched.most - forward == memory.loss + forward


def test_what_fits_is_said_by_the_peak():
    """A layout whose total fits and whose peak does not: the last rank of a pipeline is then the fullest, and a search leaves the layout out."""
    layout, asked = Layout(pipeline=4, data=2), {"seq": 4096, "batch": 2}
    found = step("llama-3-8b", layout, "dgx-h100", **asked).memory
    assert " rank 3 of the pipeline" in found.name and found.peak > found.total
    between = (found.peak + found.total) / 2
    assert not step("llama-3-8b", layout, "dgx-h100", **asked, memory=between).fits
    assert step("llama-3-8b", layout, "dgx-h100", **asked, memory=found.peak).fits
    tried = {"tensor": (1,), "pipeline": (4,), "virtual": (1,), "micro_batch": (1,), "recompute": ("none",)}
    nothing = search("llama-3-8b", "dgx-h100", 8, **asked, **tried, memory=between)
    assert len(nothing) == 0 and nothing.least == found.peak
    assert len(search("llama-3-8b", "dgx-h100", 8, **asked, **tried, memory=found.peak)) == 1


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_gpipes_last_rank_keeps_every_micro_batchs_loss(recompute):
    """All losses are taken before the first micro-batch goes back, whose two gradients come on top: of m micro-batches m log-probabilities and two gradients of
    them. With 1F1B a micro-batch goes back at once."""
    found = {}
    for schedule in ("gpipe", "1f1b"):
        for m in (4, 8):
            layout = Layout(pipeline=2, schedule=schedule, recompute=recompute)
            model = transformer(name="wide head", d_model=64, heads=4, layers=2, d_ff=64, vocab=64_000)
            found[schedule, m] = step(model, layout, "dgx-h100", seq=128, batch=m).memory
    one = found["1f1b", 4]
    assert one.peak == found["1f1b", 8].peak and " rank 1 of" in one.name
    logits = 4 * 128 * 64_000
    assert one.loss == 2 * logits and one.ends > logits
    for m in (4, 8):
        assert found["gpipe", m].peak == one.peak + (m - 1) * (one.layers + one.ends)


@pytest.mark.parametrize("data", [64, 128])
def test_llama_3s_published_layouts_fit_with_the_gradients_of_the_loss(data):
    """The last rank has them, 1.05 GB, and fewer micro-batches in flight than the second, which stays the fullest."""
    layout = Layout(tensor=8, pipeline=16, data=data, virtual=8)
    asked = {"seq": 8192, "batch": 2048, "fused": True, "memory": 80e9}
    found = step("llama-3.1-405b", layout, "llama-3", **asked)
    assert found.fits and " rank 1 of the pipeline" in found.memory.name
    alone = step("llama-3.1-405b", replace(layout, pipeline=1, virtual=1), "llama-3", **asked).memory
    assert alone.loss == 8 * 8192 * 128_256 / 8


def test_fp8_copies_by_hand():
    """Ten of Llama-3-70B's layers, their matrices in four parts; of DeepSeek-V3's, attention, shared expert and a sixteenth of 256 experts. Neither norms, router nor head."""
    ours = {}
    for copies in (0, 2, 2.0625):
        layout = Layout(tensor=4, pipeline=8, data=2)
        ours["llama", copies] = step("llama-3-70b", layout, "dgx-h100", seq=8192, batch=128, fp8_copies=copies)
        layout = Layout(pipeline=16, data=16, expert=16)
        ours["deepseek", copies] = step("deepseek-v3", layout, "dgx-b200", seq=4096, batch=4096, fp8_copies=copies)
    llama = 10 * (2 * 8192 * 8192 + 2 * 8192 * 1024 + 3 * 8192 * 28672) // 4
    latent = 7168 * 1536 + 1536 * 128 * 192 + 7168 * 576 + 512 * 128 * 256 + 128 * 128 * 7168
    deepseek = 4 * (latent + (256 // 16 + 1) * 3 * 7168 * 2048)
    for (model, copies), found in ours.items():
        weights = found.memory.weights - ours[model, 0].memory.weights
        assert weights == copies * {"llama": llama, "deepseek": deepseek}[model] and isinstance(weights, int)
        assert any("copies of" in each for each in found.supposes) == bool(copies)
    with pytest.raises(ValueError, match="fp8_copies=2 with zero=3"):
        step("llama-3-8b", Layout(data=8, zero=3), "dgx-h100", seq=8192, batch=8, fp8_copies=2)
    with pytest.raises(ValueError, match="fp8_copies=-1"):
        step("llama-3-8b", Layout(data=8), "dgx-h100", seq=8192, batch=8, fp8_copies=-1)
