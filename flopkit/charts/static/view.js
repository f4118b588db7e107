/* A Vega specification drawn into the page. Bundled with Vega (flopkit/charts/html.py), so that Vega-Lite and Vega-Embed stay out of it. */
import {parse, View, Warn} from "vega";

function tooltip(handler, event, item, value) {
  const old = document.getElementById("fk-tooltip");
  if (value == null || value === "") { old?.remove(); return; }
  const box = old ?? Object.assign(document.createElement("div"), {id: "fk-tooltip"}), table = document.createElement("table");
  for (const row of typeof value === "object" ? Object.entries(value) : [[value]]) {
    const tr = table.insertRow();
    for (const text of row) tr.insertCell().textContent = text;
  }
  box.replaceChildren(table);
  (document.fullscreenElement ?? document.body).append(box);
  // Above the pointer, below it where there is no room above, and inside the window.
  const {width, height} = box.getBoundingClientRect(), {clientX: x, clientY: y} = event;
  box.style.left = Math.max(0, Math.min(x - width / 2, document.documentElement.clientWidth - width)) + "px";
  box.style.top = (y > height + 10 ? y - height - 10 : y + 10) + "px";
}
window.flopkitVega = (host, spec) => new View(parse(spec), {renderer: "svg", logLevel: Warn, tooltip}).initialize(host);
