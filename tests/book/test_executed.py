"""What nbval executed goes to the build; a reader's kernel shows figures in another form, which one chapter is run for."""

import copy
from pathlib import Path

import executed
import nbformat
import pytest

from book_ext import execution_cache
from flopkit.book import gallery

BOOK = Path(__file__).resolve().parents[2] / "book"


def a_notebook(*cells):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell("# Title")])
    nb.cells += [nbformat.v4.new_code_cell(source) for source in cells]
    return nb


RESULT = {"output_type": "execute_result", "data": {"text/plain": "2"}, "metadata": {}, "execution_count": 7}


def test_a_chapter_of_which_a_cell_did_not_run_is_not_kept():
    nb = a_notebook("a = 1", "a + 1")
    assert executed.notebook({0: []}, nb) is None
    done = executed.notebook({1: [RESULT], 0: []}, nb)
    assert [cell.execution_count for cell in done.cells[1:]] == [1, 2]
    assert done.cells[2].outputs[0].data["text/plain"] == "2" and done.cells[2].outputs[0].execution_count == 2
    assert not nb.cells[2].outputs, "the notebook that nbval read stays as it is"
    nbformat.validate(done)


def test_the_build_finds_it_as_long_as_no_cell_changes(tmp_path, monkeypatch):
    cache = pytest.importorskip("jupyter_cache").get_cache(tmp_path)
    monkeypatch.setattr(executed, "cache", lambda: cache)
    nb = a_notebook("1 + 1")
    executed.Executed().keep(tmp_path / "one.ipynb", executed.notebook({0: [RESULT]}, nb))
    nb.cells[0].source = "# Another title"
    _, found = cache.merge_match_into_notebook(copy.deepcopy(nb))
    assert found.cells[1].outputs[0].data["text/plain"] == "2" and found.cells[0].source == "# Another title"
    nb.cells[1].source = "1 + 2"
    with pytest.raises(KeyError):
        cache.match_cache_notebook(nb)


def test_the_kernels_of_the_build_show_figures_as_the_pages_have_them(monkeypatch):
    for name, value in execution_cache.INHERITED.items():
        monkeypatch.setenv(name, value)
    page = gallery.dense_roofline()._repr_mimebundle_()["text/html"]
    assert 'class="fk-figure"' in page and "fk-vega" not in page and "<style>" not in page


def test_a_chapter_runs_in_a_kernel_of_a_reader(monkeypatch):
    """JupyterLab, VS Code, Colab: each figure brings its script and its style."""
    client = pytest.importorskip("nbclient")
    monkeypatch.delenv("FLOPKIT_BOOK", raising=False)
    nb = nbformat.read(BOOK / "02_dense.ipynb", as_version=4)
    client.NotebookClient(nb, timeout=300, resources={"metadata": {"path": str(BOOK)}}).execute()
    shown = [each.data.get("text/html", "") for cell in nb.cells for each in cell.get("outputs", []) if "data" in each]
    figures = [html for html in shown if 'class="fk-figure"' in html and "fk-json" in html]
    assert len(figures) >= 2 and all("fk-vega" in html and "<style>" in html for html in figures)
