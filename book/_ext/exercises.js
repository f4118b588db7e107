// Answers to exercises in a page without a kernel: flopkit/lessons/answers.py, function by function. Patterns and words come from there,
// by book/_ext/exercises.py; tests/data/answers.json tries both.
(() => {
  const SHARED = {};
  const at = (pattern, text, position) => { const found = new RegExp(pattern, "y"); found.lastIndex = position; const match = found.exec(text); return match && { ...match, end: found.lastIndex }; };
  const whole = (pattern, text) => new RegExp(`^(?:${pattern})$`).exec(text);
  const near = (a, b, rel) => Math.abs(a - b) <= rel * Math.abs(b);
  const exact = value => ({ value, digits: 99, half: 0 });
  const plain = text => SHARED.around.reduce((said, around) => said.replace(new RegExp(around, "g"), ""), text.trim().toLowerCase());
  const point = literal => /^[1-9][0-9]{0,2}([,_ ][0-9]{3})+(?![0-9])/.test(literal) ? literal.replace(/[,_ ]/g, "") : literal.replace(",", ".");

  // Arithmetic without eval: each takes the text and a position, and gives a value and the position behind it. What is no arithmetic throws.
  const sum = (text, from) => {
    let [value, end] = term(text, from), sign, right;
    while (sign = at(" *([-+])", text, end)) { [right, end] = term(text, sign.end); value = sign[1] === "+" ? value + right : value - right; }
    return [value, end];
  };
  const term = (text, from) => {
    let [value, end] = factor(text, from), sign, right;
    while (sign = at(" *([*/])", text, end)) { [right, end] = factor(text, sign.end); value = sign[1] === "*" ? value * right : value / right; }
    return [value, end];
  };
  const factor = (text, from) => {
    let value, end, found;
    if (found = at(" *([-+])", text, from)) { [value, end] = factor(text, found.end); return [found[1] === "-" ? -value : value, end]; }
    if (found = at(" *\\(", text, from)) {
      [value, end] = sum(text, found.end);
      if (!(found = at(" *\\)", text, end))) throw text;
      end = found.end;
    } else if (found = at(` *(${SHARED.literal})`, text, from)) { value = +point(found[1]); end = found.end; }
    else throw text;
    if (found = at(" *\\*\\*", text, end)) { const [power, behind] = factor(text, found.end); return [value ** power, behind]; }
    return [value, end];
  };

  const scaleOf = unit => {
    for (const [pattern, scales] of SHARED.units) { const found = whole(pattern, unit); if (found) return scales[found[1]]; }
    throw unit;
  };
  const read = typed => {
    let text = typed.trim();
    text = text.charAt(0).toLowerCase() + text.slice(1);
    const square = whole(SHARED.side, text);
    if (square) return exact(+square[1]);
    if (text.split(":").length === 2) {
      const [left, right] = text.split(":").map(read);
      return left && right && right.value ? right.value === 1 ? left : exact(left.value / right.value) : null;
    }
    for (const [pattern, into] of SHARED.rewritten) text = text.replace(new RegExp(pattern, "g"), into.replace(/\\(\d)/g, "$$$1"));
    const literal = at(`-?(?:${SHARED.literal})`, text, 0);
    let value, end, scale;
    try { [value, end] = sum(text, 0); scale = scaleOf(text.slice(end).trim().toLowerCase()); } catch { return null; }
    value *= scale;
    if (!Number.isFinite(value)) return null;
    if (!literal || literal.end !== end) return exact(value);
    const [mantissa, power] = point(literal[0]).toLowerCase().split("e"), [before, behind = ""] = mantissa.split(".");
    return { value, digits: (before + behind).replace(/^[-0]+/, "").length, half: 0.5 * scale * 10 ** ((power ?? 0) - behind.length) };
  };

  const remark = (text, { name, answer, rel, hints }) => {
    if (typeof answer !== "number") return plain(text) === plain(String(answer)) ? "" : (hints.find(([key]) => plain(String(key)) === plain(text)) ?? [0, SHARED.other])[1];
    const given = read(text);
    if (!given) return SHARED.unread;
    if (near(given.value, answer, Math.max(rel, 1e-9))) return "";
    if (Math.abs(given.value - answer) <= given.half * (1 + 1e-9)) return given.digits > 1 ? "" : (hints.find(([key]) => key === given.value) ?? [0, SHARED.digit])[1];  // "1" for 0.72 may be a belief
    const known = hints.filter(([key]) => typeof key === "number");
    if (answer) known.push(...SHARED.factors.map(([by, said, asked, more]) => [by * answer, said + (new RegExp(asked).test(name) ? more : "")]), [1 / answer, SHARED.inverse]);
    if (0 < answer && answer < 1) known.push([1 - answer, SHARED.rest]);
    const hint = known.find(([value]) => near(given.value, value, 1e-3) || (given.digits > 1 && Math.abs(given.value - value) <= given.half));
    if (hint) return hint[1];
    if (near(given.value, answer, 0.03)) return SHARED.close;
    const ratio = answer ? given.value / answer : 0, thousands = 0 < ratio && ratio < Infinity ? Math.round(Math.log10(ratio) / 3) : 0;
    if (thousands && near(ratio, 1000 ** thousands, 1e-3)) return SHARED.power.replace("{}", thousands);
    return given.value > answer ? SHARED.large : SHARED.small;
  };

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".fk-exercise").forEach(box => {
    const kept = JSON.parse(box.dataset.kept), form = box.querySelector("form");
    box.replaceChildren(form);
    form.hidden = false;
    form.addEventListener("submit", event => {
      event.preventDefault();
      const typed = form.querySelector("input").value, said = typed.trim() ? remark(typed, kept) : "";
      form.querySelector("output").value = !typed.trim() ? "Type an answer first." : said ? `Not yet: ${said}` : "Right.";
    });
  }));
})();
