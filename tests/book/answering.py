"""What the tests of exercises show boxes and read replies with."""

from __future__ import annotations

from book_ext import exercises
from flopkit.book.lessons import NotYet, check, solution
from flopkit.book.lessons.boxes import box_of


def page_of(chromium, shown):
    """A page with these boxes and the script of the book."""
    script = exercises.script()
    page = chromium.new_page()
    page.set_content(
        f"<!doctype html><html lang=en><meta charset=utf-8><title>exercises</title><script>{script}</script>{''.join(shown)}"
    )
    return page


def put(number, name, row):
    """Keep the answer of a row, and show its box."""
    solution(number, rel=row.get("rel", 1e-9), **{name: row["answer"]})
    return check(number, **{name: ...})._repr_html_()


def reply(number, name, typed):
    try:
        check(number, **{name: typed})
    except NotYet as wrong:
        return str(wrong).removeprefix(f"{box_of(number, name)}: {typed}: ")
    return "Right."
