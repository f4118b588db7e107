"""Each figure of the gallery with its controls at their ends: whatever is drawn lies in the plot, every word in the picture, and no line through it."""

from __future__ import annotations

import itertools
import random

import pytest

pytest.importorskip("altair")
pytest.importorskip("playwright.sync_api")

from reader import FAULTS, PHONE, show

from flopkit.book import gallery
from flopkit.charts import Tasks

pytestmark = pytest.mark.browser
PAGES = {make: getattr(gallery, make)() for make in gallery.__all__}
FIGURES = {
    (make, figure.name): figure
    for make, made in PAGES.items()
    for figure in (made if isinstance(made, Tasks) else [made])
}
MANY = 20  # controls, from which on combinations of the first ones are tried alone
CORNERS = 80  # combinations of ends that are tried, where there are more


def extremes(figure):
    """The start and the presets; from the start every option of each choice and both ends of each slider; and corners: all controls at an end."""
    start, controls = figure.settings(), figure.controls
    ends = {name: (c.options[0], c.options[-1]) if c.kind == "slider" else c.options for name, c in controls.items()}
    if len(controls) > MANY:
        ends = dict(list(ends.items())[:MANY])
    found = [start, *({**start, **preset} for preset in figure.presets.values())]
    found += [{**start, name: value} for name, values in ends.items() for value in values]
    number = 1
    for values in ends.values():
        number *= len(values)
    if number <= CORNERS:
        corners = itertools.product(*ends.values())
    else:
        rng = random.Random(figure.name)
        corners = (tuple(rng.choice(values) for values in ends.values()) for _ in range(CORNERS))
    return found + [{**start, **dict(zip(ends, corner, strict=True))} for corner in corners]


# Moves the controls to each of the settings, and tells what a reader then stumbles over, and what lies outside: symbols by their middle, all else by its box.
WALK = """async ([figure, indices, faults]) => {
  const found = [], look = eval(faults), inputs = Object.keys(indices[0]).map(name => figure.querySelector(`.fk-control [name="${name}"]`));
  const inside = (box, room, slack) => box.left >= room.left - slack && box.right <= room.right + slack && box.top >= room.top - slack && box.bottom <= room.bottom + slack;
  for (const [n, at] of indices.entries()) {
    for (const input of inputs) {
      const what = {range: 'value', checkbox: 'checked'}[input.type] ?? 'selectedIndex';
      if (+input[what] === at[input.name]) continue;
      input[what] = what === 'checked' ? !!at[input.name] : at[input.name];
      input.dispatchEvent(new Event('input', {bubbles: true}));
      figure.dataset.settled = '';
    }
    while (!figure.dataset.settled) await new Promise(done => setTimeout(done));
    if (figure.classList.contains('fk-no')) continue;
    found.push(...look(figure).faults.map(fault => [n, fault]));
    const svg = figure.querySelector('.fk-live svg'), picture = svg.getBoundingClientRect();
    const plot = svg.querySelector('.root > g > path.background').getBoundingClientRect();
    for (const mark of svg.querySelectorAll('.role-mark :is(path, line, rect), text')) {
      if (mark.getAttribute('opacity') === '0' || !mark.getBoundingClientRect().width && !mark.getBoundingClientRect().height) continue;
      const box = mark.getBoundingClientRect(), word = mark.tagName === 'text', dot = mark.closest('.mark-symbol');
      const x = (box.left + box.right) / 2, y = (box.top + box.bottom) / 2;
      if (!(word ? inside(box, picture, 1) : dot ? inside({left: x, right: x, top: y, bottom: y}, plot, 1) : inside(box, plot, 3)))
        found.push([n, word ? mark.textContent : mark.parentNode.getAttribute('class'), Math.round(box.left - plot.left), Math.round(box.right - plot.right),
                    Math.round(box.top - plot.top), Math.round(box.bottom - plot.bottom)]);
    }
  }
  return found;
}"""


@pytest.mark.parametrize("options", [{}, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize(("made", "name"), FIGURES)
def test_nothing_is_drawn_outside(open_page, gallery_page, made, name, options):
    figure = FIGURES[made, name]
    page = open_page(url=gallery_page(made), **options)
    node = show(page, figure.name)
    settings = extremes(figure)
    indices = [{key: figure.controls[key].options.index(value) for key, value in each.items()} for each in settings]
    outside = page.evaluate(WALK, [node.element_handle(), indices, FAULTS])
    told = [f"{what!r} {over} at {settings[n]}" for n, what, *over in outside]
    assert not told, f"{len(told)} faults (outside: left, right, top, bottom beyond the plot):\n" + "\n".join(told[:12])
