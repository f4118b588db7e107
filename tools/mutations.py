"""Change one number or one sign of a formula at a time, and see whether a test goes red.

    python tools/mutations.py                                         every formula: takes an hour or more
    python tools/mutations.py flopkit/counter/formulas/products.py   one file: minutes, and seconds more once the tests are known
    python tools/mutations.py --list flopkit/training/backward.py              only show what would be changed

A number n becomes n + 1; + and - change places; a product becomes a sum and loses one factor, then the other; a quotient becomes a
product. Each change, a *mutant*, meets the tests that run its line, the fastest first, until one fails. A mutant that none of them
notices has survived: a test is missing, or the change changes nothing. The latter are named above the line, with a reason
(`EQUIVALENT` below). The exit status is 1 where another mutant survives.

Everything happens in a copy of the repository. The tests are collected once, in a process that has counted nothing. A fork of it runs each
test and notes the lines (kept in _build/mutations/); then a fork of it takes each mutant, replaces the function's code and runs the tests.
For what has run by then (constants of modules, defaults, a formula that a test's parameters call) the module is loaded once more;
where that tells nothing, a new process meets a copy with the changed file. Needs `os.fork`: Linux or macOS.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import copy
import gc
import hashlib
import importlib
import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import pytest
from tqdm import tqdm

ROOT = Path(__file__).resolve().parent.parent
MODULES = [
    "flopkit/counter/formulas",
    "flopkit/training/",
    "flopkit/counter/watch/attention_calls.py",
    "flopkit/layers",
    "flopkit/models",
    "flopkit/serving",
    "flopkit/sizes",
    "flopkit/utilization",
]
MODULES += [f"flopkit/{name}.py" for name in ("arithmetic", "conventions", "cost", "macs", "rooflines/bounds")]
TESTS = "tests/counter tests/layers tests/models tests/serving tests/utilization tests/test_training.py tests/test_tally.py tests/test_readings.py tests/test_counted.py tests/test_sizes.py tests/test_cost.py tests/test_arithmetic.py tests/test_conventions.py tests/rooflines tests/test_bad_input.py flopkit"  # fmt: skip
PYTEST = ["-m", "not browser and not slow", "-p", "no:cacheprovider", "-p", "no:xdist", "--hypothesis-seed=0"]

# A mutant that changes nothing which anyone can see is named above its line, with the reason:
#     # equivalent: 0 -> 1 (there is nothing then that it could be multiplied with)
#     inner = work // rows if rows else 0
# Several are parted by a bar; [2] is the second of those on the line that read the same.
EQUIVALENT = re.compile(r"\s*# equivalent: (?P<changes>.+) \((?P<reason>[^()]+)\)$")

SWAPS = {
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Add, ast.FloorDiv: ast.Mult, ast.Div: ast.Mult, ast.Pow: ast.Mult,
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
}  # fmt: skip
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)

# ------------------------------------------------------------------------------------------------------------------- the mutants


@dataclass(eq=False)
class Mutant:
    """*new* in the place of *old*."""

    path: str
    where: str  # the function, dotted; empty at the top of a module
    lines: range  # of the statement
    live: bool  # it runs when a function is called, not when the module is loaded
    names: frozenset[str]  # else: what the statement defines
    old: Any
    new: Any
    changed: str  # the line as it becomes
    equivalent: str = ""  # why nobody could notice

    def __str__(self) -> str:
        return f"{self.path}:{self.old.lineno} {self.where or '(module)'}: {ast.unparse(self.old)}  ->  {ast.unparse(self.new)}  in  {self.changed}"


class Put(ast.NodeTransformer):
    """Puts one node in the place of another."""

    def __init__(self, old: ast.AST, new: ast.AST) -> None:
        self.old, self.new = old, new

    def visit(self, node: ast.AST) -> Any:
        return self.new if node is self.old else self.generic_visit(node)


def changes(node: Any, comparisons: bool) -> Iterator[ast.AST]:
    """What may stand in the place of *node*."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        yield ast.Constant(node.value + 1)
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in SWAPS:
        other = copy.copy(node)
        other.op = SWAPS[type(node.op)]()
        yield other
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            yield from (copy.copy(node.left), copy.copy(node.right))
    elif comparisons and isinstance(node, ast.Compare) and type(node.ops[0]) in SWAPS:
        yield ast.Compare(node.left, [SWAPS[type(node.ops[0])](), *node.ops[1:]], node.comparators)


def mutants(path: str, text: str, tree: ast.Module, comparisons: bool = False) -> Iterator[Mutant]:
    """Every mutant of a file, from top to bottom; none in annotations, decorators, texts and errors."""
    written = text.encode().splitlines()  # columns are counted in bytes

    def changed(old: Any, new: ast.AST) -> str:
        before, after = written[old.lineno - 1][: old.col_offset], written[old.end_lineno - 1][old.end_col_offset :]
        return f"{before.decode()}{ast.unparse(new)}{after.decode()}".strip()

    def walk(node: Any, where: str, lines: range, live: bool, names: frozenset[str]) -> Iterator[Mutant]:
        if isinstance(node, ast.stmt):
            body = getattr(node, "body", None)
            lines = range(node.lineno, 1 + (max(node.lineno, body[0].lineno - 1) if body else node.end_lineno or 0))
            names = names if live else named(node)
        if isinstance(node, (*FUNCTIONS, ast.ClassDef)):
            where = f"{where}.{getattr(node, 'name', '<lambda>')}".lstrip(".")
        for new in changes(node, comparisons):
            yield Mutant(path, where, lines, live, names, node, ast.copy_location(new, node), changed(node, new))
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns", "decorator_list") or isinstance(node, (ast.Raise, ast.JoinedStr)):
                continue
            called = field == "body" and isinstance(node, FUNCTIONS)
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    own = called and isinstance(node, ast.Lambda)
                    yield from walk(
                        child, where, range(child.lineno, child.end_lineno + 1) if own else lines, live or called, names
                    )

    yield from walk(tree, "", range(0), False, frozenset())


def reasoned(found: list[Mutant], text: str) -> list[str]:
    """Write into each mutant why it is equivalent, where its line says so; what is said of no mutant comes back."""
    notes: dict[tuple[int, str], str] = {}
    above: dict[str, str] = {}
    for line, written in enumerate(text.splitlines(), start=1):
        if said := EQUIVALENT.match(written):
            above |= dict.fromkeys(said["changes"].split(" | "), said["reason"])
        else:
            notes |= {(line, change): reason for change, reason in above.items()}
            above = {}
    alike: Counter[tuple[int, str]] = Counter()
    used = set()
    for mutant in found:
        change = mutant.old.lineno, f"{ast.unparse(mutant.old)} -> {ast.unparse(mutant.new)}"
        alike[change] += 1
        for key in (change, (change[0], f"{change[1]} [{alike[change]}]")):
            if key in notes and (key != change or alike[change] == 1):
                mutant.equivalent = notes[key]
                used.add(key)
    return [f"line {line}: {change}" for line, change in notes if (line, change) not in used]


def named(statement: Any) -> frozenset[str]:
    """The names that a statement defines."""
    if hasattr(statement, "name"):
        return frozenset([statement.name])
    return frozenset(n.id for n in ast.walk(statement) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))


def users(names: frozenset[str], trees: dict[str, ast.Module]) -> dict[str, set[int]]:
    """The lines that use a name, by file; names that other statements make from it at the top of a module are followed."""
    found: dict[str, set[int]] = defaultdict(set)
    known: set[str] = set()
    while names - known:
        known |= names
        for path, tree in trees.items():
            for statement in tree.body:
                words = {getattr(n, "id", getattr(n, "attr", None)) for n in ast.walk(statement)} | named(statement)
                if words & known:
                    found[path].update(range(statement.lineno, (statement.end_lineno or 0) + 1))
                    names |= named(statement) if not isinstance(statement, FUNCTIONS) else frozenset()
    return found


# ------------------------------------------------------------------------------------------------------- work in forks of this process


def forked(jobs: list[Any], work: Callable[[Any], Any], count: int, title: str) -> Iterator[tuple[Any, Any]]:
    """Each job with the result of *work*, every one in a fork of its own, *count* at a time; "timed out" or "crashed" where none came."""
    context, waiting, running = multiprocessing.get_context("fork"), iter(jobs), dict[Any, Any]()

    def child(job: Any, pipe: Any) -> None:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        pipe.send(work(job))
        os._exit(0)

    with tqdm(total=len(jobs), desc=title, mininterval=0.1 if sys.stderr.isatty() else 15) as bar:
        while True:
            while len(running) < count and (job := next(waiting, None)) is not None:
                mine, theirs = context.Pipe(duplex=False)
                process = context.Process(target=child, args=(job, theirs))
                process.start()
                theirs.close()
                running[mine] = job, process
            if not running:
                return
            for pipe in wait(list(running)):
                job, process = running.pop(pipe)
                try:
                    answer = pipe.recv()  # type: ignore[attr-defined]
                except EOFError:
                    answer = None
                process.join()
                bar.update()
                yield job, answer or ("timed out" if process.exitcode == -signal.SIGALRM else "crashed")


class Tracer:
    """Notes the lines that run inside of functions, by file."""

    def __init__(self, paths: dict[str, str]) -> None:
        self.paths, self.seen = paths, defaultdict[str, set[int]](set)

    def __call__(self, frame: Any, event: str, value: Any) -> Any:
        path = self.paths.get(frame.f_code.co_filename)
        if path is None or frame.f_code.co_name == "<module>":
            return None
        add = self.seen[path].add

        def line(frame: Any, event: str, value: Any) -> Any:
            add(frame.f_lineno)
            return line

        return line

    def __enter__(self) -> Tracer:
        threading.settrace(self)
        sys.settrace(self)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]


class EarlyTracer(Tracer):
    """Notes also which test file was being imported meanwhile; "" where none was, or another module in between."""

    def __init__(self, paths: dict[str, str], home: Path) -> None:
        super().__init__(paths)
        self.home = f"{home}{os.sep}"
        self.importing: dict[str, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))

    def __call__(self, frame: Any, event: str, value: Any) -> Any:
        path = self.paths.get(frame.f_code.co_filename)
        if path is None or frame.f_code.co_name == "<module>":
            return None
        add, also = self.seen[path].add, self.importing[self.module_of(frame)][path].add

        def line(frame: Any, event: str, value: Any) -> Any:
            add(frame.f_lineno)
            also(frame.f_lineno)
            return line

        return line

    def module_of(self, frame: Any) -> str:
        while frame is not None:
            code = frame.f_code
            if code.co_name == "<module>" and code.co_filename.startswith(self.home):
                file = Path(code.co_filename)
                return str(file.relative_to(self.home)) if file.name.startswith("test_") else ""
            frame = frame.f_back
        return ""


class Campaign:
    """A plugin of pytest that takes the place of its loop over the tests."""

    def __init__(self, home: Path, root: Path, chosen: list[str], options: argparse.Namespace) -> None:
        self.home, self.root, self.options = home, root, options
        files = sorted(p for top in {c.split("/")[0] for c in chosen} for p in (home / top).rglob("*.py"))
        self.trees = {str(p.relative_to(home)): ast.parse(p.read_text("utf8")) for p in files}
        self.mutants: list[Mutant] = []
        self.stale: list[str] = []  # notes of equivalent mutants that are not made
        for path in chosen:
            text = (home / path).read_text("utf8")
            found = list(mutants(path, text, self.trees[path], options.comparisons))
            self.stale += [f"{path} {note}" for note in reasoned(found, text)]
            self.mutants += found
        self.early = EarlyTracer({str(home / path): path for path in self.trees}, home)
        self.results: list[tuple[Mutant, str]] = []
        self.problem = ""

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        config.pluginmanager.unregister(name="terminalreporter")  # a bar is shown instead
        if "hypothesis" in sys.modules:  # a failure is enough; its smallest example is not looked for
            from hypothesis import Phase, settings

            settings.register_profile("mutations", deadline=None, phases=(Phase.explicit, Phase.generate))
            settings.load_profile("mutations")

    @pytest.hookimpl(wrapper=True)
    def pytest_collection(self) -> Iterator[None]:
        with self.early:
            return (yield)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problem = str(report.longrepr)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= report.failed

    def passes(self, nodeid: str) -> bool:
        """Run one test."""
        self.failed = False
        item = self.items[nodeid]
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        return not self.failed

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        if self.problem:
            return True
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(1)
        self.items = {item.nodeid: item for item in session.items}
        self.warm_up()
        self.functions: dict[tuple[str, CodeType], list[FunctionType]] = defaultdict(list)
        for function in gc.get_objects():
            if type(function) is FunctionType and function.__code__.co_filename in self.early.paths:
                self.functions[function.__code__.co_filename, function.__code__].append(function)
        gc.collect()
        gc.freeze()
        self.map = self.learned()
        open_ones = sorted(
            (m for m in self.mutants if not m.equivalent), key=lambda m: not m.live
        )  # the quick ones first
        with contextlib.suppress(KeyboardInterrupt):  # what is known by then is shown
            for mutant, verdict in forked(open_ones, self.meet, self.options.jobs, "mutants"):
                self.results.append((mutant, verdict))
                if verdict in ("survived", "not run"):
                    tqdm.write(f"{verdict}: {mutant}")
                elif self.options.verbose:
                    tqdm.write(f"{mutant}  caught by {verdict}")
        return True

    def warm_up(self) -> None:
        """Import here what the tests import when they run, so that no fork does it again."""
        first = {nodeid.split("::")[0]: nodeid for nodeid in reversed(self.items)}
        names = {path.removesuffix(".py").replace("/", "."): None for path in self.trees}
        for _, modules in forked(list(first.values()), self.imported, self.options.jobs, "imports"):
            names |= dict.fromkeys(modules if isinstance(modules, list) else [])
        with warnings.catch_warnings(), self.early:
            warnings.simplefilter("ignore")
            for name in names:
                with contextlib.suppress(Exception):
                    importlib.import_module(name.removesuffix(".__init__"))

    def imported(self, nodeid: str) -> list[str]:
        before = set(sys.modules)
        self.passes(nodeid)
        return [name for name in sys.modules if name not in before]

    # -- which test runs which line

    def learned(self) -> dict[str, tuple[float, dict[str, set[int]]]]:
        """For each test that passes, the seconds it takes and the lines it runs. Kept until the package or the test's file changes."""
        sources = [p for p in sorted(self.home.rglob("*.py")) if not p.name.startswith("test_")]
        package = hashlib.sha256(b"".join(p.read_bytes() for p in sources)).hexdigest()
        by_file: dict[str, list[str]] = defaultdict(list)
        for nodeid in self.items:
            by_file[nodeid.split("::")[0]].append(nodeid)
        folder = self.root / "_build" / "mutations"
        folder.mkdir(parents=True, exist_ok=True)
        place = {name: folder / (hashlib.sha256(f"{name}{package}".encode() + (self.home / name).read_bytes()).hexdigest()[:24] + ".json") for name in by_file}  # fmt: skip
        unknown = [nodeid for name, ids in by_file.items() if not place[name].is_file() for nodeid in ids]
        new: dict[str, dict[str, Any]] = {name: {} for name in by_file if not place[name].is_file()}
        left = Counter(nodeid.split("::")[0] for nodeid in unknown)
        for nodeid, answer in forked(unknown, self.learn, self.options.jobs, "tests"):
            name = nodeid.split("::")[0]
            if isinstance(answer, str):
                tqdm.write(f"left out, {answer}: {nodeid}")
            else:
                new[name][nodeid] = answer
            left[name] -= 1
            if not left[name]:
                place[name].write_text(json.dumps(new[name]), "utf8")
        found = {}
        for name in by_file:
            for nodeid, (seconds, lines) in json.loads(place[name].read_text("utf8")).items():
                found[nodeid] = seconds, {path: set(numbers) for path, numbers in lines.items()}
        return dict(sorted(found.items(), key=lambda pair: pair[1][0]))

    def learn(self, nodeid: str) -> Any:
        signal.alarm(600)
        start = time.perf_counter()
        tracer = Tracer(self.early.paths)
        with tracer:
            good = self.passes(nodeid)
        return (
            (time.perf_counter() - start, {k: sorted(v) for k, v in tracer.seen.items()}) if good else "fails unchanged"
        )

    def covering(self, lines: dict[str, Iterable[int]]) -> list[str]:
        """The tests that run one of the lines, the fastest first."""
        return [
            test
            for test, (_, seen) in self.map.items()
            if any(not seen.get(p, set()).isdisjoint(n) for p, n in lines.items())
        ]

    # -- one mutant, in a fork

    def meet(self, mutant: Mutant) -> str:
        """The test that caught it, "survived", or "not run" where no test comes by."""
        lines: dict[str, Iterable[int]] = (
            {mutant.path: mutant.lines} if mutant.live else {**users(mutant.names, self.trees)}
        )
        # A test file that has run the line already, for values of its own, would compare those with what the mutant says.
        stale = {
            file
            for file, seen in self.early.importing.items()
            if any(not seen[path].isdisjoint(n) for path, n in lines.items())
        }
        others = [test for test in self.covering(lines) if test.split("::")[0] not in stale]
        own = [test for test in self.map if test.split("::")[0] in stale]
        if not others and not own:
            return "not run"
        if mutant.live and not stale and self.replace(mutant):
            return self.first_failure(others)
        if mutant.live and "" not in stale:
            _, verdict = next(
                forked(
                    [mutant],
                    lambda mutant: self.first_failure(others) if self.replace(mutant) else "not changed",
                    1,
                    "",
                )
            )
            if verdict != "not changed":
                return self.anew(mutant, own) if verdict == "survived" and own else str(verdict)
        # Loading the module again is quick, but may break a test by itself: then the next one is asked; in the end a new process decides.
        for _ in range(5):
            _, verdict = next(
                forked(
                    [Put(mutant.old, mutant.new)],
                    lambda put: self.reload(mutant.path, put) or self.first_failure(others),
                    1,
                    "",
                )
            )
            if verdict not in self.map:
                break
            _, without = next(
                forked([verdict], lambda test: self.reload(mutant.path, None) or self.first_failure([test]), 1, "")
            )
            if without == "survived":
                return str(verdict)
            others.remove(verdict)
            own.append(verdict)
        return self.anew(mutant, others + own)

    def first_failure(self, tests: list[str]) -> str:
        for test in tests:
            signal.alarm(int(self.options.limit + 10 * self.map[test][0]))
            if not self.passes(test):
                return test
        return "survived"

    def reload(self, path: str, put: Put | None) -> None:
        """Load a module once more, changed, and hand what it defines to all who have taken it from there."""
        name = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        tree = put.visit(self.trees[path]) if put else self.trees[path]
        module, before = sys.modules[name], dict(vars(sys.modules[name]))
        exec(compile(tree, str(self.home / path), "exec", dont_inherit=True), vars(module))
        for other in list(sys.modules.values()):
            if not str(getattr(other, "__file__", None)).startswith(str(self.home)):
                continue  # `Any`, say, is everywhere, and some of torch's modules let nothing be put into them
            for key, value in before.items():
                if (
                    not key.startswith("__")
                    and (found := getattr(other, "__dict__", {}).get(key)) is not None
                    and type(found) is type(value)
                ):
                    if found is value or (type(value) in (int, float) and found == value):
                        setattr(other, key, vars(module)[key])

    def replace(self, mutant: Mutant) -> bool:
        """Give the living functions the code that the mutant has."""
        tree, file = self.trees[mutant.path], str(self.home / mutant.path)
        before = list(codes(compile(tree, file, "exec", dont_inherit=True)))
        after = list(codes(compile(Put(mutant.old, mutant.new).visit(tree), file, "exec", dont_inherit=True)))
        if len(before) != len(after) or any(
            one.co_freevars != two.co_freevars for one, two in zip(before, after, strict=True)
        ):
            Put(mutant.new, mutant.old).visit(tree)
            return False
        done = 0
        for one, two in zip(before, after, strict=True):
            for function in self.functions.get((file, one), ()):
                function.__code__ = two
                done += one != two
        return done > 0

    def anew(self, mutant: Mutant, tests: list[str]) -> str:
        """Run the tests in a new process, on a copy with the changed file."""
        tree = Put(mutant.old, mutant.new).visit(self.trees[mutant.path])
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder) / "copy"
            shutil.copytree(self.home, home)
            (home / mutant.path).write_text(ast.unparse(ast.fix_missing_locations(tree)), "utf8")
            (home / "chosen").write_text("\n".join(tests), "utf8")
            command = [sys.executable, "-m", "pytest", *PYTEST, "-x", "-q", "--tb=no", "@chosen"]
            limit = 10 * (self.options.limit + sum(self.map[test][0] for test in tests))
            try:
                done = subprocess.run(command, cwd=home, env={**os.environ, "PYTHONPATH": str(home)}, capture_output=True, text=True, timeout=limit)  # fmt: skip
            except subprocess.TimeoutExpired:
                return "timed out"
            failed = [line.split(" ")[1] for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
            return "survived" if done.returncode == 0 else failed[0] if failed else "crashed"


def codes(code: CodeType) -> Iterator[CodeType]:
    """A code object and those inside, in order."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes(constant)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("modules", nargs="*", default=MODULES, help="files or folders with formulas (default: all)")
    parser.add_argument("--tests", nargs="+", default=TESTS.split(), help="files or folders with tests")
    parser.add_argument("--jobs", type=int, default=2, help="processes at a time (default: 2)")
    parser.add_argument("--comparisons", action="store_true", help="also change < to <=, == to != and the like")
    parser.add_argument(
        "--limit", type=float, default=30, help="seconds that a test may take beyond ten times the usual (default: 30)"
    )
    parser.add_argument("--list", action="store_true", help="show the mutants, run nothing")
    parser.add_argument("--verbose", action="store_true", help="name the test that caught each mutant")
    parser.add_argument("--root", type=Path, default=ROOT, help="the repository (default: this one)")
    options = parser.parse_args()
    root = options.root.resolve()
    chosen = [
        str(p.relative_to(root)) for m in options.modules for p in (sorted((root / m).rglob("*.py")) or [root / m])
    ]
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder).resolve() / "copy"
        shutil.copytree(root, home, ignore=shutil.ignore_patterns(".*", "_build", "__pycache__", "*.egg-info"))
        campaign = Campaign(home, root, chosen, options)
        if options.list:
            print(*campaign.mutants, f"{len(campaign.mutants)} mutants", sep="\n")
            return 0
        sys.path.insert(0, str(home))
        os.environ["PYTHONPATH"] = str(home)
        os.chdir(home)
        pytest.main([*PYTEST, *options.tests], plugins=[campaign])
        os.chdir(root)
    if campaign.problem or not campaign.results:
        print(campaign.problem or "No test was collected, or there is no mutant.")
        return 2
    return summary(campaign)


def summary(campaign: Campaign) -> int:
    """A table by file, and what survived."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for mutant, verdict in campaign.results:
        rows[mutant.path][verdict if verdict in ("survived", "not run", "timed out", "crashed") else "caught"] += 1
    for mutant in campaign.mutants:
        rows[mutant.path]["mutants"] += 1
        rows[mutant.path]["equivalent"] += bool(mutant.equivalent)
    rows["all"] = sum(rows.values(), Counter())
    columns = ("mutants", "caught", "timed out", "crashed", "equivalent", "not run", "survived")
    width = max(map(len, rows))
    print(" " * width, *(f"{c:>10}" for c in columns))
    for path, row in rows.items():
        print(path.ljust(width), *(f"{row[c]:>10}" for c in columns))
    for mutant, verdict in campaign.results:
        if verdict in ("survived", "not run"):
            print(f"{verdict}: {mutant}")
    for note in campaign.stale:
        print(f"called equivalent, but no such mutant is made any more: {note}")
    return int(any(verdict in ("survived", "not run") for _, verdict in campaign.results))


if __name__ == "__main__":
    sys.exit(main())
