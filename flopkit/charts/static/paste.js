/* Sets the controls of a figure from a pasted config.json, by a table that flopkit made of its own readers (flopkit/models/config_table.py). */
window.flopkitPaste = (figure, {table, unable}, {controls, state, takes, move}) => {
  class Refused extends Error {}
  const refuse = text => { throw new Refused(text); };
  const show = value => JSON.stringify(value) ?? "nothing";

  function find(value, config, kind) {
    const get = value => find(value, config, kind);
    const number = value => {
      const found = get(value);
      if (typeof found === "number" && Number.isFinite(found)) return found;
      refuse(`${value?.keys?.find(key => config[key] != null) ?? "a number"} is ${show(found)}: a number is wanted.`);
    };
    if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
    if ("keys" in value) {
      const key = value.keys.find(key => config[key] != null);
      return key ? config[key] : "else" in value ? get(value.else) : refuse(`This configuration of a ${kind} lacks ${value.keys.map(show).join(" or ")}: write it in; transformers fills such a gap with a default of its own.`);
    }
    if ("flag" in value) return !!get(value.flag);
    if ("if" in value) return get(get(value.if) ? value.then : value.or);
    if ("times" in value) return number(value.times[0]) * number(value.times[1]);
    if ("less" in value) return number(value.less[0]) - number(value.less[1]);
    if ("over" in value) {
      const [a, b] = value.over.map(number);
      return a % b ? refuse(`${a} is not divisible by ${b}: the size of a head would not be whole.`) : a / b;
    }
    if ("least" in value) return Math.min(...value.least.map(number));
    if ("now" in value) return state[value.now];
    if ("multiples" in value) {
      const every = number(value.multiples), end = number(value.upto), not = get(value.not) ?? [];
      let found = 0;
      for (let i = number(value.from); every && i < end; i++) found += (i + 1) % every === 0 && !not.includes(i);
      return found;
    }
    if ("listed" in value) {
      const key = value.listed.find(key => config[key] != null), list = config[key], all = number(value.of);
      if (!list) return get(value.else);
      if (list.length !== all) refuse(`${key} has ${list.length} entries for ${all} layers.`);
      const odd = list.find(each => !value.known.includes(each));
      return odd === undefined ? list.filter(each => each === value.as).length : refuse(`${key}: this figure has no control for layers of the kind ${show(odd)}.`);
    }
    refuse(`The table has ${show(value)}, which this page cannot read.`);
  }

  function settings(text) {
    let config;
    try { config = JSON.parse(text); } catch (error) { refuse(`This is no JSON: ${error.message}.`); }
    if (config === null || typeof config !== "object" || Array.isArray(config)) refuse("This is no JSON object: paste a whole config.json.");
    if (config.text_config && typeof config.text_config === "object") {    // of a model of text and images, the part for text
      const {tie_word_embeddings: tied} = config;
      config = {...config.text_config, ...tied === undefined ? {} : {tie_word_embeddings: tied}};
    }
    const kind = config.model_type, known = table[kind];
    if (typeof kind !== "string") refuse("This configuration has no \"model_type\": paste a whole config.json.");
    if (!Object.hasOwn(table, kind)) refuse(Object.hasOwn(unable, kind) ? unable[kind] : `The model_type ${show(kind)} is not described here. Known are ${Object.keys(table).join(", ")}.`);
    for (const {keys, only, ...rest} of known.refused) {
      const key = keys.find(key => config[key] != null), said = key ? config[key] : rest.else;
      if (!only.some(each => show(each) === show(said))) refuse(`${key} is ${show(said)}: a ${kind} with that is not described here, only ${only.map(show).join(", ")}.`);
    }
    const found = {};
    for (const [name, value] of Object.entries(known.set)) {
      found[name] = find(value, config, kind);
      const {values} = controls[name];
      if (!(values.includes(found[name]) || takes(name, found[name])))
        refuse(`${value?.keys?.find(key => config[key] != null) ?? name} is ${show(found[name])}: a whole number of at least ${values[0]} is wanted.`);
    }
    return [kind, found];
  }

  const box = figure.querySelector(".fk-paste"), area = box.querySelector("textarea"), status = box.querySelector("[role=status]");
  area.addEventListener("input", () => {
    if (!area.value.trim()) { status.textContent = ""; return; }
    try {
      const [kind, found] = settings(area.value);
      move(found);
      status.textContent = `Read as a ${kind}: ${Object.keys(found).length} controls set.`;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      status.textContent = `${error.message} Nothing was changed.`;
    }
  });
  box.hidden = false;
};
