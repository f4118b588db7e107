"""What the counter makes of every operator that its tests and some real programs meet, kept, and compared after each change.

    python tools/golden.py                 compare everything: five minutes
    python tools/golden.py --programs      only the real programs: a minute
    python tools/golden.py --write         keep today's answers in tests/data/golden.json
    python tools/golden.py --rows FILE     write every row in full, to see what exactly changed: run it before and after, and use diff

Two things are kept. Of the *suite* (tests/counter, run by pytest with every count looked at): which work each operator costs for each
set of arguments, (operator, signature) -> work. Of each of `PROGRAMS`: its totals, and for each operator what it cost in which phase and
module, and how often. Signatures, works and rows are kept as hashes, to be small; --rows has them as text.

A test that is dropped makes no difference: its rows are then named as not met. A work that is another one, or a program's, is a
difference, and the exit status is 1. The numbers follow the version of torch and of transformers; with another one nothing is compared.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import re
import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "tests" / "data" / "golden.json"
PACKAGES = ("torch", "torchvision", "transformers")
# What draws its programs at random, reads the clock, or starts other processes is of no use here.
LEFT_OUT = ("fuzz", "properties", "large_models", "golden", "counts_at_once")
SUITE = ["tests/counter", "-q", "-m", "not slow", "-p", "no:cacheprovider", "-W", "ignore"]
Rows = dict[str, dict[str, set[str]]]  # operator -> signature -> works; of a program: operator -> "" -> lines


# -- what is looked at: the one place that knows how the counter keeps it --------------------------------------------


def lines_of(report: Any) -> Iterator[tuple[str, str, str, str, int]]:
    """Operator, signature, work, where it ran, how often."""
    for entry, where, calls in report.lines():
        yield entry.op, _signature(entry.key), _work(entry.work), f"{where.phase} {where.path}", calls


def _signature(key: Any) -> str:
    found = repr(key[1:]) if isinstance(key, tuple) else ""  # the first is the operator itself
    return re.sub(r" at 0x[0-9a-f]+", "", found)


def _work(work: Any) -> str:
    def amounts(given: Any) -> str:
        return ",".join(f"{kind}={n}" for kind, n in sorted((given or {}).items()) if n)

    executed = "as model" if work.executed == work.model else amounts(work.executed)
    vector = [
        str(sum(part.values())) for part in (work.vector, work.vector_recomputed)
    ]  # whatever its kinds are called
    found = [
        work.status,
        amounts(work.model),
        executed,
        amounts(work.recomputed),
        *([amounts(work.ahead)] if work.ahead else []),
        *vector,
        str(work.bytes),
        work.kernel,
    ]
    return " | ".join([*found, work.note])


@contextlib.contextmanager
def every_report(look: Callable[[Any], None]) -> Iterator[None]:
    """Call *look* with each report that comes to its end."""
    from flopkit.counter.report import Report
    from flopkit.counter.watch.mode import Watcher

    original = Watcher.finish

    def finish(watcher: Any) -> None:
        original(watcher)
        look(Report(watcher.session))

    Watcher.finish = finish  # type: ignore[method-assign]
    try:
        yield
    finally:
        Watcher.finish = original  # type: ignore[method-assign]


# -- the suite --------------------------------------------------------------------------------------------------------


def suite() -> Rows:
    """Every operator of the counter's tests: signature -> works."""
    import pytest

    found: Rows = defaultdict(lambda: defaultdict(set))

    def look(report: Any) -> None:
        for op, signature, work, _, _ in lines_of(report):
            found[op][signature].add(work)

    class Plugin:
        @staticmethod
        def pytest_ignore_collect(collection_path: Path) -> bool | None:
            return True if any(word in collection_path.stem for word in LEFT_OUT) else None

    with every_report(look):
        status = pytest.main([*SUITE, "--hypothesis-seed=0"], plugins=[Plugin()])
    if status:
        raise SystemExit(f"the suite itself is not green (exit status {int(status)}): that comes first")
    return found


# -- real programs ----------------------------------------------------------------------------------------------------


def _image(name: str, device: str = "meta", size: int = 224) -> Callable[[], Any]:
    def program() -> None:
        import torch
        from torchvision import models

        with torch.device(device):
            model, image = models.get_model(name), torch.ones(2, 3, size, size)
        model(image).sum().backward()

    return program


def _text(kind: str, head: str = "ForCausalLM", train: bool = True, **settings: Any) -> Callable[[], Any]:
    def program() -> None:
        import torch
        import transformers

        transformers.logging.set_verbosity_error()
        config = getattr(transformers, f"{kind}Config")(**settings)
        with torch.device("meta"):
            model = getattr(transformers, f"{kind}{head}")(config).to(torch.bfloat16)
            tokens = torch.zeros(2, 48, dtype=torch.long)
        given = {"decoder_input_ids": tokens} if kind == "T5" and head != "EncoderModel" else {}
        if train:
            found = model(input_ids=tokens, **given)
            (found.logits if hasattr(found, "logits") else found.last_hidden_state).sum().backward()
        else:
            with torch.no_grad():
                model(input_ids=tokens, **given)

    return program


_SMALL = {"hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 300,
          "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}  # fmt: skip
_GROUPED = {**_SMALL, "num_key_value_heads": 2}
_EXPERTS = {**_GROUPED, "moe_intermediate_size": 32, "num_experts": 4, "num_experts_per_tok": 2}


def _step(
    make: Callable[[], Any], shape: tuple[int, ...], optimizer: str = "AdamW", again: bool = False
) -> Callable[[], Any]:
    """Two training steps on the CPU."""

    def program() -> None:
        import torch
        from torch.utils.checkpoint import checkpoint

        torch.manual_seed(0)
        model = make()
        steps = getattr(torch.optim, optimizer)(model.parameters(), lr=1e-3)
        for _ in range(2):
            x = torch.ones(shape)
            out = checkpoint(model, x, use_reentrant=False) if again else model(x)
            (out[0] if isinstance(out, tuple) else out).square().mean().backward()
            steps.step()
            steps.zero_grad()

    return program


def _mlp() -> Any:
    from torch import nn

    return nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 16))


def _compiled() -> Any:
    import torch

    return torch.compile(_mlp(), backend="eager")


def _in_a_pool() -> None:
    """Two steps in a thread of a pool."""
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as pool:
        pool.submit(_step(_mlp, (8, 16))).result()


def _cnn() -> Any:
    from torch import nn

    block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=4), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
    return nn.Sequential(
        nn.Conv2d(3, 8, 3), block, nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Flatten(), nn.LazyLinear(10)
    )


def _encoder() -> Any:
    from torch import nn

    return nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2, enable_nested_tensor=False)


def _layer(kind: str, *args: int, **kwargs: Any) -> Callable[[], Any]:
    def make() -> Any:
        from torch import nn

        return getattr(nn, kind)(*args, **kwargs)

    return make


def _encoder_alone() -> None:
    """The fast path, in inference."""
    import torch

    with torch.inference_mode():
        _encoder().eval()(torch.ones(2, 5, 32))


def _int8() -> None:
    import torch
    from torch import nn

    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.LSTM(32, 8)).eval()
    torch.ao.quantization.quantize_dynamic(model, {nn.Linear, nn.LSTM})(torch.ones(3, 4, 16))


def _algebra() -> None:
    import torch

    a = (torch.eye(6) * 3 + 0.1).requires_grad_()
    b = torch.ones(6, 2)
    for found in (torch.linalg.solve(a, b), torch.linalg.cholesky(a @ a.T), torch.linalg.inv(a), torch.linalg.qr(a)[0],
                  torch.fft.fft(a).real, torch.einsum("ij,jk,kl->il", a, b, b.T), torch.cdist(a, a)):  # fmt: skip
        found.sum().backward(retain_graph=True)
    torch.linalg.svdvals(a.detach()), torch.linalg.eigvalsh(a.detach())


PROGRAMS: dict[str, Callable[[], Any]] = {
    **{
        f"{name}, meta, training": _image(name)
        for name in ("resnet18", "resnet50", "mobilenet_v2", "efficientnet_b0", "convnext_tiny", "densenet121", "vgg11",
                     "shufflenet_v2_x0_5", "squeezenet1_1", "vit_b_16", "swin_t", "alexnet", "vgg16_bn", "mnasnet0_5",
                     "resnext50_32x4d", "wide_resnet50_2", "mobilenet_v3_small", "efficientnet_v2_s", "swin_v2_t", "maxvit_t", "densenet169",
                     "convnext_small")
    },
    "resnet18, cpu, training": _image("resnet18", "cpu", 64),
    **{f"{kind}, meta, training": _text(kind, **_GROUPED) for kind in ("Llama", "Mistral", "Qwen2", "Qwen3", "Gemma", "Phi3", "Phi", "Olmo2", "Granite", "Cohere", "StableLm", "Starcoder2", "GPTNeoX", "Glm")},
    "Gemma2, meta, training": _text("Gemma2", **_GROUPED, head_dim=16),
    "Llama, meta, no gradients": _text("Llama", train=False, **_GROUPED),
    "Mixtral, meta, training": _text("Mixtral", **_GROUPED),
    "Qwen3Moe, meta, training": _text("Qwen3Moe", **_EXPERTS),
    "Qwen2Moe, meta, training": _text("Qwen2Moe", **_EXPERTS, shared_expert_intermediate_size=48),
    "Olmoe, meta, training": _text("Olmoe", **_EXPERTS),
    "OPT, meta, training": _text("OPT", hidden_size=64, ffn_dim=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=300,
                                 word_embed_proj_dim=64),
    "Distilbert, meta, training": _text("DistilBert", "Model", dim=64, hidden_dim=128, n_layers=2, n_heads=4, vocab_size=300),
    "GPT2, meta, training": _text("GPT2", "LMHeadModel", n_embd=64, n_layer=2, n_head=4, vocab_size=300, bos_token_id=1, eos_token_id=2),
    "Bert, meta, training": _text("Bert", "Model", **_SMALL),
    "T5, meta, training": _text("T5", "ForConditionalGeneration", d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, vocab_size=300),
    "Mamba, meta, training": _text("Mamba", hidden_size=64, num_hidden_layers=2, vocab_size=300, state_size=8),
    "MLP, AdamW": _step(_mlp, (8, 16)),
    "MLP, SGD, recomputed": _step(_mlp, (8, 16), "SGD", again=True),
    "MLP, compiled, AdamW": _step(_compiled, (8, 16)),
    "MLP, in a pool": _in_a_pool,
    "CNN, Adam": _step(_cnn, (2, 3, 16, 16), "Adam"),
    "encoder, AdamW": _step(_encoder, (2, 5, 32)),
    "encoder, inference": _encoder_alone,
    "LSTM, RMSprop": _step(_layer("LSTM", 8, 16, num_layers=2, batch_first=True), (2, 5, 8), "RMSprop"),
    "GRU, SGD": _step(_layer("GRU", 8, 16), (5, 2, 8), "SGD"),
    "int8": _int8,
    "linear algebra": _algebra,
}  # fmt: skip
QUICK = ("resnet18, meta, training", "Llama, meta, training", "Mixtral, meta, training", "MLP, AdamW", "MLP, SGD, recomputed", "CNN, Adam",
         "encoder, AdamW", "encoder, inference", "LSTM, RMSprop", "int8", "linear algebra")  # fmt: skip


def program(name: str) -> tuple[dict[str, Any], Rows]:
    """The totals of one of `PROGRAMS`, and its rows by operator."""
    import torch

    import flopkit as fk

    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with fk.counting() as report:
            PROGRAMS[name]()
    totals = {
        "model": report.model_flops, "executed": report.flops, "exact": report.under(fk.conventions.EXACT).flops,
        "vector": report.vector_flops, "bytes": report.bytes, "uncounted": sum(row["calls"] for row in report.uncounted),
    }  # fmt: skip
    calls: Counter[tuple[str, str]] = Counter()
    for op, signature, work, where, times in lines_of(report):
        calls[op, f"{where} {signature} {work}"] += times
    rows: Rows = defaultdict(lambda: {"": set()})
    for (op, line), times in calls.items():
        rows[op][""].add(f"{times} × {line}")
    return totals, rows


# -- keeping and comparing --------------------------------------------------------------------------------------------


def short(texts: str | set[str]) -> str:
    """Eight hexadecimal digits that stand for a text, or for a set of texts."""
    one = texts if isinstance(texts, str) else "\n".join(sorted(texts))
    return hashlib.sha256(one.encode()).hexdigest()[:8]


def versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name).split("+")[0]
    return found


def kept() -> Any:
    return json.loads(FILE.read_text("utf-8"))


def kept_program(name: str) -> Any:
    """What is to be kept of a program."""
    totals, rows = program(name)
    return {**totals, "rows": {op: short(rows[op][""]) for op in sorted(rows)}}


def kept_suite(found: Rows) -> dict[str, dict[str, list[str]]]:
    """What is to be kept of the suite: works by signature, by operator."""
    return {
        op: {
            short(signature): " ".join(sorted(short(work) for work in works)) for signature, works in sorted(by.items())
        }
        for op, by in sorted(found.items())
    }


def differences_of_program(name: str, now: Any, then: Any) -> list[str]:
    """What a program's answers differ in, in words."""
    found = [
        f"{name}: {what} {then[what]:,} was, {now[what]:,} is"
        for what in now
        if what != "rows" and now[what] != then[what]
    ]
    ops = [op for op in {**then["rows"], **now["rows"]} if then["rows"].get(op) != now["rows"].get(op)]
    return [*found, *(f"{name}: the rows of {op} differ" for op in ops)]


def differences_of_suite(now: Any, then: Any) -> tuple[list[str], list[str]]:
    """Works that are other ones; and what was met then or now alone."""
    wrong, alone = [], []
    for op in sorted({*now, *then}):
        here, there = now.get(op, {}), then.get(op, {})
        off = [s for s in here if s in there and not set(here[s].split()) <= set(there[s].split())]
        if off:
            wrong.append(f"{op}: another work for {len(off)} of {len(here)} signatures")
        if new := len(here.keys() - there.keys()):
            alone.append(f"{op}: {new} signatures that were not met before")
        if gone := len(there.keys() - here.keys()):
            alone.append(f"{op}: {gone} signatures that are not met any more")
    return wrong, alone


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="keep today's answers")
    parser.add_argument("--programs", action="store_true", help="only the real programs")
    parser.add_argument("--rows", type=Path, metavar="FILE", help="write every row in full")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    if not (options.write or options.rows) and kept()["versions"] != versions():
        print(f"kept with {kept()['versions']}, this is {versions()}: nothing is compared")
        return 2
    if options.rows:
        with options.rows.open("w", encoding="utf-8") as file:
            for name in PROGRAMS:
                file.writelines(
                    f"{name}\t{op}\t{line}\n" for op, by in sorted(program(name)[1].items()) for line in sorted(by[""])
                )
            if not options.programs:
                for op, by in sorted(suite().items()):
                    file.writelines(
                        f"suite\t{op}\t{signature}\t{work}\n"
                        for signature in sorted(by)
                        for work in sorted(by[signature])
                    )
        return 0
    programs = {name: kept_program(name) for name in PROGRAMS}
    found = {} if options.programs else kept_suite(suite())
    if options.write:
        FILE.parent.mkdir(exist_ok=True)
        now = {"versions": versions(), "programs": programs, "suite": found or kept()["suite"]}
        FILE.write_text(json.dumps(now, separators=(",", ":"), indent=None).replace("},", "},\n") + "\n", "utf-8")
        print(f"{FILE.relative_to(ROOT)}: {FILE.stat().st_size / 1000:.0f} kB")
        return 0
    then = kept()
    wrong = [each for name in PROGRAMS for each in differences_of_program(name, programs[name], then["programs"][name])]
    alone: list[str] = []
    if not options.programs:
        more, alone = differences_of_suite(found, then["suite"])
        wrong += more
    print(*alone, *wrong, sep="\n")
    signatures = sum(map(len, found.values()))
    print(f"{len(programs)} programs, {signatures:,} signatures of {len(found)} operators: {len(wrong)} differences")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
