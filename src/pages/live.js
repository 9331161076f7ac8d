// Keeps a live page current. Everything on it is there without this script; what changes comes as the same markup.
"use strict";
(() => {
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
    if (id === "progress") { listSoon(); }
  };

  // The list of jobs depends on the address of the page: it is asked for again some time after something changed.
  const LIST_INTERVAL = 3000;
  let listed = Date.now();
  let listing = 0;
  const list = async () => {
    listing = 0;
    listed = Date.now();
    const jobs = document.getElementById("jobs");
    if (!jobs || document.hidden) { return; }
    try {
      const response = await fetch(location.href, { headers: { accept: "text/html" } });
      if (!response.ok) { return; }
      const fresh = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("jobs");
      if (!fresh || fresh.innerHTML === jobs.innerHTML) { return; }
      const focused = jobs.contains(document.activeElement) ? document.activeElement.getAttribute("href") : null;
      jobs.replaceChildren(...fresh.childNodes);
      if (focused) { [...jobs.querySelectorAll("a")].find((link) => link.getAttribute("href") === focused)?.focus(); }
    } catch { /* The next change asks again. */ }
  };
  const listSoon = () => {
    if (!listing && document.getElementById("jobs")) {
      listing = setTimeout(list, Math.max(0, listed + LIST_INTERVAL - Date.now()));
    }
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
