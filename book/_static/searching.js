/* What Sphinx's own scripts trip over: https://github.com/sphinx-doc/sphinx/issues/13096, and a page that marks hundreds of words for minutes. */
(() => {
  const few = text => [...new Set(text.toLowerCase().split(/\s+/))].filter(word => word.length > 1).slice(0, 10).join(" ");
  const url = new URL(location.href), asked = url.searchParams.get("highlight"), kept = localStorage.getItem("sphinx_highlight_terms");
  if (kept) localStorage.setItem("sphinx_highlight_terms", few(kept));
  if (asked) {
    url.searchParams.set("highlight", few(asked));
    history.replaceState({}, "", url);
  }
  // Before Search.init: a word such as "constructor" is in the index only where it is its own entry.
  const {hasOwnProperty} = Object.prototype, bare = Object.create(null, {hasOwnProperty: {value: hasOwnProperty}});
  document.addEventListener("DOMContentLoaded", () => {
    if (typeof Search === "undefined" || !Search._index) return;
    for (const name of ["terms", "titleterms"]) Object.setPrototypeOf(Search._index[name], bare);
  });
})();
