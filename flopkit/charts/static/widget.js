/* The same figure where a kernel listens: what the controls say goes to Python, what Python sets moves them. Stands behind the other scripts. */
export default {
  render({model, el}) {
    el.innerHTML = model.get("page");
    const several = el.querySelector(".fk-tasks"), root = several ?? el.querySelector("figure");
    if (several) window.flopkitTabs(several);
    const [{set, state}] = [...el.querySelectorAll("figure")].map(figure => window.flopkitFigures.mount(figure));
    el.querySelectorAll(".fk-code").forEach(fold => window.flopkitCode(fold));
    const talk = several?.fk ?? {set, settings: () => ({...state})}, moved = () => talk.set(model.get("settings"));
    root.addEventListener("fk-set", () => { model.set("settings", talk.settings()); model.save_changes(); });
    model.on("change:settings", moved);
    moved();
    return () => model.off("change:settings", moved);
  },
};
