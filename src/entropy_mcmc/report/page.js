"use strict";
(() => {
  const all = (query, root = document) => [...root.querySelectorAll(query)];

  // Tabs: a click, the arrows, Home and End; without a script all panels are shown.
  const tabs = all('[role="tab"]');
  const panelOf = (tab) => document.getElementById(tab.getAttribute("aria-controls"));
  const select = (tab) => {
    for (const other of tabs) {
      const chosen = other === tab;
      other.setAttribute("aria-selected", String(chosen));
      other.tabIndex = chosen ? 0 : -1;
      panelOf(other).hidden = !chosen;
    }
  };
  const keys = {
    ArrowRight: (i) => i + 1, ArrowLeft: (i) => i - 1, ArrowDown: (i) => i + 1,
    ArrowUp: (i) => i - 1, Home: () => 0, End: () => tabs.length - 1,
  };
  tabs.forEach((tab, i) => {
    tab.addEventListener("click", () => select(tab));
    tab.addEventListener("keydown", (event) => {
      const move = keys[event.key];
      if (!move) return;
      event.preventDefault();
      const next = tabs[(move(i) + tabs.length) % tabs.length];
      select(next);
      next.focus();
    });
  });
  const openTarget = () => {
    const target = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
    const panel = target && target.closest('[role="tabpanel"]');
    if (!panel) return;
    select(document.getElementById(panel.getAttribute("aria-labelledby")));
    target.scrollIntoView();
  };
  if (tabs.length) {
    select(tabs[0]);
    openTarget();
    addEventListener("hashchange", openTarget);
  }

  // Switches of the comparison: a run's curves, legend entries and rows go and come.
  for (const box of all("[data-switch]")) {
    const apply = () => {
      for (const part of all(`[data-run="${box.dataset.switch}"]`)) {
        part.classList.toggle("off", !box.checked);
      }
    };
    box.addEventListener("change", apply);
    apply();
  }

  // The theme: follows the system until the button is used.
  const theme = document.getElementById("theme");
  const system = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => {
    const own = document.documentElement.dataset.theme;
    return own ? own === "dark" : system.matches;
  };
  const name = () => { theme.textContent = isDark() ? "Light theme" : "Dark theme"; };
  theme.hidden = false;
  theme.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  system.addEventListener("change", name);
  name();

  // A hint where a table is wider than its place.
  const measure = () => {
    for (const box of all(".table")) {
      const inner = box.querySelector(".scroll");
      box.classList.toggle("wider", inner.scrollWidth > inner.clientWidth + 1);
    }
  };
  addEventListener("resize", measure);
  document.addEventListener("toggle", measure, true);
  document.addEventListener("click", () => requestAnimationFrame(measure));
  measure();

  // Words under the pointer; the same numbers are in the tables.
  const tip = document.getElementById("tip");
  document.addEventListener("pointerover", (event) => {
    const mark = event.target.closest && event.target.closest("[data-tip]");
    tip.hidden = !mark;
    if (!mark) return;
    tip.textContent = mark.dataset.tip;
    const place = mark.getBoundingClientRect();
    const left = Math.min(place.right + 8, innerWidth - tip.offsetWidth - 8);
    tip.style.left = `${Math.max(8, left)}px`;
    tip.style.top = `${Math.max(8, place.top - tip.offsetHeight - 6)}px`;
  });
})();
