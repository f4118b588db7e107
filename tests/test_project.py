"""The project's files agree with each other: requirements, versions, licences, chapters' form, README's examples."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from importlib import metadata
from pathlib import Path

import fast_part
import pytest
import yaml
from formulas import public_formulas
from IPython.core.inputtransformer2 import TransformerManager
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from flopkit import __about__

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf8"))["project"]
EXTRAS = PROJECT["optional-dependencies"]
NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))
CONDA_NAMES = {"torch": "pytorch"}  # where conda-forge has another name than PyPI


def requirements(*extras: str) -> dict[str, str]:
    """name -> version range of the base requirements and `extras`, extras named by extras included."""
    found: dict[str, str] = {}
    lines = list(PROJECT["dependencies"])
    todo = list(extras)
    for extra in todo:
        for line in EXTRAS[extra]:
            requirement = Requirement(line)
            if requirement.name == PROJECT["name"]:
                todo += sorted(requirement.extras - set(todo))
            else:
                lines.append(line)
    for line in lines:
        requirement = Requirement(line)
        found[canonicalize_name(requirement.name)] = str(requirement.specifier)
    return found


def locked() -> dict[str, str]:
    pins = [
        line.split("==")
        for line in (ROOT / "constraints.txt").read_text("utf8").splitlines()
        if line and line[0] != "#"
    ]
    return {canonicalize_name(name): version for name, version in pins}


# ------------------------------------------------------------------------------------------------------------- requirements


def test_base_requirements_are_light():
    """Colab's own packages stay as they are when flopkit is installed there."""
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == {"numpy", "tqdm"}
    assert PROJECT["requires-python"] == ">=3.11"
    assert set(EXTRAS) >= {"torch", "charts", "widgets", "book", "test", "peers", "lab"}


def test_constraints_pin_what_is_required():
    pins = locked()
    for name, wanted in requirements("book", "test", "peers", "lab").items():
        assert name in pins, f"constraints.txt does not pin {name}: run `make lock`"
        assert Requirement(f"{name}{wanted}").specifier.contains(pins[name]), (
            f"{name} {pins[name]} is not {wanted}: run `make lock`"
        )
    assert not [f"{name}=={version}" for name, version in pins.items() if "+" in version], (
        "a local build cannot be installed elsewhere"
    )
    assert {"torchvision", "ultralytics-thop"} <= set(pins)


def test_constraints_can_be_had_on_the_oldest_python():
    """Debian 12 has Python 3.11.2; a package that wants a later 3.11 cannot be pinned."""
    for name, version in locked().items():
        with contextlib.suppress(metadata.PackageNotFoundError):
            found = metadata.metadata(name)
            if found["Version"] == version:
                assert SpecifierSet(found.get("Requires-Python", "")).contains("3.11.0"), name


def test_environment_agrees_with_pyproject():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text("utf8"))["dependencies"]
    listed = [line for line in environment if isinstance(line, str)]
    listed += next(entry["pip"] for entry in environment if isinstance(entry, dict))
    from_conda = {CONDA_NAMES.get(name, name): name for name in requirements("book", "test", "peers", "lab")}
    found = {}
    for line in listed:
        if line not in ("pip", "-e ."):
            requirement = Requirement(line)
            found[canonicalize_name(from_conda.get(requirement.name, requirement.name))] = str(requirement.specifier)
    assert found.pop("python") == PROJECT["requires-python"]
    assert "torchvision" in found, "chapter 3 counts torchvision's networks"
    del found["torchvision"]
    assert found == requirements("book", "test", "peers", "lab")


def test_two_counters_of_one_module_name_stand_apart():
    """thop and ultralytics-thop are both the module `thop`: one of them has a folder of its own, named in one place."""
    from flopkit.peers import installed

    makefile = (ROOT / "Makefile").read_text("utf8")
    assert '--target "$$($(PY) -m flopkit.peers.installed)" ultralytics-thop' in makefile
    assert "ultralytics-thop" not in requirements("peers") and "thop" in requirements("peers")
    folder = installed.APART.relative_to(sys.prefix)
    assert "\\".join((".venv", *folder.parts)) in (ROOT / "README.md").read_text("utf8")
    said = subprocess.run(
        [sys.executable, "-m", "flopkit.peers.installed"], check=True, capture_output=True, text=True, cwd=ROOT
    )
    assert said.stdout.strip() == str(installed.APART)


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf8"))
    assert __about__.__version__ == PROJECT["version"] == citation["version"]
    assert re.search(rf"^## {re.escape(PROJECT['version'])}\b", (ROOT / "CHANGELOG.md").read_text("utf8"), re.M)


def test_licences_are_named():
    assert "MIT License" in (ROOT / "LICENSE").read_text("utf8")
    assert "https://creativecommons.org/licenses/by/4.0/" in (ROOT / "LICENSE-TEXT").read_text("utf8")
    assert PROJECT["license"] == "MIT"


# --------------------------------------------------------------------------------------------------------------- repository


@pytest.mark.parametrize(
    ("url", "address"),
    [
        (None, None),
        ("", None),
        ("https://github.com/OWNER/REPO", None),
        ("https://github.com/someone/book.git", "https://github.com/someone/book"),
        ("https://github.com/someone/book/", "https://github.com/someone/book"),
    ],
)
def test_repository_address(url, address):
    assert __about__._address(url) == address


@pytest.mark.parametrize(
    ("urls", "site"),
    [
        ({}, None),
        ({"Repository": "https://github.com/OWNER/REPO"}, None),
        ({"Repository": "https://github.com/Someone/book.git"}, "https://someone.github.io/book/"),
        ({"Repository": "https://codeberg.org/someone/book"}, None),
        (
            {"Repository": "https://github.com/someone/book", "Documentation": "https://flops.example.org"},
            "https://flops.example.org/",
        ),
    ],
)
def test_address_of_the_published_book(monkeypatch, urls, site):
    monkeypatch.setattr(__about__, "_urls", lambda: urls)
    assert __about__.site() == site


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://github.com/someone/book.git\n", "https://github.com/someone/book"),
        ("https://name:secret@github.com/someone/book", "https://github.com/someone/book"),
        ("git@github.com:someone/book.git", "https://github.com/someone/book"),
        ("ssh://git@codeberg.org/someone/book", "https://codeberg.org/someone/book"),
        ("git://example.org/book/", "https://example.org/book"),
        ("https://github.com/OWNER/REPO", None),
        ("/home/someone/book", None),
        ("../book.git", None),
        ("mirrors.d/book", None),
        ("C:\\book", None),
        ("", None),
    ],
)
def test_the_address_that_git_knows(url, address):
    assert load_tool("address").for_browsers(url) == address


def test_texts_promise_what_the_address_allows():
    """README and preface are as `make address` writes them, and only an address lets them say that Colab installs flopkit."""
    tool, address = load_tool("address"), __about__.repository()
    texts = [(ROOT / name).read_text("utf8") for name in ("README.md", "book/index.ipynb")]
    for text in texts:
        assert tool.told(text, address) == text, "run `make address`"
        assert tool.MARKED.search(text) and ("Colab the first cell installs" in text) == bool(address)
    assert {found for text in texts for found in tool.MARKED.findall(text)} == set(tool.PASSAGES)


def test_one_command_writes_the_address_everywhere(tmp_path):
    """In a copy: a clone of a path knows none, one of an https remote takes that, and another can be given."""
    ignored = shutil.ignore_patterns(".*", "_build", "__pycache__", "tests", "benchmarks")
    shutil.copytree(ROOT, tmp_path / "copy", ignore=ignored)
    copy = tmp_path / "copy"
    subprocess.run(["git", "init", "-q", str(copy)], check=True)
    project = copy / "pyproject.toml"
    project.write_text(re.sub(r"^Repository =", "# Repository =", project.read_text("utf8"), flags=re.M), "utf8")

    def address(*given):
        environment = {**os.environ, "PYTHONPATH": str(copy)}
        tool = [sys.executable, str(copy / "tools" / "address.py"), *given]
        return subprocess.run(tool, cwd=copy, env=environment, capture_output=True, text=True)

    def remote(*words):
        subprocess.run(["git", "-C", str(copy), "remote", *words], check=True)

    def lines():
        texts = [(copy / name).read_text("utf8") for name in ("pyproject.toml", "CITATION.cff", "README.md")]
        return [line for text in texts for line in text.splitlines()]

    remote("add", "origin", "/srv/book.git")
    refused = address()
    assert refused.returncode == 1 and "make address ADDRESS=https://" in refused.stderr
    remote("set-url", "origin", "git@github.com:someone/book.git")
    for given, known in (
        ((), "someone/book"),
        (("https://github.com/another/book",), "another/book"),
        ((), "another/book"),
    ):
        done = address(*given)
        assert done.returncode == 0, done.stderr
        assert lines().count(f'Repository = "https://github.com/{known}"') == 1
        assert lines().count(f'repository-code: "https://github.com/{known}"') == 1
        assert yaml.safe_load((copy / "CITATION.cff").read_text("utf8"))["license"] == ["MIT", "CC-BY-4.0"]
        assert any("In Colab the first cell installs flopkit" in line for line in lines())
        preface = (copy / "book" / "index.ipynb").read_text("utf8")
        assert f"[open an issue](https://github.com/{known}/issues)" in preface
        for chapter in (copy / "book").glob("*.ipynb"):
            assert f"git+https://github.com/{known}@v{PROJECT['version']}" in chapter.read_text("utf8"), chapter.name


def test_install_cell_follows_the_address():
    """With an address it installs the tag of this version, and nothing that replaces what Colab ships."""
    tool = load_tool()
    python = TransformerManager().transform_cell(tool.install_cell("https://github.com/someone/book"))
    compile(python, "install cell", "exec")
    wanted = f'"flopkit[charts] @ git+https://github.com/someone/book@v{PROJECT["version"]}"'
    assert f"get_ipython().run_line_magic('pip', 'install --quiet {wanted}')" in python
    assert not {"ipykernel", "jupyter-book", "torch"} & set(requirements("charts"))
    assert "%pip install --quiet" not in tool.install_cell(None)


@pytest.mark.parametrize(("folder", "advice"), [("book", "the folder .venv"), ("elsewhere", "git+ADDRESS")])
def test_install_cell_says_what_works_where_it_stands(folder, advice, tmp_path, monkeypatch):
    """Inside a clone the kernel is the wrong one; anywhere else the package is missing."""
    (tmp_path / folder).mkdir()
    if folder == "book":
        (tmp_path / "flopkit").mkdir()
    monkeypatch.chdir(tmp_path / folder)
    cell = compile(load_tool().install_cell(None), "install cell", "exec")
    exec(cell, {})  # flopkit is here: nothing happens
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=re.escape(advice)):
        exec(cell, {})


def test_the_cell_of_the_other_tools_lists_those_that_are_required():
    tool = load_tool()
    cell = {"cell_type": "code", "id": "a", "metadata": {"tags": ["install-peers"]}, "source": "#"}
    (tidied,) = json.loads(tool.tidy(json.dumps({"cells": [cell], "metadata": {}}), None))["cells"]
    text = "".join(tidied["source"])
    assert all(line.startswith("#") for line in text.splitlines())
    *_, command = text.splitlines()
    listed = {Requirement(word).name for word in shlex.split(command.removeprefix("# %pip install --quiet "))}
    assert listed == {Requirement(line).name for line in EXTRAS["peers"]} - {"flopkit", "transformers"}


def test_no_advice_needs_an_index_that_has_no_flopkit():
    """`pip install "flopkit[…]"` works once flopkit is published; until then what works is said."""
    texts = [*(ROOT / "flopkit").rglob("*.py"), *(ROOT / "book").glob("*.*"), *ROOT.glob("*.md")]
    advised = re.compile(r"pip install[^\n]*[ \"\x27]flopkit\b(?!\[\w+\] @ git)")
    found = [
        f"{path.relative_to(ROOT)}: {line.group()}"
        for path in texts
        for line in advised.finditer(path.read_text("utf8"))
    ]
    assert found == []


# ----------------------------------------------------------------------------------------------------------------- chapters


def load_tool(name="notebooks"):
    spec = importlib.util.spec_from_file_location(name, ROOT / "tools" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_chapter_is_in_the_stored_form(path):
    """No outputs, no counts, ids, one kernel, the install cell as pyproject.toml has it."""
    text = path.read_text("utf8")
    assert load_tool().tidy(text, __about__.repository()) == text, "run `make notebooks`"


def test_tidying_keeps_ids_and_cleans():
    tool = load_tool()
    cell = {
        "cell_type": "code",
        "metadata": {"tags": ["hide-input"], "collapsed": True},
        "source": ["1 + 1"],
        "execution_count": 7,
        "outputs": [1],
    }
    metadata = {"description": "What the page says.", "editor": "somebody's"}
    text = json.dumps(
        {"cells": [{**cell, "id": "mine"}, cell, cell], "metadata": metadata, "nbformat": 4, "nbformat_minor": 4}
    )
    once = tool.tidy(text, None)
    assert set(json.loads(once)["metadata"]) == {"description", "kernelspec", "language_info"}
    assert tool.tidy(once, None) == once
    cells = json.loads(once)["cells"]
    assert cells[0]["id"] == "mine" and len({c["id"] for c in cells}) == 3
    assert all(
        c["outputs"] == [] and c["execution_count"] is None and c["metadata"] == {"tags": ["hide-input"]} for c in cells
    )


def test_every_page_is_in_the_contents():
    toc = (ROOT / "_toc.yml").read_text("utf8")
    listed = set(re.findall(r"(?:file|root): (book/\S+)", toc))
    pages = {f"book/{p.stem}" for p in (ROOT / "book").iterdir() if p.suffix in (".ipynb", ".md")}
    assert listed == pages


# ------------------------------------------------------------------------------------------------------------------- readme


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "CONTRIBUTING.md"])
def test_the_files_that_a_page_names_are_there(page):
    named = re.findall(r"`([\w./-]+/[\w./-]*|[\w-]+\.(?:py|toml|md|yml|txt))`", (ROOT / page).read_text("utf8"))
    missing = {name for name in named if not (ROOT / name).exists() and not re.search("[A-Z]{4}", name)}  # book/NAME.md
    assert len(named) > 10 and not missing, f"{page} names {missing}"


@pytest.mark.parametrize(
    "page",
    [
        "README.md",
        "ARCHITECTURE.md",
        "book/counter.md",
        "book/counter_details.md",
        "book/api.md",
        "book/conventions.md",
        "book/published.md",
    ],
)
def test_examples_run(page):
    """The ```python blocks of a page with `>>>` run one after the other, in one session."""
    found = load_tool("examples").run(ROOT / page)
    assert found.attempted and not found.failed


# ------------------------------------------------------------------------------------------------------- workflows, releases

WORKFLOWS = {
    path.stem: yaml.safe_load(path.read_text("utf8")) for path in sorted((ROOT / ".github" / "workflows").glob("*.yml"))
}


def commands(job):
    return [line for step in job["steps"] for line in step.get("run", "").splitlines()]


def test_workflows_call_what_is_there():
    """Every `make` has its target, every tool its file, every extra its list, every job that is waited for its name."""
    makefile = (ROOT / "Makefile").read_text("utf8")
    for workflow in WORKFLOWS.values():
        for job in workflow["jobs"].values():
            needs = job.get("needs", [])
            assert ({needs} if isinstance(needs, str) else {*needs}) <= set(workflow["jobs"])
            for line in commands(job):
                for target in re.findall(r"^make (\S+)", line):
                    assert re.search(rf"^{target}:", makefile, re.M), line
                for tool in re.findall(r"python (tools/\S+)", line):
                    assert (ROOT / tool).is_file(), line
                for extras in re.findall(r"-e \"?\.\[(\S+?)\]", line):
                    assert set(extras.split(",")) <= set(EXTRAS), line
                for option in re.findall(r"pytest (--\w+)", line):
                    assert f'"{option}"' in (ROOT / "tests" / "conftest.py").read_text("utf8"), line


@pytest.mark.parametrize(("name", "job"), [("book", "everywhere"), ("release", "try")])
def test_every_system_with_the_oldest_and_the_newest_python(name, job):
    matrix = WORKFLOWS[name]["jobs"][job]["strategy"]["matrix"]
    assert {system.split("-")[0] for system in matrix["os"]} == {"ubuntu", "macos", "windows"}
    oldest, newest = matrix["python-version"]
    assert f">={oldest}" == PROJECT["requires-python"]
    assert f"python{newest}" in (ROOT / "Makefile").read_text("utf8"), "make tries another newest Python"


def test_without_make_ci_does_what_the_readme_says():
    """The lines that CI runs where there is no make stand in the README under "Without make"."""
    readme = (ROOT / "README.md").read_text("utf8").split("## Without make")[1]
    said = {
        line.strip().replace(".venv\\Scripts\\python ", "python ").replace("[book,test,peers]", '[book,test,peers]"')
        for line in readme.splitlines()
    }
    said = {line.replace("-e .[", '-e ".[') for line in said}
    done = [line for line in commands(WORKFLOWS["book"]["jobs"]["everywhere"]) if "pip install" in line]
    assert len(done) >= 3 and set(done) <= said


def test_a_release_has_the_version_for_its_tag(capsys):
    release = load_tool("release")
    assert release.main("v9.9.9") == 1
    assert f"must be v{PROJECT['version']}" in capsys.readouterr().err


def test_the_readme_promises_what_colab_gets():
    """The first cell of a notebook stops in Colab while no address is set: then README and preface do not say that it installs."""
    preface = json.loads((ROOT / "book" / "index.ipynb").read_text("utf8"))["cells"]
    prose = "".join("".join(cell["source"]) for cell in preface if cell["cell_type"] == "markdown")
    promises = [
        sentence
        for text in ((ROOT / "README.md").read_text("utf8"), prose)
        for sentence in re.split(r"(?<=[.:;]) ", text.replace("\n", " "))
        if "first cell" in sentence and re.search(r"\binstalls\b", sentence)
    ]
    assert bool(promises) == bool(__about__.repository()), promises


def test_a_count_that_is_faster_than_the_program_has_its_reason_beside_it():
    table = (ROOT / "benchmarks" / "README.md").read_text("utf8").split("<!-- benchmarks -->")[1]
    faster = [line for line in table.splitlines() if re.search(r"\| 0\.\d+× plain", line)]
    assert faster and all("not worked out again" in line for line in faster)


def test_an_index_shows_the_readme_with_its_picture():
    release = load_tool("release")
    readme = (ROOT / "README.md").read_text("utf8")
    relative = [path for _, _, path in release.LINK.findall(readme)]
    assert "book/_static/picture.png" in relative and all((ROOT / path).is_file() for path in relative)
    text = release.absolute(readme, "https://github.com/someone/book", "v0.1.0")
    assert release.LINK.findall(text) == []
    assert "](https://github.com/someone/book/raw/v0.1.0/book/_static/picture.png)" in text
    assert "[LICENSE](https://github.com/someone/book/blob/v0.1.0/LICENSE)" in text
    assert release.absolute(text, "elsewhere", "v2") == text


# ----------------------------------------------------------------------------------------------------------------- commands


def test_ci_script_can_be_run():
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    subprocess.run(["sh", "-n", str(ROOT / ".ci" / "run")], check=True)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_lab_opens_the_chapters():
    """JupyterLab is installed when it is asked for, by the pins, and starts with .venv's Python."""
    out = subprocess.run(["make", "-n", "-C", str(ROOT), "lab"], check=True, capture_output=True, text=True).stdout
    assert ".venv/bin/python -m jupyterlab --LabApp.default_url=/lab/tree/book/index.ipynb" in out
    assert "-c constraints.txt -e '.[lab]'" in (ROOT / "Makefile").read_text("utf8")
    assert (ROOT / "book" / "index.ipynb").is_file()


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_says_what_it_can_do():
    out = subprocess.run(["make", "-s", "-C", str(ROOT), "help"], check=True, capture_output=True, text=True).stdout
    for target in ("book", "test", "serve", "lab", "lint"):
        assert f"make {target}" in out


def collected(*words):
    """The names of the tests that pytest would run, with all their parameters."""
    found = subprocess.run(
        [sys.executable, "-m", "pytest", *words, "--collect-only", "-q", "-p", "no:cacheprovider", "-m", "not browser and not slow"],
        capture_output=True, text=True, encoding="utf-8", cwd=ROOT,
    )  # fmt: skip
    return [line for line in found.stdout.splitlines() if "::" in line]


def of_files(names):
    return {name.partition("::")[0].removeprefix("tests/") for name in names}


@pytest.mark.slow
def test_the_fast_tests_are_a_sample_of_every_file():
    """What is named is there; a folder that is left out is not left out whole, but for the browser's and the zoo's; no other file is without a test."""
    named = {*fast_part.THOROUGH, *fast_part.SAMPLE, *(name.partition("::")[0] for name in fast_part.COSTLY)}
    assert all((ROOT / "tests" / name).exists() for name in named)
    most = collected("--most", "tests")
    files = of_files(most)
    assert set(fast_part.SAMPLE) < files
    assert not [file for file in files - set(fast_part.SAMPLE) if file.startswith(fast_part.THOROUGH)]
    folders = {name for name in fast_part.THOROUGH if (ROOT / "tests" / name).is_dir()} - {"browser", "zoo"}
    assert {
        folder for folder in folders if not any(name.startswith(f"{folder}/") for name in fast_part.SAMPLE)
    } == set()
    whole = {name for name in fast_part.COSTLY if "::" not in name}
    fast = fast_part.sampled([name for name in most if of_files([name]).isdisjoint(whole)])
    assert files - of_files(fast) == whole and len(fast) < len(most) / 2
    tests = {name.partition("[")[0].removeprefix("tests/") for name in most}
    assert {name for name in fast_part.COSTLY if "::" in name} < tests, "a test that is no more"


def test_the_fast_tests_are_those_of_the_sample():
    """pytest runs what `sampled` says, in any order of collection, and without the costly ones."""
    places = ("tests/test_devices.py", "tests/test_cli.py", "tests/experiments")
    most, fast = collected(*places), collected("--fast", *places)
    whole = {name for name in fast_part.COSTLY if "::" not in name}
    assert whole & of_files(most) and not whole & of_files(fast)
    assert set(fast) == fast_part.sampled([name for name in reversed(most) if of_files([name]).isdisjoint(whole)])
    costly = "tests/test_cli.py::test_an_error_does_not_repeat_a_whole_file"
    assert costly in most and costly not in fast and 0.15 < len(fast) / len(most) < 0.5


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_refuses_an_old_python(tmp_path):
    """With only an old Python on the path, `make` says which one is needed, and makes no .venv."""
    for name in ("Makefile", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "torchvision_beside_cpu_torch.py", tmp_path / "tools")
    programs = tmp_path / "bin"
    programs.mkdir()
    old = programs / "python3"
    old.write_text('#!/bin/sh\ntest "$1" = --version && echo "Python 3.9.1"\ntest "$1" = --version\n')
    old.chmod(0o755)
    for name in ("sh", "test", "echo"):
        if found := shutil.which(name):
            (programs / name).symlink_to(found)
    done = subprocess.run(
        [shutil.which("make"), "-C", str(tmp_path), "html"], capture_output=True, text=True, env={"PATH": str(programs)}
    )
    assert done.returncode != 0
    assert "Python 3.11 or newer is needed" in done.stderr and "3.9.1" in done.stderr
    assert not (tmp_path / ".venv").exists()


@pytest.mark.slow
def test_torchvision_can_be_imported():
    pytest.importorskip("torch")
    if importlib.util.find_spec("torchvision") is None:
        pytest.skip("torchvision is not installed")
    code = "from torchvision.models import resnet18; print(sum(p.numel() for p in resnet18().parameters()))"
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    assert int(out) == 11_689_512  # torchvision's documented number of parameters


def test_starting_python_loads_no_torch():
    """The line in .venv that helps torchvision waits until torchvision is imported."""
    code = "import sys; sys.exit(int('torch' in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_api_pages_name_every_public_name():
    import flopkit as fk

    page = "".join(path.read_text("utf8") for path in (ROOT / "book").glob("api*.md"))
    rooms = {name for name, home in fk._read_homes().items() if home in ("flopkit", "flopkit.__about__")}
    shown = set(re.findall(r"^\.\. auto\w+:: flopkit\.(\w+)(?:\(\))?$", page, re.M))
    missing = [name for name in fk.__all__ if name not in rooms | shown]
    assert missing == [], f"book/api*.md do not show {missing}"
    of_rooms = {
        name
        for name in public_formulas()
        if not re.search(rf"^\.\. autofunction:: flopkit\.([\w.]+\.)?{name}$", page, re.M)
    }
    assert of_rooms == set(), f"book/api_layers.md does not show {of_rooms}"
