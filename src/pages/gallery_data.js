// What the gallery reads. From disk a page may fetch nothing: data comes as script files that call `callsheetBatch`,
// `callsheetPage` and `callsheetMedia` with JSON. Whatever they say is text: no string of them ever becomes markup.

const element = (id) => document.getElementById(id);

const FOLDER = "gallery/";
const PAGES_AT_ONCE = 40;
const LOADS_AT_ONCE = 4;
const RELOAD_MS = 5000;
/** What the page knows. `jobs`: by their place in the batch, the latest entry of each. */
let index = null;
const jobs = new Map();
const facts = new Map();
const loaded = new Map();
let wantedPages = PAGES_AT_ONCE;
let superseded = new Set();
let missing = new Set();
/** Outputs that could not be shown when they were looked at. */
const gone = new Set();

const take = (job, rank) => {
  const known = jobs.get(job.seq);
  if (known && known.rank > rank) { return; }
  job.rank = rank;
  jobs.set(job.seq, job);
};

window.callsheetBatch = (_, text) => { index = JSON.parse(text); };
window.callsheetPage = (page, text) => {
  const entries = JSON.parse(text);
  entries.forEach((job, at) => take(job, page * index.page_jobs + at));
  loaded.set(page, entries.length);
};
window.callsheetMedia = (page, text) => {
  const found = JSON.parse(text);
  for (const key of Object.keys(found)) { facts.set(key, found[key]); }
  loaded.set(`m${page}`, Object.keys(found).length);
};

/** Runs a script file; where there is none, says so. */
const run = (path, version) => new Promise((resolve) => {
  const script = document.createElement("script");
  script.src = `${FOLDER}${path}?${version}`;
  script.onload = () => { script.remove(); resolve(true); };
  script.onerror = () => { script.remove(); resolve(false); };
  document.head.append(script);
});

const pageName = (page) => String(page).padStart(4, "0");
let busy = false;
let reload = 0;

/** Loads what is new, the newest pages first where there are many. */
const refresh = async () => {
  if (busy) { return; }
  busy = true;
  try {
    if (!(await run("index.js", Date.now())) || !index) {
      // What is shown stays: the daemon that serves it may just restart.
      if (!index) {
        const batch = document.querySelector("h1").textContent;
        element("summary").textContent = `The data of this gallery is gone. To write it again: callsheet open ${batch}`;
      }
      return;
    }
    superseded = new Set(index.superseded);
    missing = new Set(index.missing);
    for (const job of index.open) { take(job, -1); }
    heading();
    const all = index.pages;
    const first = Math.max(0, all - wantedPages);
    const order = [];
    for (let page = first; page < all; page++) { order.push(page); }
    if (first > 0) { order.reverse(); }
    let drawn = -Infinity;
    const load = async (page) => {
      const expected = page === all - 1 ? index.last : index.page_jobs;
      const media = index.media[page] || 0;
      if (media && (loaded.get(`m${page}`) || 0) !== media) { await run(`data/${pageName(page)}.media.js`, media); }
      if (loaded.get(page) === expected) { return; }
      await run(`data/${pageName(page)}.js`, expected);
      if (performance.now() - drawn > 400) { collect(); drawn = performance.now(); }
    };
    const next = async () => { while (order.length) { await load(order.shift()); } };
    await Promise.all(Array.from({ length: LOADS_AT_ONCE }, next));
    for (const [seq, job] of jobs) {
      // It went on, and is not among the open ones any more.
      if (job.rank === -1 && !index.open.includes(job)) { jobs.delete(seq); }
    }
    for (const job of index.open) { take(job, -1); }
    element("more").hidden = first === 0;
    element("more").lastElementChild.textContent =
      `${number(jobs.size)} of ${number(index.jobs)} are loaded, the newest ones`;
    collect();
  } finally {
    busy = false;
    clearTimeout(reload);
    if (!index?.done && !document.hidden) { reload = setTimeout(refresh, RELOAD_MS); }
  }
};
document.addEventListener("visibilitychange", () => { if (!document.hidden && !index?.done) { refresh(); } });
