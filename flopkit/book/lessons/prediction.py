"""A guess that the reader commits to before the chapter tells. It works in a page without scripts or kernel."""

from __future__ import annotations

import hashlib
import html
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

__all__ = ["Prediction", "inline_html", "predict"]

MOST = 6  # options

# The inputs are siblings of what they reveal, so `:checked ~` is all the logic there is. Colours come from the page:
# the book's theme (--pst-…), else JupyterLab's (--jp-…), else the text's own colour, which fits any ground.
STYLE = """\
.fk-predict{--fk-line:var(--pst-color-border,var(--jp-border-color1,color-mix(in srgb,currentColor 35%,transparent)));
--fk-accent:var(--pst-color-primary,var(--jp-brand-color1,#1f77b4));
display:grid;grid-template-columns:auto minmax(0,1fr);gap:.35rem .6rem;align-items:baseline;max-width:44rem;margin:.5rem 0;
padding:.6rem 1rem 1rem;border:1px solid var(--fk-line);border-inline-start:.25rem solid var(--fk-accent);border-radius:.3rem;
color:inherit;font:inherit;line-height:1.5}
.fk-predict>legend{float:left;grid-column:1/-1;width:100%;margin:0 0 .3rem;padding:0;font-weight:600;font-size:1em}
.fk-predict>input{margin:0;width:1.15em;height:1.15em;accent-color:var(--fk-accent);cursor:pointer;transform:translateY(.15em)}
.fk-predict>label{margin:0;padding:.2rem 0;cursor:pointer}
.fk-predict>input:focus-visible{outline:2px solid var(--fk-accent);outline-offset:2px}
.fk-predict>input:checked+label{font-weight:600}
.fk-predict>.fk-said{grid-column:1/-1;margin-top:.4rem}
.fk-predict>.fk-said p{margin:.2rem 0}
.fk-predict>.fk-said>*{display:none}
"""
STYLE += ",".join(f".fk-predict>.fk-o{i}:checked~.fk-said>.fk-r{i}" for i in range(MOST))
STYLE += """{display:block}
.fk-predict>input:checked~.fk-said>.fk-hint{display:none}
.fk-predict>.fk-said>.fk-hint{display:block;opacity:.8}
@media print{.fk-predict>.fk-said>.fk-yes{display:block}.fk-predict>.fk-said>.fk-hint{display:none}}"""


@dataclass(frozen=True)
class Prediction:
    """A question with options, of which one is right; it shows itself as a group of radio buttons."""

    question: str
    options: Mapping[str, str]
    answer: str

    def _repr_html_(self) -> str:
        # JupyterLab takes the arrow keys for itself unless the element under them says no.
        name = "fk-" + hashlib.sha256(repr((self.question, *self.options.items())).encode()).hexdigest()[:10]
        choices = "\n".join(
            f'<input type="radio" name="{name}" id="{name}-{i}" class="fk-o{i}" data-lm-suppress-shortcuts="true">'
            f'<label for="{name}-{i}">{inline_html(option)}</label>'
            for i, option in enumerate(self.options)
        )
        replies = "\n".join(
            f'<p class="fk-r{i}{" fk-yes" if option == self.answer else ""}">'
            f"<strong>{'Yes' if option == self.answer else 'No'}.</strong> {inline_html(reply)}</p>"
            for i, (option, reply) in enumerate(self.options.items())
        )
        style = "" if os.environ.get("FLOPKIT_BOOK") else f"<style>{STYLE}</style>\n"  # a page of the book has it once
        return f"""\
{style}<fieldset class="fk-predict">
<legend>{inline_html(self.question)}</legend>
{choices}
<div class="fk-said" role="status">
<p class="fk-hint">Choose before you read on: the reply appears here.</p>
{replies}
</div>
</fieldset>"""

    def __repr__(self) -> str:
        lines = [self.question, *(f"  {chr(97 + i)}) {option}" for i, option in enumerate(self.options))]
        return "\n".join([*lines, "Choose before you read on; .options has a reply to each."])


def predict(question: str, *, options: Mapping[str, str], answer: str) -> Prediction:
    """Ask the reader to guess, and reply to the guess.

    Parameters
    ----------
    question : str
        The question. It ends with a question mark.
    options : Mapping[str, str]
        Two to six answers, each with the reply to a reader who chooses it: why the right one is right, which belief leads to
        a wrong one. "Yes." or "No." is put before it. In both, code between backticks, ``**bold**`` and
        ``[links](https://example.org)`` work.
    answer : str
        The right one.

    Returns
    -------
    Prediction
        A value that shows itself in a notebook, in the built page and in a terminal. The choice needs no kernel.

    Raises
    ------
    ValueError
        Where there is no choice, where an option has no reply, or where the answer is not among the options.

    Examples
    --------
    >>> print(
    ...     predict(
    ...         "How many FLOPs is a multiply-add?",
    ...         options={"1": "That counts instructions: an FMA is one.", "2": "A multiply and an add."},
    ...         answer="2",
    ...     )
    ... )
    How many FLOPs is a multiply-add?
      a) 1
      b) 2
    Choose before you read on; .options has a reply to each.
    """
    if not isinstance(options, Mapping):
        raise TypeError(f"options={options!r}: give each answer its reply, {{'2 FLOPs': 'A multiply and an add.', …}}")
    if not 2 <= len(options) <= MOST:
        raise ValueError(f"options={list(options)!r}: give two to {MOST}")
    for option, reply in options.items():
        if not reply.strip():
            raise ValueError(f"options: {option!r} has no reply: say why it is right, or which belief leads there")
    if answer not in options:
        raise ValueError(f"answer={answer!r}: must be one of the options, {', '.join(map(repr, options))}")
    if not question.strip().endswith("?"):
        raise ValueError(f"question={question!r}: must end with a question mark")
    return Prediction(question, MappingProxyType(dict(options)), answer)


def inline_html(text: str) -> str:
    """HTML of one paragraph of text in which `code`, **bold** and [links](address) are marked as in Markdown.

    >>> inline_html("**2** in `a*b` < 3")
    '<strong>2</strong> in <code>a*b</code> &lt; 3'
    """
    pieces = re.split(r"`([^`]+)`", html.escape(text, quote=False))
    for i, piece in enumerate(pieces):
        if i % 2:
            pieces[i] = f"<code>{piece}</code>"
        else:
            piece = re.sub(r"\*\*(.+?)\*\*", r"<strong>\1</strong>", piece)
            pieces[i] = re.sub(r"\[([^\]]+)\]\(([^)\s\"]+)\)", r'<a href="\2">\1</a>', piece)
    return "".join(pieces)
