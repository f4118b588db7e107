"""Every drawing in a browser: no word leaves the picture, runs into another or under a line, none is too small on a phone, dark pages change the colours."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

pytest.importorskip("playwright.sync_api")

from reader import FAULTS

from flopkit import charts
from flopkit.book import drawings
from flopkit.book.drawings.canvas import Canvas
from flopkit.book.drawings.drawing import Drawing

pytestmark = pytest.mark.browser
STYLE = (Path(charts.__file__).parent / "static" / "figure.css").read_text("utf8")
NAMES = [name for name in drawings.__all__ if name != "Drawing"]
# Other settings than those a drawing starts with, at the ends of what can be drawn.
EXTREMES = [
    drawings.matrix_product(m=2, k=7, n=7),
    drawings.matrix_product(m=7, k=4, n=4),
    drawings.bytes_and_flops(tokens=(1, 8, 64, 512, 4096), d_in=256, d_out=256),
    drawings.dot_product(2),
    drawings.dot_product(65536),
    drawings.peak("t4", "fp16", cores=8),
    drawings.peak("tpu-v4", cores=None),
    drawings.window(size=8, kernel=5, stride=1, padding=1),
    drawings.window(size=4, kernel=1, stride=4, padding=3),
    drawings.window(size=3, kernel=1, stride=1, padding=0),
    drawings.wiring(channels=8, groups=4),
    drawings.two_networks("p100-pcie", "fp32", batch=2**20),
    drawings.two_networks("b200", batch=1),
    drawings.transposed(size=4, kernel=4, stride=4),
    drawings.transposed(size=2, kernel=1, stride=1),
    drawings.gradients(tokens=16384, d_in=16384, d_out=128256),
    drawings.wanted_gradients("LoRA", "LoRA", "trained", "frozen", "LoRA", "LoRA"),
    drawings.wanted_gradients("frozen", "frozen"),
    drawings.kept_over_time(2, "full"),
    drawings.kept_over_time(4, "full"),
    drawings.causal_tiles(length=2**20, tile=2**16),
    drawings.causal_tiles(length=2, tile=1),
    drawings.tile_on_chip(queries=64, keys=64, head_dim=32, tokens=128),
    drawings.tile_on_chip(queries=128, keys=176, head_dim=128, tokens=65536),
    drawings.tile_walk(queries=256, keys=256, tokens=4096),
    drawings.tile_walk(queries=2, keys=1, tokens=6),
    drawings.attention_layer("llama-3-70b", tokens=2**20),
    drawings.mla(q=4096, kv=4096),
    drawings.layer_tensors("llama-3.1-405b", tokens=2**20),
    drawings.layer_tensors("llama-3-8b", tokens=1),
    drawings.chosen_experts(experts=128, top_k=16),
    drawings.routed_tokens(tokens=6, experts=3, capacity=2),
    drawings.routed_tokens(tokens=5, experts=5, capacity=0.5),
    drawings.prefill_and_decode(prompt=8, steps=4),
    drawings.decode_bytes("llama-3.1-405b", 131072, (1, 2, 16, 256, 4096)),
    drawings.model_tree(("llama-3.1-405b", "gpt2"), (131072, 1)),
    drawings.many_roofs("h100-sxm", cache=1.5),
    drawings.many_roofs("p100-sxm", "fp16", cache=16),
    drawings.launch_floor("h100-sxm", launch=2e-5, tokens=1),
    drawings.launch_floor("p100-sxm", "fp16", launch=1e-6, tokens=64),
    drawings.roof_lines("t4", "fp16", layers=()),
    drawings.five_reasons("t4", "fp16", ceiling=0.9, tiles=10, moved=1.2, cache=4, launch=24),
    drawings.five_reasons("b200", "bf16", ceiling=0.5, tiles=147, moved=3, cache=1.5, launch=4),
    drawings.denominators("llama-3.1-405b", rate=1, others=()),
    drawings.denominators("llama-3.1-8b", rate=65536, others=("a100-pcie-80gb", "b200", "h200", "mi300x")),
    drawings.overlapped_times((0.125, 0.5, 2, 8)),
    drawings.five_splits(ranks=2),
    drawings.fitted_sequences("llama-3-70b", "b200", 64, 65536),
    drawings.fitted_sequences("qwen2.5-1.5b", "h200-sxm", 1, 1024),
    drawings.growing_core("gpt2", (1, 1024)),
    drawings.growing_core("llama-3.1-405b", (1, 64, 2**20, 2**22, 2**24)),
    drawings.layer_timeline("llama-3.1-405b", 131072),
    drawings.layer_timeline("gpt2", 1),
    drawings.node_cards(gigabytes=9_876),
    drawings.hidden_exchange(sequences=8, seq=8192),
    drawings.hidden_exchange(sequences=2, seq=256, model="llama-3.1-405b", where="dgx-a100"),
    drawings.two_errors("llama-3-8b", (1, 2**20)),
    drawings.two_errors("llama-3-70b", (64,)),
    drawings.layer_cut(ranks=4),
    drawings.schedules(stages=2, micro_batches=2),
    drawings.schedules(stages=8, micro_batches=24),
    drawings.zigzag(ranks=2),
    drawings.zigzag(ranks=6),
    drawings.step_rows({"matmuls": (0.123456, 0.0)}, "another algorithm"),
    drawings.step_rows(
        {f"row of operators {i}": (1.23456e-6 * i, 1.1e-6 * i) for i in range(1, 7)}, "synchronising calls"
    ),
    drawings.stopwatches(calls=2),
    drawings.decode_parts("llama-2-13b", devices=1, context=128),
    drawings.decode_parts("llama-3.1-405b", devices=64, context=131072),
    drawings.batch_intensity("llama-2-13b", "a100-sxm-40gb", 16, (128, 131072)),
    drawings.batch_intensity("llama-3.1-405b", "b200", contexts=(8192,)),
    drawings.engine_batches((1, 1, 1, 1, 1), longest=9, page=4),
    drawings.engine_batches((9,) * 8, longest=16, page=4),
    drawings.stopwatches(calls=5),
    drawings.step_followed({f"bf16, compiled {i}": (1.23456e-3 * i, 1.1e-3 * i) for i in range(1, 7)}),
    drawings.step_followed({"TF32": (3.21, 3.21)}),
    drawings.saved_by_cures({f"{i} a cure of some name": (1.234 * i + 1, 1.01 * i + 1) for i in range(1, 9)}),
    drawings.saved_by_cures({"CUDA graphs": (1.001, 1.0)}),
    drawings.bottlenecks(1, 1, 1, 1),
    drawings.bottlenecks(128, 80, 224, 1024),
    drawings.inverted_bottleneck(1, 1, 1),
    drawings.inverted_bottleneck(960, 224, 1024),
    drawings.interval_of_rounds(1),
    drawings.interval_of_rounds(12345),
    drawings.node_cards(1, "dgx-a100"),
    drawings.node_cards(10_000, "dgx-b200"),
    drawings.norm_steps(64),
    drawings.norm_steps(2**20),
    drawings.numerators("gpt2", 1024, 1_000_000),
    drawings.numerators("llama-3.1-405b", 2**17, 1, "b200"),
    drawings.seen_parts(1),
    drawings.seen_parts(2**20),
    drawings.seen_calls(1, 8, 8),
    drawings.seen_calls(2**16, 2**14, 2**16),
    drawings.warm_up(1),
    drawings.warm_up(12345),
    drawings.batch_crossing("xeon", "fp32"),
]
DRAWN = [getattr(drawings, name)() for name in NAMES] + EXTREMES

WORDS = """() => [...document.querySelectorAll('.fk-sheets > svg')].map(svg => {
  const box = node => { const r = node.getBoundingClientRect(); return [r.left, r.top, r.right, r.bottom] };
  return {frame: box(svg), words: [...svg.querySelectorAll('text')].map(text =>
    ({text: text.textContent, box: box(text), size: text.getScreenCTM().a * text.getAttribute('font-size'), ink: getComputedStyle(text).fill}))};
})"""


def test_every_drawing_with_settings_is_tried_at_others():
    """A drawing's name is that of its function with dashes, or begins so."""
    takes = {name for name in NAMES if inspect.signature(getattr(drawings, name)).parameters}
    first = {name: getattr(drawings, name)().name for name in takes}
    tried = {drawing.name for drawing in EXTREMES}
    assert {name for name, drawn in first.items() if drawn not in tried} == set()


@pytest.fixture(scope="module")
def page(chromium):
    page = chromium.new_page()
    yield page
    page.close()


@pytest.fixture(scope="module")
def sheets(page):
    """`sheets(drawing, width, dark) -> [frame and words of each canvas]`"""

    def open_(drawing, width, dark=False):
        page.set_viewport_size({"width": width, "height": 800})
        theme = "dark" if dark else "light"
        page.set_content(
            f"<!doctype html><html data-theme={theme}><style>{STYLE} body {{ margin: 0 24px }}</style>{drawing.html()}</html>"
        )
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        return page.evaluate(WORDS)

    return open_


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("drawing", DRAWN, ids=lambda drawing: drawing.name)
def test_words_have_room(sheets, page, drawing, width):
    for sheet in sheets(drawing, width):
        left, top, right, bottom = sheet["frame"]
        scale = (right - left) / 360
        for word in sheet["words"]:
            a, b, c, d = word["box"]
            assert left - 1 <= a and c <= right + 1 and top - 1 <= b and d <= bottom + 1, f"{word['text']!r} leaves it"
            assert word["size"] >= 11, f"{word['text']!r} is {word['size']:.1f} px high"
        for i, one in enumerate(sheet["words"]):
            for other in sheet["words"][i + 1 :]:
                over = [
                    min(x, y) - max(v, w)
                    for v, w, x, y in zip(
                        one["box"][:2], other["box"][:2], one["box"][2:], other["box"][2:], strict=True
                    )
                ]
                assert over[0] <= scale or over[1] <= 4 * scale, f"{one['text']!r} runs into {other['text']!r}"
    assert page.locator("figure").evaluate(FAULTS)["faults"] == []


def test_a_line_through_words_is_told(sheets, page):
    canvas = Canvas(60)
    for y, look in ((10, {}), (30, {"halo": True}), (50, {})):
        canvas.line(6, y, 200, y)
        if y == 50:
            canvas.box(10, 42, 80, 16, fill=1, colour="#dfe3e8", edge=0)
        canvas.text(20, y, f"words at {y}", anchor="start", **look)
    sheets(Drawing("struck", "A title", "A line behind words, behind their halo, behind their box.", [canvas]), 390)
    assert page.locator("figure").evaluate(FAULTS)["faults"] == [
        '"words at 10" is crossed by a line, var(--fk-muted,#5b6472)'
    ]


def test_the_page_sets_the_ink(sheets):
    drawing = drawings.matrix_product()
    inks = [{word["ink"] for sheet in sheets(drawing, 390, dark) for word in sheet["words"]} for dark in (False, True)]
    assert inks == [
        {"rgb(34, 40, 50)", "rgb(0, 114, 178)", "rgb(213, 94, 0)"},
        {"rgb(206, 214, 221)", "rgb(86, 180, 233)", "rgb(255, 146, 72)"},
    ]
