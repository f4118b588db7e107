"""Sphinx extension: the parameters of flopkit's docstrings (`name : what it is`, one a line) as a definition list, and short signatures."""

import re

PARAMETER = re.compile(r"^(?P<names>\*{0,2}\w+(?:, \*{0,2}\w+)*) : (?P<text>.*)$")


def parameters(app, what, name, obj, options, lines):
    out, inside = [], False
    for number, line in enumerate(lines):
        underline = lines[number + 1] if number + 1 < len(lines) else ""
        if line == "Parameters" and underline.startswith("---"):
            out += ["**Parameters**", ""]
            inside = True
            continue
        if inside and line.startswith("---"):
            continue
        match = PARAMETER.match(line) if inside else None
        if match:
            out += [", ".join(f"``{one}``" for one in match["names"].split(", ")), "    " + match["text"]]
            continue
        if line and not line.startswith(" "):
            inside = False
        out.append(line)
    lines[:] = out


def signature(app, what, name, obj, options, signature, returns):
    """The defaults of a dataclass as one would write them: a convention by its name, a container that is made anew as ``{}``."""
    if signature:
        signature = re.sub(r"Convention\(name='(\w+)'.*?\brecompute=\w+\)", r"\1", signature).replace("<factory>", "{}")
    return signature, returns


def setup(app):
    app.connect("autodoc-process-signature", signature)
    app.connect("autodoc-process-docstring", parameters)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
