"""A drawn chart made small enough to stand in every page: the picture for readers without scripts, and for paper."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_SVG = "http://www.w3.org/2000/svg"
_IDLE = {"role", "class", "version", "pointer-events", "cursor", "font-family", "stroke-miterlimit"}
_NUMBER = re.compile(r"-?\d*\.\d+(?:e-?\d+)?")
_WITHOUT_EFFECT = {
    ("opacity", "1"),
    ("stroke-width", "1"),
    ("transform", "translate(0,0)"),
    ("x2", "0"),
    ("y2", "0"),
    ("font-weight", "normal"),
}


def shrink(text: str, prefix: str) -> str:
    """The same picture in about a quarter of the bytes: one decimal, no empty groups, no labels for each mark.

    Fonts come from the page (``figure.css``); ``prefix`` keeps the names of clip paths apart between the figures of a page.
    """
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(text)
    size = {name: root.get(name, "") for name in ("width", "height", "viewBox")}
    _prune(root, prefix)
    root.attrib = {**size, "aria-hidden": "true"}
    return ElementTree.tostring(root, encoding="unicode").replace("url(#", f"url(#{prefix}-")


def _prune(node: ElementTree.Element, prefix: str) -> None:
    for name, value in list(node.attrib.items()):
        if name.startswith("aria-") or name in _IDLE or (name, value) in _WITHOUT_EFFECT:
            del node.attrib[name]
        elif name in ("d", "transform", "x", "y", "x2", "y2", "width", "height"):
            node.set(name, _NUMBER.sub(_one_decimal, value))
    kept: list[ElementTree.Element] = []
    for child in node:
        if child.tag == f"{{{_SVG}}}defs":
            _name_clips(child, prefix)
            kept.append(child)
            continue
        _prune(child, prefix)
        if _is_bare(child):
            continue
        if child.tag == f"{{{_SVG}}}g" and not child.attrib:
            kept.extend(child)
        else:
            kept.append(child)
    node[:] = kept
    alone = node.tag == f"{{{_SVG}}}g" and len(kept) == 1 and kept[0].tag == node.tag
    if alone and "clip-path" not in node.attrib and not node.attrib.keys() & kept[0].attrib.keys():
        node.attrib.update(kept[0].attrib)
        node[:] = list(kept[0])


def _name_clips(node: ElementTree.Element, prefix: str) -> None:
    for each in node.iter():
        if "id" in each.attrib:
            each.set("id", f"{prefix}-{each.get('id')}")


def _is_bare(node: ElementTree.Element) -> bool:
    """Draws nothing: an empty group, or a path without fill and stroke."""
    if node.tag == f"{{{_SVG}}}g":
        return not len(node)
    if node.tag == f"{{{_SVG}}}path":
        inks = {node.get("fill", "none"), node.get("stroke", "none")}
        return node.get("display") == "none" or inks <= {"none", "transparent"}
    return False


def _one_decimal(number: re.Match[str]) -> str:
    text = f"{float(number[0]):.1f}"
    return text.removesuffix(".0") if text not in ("-0.0", "0.0") else "0"
