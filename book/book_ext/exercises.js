// Answers to exercises in a page without a kernel: flopkit/book/lessons/typed.py and answers.py, function by function. Patterns and words come
// from notation.py and answers.py beside them, by book/book_ext/exercises.py; tests/data/answers.json and exercises.json try both.
(() => {
  const SHARED = {};
  const at = (pattern, text, position) => { const found = new RegExp(pattern, "y"); found.lastIndex = position; const match = found.exec(text); return match && { ...match, end: found.lastIndex }; };
  const whole = (pattern, text) => new RegExp(`^(?:${pattern})$`).exec(text);
  const near = (a, b, rel) => Math.abs(a - b) <= rel * Math.abs(b);
  const say = (words, ...parts) => words.replace(/\{\}/g, () => parts.shift());
  const plain = text => SHARED.around.reduce((said, around) => said.replace(new RegExp(around, "g"), ""), text.trim().toLowerCase());
  const thousands = /^[1-9][0-9]{0,2}([,_ '’][0-9]{3})+(?![0-9])/;
  const point = literal => thousands.test(literal) ? literal.replace(/[,_ '’]/g, "") : literal.replace(",", ".");

  // Arithmetic without eval: each takes the text and a position, and gives a value and the position behind it. What is no arithmetic throws.
  const sum = (text, from) => {
    let [value, end] = term(text, from), sign, right;
    while (sign = at(" *([-+])", text, end)) { [right, end] = term(text, sign.end); value = sign[1] === "+" ? value + right : value - right; }
    return [value, end];
  };
  const term = (text, from) => {
    let [value, end] = factor(text, from), sign, right;
    while (sign = at(SHARED.times, text, end)) { [right, end] = factor(text, sign.end); value = sign[1] === "*" ? value * right : value / right; }
    return [value, end];
  };
  const factor = (text, from) => {
    const sign = at(" *([-+])", text, from);
    if (sign) { const [value, end] = factor(text, sign.end); return [sign[1] === "-" ? -value : value, end]; }
    const [value, end] = atom(text, from), raised = at(" *\\*\\*", text, end);
    if (!raised) return [value, end];
    const [power, behind] = factor(text, raised.end);
    return [value ** power, behind];
  };
  const atom = (text, from) => {
    let found;
    if (found = at(" *(exp|sqrt|√)", text, from)) { const [value, end] = atom(text, found.end); return [found[1] === "exp" ? Math.exp(value) : Math.sqrt(value), end]; }
    if (found = at(" *\\(", text, from)) {
      const [value, end] = sum(text, found.end), closed = at(" *\\)", text, end);
      if (!closed) throw text;
      return [value, closed.end];
    }
    if (found = at(" *e(?= *\\*\\*)", text, from)) return [Math.E, found.end];
    if (found = at(` *(${SHARED.literal})`, text, from)) return [+point(found[1]), found.end];
    throw text;
  };

  const scaleOf = (rest, kind) => {
    if (!rest) return 0;
    const small = SHARED.unprefixed.includes(kind), every = Object.values(SHARED.kinds).flat();
    const billion = ["", "bytes", "bytes/s"].includes(kind) || small ? [] : [SHARED.billion];
    for (const [pattern, scales] of [...SHARED.kinds[kind] ?? [], ...billion, ...kind ? [] : every]) {
      const found = whole(pattern + SHARED.end, rest);
      if (found) return scales[found[1]];
    }
    const [prefix, scales] = SHARED.alone, strict = SHARED.strict.includes(kind), found = whole(prefix + (strict ? "" : SHARED.end), rest);
    if (found?.[1]) return small ? null : scales[found[1]];
    const foreign = strict || every.some(([pattern]) => whole(pattern + SHARED.end, rest));
    return foreign || /[0-9]/.test(rest) ? null : 0;
  };
  const rewritten = (text, { unit, kind }) => {
    text = text.trim().toLowerCase();
    for (const [pattern, into, ...kinds] of SHARED.rewritten) if (!kinds.length || kinds.includes(kind) || kinds.includes(unit)) text = text.replace(new RegExp(pattern, "g"), into.replace(/\\(\d)/g, "$$$1"));
    return text;
  };
  const letter = (text, box) => {
    const said = rewritten(text, box), found = at(SHARED.formula, said, 0)?.[1] ?? (Object.keys(box.letters).some(name => name.toLowerCase() === said) ? said : "");
    return found && text[text.toLowerCase().lastIndexOf(found)];
  };
  const read = (typed, box) => {
    const { unit, kind, scale } = box;
    const text = rewritten(typed, box);
    if (text.split(":").length === 2) {
      const [left, right] = text.split(":").map(part => read(part, box));
      if (typeof left === "string" || typeof right === "string" || !right.value) return SHARED.unread;
      return right.value === 1 ? left : { value: left.value / right.value, digits: 99, half: 0, zeros: 0, bare: false };
    }
    const literal = at(`-?(?:${SHARED.literal})`, text, 0);
    let value, end;
    try { [value, end] = sum(text, 0); } catch { return SHARED.unread; }
    const rest = text.slice(end).trim();
    let by = scaleOf(rest.replace(new RegExp(SHARED.beside, "g"), "").trim(), kind);
    if (by === null) {
      const found = typed.toLowerCase().lastIndexOf(rest);  // shown as it was written: "GB"
      return !unit || /[0-9]/.test(rest) ? SHARED.unread : say(SHARED.foreign, unit === "×" ? "as a factor" : `in ${unit}`, found < 0 ? rest : typed.slice(found, found + rest.length));
    }
    const bare = by === 0;
    by = bare ? 1 : by / scale;
    value *= by;
    if (!Number.isFinite(value)) return SHARED.unread;
    if (!literal || literal.end !== end) return { value, digits: 99, half: 0, zeros: 0, bare };
    const [mantissa, power] = point(literal[0]).split("e"), [before, behind = ""] = mantissa.split("."), figures = (before + behind).replace(/^[-0]+/, "");
    const zeros = mantissa.includes(".") ? 0 : figures.length - figures.replace(/0+$/, "").length;
    return { value, digits: figures.length, half: 0.5 * by * 10 ** ((power ?? 0) - behind.length), zeros, bare };
  };

  const chosen = (answer, { choices }) => {
    const said = plain(answer), letter = whole(SHARED.letter, said), keys = Object.keys(choices);
    const named = keys.filter(key => letter && plain(key) === (letter[1] || letter[2]));
    return named.length ? named : keys.filter(key => [...choices[key], ...key.length > 1 ? [key] : []].some(word => new RegExp(`(?<![a-z])${word}(?![a-z])`).test(said)));
  };
  const ofWords = (typed, box) => {
    const found = chosen(typed, box), said = [typed, ...found].map(plain);
    if (found.length > 1) return say(SHARED.several, Object.keys(box.choices).join(", "));
    if (said.includes(plain(String(box.answer)))) return "";
    const hint = box.hints.find(([key]) => [String(key), ...chosen(String(key), box)].some(each => said.includes(plain(each)))), keys = Object.keys(box.choices);
    return hint ? hint[1] : keys.length && !found.length ? say(SHARED.none, keys.join(", ")) : SHARED.other;
  };
  const rounds = (answer, value, half) => {
    const apart = Math.abs(value - answer), most = half * (1 + 1e-9), step = half / 5;
    return apart <= most || apart < 1.2 * half && Math.abs(value - step * Math.floor(answer / step + 0.5)) <= most;
  };
  const apart = (value, answer) => answer && value / answer > 0 ? Math.abs(Math.log(value / answer)) : Infinity;
  const remark = (typed, box) => {
    const { answer, rel, kind, hints } = box;
    if (typeof answer !== "number") return ofWords(typed, box);
    if (box.same && whole(SHARED.stays, typed.trim().toLowerCase())) typed = box.same;
    const symbol = letter(typed.trim(), box);
    if (symbol) return say(SHARED.symbol, Object.entries(box.letters).filter(([name]) => name.toLowerCase() === symbol.toLowerCase()).map(each => each.join(": "))[0] ?? symbol);
    const typed_ = read(typed, box);
    if (typeof typed_ === "string") return typed_;
    const readings = [typed_];
    if (kind === "%" && typed_.bare) readings.push({ ...typed_, value: typed_.value / 100, half: typed_.half / 100 });
    const exact = rel <= 1e-9 && Number.isInteger(answer);
    if (exact && SHARED.counted.includes(kind) && at(SHARED.bound, typed.toLowerCase(), 0)) return SHARED.outside;
    const tolerance = exact && typed_.half === 0.5 ? 0 : Math.max(rel, 1e-9);
    if (readings.some(each => near(each.value, answer, tolerance))) return "";
    for (const each of readings) {
      const rounded = exact && SHARED.counted.includes(kind) && each.half > 0.5 ? [] : [[each.digits, each.half]];
      if (!exact || SHARED.strict.includes(kind) && each.digits - each.zeros >= box.digits) rounded.push([each.digits - each.zeros, each.half * 10 ** each.zeros]);
      const enough = rounded.filter(([, half]) => rounds(answer, each.value, half));
      if (enough.some(([digits]) => digits >= box.digits)) return "";
      if (enough.length) return (hints.find(([key]) => key === each.value) ?? [0, say(SHARED.digit, SHARED.digits[box.digits])])[1];
    }
    return reason(typed.trim(), readings, box);
  };
  const reason = (text, readings, box) => {
    const { answer, rel, kind, unit, hints } = box;
    const given = apart(readings[0].value, answer) <= apart(readings.at(-1).value, answer) ? readings[0] : readings.at(-1), known = [];
    if (answer) known.push([1 / answer, SHARED.inverse], ...SHARED.factors.map(([by, said, kinds, more]) => [by * answer, said + (kinds.includes(kind) ? more : "")]));
    if (0 < answer && answer < 1 && ["", "%", "×"].includes(kind)) known.push([1 - answer, SHARED.rest]);
    if (answer > 1 && kind === "×") known.push([answer - 1, SHARED.more]);
    const own = hints.filter(([key]) => typeof key === "number");
    const meets = (each, value) => near(each.value, value, 1e-3) || (each.digits > 1 && Math.abs(each.value - value) <= each.half);
    const believed = readings.flatMap(each => own.filter(([value]) => meets(each, value)).map(([value, said]) => [Math.abs(each.value - value), said]));
    if (believed.length) return believed.reduce((best, next) => next[0] < best[0] ? next : best)[1];  // the nearest of them
    const prefix = ["bytes", "bytes/s"].includes(kind) && new RegExp(SHARED.decimal).exec(text.toLowerCase()), end = prefix && prefix.index + 1;
    if (prefix && !remark(`${text.slice(0, end)}i${text.slice(end)}`, { ...box, hints: [] })) return say(SHARED.binary, text[prefix.index], prefix[1].toUpperCase());
    const hint = known.find(([value]) => meets(given, value));
    if (hint) return hint[1];
    if (near(given.value, answer, 0.03)) return SHARED.close;
    const ratio = answer ? given.value / answer : 0, power = 0 < ratio && ratio < Infinity ? Math.round(Math.log10(ratio) / 3) : 0;
    const words = given.value > answer ? SHARED.large : SHARED.small;
    if (!power || !near(ratio, 1000 ** power, Math.max(1e-3, rel, given.half / Math.abs(given.value)))) return words;
    const taken = given.bare && SHARED.strict.includes(kind) ? say(SHARED.taken, unit) : "";
    return say(SHARED.power, SHARED.powers[Math.abs(power)] ?? `10^${3 * Math.abs(power)}`, words) + (power === 1 && text.split(",").length === 2 ? SHARED.comma : taken);
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
