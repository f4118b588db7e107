"""What book/_static/searching.js keeps from Sphinx's own scripts: words of JavaScript as a query, and hundreds of words to mark."""

from __future__ import annotations

import pytest

pytest.importorskip("playwright.sync_api")

pytestmark = pytest.mark.browser
WORDS = [f"word{n:03}" for n in range(200)]


@pytest.fixture(scope="session")
def site(search_site):
    return search_site


@pytest.mark.parametrize("word", ["constructor", "__proto__", "hasOwnProperty", "toString", "valueOf"])
def test_a_word_that_every_object_has_is_looked_for_like_any_other(open_page, word):
    page = open_page(f"search.html?q={word}")
    page.get_by_text("Your search did not match any documents").wait_for()
    assert page.locator("#search-results li").count() == 0


@pytest.mark.parametrize("word", ["flop", "page"])
def test_what_is_there_is_found(open_page, word):
    page = open_page(f"search.html?q={word}")
    page.locator("#search-results li a").wait_for()


def test_a_link_marks_ten_words_at_most(open_page):
    page = open_page("page.html?highlight=" + "+".join(["e", *WORDS[:3] * 100, *WORDS]))
    page.wait_for_selector("span.highlighted")
    assert page.locator("span.highlighted").all_inner_texts()[:3] == WORDS[:3]
    assert (
        page.evaluate("new Set([...document.querySelectorAll('span.highlighted')].map(e => e.textContent)).size") == 10
    )
    assert "highlight" not in page.url, "Sphinx takes it from the address"


def test_what_the_search_hands_on_is_marked(open_page):
    page = open_page("page.html")
    page.evaluate("words => localStorage.setItem('sphinx_highlight_terms', words)", " ".join(WORDS))
    page.reload()
    page.wait_for_selector("span.highlighted")
    assert (
        page.evaluate("new Set([...document.querySelectorAll('span.highlighted')].map(e => e.textContent)).size") == 10
    )
