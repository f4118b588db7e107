"""A table in Markdown, of rows of text."""


def table(rows, left=1):
    """The first row is the head; the first *left* columns hold words, the others
    numbers."""
    head, *body = rows
    lines = [head, [":--" if place < left else "--:" for place in range(len(head))], *body]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
