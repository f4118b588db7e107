"""Where ranks lie, rank by rank; and what follows for exchanges between nodes, for experts and for keys and values."""

from itertools import product

import pytest

import flopkit as fk
from flopkit.parallel import Layout, cluster, step

PLACE = cluster("dgx-h100")
LAYOUTS = [
    Layout(tensor=t, context=c, data=d, pipeline=p, expert=e)
    for t, c, d, p in product((1, 2, 8), (1, 2), (1, 4, 16), (1, 4))
    for e in (1, 2, 8, 16)
    if (t * c * d) % e == 0
]


def places(layout):
    """Of each rank, in order: its place in the pipeline, in the data, in the context, in the tensor."""
    return list(product(*(range(n) for n in (layout.pipeline, layout.data, layout.context, layout.tensor))))


def in_nodes(groups):
    """Ranks of a group in a node, alike in all."""
    found = {
        len({rank for rank in group if rank // 8 == node}) for group in groups for node in {rank // 8 for rank in group}
    }
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_ranks_in_a_node(layout):
    of_stage = layout.tensor * layout.context * layout.data
    alike = {
        "tensor": lambda i, p, d, c, t: (p, d, c), "context": lambda i, p, d, c, t: (p, d, t), "data": lambda i, p, d, c, t: (p, t),
        "pipeline": lambda i, p, d, c, t: (d, c, t), "expert": lambda i, p, d, c, t: i // layout.expert,
        "experts": lambda i, p, d, c, t: (p, i % of_stage % layout.expert if layout.expert > 1 else t),
    }  # fmt: skip
    for axis, key in alike.items():
        groups = {}
        for i, place in enumerate(places(layout)):
            groups.setdefault(key(i, *place), []).append(i)
        assert layout.in_node(PLACE, axis) == in_nodes(groups.values()), axis


def test_gradients_of_experts_go_between_nodes():
    """Ranks 0 and 8 have the same experts, in two nodes of eight: an all-reduce of an eighth of the experts in fp32 over 50 GB/s; the rest, of all 16 ranks, goes over
    links of 450 GB/s in the node, and an eighth of it between nodes at the same time."""
    experts, rest = 32 * 8 * 3 * 4096 * 14336, 0
    model = fk.load("mixtral-8x7b")
    rest = model.params - experts
    found = step(model, Layout(data=16, expert=8, zero=0), PLACE, seq=4096, batch=16, overlap=())
    between = 2 * (1 / 2) * (experts / 8 * 4) / 50e9
    in_node = 2 * max(7 / 8 * rest * 4 / 450e9, 1 / 2 * rest * 4 / 8 / 50e9)
    assert found.parts["data"] == pytest.approx(between + in_node, rel=0.02)
    assert found.parts["data"] > between


def test_zero_3_gathers_the_experts_of_a_rank():
    """Five layers at once, in bf16 (`gathered`), of the experts an eighth; where no other rank has these, none."""
    rest = 2 * 4096 * 4096 + 2 * 4096 * 1024 + 8 * 4096 + 2 * 4096
    experts = 8 * 3 * 4096 * 14336

    def gathered(**degrees):
        return step("mixtral-8x7b", Layout(**degrees, zero=3), PLACE, seq=4096, batch=32).memory.gathered

    assert gathered(data=32) == 5 * 2 * (rest + experts)
    assert gathered(data=32, expert=8) == 5 * 2 * (rest + experts // 8)
    assert gathered(tensor=2, data=16, expert=8) == 5 * 2 * (rest // 2 + experts // 8)
    assert gathered(data=8, expert=8) < 5 * 2 * (rest + experts // 8)


@pytest.mark.parametrize(
    "name, numbers",
    [
        ("gpt-oss-20b", 24 * 2 * 8 * 64), ("gemma-3-27b", 62 * 2 * 16 * 128), ("mistral-7b", 32 * 2 * 8 * 128), ("llama-2-7b", 32 * 2 * 32 * 128),
        ("deepseek-v3", 61 * 128 * (128 + 64 + 128)),
    ],
)  # fmt: skip
def test_context_parallel_ranks_gather_keys_and_values(name, numbers):
    """Of all tokens and heads, also where a window hides most or a latent stands for them in decode: gathered forward and again backward, and their gradients
    reduced, of which each of two ranks sends a half."""
    seq = 8192
    found = step(name, Layout(context=2), PLACE, seq=seq, batch=1)
    assert found.sent["context"] == 3 * seq * numbers * 2 / 2


def test_what_an_indexer_chooses_is_refused():
    with pytest.raises(
        ValueError, match="context=2: what these ranks exchange is known here for attention to all keys"
    ):
        step("deepseek-v3.2", Layout(context=2), PLACE, seq=8192, batch=1)


def test_what_no_memory_is_known_of_neither_fits_nor_does_not():
    place = fk.parallel.Cluster("c", fk.Device("x", peak={"bf16": 1e15}, bandwidth=3e12), 8, 450e9, 50e9)
    found = step("llama-3.1-405b", Layout(), place, seq=8192, batch=1)
    assert found.fits is None and "of a memory that is not known" in str(found)
    with pytest.raises(ValueError, match="memory: that of x is not known, so what fits is not; give memory="):
        fk.parallel.search("llama-3.1-405b", place, 64, seq=8192, batch=64)
    assert fk.parallel.search("llama-3-8b", place, 8, seq=512, batch=8, memory=1e12).steps[0].fits is True


def test_a_tree_has_no_bound_of_a_ring():
    tree = fk.parallel.all_reduce(bytes=8, ranks=64, algorithm="tree")
    with pytest.raises(ValueError, match="algorithm='tree': the bound over nodes is known here for rings"):
        tree.on(PLACE)
    assert tree.seconds(450e9, latency=10e-6) == pytest.approx(120e-6, rel=1e-3)


@pytest.mark.parametrize("layout", [Layout(pipeline=4, virtual=2), Layout(data=4)], ids=str)
def test_a_bubble_is_divided_once(layout):
    with pytest.raises(ValueError, match="uneven=8: virtual stages of a pipeline whose Layout has none"):
        fk.parallel.gap("llama-3-8b", layout, PLACE, seq=4096, batch=8, step_seconds=10, uneven=8)


def test_what_all_layouts_rest_on():
    found = fk.parallel.search("mixtral-8x7b", PLACE, 64, seq=4096, batch=64, expert=(8, 1))
    each = "each expert gets as many tokens as the others"
    assert {each in one.supposes for one in found.steps} == {True, False} and each not in found.supposes
    assert "products at the peak" in found.supposes


def test_an_encoder_is_called_one():
    with pytest.raises(
        ValueError, match="bert-base is an encoder: a step on several devices is known here for plain decoders"
    ):
        step("bert-base", Layout(), PLACE, seq=512, batch=1)
