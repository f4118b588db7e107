"""The walls of the house: imports run downwards, nothing heavy is loaded early, names do not clash, everything is explained."""

import ast
import graphlib
import json
import os
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import flopkit as fk

PACKAGE = Path(fk.__file__).parent

# The drawing in ARCHITECTURE.md, from the top of the house to its ground: a room imports itself and what stands below it.
DRAWING = re.search(r"```mermaid\n(.*?)```", (PACKAGE.parent / "ARCHITECTURE.md").read_text("utf-8"), re.S)[1]
FLOORS = {
    floor: re.findall(r'\["(\w+)<br/>', rooms)
    for floor, rooms in re.findall(r"^ +subgraph (\w+) (.*?)^ +end$", DRAWING, re.M | re.S)
}
DEPTH = {room: depth for depth, rooms in enumerate(FLOORS.values()) for room in rooms}
HEAVY = {
    "numpy",
    "torch",
    "sympy",
    "altair",
    "pandas",
    "anywidget",
    "ipywidgets",
    "IPython",
    "vl_convert",
    "torchvision",
    "matplotlib",
}

ROOMS = [name for name, home in fk._read_homes().items() if home == "flopkit"]
PUBLIC = [name for name, home in fk._read_homes().items() if home != "flopkit"]
MODULES = sorted(PACKAGE.rglob("*.py"))


def room(path):
    return path.relative_to(PACKAGE).with_suffix("").parts[0]


def imported(tree):
    """(name, whether at the top level at run time) of every import; names of this package in full."""

    def walk(node, top):
        for child in ast.iter_child_nodes(node):
            checking = isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test)
            inside = top and not checking and not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))
            if isinstance(child, ast.Import):
                yield from ((alias.name, top) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                assert child.level == 0, f"line {child.lineno}: imports are absolute"
                names = (
                    [f"flopkit.{alias.name}" for alias in child.names] if child.module == "flopkit" else [child.module]
                )
                yield from ((name, top) for name in names)
            else:
                yield from walk(child, inside)

    return list(walk(tree, True))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_run_downwards(path):
    if path == PACKAGE / "__init__.py":
        return  # the face reaches every room, when asked
    here = room(path)
    assert here in DEPTH, f"flopkit/{here} has no place in the house yet: give it one in the drawing in ARCHITECTURE.md"
    for name, top in imported(ast.parse(path.read_text("utf-8"))):
        if name == "flopkit.charts.plots" and not top:
            continue  # a result that is asked for its picture
        if name.startswith("flopkit."):
            there = name.split(".")[1]
            assert there in DEPTH, (
                f"{path.name} imports {name}: what is needed of the face is to be imported from its room"
            )
            assert there == here or DEPTH[there] > DEPTH[here], (
                f"{path.name} ({here}) imports {name}, which stands above or beside it"
            )


def test_what_counts_by_doing_does_not_know_the_closed_forms():
    for path in (PACKAGE / "tally").rglob("*.py"):
        assert not {"flopkit.macs"} & {name for name, _ in imported(ast.parse(path.read_text("utf-8")))}, path.name


def test_the_drawing_shows_each_room_once_and_floors_from_above():
    drawn = [room for rooms in FLOORS.values() for room in rooms]
    assert sorted(drawn) == sorted({room(path) for path in MODULES} - {"__init__"})
    assert drawn == re.findall(r'^ +\w+\["(\w+)<br/>', DRAWING, re.M), "a room stands outside of the floors"
    chain = DRAWING.strip().splitlines()[-1].split("-->")
    assert [floor.strip() for floor in chain] == list(FLOORS), "the arrows run in another order than the floors"


def test_no_module_imports_itself_by_way_of_others():
    """Late imports inside functions count, and imports for type checkers alone."""
    names = {".".join(("flopkit", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__"): path
             for path in MODULES}  # fmt: skip

    def needed(node):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (alias.name for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                inner = [f"{child.module}.{alias.name}" for alias in child.names]
                yield from (name if name in names else child.module for name in inner)
            else:
                yield from needed(child)

    graph = {name: set(needed(ast.parse(path.read_text("utf-8")))) & names.keys() for name, path in names.items()}
    list(graphlib.TopologicalSorter(graph).static_order())  # CycleError names the way round


def test_in_the_counter_a_plain_name_is_for_another_file():
    """What a single file needs begins with an underscore; only formulas, which are registered, need not be called."""
    files = {path: path.read_text("utf-8") for path in [*MODULES, *Path(__file__).parent.rglob("*.py")]}
    for path, text in files.items():
        if "tests" in path.parts or "counter" not in path.parts or path.name == "__init__.py" or "__all__" in text:
            continue
        for node in ast.parse(text).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and node.name != "install":
                if any("explains" in ast.dump(decorator) for decorator in node.decorator_list):
                    continue
                used = re.compile(rf"\b{path.stem} import [^\n]*\b{node.name}\b|\b{path.stem}\.{node.name}\b")
                assert any(used.search(other) for file, other in files.items() if file != path), (path.name, node.name)


# Modes of torch and what they call for every operator: loaded when counting begins, never before.
RUN_INSIDE_TORCH = {
    PACKAGE / "counter" / f"{name}.py"
    for name in (
        *(f"watch/{name}" for name in ("mode", "session", "cache", "autograd", "state", "modules", "changes", "patches", "threads", "decompose", "internals", "attention", "attention_calls", "flex", "launches", "origins", "chunked", "pipelines")),
        "formulas/block_masks",
    )
} | {PACKAGE / "simulation" / "answers.py"}  # fmt: skip


def test_what_torch_does_not_publish_of_autograd_is_named_in_one_file():
    private = re.compile(
        r"_current_autograd_node|_current_graph_task_id|_sequence_nr|_will_engine_execute_node|_engine_run_backward"
    )
    naming = {path.name for path in (PACKAGE / "counter").rglob("*.py") if private.search(path.read_text("utf-8"))}
    assert naming == {"autograd.py"}


# How an operator says its name and its arguments: nothing else does.
OF_AN_OPERATOR = {"_schema", "_opoverload", "_qualified_op_name"}


def others_names(tree):
    """The names that a file uses of what is not its own: attributes, also those that a string asks for, and parts of modules."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) not in ("self", "cls", "sys"):
            yield node.attr
        elif isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from (part for alias in node.names for part in alias.name.split("."))
            yield from (getattr(node, "module", None) or "").split(".")
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # a module or a file; a class
            if re.fullmatch(r"\w+([./]\w+)+|_[A-Z]\w+", node.value):
                yield from re.split("[./]", node.value)
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
            yield ast.unparse(node.args[1]).strip("'")


def test_what_torch_does_not_publish_is_named_where_the_counter_watches():
    """Operators may be named anywhere: ``torch._foreach_add`` is ``aten::_foreach_add``, ``tensor._values()`` is ``aten::_values``."""
    import torch

    trees = {path: ast.parse(path.read_text("utf-8")) for path in (PACKAGE / "counter").rglob("*.py")}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    ours = {node.name for node in nodes if isinstance(node, ast.FunctionDef)}
    ours |= {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    private = {
        (path.relative_to(PACKAGE).as_posix(), name)
        for path, tree in trees.items()
        for name in set(others_names(tree)) - ours - OF_AN_OPERATOR
        if re.match("_[A-Za-z]", name) and not hasattr(torch.ops.aten, name)
    }
    outside = {(path, name) for path, name in private if "watch/" not in path}
    assert not outside, "give each a name of our own in flopkit/counter/watch/internals.py, and say why it is needed"
    assert private, "this test sees nothing"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_heavy_is_imported_at_the_top(path):
    early = {name for name, top in imported(ast.parse(path.read_text("utf-8"))) if top}
    if path in RUN_INSIDE_TORCH:
        early -= {name for name in early if name.split(".")[0] == "torch"}
    else:
        inner = {"flopkit." + ".".join(inner.relative_to(PACKAGE).with_suffix("").parts) for inner in RUN_INSIDE_TORCH}
        assert not early & inner, f"{path.name} loads torch with {early & inner}: import it where it is used"
    assert not {name.split(".")[0] for name in early} & HEAVY


def in_python(code, *blocked):
    """Run *code* in a Python of its own where *blocked* packages are missing; what it prints as JSON."""
    block = "".join(f"sys.modules[{name!r}] = None\n" for name in blocked)
    found = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"import json, sys\n{block}{code}"],
        capture_output=True, text=True, cwd=PACKAGE.parent,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return json.loads(found.stdout)


def test_importing_flopkit_loads_nothing_heavy():
    loaded = in_python(
        "import flopkit as fk\n"
        "fk.dense(tokens=1, d_in=2, d_out=3).flops, fk.conv2d, fk.attention, fk.moe, fk.mla, fk.roofline\n"
        "str(fk.tally.matmul(m=1, k=2, n=3)), str(fk.dense(tokens=1, d_in=2, d_out=3).table())\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))"
    )
    assert "flopkit" in loaded and not HEAVY & set(loaded)


def test_the_face_alone_loads_no_room():
    loaded = in_python(
        "import flopkit\nprint(json.dumps([name for name in sys.modules if name.startswith('flopkit')]))"
    )
    assert set(loaded) <= {"flopkit", "flopkit.__about__"}


def test_the_core_works_without_the_rest():
    """Counting needs nothing but Python."""
    flops = in_python(
        "import flopkit as fk\n"
        "cost = fk.attention(batch=1, q=8, kv=8, heads=2, head_dim=4, mask='causal') + fk.rms_norm(tokens=8, d=8)\n"
        "repr(cost), cost._repr_html_(), fk.tally.dense(tokens=1, d_in=2, d_out=2)\n"
        "print(json.dumps([cost.flops, fk.roofline(cost, 'h100-sxm').bound]))",
        *HEAVY,
    )
    assert flops == [2 * 2 * 36 * 8, "memory"]


@pytest.mark.parametrize(
    ("missing", "code", "message"),
    [
        (
            "altair",
            "from flopkit.book import gallery; gallery.dense_roofline().spec()",
            "need altair, which is not installed: pip install altair vl-convert-python",
        ),
        (
            "anywidget",
            "from flopkit.book import gallery; fk.widgets.explore(gallery.dense_roofline())",
            "pip install anywidget",
        ),
        (
            "ipywidgets",
            "fk.widgets.experiment_panel()",
            "pip install ipywidgets. flopkit.experiments.here(name) runs an experiment without it",
        ),
        ("torch", "fk.device()", "install torch, or name a device, e.g. flopkit.device('h100-sxm')"),
    ],
)
def test_a_missing_package_is_named_with_the_way_to_get_it(missing, code, message):
    said = in_python(
        f"import flopkit as fk\ntry:\n    {code}\nexcept ImportError as error:\n    print(json.dumps(str(error)))",
        missing,
    )
    assert message in said


def test_all_names_of_the_face_exist():
    for name in fk.__all__:
        assert getattr(fk, name) is not None
    assert fk.__all__ == dir(fk) == sorted([*PUBLIC, *ROOMS])
    everything = {}
    exec("from flopkit import *", everything)
    assert set(fk.__all__) <= everything.keys()


def test_each_line_of_the_stub_offers_a_name_under_its_own_name():
    """To a type checker ``from room import x`` in a stub offers nothing, and ``x as y`` another name than Python's."""
    lines = ast.parse((PACKAGE / "__init__.pyi").read_text("utf-8")).body
    offered = [alias for line in lines if isinstance(line, ast.ImportFrom) for alias in line.names]
    assert [alias.name for alias in offered] == [alias.asname for alias in offered]
    assert len(offered) == len({alias.name for alias in offered}) == len(fk.__all__)


def test_the_face_is_small():
    """Sixty for one device, for many `simulate_ranks` and `gather`, which stand around any call of `count`, and `profile` beside `measure`."""
    assert len(fk.__all__) <= 63, "what few type stays in its room"


def test_a_room_is_there_before_anything_else_has_loaded_it():
    for name in (*ROOMS, "training", "book", "derivations"):
        assert in_python(f"import flopkit\nprint(json.dumps(flopkit.{name}.__name__))") == f"flopkit.{name}"


@pytest.mark.slow
def test_a_type_checker_finds_the_names_of_the_face(tmp_path):
    """As in a strict project of the user's own: each name is offered, and a misspelt one is an error."""
    names = ", ".join(name for name in fk.__all__ if name != "__version__")
    program = tmp_path / "program.py"
    program.write_text(
        f"import flopkit as fk\nfrom flopkit import {names}\n"
        "cost: fk.Cost = 2 * fk.dense(tokens=1, d_in=2, d_out=3)\n"
        "fk.units.si(fk.device('h200').peak('bf16'), 'FLOP/s')\n"
        "fk.conv2\n"
    )
    found = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), str(program)],
        capture_output=True, text=True, cwd=tmp_path, env={**os.environ, "MYPYPATH": str(PACKAGE.parent)},
    )  # fmt: skip
    errors = [
        line.split("error: ")[1]
        for line in found.stdout.splitlines()
        if f"{program.name}:" in line and "error: " in line
    ]
    assert len(errors) == 1 and errors[0].startswith('Module has no attribute "conv2"'), found.stdout + found.stderr


def test_no_room_is_named_like_a_public_function():
    rooms = {module.name for module in pkgutil.iter_modules(fk.__path__)}
    assert not rooms & set(PUBLIC)
    assert set(ROOMS) <= rooms


DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "core", "base"}


def test_each_folder_of_the_largest_room_is_explained():
    page = (PACKAGE.parent / "ARCHITECTURE.md").read_text("utf-8")
    table = page.partition("| folder of `models` |")[2].partition("\n\n")[0]
    folders = {path.parent.name for path in (PACKAGE / "models").glob("*/__init__.py")}
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.M)) == folders


def test_no_file_is_a_drawer():
    assert not {path.stem for path in MODULES} & DRAWERS
