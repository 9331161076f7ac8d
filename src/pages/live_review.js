
// The page of a review: a key or a button decides, and the page stays where it is. Without this script its forms do the same.
(() => {
  const review = document.getElementById("review");
  if (!review) { return; }
  const said = document.getElementById("said");
  const takes = () => [...review.querySelectorAll(".take")];
  const waits = (take) => take.dataset.decision === "waiting";
  const current = () => document.activeElement?.closest?.(".take") || null;
  const show = (take) => { take?.focus({ preventScroll: true }); take?.scrollIntoView({ block: "nearest" }); };

  const mark = (take, decision) => {
    take.dataset.decision = decision;
    const shown = take.querySelector(".mark");
    shown.className = `mark ${decision}`;
    shown.textContent = decision.replaceAll("_", " ");
  };

  /** The page again, as the server has it, with the same take in sight. */
  const reload = (take) => { location.hash = take.id; location.reload(); };

  /** Takes a row away that is decided, and goes to the next take that waits, if any does. */
  const leave = (take, waiting) => {
    const all = takes();
    const at = all.indexOf(take);
    const next = all.slice(at + 1).find(waits) || all.slice(0, at).reverse().find(waits);
    const row = take.closest(".row");
    if (![...row.querySelectorAll(".take")].some(waits)) { row.remove(); }
    // What waits on further pages comes now. What waits here may have been decided elsewhere.
    if (next && waiting > 0) { show(next); } else { location.reload(); }
  };

  const decide = async (take, decision) => {
    const form = take.querySelector("form");
    if (!form?.querySelector(`button[value="${decision}"]`) || take.dataset.busy) { return; }
    take.dataset.busy = "true";
    const wasWaiting = waits(take);
    try {
      const fields = new URLSearchParams(new FormData(form));
      fields.set("decision", decision);
      const response = await fetch(form.action, { method: "POST", body: fields, headers: { accept: "application/json" } });
      const answer = await response.json();
      if (!response.ok) { throw new Error(answer.error.hint ? `${answer.error.message}; ${answer.error.hint}` : answer.error.message); }
      said.textContent = answer.said;
      document.getElementById("waiting").textContent = answer.waiting.toLocaleString("en-US");
      if (review.dataset.all !== undefined || !wasWaiting) { reload(take); return; }
      mark(take, { approve: "approved", reject: "rejected", pick: "picked" }[decision]);
      if (decision === "pick") {
        for (const other of take.parentElement.querySelectorAll(".take")) {
          if (other !== take && ["waiting", "picked"].includes(other.dataset.decision)) { mark(other, "not_picked"); }
        }
      }
      leave(take, answer.waiting);
    } catch (error) {
      said.textContent = `${take.getAttribute("aria-label")}: ${error.message}`;
    } finally {
      delete take.dataset.busy;
    }
  };

  review.addEventListener("submit", (event) => {
    const decision = event.submitter?.value;
    if (!decision) { return; }
    event.preventDefault();
    decide(event.target.closest(".take"), decision);
  });

  const move = (by, isRow) => {
    const all = takes();
    const now = current();
    if (!now) { show(all[0]); return; }
    if (!isRow) { show(all[all.indexOf(now) + by]); return; }
    const rows = [...review.querySelectorAll(".row")];
    show(rows[rows.indexOf(now.closest(".row")) + by]?.querySelector(".take"));
  };

  const KEYS = { a: "approve", r: "reject", p: "pick" };
  const MOVES = { ArrowRight: [1, false], ArrowLeft: [-1, false], ArrowDown: [1, true], ArrowUp: [-1, true] };
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) { return; }
    const typesText = event.target.matches?.("input, textarea, select");
    if (typesText) {
      if (event.key === "Escape") { show(current()); }
      return;
    }
    const take = current();
    if (Object.hasOwn(KEYS, event.key) && take && !event.repeat) {
      event.preventDefault();
      decide(take, KEYS[event.key]);
    } else if (event.key === "t" && take && !event.repeat) {
      // Only to the page that shows its price.
      take.closest(".row").querySelector("a.another")?.click();
    } else if (Object.hasOwn(MOVES, event.key) && !event.target.matches?.("audio, video")) {
      event.preventDefault();
      move(...MOVES[event.key]);
    }
  });

  document.getElementById("keys").hidden = takes().length === 0;
  const named = location.hash && document.getElementById(location.hash.slice(1));
  show(named || takes().find(waits) || takes()[0]);
})();
