// The switch between light and dark: as the system has it, until somebody chooses.
"use strict";

{
  const THEMES = ["", "light", "dark"];
  const kept = { get: () => { try { return localStorage.getItem("callsheet-theme"); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem("callsheet-theme", theme); } catch { /* for this page alone */ } } };
  const root = document.documentElement;
  const setTheme = (theme) => {
    if (theme) { root.dataset.theme = theme; } else { delete root.dataset.theme; }
    document.getElementById("theme")?.setAttribute("aria-label", `Colours: ${theme || "as the system"}`);
  };
  setTheme(THEMES.includes(kept.get()) ? kept.get() : "");
  document.getElementById("theme")?.addEventListener("click", () => {
    const now = root.dataset.theme || "";
    const isDark = now ? now === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    // The first press always changes what is seen.
    const next = now ? THEMES[(THEMES.indexOf(now) + 1) % 3] : (isDark ? "light" : "dark");
    setTheme(next);
    kept.set(next);
  });
}
