/* A click on a head sorts its table: numbers by size, the largest first, words by letter; a second click turns it round. */
document.addEventListener("DOMContentLoaded", () => {
  const sizes = {k: 1e3, M: 1e6, G: 1e9, T: 1e12, P: 1e15};
  const value = cell => {
    const [, number, prefix] = cell.textContent.trim().replaceAll(",", "").match(/^(-?[\d.]+)\s*([kMGTP])?/) ?? [];
    return number === undefined ? null : number * (sizes[prefix] ?? 1);
  };
  for (const table of document.querySelectorAll("#hardware table")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.className = "fk-sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const first = column ? "descending" : "ascending";
        const now = head.ariaSort === first ? (column ? "ascending" : "descending") : first;
        for (const other of heads) other.ariaSort = null;
        head.ariaSort = now;
        const sign = now === "ascending" ? 1 : -1;
        const rows = [...body.rows].map(row => [row, column ? value(row.cells[column]) : row.cells[0].textContent.trim()]);
        rows.sort(([, a], [, b]) => a === null || b === null ? (a === null) - (b === null)  // what is not known comes last
          : sign * (column ? a - b : a.localeCompare(b, "en", {numeric: true})));
        body.append(...rows.map(([row]) => row));
      });
    });
  }
});
