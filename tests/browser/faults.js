/* What a reader stumbles over in the picture of a figure, as sentences, and the colours of its marks and of its legend, each with its opacity.
   A legend may name what other settings show, so its colours are for the test to compare. */
figure => {
  const faults = [], marks = new Set(), swatches = new Set(), all = (node, what) => [...node.querySelectorAll(what)];
  const solid = (e, paint) => { let share = e.getAttribute(paint + "-opacity") ?? 1; for (; e.tagName !== "svg"; e = e.parentNode) share *= e.getAttribute("opacity") ?? 1; return share; };
  const ink = (e, paint) => { const colour = e.getAttribute(paint) ?? getComputedStyle(e)[paint]; return colour && !/^(none|transparent)$/.test(colour) && solid(e, paint) > .05 ? colour : null; };
  const shown = e => { const box = e.getBoundingClientRect(); return (box.width || box.height) && e.checkVisibility(); };
  const area = ({left, right, top, bottom}) => Math.max(0, right - left) * Math.max(0, bottom - top);
  const shared = (a, b) => ({left: Math.max(a.left, b.left), right: Math.min(a.right, b.right), top: Math.max(a.top, b.top), bottom: Math.min(a.bottom, b.bottom)});
  const holds = (box, p) => p.x >= box.left && p.x <= box.right && p.y >= box.top && p.y <= box.bottom;
  const under = (a, b) => a.compareDocumentPosition(b) & Node.DOCUMENT_POSITION_FOLLOWING;
  const colours = (e, found) => ["fill", "stroke"].map(paint => ink(e, paint) && `${ink(e, paint)} at ${solid(e, paint).toFixed(2)}`).filter(Boolean).forEach(each => found.add(each));

  for (const svg of figure.classList.contains("fk-no") ? [] : all(figure, ".fk-live svg, .fk-sheets > svg")) {
    const frame = (svg.closest(".fk-chart") ?? svg).getBoundingClientRect(), plot = svg.querySelector(".root > g > path.background")?.getBoundingClientRect();

    /* Words. Those with a stroke that stand behind the same words are their halo. */
    const words = all(svg, "text").filter(e => e.textContent.trim() && shown(e) && ink(e, "fill")).map(node => ({node, said: node.textContent, box: node.getBoundingClientRect(), edge: ink(node, "stroke")}));
    const same = (a, b) => a !== b && a.said === b.said && Math.hypot(a.box.left - b.box.left, a.box.top - b.box.top) < 2;
    const halos = words.filter(a => a.edge && words.some(b => !b.edge && same(a, b))), texts = words.filter(a => !halos.includes(a));
    for (const text of texts) {
      const {left, right, top, bottom, height} = text.box;
      text.halo = text.edge ? text.node : halos.find(halo => same(halo, text))?.node;
      text.middle = {left: left + 1, right: right - 1, top: top + .35 * height, bottom: top + .8 * height};
      if (left < frame.left - 1 || right > frame.right + 1 || top < frame.top - 1 || bottom > frame.bottom + 1) faults.push(`"${text.said}" leaves the picture`);
    }
    texts.forEach((a, i) => texts.slice(i + 1).forEach(b => {
      if (area(shared(a.box, b.box)) > .2 * Math.min(area(a.box), area(b.box))) faults.push(`"${a.said}" and "${b.said}" overlap`);
    }));

    /* Lines of the grid, too, edges and dots through the middle of words, unless a halo or something filled lies between. */
    const filled = all(svg, "path, rect, circle").filter(e => shown(e) && ink(e, "fill") && solid(e, "fill") > .9).map(node => ({node, box: node.getBoundingClientRect()}));
    for (const line of all(svg, "path, line, rect, circle, polyline, polygon")) {
      if (line.closest(".role-legend, .background, .foreground") || !shown(line) || !(ink(line, "stroke") || line.closest(".mark-symbol"))) continue;
      const half = Math.max(0, (line.getAttribute("stroke-width") ?? 1) / 2 - 1), grown = b => ({left: b.left - half, right: b.right + half, top: b.top - half, bottom: b.bottom + half});
      const box = grown(line.getBoundingClientRect()), near = texts.filter(({middle}) => { const b = shared(box, middle); return b.left <= b.right && b.top <= b.bottom; });
      if (!near.length) continue;
      const scale = line.getScreenCTM(), long = line.getTotalLength(), points = [];
      for (let d = 0; d <= long; d += 1.5 / scale.a) points.push(line.getPointAtLength(d).matrixTransform(scale));
      const seen = line.closest("[clip-path]") ? points.filter(p => holds(plot, p)) : points;
      for (const {node, said, middle, halo} of near) {
        const covers = filled.filter(each => each.node !== line && under(line, each.node) && under(each.node, node));
        const inside = seen.filter(p => holds(grown(middle), p) && !covers.some(each => holds(each.box, p)));
        if (inside.length > 1 && !(halo && under(line, halo))) faults.push(`"${said}" is crossed by a ${line.closest(".mark-symbol") ? "dot" : "line"}, ${ink(line, "stroke") ?? ink(line, "fill")}`);
      }
    }

    /* Colours. One may go without a key: what the whole picture is about. */
    if (!plot) continue;
    const hues = new Set(), keys = new Set(texts.map(text => ink(text.node, "fill")));
    for (const mark of all(svg, ".role-mark :is(path, line, rect, circle)")) {
      colours(mark, marks);
      if (shown(mark)) ["fill", "stroke"].map(paint => ink(mark, paint)).filter(each => each && !/ink|muted|grid|paper/.test(each)).forEach(each => hues.add(each));
    }
    for (const swatch of all(svg, ".role-legend-symbol path")) {
      colours(swatch, swatches);
      ["fill", "stroke"].forEach(paint => keys.add(ink(swatch, paint)));
    }
    const told = [...texts.map(text => text.said), ...all(figure, ".fk-caption").map(e => e.textContent)].join(" ").toLowerCase();
    const bare = [...hues].filter(hue => !keys.has(hue) && !told.includes(/--fk-(\w+)/.exec(hue)?.[1] ?? hue));
    if (bare.length > 1) faults.push(`nothing says what these colours mean: ${bare.join(", ")}`);
  }
  return {faults: [...new Set(faults)], marks: [...marks], swatches: [...swatches]};
}
