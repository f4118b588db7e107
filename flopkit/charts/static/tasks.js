/* Several figures of which one is seen: tabs, and settings that go with the reader from one to the next. See flopkit/charts/tasks.py. */
(window.flopkitTabs ??= box => {
  const all = what => [...box.querySelectorAll(what)], tabs = all("[role=tab]"), panels = all(".fk-task");
  const {controls, paste} = JSON.parse(box.querySelector(".fk-tasks-json").textContent), name = box.dataset.name;
  const start = Object.fromEntries(Object.entries(controls).map(([key, {start}]) => [key, start])), state = {...start}, faces = {};
  let now = tabs[0].dataset.task;
  let quiet = false;                                            // while Python sets, it is not told what it said
  const told = () => quiet || box.dispatchEvent(new Event("fk-set"));
  const whole = key => typeof start[key] === "number" && !controls[key].values.some(value => value % 1);
  const takes = (key, value) => typeof start[key] === "number" && (Number.isSafeInteger(value) || !whole(key) && Number.isFinite(value)) && value >= controls[key].values[0];
  const hand = () => faces[now]?.move(Object.fromEntries(Object.keys(faces[now].controls).map(key => [key, state[key]])));

  function show(task, focus) {
    if (!tabs.some(tab => tab.dataset.task === task)) return;
    now = task;
    for (const tab of tabs) {
      const on = tab.dataset.task === task;
      tab.setAttribute("aria-selected", on);
      tab.tabIndex = on ? 0 : -1;
      if (on && focus) tab.focus();
    }
    panels.forEach(panel => panel.classList.toggle("fk-on", panel.dataset.task === task));
    hand();
  }
  function set({task = now, ...values}) {
    Object.assign(state, values);
    if (task !== now) show(task); else hand();
  }
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => { show(tab.dataset.task); told(); });
    tab.addEventListener("keydown", event => {
      const to = {ArrowRight: i + 1, ArrowLeft: i - 1, Home: 0, End: tabs.length - 1}[event.key];
      if (to === undefined) return;
      event.preventDefault();
      show(tabs[(to + tabs.length) % tabs.length].dataset.task, true);
      told();
    });
  });

  /* The address holds the task, and all that is not as at first. */
  function link() {
    const url = new URL(location.href), kept = [...url.searchParams].filter(([key]) => !key.startsWith(name + "."));
    const moved = Object.keys(state).filter(key => state[key] !== start[key]).map(key => [`${name}.${key}`, state[key]]);
    url.search = new URLSearchParams([...kept, ...now === tabs[0].dataset.task ? [] : [[`${name}.task`, now]], ...moved]);
    url.hash = name;
    return url.href;
  }
  function fromLink() {
    const found = {};
    for (const [full, text] of new URLSearchParams(location.search)) {
      const key = full.startsWith(name + ".") && full.slice(name.length + 1);
      if (key === "task") found.task = text;
      if (!Object.hasOwn(controls, key)) continue;
      const value = controls[key].values.find(value => String(value) === text);
      if (value !== undefined) found[key] = value;
      else if (/^\d+(\.\d+)?$/.test(text) && takes(key, +text)) found[key] = +text;
    }
    return found;
  }
  function fromHash() {                                         // #calculator-serve, a link of the page's text
    const panel = panels.find(({dataset: {task}}) => location.hash === `#${name}-${task}`);
    if (!panel) return;
    show(panel.dataset.task);
    box.scrollIntoView();
  }
  box.addEventListener("click", async event => {
    const button = event.target.closest(".fk-link"), status = button?.parentNode.querySelector(".fk-status");
    if (!button) return;
    event.stopPropagation();                                    // the figure's own link would hold its own controls alone
    try { await navigator.clipboard.writeText(link()); status.textContent = "Link copied"; }
    catch { status.replaceChildren(Object.assign(document.createElement("a"), {href: link(), textContent: "Link to this setting"})); }
  }, true);
  box.addEventListener("click", event => {
    if (event.target.closest(".fk-reset")) { Object.assign(state, start); told(); }
  });

  all(".fk-group .fk-group").forEach(group => { group.open = false; });

  /* Labels of read-outs that name a control: "each device (1/8)". */
  new MutationObserver(changes => changes.forEach(({target}) => target.querySelectorAll("dt[data-label]").forEach(dt => {
    const said = dt.dataset.label.replace(/\{(\w+)\}/g, (_, key) => target.querySelector(`.fk-control:has([name="${key}"]) .fk-value`).textContent);
    if (dt.textContent !== said) dt.textContent = said;
  }))).observe(box, {subtree: true, attributeFilter: ["data-settled"]});

  /* Without a figure that computes, the box would set what nobody sees. */
  new MutationObserver(() => {
    const failed = box.querySelector('figure[data-ready="failed"]'), area = box.querySelector(".fk-paste textarea");
    if (!failed || !area) return;
    area.disabled = true;
    box.querySelector(".fk-paste [role=status]").textContent = failed.querySelector(".fk-status").textContent;
  }).observe(box, {subtree: true, attributeFilter: ["data-ready"]});

  /* Each figure comes when figure.js has mounted it; the last one begins. */
  box.fkJoin = (figure, api) => {
    faces[figure.closest(".fk-task").dataset.task] = api;
    figure.addEventListener("fk-set", () => {
      if (faces[now] !== api) return;
      Object.assign(state, api.state);
      told();
    });
    if (Object.keys(faces).length === panels.length) queueMicrotask(() => {
      if (paste) window.flopkitPaste?.(box, paste, {controls, state, takes, move: values => set(values)});
      set(box.querySelector(".fk-link") ? fromLink() : {});
      fromHash();
    });
  };
  addEventListener("hashchange", fromHash);
  box.fk = {settings: () => ({task: now, ...state}), set(values) { quiet = true; set(values); quiet = false; }};
});
window.flopkitTasks = (figure, api) => figure.closest(".fk-tasks").fkJoin?.(figure, api);
document.querySelectorAll(".fk-tasks:not([data-on])").forEach(box => { box.dataset.on = ""; window.flopkitTabs(box); });
