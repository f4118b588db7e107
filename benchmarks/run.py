"""Speed and size, as ratios measured side by side in one run.

    python benchmarks/run.py                 imports, counts, figures and pages (needs `make book` and, for figures, Chromium)
    python benchmarks/run.py --commands      also compare sixty pairs of profiles, time the whole suite of experiments, and `make book` and `make test` in fresh clones
    python benchmarks/run.py --readme        also write the table into benchmarks/README.md

A figure that a limit is named for is compared with it here and nowhere else: no test fails because a machine is slow.
"""

from __future__ import annotations

import argparse
import gzip
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HTML = ROOT / "_build" / "html"
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "benchmarks")]

from attaching import rows_attaching  # noqa: E402
from comparing import rows_comparing  # noqa: E402
from counting import rows_counter  # noqa: E402
from simulating import rows_simulating  # noqa: E402


def rows_imports(runs=15):
    """Wall time of whole interpreters, the two in turn, so that a drift of the machine falls on both."""

    def clock(code):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)
        return time.perf_counter() - start

    first = "import flopkit as fk; fk.dense(tokens=1, d_in=2, d_out=3)"  # the import alone loads nothing
    codes = {"nothing": "pass", "flopkit": first, "numpy": "import numpy"}
    taken = {name: [] for name in codes}
    for _ in range(runs):
        for name, code in codes.items():
            taken[name].append(clock(code))
    ours, theirs = (
        statistics.median(a - b for a, b in zip(taken[name], taken["nothing"], strict=True))
        for name in ("flopkit", "numpy")
    )
    yield (
        "`import flopkit` and a first `fk.dense(…)`, beyond starting Python",
        f"{1000 * ours:.0f} ms",
        f"{ours / theirs:.2f} of `import numpy`",
        "< 100 ms",
    )


def rows_counting(runs=200):
    """One dense layer: the closed form, and torch's counter around the layer on meta tensors."""
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    import flopkit as fk

    linear, x = torch.nn.Linear(4096, 16384, bias=False, device="meta"), torch.empty(64, 4096, device="meta")

    def closed_form():
        return fk.dense(tokens=64, d_in=4096, d_out=16384).flops

    def torch_counter():
        with FlopCounterMode(display=False) as counter:
            linear(x)
        return counter.get_total_flops()

    assert closed_form() == torch_counter()
    taken = {closed_form: [], torch_counter: []}
    for _ in range(runs):
        for function, times in taken.items():
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    ours, theirs = (statistics.median(taken[function]) for function in (closed_form, torch_counter))
    yield (
        "FLOPs of a dense layer, `fk.dense(…)`",
        f"{1e6 * ours:.0f} µs",
        f"{ours / theirs:.2f} of torch's counter on meta",
        "",
    )


def rows_models(runs=40):
    """A model's whole training step, the tree built anew, and a sweep of lengths; CPU time, which others on the machine do not lengthen."""
    import numpy as np

    import flopkit as fk

    model, lengths = fk.load("deepseek-v3"), np.arange(1, 10_001)

    def step():
        return model.train_step(seq=4096).hardware_flops

    def sweep():
        return model.train_step(seq=lengths).hardware_flops

    assert sweep()[4095] == step()
    taken = {step: [], sweep: []}
    for _ in range(runs):
        for function, times in taken.items():
            start = time.process_time()
            function()
            times.append(time.process_time() - start)
    one, all_of_them = (statistics.median(taken[function]) for function in (step, sweep))
    yield (
        "training step of DeepSeek-V3, its tree built anew",
        f"{1e3 * one:.1f} ms",
        "CPU time, of one length",
        "< 5 ms",
    )
    yield (
        "the same for 10,000 lengths, a NumPy array",
        f"{1e3 * all_of_them:.0f} ms",
        f"{all_of_them / one:.0f} times one length",
        "< 50 ms",
    )


def rows_trees(runs=5):
    """The tree of each model whose config.json the package has: the configuration read, and what its parts add up to; CPU time."""
    import flopkit as fk
    from flopkit.models import config_names, hf_config

    taken = {}
    for name in config_names():
        config = hf_config(name)
        try:
            fk.from_hf(config)
        except ValueError:  # of a type that only transformers counts
            continue
        for _ in range(runs):
            start = time.process_time()
            model = fk.from_hf(config)
            assert model.params >= model.active_params
            taken.setdefault(name, []).append(time.process_time() - start)
    times = {name: min(of) for name, of in taken.items()}
    name = max(times, key=times.get)
    yield (
        f"a `config.json` read, and its tree added up ({len(times)} files), median",
        f"{1e3 * statistics.median(times.values()):.1f} ms",
        f"longest `{name}`: {1e3 * times[name]:.1f} ms",
        "< 20 ms",
    )


def rows_lengths(runs=40, documents=1000):
    """The FLOPs of a step of packed documents, as a meter takes them, beside a training step that is built anew; CPU time."""
    import random

    import flopkit as fk
    from flopkit.utilization.gauges import under_both
    from flopkit.utilization.packing import Amounts

    step = fk.load("gpt-oss-20b").train_step(seq=8192)  # with and without a window
    lengths = [random.randint(1, 8192) for _ in range(documents)]
    amounts = Amounts(lambda given: under_both(step.packed(given), "model_flops").values())

    def packed():
        return amounts(lengths)[0]

    def built():
        return step.packed(lengths).model_flops

    assert packed() == packed() == built()
    calls, taken = {packed: 100, built: 1}, {packed: [], built: []}
    for _ in range(runs):
        for function, times in taken.items():
            start = time.process_time()
            for _ in range(calls[function]):
                function()
            times.append((time.process_time() - start) / calls[function])
    ours, anew = (statistics.median(taken[function]) for function in (packed, built))
    yield (
        f"FLOPs of a step of {documents:,} documents, a list of lengths",
        f"{1e6 * ours:.0f} µs",
        f"{ours / anew:.3f} of the step built anew",
        "< 50 µs",
    )


def rows_search(runs=5):
    """All layouts of DeepSeek-V3 on 2,048 devices, and the same layouts one by one; CPU time."""
    import flopkit as fk

    asked = {
        "seq": 4096,
        "batch": 15360,
        "overlap": ("data", "pipeline", "expert"),
        "dispatch_bytes": 1,
        "fused": True,
        "memory": 1e15,
    }
    given = (fk.load("deepseek-v3"), "deepseek-h800")
    tried = {"expert": (1, 2, 4, 8, 16, 32, 64, 128, 256), "zero": (1, 2, 3)}

    def searched():
        return fk.parallel.search(*given, 2048, **tried, **asked)

    layouts = [each.layout for each in searched().steps]

    def one_by_one():
        return [fk.parallel.step(given[0], layout, given[1], **asked) for layout in layouts]

    taken = {searched: [], one_by_one: []}
    for _ in range(runs):
        for function, times in taken.items():
            start = time.process_time()
            assert len(function()) == len(layouts)
            times.append(time.process_time() - start)
    ours, theirs = (statistics.median(taken[function]) for function in (searched, one_by_one))
    yield (
        f"`fk.parallel.search` of {len(layouts):,} layouts of DeepSeek-V3, all of which fit",
        f"{ours:.2f} s",
        f"{ours / theirs:.2f} of a `step` for each",
        "< 0.5 ms a layout",
    )


def rows_measuring(rounds=30, calls=50):
    """What the clock of `fk.measure` adds to the calls that it times, beside the same loop without it; and the ceilings of a CPU."""
    import torch

    import flopkit as fk
    from flopkit.measuring.arguments import copies, rotating
    from flopkit.measuring.timers import WallClock

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # threads that wait for each other would be most of the time on a busy machine
    a, b = torch.randn(2, 256, 256)
    run = rotating(torch.mm, copies(((a, b), {}), a.device))
    timer = WallClock(run)

    def plain():
        for _ in range(calls):
            run()

    def clocked():
        timer.calls(calls)

    taken = {plain: [], clocked: []}
    for _ in range(rounds):
        for function, times in taken.items():
            start = time.perf_counter()
            function()
            times.append(time.perf_counter() - start)
    torch.set_num_threads(threads)
    bare, ours = (min(taken[function]) for function in (plain, clocked))
    yield (
        "a product of 256 × 256 under the clock of `fk.measure`",
        f"{1e6 * ours / calls:.1f} µs",
        f"{100 * (ours / bare - 1):+.1f} % over the bare loop",
        "< +2 %",
    )
    start = time.perf_counter()
    found = fk.ceilings("cpu", keep=False)
    yield (
        "`fk.ceilings()` of the CPU",
        f"{time.perf_counter() - start:.0f} s",
        f"{len(found.matmul)} formats, {len(found.traffic)} kinds of traffic",
        "< 60 s",
    )


STEP = """async node => {
  const slider = node.querySelector('input[type=range]'), taken = [];
  const settled = () => new Promise(done => {
    const seen = new MutationObserver(() => { seen.disconnect(); done(); });
    seen.observe(node, {attributeFilter: ['data-settled']});
  });
  for (let round = 0; round < 3; round++) for (let i = 0; i <= +slider.max; i++) {
    if (+slider.value === i) continue;
    const start = performance.now(), after = settled();
    slider.value = i;
    slider.dispatchEvent(new Event('input', {bubbles: true}));
    await after;
    taken.push(performance.now() - start);
    await new Promise(requestAnimationFrame);
  }
  return taken;
}"""


def rows_figures():
    """A slider of each figure along its ladder: from the input event to the chart and the read-outs brought up to date."""
    from conftest import FLAGS, chromium_path
    from playwright.sync_api import sync_playwright

    if chromium_path() is None:
        print("no Chromium on this machine: figures are not measured", file=sys.stderr)
        return
    medians = []
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium_path(), args=FLAGS)
        for path in sorted((HTML / "book").glob("*.html")):
            page = browser.new_page()
            page.goto(path.as_uri())
            for node in page.locator("figure[data-name]:not(.fk-drawing)").all():
                node.scroll_into_view_if_needed()
                page.wait_for_function("n => n.dataset.ready === 'yes'", arg=node.element_handle(), timeout=30_000)
                if node.locator("input[type=range]").count():
                    medians.append((statistics.median(node.evaluate(STEP)), node.get_attribute("data-name")))
            page.close()
        browser.close()
    if medians:
        slowest, name = max(medians)
        middle = statistics.median(value for value, _ in medians)
        yield (
            f"slider to redrawn figure, median ({len(medians)} figures)",
            f"{middle:.1f} ms",
            f"slowest `{name}`: {slowest:.1f} ms",
            "≤ 16 ms",
        )


def rows_pages():
    """Compressed size of a page with what its figures need, beyond the theme and MathJax."""

    def packed(path):
        return len(gzip.compress(path.read_bytes(), 6)) / 1000

    shared = sum(packed(HTML / "_static" / name) for name in ("figure.js", "figure.css", "vendor/vega.js"))
    theme = packed(HTML / "search.html")  # a page on which nothing stands
    pages = {
        path.stem: packed(path) - theme
        for path in (HTML / "book").glob("*.html")
        if "data-name=" in path.read_text("utf8")
    }
    if pages:  # those with a figure: the others load no Vega
        name = max(pages, key=pages.get)
        yield (
            f"heaviest page with a figure (`{name}`), gzip, with Vega",
            f"{pages[name] + shared:.0f} KB",
            f"{pages[name]:.0f} KB its own, {shared:.0f} KB once a book",
            "≤ 350 KB",
        )


def rows_record():
    """All experiments at the CPU's sizes, into a recording: the whole, and the longest of its parts."""
    import flopkit as fk
    from flopkit.experiments import record

    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLOPKIT_RECORDINGS"] = folder  # so that the ceilings are measured, too
        taken = {}
        for name in fk.experiments.NAMES:  # the first part begins with the ceilings
            start = time.perf_counter()
            found = record(f"{folder}/cpu.json", only=[name], device="cpu")
            taken[name] = time.perf_counter() - start
            assert not found.failed, found.failed
    longest = max(taken, key=taken.get)
    yield (
        f"`python -m flopkit record` on the CPU, {len(taken)} experiments",
        f"{sum(taken.values()) / 60:.1f} min",
        f"longest part: {longest}, {taken[longest]:.0f} s",
        "≤ 20 min, each part ≤ 8 min",
    )


def rows_commands():
    """The README's two commands in a fresh clone, each in one of its own, install included."""
    for command, limit in (("book", 10), ("test", 25)):
        with tempfile.TemporaryDirectory() as folder:
            clone = Path(folder) / "clone"
            subprocess.run(["git", "clone", "-q", str(ROOT), str(clone)], check=True)
            start = time.perf_counter()
            subprocess.run(["make", command], check=True, cwd=clone, stdout=subprocess.DEVNULL)
            minutes = (time.perf_counter() - start) / 60
        yield (
            f"`make {command}`, fresh clone, install included",
            f"{minutes:.1f} min",
            f"on {os.cpu_count()} cores",
            f"≤ {limit} min",
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--commands",
        action="store_true",
        help="compare sixty pairs of profiles, time the suite of experiments, and make book and make test in fresh clones",
    )
    parser.add_argument("--readme", action="store_true", help="write the table into benchmarks/README.md")
    options = parser.parse_args()
    if not (HTML / "book").is_dir() or shutil.which("git") is None:
        sys.exit("the book is not built: run `make book` first")
    parts = [
        rows_imports,
        rows_counting,
        rows_models,
        rows_trees,
        rows_lengths,
        rows_search,
        rows_measuring,
        rows_counter,
        rows_attaching,
        rows_simulating,
        rows_figures,
        rows_pages,
    ]
    parts += [rows_comparing, rows_record, rows_commands] * options.commands
    lines = ["| what | measured | beside it | aim |", "|---|---|---|---|"]
    lines += ["| " + " | ".join(row) + " |" for part in parts for row in part()]
    note = f"Python {platform.python_version()}, {os.cpu_count()} cores; `python benchmarks/run.py` measures anew."
    table = "\n".join([*lines, "", note])
    print(table)
    if options.readme:
        readme = ROOT / "benchmarks" / "README.md"
        start, end = "<!-- benchmarks -->", "<!-- end of benchmarks -->"
        text = re.sub(
            f"{start}.*?{end}", lambda _: f"{start}\n{table}\n{end}", readme.read_text("utf8"), flags=re.DOTALL
        )
        readme.write_text(text, "utf8")


if __name__ == "__main__":
    main()
