"""A guess that the reader commits to before the chapter tells. It works in a page without scripts or kernel."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Prediction", "inline_html", "predict"]

# The inputs are siblings of what they reveal, so `:checked ~` is all the logic there is. Colours come from the page:
# the book's theme (--pst-…), else JupyterLab's (--jp-…), else the text's own colour, which fits any ground.
_STYLE = """\
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
.fk-predict>input:checked~.fk-said>.fk-reveal,.fk-predict>.fk-right:checked~.fk-said>.fk-yes,
.fk-predict>.fk-wrong:checked~.fk-said>.fk-no{display:block}
.fk-predict>input:checked~.fk-said>.fk-hint{display:none}
.fk-predict>.fk-said>.fk-hint{display:block;opacity:.8}
@media print{.fk-predict>.fk-said>.fk-reveal{display:block}.fk-predict>.fk-said>.fk-hint{display:none}}"""


@dataclass(frozen=True)
class Prediction:
    """A question with options, of which one is right; it shows itself as a group of radio buttons."""

    question: str
    options: tuple[str, ...]
    answer: int
    reveal: str

    def _repr_html_(self) -> str:
        # JupyterLab takes the arrow keys for itself unless the element under them says no.
        name = "fk-" + hashlib.sha256(repr(self).encode()).hexdigest()[:10]
        choices = "\n".join(
            f'<input type="radio" name="{name}" id="{name}-{i}" class="{"fk-right" if i == self.answer else "fk-wrong"}" '
            'data-lm-suppress-shortcuts="true">'
            f'<label for="{name}-{i}">{inline_html(option)}</label>'
            for i, option in enumerate(self.options)
        )
        return f"""\
<style>{_STYLE}</style>
<fieldset class="fk-predict">
<legend>{inline_html(self.question)}</legend>
{choices}
<div class="fk-said" role="status">
<p class="fk-hint">Choose before you read on: the answer appears here.</p>
<p class="fk-yes"><strong>Yes.</strong></p>
<p class="fk-no"><strong>No.</strong></p>
<p class="fk-reveal">{inline_html(self.reveal)}</p>
</div>
</fieldset>"""

    def __repr__(self) -> str:
        lines = [self.question, *(f"  {chr(97 + i)}) {option}" for i, option in enumerate(self.options))]
        return "\n".join([*lines, "Choose before you read on; .reveal tells."])


def predict(question: str, *, options: Sequence[str], answer: int, reveal: str) -> Prediction:
    """Ask the reader to guess, and tell them once they have.

    Parameters
    ----------
    question : str
        The question. It ends with a question mark.
    options : Sequence[str]
        Two or more answers. In these and in the reveal, code between backticks, ``**bold**`` and
        ``[links](https://example.org)`` work.
    answer : int
        The index of the right one, from 0.
    reveal : str
        What appears under any choice: the right number and why.

    Returns
    -------
    Prediction
        A value that shows itself in a notebook, in the built page and in a terminal. The choice needs no kernel.

    Raises
    ------
    ValueError
        Where there is no choice, where the answer is not among the options or two options are the same.

    Examples
    --------
    >>> print(predict("How many FLOPs is a multiply-add?", options=["1", "2"], answer=1, reveal="A multiply, an add."))
    How many FLOPs is a multiply-add?
      a) 1
      b) 2
    Choose before you read on; .reveal tells.
    """
    options = tuple(options)
    if len(options) < 2 or len(set(options)) < len(options):
        raise ValueError(f"options={list(options)!r}: give two or more, each different")
    if isinstance(answer, bool) or not isinstance(answer, int) or not 0 <= answer < len(options):
        raise ValueError(f"answer={answer!r}: must be the index of an option, 0 to {len(options) - 1}")
    if not question.strip().endswith("?"):
        raise ValueError(f"question={question!r}: must end with a question mark")
    if not reveal.strip():
        raise ValueError("reveal is empty: say the right number and why")
    return Prediction(question, options, answer, reveal)


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
