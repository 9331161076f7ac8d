// Keeps a live page current. Everything on it is there without this script; what changes comes as the same markup.
"use strict";
(() => {
  const root = document.documentElement;
  const kept = {
    get: () => { try { return localStorage.getItem("callsheet-theme"); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem("callsheet-theme", theme); } catch { /* for this page alone */ } },
  };
  const setTheme = (theme) => {
    if (theme) { root.dataset.theme = theme; } else { delete root.dataset.theme; }
    document.getElementById("theme")?.setAttribute("aria-label", `Colours: ${theme || "as the system"}`);
  };
  setTheme(kept.get() || "");
  document.getElementById("theme")?.addEventListener("click", () => {
    const now = root.dataset.theme || "";
    const dark = matchMedia("(prefers-color-scheme: dark)").matches;
    const next = now === "" ? (dark ? "light" : "dark") : now === (dark ? "light" : "dark") ? (dark ? "dark" : "light") : "";
    kept.set(next);
    setTheme(next);
  });

  // A file that is chosen becomes the text of the form: what is submitted is what is seen.
  const file = document.getElementById("file");
  file?.addEventListener("change", async () => {
    const chosen = file.files[0];
    if (!chosen) { return; }
    document.getElementById("manifest").value = await chosen.text();
    document.getElementById("name").value = chosen.name;
  });

  const address = document.body.dataset.events;
  const said = document.getElementById("live-state");
  if (!address || !said) { return; }
  const say = (text, state) => { if (said.textContent !== text) { said.textContent = text; } said.dataset.state = state; };
  let source = null;

  const replace = (id, markup) => {
    const part = document.getElementById(id);
    if (!part || part.dataset.live === undefined || part.last === markup) { return; }
    part.last = markup;
    const focused = part.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
    part.innerHTML = markup;
    if (focused) { [...part.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus(); }
  };

  const open = () => {
    if (source) { return; }
    source = new EventSource(address);
    source.addEventListener("fragments", (event) => {
      for (const [id, markup] of Object.entries(JSON.parse(event.data))) { replace(id, markup); }
      say("live", "live");
    });
    source.addEventListener("error", () => {
      // A browser tries again by itself, unless it was refused.
      if (source?.readyState === EventSource.CLOSED) {
        source = null;
        say("not live: reload to see the present state", "lost");
      } else {
        say("reconnecting…", "lost");
      }
    });
  };
  const close = () => { source?.close(); source = null; };
  // A page that nobody sees asks for nothing.
  document.addEventListener("visibilitychange", () => { if (document.hidden) { close(); } else { open(); } });
  addEventListener("pagehide", close);
  if (!document.hidden) { open(); }
})();
