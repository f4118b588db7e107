// Answers to exercises in a page without a kernel: what flopkit.lessons.check does in a notebook. The factors come from there, by book/_ext/exercises.py.
(() => {
  const FACTORS = [], INVERSE = "", REST = "";
  const SCALE = { "": 1, k: 1e3, K: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15, E: 1e18, m: 1e-3, µ: 1e-6, n: 1e-9, Ki: 2 ** 10, Mi: 2 ** 20, Gi: 2 ** 30, Ti: 2 ** 40 };

  // 3.14×10²³, 65.13·10^12 or 2*10**9 with an e in place of the power; then 40·8·64 with stars.
  const WORDS = { thousand: 3, million: 6, billion: 9, trillion: 12 };
  const RAISED = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const exponent = text => [...text].map(sign => sign === "⁻" || sign === "−" ? "-" : RAISED.includes(sign) ? RAISED.indexOf(sign) : sign).join("");
  const plainly = text => text.replace(/(?<=\d)\s*[x×·*]\s*10(?:\s*(?:\^|\*\*)\s*([-−+]?\d+)|(⁻?[⁰¹²³⁴⁵⁶⁷⁸⁹]+))/g, (_, plain, raised) => `e${exponent(plain ?? raised)}`)
    .replace(/(?<=\d)\s*(thousand|million|billion|trillion)\b/, (_, word) => `e${WORDS[word]}`);
  const WORD = /^["“”'‘’]+|["“”'‘’.!]+$/g, ARTICLE = /^(?:it is )?(?:an? |the )?/;

  // A number as people write it: 33.55 MB, 3.8 billion (the M of MACs is no prefix), 0.488 %, 1,5, 5 × 5, 3.14×10²³ or 2*3/4; with half of what its last digit stands for.
  const read = typed => {
    const square = /^(\d+)\s*[x×]\s*\1$/.exec(typed.trim());
    if (square) return { value: +square[1], digits: 9, half: 0 };
    const text = plainly(typed), sum = text.replace(/[·×]/g, "*");
    if (/^[\d.()+*\/\se-]*\d\s*[+*\/-][\d.()+*\/\se-]*$/.test(sum)) {
      try { return { value: Function(`return ${sum}`)(), digits: 9, half: 0 }; } catch { return null; }
    }
    const grouped = /^\s*[-−]?\d{1,3}([, _]\d{3})+(?!\d)/.test(text);
    const plain = (grouped ? text.replace(/,/g, "") : text.replace(",", ".")).replace(/[\s_]/g, "").replace("−", "-").replace(/^[≈~]/, "").replace(/percent$/, "%");
    const found = /^(-?(\d*)\.?(\d*)(?:e([-+]?\d+))?)([kKMGTPE]i?(?!l|ACs?$)|[mµn](?=s$))?([A-Za-z/×]*|%)$/.exec(plain);
    if (!found || !(found[2] + found[3])) return null;
    const [, mantissa, whole, part, power, prefix, unit] = found;
    const scale = SCALE[prefix ?? ""] * (unit === "%" ? 0.01 : 1);
    return { value: mantissa * scale, digits: (whole + part).replace(/^0+/, "").length, half: 0.5 * scale * 10 ** ((power ?? 0) - part.length) };
  };
  const near = (a, b, rel) => Math.abs(a - b) <= rel * Math.abs(b);

  const reply = (text, { answer, rel, hints }) => {
    if (!text.trim()) return "Type an answer first.";
    const said = text.trim().toLowerCase(), word = String(answer).toLowerCase();
    if (typeof answer !== "number") return said === word || said.replace(WORD, "").replace(ARTICLE, "").replace(WORD, "") === word ? "Right." : "Not yet: that is not what is asked for.";
    const given = read(text);
    if (!given) return "Not a number that can be read here: write 1,234 or 7.25 GB or 12 %.";
    const off = Math.abs(given.value - answer), rounded = off <= given.half * (1 + 1e-9);
    if (near(given.value, answer, Math.max(rel, 1e-9)) || (given.digits > 1 && rounded)) return "Right.";
    if (rounded) return "Close: one more digit, please.";
    const hint = hints.find(([value]) => near(given.value, value, 1e-3)) ?? FACTORS.find(([factor]) => near(given.value, factor * answer, 1e-3))
      ?? [[1 / answer, INVERSE], [0 < answer && answer < 1 ? 1 - answer : NaN, REST]].find(([value]) => near(given.value, value, Math.max(1e-3, given.half / Math.abs(value))));
    if (hint) return `Not yet: ${hint[1]}`;
    if (near(given.value, answer, 0.03)) return "Close, but not to the last digit.";
    return `Not yet: too ${given.value > answer ? "large" : "small"}.`;
  };

  document.addEventListener("DOMContentLoaded", () => document.querySelectorAll(".fk-exercise").forEach(box => {
    const kept = JSON.parse(box.dataset.kept), form = box.querySelector("form");
    box.replaceChildren(form);
    form.hidden = false;
    form.addEventListener("submit", event => {
      event.preventDefault();
      form.querySelector("output").value = reply(form.querySelector("input").value, kept);
    });
  }));
})();
