"""The calculator's layouts against `flopkit.parallel.step`, in Python and in Vega, and why there is no such layout."""

import random
import re
from functools import cache

import pytest

import flopkit as fk
from flopkit.book.gallery import calculator
from flopkit.book.gallery.calculate_fit import KEPT
from flopkit.book.gallery.calculate_layout import AXES, KEEPS, NODES, PARTS, ZERO
from flopkit.book.gallery.calculator_charts import PARTS_OF_STEP
from flopkit.book.gallery.calculators import PRESETS
from flopkit.book.gallery.step_bars import HELD
from flopkit.charts.hardware import DEVICES
from flopkit.parallel.plans import Plan, Setting

TASKS = calculator()
FIGURE = TASKS["layout"]
CARDS = dict(zip(FIGURE.controls["device"].options, DEVICES, strict=True))
DEGREES = {
    "tensor": [1, 1, 2, 4, 8, 16, 3],
    "context_ranks": [1, 1, 1, 2, 4],
    "pipeline": [1, 1, 1, 2, 4, 5, 8],
    "data_ranks": [1, 2, 6, 16, 64],
    "expert_ranks": [1, 1, 2, 4, 8, 16],
    "virtual": [1, 1, 1, 2, 4],
    "micro_batch": [1, 2, 3],
    "length": [512, 1024, 8192],
}
OTHERS = ("keeps", "zero", "recompute", "states", "nodes", "device")


@cache
def drawn(count, seed):
    """Models of the list on layouts, most of them such that the batch divides."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        title = rng.choice(list(PRESETS))
        state = {
            **FIGURE.settings(),
            **FIGURE.presets[title],
            **{name: rng.choice(values) for name, values in DEGREES.items()},
        }
        state |= {name: rng.choice(FIGURE.controls[name].options) for name in OTHERS}
        times = rng.choice([1, state["pipeline"], 3 * state["pipeline"], 5 / 2])
        state["step_batch"] = int(state["data_ranks"] * state["micro_batch"] * times)
        found.append((title, state))
    return found


def answered(model, c):
    """What `step` says, or None where there is no such layout."""
    device, dtype = CARDS[c["device"]]
    precision, optimizer = KEPT[c["states"]]
    try:
        layout = fk.parallel.Layout(
            tensor=c["tensor"], context=c["context_ranks"], pipeline=c["pipeline"], data=c["data_ranks"],
            expert=c["expert_ranks"] if c["experts"] else 1, virtual=c["virtual"], zero=ZERO[c["zero"]]["stage"],
            micro_batch=c["micro_batch"], recompute=c["recompute"],
        )  # fmt: skip
        nodes = fk.parallel.Cluster("nodes", device, per_node=8, **NODES[c["nodes"]])
        return fk.parallel.step(
            model, layout, nodes, seq=c["length"], batch=c["step_batch"], precision=precision, optimizer=optimizer, dtype=dtype,
            fused=bool(KEEPS[c["keeps"]]["fused"]),
        )  # fmt: skip
    except ValueError:
        return None


def test_the_page_is_step_or_says_why_not():
    made, refused, kinds = 0, 0, set()
    close = {"rel": 1e-11, "abs": 1e-12}
    for title, settings in drawn(200, 1):
        found, truth = FIGURE.at(**settings), answered(PRESETS[title], settings)
        if (
            "an order that this page does not know" in found["refused"]
        ):  # the one thing that Python has and the page has not
            assert truth is not None and settings["pipeline"] > 1 and 0 < settings["windowed"] < settings["layers"]
            continue
        assert bool(found["refused"]) == (truth is None), (title, found["refused"], settings)
        if truth is None:
            refused += 1
            continue
        made += 1
        kinds.add(title)
        here = (title, settings)
        assert (found["seconds"], found["mfu"]) == (
            pytest.approx(truth.seconds, **close),
            pytest.approx(truth.mfu, **close),
        ), here
        assert found["memory"] == pytest.approx(float(truth.memory.peak), **close), here
        assert found["fits"] == ("yes" if truth.fits else "no") and found["devices"] == truth.layout.ranks
        spare = truth.cluster.device.available / float(truth.memory.peak) - 1
        assert found["verdict"] == ("no" if spare < 0 else "close" if spare < 0.15 else "fits"), here
        for name in PARTS:
            assert found[f"part_{name}"] == pytest.approx(truth.parts[name], **close), (name, here)
        for name in AXES:
            assert found[f"bytes_{name}"] == pytest.approx(float(truth.sent.get(name, 0)), **close), (name, here)
        held = {name: getattr(truth.memory, name) for name in HELD}
        held["activations"] += truth.memory.peak - truth.memory.total  # the gradients of the loss
        for name in HELD:
            assert found[f"held_{name}"] == pytest.approx(float(held[name]), **close), (name, here)
        peak = fk.device(CARDS[settings["device"]][0]).peak(CARDS[settings["device"]][1])
        work = peak * (truth.parts["arithmetic"] + truth.parts["recompute"])
        assert found["gpu_flops"] == pytest.approx(work, **close)
        assert found["exposed"] == pytest.approx(sum(truth.parts[name] for name in AXES), **close)
    assert made > 50 and refused > 50 and len(kinds) > 10


@pytest.mark.parametrize("title, degrees", [
    ("Llama-3.1-405B", {"pipeline": 16, "virtual": 8, "tensor": 8}), ("Llama-3.1-405B", {"pipeline": 4, "virtual": 2}), ("Qwen3-30B-A3B", {"pipeline": 5, "virtual": 5}),
    ("DeepSeek-V3", {"pipeline": 3, "virtual": 3}), ("DeepSeek-V3", {"pipeline": 9}), ("Llama-3-8B", {"pipeline": 17, "virtual": 2}), ("Llama-3-8B", {"pipeline": 17}),
])  # fmt: skip
@pytest.mark.parametrize("rounds", [1, 2, 5])
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_each_rank_of_unequal_virtual_stages_is_that_of_python(title, degrees, rounds, recompute):
    """The first stage of all has a layer less and may have layers without experts, the last one has a layer less; of each sort of rank the activations."""
    state = {
        **FIGURE.settings(),
        **FIGURE.presets[title],
        "data_ranks": 2,
        "recompute": recompute,
        "length": 1024,
        **degrees,
    }
    state |= {"step_batch": 2 * rounds * degrees["pipeline"], "micro_batch": 1}
    found, truth = FIGURE.at(**state), answered(PRESETS[title], state)
    assert found["refused"] == "" and found["seconds"] == pytest.approx(truth.seconds, rel=1e-11)
    precision, optimizer = KEPT[state["states"]]
    setting = Setting(
        fk.load(PRESETS[title]),
        truth.cluster,
        1024,
        truth.batch,
        precision,
        optimizer,
        fused=bool(KEEPS[state["keeps"]]["fused"]),
    )
    plan = Plan(setting, truth.layout)
    for sort, place in (("first", 0), ("more", 1), ("last", -1)):
        held = plan.memory_of(place % degrees["pipeline"])
        here = max(held.ends + held.loss, held.again)
        assert found[f"activations_{sort}"] == pytest.approx(float(held.layers + here), rel=1e-11), sort


def test_a_layout_of_one_is_a_step_on_one_device():
    """Not `parallel.step` again: FLOPs and memory as a model has them by itself."""
    one = {"data_ranks": 1, "step_batch": 1, "length": 2048, "zero": "0: nothing"}
    for title in ("Llama-3-8B", "Qwen3-30B-A3B", "DeepSeek-V3", "Gemma-2-9B"):
        for recompute in ("none", "selective", "full"):
            found = FIGURE.at(**{**FIGURE.presets[title], **one, "recompute": recompute})
            model = fk.load(PRESETS[title])
            step = model.train_step(seq=2048, recompute=recompute)
            assert found["gpu_flops"] == pytest.approx(step.hardware_flops, rel=1e-12)
            assert found["memory"] == model.train_memory(seq=2048, recompute=recompute).peak
            assert found["sent"] == 0 and found["exposed"] == 0 and found["part_bubble"] == 0


def test_vega_reads_it_as_python_does():
    convert, altair = pytest.importorskip("vl_convert"), pytest.importorskip("altair")
    from flopkit.charts.readings import Signals, unchecked

    s = Signals(FIGURE, altair)
    with unchecked():
        FIGURE.model(s, **s.controls())
    names = [each.name for each in FIGURE.readouts if not each.sentence]
    names += [f"part_{name}" for name in PARTS] + [f"{what}_{name}" for what in ("bytes", "wire") for name in AXES]
    names += [f"held_{name}" for name in HELD]
    updates = [{"name": name, "update": text} for name, text in s.expressions().items()]
    mark = {"type": "text", "encode": {"enter": {"text": {"signal": "'<<' + " + " + ' ' + ".join(names) + " + '>>' + fits + '|' + layout_answer + '|' + refused + '!'"}}}}  # fmt: skip
    made, kinds = 0, set()
    for title, settings in drawn(24, 2):
        found = FIGURE.at(**settings)
        here = [{"name": name, "value": value} for name, value in settings.items()]
        spec = {"$schema": "https://vega.github.io/schema/vega/v6.json", "signals": here + updates, "marks": [mark]}
        numbers, fits, answer, refused = re.search(
            r"&lt;&lt;(.*?)&gt;&gt;(\w+)\|(.*?)\|(.*?)!", convert.vega_to_svg(spec)
        ).groups()
        assert bool(refused) == bool(found["refused"]), (refused, found["refused"], settings)
        if not refused:
            made += 1
            kinds.add(title)
            assert (fits, answer) == (found["fits"], found["layout_answer"])
            have, want = [float(each) for each in numbers.split()], [found[name] for name in names]
            assert have == pytest.approx(want, rel=1e-9, abs=1e-12), (title, settings)
    assert made >= 6 and len(kinds) >= 4


MOE = FIGURE.presets["Qwen3-30B-A3B"]
BAD = {
    "TP that does not divide key-value heads": (
        {"tensor": 16}, "16 ranks of tensor parallelism do not divide the 8 key-value heads."),
    "TP above heads": (
        {"tensor": 64, "kv_lora": 512}, "64 ranks of tensor parallelism do not divide the 32 heads."),
    "CP that does not divide the tokens": (
        {"context_ranks": 3}, "3 ranks of context parallelism do not divide a sequence of 8,192 tokens."),
    "more stages than layers": (
        {"pipeline": 64}, "The 32 layers cannot be divided among 64 ranks with 1 virtual stage each."),
    "virtual stages that are not equal": (
        {"pipeline": 4, "virtual": 3}, "The 32 layers cannot be divided among 4 ranks with 3 virtual stages each."),
    "virtual stages without a pipeline": (
        {"virtual": 2}, "Virtual stages need a pipeline: choose one, or more pipeline ranks."),
    "a batch that does not divide": (
        {"data_ranks": 48}, "48 ranks with micro-batches of 1 sequence cannot divide a step of 128 sequences."),
    "micro-batches that interleaving cannot take": (
        {"pipeline": 4, "virtual": 2}, "With several virtual stages, a rank's micro-batches must be a multiple of 4 ranks."),
    "experts that do not divide": (
        {**MOE, "expert_ranks": 48}, "48 ranks of expert parallelism do not divide the 128 experts."),
    "more expert ranks than a stage has": (
        {**MOE, "expert_ranks": 128}, "128 ranks of expert parallelism do not divide those of a stage, tensor × context × data."),
    "autocast": (
        {"states": "16: autocast over fp32, Adam"}, "Under autocast it is not known here what a step on several devices keeps."),
    "a bias of the head": (
        {"head_bias": True}, "How devices divide the bias of a head is not known here."),
    "windows in a pipeline": (
        {**FIGURE.presets["Gemma-2-9B"], "pipeline": 2},
        "Layers with a window and others stand in an order that this page does not know: choose a pipeline of 1, or ask fk.parallel.step."),
    "layers without experts on two stages": (
        {**FIGURE.presets["DeepSeek-V3"], "pipeline": 61},
        "More layers without experts than the first stage has: this page divides no such model, fk.parallel.step does."),
    "an impossible model": (
        {"kv_heads": 5}, "5 key-value heads do not divide 32 query heads."),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_a_bad_layout_is_said_in_a_sentence(what):
    settings, sentence = BAD[what]
    assert FIGURE.description(**settings) == sentence
    assert set(FIGURE.texts(**settings).values()) == {"–"}
    assert FIGURE.python(**settings) == f"# {sentence}"
    rest = {name: value for name, value in settings.items() if name not in FIGURE.presets["Llama-3-8B"]}
    good = {name: FIGURE.settings()[name] for name in rest}
    if rest:
        assert FIGURE.at(**{**settings, **good})["refused"] == "" or what == "TP above heads", "it is the layout"


def test_a_pipeline_of_models_with_a_few_layers_without_experts():
    """DeepSeek-V3 on sixteen stages: the first has three layers, none of which has experts."""
    settings = {
        **FIGURE.presets["DeepSeek-V3"],
        "pipeline": 16,
        "data_ranks": 128,
        "expert_ranks": 64,
        "step_batch": 15360,
        "length": 4096,
    }
    found = FIGURE.at(**settings)
    truth = answered("deepseek-v3", {**FIGURE.settings(), **settings})
    assert found["refused"] == "" and found["seconds"] == pytest.approx(truth.seconds, rel=1e-12)
    assert [found[f"layers_{sort}"] for sort in ("first", "more", "less", "last")] == [3, 4, 3, 3]
    assert found["without_first"] == 3


def test_the_table_has_the_parts_of_the_step():
    settings = {**MOE, "tensor": 2, "data_ranks": 32, "expert_ranks": 8, "context_ranks": 2}
    rows, found = FIGURE.rows(**settings), FIGURE.at(**settings)
    assert [row["part"] for row in rows] == list(PARTS_OF_STEP)
    assert sum(row["taken"] for row in rows) == pytest.approx(found["seconds"]) and found["refused"] == ""
    assert sum(row["share"] for row in rows) == pytest.approx(1)
    assert sum(row["bytes"] for row in rows) == pytest.approx(found["sent"])
    wire = {row["part"]: row["wire"] for row in rows}
    assert wire["tensor-parallel"] == pytest.approx(found["part_tensor"]), "nothing hides it"
    assert wire["data-parallel"] > found["part_data"], "some of it hides"
