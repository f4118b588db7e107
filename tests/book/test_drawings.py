"""Drawings as data: what touches what, their numbers against arithmetic by hand, and what every one of them must have."""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import os
import re
import statistics
from bisect import bisect
from pathlib import Path
from xml.etree import ElementTree

import pytest
import sympy as sp

import flopkit as fk
from flopkit.book import drawings, gallery
from flopkit.book.drawings.clinic import SHEETS
from flopkit.book.drawings.titles import model_title
from flopkit.book.gallery import fusing, rest
from flopkit.charts import theme
from flopkit.peers.asking import sure
from flopkit.peers.tools import TOOLS
from flopkit.profiling import advising
from flopkit.units import percent, seconds

ROOT = Path(__file__).resolve().parents[2]
NAMES = [name for name in drawings.__all__ if name != "Drawing"]


def inside(inner, outer):
    """The first mark lies within the second."""
    (a, b, c, d), (left, top, right, bottom) = inner.box, outer.box
    return left - 0.01 <= a and top - 0.01 <= b and c <= right + 0.01 and d <= bottom + 0.01


def words(drawing):
    return " ".join(mark.text for canvas in drawing.canvases for mark in canvas.marks if mark.kind == "text")


# -- every drawing ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_is_shown_tested_and_listed(name):
    """In the first two places by a call: of the chapter in a cell of its own, of a test here besides those of all drawings."""
    chapters = "".join(path.read_text("utf8") for path in (ROOT / "book").glob("*.ipynb"))
    assert f"drawings.{name}(" in chapters, "no chapter shows it"
    assert f"{name}(" in Path(__file__).read_text("utf8"), "no test here draws it"
    assert f":: flopkit.book.drawings.{name}\n" in (ROOT / "book" / "api_book.md").read_text("utf8"), "it is not listed"


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_says_what_it_shows(name):
    drawing = getattr(drawings, name)()
    assert drawing.name == name.replace("_", "-")
    assert 20 < len(drawing.title) < 100 and not drawing.title.endswith(".")
    assert re.match(r"[A-Z0-9].*[.]$", drawing.alt, re.S) and len(drawing.alt) > len(drawing.title)
    assert repr(drawing) == f"<Drawing {drawing.name!r}: {drawing.title}>"
    assert str(drawing) == f"{drawing.title}\n  {drawing.alt}"


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_is_small_well_formed_and_in_the_colours_of_its_page(name):
    page = getattr(drawings, name)().html()
    ElementTree.fromstring(page.replace(" id=", " id_="))
    assert len(page.encode()) < 12_000
    assert " id=" not in page and "url(" not in page and "<style" not in page  # two of them in a page cannot clash
    coloured = re.findall(r"var\((--fk-\w+),(#\w{6})\)", page)
    assert len(coloured) == len(re.findall(r"#[0-9a-fA-F]{3,8}\b", page)) > 0, "a colour that stays in the dark"
    assert all(theme.VARIABLES[colour] == variable for variable, colour in coloured)
    assert not re.search(r"(fill|stroke)=\"(?!none|currentColor|var\()", page)


@pytest.mark.parametrize("name", NAMES)
def test_a_drawing_is_listed(name):
    assert f":: flopkit.book.drawings.{name}\n" in (ROOT / "book" / "api_book.md").read_text("utf8")


def test_in_the_book_it_is_html_and_in_a_notebook_an_image(monkeypatch):
    drawing = drawings.matrix_product().numbered("2.7")
    monkeypatch.delenv("FLOPKIT_BOOK", raising=False)
    bundle = drawing._repr_mimebundle_()
    assert set(bundle) == {"image/svg+xml", "text/plain"}
    root = ElementTree.fromstring(bundle["image/svg+xml"])
    svg = "{http://www.w3.org/2000/svg}"
    assert root.find(f"{svg}title").text == drawing.heading and root.find(f"{svg}desc").text == drawing.alt
    assert "var(" not in bundle["image/svg+xml"], "an image does not know the page's colours"
    assert root.find(f"{svg}rect").get("fill") == theme.PAPER, "it brings its own ground"
    monkeypatch.setitem(os.environ, "FLOPKIT_BOOK", "1")
    page = drawing._repr_mimebundle_()["text/html"]
    assert "<figcaption>Figure 2.7. K multiply-adds" in page and "id=drawing-2-7 " in page
    assert f'role="img" aria-label="{drawing.alt}"' in page


def test_the_other_colours():
    drawing = drawings.matrix_product()
    dark = drawing.svg("dark")
    assert theme.DARK[theme.PAPER] in dark and theme.PAPER not in dark and theme.BLUE not in dark
    with pytest.raises(ValueError, match="'light' or 'dark'"):
        drawing.svg("night")


# -- products -----------------------------------------------------------------------------------------------------


def test_matrix_product_marks_what_meets():
    drawing = drawings.matrix_product(m=3, k=6, n=5)
    [a], [b], [c] = (drawing.marks(name) for name in "ABC")
    [row], [column], [result] = (drawing.marks(name) for name in ("row", "column", "result"))
    [of_row], [of_column] = drawing.marks("uses of the row"), drawing.marks("uses of the column")
    assert inside(row, a) and row.w == a.w and row.h == a.h / 3
    assert inside(column, b) and column.h == b.h and column.w == b.w / 5
    assert inside(result, c) and (result.y, result.x) == (row.y, column.x) and (result.h, result.w) == (row.h, column.w)
    assert inside(of_row, c) and of_row.w == c.w and of_row.y == row.y
    assert inside(of_column, c) and of_column.h == c.h and of_column.x == column.x
    assert a.w == b.h and a.h == c.h and b.w == c.w and a.y == c.y and b.x == c.x  # the inner sizes agree
    said = words(drawing)
    assert "K = 6 multiply-adds" in said and "= 90 multiply-adds" in said and "= 180 FLOPs" in said  # 3·5·6, twice
    assert "A is used N = 5 times" in said and "B is used M = 3 times" in said


def test_bytes_and_flops_by_hand():
    """H100: 3.35 TB/s and 989.4 TFLOP/s. The weight of 4,096 × 16,384 numbers in bf16 is 134,217,728 bytes."""
    drawing = drawings.bytes_and_flops()
    weights, rest, flops = (drawing.marks(name) for name in ("weight", "inputs and outputs", "arithmetic"))
    seconds = 134_217_728 / 3.35e12  # of the weight
    pixels = weights[0].w / seconds
    assert [bar.w for bar in weights] == [weights[0].w] * 3
    for tokens, moved, computed in zip((1, 64, 325), rest, flops, strict=True):
        assert moved.w == pytest.approx(pixels * tokens * (4096 + 16384) * 2 / 3.35e12)
        assert computed.w == pytest.approx(pixels * 2 * tokens * 4096 * 16384 / 989.4e12)
    assert abs(flops[2].w / (weights[2].w + rest[2].w) - 1) < 0.003  # at 325 tokens both take as long
    assert "136.8 MB" in words(drawing) and "8.59 GFLOPs: 8.68 µs" in words(drawing)


def test_norm_steps_are_what_torch_counts():
    """Each step of the norm as a program of its own; a bar is as long as its bytes per element, of which there are 2¹⁶."""
    torch = pytest.importorskip("torch")
    with torch.device("meta"):
        narrow, gain = torch.empty(256, 256, dtype=torch.bfloat16), torch.empty(256, dtype=torch.bfloat16)
        wide, root = narrow.float(), torch.empty(256, 1)
    steps = {
        "to fp32": fk.count(lambda: narrow.float()),
        "square": fk.count(lambda: wide.pow(2)),
        "mean": fk.count(lambda: wide.mean(-1, keepdim=True)),
        "× 1/root": fk.count(lambda: wide * root),
        "to bf16": fk.count(lambda: wide.bfloat16()),
        "× gain": fk.count(lambda: narrow * gain),
    }
    drawing = drawings.norm_steps()
    [unit] = {mark.w / int(mark.text) for mark in drawing.marks("read by mean")}
    for name, report in steps.items():
        bars = drawing.marks(f"read by {name}") + drawing.marks(f"written by {name}")
        assert sum(bar.w for bar in bars) / unit == pytest.approx(report.bytes / narrow.numel(), rel=0.01)
    assert "together 36 bytes" in words(drawing) and "together 4 bytes" in words(drawing)


def test_two_networks_layer_by_layer():
    """Both networks walked from their papers' tables: an H100 reads and writes 3.35 TB/s and computes 989.4 TFLOP/s in bf16, 67 on its lanes."""
    images, flops, moved, seconds = 64, 0, 0, 0.0

    def add(elements, done=0, peak=989.4e12):
        nonlocal flops, moved, seconds
        flops, moved = flops + done, moved + 2 * elements
        seconds += max(2 * elements / 3.35e12, done / peak)

    def convolve(c_in, c_out, kernel, before, after, act=True, depthwise=False):
        weights = c_out * kernel**2 * (1 if depthwise else c_in)
        out = images * c_out * after**2
        add(
            images * c_in * before**2 + weights + out, 2 * images * after**2 * weights, 67e12 if depthwise else 989.4e12
        )
        for _ in range(1 + act):  # the norm, the activation
            add(2 * out)

    def classify(channels, side):
        add(images * channels * (side**2 + 1))
        add(channels * 1000 + images * (channels + 1000), 2 * images * channels * 1000)

    convolve(3, 64, 7, 224, 112)
    add(images * 64 * (112**2 + 56**2))
    channels, side = 64, 56
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            after = side // 2 if width > 64 and not block else side
            convolve(channels, width, 1, side, side)
            convolve(width, width, 3, side, after)
            convolve(width, 4 * width, 1, after, after, act=False)
            if not block:
                convolve(channels, 4 * width, 1, side, after, act=False)
            channels, side = 4 * width, after
            add(3 * images * channels * side**2)
            add(2 * images * channels * side**2)
    classify(channels, side)
    resnet, flops, moved, seconds = (flops, moved, seconds), 0, 0, 0.0
    convolve(3, 32, 3, 224, 112)
    channels, side = 32, 112
    for wider, out, blocks, stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for block in range(blocks):
            after = side // stride if not block else side
            if wider > 1:
                convolve(channels, wider * channels, 1, side, side)
            convolve(wider * channels, wider * channels, 3, side, after, depthwise=True)
            convolve(wider * channels, out, 1, after, after, act=False)
            if block:
                add(3 * images * out * after**2)
            channels, side = out, after
    convolve(320, 1280, 1, 7, 7)
    classify(1280, 7)
    drawing = drawings.two_networks()
    for what, large, small in zip(("FLOPs", "bytes", "least time"), resnet, (flops, moved, seconds), strict=True):
        [long], [short] = drawing.marks(f"{what} of ResNet-50"), drawing.marks(f"{what} of MobileNetV2")
        assert long.w / short.w == pytest.approx(large / small, rel=0.005)
        assert f"{what}: {large / small:.1f}×" in words(drawing)
    for mark, taken in zip(drawing.marks("amount")[4:], (resnet[2], seconds), strict=True):
        assert float(mark.text.removesuffix(" ms")) == pytest.approx(1e3 * taken, rel=0.005)


def test_blocks_of_two_networks_by_hand():
    """An inverted bottleneck in numbers of a map's channel: each operator reads what it needs and writes what it makes."""
    drawing = drawings.inverted_bottleneck(channels=24, side=56, batch=64)
    c, w, at = 24, 144, 64 * 56 * 56
    products = {
        0: (2 * at * c * w, at * (c + w) + c * w),
        3: (2 * at * w * 9, at * 2 * w + 9 * w),
        6: (2 * at * w * c, at * (w + c) + w * c),
    }
    flops = [mark for i in range(9) for mark in drawing.marks(f"FLOPs of {i}")]
    bars = [mark for i in range(9) for mark in drawing.marks(f"bytes of {i}")]
    assert [mark.text for mark in flops if mark.kind == "text"] == ["few"] * 6  # vector work, not counted
    numbers = [at * 2 * w] * 9
    numbers[0], numbers[3], numbers[6] = (moved for _, moved in products.values())
    numbers[7], numbers[8] = at * 2 * c, at * 3 * c
    for bar, moved in zip(bars, numbers, strict=True):
        assert bar.w / bars[3].w == pytest.approx(moved / numbers[3], rel=1e-4)
    assert flops[3].w / flops[0].w == pytest.approx(products[3][0] / products[0][0])
    share = sum(numbers[i] for i in (1, 2, 4, 5, 7)) / sum(numbers)
    assert f"{100 * share:.1f} %" in drawing.title
    colours = {re.search(r'fill="(#\w+)"', bar.svg)[1]: 0 for bar in bars}
    for bar, moved in zip(bars, numbers, strict=True):
        colours[re.search(r'fill="(#\w+)"', bar.svg)[1]] += moved
    assert f"{100 * colours[theme.BLUE] / sum(numbers):.1f} %" in drawing.title, "blue is what the title counts"
    key, said = drawing.marks("key")[::2], drawing.marks("key")[1::2]
    assert [re.search(r'fill="(#\w+)"', box.svg)[1] for box in key] == [theme.ORANGE, theme.BLUE, theme.MUTED]
    assert [mark.text for mark in said] == ["convolutions", "batch norms, activations", "the residual sum"]
    both = drawings.bottlenecks()
    intensity = sum(done for done, _ in products.values()) / (4 * sum(numbers))
    assert f"{intensity:.3g} FLOPs per byte" in words(both)
    said = {
        name: ", ".join(mark.text for place in range(3) for mark in both.marks(f"operators {place} of {name}")).split(
            ", "
        )
        for name in ("a bottleneck", "an inverted bottleneck")
    }
    named = {"batch norm": "norm", "activation": "act.", "residual sum": "sum", "depthwise 3 × 3": "depthwise"}
    bars = [mark.text.partition(",")[0] for mark in drawing.canvases[0].marks if mark.kind == "text"][2:]
    assert said["an inverted bottleneck"] == [named.get(bar, bar) for bar in bars if bar in named or bar == "1 × 1"]
    assert said["a bottleneck"] == [word.replace("depthwise", "3 × 3") for word in said["an inverted bottleneck"]] + [
        "act."
    ]
    wide, thin = (both.marks(f"map 0 of {name}")[0].w for name in ("a bottleneck", "an inverted bottleneck"))
    assert wide / thin == pytest.approx(256 / 24)
    at, (n, m) = 64 * 56 * 56, (64, 256)
    done = 2 * at * (2 * n * m + 9 * n * n)
    moved = at * (2 * (n + m) + 2 * n + 4 * (2 * n) + 2 * m + 3 * m + 2 * m) + 2 * n * m + 9 * n * n
    assert f"{done / (4 * moved):.3g} FLOPs per byte" in words(both)


def test_layer_tensors_by_hand():
    """Llama-3-8B at 8,192 tokens in bf16: a tensor of width 4,096 has 67.1 MB, one of width 14,336 234.9 MB."""
    [sheet] = drawings.layer_tensors().canvases
    stream, hidden, weight, gain = 2 * 8192 * 4096, 2 * 8192 * 14336, 2 * 4096 * 14336, 2 * 4096
    square, angles = 2 * 4096 * 4096, 2 * 8192 * 128
    read = {
        "residual sum before": 2 * stream, "norm": stream + gain, "q, k, v": 3 * stream + 1.5 * square, "rotary": 1.25 * stream + angles,
        "attention, flash": 1.5 * stream, "o": stream + square, "residual sum": 2 * stream, "norm of the MLP": stream + gain,
        "gate, up": 2 * (stream + weight), "SwiGLU": 2 * hidden, "down": hidden + weight,
    }  # fmt: skip
    written = dict.fromkeys(read, stream) | {
        "q, k, v": 1.5 * stream,
        "rotary": 1.25 * stream,
        "gate, up": 2 * hidden,
        "SwiGLU": hidden,
    }
    pixels = sheet.named("written by SwiGLU")[0].w / hidden
    for what, by_hand in (("read", read), ("written", written)):
        bars = {mark.name: mark.w for mark in sheet.marks if mark.name.startswith(f"{what} by")}
        assert bars == pytest.approx({f"{what} by {name}": pixels * each for name, each in by_hand.items()})
    assert sum(read.values()) + sum(written.values()) == gallery.fused_kernels().at()["bytes"]


def test_orange_is_for_matmuls_in_all_figures_of_chapter_5():
    for drawing in (drawings.norm_steps(), drawings.layer_tensors()):  # read and written
        assert not {theme.ORANGE, theme.BLUE} & set(re.findall("#[0-9a-f]{6}", drawing.html()))
    assert fusing.KINDS == {fusing.MATMUL: theme.ORANGE, fusing.OTHER: theme.BLUE, fusing.BOTH: theme.GREEN}
    ranges = dict(zip(rest.KINDS, rest.COLOURS, strict=True))
    assert ranges["products"] == theme.ORANGE and theme.ORANGE not in [
        ranges[name] for name in ("norm", "sums", "rotary")
    ]


def test_models_have_the_names_that_people_write():
    """A drawing says Llama-3-8B, not llama-3-8b, which is what `flopkit.load` takes."""
    every = (
        drawings.layer_tensors(), drawings.model_tree(), drawings.decode_bytes(), drawings.attention_layer(), drawings.numerators(),
    )  # fmt: skip
    for drawing in every:
        said = " ".join([drawing.title, drawing.alt, words(drawing)])
        assert [
            name for name in fk.models.model_names() if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", said)
        ] == []
    assert "29 % of GPT-2 and 0.349 % of GPT-3" in drawings.model_tree().title
    titles = [model_title(name) for name in fk.models.model_names()]
    assert len(set(titles)) == len(titles)


def test_fused_chain_by_hand():
    """Three operators: apart, x, t1 and t2 are read and t1, t2 and y written, 2 bytes each; fused, x is read and y written."""
    drawing = drawings.fused_chain()
    apart, fused = (
        [mark for mark in drawing.marks(name) if (mark.y < 174) == first]
        for name, first in (("kernel", True), ("kernel", False))
    )
    assert (
        len(apart) == 3 and len(fused) == 1 and len(drawing.marks("operator")) == 3 and len(drawing.marks("kept")) == 2
    )
    assert all(inside(operator, fused[0]) for operator in drawing.marks("operator"))
    arrows = {name: [mark.y < 174 for mark in drawing.marks(name)] for name in ("read", "written")}
    assert arrows == {"read": [True] * 3 + [False], "written": [True] * 3 + [False]}
    assert "12 bytes" in drawing.marks("apart")[0].text and "4 bytes" in drawing.marks("fused")[0].text


def test_tile_on_chip_by_hand():
    """128 × 128 scores in fp32: 65,536 bytes, as many for the output; a block of 128 tokens of 128 elements in bf16: 32,768. 64K registers of 4 bytes."""
    drawing = drawings.tile_on_chip()
    told = [mark.text for mark in drawing.marks("parts")]
    assert told == [
        "scores 65.54 kB; output O 65.54 kB; m, ℓ 1.024 kB",
        "Q 32.77 kB; K 32.77 kB; V 32.77 kB",
        "K and V of one head 2.097 MB",
    ]
    [scores], [registers] = drawing.marks("scores 0"), drawing.marks("level 0")
    assert scores.w / registers.w == pytest.approx(65536 / 262144)
    operands = [drawing.marks(f"{name} 1")[0] for name in "QKV"]
    assert sum(mark.w for mark in operands) / drawing.marks("level 1")[0].w == pytest.approx(98304 / 233472)
    assert all(one.x + one.w == pytest.approx(other.x) for one, other in itertools.pairwise(operands))
    assert f"{132096 / 262144:.1%}".replace("%", " %") in drawing.title
    assert "32 blocks" in drawing.marks("blocks")[0].text  # 4,096 / 128
    with pytest.raises(ValueError, match=r"queries=256.*264.2 kB in 262.1 kB"):
        drawings.tile_on_chip(queries=256)
    with pytest.raises(ValueError, match="keys=0"):
        drawings.tile_on_chip(keys=0)


def test_score_transfers_are_those_of_the_formulas():
    """Eleven tensors of the scores' size: the T² term of the bytes of separate kernels. What a kernel reads, one before it wrote, once."""
    drawing = drawings.score_transfers()
    marks = drawing.canvases[0].marks
    ways = [mark.name for mark in marks if mark.name in ("read", "written")]
    tensors = [mark.text for mark in drawing.marks("tensor")]
    assert [int(mark.text) for mark in drawing.marks("number")] == list(range(1, 12))
    written = set()
    for tensor, way in zip(tensors, ways, strict=True):
        assert (tensor in written) == (way == "read")
        written.add(tensor)
    assert (ways.count("read"), ways.count("written")) == (7, 4)
    assert [len([m for m in marks if m.name in ("read", "written") and left <= m.x <= right]) for left, right in (
        (line.box[0], line.box[2]) for line in (*drawing.marks("forward"), *drawing.marks("backward"))
    )] == [4, 7]  # fmt: skip
    T = sp.Symbol("T", positive=True, integer=True)
    core = {"batch": 1, "q": T, "kv": T, "heads": 1, "head_dim": 64, "kernel": "math"}
    passes = fk.attention(**core), fk.training.attention_backward(**core)
    assert [sp.Poly(sp.expand(each.bytes), T).coeff_monomial(T**2) / 2 for each in passes] == [4, 7]
    assert all(arrow.y < arrow.y + arrow.h for arrow in drawing.marks("read"))  # from memory down to a kernel
    assert "the backward pass of the softmax, reads P and dP, writes dS" in drawing.alt


def test_tile_walk_by_hand():
    """1,024 tokens in tiles of 128: 64. The lit one is the fourth of the fourth row: three tiles are behind it. 128 × 128 × 4 bytes."""
    drawing = drawings.tile_walk()
    [tile], [walked] = drawing.marks("tile"), drawing.marks("walked")
    assert walked.w == pytest.approx(3 * tile.w) and walked.box[2] == pytest.approx(tile.x)
    assert (walked.y, walked.h) == (tile.y, tile.h) and tile.w == tile.h
    [of_q], [of_k], [of_v] = (drawing.marks(f"loaded of {name}") for name in "QKV")
    assert (of_q.y, of_q.h) == (tile.y, tile.h) and of_q.box[2] < tile.x
    assert all((each.x, each.w) == (tile.x, tile.w) and each.box[3] < tile.y for each in (of_k, of_v))
    [walk], [kept] = drawing.marks("walk"), drawing.marks("kept")
    assert tile.x < walk.x < tile.box[2] and kept.text == "m, ℓ, O" and walk.x + walk.w <= kept.x
    assert "1 of 64 tiles" in drawing.title and "128 × 128 scores, 65.54 kB" in drawing.marks("said")[0].text
    assert "row 4 and column 4" in drawing.alt and "8 by 8 tiles" in drawing.alt
    oblong = drawings.tile_walk(queries=64, keys=128, tokens=512)
    [tile], [of_k] = oblong.marks("tile"), oblong.marks("loaded of K")
    assert tile.w == pytest.approx(2 * tile.h) and "8 by 4 tiles" in oblong.alt and of_k.x == tile.x


@pytest.mark.parametrize(
    "sizes", [{"tokens": 1000}, {"queries": 512}, {"keys": 32}, {"queries": 0}, {"tokens": 1024.0}]
)
def test_tile_walk_refuses_what_it_cannot_draw(sizes):
    [name] = sizes
    with pytest.raises(ValueError, match=f"{name}={sizes[name]}"):
        drawings.tile_walk(**sizes)
    with pytest.raises(ValueError, match=r"524.3 kB of scores in 262.1 kB"):  # 256 × 512 × 4 bytes, 64K registers of 4
        drawings.tile_walk(queries=256, keys=512, tokens=4096)


def test_chosen_experts_by_hand():
    """8 of the 256 squares are filled, each on the grid and once; the shared expert is reached without the router."""
    drawing = drawings.chosen_experts()
    [canvas] = drawing.canvases
    [grid], [shared] = canvas.named("experts"), canvas.named("shared")
    chosen = canvas.named("chosen")
    assert len({(mark.x, mark.y) for mark in chosen}) == 8 and all(inside(mark, grid) for mark in chosen)
    assert grid.w * grid.h == 256 * chosen[0].w * chosen[0].h
    past = canvas.named("past the router")[-1]
    assert past.y == shared.y + shared.h / 2 and past.x + past.w <= shared.x
    assert len(drawings.chosen_experts(experts=64, top_k=6).canvases[0].named("chosen")) == 6


def test_routed_tokens_by_hand():
    """6 tokens choose 2 of 4 experts. Balanced: 3 each. Skewed: all choose the first, 2 each of the others. Room for 4 each."""
    drawing = drawings.routed_tokens(capacity=1.25)
    balanced, skewed = drawing.canvases
    for canvas in (balanced, skewed):
        lines = [len(canvas.named(f"choice {e}")) for e in range(4)]
        assert len(canvas.named("token")) == 6 and len(canvas.named("expert")) == 4 and sum(lines) == 12
        (line,) = canvas.named("capacity")
        assert all(mark.box[2] <= line.x + 0.01 for mark in (*canvas.named("kept"), *canvas.named("empty")))
        assert all(mark.x >= line.x - 0.01 for mark in canvas.named("dropped"))
    assert [len(balanced.named(f"choice {e}")) for e in range(4)] == [3, 3, 3, 3]
    assert [len(skewed.named(f"choice {e}")) for e in range(4)] == [6, 2, 2, 2]
    rows = [
        [sum(mark.w for mark in canvas.named(name)) / 18 for name in ("kept", "dropped", "empty")]
        for canvas in drawing.canvases
    ]
    assert rows == [[12, 0, 4], [10, 2, 6]]
    assert "drops 2 choices, 16.7 %, and 6 rows" in drawing.alt


def test_routed_tokens_without_a_limit_keep_all_rows():
    """It stands before a guess and before capacities are explained: nothing is dropped or empty, and no sentence compares the work."""
    drawing = drawings.routed_tokens()
    [skewed] = drawing.canvases  # the next figure has the balanced load beside it
    assert [mark.w / 18 for mark in skewed.named("kept")] == [6, 2, 2, 2]
    assert not any(skewed.named(name) for name in ("dropped", "empty", "capacity"))
    assert "balanced, each would get 3" in drawing.alt
    assert not re.search("12|work|capacity|room", drawing.title + drawing.alt)


@pytest.mark.parametrize(("k", "drawn"), [(2, 2), (4, 4), (5, 3), (4096, 3)])
def test_dot_product_is_a_chain(k, drawn):
    drawing = drawings.dot_product(k)
    chain = [*drawing.marks("start"), *drawing.marks("fma")]
    assert len(drawing.marks("fma")) == drawn and len(drawing.marks("operand")) == 2 * drawn
    arrows = drawing.marks("sum")
    for arrow in arrows:
        starts = any(abs(arrow.x - box.box[2]) < 0.01 for box in [*chain, *drawing.marks("left out")])
        assert starts or k > 4
    assert arrows[0].x == chain[0].box[2] and arrows[0].box[2] == chain[1].x
    assert f"{k:,} multiplies, {k - 1:,} adds: {2 * k - 1:,}" in words(drawing)
    assert f"{k:,} FMAs: {2 * k:,} FLOPs" in words(drawing)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: drawings.matrix_product(m=8), r"matrix_product\(m=8\): give a whole number from 2 to 7"),
        (lambda: drawings.matrix_product(k=3), r"matrix_product\(k=3\): give a whole number from 4 to 7"),
        (lambda: drawings.matrix_product(n=4.0), r"matrix_product\(n=4.0\)"),
        (lambda: drawings.dot_product(True), r"dot_product\(k=True\)"),
        (lambda: drawings.bytes_and_flops(tokens=(1,)), "give two to five"),
        (lambda: drawings.layer_tensors("gpt2"), "RMS norms, rotary positions and SwiGLU"),
        (lambda: drawings.chosen_experts(experts=40), "give a multiple of 16"),
        (lambda: drawings.routed_tokens(tokens=7), "must be a multiple of experts"),
        (lambda: drawings.routed_tokens(capacity=3), "give a whole number from 1 to 8"),
        (lambda: drawings.bytes_and_flops(device="t4"), "no peak for bf16"),
        (lambda: drawings.peak("t4", "bf16"), "what this peak is made of is not known"),
        (lambda: drawings.peak(cores=3), "4096 FLOPs a clock cannot be shared evenly by 3 cores"),
        (lambda: drawings.window(size=8, padding=2), "12 rows with 5 positions"),
        (lambda: drawings.window(size=3, kernel=3, padding=0), "3 rows with 1 positions"),
        (lambda: drawings.window(kernel=6), r"window\(kernel=6\): give a whole number from 1 to 5"),
        (lambda: drawings.wiring(channels=6, groups=4), "groups must divide the channels"),
        (lambda: drawings.transposed(size=5), r"transposed\(size=5\)"),
        (lambda: drawings.gradients(tokens=0), "tokens"),
        (lambda: drawings.numerators(rate=0), "rate=0"),
        (lambda: drawings.numerators(device="t4"), "no peak for bf16"),
        (lambda: drawings.seen_calls(hidden=0), r"seen_calls\(hidden=0\)"),
        (lambda: drawings.seen_parts(tokens=0), r"seen_parts\(tokens=0\)"),
        (lambda: drawings.kept_over_time(5), "two to four layers"),
        (lambda: drawings.kept_over_time(2, "some"), "'none' or 'full'"),
        (lambda: drawings.growing_core("mistral-7b"), "causal attention and no window"),
        (lambda: drawings.growing_core(tokens=()), "one to five lengths"),
        (lambda: drawings.growing_core(tokens=(0,)), r"growing_core\(tokens=0\)"),
        (lambda: drawings.layer_timeline(tokens=0), r"layer_timeline\(tokens=0\)"),
        (lambda: drawings.layer_timeline(device="t4"), "no peak for bf16"),
        (lambda: drawings.attention_layer("mistral-7b"), "no causal attention without a window"),
        (lambda: drawings.attention_layer("deepseek-v3"), "no causal attention without a window"),
        (lambda: drawings.attention_layer("bert-base"), "no causal attention without a window"),
        (lambda: drawings.model_tree(models=("gpt2",)), "a length for each"),
        (lambda: drawings.model_tree(("mixtral-8x7b",), (4096,)), "have experts, which is not drawn"),
        (lambda: drawings.model_tree(("gemma-2-2b",), (4096,)), "of several kinds"),
        (lambda: drawings.wanted_gradients("frozen", "lora"), "'trained', 'frozen', 'LoRA'"),
        (lambda: drawings.wanted_gradients("frozen"), "two to six"),
        (lambda: drawings.causal_tiles(1000, 128), "2 to 16 whole tiles"),
        (lambda: drawings.causal_tiles(128, 128), "2 to 16 whole tiles"),
        (lambda: drawings.attention_layer("no-such-model"), "no-such-model"),
        (lambda: drawings.mla(q=5, kv=4), "q"),
        (lambda: drawings.prefill_and_decode(prompt=9), r"prefill_and_decode\(prompt=9\)"),
        (lambda: drawings.decode_bytes(batches=(1,)), "give two to five batches"),
        (lambda: drawings.step_rows({}), "give one to 6 rows"),
        (lambda: drawings.step_rows({f"row {i}": (1.0, 0.5) for i in range(7)}), "rows of 7"),
        (lambda: drawings.step_rows({"matmuls": (1.0, 2.0)}), "no longer after the cure"),
        (lambda: drawings.step_rows({"matmuls": (1.0, -1.0)}), "at least 0 s"),
        (lambda: drawings.step_rows({"matmuls": (1.0, 1.0)}, "hope"), "cure='hope'.*nothing to draw"),
        (lambda: drawings.stopwatches(calls=6), r"stopwatches\(calls=6\)"),
        (lambda: drawings.engine_batches(lengths=(1, 2)), "five to eight users"),
        (lambda: drawings.engine_batches(page=5), r"engine_batches\(page=5\)"),
    ],
)
def test_what_cannot_be_drawn_is_refused(call, said):
    with pytest.raises(ValueError, match=said):
        call()


# -- hardware -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "dtype", "cores", "units", "own", "rate"),
    [
        ("h100-sxm", "bf16", 4, 132, 512, 132 * 4 * 512 * 2 * 1830e6),
        ("t4", "fp16", 8, 40, 64, 40 * 8 * 64 * 2 * 1590e6),
        ("a100-sxm-80gb", "bf16", 4, 108, 256, 108 * 4 * 256 * 2 * 1410e6),
    ],
)
def test_peak_shows_each_factor(device, dtype, cores, units, own, rate):
    drawing = drawings.peak(device, dtype, cores)
    [grid], [one], [unit] = (drawing.marks(name) for name in ("units", "one unit", "unit"))
    rest = drawing.marks("rest of the units")
    assert sum(round(mark.w * mark.h / one.w**2) for mark in [grid, *rest]) == units
    assert inside(one, grid) and unit.x > grid.box[2]
    assert [mark.text for mark in drawing.marks("core")] == [f"{own}"] * cores
    assert all(inside(core, unit) for core in drawing.marks("core"))
    *_, per_unit, per_chip, per_second = (mark.text for mark in drawing.marks("gives"))
    assert per_unit == f"{cores * own * 2:,} FLOPs/clock" and per_chip == f"{units * cores * own * 2:,} FLOPs/clock"
    assert per_second == f"{rate / 1e12:.4g} TFLOP/s" and per_second in drawing.title
    assert all(line.x == one.box[2] and line.x + line.w == unit.x for line in drawing.marks("zoom"))


def test_a_chip_without_cores_in_its_units():
    drawing = drawings.peak("tpu-v4", cores=None)  # 8 units of 128 × 128 multiply-adds, 1,050 MHz
    assert (
        drawing.title
        == f"8 MXUs × {128 * 128:,} multiply-adds × 2 × 1,050 MHz = {8 * 128**2 * 2 * 1.05e9 / 1e12:.4g} TFLOP/s"
    )


# -- convolutions -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "kernel", "stride", "padding"), [(5, 3, 2, 1), (8, 5, 1, 1), (6, 3, 2, 0), (4, 2, 3, 3), (5, 4, 1, 2)]
)
def test_window_by_walking(size, kernel, stride, padding):
    drawing = drawings.window(size, kernel, stride, padding)
    [image], [first], [second] = (drawing.marks(name) for name in ("padded image", "window", "next window"))
    [made], [made_next], [outputs] = (drawing.marks(name) for name in ("output", "next output", "outputs"))
    cell, padded = image.w / (size + 2 * padding), size + 2 * padding
    starts = [start for start in range(0, padded, stride) if start + kernel <= padded]
    side = len(starts)
    assert inside(first, image) and inside(second, image) and first.w == pytest.approx(kernel * cell)
    assert second.x - first.x == pytest.approx(starts[1] * cell) == pytest.approx(drawing.marks("stride")[0].w)
    assert outputs.w / made.w == pytest.approx(side) and inside(made, outputs) and made_next.x == made.box[2]
    ring = [(r, c) for r in range(padded) for c in range(padded) if not {r, c} <= {*range(padding, padding + size)}]
    middles = [(mark.y + mark.h / 2 - image.y, mark.x + mark.w / 2 - image.x) for mark in drawing.marks("zero")]
    assert {(int(down / cell), int(along / cell)) for down, along in middles} == set(ring) and len(middles) == len(ring)
    met = sum(r < kernel and c < kernel for r, c in ring)
    said = [mark.text for mark in drawing.marks("said")]
    assert said[0].startswith(f"{side} per side: ({size} + 2·{padding} − {kernel}) / {stride} + 1")
    assert ("rounded down" in said[0]) == (starts[-1] + kernel < padded)
    assert f"= {kernel**2} multiply-adds" in said[1]
    assert f"all {side**2}: {side**2 * kernel**2} multiply-adds" in said[2]
    assert said[3:] == [f"the blue window covers {met} zeros, which count, too"] * bool(met)


@pytest.mark.parametrize(("channels", "groups"), [(4, 2), (6, 3), (8, 2)])
def test_wiring_joins_the_channels_of_a_group(channels, groups):
    drawing = drawings.wiring(channels, groups)
    [sheet] = drawing.canvases
    for name, parts in (("full", 1), (f"{groups} groups", groups), ("depthwise", channels)):
        lines = [mark for mark in sheet.named(name) if mark.kind == "line"]
        top = min(line.y for line in lines)
        wires = {(round((line.y - top) / 26), round((line.y + line.h - top) / 26)) for line in lines}
        block = channels // parts
        assert len(lines) == len(wires)
        assert wires == {(i, j) for i in range(channels) for j in range(channels) if i // block == j // block}
        assert str(len(wires)) in drawing.title
        balls = [mark.box for mark in sheet.named("channel")]
        for line in lines:
            assert any(box[2] == line.x and box[1] < line.y < box[3] for box in balls)
            assert any(box[0] == line.x + line.w and box[1] < line.y + line.h < box[3] for box in balls)


@pytest.mark.parametrize(("size", "kernel", "stride"), [(3, 3, 2), (2, 4, 1), (4, 2, 3)])
def test_transposed_by_walking(size, kernel, stride):
    drawing = drawings.transposed(size, kernel, stride)
    [one], [first], [second], [outputs] = (
        drawing.marks(name) for name in ("input", "scattered", "next scattered", "outputs")
    )
    touched = [[{a * stride + i for i in range(kernel)} for a in range(size)] for _ in range(2)]
    side = max(max(rows) for rows in touched[0]) + 1
    cell = one.w
    assert outputs.w == pytest.approx(side * cell) and first.w == second.w == pytest.approx(kernel * cell)
    assert inside(first, outputs) and inside(second, outputs)
    assert second.x - first.x == pytest.approx(min(touched[0][1]) * cell)
    both = len(touched[0][0] & touched[0][1]) * kernel
    said = " ".join(mark.text for mark in drawing.marks("said"))
    assert f"all {size**2}: {size**2 * kernel**2} multiply-adds" in said
    assert (f"({both} outputs)" in said) == bool(both)


# -- backward -----------------------------------------------------------------------------------------------------


def test_gradients_are_products_whose_sizes_meet():
    drawing = drawings.gradients(tokens=64, d_in=4096, d_out=16384)
    assert [mark.text for mark in drawing.marks("flops")] == ["8.59 GFLOPs"] * 3  # 2 · 64 · 4,096 · 16,384
    shapes = [mark for sheet in drawing.canvases for mark in sheet.marks if mark.name.startswith("shape of ")]
    for result, left, right in (shapes[:3], shapes[3:6], shapes[6:]):
        (m, n), (a, k), (k2, b) = (mark.text.split("×") for mark in (result, left, right))
        assert (m, n, k) == (a, b, k2), f"{result.name} = {left.name} · {right.name}"
    names = [mark.name.removeprefix("shape of ") for mark in shapes]
    assert names == ["Y", "X", "W", "dX", "dY", "Wᵀ", "dW", "Xᵀ", "dY"]
    # A gradient has the shape of what it is the gradient of.
    at = {name: mark.text for name, mark in zip(names, shapes, strict=True)}
    assert at["dX"] == at["X"] and at["dW"] == at["W"] and at["dY"] == at["Y"]
    for gradient, tensor in (("dX", "X"), ("dW", "W"), ("dY", "Y")):
        assert {(m.w, m.h) for m in drawing.marks(gradient)} == {(m.w, m.h) for m in drawing.marks(tensor)}


@pytest.mark.parametrize("chain", [*itertools.product(("trained", "frozen", "LoRA"), repeat=3)], ids="-".join)
def test_wanted_gradients_are_those_that_autograd_computes(chain):
    torch = pytest.importorskip("torch")
    x, products, drawing = torch.zeros(1, 2), 0, drawings.wanted_gradients(*chain)
    for number, state in enumerate(chain, 1):
        weight = torch.zeros(2, 2, requires_grad=state == "trained")
        into = x.requires_grad
        x = x @ weight + (x @ torch.zeros(2, 1, requires_grad=True) @ torch.zeros(1, 2) if state == "LoRA" else 0)
        assert len(drawing.marks(f"dX {number}")) == into
        assert len(drawing.marks(f"dW {number}")) == (state != "frozen")
        products += into + weight.requires_grad
        [box] = drawing.marks(f"layer {number}")
        reached = [arrow for arrow in drawing.marks("backward") if arrow.y + arrow.h == box.y]
        assert len(reached) == x.requires_grad, "the gradient comes to a layer if its output wants one"
    assert f"{products} matmuls backward, one per gradient, against 3 forward" in drawing.title
    assert drawing.title.endswith(f": {float(f'{products / 3:.3g}'):g} times as much")


# -- attention ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("length", "tile"), [(24, 4), (16, 8), (64, 4), (9, 3)])
def test_causal_tiles_by_looking_at_each_pair(length, tile):
    drawing = drawings.causal_tiles(length, tile)
    kinds = {"full": 0, "cut": 0, "skipped": 0}
    side, visible = length // tile, sum(key <= query for query in range(length) for key in range(length))
    for row, column in itertools.product(range(side), repeat=2):
        seen = sum(column * tile + k <= row * tile + q for q in range(tile) for k in range(tile))
        kinds["full" if seen == tile**2 else "cut" if seen else "skipped"] += 1
    [tiles] = drawing.marks("tiles")
    cell = tiles.w / side
    for kind, count in kinds.items():
        runs = drawing.marks(kind)
        assert sum(run.w / cell for run in runs) == pytest.approx(count) and all(inside(run, tiles) for run in runs)
        assert [mark.text for mark in drawing.marks(f"count of {kind}")] == [str(count)]
    for run in drawing.marks("cut"):
        assert run.x - tiles.x == pytest.approx(run.y - tiles.y)  # on the diagonal
    said = [mark.text for mark in drawing.marks("said")]
    assert said[0].startswith(f"visible: {visible:,} pairs")
    assert said[1].startswith(f"computed: {(kinds['full'] + kinds['cut']) * tile**2:,} pairs")


def touch(drawing):
    """(name of the box where it starts, of that where it ends) of each arrow between boxes."""
    found = set()
    for sheet in drawing.canvases:
        boxes = [mark for mark in sheet.marks if mark.kind == "box" and mark.name]
        for arrow in (mark for mark in sheet.marks if mark.kind == "arrow"):
            ends = (arrow.x, arrow.y), (arrow.x + arrow.w, arrow.y + arrow.h)
            sides = (3, 1)  # it leaves a box below and enters another above
            at = [
                [box.name for box in boxes if box.box[0] <= x <= box.box[2] and abs(box.box[side] - y) < 0.01]
                for (x, y), side in zip(ends, sides, strict=True)
            ]
            assert [len(names) for names in at] == [1, 1], f"an arrow from {at[0]} to {at[1]}"
            found.add((at[0][0], at[1][0]))
    return found


def test_attention_layer_by_hand():
    drawing = drawings.attention_layer("llama-3-8b", tokens=4096)
    wide, keys, core = 2 * 4096 * 4096 * 4096, 2 * 4096 * 4096 * 1024, 2 * 32 * 128 * (4096 * 4097 // 2)
    flops = {"q_proj": wide, "k_proj": keys, "v_proj": keys, "o_proj": wide, "Q · Kᵀ": core, "S · V": core}
    for name, count in flops.items():
        assert drawing.marks(name)[0].text.endswith(f" {float(f'{count / 1e9:.4g}'):g} GFLOPs")
    assert f"takes {100 * 2 * core / sum(flops.values()):.1f} % of" in drawing.title
    keys = "8 × T × 128"
    shapes = {"queries": "32 × T × 128", "keys": keys, "values": keys, "tokens": "T × 4,096", "output": "T × 4,096"}
    assert all(drawing.marks(name)[0].text == f"{name} {shape}" for name, shape in shapes.items())
    softmax = "scores, masked, softmax"
    assert touch(drawing) == {
        ("tokens", "q_proj"), ("tokens", "k_proj"), ("tokens", "v_proj"), ("q_proj", "queries"), ("k_proj", "keys"), ("v_proj", "values"),
        ("queries", "Q · Kᵀ"), ("keys", "Q · Kᵀ"), ("Q · Kᵀ", softmax), (softmax, "S · V"), ("values", "S · V"), ("S · V", "heads"),
        ("heads", "o_proj"), ("o_proj", "output"),
    }  # fmt: skip


def test_mla_by_hand():
    """DeepSeek-V3: 128 heads, latents of 512, keys of 128 + 64, values of 128; one query over 4,096 tokens."""
    drawing = drawings.mla()
    each = 2 * 128 * 512 * 128  # of a head's matrix of 512 × 128, for all heads
    assert drawing.marks("expand")[0].text.endswith(f"{2 * each * 4096 / 1e9:.1f} GFLOPs")
    assert drawing.marks("absorb")[0].text.endswith(f"{each / 1e6:.2f} MFLOPs")
    assert drawing.marks("bring up")[0].text.endswith(f"{each / 1e6:.2f} MFLOPs")
    expanded, absorbed = (mark.text for mark in drawing.marks("attention"))
    assert expanded == f"attention: 2·(192 + 128) per pair and head {2 * 320 * 128 * 4096 / 1e6:.1f} MFLOPs"
    assert absorbed == f"attention: 2·(576 + 512) per pair and head {2 * 1088 * 128 * 4096 / 1e9:.3f} GFLOPs"
    assert "3.4× as much" in drawing.alt  # 1,088 / 320
    assert touch(drawing) == {
        ("cache", "expand"), ("expand", "expanded"), ("expanded", "attention"), ("queries", "attention"), ("attention", "output"),
        ("queries", "absorb"), ("absorb", "long queries"), ("long queries", "attention"), ("cache", "attention"),
        ("attention", "bring up"), ("bring up", "output"),
    }  # fmt: skip


# -- counters -----------------------------------------------------------------------------------------------------


def test_tower_has_a_floor_for_each_tool():
    drawing = drawings.tower()
    floors = ["modules", "functions", "trace", "dispatcher", "kernels"]
    boxes = [drawing.marks(floor)[0] for floor in floors]
    assert all(upper.box[3] < lower.box[1] for upper, lower in itertools.pairwise(boxes))
    levels = ["modules", "functions", "operators", "kernels"]
    assert touch(drawing) == set(itertools.pairwise(levels))
    [frame] = drawing.marks("operators")
    inside = [frame.box[1] < box.box[1] and box.box[3] < frame.box[3] for box in boxes]
    assert [floor for floor, is_in in zip(floors, inside, strict=True) if is_in] == ["trace", "dispatcher"]
    [label] = drawing.marks("frame")
    assert label.text.startswith("operators") and boxes[2].box[3] < label.y < boxes[3].box[1]
    stands = {floor: " ".join(mark.text for mark in drawing.marks(f"tools on {floor}")) for floor in floors}
    spelled = {"torch": "FlopCounterMode", "ptflops-aten": "ptflops"}
    for tool in TOOLS:
        assert any(spelled.get(tool, tool) in names for names in stands.values()), f"{tool} stands nowhere"
    for i, floor in enumerate(floors):
        assert len(drawing.marks(f"forward on {floor}")) == 1
        assert len(drawing.marks(f"backward on {floor}")) == (i >= floors.index("dispatcher"))


@pytest.mark.filterwarnings("ignore")
def test_seen_calls_are_those_that_the_counters_count():
    """By hand: 197 tokens, 768 wide. And by the tools themselves, about torchvision's block; the parts' sizes tell which are seen."""
    drawing = drawings.seen_calls()
    square, core, mlp = 2 * 197 * 768**2, 4 * 197**2 * 768, 2 * 2 * 197 * 768 * 3072
    parts = {"Q, K, V projections": 3 * square, "scores and values": core, "output projection": square, "MLP": mlp}
    whole = sum(parts.values())
    said = words(drawing)
    assert all(f"{flops / 10 ** (6 if flops < 1e9 else 9):.4g} " in said for flops in parts.values())
    shares = {}
    for tool in ("thop", "ptflops", "fvcore", "torch"):
        seen = [name for name in parts if drawing.marks(f"{tool}: {name}")]
        unseen = [name for name in parts if drawing.marks(f"{tool}: {name}, unseen")]
        assert sorted(seen + unseen) == sorted(parts)
        shares[tool] = sum(parts[name] for name in seen) / whole
        assert [mark.text for mark in drawing.marks(f"share of {tool}")] == [f"{100 * shares[tool]:.3g} %"]
        assert f"{tool} {100 * shares[tool]:.3g} %" in drawing.title
    torch = pytest.importorskip("torch")
    from torchvision.models.vision_transformer import EncoderBlock

    block, x = EncoderBlock(12, 768, 3072, dropout=0.0, attention_dropout=0.0).eval(), torch.ones(1, 197, 768)
    assert fk.count(block, x).flops == whole
    for tool, share in shares.items():
        if sure(tool):
            assert fk.ask(tool, block, x).flops / whole == pytest.approx(share, abs=0.005), tool

    def step(x):
        block(x).sum().backward()

    with fk.counting() as report:
        step(x)
    assert [mark.text for mark in drawing.marks("torch: backward")] == ["counted in part"]
    if sure("torch"):
        assert whole < fk.ask("torch", step, x).value < report.model_flops


def test_seen_parts_are_what_the_tools_print_of_mixtral():
    """Of Mixtral-8x7B over 4,096 tokens: 113,232,517,791,744 FLOPs, of which the counters print what follows, multiply-adds twice."""
    total, experts = 113_232_517_791_744, 32 * 6 * 4096 * 2 * 4096 * 14336
    scores = 32 * 4 * 4096**2 * 4096
    printed = {
        "torch": 20_873_541_058_560,
        "torch.profiler": 20_901_896_142_848,
        "fvcore": 2 * 6_038_724_018_176,
        "ptflops": 2 * 6_038_188_195_840,
        "thop": 2 * 6_034_429_050_880,
        "ultralytics-thop": 2 * 10_436_770_529_280,
        "calflops": 12_081_207_181_312,
        "torchinfo": 2 * 5_899_554_816,
    }
    sizes = {"experts": experts, "scores": scores, "other matmuls": total - experts - scores}
    drawing = drawings.seen_parts()
    for tool in TOOLS:
        if tool in printed:
            seen = [part for part in sizes if drawing.marks(f"{tool}: {part}")]
            unseen = [part for part in sizes if drawing.marks(f"{tool}: {part}, unseen")]
            assert sorted(seen + unseen) == sorted(sizes)
            assert sum(sizes[part] for part in seen) / total == pytest.approx(printed[tool] / total, abs=0.001), tool
    bar = {part: drawing.marks(f"true count: {part}")[0].w for part in sizes}
    assert {part: w / sum(bar.values()) for part, w in bar.items()} == pytest.approx(
        {p: s / total for p, s in sizes.items()}
    )


# -- utilisation ----------------------------------------------------------------------------------------------------


def test_numerators_by_hand():
    """Llama-3-8B: 8,030,261,248 parameters, of them 525,336,576 in the input embedding and 266,240 in the norms."""
    again = 32 * 2 * 14336 * 4096
    drawing = drawings.numerators("llama-3-8b", seq=8192, rate=6375, recomputed=again)
    scores = 12 * 32 * 32 * 128 * 8192
    matrices = 8_030_261_248 - 525_336_576 - 266_240
    visible = scores * 8193 / 16384
    flops = {
        "6N": 6 * 8_030_261_248,
        "EXACT": 6 * matrices + visible,
        "TORCH": 6 * matrices + scores,
        "PaLM": 6 * 8_030_261_248 + scores,
        "HFU": 6 * matrices + visible * 7 / 6 + again,
    }
    [line] = drawing.marks("fraction")  # the peak, for the time of a token
    assert "not to scale" not in words(drawing) and "not to scale" in words(drawings.numerators(rate=12000))
    for name, each in flops.items():
        [bar] = [mark for mark in drawing.marks(name) if mark.kind == "box"]
        assert bar.w / line.w == pytest.approx(each * 6375 / 989.4e12, rel=1e-3), name
        assert f"{100 * each * 6375 / 989.4e12:.1f} %" in words(drawing)
        parts = [
            mark for mark in drawing.canvases[0].marks if mark.kind == "box" and mark.y == bar.y and mark.name != name
        ]
        assert [mark.x for mark in parts[1:]] == pytest.approx([mark.x + mark.w for mark in parts[:-1]]), "side by side"
        assert sum(mark.w for mark in parts) == pytest.approx(bar.w)
    pieces = {
        "weights": 6 * matrices,
        "visible pairs": visible,
        "hidden pairs": scores - visible,
        "embedding": 6 * (525_336_576 + 266_240),
        "scores again": visible / 6,
        "recompute": again,
    }
    for name, each in pieces.items():
        assert drawing.marks(name)[0].w / line.w == pytest.approx(each * 6375 / 989.4e12, rel=1e-3), name
    none = drawings.numerators("llama-3-8b", seq=8192, rate=6375)
    assert "recompute" in words(drawing) and "recompute" not in words(none)
    with pytest.raises(ValueError, match="dense model"):
        drawings.numerators("mixtral-8x7b")


def test_denominators_by_hand():
    """6,375 tokens/s of 51.47 GFLOPs, worked out above, over 989.4, 835.5, 756 and 312 TFLOP/s and the sparse 1,979."""
    drawing = drawings.denominators("llama-3-8b", seq=8192, rate=6375)
    run = 6375 * (6 * (8_030_261_248 - 525_336_576 - 266_240) + 12 * 32 * 32 * 128 * 8193 / 2)
    peaks = {
        "H100 SXM5, dense": 989.4e12,
        "H100 NVL, dense": 835.5e12,
        "H100 PCIe, dense": 756e12,
        "A100 SXM4, dense": 312e12,
        "H100 SXM5, sparse": 1979e12,
    }
    runs = drawing.marks("run")
    assert len(runs) == 5 and len({mark.w for mark in runs}) == 1, "the run is the same over each peak"
    for name, each in peaks.items():
        [bar] = [mark for mark in drawing.marks(name) if mark.kind == "box"]
        assert runs[0].w / bar.w == pytest.approx(run / each, rel=1e-3), name
        assert f"{100 * run / each:.1f} %" in words(drawing), name
    assert words(drawing).count("another board") == 2 and words(drawing).count("another GPU") == 1
    with pytest.raises(ValueError, match="at most four devices"):
        drawings.denominators(others=["h100-nvl"] * 5)
    with pytest.raises(ValueError, match="no peak for bf16"):
        drawings.denominators(others=["t4"])


# -- checkpoints --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("recompute", "passes"), [("none", 8), ("full", 12)])
def test_kept_over_time_is_the_memory_of_its_layers(recompute, passes):
    """Each bar is as high as the tensors drawn above it; with checkpoints one layer is whole at a time."""
    drawing = drawings.kept_over_time(4, recompute)
    kept = fk.load("llama-3-8b").train_memory(seq=8192).kept
    layer, edge = sum(each.bytes for each in kept), 8192 * 4096 * 2
    assert kept[0].bytes == edge
    names = [mark.name for canvas in drawing.canvases for mark in canvas.marks if mark.kind == "box"]
    heights = []
    for t in range(passes):
        held = sum(name.endswith(f" at {t}") and not name.startswith(("input", "memory")) for name in names)
        inputs = sum(name.endswith(f" at {t}") and name.startswith("input") for name in names)
        assert held == 1 or (recompute == "none" and not inputs)
        [bar] = drawing.marks(f"memory at {t}")
        heights.append((bar.h, held * layer + inputs * edge))
    scale = heights[0][0] / heights[0][1]
    assert all(high == pytest.approx(scale * held) for high, held in heights)
    most = 4 * layer if recompute == "none" else layer + 3 * edge
    assert max(held for _, held in heights) == most
    assert fk.units.si(most, "B") in drawing.title
    assert len(drawing.marks("pass")) == passes
    if recompute == "full":  # the line is as high as the tallest bar without recompute
        [line], [bar] = drawing.marks("without"), drawing.marks("memory at 0")
        assert bar.y + bar.h - line.y == pytest.approx(scale * 4 * layer)


# -- serving ------------------------------------------------------------------------------------------------------


def test_each_step_reads_what_the_passes_before_it_wrote():
    drawing = drawings.prefill_and_decode(prompt=4, steps=3)
    [canvas] = drawing.canvases
    written = []
    for i in range(4):
        assert len(canvas.named(f"weights of pass {i}")) == 1
        assert [mark.x for mark in canvas.named(f"read in pass {i}")] == written
        written += [mark.x for mark in canvas.named(f"written in pass {i}")]
        assert len(written) == 4 + i and len(canvas.named(f"empty in pass {i}")) == 3 - i


def test_bars_of_a_step_are_its_bytes():
    model, [canvas] = fk.load("llama-3-70b"), drawings.decode_bytes("llama-3-70b", 1000, (1, 50)).canvases
    cache = 2 * 80 * 8 * 128 * 2 * 1000
    for batch in (1, 50):
        [weights], [caches] = canvas.named(f"weights of {batch}"), canvas.named(f"cache of {batch}")
        read = 2 * (model.params - 128256 * 8192 + batch * 8192)
        assert caches.w / weights.w == pytest.approx(batch * cache / read) and caches.x == weights.w
    assert canvas.named("words of 50")[0].text.startswith(fk.units.si(read + 50 * cache, "B"))


def test_dense_layers_and_attention_have_bounds_of_their_own():
    """Llama-3-70B on eight H100s: 2 bytes and 2 FLOPs per weight; per token of a cache 2·80·8·128 elements of 2 bytes."""
    drawing, model, h100 = drawings.decode_parts(context=1000), fk.load("llama-3-70b"), fk.device("h100-sxm")
    weights, bandwidth, peak = model.params - 128256 * 8192, 8 * h100.bandwidth, 8 * h100.peak("bf16")
    [canvas], users = drawing.canvases, (1, 1024)
    heights = {
        name: (marks[0].y, marks[-1].y + marks[-1].h)
        for name in ("dense", "attention")
        if (marks := canvas.named(name))
    }
    times = {
        "dense": [max(2 * weights / bandwidth, n * 2 * weights / peak) for n in users],
        "attention": [n * 1000 * 2 * 80 * 8 * 128 * 2 / bandwidth for n in users],
    }
    decade = (heights["attention"][0] - heights["attention"][1]) / math.log10(
        times["attention"][1] / times["attention"][0]
    )
    for one, other in (("dense", 0), ("dense", 1), ("attention", 1)):
        above = heights["attention"][0] - heights[one][other]
        assert above / decade == pytest.approx(math.log10(times[one][other] / times["attention"][0]), abs=0.002)
    # attention overtakes where the caches weigh as much as the weights
    cached, usual = 2 * 80 * 8 * 128 * 2, drawings.decode_parts()
    assert len(usual.marks("crossing")) == 1 and f"from {math.ceil(2 * weights / cached / 8192)} users" in words(usual)
    # by 1,000 tokens it never does: beyond 296 users the arithmetic of the dense layers takes longer than a user's cache
    assert 2 * weights / peak > 1000 * cached / bandwidth and not drawing.marks("crossing")
    assert "Llama-3-70B on 8 ×" in words(drawing)
    [ridge] = drawing.marks("ridge")
    assert "compute-bound from 296" in words(drawing) and ridge.x == drawing.canvases[0].named("dense")[9].x
    assert h100.ridge("bf16") < 296 < 1.01 * h100.ridge("bf16")
    for name, said in (("mixtral-8x7b", "give a dense model"), ("deepseek-v3", "decode_parts")):
        with pytest.raises(ValueError, match=said):
            drawings.decode_parts(name)


def test_a_batch_raises_the_intensity_to_its_limit():
    """Llama-3-70B: 2 FLOPs and 2 bytes per weight; a cached token has 2·80·8·128 elements of 2 bytes, and costs 4·80·64·128 FLOPs."""
    drawing, model, h100 = (
        drawings.batch_intensity(contexts=(1000, 9000)),
        fk.load("llama-3-70b"),
        fk.device("h100-sxm"),
    )
    weights, ridge = model.params - 128256 * 8192, h100.ridge("bf16")
    flops, cache = lambda t: 2 * weights + 4 * 80 * 64 * 128 * t, lambda t: 2 * 80 * 8 * 128 * 2 * t
    canvas = drawing.canvases[0]
    [roof] = canvas.named("ridge")
    dense = canvas.named("dense")
    decade = (dense[0].y - dense[-1].y - dense[-1].h) / math.log10(2 ** len(dense))  # one FLOP per byte and user

    def height(mark_y):
        return ridge * 10 ** ((roof.y - mark_y) / decade)

    assert height(dense[0].y) == pytest.approx(1, rel=0.01)
    for tokens in (1000, 9000):
        line = canvas.named(f"{tokens} tokens")
        for i, users in ((0, 1), (5, 32), (11, 2048)):
            by_hand = users * flops(tokens) / (2 * weights + users * cache(tokens))
            assert height(line[i].y) == pytest.approx(by_hand, rel=0.02)
        [limit] = canvas.named(f"limit of {tokens}")
        assert height(limit.y) == pytest.approx(flops(tokens) / cache(tokens), rel=0.02)
        [full] = canvas.named(f"full at {tokens}")
        users = (8 * h100.usable - 2 * model.params) // cache(tokens)
        at = users * flops(tokens) / (2 * weights + users * cache(tokens))
        assert height(full.y + full.h / 2) == pytest.approx(at, rel=0.02)
    assert f"{flops(9000) / cache(9000):.0f} FLOPs per byte with 9,000 tokens" in drawing.title
    for name, contexts, said in (
        ("mixtral-8x7b", (512,), "give a dense model"),
        ("llama-3-70b", (8192, 512), "the fewer first"),
    ):
        with pytest.raises(ValueError, match=said):
            drawings.batch_intensity(name, contexts=contexts)


def test_a_seat_is_filled_as_soon_as_it_is_free():
    """Answers of 2, 5, 3, 4, then 4 and 1: batches take 5 + 4 steps. The fifth takes the seat that is free after 2 steps, the sixth that after 3."""
    lengths = (2, 5, 3, 4, 4, 1)
    drawing = drawings.engine_batches(lengths, longest=10, page=3)
    tokens = {name: drawing.marks(f"{name}, token") for name in ("fixed batches", "continuous batching")}
    assert all(len(found) == sum(lengths) for found in tokens.values())
    assert all(len(drawing.marks(f"{name}, prompt")) == 6 for name in tokens)
    assert "fixed batches: 9 steps" in words(drawing) and "continuous batching: 6 steps" in words(drawing)
    assert len(drawing.marks("fixed batches, empty")) == 4 * 9 - sum(lengths)
    assert len(drawing.marks("continuous batching, empty")) == 4 * 6 - sum(lengths)
    first = tokens["continuous batching"][0].w
    prompts = drawing.marks("continuous batching, prompt")
    assert len({round(mark.x, 3) for mark in prompts}) == 3 and prompts[0].w > 2 * first, (
        "four prompts, then one and one"
    )
    ends = [mark.box[2] for mark in tokens["continuous batching"]]
    assert max(ends) < max(mark.box[2] for mark in tokens["fixed batches"])
    used, unused = "pages of 3 tokens, used", "pages of 3 tokens, unused"
    assert (len(drawing.marks(used)), len(drawing.marks(unused))) == (2 + 5 + 3 + 4, 1 + 1 + 0 + 2)
    assert len(drawing.marks("room for the longest answer, unused")) == 4 * 10 - 14
    assert drawing.title == "Seats that are filled again save 3 of 9 steps; pages save 55 % of the room"  # 18 of 40


# -- whole models -------------------------------------------------------------------------------------------------


def test_model_tree_is_as_high_as_its_flops():
    """GPT-2 at 1,024 tokens: a layer has 12·768² weights, the head 50,257·768; a visible pair costs 2·768 multiply-adds a layer."""
    drawing = drawings.model_tree(("gpt2",), (1024,))
    weights, head, scores = 12 * 12 * 768**2, 50257 * 768, 12 * 2 * 768 * 1025 / 2
    whole = weights + head + scores
    [model], [stack], [last] = (drawing.marks(name) for name in ("model", "layers", "head"))
    inside_layers = [drawing.marks(name)[0] for name in ("projections", "scores and values", "MLP")]
    for mark, macs in zip(
        (stack, last, *inside_layers), (weights + scores, head, weights / 3, scores, weights * 2 / 3), strict=True
    ):
        assert mark.h == pytest.approx(model.h * macs / whole), mark.name
    assert stack.y == inside_layers[0].y and last.y == pytest.approx(stack.y + stack.h)
    assert sum(mark.h for mark in inside_layers) == pytest.approx(stack.h)
    canvas = drawings.model_tree().canvases[1]  # GPT-3, where scores and head are too low for words inside
    [border] = {part.x + part.w for part in canvas.named("MLP")}
    for mark in canvas.marks:
        if mark.text.startswith("↑"):
            assert mark.x + mark.w <= border - 4, f"{mark.text}: clear of the border"
    assert "head  29 %" in words(drawing) and f"{2 * whole / 1e6:.0f} MFLOPs" in words(drawing)


def test_six_flops_are_three_multiply_adds():
    drawing = drawings.six_flops()
    assert [mark.text for mark in drawing.marks("flops")] == ["2 FLOPs", "2 FLOPs", "2 FLOPs", "6 FLOPs"]
    assert [mark.text for mark in drawing.marks("rule")] == ["6N"]
    assert all(drawing.marks(f"w in {sum_}") for sum_ in ("y += x · w", "dx += dy · w"))


# -- the roof -----------------------------------------------------------------------------------------------------


def test_roof_lines_by_hand():
    """H100: 989.4 TFLOP/s and 3.35 TB/s cross at 295 FLOPs per byte. Both axes are logarithmic, so each line is straight."""
    drawing = drawings.roof_lines()
    [memory], [peak], [ridge] = (drawing.marks(name) for name in ("memory", "peak", "ridge"))
    assert (memory.x + memory.w, memory.y + memory.h) == (peak.x, peak.y) == (ridge.x, ridge.y) and peak.h == 0
    (up,), (level,) = drawing.marks("memory beyond"), drawing.marks("peak beyond")
    assert up.h / up.w == pytest.approx(memory.h / memory.w) and level.y == peak.y and level.x == memory.x
    few, many = drawing.marks("layer")
    middle = few.y + few.h / 2
    along = (few.x + few.w / 2 - memory.x) / memory.w
    assert middle == pytest.approx(memory.y + along * memory.h), "two tokens lie on the slope"
    assert many.y + many.h / 2 == pytest.approx(peak.y) and many.x > peak.x, "1,024 tokens lie on the level part"
    flops = [2 * tokens * a * b for tokens, a, b in ((2, 16384, 131072), (1024, 2048, 2048))]
    assert flops[0] == flops[1]
    assert "3.35 TB/s × intensity" in words(drawing) and "ridge 295" in words(drawing)


def test_five_reasons_to_scale():
    """H200 in tf32: 494.5 TFLOP/s, 132 multiprocessors. Both axes are logarithmic, so a factor is a length, and the slope one to one in decades."""
    drawing = drawings.five_reasons()
    [sheet] = drawing.canvases
    [memory], [peak] = drawing.marks("memory"), drawing.marks("peak")
    assert (memory.x + memory.w, memory.y + memory.h) == pytest.approx((peak.x, peak.y)) and peak.h == 0
    decade = -memory.h / math.log10(40)  # the picture begins at a fortieth of the ridge
    factors = {1: [1 / 2], 2: [0.75], 3: [64 / 132], 4: [1 / 1.75, 2.7], 5: [1 / 20.9]}
    for number, lengths in factors.items():
        arrows = drawing.marks(f"reason {number}")
        assert [-arrow.h / decade for arrow in arrows] == pytest.approx([math.log10(each) for each in lengths])
        for arrow in arrows:
            along = (arrow.x - memory.x) / memory.w
            roof = memory.y + along * memory.h if along < 1 else peak.y
            assert arrow.y == pytest.approx(roof) and arrow.w == 0, "each begins on the roof"
    assert drawing.marks("reason 1")[0].x == pytest.approx(peak.x), "overlap matters most at the ridge"
    assert [mark.text for mark in sheet.named("number")] == ["1", "2", "3", "4", "4", "5"]
    for wrong, said in (
        ({"tiles": 132}, r"tiles=132\): give a whole number from 33 to 131"),
        ({"ceiling": 1.0}, r"ceiling=1.0\): give 0.5 to 0.9"),
        ({"launch": 100}, r"launch=100\): give 4 to 24"),
        ({"device": fk.Device("a card", peak={"tf32": 1e12}, bandwidth=1e10)}, "multiprocessors it has is not known"),
    ):
        with pytest.raises(ValueError, match=said):
            drawings.five_reasons(**wrong)


def test_each_place_of_bytes_has_a_slope():
    """A100 40 GB: 1,555 GB/s, 2.7× that from a cache, 300 GB/s over NVLink."""
    drawing = drawings.many_roofs()
    [rates] = drawing.canvases
    rising = {name: rates.named(name)[0] for name in ("cache", "memory", "link")}
    [peak] = rates.named("peak")
    assert len({round(mark.h / mark.w, 6) for mark in rising.values()}) == 1, "parallel"
    assert all(mark.y + mark.h == pytest.approx(peak.y) for mark in rising.values())
    decade = -rising["link"].h / math.log10(312e12 / 300e9)
    assert (rising["link"].y - rising["memory"].y) / decade == pytest.approx(math.log10(1555 / 300))
    assert (rising["memory"].y - rising["cache"].y) / decade == pytest.approx(math.log10(2.7))
    assert "A100 SXM4 40 GB: FLOP/s" in words(drawing), "the card, whose memory is the slower of the two A100s'"
    for wrong, said in (
        ({"cache": 1}, "as fast as the memory"),
        ({"device": "t4", "dtype": "fp16"}, "link is not known"),
    ):
        with pytest.raises(ValueError, match=said):
            drawings.many_roofs(**wrong)
    with pytest.raises(ValueError, match="at most two layers"):
        drawings.roof_lines(layers=[(1, 2, 3)] * 3)


def test_a_launch_is_a_floor_until_the_bytes_take_longer():
    """H200, 4.8 TB/s and 989.4 TFLOP/s: 16 tokens move 2·(n² + 32·n) bytes and do 32·n² FLOPs, so a width of 3,683 takes 5.7 µs to read."""
    drawing = drawings.launch_floor()
    [sheet] = drawing.canvases
    level = sheet.named("launch")[0].y
    last = {name: sheet.named(name)[-1].y + sheet.named(name)[-1].h for name in ("memory", "peak")}
    took = {"memory": 2 * (16384**2 + 32 * 16384) / 4.8e12, "peak": 32 * 16384**2 / fk.device("h200-sxm").peak("bf16")}
    decade = (last["peak"] - last["memory"]) / math.log10(took["memory"] / took["peak"])
    assert (level - last["memory"]) / decade == pytest.approx(math.log10(took["memory"] / 5.7e-6))
    floor, slope = (sheet.named(f"{name} sets the time") for name in ("launch", "memory"))
    assert not sheet.named("peak sets the time"), "16 tokens are below the ridge"
    assert {mark.y for mark in floor} == {level} and floor[-1].x + floor[-1].w == pytest.approx(slope[0].x)
    left, right = (sheet.named("memory")[i].x + (i and sheet.named("memory")[i].w) for i in (0, -1))
    crossing = 256 * 64 ** ((slope[0].x - left) / (right - left))
    assert 2 * (crossing**2 + 32 * crossing) / 4.8e12 == pytest.approx(5.7e-6, rel=0.01)
    assert "512 wide, at least 5.7 µs, by the launch" in drawing.alt
    assert "8,192 wide, at least 28.07 µs, by the memory" in drawing.alt  # 2·(8192² + 32·8192) / 4.8e12
    with pytest.raises(ValueError, match="1e-6 to 20e-6"):
        drawings.launch_floor(launch=1.0)


def test_a_sweep_crosses_where_bytes_and_flops_take_equally_long():
    """64 tokens took 73.1 µs and 2,048 took 740.3: 73.1 · 2,048 / 740.3 = 202 tokens. Dots lie between the lines and their sum, but for the first two."""
    drawing = drawings.batch_crossing()
    [sheet] = drawing.canvases
    [level], [rising], [cross], [total] = (sheet.named(name) for name in ("level", "rising", "crossing", "sum"))
    share = (cross.x - rising.x) / rising.w
    assert rising.y + share * rising.h == pytest.approx(level.y) and level.h == cross.w == 0
    assert total.y == pytest.approx(level.y) and total.h / total.w == pytest.approx(rising.h / rising.w)
    dots = [(dot.x + dot.w / 2, dot.y + dot.h / 2) for dot in sheet.named("dot")]
    assert len(dots) == 8 and min(y for _, y in dots[:2]) < level.y == pytest.approx(dots[2][1]), (
        "64 tokens, the fastest"
    )
    for x, y in dots[2:]:
        line = rising.y + (x - rising.x) / rising.w * rising.h
        assert line + level.y - rising.y <= y + 0.01 and y <= min(level.y, line) + 0.01
    assert dots[4][1] < dots[5][1], "192 tokens take longer than 256"
    assert "Of the 8 sizes up to 606 tokens, 6 take a time between" in drawing.alt
    with pytest.raises(ValueError, match="no such sweep"):
        drawings.batch_crossing("t4")
    with pytest.raises(ValueError, match="waited for the host"):
        drawings.batch_crossing(dtype="bf16")


def test_overlapped_times_add_up():
    drawing = drawings.overlapped_times((0.5, 1, 2))
    for kind in ("reading", "computing"):
        assert [mark.w for mark in drawing.marks(f"{kind}, overlapped")] == [
            mark.w for mark in drawing.marks(f"{kind}, alone")
        ]
    reading, computing = drawing.marks("reading, alone"), drawing.marks("computing, alone")
    assert [b.w / a.w for a, b in zip(reading, computing, strict=True)] == [0.5, 1, 2]
    assert all(b.x == a.x + a.w for a, b in zip(reading, computing, strict=True))
    assert all(mark.x == reading[0].x for mark in drawing.marks("computing, overlapped"))
    assert "1.5×" in words(drawing) and "the sum, 2×" in words(drawing)
    with pytest.raises(ValueError, match="1/8 to 8"):
        drawings.overlapped_times((0.1, 1))


def test_stopwatches_read_what_the_queue_makes_of_them():
    """Launches of 1 and a first call of 8 more; a kernel of 3 ends at 12 and four more at 25; short ones wait as on the H200."""
    drawing = drawings.stopwatches()
    said = [mark.text.rpartition("reads ")[2] for mark in drawing.marks("reads")]
    per_call = 4 / 4 / 3, 25 / 5 / 3, (25 - 12) / 4 / 3, 24.9 / 6.01, 1.0  # µs per matmul: with gaps, without
    assert said == [fk.units.times(each) for each in per_call]
    assert [mark.text[0] for mark in drawing.marks("reads")] == ["✗", "✗", "✓", "✗", "✓"]
    long, short = drawing.canvases
    kernels = long.named("long kernel")
    unit = kernels[0].w / 3
    assert [mark.w for mark in kernels] == pytest.approx([3 * unit] * 5)
    assert [mark.x for mark in kernels[2:]] == pytest.approx([mark.box[2] for mark in kernels[1:-1]]), "no gaps"
    for launch, kernel in zip(long.named("launch"), kernels, strict=True):
        assert launch.box[2] <= kernel.x + 0.01, "no kernel runs before it was launched"
    launches, small = short.named("launch"), short.named("short kernel")
    assert [mark.x for mark in small[:4]] == pytest.approx([mark.box[2] for mark in launches[:4]])
    [sleep] = short.named("sleep")
    assert sleep.box[2] == pytest.approx(small[4].x) and all(mark.box[2] <= sleep.box[2] for mark in launches[4:])
    lengths = [mark.w for name in ("wrong", "right") for canvas in (long,) for mark in canvas.named(name)]
    assert lengths == pytest.approx([4 * unit, 25 * unit, 13 * unit])


def test_warm_up_shows_what_each_rule_takes():
    """The same run by the protocol and by the rules: boxes as wide as the time that each takes, and the errors that they tell."""
    from flopkit.book.simulation import RULES, Clock, Simulated
    from flopkit.measuring.protocol import timed

    drawing, clock = drawings.warm_up(seed=3), Clock(drift=0.08, settles=0.5)
    timer = Simulated(clock, 3)
    found = timed(timer)
    assert len(drawing.marks("round")) == len(found.rounds) and len(drawing.marks("window that agrees")) == 2
    assert len(drawing.marks("window")) + 2 == round(found.warm_up / 0.5)
    assert [mark.text for mark in drawing.marks("key word")] == ["window", "two that agree", "round"]
    assert len(drawing.marks("key")) == 3
    [last] = drawing.marks("round")[-1:]
    first, *_, end = drawing.marks("second")
    second = (end.x - first.x) / (len(drawing.marks("second")) - 1)
    assert last.box[2] - drawing.marks("window")[0].x == pytest.approx(timer.now() * second, abs=3)
    for rule in ("torch blocked", "Triton do_bench", "NVBench stdrel"):
        told = RULES[rule](Simulated(clock, 3))
        [box], [text] = drawing.marks(rule), drawing.marks(f"{rule} told")
        assert text.text == f"off by {100 * (told.told / 1e-3 - 1):.1f} %"
        assert box.box[2] == pytest.approx(drawing.marks("window")[0].x + told.spent * second, abs=3)


def test_intervals_are_those_of_the_same_calls():
    from flopkit.book.simulation import Clock, Simulated
    from flopkit.measuring.protocol import timed

    drawing = drawings.interval_of_rounds(seed=5)
    found = timed(Simulated(Clock(states=0.01, hold=0.1), 5))
    [calls], [rounds] = drawing.marks("over calls"), drawing.marks("over rounds")
    unit = drawing.marks("level")[1].y - drawing.marks("level")[2].y  # of one per cent
    calls_half = 1.96 * statistics.stdev(found.calls) / len(found.calls) ** 0.5
    assert calls.h / unit == pytest.approx(2 * 100 * calls_half / 1e-3, rel=0.05)
    assert rounds.h / unit == pytest.approx(100 * (found.ci[1] - found.ci[0]) / 1e-3, rel=1e-6)
    assert [mark.text for mark in drawing.marks("half")] == [
        f"± {100 * half / found.mean:.2f} %" for half in (calls_half, found.ci[1] - found.mean)
    ]
    assert f"grey: mean of {len(found.rounds[0]) // 6} calls" in words(drawing)
    assert len(drawing.marks("round")) == len(found.rounds)
    lowest, highest = min(found.round_means), max(found.round_means)
    heights = [mark.y for mark in drawing.marks("round")]
    assert (max(heights) - min(heights)) / unit == pytest.approx((highest - lowest) / 1e-5)


# -- many GPUs ----------------------------------------------------------------------------------------------------


def test_chunks_go_around_the_ring():
    """Walked through with sets: what a GPU has of a chunk is whose parts are in it; three steps add, three more carry the sums to all."""
    drawing = drawings.ring_all_reduce()
    state = [[{gpu} for _ in range(4)] for gpu in range(4)]
    sent = list(range(4))  # GPU 1 begins with chunk a, GPU 2 with b; each goes on with what it has just received
    drawn = {}
    for step in range(7):
        drawn[step] = [mark.text for mark in drawing.marks(f"after {step}")]
        if drawn[step]:
            assert drawn[step] == [str(len(parts)) for row in state for parts in row], step
        frames = drawing.marks(f"sent after {step}")
        if frames:
            columns = sorted({round(mark.x) for mark in frames})
            assert [columns.index(round(mark.x)) for mark in frames] == sent  # one row a GPU, from above
        moved = [state[gpu][sent[gpu]] for gpu in range(4)]
        for gpu, parts in enumerate(moved):
            after = state[(gpu + 1) % 4]
            after[sent[gpu]] = after[sent[gpu]] | parts
        sent = [sent[gpu - 1] for gpu in range(4)]
    assert [step for step, found in drawn.items() if found] == [0, 1, 3, 6]
    assert fk.parallel.all_reduce(bytes=4, ranks=4).steps == 6 and f"{6 * 1 / 4:g} times the tensor" in drawing.title


def test_cards_of_two_nodes_by_hand():
    """16 GB over eight cards or an eighth over one: 2 · 1/2 · 2 GB each. The links of eight carry 2 · 7/8 · 16 GB, at 450 GB/s. One ring of 16 carries 2 · 15/16 · 16 GB over a card of 50 GB/s."""
    drawing = drawings.node_cards()
    whole, part = drawing.canvases[:2]
    assert [len(canvas.named("member")) for canvas in (whole, part)] == [16, 2]
    assert [len(canvas.named("wire of the group")) for canvas in (whole, part)] == [8, 1]
    assert [len(canvas.named("card of the group")) for canvas in (whole, part)] == [16, 2]
    said = words(drawing)
    assert f"links: {2 * 7 / 8 * 16 / 450 * 1e3:.2f} ms" in said and said.count("sends 2 GB, 40 ms") == 2
    assert f"One ring of 16 would send {2 * 15 / 16 * 16:.0f} GB per card: {2 * 15 / 16 * 16 / 50 * 1e3:.0f} ms" in said
    slow = words(drawings.node_cards(where=fk.parallel.cluster("dgx-h100").replace(network=10e9)))
    assert "sends 2 GB, 200 ms; links: 62.22 ms" in slow  # where the cards are the slower ones
    with pytest.raises(ValueError, match="eight GPUs a node"):
        drawings.node_cards(where=fk.parallel.cluster("dgx-h100").replace(per_node=4))


def test_only_one_micro_batch_hides_the_exchange():
    """Of each parameter a node's eight cards of 50 GB/s send 7/8: 2 bytes beside the first forward pass, 4 beside the last backward pass."""
    drawing = drawings.hidden_exchange()
    once, often = drawing.canvases[:2]
    model = fk.load("llama-3-8b")
    gather = 7 / 8 * 2 * model.params / (8 * 50e9)
    for canvas, n in ((once, 1), (often, 4)):
        forward, backward = canvas.named("forward"), canvas.named("backward")
        assert len(forward) == len(backward) == n
        [weights], [gradients] = canvas.named("weights"), canvas.named("gradients")
        scale = weights.w / gather
        start = min(mark.x for mark in (*forward, *canvas.named("waits")))
        assert gradients.w == pytest.approx(2 * weights.w) and weights.x == start
        assert forward[0].x + forward[0].w >= weights.x + weights.w - 0.01  # its last weights are there
        assert gradients.x == pytest.approx(backward[-1].x)  # no gradient is final before
        assert sum(mark.w for mark in forward) == pytest.approx(sum(mark.w for mark in backward) / 2)
        for i, mark in enumerate(forward):  # a backward pass follows its forward pass, and waits for the weights
            assert backward[i].x >= mark.x + mark.w - 0.01
        assert backward[0].x >= weights.x + weights.w - 0.01
        waits = sum(mark.w for mark in canvas.named("waits")) / scale
        flops = model.train_step(seq=1024, batch=4).model_flops
        busy = sum(mark.w for mark in (*forward, *backward)) / scale
        assert busy == pytest.approx(flops / fk.device("h100-sxm").peak("bf16"), rel=0.01)
        assert waits == pytest.approx(max(3 * gather - busy / n, 0), abs=1e-4)
    assert "hide the exchange" in drawing.title and not once.named("waits")
    assert f"{waits * 1e3:.1f}" == "57.8" and "57.82 ms" in drawing.title
    assert "leave" in drawings.hidden_exchange(sequences=2, seq=256).title
    with pytest.raises(ValueError, match="sequences=9"):
        drawings.hidden_exchange(9)


# -- what fits ----------------------------------------------------------------------------------------------------


def test_as_many_sequences_fit_as_the_figure_of_policies_says():
    """The figure of chapter 9 adds up the same memory in symbols: with so many sequences it fits, with one more it does not."""
    figure = gallery.recompute_policies()
    drawing = drawings.fitted_sequences()
    said = [int(mark.text) for mark in drawing.marks("fit")]
    chunks = "chunks of 1,024 tokens"
    recipes = (
        {"policy": "none"}, {"policy": "none", "loss": chunks}, {"policy": "norms and activation", "loss": chunks},
        {"policy": "every layer"}, {"policy": "every layer", "loss": chunks},
    )  # fmt: skip
    [memory] = drawing.marks("memory")
    for row, (recipe, most) in enumerate(zip(recipes, said, strict=True)):
        inputs = {"model": "Llama-3-8B", "device": "H100 (80 GB)", "length": 8192, "gpus": 8, **recipe}
        assert [figure.at(batch=most + more, **inputs)["fits"] for more in (0, 1)] == ["yes", "no"]
        bars = [mark for name in ("states", "layers", "loss", "again") for mark in drawing.marks(f"{name} of {row}")]
        assert len(bars) == 3 and bool(drawing.marks(f"again of {row}")) == (
            row == 4
        )  # there a layer takes more than the loss
        assert all(a.x + a.w == pytest.approx(b.x) for a, b in itertools.pairwise(bars))
        share = (bars[-1].x + bars[-1].w - bars[0].x) / (memory.x - bars[0].x)
        assert share == pytest.approx(figure.at(batch=most, **inputs)["total"] / fk.device("h100-sxm").usable, rel=1e-3)
    with pytest.raises(ValueError, match="gated MLP"):
        drawings.fitted_sequences("gpt2")
    with pytest.raises(ValueError, match="not one sequence fits"):
        drawings.fitted_sequences("llama-3-70b", gpus=1)


# -- the errors of 6N ---------------------------------------------------------------------------------------------


def test_the_two_errors_are_the_scores_and_the_table():
    """By hand: scores and values are 6·L·d·(T + 1) a token, the look-up 6·V·d; their bars have one scale, and the mark is their difference."""
    layers, width, vocab = 32, 4096, 128256  # Llama-3-8B
    lengths = (1024, 65536)
    untied, tied = drawings.two_errors("llama-3-8b", lengths).canvases
    weights = 32 * (2 * 4096 * 4096 + 2 * 4096 * 1024 + 3 * 4096 * 14336) + vocab * width
    for i, length in enumerate(lengths):
        scores, table = 6 * layers * width * (length + 1), 6 * vocab * width
        exact = 6 * weights + scores
        missed, added = untied.named("scores")[i], untied.named("look-up")[i]
        assert missed.w / added.w == pytest.approx(scores / table)
        (axis,) = untied.named("axis")
        assert missed.x + missed.w == pytest.approx(axis.x) == pytest.approx(added.x)
        assert untied.named("together")[i].x - axis.x == pytest.approx(added.w - missed.w, abs=0.1)
        assert untied.named("missed")[i].text == f"−{percent(scores / exact, 2)}"
        assert untied.named("counted")[i].text == f"+{percent(table / exact, 2)}"
        assert untied.named("counted")[i].x >= added.x + added.w
        net = (table - scores) / exact
        assert untied.named("error")[i].text == f"{'−' if net < 0 else '+'}{percent(abs(net), 2)}"
        assert tied.named("scores")[i].w == pytest.approx(missed.w)
        assert tied.named("together")[i].x == pytest.approx(missed.x, abs=0.1)
    assert not tied.named("look-up") and not tied.named("counted")
    with pytest.raises(ValueError, match="gpt2"):
        drawings.two_errors("gpt2")
    with pytest.raises(ValueError, match="one to five lengths"):
        drawings.two_errors("llama-3-8b", ())


# -- what a layer costs -------------------------------------------------------------------------------------------


def test_growing_core_by_hand():
    """Llama-3-8B: 13·4096² weights in projections and MLP; a token sees (T + 1)/2 keys on average, 4·128 FLOPs each in 32 heads."""
    lengths = (4096, 131072)
    drawing = drawings.growing_core("llama-3-8b", lengths)
    longest = 2 * 13 * 4096**2 + 4 * 4096 * 131072
    for i, length in enumerate(lengths):
        rest, visible, hidden = (drawing.marks(name)[i] for name in ("rest", "visible", "hidden"))
        flops = 2 * 13 * 4096**2, 4 * 4096 * (length + 1) / 2, 4 * 4096 * (length - 1) / 2
        for mark, each in zip((rest, visible, hidden), flops, strict=True):
            assert mark.w == pytest.approx(346 * each / longest)
        assert rest.box[2] == pytest.approx(visible.box[0]) and visible.box[2] == pytest.approx(hidden.box[0])
        assert f"{sum(flops) / sum(flops[:2]):.2f}×" in drawing.marks("gain")[i].text


def test_a_timeline_has_the_small_operators_bytes_in_the_open():
    """Llama-3-8B at 8,192 tokens on an H100: 989.4 TFLOP/s and 3.35 TB/s. One kernel after the other, none overlapping the next."""
    drawing = drawings.layer_timeline()
    stream, mlp = 8192 * 4096, 8192 * 14336  # elements
    pair = 8192 * 8193 // 2
    computing = {"q_proj": 2 * stream * 4096, "gate_proj": 2 * stream * 14336, "attention": 4 * 4096 * pair}
    moving = {"attention_norm": 2 * (2 * stream + 4096), "swiglu": 2 * 3 * mlp, "attention_sum": 2 * 3 * stream}
    moving["gate_proj"] = 2 * (stream + mlp + 4096 * 14336)
    [one] = drawing.marks("gate_proj")
    second = one.w / (computing["gate_proj"] / 989.4e12)
    for name, flops in computing.items():
        assert drawing.marks(name)[0].w == pytest.approx(second * flops / 989.4e12, rel=1e-3), name
    for name, each in moving.items():
        assert drawing.marks(f"bytes of {name}")[0].w == pytest.approx(second * each / 3.35e12, rel=1e-3), name
    bars = [mark for mark in drawing.canvases[0].marks if mark.kind == "box" and mark.name]
    below = [mark for mark in bars if mark.name.startswith("bytes of")]
    above = {mark.name: mark for mark in bars if mark not in below}
    assert len(below) == 14 and len(above) == 8 and not above.keys() & {"swiglu", "rotary", "mlp_sum"}
    for mark, after in itertools.pairwise(below):
        name = mark.name.removeprefix("bytes of ")
        least = max(mark.w, above[name].w) if name in above else mark.w
        assert mark.x + least == pytest.approx(after.x)
        assert name not in above or above[name].w > mark.w  # each matmul is compute-bound
    attention, widest = above["attention"], next(mark for mark in below if mark.name == "bytes of swiglu")
    assert widest.w == max(mark.w for mark in below if mark.name.removeprefix("bytes of ") not in above)
    for name, piece, word in zip(
        drawing.marks("name beside"), (attention, widest), ("attention", "SwiGLU"), strict=True
    ):
        assert name.text == word and name.x + name.w / 2 == pytest.approx(piece.x + piece.w / 2)
    small = [mark.w for mark in below if mark.name.removeprefix("bytes of ") not in above]
    assert f"{100 * sum(small) / 346:.2g} % of the time" in drawing.title
    assert f"{100 * sum(small) / sum(mark.w for mark in below):.2g} % of the bytes" in drawing.title


# -- splitting a model --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_the_gpus_of_each_split_share_the_work_without_a_gap(ranks):
    """Each GPU holds its share of the weights and works on its share of the tokens; what the picture says about a sequence is what it draws."""
    drawing = drawings.five_splits(ranks)
    *sheets, _ = drawing.canvases
    weights, tokens, on_one = {}, {}, {}
    for sheet in sheets:
        name = re.search(r"\((\w+)\)", sheet.marks[0].text)[1]
        layers, lines = sheet.named("edge"), sheet.named("sequence")
        wide, deep = layers[1].x - layers[0].x, layers[0].h
        columns = [layers[2 * i].x for i in range(ranks)]
        of_tokens = wide * lines[0].h * ranks
        weights[name], tokens[name] = [0.0] * ranks, [0.0] * ranks
        for found, kind, whole in ((weights, "weights", wide * deep), (tokens, "tokens", of_tokens)):
            for mark in sheet.named(kind):
                tall = mark.h if kind == "weights" else min(mark.h, lines[0].h)
                found[name][bisect(columns, mark.x + 1) - 1] += mark.w * tall / whole
        first = {bisect(columns, mark.x + 1) for mark in sheet.named("tokens") if abs(mark.y - lines[0].y) < 0.1}
        on_one[name] = len(first)
        (said,) = sheet.named("said")
        assert said.text.startswith(f"GPUs on a sequence: {len(first)}")
    assert on_one == {"DP": 1, "TP": ranks, "PP": 1, "CP": ranks, "EP": 1}
    once = {"DP": 1, "TP": 1 / ranks, "PP": 1 / ranks, "CP": 1}
    for name, share in once.items():
        assert weights[name] == pytest.approx([share] * ranks, rel=0.03), name
    assert sum(weights["EP"]) == pytest.approx(1 + (ranks - 1) * 0.3, rel=0.03)  # the dense part is on all
    for name in once | {"EP": 1}:
        each = 1 / ranks**2 if name == "CP" else 1 / ranks  # a whole sequence, or a part of one
        assert tokens[name] == pytest.approx([each] * ranks, rel=0.03), name
    by_name = dict(zip(weights, sheets, strict=True))
    for name, kind in (("TP", "weights"), ("CP", "tokens")):  # side by side they are whole: no part twice, none missing
        starts = sorted((mark.x - left, mark.w) for mark, left in placed(by_name[name], kind))
        assert starts[0][0] == pytest.approx(0, abs=0.1)
        assert all(a + w == pytest.approx(b, abs=0.1) for (a, w), (b, _) in itertools.pairwise(starts))
        assert sum(w for _, w in starts) == pytest.approx(wide, abs=0.2)
    layers, sequences = ([mark.y for mark in by_name["PP"].named(kind)] for kind in ("weights", "tokens"))
    assert layers == sorted(layers) and sequences == sorted(sequences, reverse=True)  # the first one is furthest
    with pytest.raises(ValueError, match="ranks=5"):
        drawings.five_splits(5)


def placed(sheet, kind):
    """The marks of a kind, each with the left edge of its GPU's column."""
    columns = [mark.x + 0.5 for mark in sheet.named("edge")[::2]]
    return [(mark, columns[bisect(columns, mark.x + 1) - 1]) for mark in sheet.named(kind)]


@pytest.mark.parametrize("ranks", [2, 3, 4])
def test_a_part_of_a_cut_layer_meets_its_own_parts_alone(ranks):
    """Part i of A's columns makes part i of h, which meets part i of B's rows; arrows leave a GPU's lane at the sum alone."""
    drawing = drawings.layer_cut(ranks)
    for canvas, hidden, ends in zip(drawing.canvases[:2], ("z", "dz"), (("y", "x"), ("dx", "dy")), strict=True):
        (total,) = canvas.named("all-reduce")
        for i in range(ranks):
            a, h, b = (canvas.named(f"{name} of GPU {i + 1}")[0] for name in ("W₁", hidden, "W₂"))
            wholes = [canvas.named(f"whole {name}")[i] for name in ("W₁", hidden, "W₂")]
            for part, whole in zip((a, h, b), wholes, strict=True):
                assert inside(part, whole) and whole.w * whole.h == pytest.approx(ranks * part.w * part.h)
            at = [
                (a.x - wholes[0].x) / wholes[0].w,
                (h.x - wholes[1].x) / wholes[1].w,
                (b.y - wholes[2].y) / wholes[2].h,
            ]
            assert at == pytest.approx([i / ranks] * 3)
            (summed,) = canvas.named(f"part of {ends[0]} of GPU {i + 1}")
            assert canvas.named(f"{ends[1]} of GPU {i + 1}")
            assert summed.y >= total.y and summed.y + summed.h <= total.y + total.h
        assert len(canvas.named("to the sum")) == ranks and len(canvas.named("local")) == 4 * ranks
        for arrow in canvas.named("to the sum"):
            tip = arrow.x + arrow.w
            assert min(abs(tip - total.x), abs(tip - total.x - total.w)) < 3, "it ends at the sum"
        assert all(arrow.h == 0 for arrow in (*canvas.named("local"), *canvas.named("to the sum")))
    sent = {2: "as many bytes as y has", 3: "1.33 times the bytes of y", 4: "1.5 times the bytes of y"}[ranks]
    assert f"With {ranks} GPUs, each sends" in words(drawing) and f"{sent} per all-reduce" in words(drawing)
    with pytest.raises(ValueError, match="ranks=8"):
        drawings.layer_cut(8)


def test_a_cut_layer_sums_to_the_whole():
    """Numbers of an MLP cut as drawn: parts of y add up to y, those of x's gradient to that gradient; cut the other way, f comes before the sum."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    x, a, b = (torch.randn(*shape, dtype=torch.float64) for shape in ((3, 4), (4, 6), (6, 4)))
    x.requires_grad_()
    f = torch.nn.functional.gelu
    whole = f(x @ a) @ b
    (gradient,) = torch.autograd.grad(whole.sum(), x)
    parts = [f(x @ a[:, i : i + 3]) @ b[i : i + 3] for i in (0, 3)]
    assert torch.allclose(sum(parts), whole)
    assert torch.allclose(sum(torch.autograd.grad(part.sum(), x)[0] for part in parts), gradient)
    rows = sum(f(x[:, i : i + 2] @ a[i : i + 2]) for i in (0, 2)) @ b
    assert not torch.allclose(rows, whole)


@pytest.mark.parametrize(("stages", "micro_batches"), [(4, 8), (2, 2), (3, 6), (8, 24)])
def test_schedules_fill_each_row_and_wait_for_each_other(stages, micro_batches):
    drawing = drawings.schedules(stages, micro_batches)
    left = min(mark.x for mark in drawing.marks("forward"))
    for canvas, chunks in zip(drawing.canvases[:3], (1, 1, 2), strict=True):
        unit = (
            sum(mark.w for mark in canvas.named("idle")) / stages / (stages - 1) * chunks / 3
        )  # the bubble is p − 1 of them, V-th part
        total = (3 * micro_batches + 3 * (stages - 1) / chunks) * unit
        ticks = {
            int(word.text): mark.x + 0.5 for word, mark in zip(canvas.named("time"), canvas.named("tick"), strict=True)
        }
        assert 3 <= len(ticks) and ticks[0] == left
        one = (
            min(mark.w + min(1, mark.w / 3) for mark in canvas.named("forward")) * chunks
        )  # of all of a GPU's layers; gaps of a pixel
        assert all(x == pytest.approx(left + tick * unit) for tick, x in ticks.items()) and unit == pytest.approx(
            one, abs=1
        )
        (axis,) = canvas.named("axis")
        assert axis.w >= total - 1e-6 and axis.y >= max(mark.y + mark.h for mark in canvas.named("idle"))
        rows = []
        for y in sorted({mark.y for mark in canvas.named("forward")}):
            by_kind = {kind: sorted((mark for mark in canvas.named(kind) if mark.y == y), key=lambda mark: mark.x) for kind in ("forward", "backward", "idle")}  # fmt: skip
            assert len(by_kind["forward"]) == len(by_kind["backward"]) == micro_batches * chunks
            every = sorted(itertools.chain(*by_kind.values()), key=lambda mark: mark.x)
            assert every[0].x == pytest.approx(left) and every[-1].x + every[-1].w == pytest.approx(
                left + total, abs=1.1
            )
            for one, other in itertools.pairwise(every):
                assert -1e-6 <= other.x - one.x - one.w <= 1.01, "a gap that is not named, or two at once"
            assert sum(mark.w for mark in by_kind["idle"]) == pytest.approx(3 * (stages - 1) / chunks * unit)
            rows.append(by_kind)
        assert len(rows) == stages
        if chunks == 1:  # the k-th pass of a GPU is that of micro-batch k
            for (one, other), k in itertools.product(itertools.pairwise(rows), range(micro_batches)):
                assert other["forward"][k].x >= one["forward"][k].x + one["forward"][k].w
                assert one["backward"][k].x >= other["backward"][k].x + other["backward"][k].w
    shares = [
        f"{100 * idle / (3 * micro_batches + idle):.3g} %" for idle in (3 * (stages - 1),) * 2 + (1.5 * (stages - 1),)
    ]
    assert [canvas.named("said")[0].text.split(" of")[0] for canvas in drawing.canvases[:3]] == shares


def test_schedules_hold_micro_batches():
    """By the bars of GPU 1: forward passes that are not yet followed by their backward pass."""
    drawing = drawings.schedules()
    held = []
    for canvas, chunks in zip(drawing.canvases[:3], (1, 1, 2), strict=True):
        first = min(mark.y for mark in canvas.named("forward"))
        kinds = [(mark.x, 1 if mark.name == "forward" else -1) for mark in (*canvas.named("forward"), *canvas.named("backward")) if mark.y == first]  # fmt: skip
        held.append(max(itertools.accumulate(step for _, step in sorted(kinds))) / chunks)
    assert held == [8, 4, 5.5]
    assert [canvas.named("said")[1].text for canvas in drawing.canvases[:3]] == [f"GPU 1 holds at most {n:g} micro-batches" for n in held]  # fmt: skip
    assert "fewer micro-batches" in drawing.alt and "as many micro-batches" in drawings.schedules(4, 4).alt
    with pytest.raises(ValueError, match="such as 8"):
        drawings.schedules(4, 6)
    with pytest.raises(ValueError, match="stages=16"):
        drawings.schedules(16, 16)


@pytest.mark.parametrize("ranks", [2, 3, 4, 6])
def test_zigzag_halves_are_equal(ranks):
    """Query by query: it sees the keys up to itself. The last of contiguous chunks has 2c − 1 times the work of the first."""
    drawing = drawings.zigzag(ranks)
    half = 16384
    pairs = [sum(range(i * half + 1, (i + 1) * half + 1)) for i in range(2 * ranks)]
    contiguous = [pairs[2 * i] + pairs[2 * i + 1] for i in range(ranks)]
    zigzag = [pairs[i] + pairs[2 * ranks - 1 - i] for i in range(ranks)]
    assert len(set(zigzag)) == 1
    assert f"{contiguous[-1] / contiguous[0]:.0f} times the work" in drawing.title
    for canvas, work in zip(drawing.canvases, (contiguous, zigzag), strict=True):
        assert [canvas.named(f"share of GPU {i + 1}")[0].text for i in range(ranks)] == [f"{100 * n / sum(work):.3g} %" for n in work]  # fmt: skip
        areas = [
            sum(mark.w * mark.h for mark in canvas.named(f"whole blocks of GPU {i + 1}"))
            + sum(mark.w * mark.h for mark in canvas.named(f"half block of GPU {i + 1}")) / 2
            for i in range(ranks)
        ]
        assert areas == pytest.approx([sum(areas) * n / sum(work) for n in work], rel=1e-3)
        mean = sum(work) / ranks
        assert canvas.named("said")[0].text == f"All wait for the slowest: {100 * mean / max(work):.3g} % is work"
    with pytest.raises(ValueError, match="ranks=7"):
        drawings.zigzag(7)


# -- the clinic ---------------------------------------------------------------------------------------------------


def test_what_must_stay_of_a_step_is_marked():
    """Of 100 ms, attention takes 30 and must keep 6, a norm takes 10 and may go: 34 ms can be saved, and 100 / 66 is 1.52."""
    rows = {"attention": (0.03, 0.006), "matmuls": (0.06, 0.06), "norm": (0.01, 0.0)}
    drawing = drawings.step_rows(rows, "fused attention")
    assert drawing.title == "Fused attention can save at most 34 % of this step, which is 1.52× as fast"
    [saved], [stays] = drawing.marks("saved"), drawing.marks("stays")
    widths = {f"{bar}: {name}": 356 * 10 * pair[i] for name, pair in rows.items() for i, bar in enumerate(("before", "after"))}  # fmt: skip
    for name, wide in widths.items():
        [bar] = drawing.marks(name)
        assert bar.w == pytest.approx(wide)
    [attention] = drawing.marks("after: attention")
    assert inside(attention, stays) and stays.w == attention.w and saved.w == pytest.approx(356 * 0.34)
    for bar in ("before", "after"):  # the row that stays as it is comes first, so that what is saved lies at the end
        starts = [drawing.marks(f"{bar}: {name}")[0].x for name in ("matmuls", "attention", "norm")]
        assert starts == sorted(starts) and starts[0] == 2
    assert saved.box[2] == pytest.approx(358) and saved.x == pytest.approx(attention.box[2])
    assert [drawing.marks(f"seconds of {name}")[0].text for name in rows] == ["30 ms → 6 ms", "60 ms", "10 ms → 0 s"]
    assert "must still take 6 ms" in drawing.alt and "at least 66 ms, so that 34 ms" in drawing.alt


def test_a_cure_ends_between_its_bound_and_the_step_before():
    """By hand: a cure that allows 4 times and reaches 2.5 leaves 0.4 of the step, where a quarter must stay."""
    drawing = drawings.saved_by_cures({"one kernel": (4.0, 2.5), "no waiting": (2.0, 2.0)})
    stays, goes, ended = (drawing.marks(name) for name in ("stays", "can go", "ended"))
    assert [mark.w for mark in stays] == pytest.approx([356 / 4, 356 / 2])
    for bar, free in zip(stays, goes, strict=True):
        assert bar.box[2] == pytest.approx(free.x) and free.box[2] == pytest.approx(358)
    assert [mark.x for mark in ended] == pytest.approx([2 + 0.4 * 356, 2 + 0.5 * 356])
    assert drawing.title == "The cures saved 80 % to 100 % of what their bounds allow"  # 0.6 of 0.75, 0.5 of 0.5
    assert [mark.text for mark in drawing.marks("said")] == ["allowed 75 %, saved 60 %", "allowed 50 %, saved 50 %"]
    for wrong in ({}, {"a": (2.0, 2.5)}, {"a": (2.0, 0.9)}, {"a": (1.0, 1.0)}, {str(i): (2.0, 1.5) for i in range(9)}):
        with pytest.raises(ValueError, match="saved_by_cures"):
            drawings.saved_by_cures(wrong)


def test_the_drawn_step_is_that_of_the_figure():
    found = gallery.cures().at(patient="GPT-2, training in fp32, batch 16", flash=True)
    saved = found["before"] - found["after"]
    drawing = drawings.step_rows()
    assert drawing.marks("saved")[0].w == pytest.approx(356 * saved / found["before"])
    assert len([mark for canvas in drawing.canvases for mark in canvas.marks if mark.name.startswith("before: ")]) == 4
    [of] = drawing.marks("of")
    assert (
        of.text in drawing.alt and "not measured" in of.text and not drawings.step_rows({"a": (2.0, 1.0)}).marks("of")
    )


def test_the_drawn_bound_is_the_arithmetic_at_the_peak():
    """Fused, GPT-2's attention executes seven matmuls of 2 · 64 FLOPs per visible pair, in fp32 at 67 TFLOP/s."""
    pairs = 16 * 12 * 12 * 1024 * 1025 / 2
    [stays] = drawings.step_rows().marks("must stay: the floor after the cure")
    assert stays.text == seconds(pairs * 7 * 2 * 64 / 67e12)


def test_each_row_of_a_step_has_its_letter_in_the_key_and_where_there_is_room():
    drawing = drawings.step_rows({"attention": (0.5, 0.25), "matmuls": (0.49, 0.49), "norm": (0.01, 0.01)})
    keys = [mark.text for mark in drawing.marks("key") if mark.text]
    assert keys == ["A", "B", "C"]
    names = [mark.text for mark in drawing.canvases[0].marks if mark.text in ("attention", "matmuls", "norm")]
    assert names == ["matmuls", "norm", "attention"], "the key's order is the bar's"
    assert [mark.text for mark in drawing.marks("letter")] == ["A", "C", "A", "C"]


def test_a_step_is_followed_on_one_scale():
    """By hand: 300 ms with a floor of 200, then 60 ms with a floor of 15: a fifth of the width, a quarter of that framed."""
    drawing = drawings.step_followed({"fp32": (0.3, 0.2), "bf16": (0.06, 0.015)})
    stays, frames, above = (drawing.marks(name) for name in ("stays", "frame", "above"))
    assert [mark.w for mark in stays] == pytest.approx([356 * 2 / 3, 356 / 20]) == [mark.w for mark in frames]
    assert [mark.w for mark in above] == pytest.approx([356 / 3, 356 * 3 / 20])
    for bar, free in zip(stays, above, strict=True):
        assert bar.box[2] == pytest.approx(free.x)
    assert [mark.text for mark in drawing.marks("said")] == ["floor 200 ms, 66.7 %", "floor 15 ms, 25 %"]
    for wrong in ({}, {"a": (1.0, 2.0)}, {"a": (1.0, 0.0)}, {str(i): (2.0, 1.5) for i in range(7)}):
        with pytest.raises(ValueError, match="step_followed"):
            drawings.step_followed(wrong)


def test_the_step_that_is_followed_is_the_measured_one():
    """16 sequences of 1,024 tokens: the FLOPs by the product's sizes and the visible pairs, at 67 TFLOP/s in fp32, 989.5 in bf16."""
    tokens, d, layers, pairs = 16 * 1024, 768, 12, 16 * 12 * 12 * 1024 * 1025 / 2
    products = 6 * tokens * (12 * layers * d * d + 50304 * d)
    flops = products + pairs * 7 * 2 * 64
    said = [mark.text.split(",")[0] for mark in drawings.step_followed().marks("said")]
    assert said[0] == f"floor {seconds(flops / 67e12)}" and said[2] == said[3] == f"floor {seconds(flops / 989.5e12)}"


def _chosen(sheet, *said):
    """The cures of a chart's sheet, by what its groups are called."""
    return [row.cure for (group, _), rows in SHEETS[sheet].items() if group.startswith(said) for row in rows]


def test_the_chart_sends_the_patients_of_the_chapter_to_their_cures():
    """1 and 4 wait. 3 and 6 do what nobody needs. 2 is at memory's limit, the fp32 matmul of 5 at compute's, its ninth wave at neither."""
    wait, needed, limit = SHEETS
    assert {"fewer launches", "load ahead"} <= set(_chosen(wait, "Yes"))
    assert {"is_causal", "smaller shapes"} <= set(_chosen(needed, "No"))
    assert "fuse" in _chosen(limit, "memory") and _chosen(limit, "compute") == ["lower precision"]
    assert "full waves" in _chosen(limit, "neither")


def test_each_advice_of_a_profile_is_in_the_chart_once():
    calls = [node for node in ast.walk(ast.parse(inspect.getsource(advising))) if isinstance(node, ast.Call)]
    kinds = [call.args[0].value for call in calls if getattr(call.func, "id", "") == "Advice" and len(call.args) > 4]
    assert len(kinds) > len(advising.RULES), "one of each rule, and the rows at their roof"
    drawing = drawings.symptoms()
    rows = [row for groups in SHEETS.values() for group in groups.values() for row in group]
    assert sorted(row.advice for row in rows if row.advice) == sorted(kinds)
    boxes = {name: [mark.text for mark in drawing.marks(name)] for name in ("cure", "other")}
    assert boxes["cure"] == [row.cure for row in rows if row.advice]
    assert boxes["other"] == [row.cure for row in rows if not row.advice]
    assert all(f"{row.seen}: {row.cure}" in drawing.alt for row in rows)
    for sheet in drawing.canvases:  # an arrow from each symptom to its cure
        cures = [mark for mark in sheet.marks if mark.name in ("cure", "other")]
        arrows = [mark for mark in sheet.marks if mark.kind == "arrow"]
        middles = [cure.y + cure.h / 2 for cure in cures]
        assert [arrow.y for arrow in arrows] == pytest.approx(middles)
        assert all(cure.x - 4 < arrow.box[2] < cure.x for arrow, cure in zip(arrows, cures, strict=True))
