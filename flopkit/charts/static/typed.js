/* The text of a slider opens a box for a number: 8192, 8,192, 51k, 1.5M. */
window.flopkitTyped = (figure, {inputs = {}, controls, state, takes, move, format}) => {
  const status = figure.querySelector(".fk-status"), fine = key => controls[key].values.some(value => value % 1);   // 2.5 dollars
  function typable(key, input) {
    const text = input.parentNode.querySelector(".fk-value"), label = input.parentNode.querySelector("label").textContent;
    function open() {
      if (input.disabled) return;
      const box = Object.assign(document.createElement("input"), {type: "text", inputMode: "decimal", className: "fk-typed", autocomplete: "off", value: state[key]});
      box.setAttribute("aria-label", label + ", typed");
      let done = false;                                       // taking the box away takes its focus away, too
      const close = taken => {
        if (done) return;
        done = true;
        const [, digits, scale] = box.value.replace(/[\s,_]/g, "").match(/^(\d+\.?\d*)([kmgtb]?)$/i) ?? [];
        const exact = digits * 1000 ** (1 + "kmgt".indexOf(scale?.toLowerCase().replace("b", "g") || "-")), value = fine(key) ? exact : Math.round(exact);
        text.hidden = false;
        box.remove();
        if (taken && value !== state[key]) {
          if (takes(key, value)) move({[key]: value});
          status.textContent = state[key] === value ? "" : `${label}: give a number from ${format(controls[key].values[0])} on, such as 6,000 or 6k`;
        }
      };
      box.addEventListener("keydown", event => {
        if (event.key === "Enter" || event.key === "Escape") { event.preventDefault(); close(event.key === "Enter"); text.focus(); }
      });
      box.addEventListener("blur", () => close(true));
      text.hidden = true;
      text.after(box);
      box.select();
    }
    Object.assign(text, {role: "button", tabIndex: 0, title: "Type a number"});
    text.addEventListener("click", open);
    text.addEventListener("keydown", event => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); }
    });
  }
  Object.entries(inputs).forEach(([key, input]) => input.type === "range" && typable(key, input));
};
