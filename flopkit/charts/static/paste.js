/* Sets the controls of a figure from a pasted config.json, by a table that flopkit made of its own readers (flopkit/models/config_table.py). */
window.flopkitPaste = (figure, {table, unable = {}, texts = [], wholes = {}, formats, names = {}, others = {}, words = {}}, {controls, state, takes, move, ...more}) => {
  window.flopkitTyped?.(figure, {controls, state, takes, move, ...more});
  if (!table) { window.flopkitTasks?.(figure, {controls, state, takes, move, ...more}); return; }   // one of several, which share a box
  class Refused extends Error {}
  const refuse = text => { throw new Refused(text); };
  const cut = text => text.length > 60 ? text.slice(0, 57) + "…" : text;
  const show = value => cut(value instanceof Float || value === Infinity || value === -Infinity ? String(value) : JSON.stringify(value) ?? "nothing");
  const MOST = 1_000_000;                                       // characters: a config.json has some thousands

  /* A number that is written with a point or an exponent: no size, as in Python. */
  class Float extends Number {
    constructor(source) { super(source); this.source = source; }
    toString() { return this.source; }
  }
  const parse = text => JSON.parse(text, (_, value, context) =>    // an old browser tells no source, and takes 4096.0 for 4096
    typeof value === "number" && /[.e]/i.test(context?.source ?? "") ? new Float(context.source) : value);

  /* What Python takes for true. */
  const is = value => value !== null && typeof value === "object" ? value instanceof Float ? +value !== 0 : Object.keys(value).length > 0 : !!value;
  const bit = value => typeof value === "boolean" ? +value : value;
  const whole = (key, value, least = 1, most = Number.MAX_SAFE_INTEGER) => {
    if (Number.isSafeInteger(value) && value >= least && value <= most) return value;
    refuse(`${key} is ${show(value)}: ${typeof value === "number" && value > most ? `more than ${most.toLocaleString("en")} is not read` : `a whole number of at least ${least} is wanted`}.`);
  };

  /* The key of a value, and what stands there: [undefined, undefined] where nothing does, [undefined, value] for a family's own. */
  function lookup({keys, missing}, config) {
    const key = keys.find(key => config[key] != null);
    if (!key && missing !== undefined && !keys.some(key => Object.hasOwn(config, key))) return [undefined, missing];
    return [key, key && config[key]];
  }

  /* Refuses a default that is taken for a size which the file has under another name, or in the part of another tool. */
  function named_otherwise(keys, taken, config, kind) {
    const own = table[kind]?.own ?? [], key = keys.find(each => own.includes(each));
    for (const part of ["", ...words.parts ?? []])
      for (const word of words.sizes?.find(each => each.includes(key)) ?? []) {
        const said = (part ? Object(config[part]) : config)[word];
        if (Number.isSafeInteger(said) && said !== taken && (part || !own.includes(word)))
          refuse(`${key} is missing, and ${part && `${part}.`}${word}=${said} stands here, ${part ? "which is not read there" : `which is no key of a ${kind}`}: call it ${key}.`);
      }
  }

  function find(value, config, kind) {
    const get = value => find(value, config, kind);
    const raw = value => {                                      // a switch, a list: not a number yet
      if (value && "if" in Object(value)) return raw(is(raw(value.if)) ? value.then : value.or);
      if (Array.isArray(value) || !value?.keys) return get(value);
      const [, said] = lookup(value, config);
      return said === undefined && "else" in value ? get(value.else) : said;
    };
    if (value === null || typeof value !== "object" || Array.isArray(value)) return value;
    if ("keys" in value) {
      const [key, said] = lookup(value, config), several = value.one ? value.keys.filter(each => Number.isSafeInteger(config[each])) : [];
      if (new Set(several.map(each => config[each])).size > 1) refuse(`${several.map(each => `${each}=${config[each]}`).join(" and ")} are two numbers for one size: leave out the one that is wrong.`);
      if (value.strange?.includes(key) && said !== value.missing) {
        const own = value.keys.find(each => table[kind].own.includes(each));
        if (own && !Object.hasOwn(config, own)) refuse(`${own} is missing, and ${key}=${said} stands here, which is no key of a ${kind}: call it ${own}.`);
      }
      if (said !== undefined && key === undefined) named_otherwise(value.keys, said, config, kind);
      if (said !== undefined) return whole(key, said, value.zero ? 0 : 1, value.most);
      return "else" in value ? get(value.else) : refuse(`This configuration of a ${kind} lacks ${value.keys.map(show).join(" or ")}: add it; transformers' AutoConfig shows the default that it would use.`);
    }
    if ("flag" in value) {
      const said = raw(value.flag);
      return [0, 1].includes(bit(said)) ? !!said : refuse(`${value.flag.keys[0]} is ${show(said)}: true or false is wanted.`);
    }
    if ("if" in value) return get(is(raw(value.if)) ? value.then : value.or);
    if ("there" in value) return Object.hasOwn(config, value.there);
    if ("said" in value) {
      const [, word = value.else] = lookup({keys: value.said}, config);
      return value.as[word] ?? value.or;
    }
    if ("must" in value) {
      const [key, said] = lookup({keys: value.must, missing: value.missing}, config), right = get(value.is);
      if (said !== undefined && said !== right) refuse(`${key ?? value.must[0]} is ${show(said)}: in a ${kind} it must be ${show(right)}.`);
      return right;
    }
    if ("times" in value) return get(value.times[0]) * get(value.times[1]);
    if ("less" in value) return get(value.less[0]) - get(value.less[1]);
    if ("over" in value) {
      const [a, b] = value.over.map(get);
      return a % b ? refuse(`${a} is not divisible by ${b}: the size of a head would not be whole.`) : a / b;
    }
    if ("least" in value) return Math.min(...value.least.map(get));
    if ("now" in value) return state[value.now];
    if ("multiples" in value) {
      const every = get(value.multiples), end = get(value.upto), not = raw(value.not);
      if (!Array.isArray(not) || !not.every(Number.isSafeInteger)) refuse(`${value.not.keys[0]} is ${show(not)}: a list of whole numbers is wanted.`);
      const left = new Set(not);
      let found = 0;
      for (let i = get(value.from); every && i < end; i++) found += (i + 1) % every === 0 && !left.has(i);
      return found;
    }
    if ("listed" in value) {
      const [key, list] = lookup({keys: value.listed}, config), all = get(value.of);
      if (key && !Array.isArray(list)) refuse(`${key} is ${show(list)}: a list is wanted.`);
      if (!list?.length) return get(value.else);
      if (list.length !== all) refuse(`${key} has ${list.length} entries for ${all} layers.`);
      const odd = list.find(each => !value.known.includes(each));
      return odd === undefined ? list.filter(each => each === value.as).length : refuse(`${key}: this figure has no control for layers of the kind ${show(odd)}.`);
    }
    refuse(`The table has ${show(value)}, which this page cannot read.`);
  }

  const plain = name => name.replace(/[\s_.-]/g, "").toLowerCase();

  /* The name that a text stands for, as flopkit.load reads it: the catalogue's own, or a publisher's id. */
  const spelled = Object.fromEntries([...Object.keys(names).map(name => [plain(name), name]), ...Object.entries(others)]);
  const named = text => text.length < 100 && Object.hasOwn(spelled, plain(text)) ? spelled[plain(text)] : undefined;
  function unknown(text) {
    if (!Object.keys(names).length || text.includes("=")) return "This is no JSON: paste a whole config.json.";
    const asked = plain(text.split("/").at(-1)), pairs = word => new Set([...word].slice(1).map((letter, i) => word[i] + letter)), own = pairs(asked);
    const alike = name => { const other = pairs(plain(name)); return [...own].filter(pair => other.has(pair)).length / (Math.max(own.size, other.size) || 1); };
    const near = Object.keys(names).map(name => [plain(name).startsWith(asked) + alike(name), name]).sort((a, b) => b[0] - a[0]).filter(([like]) => like > .5).slice(0, 4).map(([, name]) => name);
    return `“${cut(text)}” is none of the ${Object.keys(names).length} names that are known here.${near.length ? ` Did you mean ${near.join(", ")}?` : ""} Or paste the contents of its config.json.`;
  }

  /* What a model of text and more has besides its decoder. */
  const part = key => {
    const what = /^(vision|visual|vit|image|img|mm_vision)/.test(key) ? "pictures" : /^(audio|sound|acoustic|speech)/.test(key) ? "sound" : "";
    return what ? `the part for ${what} (${key})` : key;
  };

  /* The types whose names begin alike, else how many there are. */
  function near(kind) {
    const begin = kind.slice(0, 4), found = Object.keys(table).filter(each => each.startsWith(begin));
    return found.length ? ` Near are ${found.join(", ")}.` : ` ${Object.keys(table).length} types are; in Python flopkit.from_hf reads more, and flopkit.count_hf asks transformers for the rest.`;
  }

  /* Which option of a control a quantization_config names, and a sentence on what it says. */
  let pasted;
  function stored(outer, config) {
    const get = key => outer[key] ?? config[key], format = get("quantization_config") ?? get("compression_config") ?? get("quantization");
    if (format == null) return [state[formats.control] === pasted ? formats.first : undefined, ""];
    const same = (a, b) => !(a instanceof Float) && JSON.stringify(a ?? null) === JSON.stringify(b);
    const method = typeof format.quant_method === "string" ? ` (${cut(format.quant_method)})` : "", label = `“${formats.label}”`;
    const rule = formats.plain.some(each => same(get("dtype") ?? get("torch_dtype"), each))
      && formats.rules.find(({only}) => Object.entries(only).every(([key, values]) => values.some(each => same(format[key] ?? (key === "expert_dtype" ? get(key) : null), each))));
    if (!rule) return [undefined, ` Its quantization_config${method} was not read: set ${label}.`];
    const unread = Object.entries(rule.unread).filter(([, keys]) => keys.some(key => format[key] != null)).map(([what]) => what);
    return [rule.option, ` Its quantization_config${method} set ${label} to “${rule.option}”${rule.left ? `, without ${rule.left}` : ""}.${unread.length ? ` Not read: ${unread.join(", ")}.` : ""}`];
  }

  function settings(text) {
    if (text.length > MOST) refuse(`This has ${text.length.toLocaleString("en")} characters: paste one config.json, which has some thousands.`);
    let config;
    const marked = text.replace(/^\uFEFF/, "");
    try {
      try { config = parse(marked); } catch (error) {               // transformers writes numbers that JSON has not
        config = parse(marked.replace(/([[:,]\s*)-?(Infinity|NaN)(?=\s*[\],}])/g, "$1null"));
      }
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;         // too deep
      if (/^[^{}[\]"']+$/.test(text.trim())) refuse(unknown(text.trim()));
      refuse(`This is no JSON: ${cut(error.message)}.`);
    }
    if (config === null || typeof config !== "object" || Array.isArray(config)) refuse("This is no JSON object: paste a whole config.json.");
    const object = value => value !== null && typeof value === "object" && !Array.isArray(value);
    for (const [keys, what] of words.typed ?? [])
      if (keys.every(key => Object.hasOwn(config, key))) refuse(`${what[0].toUpperCase()}${what.slice(1)}.`);
    const {architectures, tie_word_embeddings: tied} = config, all = config, outer = config.model_type;
    const said = Array.isArray(architectures) ? architectures[0] : undefined;
    const own = ["hidden_size", "n_embd", "d_model"].some(key => Object.hasOwn(config, key));   // the numbers of its decoder stand beside it
    const inside = Object.hasOwn(table, outer) && own ? undefined : texts.find(key => object(config[key]));
    const whole = Object.hasOwn(wholes, outer) ? wholes[outer] : {}, flat = whole.flat ?? whole.classes?.[said];
    const apart = Object.keys(config).filter(key => key.endsWith("_config") && object(config[key]) && ![inside, "quantization_config", "compression_config"].includes(key));
    if (flat && inside === undefined) apart.push(...["mm_vision_tower", "img_processor"].filter(key => Object.hasOwn(config, key)));
    if (inside !== undefined) {                                   // of a model of text and images, the part for text
      const within = config[inside].tie_word_embeddings, usual = whole.part ? undefined : whole.tied ?? undefined;
      const type = config[inside].model_type ?? whole.type, part = within ?? (Object.hasOwn(table, type) ? table[type].set.tied?.flag?.missing : undefined);
      let found = whole.part ? undefined : tied ?? undefined;
      if (whole.handed && part === true) found = true;
      const by = String(config.transformers_version ?? "");         // transformers 4 asks the part, 5 the whole
      if (found === undefined && usual !== undefined && (within != null ? within !== usual : usual && part === false)) {
        if (by.startsWith("4.")) found = part;
        else if (within != null || !by.startsWith("5."))
          refuse(`tie_word_embeddings is ${within == null ? "missing" : `${show(within)} in ${inside}, and missing beside ${show(outer)}`}, where transformers 5 takes ${show(usual)}${within == null ? ` and transformers 4 ${show(part)}` : ""}: add it beside ${show(outer)}.`);
      }
      found ??= usual;
      if (whole.never && (found ?? within) === true) refuse(`tie_word_embeddings is true: transformers does not tie the head of a ${outer} to its embedding, whatever the file says; set it to false.`);
      config = {...whole.type ? {model_type: whole.type} : {}, ...config[inside], ...found === undefined ? {} : {tie_word_embeddings: found}};
    } else if (flat) config = {...config, model_type: flat};
    const kind = config.model_type, known = table[kind];
    if (typeof kind !== "string") refuse("This configuration has no \"model_type\": paste a whole config.json.");
    if (!Object.hasOwn(table, kind)) refuse(Object.hasOwn(unable, kind) ? unable[kind] : `The model_type ${show(kind)} is not described here.${near(kind)}`);
    if (typeof said === "string" && !/(ForCausalLM|LMHeadModel|ForConditionalGeneration)$/.test(said))
      refuse(`architectures names ${show(said)}: this figure is for models that write text. In Python flopkit.from_hf reads other classes, too.`);
    if (typeof said === "string" && inside === undefined && !flat && known.classes.length && ![...known.classes, plain(kind)].some(name => said.startsWith(name) || plain(said).startsWith(name)))
      refuse(`architectures names ${show(said)}, and a class of a ${kind} begins with ${known.classes.join(" or ")}: one of the two is wrong.`);
    const settled = value => value === null || typeof value !== "object" || Array.isArray(value) ? value : find(value, config, kind);
    if (all.is_causal === false || config.is_causal === false)
      refuse("is_causal is false: in this figure a token sees those before it alone. In Python flopkit.from_hf reads it.");
    for (const {keys, only, narrow, ...rest} of known.refused) {
      const right = only.map(settled), key = keys.find(key => config[key] != null);
      const said = key ? config[key] : keys.some(key => Object.hasOwn(config, key)) ? right[0] : settled(rest.else);
      if (!right.some(each => narrow && typeof each === "number" ? each === said : bit(each) === bit(said)))
        refuse(`${key ?? keys[0]} is ${show(said)}: ${narrow ? "this figure has no control for that. In Python flopkit.from_hf reads it" : `this box reads ${kind} only with ${right.map(show).join(", ")}`}.`);
    }
    for (const keys of known.needed)
      if (!Array.isArray(keys)) find(keys, config, kind);       // which says what it lacks
      else if (!keys.some((key, place) => place ? Object.hasOwn(config, key) : config[key] != null))
        refuse(`This configuration of a ${kind} lacks ${keys.map(show).join(" or ")}: add it.`);
    const found = {};
    for (const [name, value] of Object.entries(known.set)) {
      found[name] = find(value, config, kind);
      const {values} = controls[name];
      if (!(values.includes(found[name]) || takes(name, found[name])))
        refuse(`${value?.keys?.find(key => config[key] != null) ?? name} is ${show(found[name])}: a whole number of at least ${values[0]} is wanted.`);
    }
    const [option, told] = formats ? stored(all, config) : [undefined, ""];
    if (option !== undefined) found[formats.control] = option;
    return [kind, found, told, apart];
  }

  const box = figure.querySelector(".fk-paste"), area = box.querySelector("textarea"), status = box.querySelector("[role=status]");
  area.addEventListener("input", () => {
    status.textContent = "";
    if (!area.value.trim()) return;
    let kind, found, told, apart;
    const name = named(area.value.trim());
    try { [kind, found, told, apart] = settings(name ? JSON.stringify(names[name]) : area.value); } catch (error) {
      status.textContent = `${error instanceof Refused ? error.message : "This could not be read."} Nothing was changed.`;
      return;
    }
    move(found);
    pasted = formats && found[formats.control];
    (figure.fkRead ??= []).unshift([name ? `fk.load("${name}")` : 'fk.from_hf("config.json")', found]);
    figure.dispatchEvent(new Event("fk-read"));
    status.textContent = name ? `${name}: ${Object.keys(found).length} controls set.${told}` : `Read as a ${kind}: ${Object.keys(found).length} controls set.${apart.length ? ` Left out: ${apart.map(part).join(", ")}.` : ""}${told}`;
  });
  box.hidden = false;
};
