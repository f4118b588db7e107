/* Brings flopkit's figures to life. Holds no formula: every number is a signal of the Vega view. */
(() => {
  "use strict";
  if (window.flopkitFigures) { window.flopkitFigures.scan(); return; }
  document.documentElement.classList.add("fk-js");
  const base = document.currentScript?.src;  // empty in a live kernel, where all is inside the page
  const all = (node, what) => [...node.querySelectorAll(what)];

  /* Text of a number: the twin of flopkit/units.py. */
  const PREFIX = ["f", "p", "n", "µ", "m", "", ..."kMGTPEZYRQ"];
  const PREFIXED = /^(FLOPs?|MACs?|[BbsWJ]|Hz)(\/|$)/;
  const ALIAS = {bytes: "B", byte: "B", "bytes/s": "B/s", seconds: "s", second: "s", x: "×", ratio: "×", percent: "%"};
  const sign = v => v < 0 ? "−" : "";
  const odd = v => v !== v ? "–" : Math.abs(v) === Infinity ? sign(v) + "∞" : "";
  const round = (v, digits) => { const [m, e] = Math.abs(v).toExponential(digits - 1).split("e"); return [m.replace(".", ""), +e]; };
  function place(figures, e) {
    if (e < 0) { figures = "0".repeat(-e) + figures; e = 0; }
    const rest = figures.slice(e + 1).replace(/0+$/, "");
    return figures.slice(0, e + 1).padEnd(e + 1, "0").replace(/^0+(?=\d)/, "").replace(/\B(?=(\d{3})+$)/g, ",") + (rest && "." + rest);
  }
  function plain(v, digits, shift = 0) {
    if (odd(v)) return odd(v);
    let [figures, e] = round(v, digits);
    if (e + shift >= digits && e < 21) {                        // keep every digit before the point
      figures = Math.abs(v).toFixed(shift).replace(".", "");
      e = figures.length - 1 - shift;
    }
    return sign(v) + place(figures, e + shift);
  }
  function join(text, unit) {
    if (/^−?1$/.test(text) && unit.length > 2) unit = unit.replace(/^[^/]*/, u => u.replace(/(?<=ch|sh|ss)es$|(?<=x)es$|(?<!s)s$/, ""));
    return unit ? text + " " + unit : text;
  }
  function si(v, unit) {
    if (odd(v)) return join(odd(v), unit);
    const [figures, e] = round(v, 4), power = v ? Math.min(Math.max(Math.floor(e / 3), -5), 10) : 0;
    return power ? `${sign(v)}${place(figures, e - 3 * power)} ${PREFIX[power + 5]}${unit}` : join(sign(v) + place(figures, e), unit);
  }
  function seconds(v) {
    const size = Math.abs(v);
    if (size < 120 || odd(v)) return si(v, "s");
    const [name, length] = [["days", 86400], ["h", 3600], ["min", 60]].find(([, length]) => size >= 2 * length);
    return join(plain(v / length, 4), name);
  }
  function format(v, unit = "") {
    if (typeof v !== "number") return String(v);
    if (v !== v) return "–";
    unit = ALIAS[unit] ?? unit;
    if (unit === "%") return plain(v, 3, 2) + " %";
    if (unit === "+%") return (v = +v.toFixed(4), v > 0 ? "+" : "") + plain(v, 9, 2) + " %";
    if (unit === "×") return plain(v, 3) + "×";
    if (unit === "s") return seconds(v);
    return unit !== "FLOP/B" && PREFIXED.test(unit) ? si(v, unit) : join(plain(v, 4), unit);
  }
  const say = ({text, digits, unit}, v, instead) => instead || (text?.[String(v)] ?? format(digits ? +v.toPrecision(digits) : v, unit));

  /* Vega, once for a page: a file beside this script, or unpacked from the page itself. */
  let loading;
  const vega = () => loading ??= window.flopkitVega ? Promise.resolve() : new Promise(async (done, failed) => {
    const script = document.createElement("script");
    if (base) {
      Object.assign(script, {src: new URL("vendor/vega.js", base), onload: done, onerror: () => failed(new Error("no " + script.src))});
      document.head.append(script);
    } else try {
      const packed = Uint8Array.from(atob(document.querySelector("script.fk-vega").textContent), c => c.charCodeAt(0));
      script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
      document.head.append(script);
      done();
    } catch (error) { failed(error); }
  });

  /* What cannot compute has no controls: they would stand beside others' results. */
  const STOPPED = "The controls are off: what computes this figure did not run in this browser. It shows the settings that it began with.";
  function stop(figure, error) {
    figure.dataset.ready = "failed";
    all(figure, "input, select, button, textarea").forEach(each => { each.disabled = true; });
    all(figure, ".fk-status, .fk-paste [role=status]").forEach(each => { each.textContent = STOPPED; });
    console.error("flopkit figure", figure.dataset.name, error);
  }

  function mount(figure) {
    const {spec, fluid, controls, alt, refused, presets, readouts, columns, rows, paste} = JSON.parse(figure.querySelector(".fk-json").textContent);
    const name = figure.dataset.name, one = what => figure.querySelector(what);
    const inputs = Object.fromEntries(Object.keys(controls).map(key => [key, one(`.fk-control [name="${key}"]`)]));
    const preset = one(".fk-preset select"), status = one(".fk-status"), chart = one(".fk-chart"), table = one(".fk-data");
    const start = Object.fromEntries(Object.entries(controls).map(([key, c]) => [key, c.start]));
    const state = {}, said = {}, named = text => text.replace(/\{(\w+)\}/g, (_, name) => said[name]);
    const write = (node, text) => node.textContent === text || (node.textContent = text);
    let view, busy = false, again = false, stopped = false;

    function set(values) {
      if (stopped) return;
      for (const [key, value] of Object.entries(values)) {
        const {values: options, unit} = controls[key], input = inputs[key], text = typeof value === "boolean" ? value ? "on" : "off" : format(value, unit);
        state[key] = value;
        said[key] = text;
        if (input.type === "range" && !options.includes(value)) {   // a pasted or linked number joins the ladder
          options.push(value);
          options.sort((a, b) => a - b);
          input.max = options.length - 1;
        }
        input[{range: "value", checkbox: "checked"}[input.type] ?? "selectedIndex"] = input.type === "checkbox" ? value : options.indexOf(value);
        if (input.type === "range") input.setAttribute("aria-valuetext", text);
        input.parentNode.querySelector(".fk-value").textContent = text;
      }
      const fits = i => Object.entries(presets[i]).every(([key, value]) => state[key] === value);
      if (preset && !(preset.selectedIndex && fits(preset.selectedIndex - 1))) preset.selectedIndex = 1 + presets.findIndex((_, i) => fits(i));
      update().catch(failed);
    }
    async function update() {
      if (!view || busy) { again = true; return; }
      busy = true;
      do {
        again = false;
        for (const key in state) view.signal(key, state[key]);
        await view.runAsync();
        const no = refused && view.signal(refused);
        readouts.forEach(shown => {
          const data = one(`data[data-name="${shown.name}"]`), value = view.signal(shown.name);
          data.value = value;
          write(data, said[shown.name] = no ? "–" : named(say(shown, value, shown.instead && view.signal(shown.instead))));
        });
        for (const key in inputs) if (controls[key].idle) {
          const why = named(view.signal(controls[key].idle));
          inputs[key].disabled = !!why;
          write(inputs[key].nextSibling, why);
        }
        if (refused) write(one(".fk-refused"), named(no));
        figure.classList.toggle("fk-no", !!no);
        if (alt) chart.setAttribute("aria-label", named(no || alt));
        if (table?.open) fill();
      } while (again);
      busy = false;
      figure.dataset.settled = JSON.stringify(state);
    }
    function fill() {
      if (!view) return;
      const data = rows ? view.data("fk_rows") : [Object.fromEntries(columns.map(({name}) => [name, view.signal(name)]))];
      table.querySelector("tbody").replaceChildren(...data.map(row => {
        const tr = document.createElement("tr");
        tr.append(...columns.map(column => Object.assign(document.createElement("td"), {textContent: say(column, row[column.name], row[column.instead])})));
        return tr;
      }));
    }
    const takes = (key, value) => inputs[key]?.type === "range" && (controls[key].values.some(v => v % 1) || Number.isSafeInteger(value)) && value >= controls[key].values[0];
    function link() {
      const url = new URL(location.href), kept = [...url.searchParams].filter(([key]) => !key.startsWith(name + "."));
      url.search = new URLSearchParams([...kept, ...Object.keys(state).filter(key => state[key] !== start[key]).map(key => [`${name}.${key}`, state[key]])]);
      url.hash = name;
      return url.href;
    }
    function fromLink() {
      const found = {};
      for (const [full, text] of new URLSearchParams(location.search)) {
        const key = full.startsWith(name + ".") && full.slice(name.length + 1);
        if (!Object.hasOwn(controls, key)) continue;
        const {values} = controls[key], i = values.findIndex(value => String(value) === text);
        if (i >= 0) found[key] = values[i];
        else if (paste && /^\d+$/.test(text) && takes(key, +text)) found[key] = +text;
      }
      return found;
    }
    function move(values) { set(values); figure.dispatchEvent(new Event("fk-set")); }   // by the reader's hand: a kernel may listen
    for (const [key, input] of Object.entries(inputs)) input.addEventListener("input", () => {
      move({[key]: input.type === "checkbox" ? input.checked : controls[key].values[input.type === "range" ? input.value : input.selectedIndex]});
    });
    preset?.addEventListener("input", () => preset.selectedIndex && move(presets[preset.selectedIndex - 1]));
    one(".fk-reset")?.addEventListener("click", () => { move(start); status.textContent = ""; });
    one(".fk-link")?.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(link()); status.textContent = "Link copied"; }
      catch { status.replaceChildren(Object.assign(document.createElement("a"), {href: link(), textContent: "Link to this setting"})); }
    });
    table?.addEventListener("toggle", () => table.open && fill());
    all(figure, ".fk-group ~ .fk-group").forEach(group => { group.open = false; });
    if (paste) window.flopkitPaste?.(figure, paste, {inputs, controls, state, takes, move, format});
    set({...start, ...one(".fk-link") && fromLink()});
    figure.dataset.ready = "soon";

    async function draw() {
      await vega();
      const host = document.createElement("div");
      host.className = "fk-live";
      chart.append(host);  // in the page before it is drawn: its width is measured
      view = window.flopkitVega(host, spec);
      host.querySelector("svg")?.setAttribute("aria-hidden", "true");
      await update();
      let size = host.clientWidth + "," + host.clientHeight;
      chart.replaceChildren(host);
      host.classList.add("fk-drawn");
      if (fluid) new ResizeObserver(() => {
        const {clientWidth: width, clientHeight: height} = host;
        // Were the new size that inside the axes, by chance, the view would see no change.
        const other = (now, held) => now + (now === held) / 100;
        if (width && height && width + "," + height !== size) view.width(other(width, view.width())).height(other(height, view.height())).runAsync();
        size = width + "," + height;
      }).observe(host);
      figure.dataset.ready = "yes";
    }
    function failed(error) {
      set(start);  // what is shown was computed for these, or is taken away
      stopped = true;
      one(".fk-live")?.remove();
      if (figure.dataset.settled) all(figure, "data").forEach(data => { data.textContent = "–"; });
      stop(figure, error);
    }
    const near = new IntersectionObserver(entries => {
      if (!entries.some(entry => entry.isIntersecting)) return;
      near.disconnect();
      draw().catch(failed);
    }, {rootMargin: "600px"});
    near.observe(figure);
    return {set, state};
  }

  const scan = () => all(document, "figure.fk-figure:not([data-ready])").forEach(figure => {
    try { mount(figure); } catch (error) { stop(figure, error); }   // the others go on
  });
  window.flopkitFigures = {scan, mount, format};
  if (document.readyState === "loading") addEventListener("DOMContentLoaded", scan); else scan();
})();
