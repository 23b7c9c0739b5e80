// Keys beside Tab: j and k go from row to row, / goes to the search, ? shows the keys. Enter opens a row, as it does every
// link. No key is taken from a field, or together with Ctrl, Alt or Meta. Also the buttons that copy code.
"use strict";
(() => {
  const root = document.documentElement;
  const keys = document.getElementById("keys");
  root.classList.add("script");

  const go = (step) => {
    const shown = (row) => row.getClientRects().length > 0;
    const rows = [...document.querySelectorAll("main [data-row], main .turn > a")].filter(shown);
    const at = rows.indexOf(document.activeElement);
    const next = rows[at < 0 ? (step > 0 ? 0 : rows.length - 1) : Math.min(Math.max(at + step, 0), rows.length - 1)];
    next?.focus();
    next?.closest("tr, article, li")?.scrollIntoView({ block: "nearest" });
  };
  const search = () => {
    const field = document.getElementById("search");
    if (!field) { location.href = "/ui/sessions#search"; return; }
    field.focus();
    field.select();
  };
  const actions = { j: () => go(1), k: () => go(-1), "/": search, "?": () => keys?.showModal() };

  document.addEventListener("keydown", (event) => {
    const isField = event.target.closest?.("input, textarea, select, dialog, [contenteditable]");
    const action = Object.hasOwn(actions, event.key) && actions[event.key];
    if (!action || isField || event.ctrlKey || event.altKey || event.metaKey) return;
    event.preventDefault();
    action();
  });

  document.addEventListener("click", async (event) => {
    if (event.target.closest?.("#show-keys")) { keys?.showModal(); return; }
    const button = event.target.closest?.("button.copy");
    if (!button) return;
    const told = document.getElementById("told");
    try {
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
      told.textContent = "Copied";
    } catch {
      told.textContent = "Not copied: the browser does not allow it";
    }
    setTimeout(() => { told.textContent = ""; }, 2000);
  });

  // The row that an address names, which may be opened from a search, gets the keyboard's focus. The browser scrolls to
  // it first, and takes the focus from everything else when it does.
  addEventListener("load", () => setTimeout(() => {
    const named = location.hash && document.getElementById(location.hash.slice(1));
    if (named) (named.querySelector("[data-row]") ?? named).focus({ preventScroll: true });
  }));
})();
