"""What Sphinx does for this book only: extensions, which `_config.yml` lists, and the
makers of pages' parts, which `{generated}` blocks name.

A file `NAME_page.py` makes the parts of `book/NAME.md`.
"""
