// The gallery's filter: search, kind, state, decision, column and order.

const field = { text: element("text"), kind: element("kind"), state: element("state"), decision: element("decision"),
  meta: element("meta"), value: element("value"), order: element("order") };
/** Jobs as they are shown. */
let view = [];
const VALUES_MAX = 300;

const searched = (job) => {
  if (job.searched === undefined) {
    const meta = Object.entries(job.meta || {}).map(([name, value]) => `${name} ${shown(value)}`);
    const parts = [job.id, job.job, job.kind, job.model, job.prompt, job.task, job.error?.code, job.error?.message,
      job.review?.note, ...files(job).map((file) => file.path), ...meta];
    job.searched = parts.filter(Boolean).join("\n").toLowerCase();
  }
  return job.searched;
};
/** Prepares the search while nothing else is to do, so that the first letter typed waits for no text to be put together. */
let preparing = false;
const PREPARING_MS = 8;
// Not every browser tells when it has nothing to do.
const whenIdle = window.requestIdleCallback || ((run) => setTimeout(() => {
  const end = performance.now() + PREPARING_MS;
  run({ timeRemaining: () => end - performance.now() });
}, PREPARING_MS));
const prepareSearch = () => {
  if (preparing) { return; }
  preparing = true;
  const left = jobs.values();
  const next = (idle) => {
    do {
      const { value, done } = left.next();
      if (done) { preparing = false; return; }
      searched(value);
    } while (idle.timeRemaining() > 1);
    whenIdle(next);
  };
  whenIdle(next);
};
const states = (job) => [job.state, ...stateMarks(job).map(([name]) => name)];

/** Fills a select with what there is, most first, and keeps what is chosen. */
const fill = (select, counts, all, text = words) => {
  const chosen = select.value;
  const options = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, VALUES_MAX);
  if (chosen && !options.some(([name]) => name === chosen)) { options.push([chosen, 0]); }
  const wanted = [["", all], ...options.map(([name, n]) => [name, `${text(name)} (${number(n)})`])];
  const same = select.options.length === wanted.length &&
    wanted.every(([value, text], at) => select.options[at].value === value && select.options[at].text === text);
  if (same) { return; }
  select.replaceChildren(...wanted.map(([value, text]) => new Option(text, value)));
  select.value = chosen;
};
const count = (counts, name) => counts.set(name, (counts.get(name) || 0) + 1);

/** What there is to choose from. */
const choices = () => {
  const [kinds, stateCounts, decisions, columns, values] = [new Map(), new Map(), new Map(), new Map(), new Map()];
  for (const job of jobs.values()) {
    count(kinds, job.kind);
    for (const state of new Set(states(job))) { if (state !== "open") { count(stateCounts, state); } }
    if (decision(job)) { count(decisions, decision(job)); }
    for (const [name, value] of Object.entries(job.meta || {})) {
      count(columns, name);
      if (name === field.meta.value) { count(values, shown(value)); }
    }
  }
  fill(field.kind, kinds, "Every kind");
  fill(field.state, stateCounts, "Every state");
  fill(field.decision, decisions, "Every decision", decisionText);
  element("decision-label").hidden = decisions.size === 0 && !field.decision.value;
  fill(field.meta, columns, "Every column");
  element("meta-label").hidden = columns.size === 0;
  element("value-label").hidden = !field.meta.value;
  if (field.meta.value) { fill(field.value, values, "Every value"); }
};

/** Of rows on one line, as in JSON that is not indented, the first that was accepted comes first; the takes of a row stand together. */
const byManifest = (a, b) => a.line - b.line ||
  (a.row === b.row ? a.take - b.take || a.seq - b.seq : firstOf(a) - firstOf(b));
const firstOf = (job) => Math.min(...takesOf(job).map((take) => take.seq));
const ORDERS = {
  manifest: byManifest,
  newest: (a, b) => (b.ended || Infinity) - (a.ended || Infinity) || byManifest(a, b),
  credits: (a, b) => b.charged - a.charged || byManifest(a, b),
  time: (a, b) => (time(b) || 0) - (time(a) || 0) || byManifest(a, b),
};

const isFiltered = () => Boolean(field.text.value.trim() || field.kind.value || field.state.value || field.decision.value || field.meta.value);

const filter = () => {
  const active = view[cursor]?.seq;
  const terms = field.text.value.toLowerCase().split(/\s+/).filter(Boolean);
  const { kind, state, decision: decided, meta, value } = Object.fromEntries(Object.entries(field).map(([k, f]) => [k, f.value]));
  const fits = (job) => (!kind || job.kind === kind) &&
    (!state || states(job).includes(state)) &&
    (!decided || decision(job) === decided) &&
    (!meta || (Object.hasOwn(job.meta || {}, meta) && (!value || shown(job.meta[meta]) === value))) &&
    terms.every((term) => searched(job).includes(term));
  view = [...jobs.values()].filter(fits).sort(ORDERS[field.order.value] || byManifest);
  const at = view.findIndex((job) => job.seq === active);
  cursor = at < 0 ? 0 : at;
  element("clear").hidden = !isFiltered();
  element("found").textContent = isFiltered() ? `${number(view.length)} of ${number(jobs.size)}` : "";
  const empty = element("empty");
  empty.hidden = view.length > 0;
  empty.textContent = isFiltered() ? "Nothing fits." : index?.jobs ? "No job has ended yet." : "";
  draw(true);
};

/** After data came in. */
const collect = () => { rows.clear(); choices(); filter(); prepareSearch(); };

let typing = 0;
element("filter").addEventListener("input", (event) => {
  clearTimeout(typing);
  if (event.target === field.meta) {
    field.value.value = "";
    field.value.replaceChildren(new Option("Every value", ""));
    choices();
  }
  typing = setTimeout(() => { scrollTo(0, Math.min(scrollY, gridTop())); filter(); }, event.target === field.text ? 90 : 0);
});
element("filter").addEventListener("submit", (event) => event.preventDefault());
element("filter").addEventListener("reset", () => setTimeout(() => { choices(); filter(); }));
element("load").addEventListener("click", () => { wantedPages += PAGES_AT_ONCE; refresh(); });
