/* "The same in Python": a template that flopkit/charts/code.py made, filled with the settings that the figure shows. The twin of Code.text. */
window.flopkitCode ??= fold => {
  const figure = fold.closest("figure"), box = fold.querySelector("code"), button = fold.querySelector("button");
  const {code, presets} = JSON.parse(figure.querySelector(".fk-json").textContent), {about, defaults} = code;
  const only = found => Object.entries(found).filter(([name]) => about.includes(name));
  const known = code.models.map(([place, text]) => [text, only(presets[place])]);
  const read = () => (figure.closest(".fk-tasks") ?? figure).fkRead ?? [];   // what the box read: [text, settings] of each
  function literal(v) {
    if (typeof v === "boolean") return v ? "True" : "False";
    if (!Number.isInteger(v)) return String(v);
    for (const power of [12, 9]) if (v >= 10 ** power && v % 10 ** power === 0) return `${v / 10 ** power}e${power}`;
    return v < 10000 ? String(v) : String(v).replace(/\B(?=(\d{3})+$)/g, "_");
  }
  function text(state) {
    const said = {...defaults, ...state};
    const [model] = [...read().map(([text, found]) => [text, only(found)]), ...known].find(([, found]) => found.every(([name, value]) => said[name] === value)) ?? [];
    const fill = pieces => pieces.map(piece => {
      if (typeof piece === "string") return piece;
      if ("model" in piece) return model ?? fill(code.sizes);
      if ("if" in piece) return fill(piece[(piece.above ? said[piece.if] > said[piece.above] : piece.in.includes(said[piece.if])) ? "then" : "else"]);
      const value = said[piece.of];
      return piece.texts?.[String(value)] ?? literal(piece.over ? value / piece.over : value);
    }).join("");
    return fill(code.pieces);
  }
  function write() {
    if (!figure.dataset.settled) return;
    box.textContent = figure.classList.contains("fk-no") ? "# " + figure.querySelector(".fk-refused").textContent : text(JSON.parse(figure.dataset.settled));
    button.textContent = "Copy";
  }
  new MutationObserver(write).observe(figure, {attributeFilter: ["data-settled"]});
  figure.closest(".fk-tasks")?.addEventListener("fk-read", write);
  button.addEventListener("click", async () => {
    try { await navigator.clipboard.writeText(box.textContent); button.textContent = "Copied"; }
    catch { getSelection().selectAllChildren(box); button.textContent = "Selected"; }
  });
};
document.querySelectorAll(".fk-code:not([data-on])").forEach(fold => { fold.dataset.on = ""; window.flopkitCode(fold); });
