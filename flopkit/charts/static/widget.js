/* The same figure where a kernel listens: what the controls say goes to Python, what Python sets moves them. Stands behind figure.js. */
export default {
  render({model, el}) {
    el.innerHTML = model.get("page");
    const figure = el.querySelector("figure"), {set, state} = window.flopkitFigures.mount(figure);
    const moved = () => set(model.get("settings"));
    figure.addEventListener("fk-set", () => { model.set("settings", {...state}); model.save_changes(); });
    model.on("change:settings", moved);
    moved();
    return () => model.off("change:settings", moved);
  },
};
