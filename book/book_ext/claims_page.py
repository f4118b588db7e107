"""The parts of the page "Claims checked", from the file of verdicts: Markdown, so that
the book's search finds the claims."""

from flopkit.book.lessons.claims import Verdict, claims, sources

GRAVE = ("wrong", "misleading")


def texts():
    """The sources, linked where they can be read, with how many of their claims are
    settled."""
    lines = []
    for letter, source in sources().items():
        own = [claim for claim in claims().values() if claim.id[0] == letter]
        title = f"“[{source.title}]({source.url})”" if source.url else f"“{source.title}”"
        settled = sum(claim.verdict is not None for claim in own)
        lines.append(
            f"- **{letter}**: {source.author}, {title}, {source.date}. {settled} of its {len(own)} claims are settled."
        )
    return "\n".join(lines)


def settled():
    """How many verdicts of each kind and which, the gravest first; then the claims by
    source, each with its verdict, our number in words and the chapter."""
    done = [claim for claim in claims().values() if claim.verdict is not None]
    lines = [f"{len(done)} of {len(claims())} claims are settled:", ""]
    for kind in (*GRAVE, *(kind for kind in Verdict if kind not in GRAVE)):
        if own := [claim for claim in done if claim.verdict == kind]:
            links = ", ".join(f'<a href="#{claim.id}">{claim.id}</a>' for claim in own)
            lines.append(f"- *{kind}* ({len(own)}): {links}")
    return "\n".join([*lines, "", *by_source(done, _settled)])


def still_open():
    """The others by source; no chapter of the book settles them."""
    return "\n".join(by_source([claim for claim in claims().values() if claim.verdict is None], _open))


def by_source(chosen, tell):
    lines = []
    for letter, source in sources().items():
        if own := [claim for claim in chosen if claim.id[0] == letter]:
            lines += [f"### {letter}: “{source.title}”", "", *(line for claim in own for line in tell(claim)), ""]
    return lines


def _settled(claim):
    where = f'<a href="{claim.page}.html#{claim.anchor}">Computed in chapter {claim.chapter}</a>.'
    verdict = claim.verdict[0].upper() + claim.verdict[1:]
    told = [f"**{verdict}.** {claim.ours}".strip(), f"{claim.finding} {where}".strip()]
    name = f'<span id="{claim.id}">**{claim.id}**</span> {claim.claim}'
    return [name, f": {told[0]}", *(line for part in told[1:] for line in ("", f"  {part}")), ""]


def _open(claim):
    return [f'- <span id="{claim.id}">**{claim.id}**</span> {claim.claim}']
