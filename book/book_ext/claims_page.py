"""The parts of the page "Claims checked", from the file of verdicts: Markdown, so that
the book's search finds the claims."""

import html

from flopkit.book.lessons.claims import Verdict, claims, sources

GRAVE = ("wrong", "misleading")


def texts():
    """The sources, linked where they can be read, with how many of their claims are
    settled."""
    lines = []
    for letter, source in sources().items():
        own = [claim for claim in claims().values() if claim.id[0] == letter]
        title = f"“[{source.title}]({source.url})”" if source.url else f"“{source.title}”"
        lines.append(f"- **{letter}**: {source.author}, {title}, {source.date}. {_settled_of(own)} {source.words}")
    return "\n".join(lines)


def settled():
    """A filter by verdict, then a line for each claim, the gravest first, with its verdict
    and number; folded the text's own sentence where we quote it, what the number is, what
    we found, and the chapter. At the end those that no chapter settles, if there are any."""
    done = [claim for claim in claims().values() if claim.verdict is not None]
    kinds = [
        kind
        for kind in (*GRAVE, *(kind for kind in Verdict if kind not in GRAVE))
        if any(c.verdict == kind for c in done)
    ]
    choices = [_choice("all", f"all ({len(done)})", " checked")]
    choices += [_choice(_slug(kind), f"{kind} ({sum(claim.verdict == kind for claim in done)})") for kind in kinds]
    lines = [
        _settled_of(list(claims().values())), "",
        f'<fieldset class="fk-filter"><legend>Show</legend>{"".join(choices)}</fieldset>', "",
    ]  # fmt: skip
    for kind in kinds:
        for claim in done:
            lines += _settled(claim) if claim.verdict == kind else []
    waiting = [f'- <span id="{c.id}">**{c.id}**</span> {c.claim}' for c in claims().values() if c.verdict is None]
    return "\n".join([*lines, *(["No chapter settles these yet:", "", *waiting] if waiting else [])])


def _settled_of(own):
    """How many have a verdict that is true or false of the claim; one that cannot be checked has none."""
    counts = [
        sum(c.verdict not in (None, Verdict.UNCHECKED) for c in own),
        sum(c.verdict == Verdict.UNCHECKED for c in own),
    ]
    return f"{counts[0]} of {len(own)} claims are settled" + (f"; {counts[1]} cannot be checked." if counts[1] else ".")


def _slug(kind):
    return kind.split()[-1]


def _choice(slug, text, more=""):
    return f'<label><input type="radio" name="fk-verdict" value="{slug}"{more}> {text}</label>'


def _settled(claim):
    where = f'<a href="{claim.page}.html#{claim.anchor}">Computed in chapter {claim.chapter}</a>.'
    read = f"The sentence was read in {claim.read}." if claim.read else ""
    return [
        f'<div class="fk-settled" data-verdict="{_slug(claim.verdict)}">', "",
        f'<span id="{claim.id}">**{claim.id}**</span> {claim.claim}', "",
        f"<details><summary>{_short(claim)}</summary>", "", *_quoted(claim),
        " ".join(part for part in (claim.ours, claim.finding, where, read) if part), "", "</details></div>", "",
    ]  # fmt: skip


def _short(claim):
    """Verdict and number, beside the claim in one line."""
    verdict = claim.verdict.replace("under a named", "by")
    return f"<b>{verdict}</b>" + (f" · {claim.number}" if claim.number else "")


def _quoted(claim):
    if not claim.quote:
        return []
    author = sources()[claim.id[0]].author
    return [f'{author}: <q class="fk-quote">{html.escape(claim.quote, quote=False)}</q>', ""]
