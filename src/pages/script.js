// The script of every page. From disk a page may fetch nothing: data comes as script files that call `callsheetBatch`,
// `callsheetPage` and `callsheetMedia` with JSON. Whatever they say is text: no string of them ever becomes markup.
"use strict";

(() => {
  const element = (id) => document.getElementById(id);

  // Colours: as the system has them, until somebody chooses.
  const THEMES = ["", "light", "dark"];
  const kept = { get: () => { try { return localStorage.getItem("callsheet-theme"); } catch { return null; } },
    set: (theme) => { try { localStorage.setItem("callsheet-theme", theme); } catch { /* for this page alone */ } } };
  const root = document.documentElement;
  const setTheme = (theme) => {
    if (theme) { root.dataset.theme = theme; } else { delete root.dataset.theme; }
    element("theme")?.setAttribute("aria-label", `Colours: ${theme || "as the system"}`);
  };
  setTheme(THEMES.includes(kept.get()) ? kept.get() : "");
  element("theme")?.addEventListener("click", () => {
    const now = root.dataset.theme || "";
    const isDark = now ? now === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    // The first press always changes what is seen.
    const next = now ? THEMES[(THEMES.indexOf(now) + 1) % 3] : (isDark ? "light" : "dark");
    setTheme(next);
    kept.set(next);
  });

  if (root.dataset.page !== "gallery") { return; }

  // ---- Data

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

  /** Loads what is new, the newest pages first where there are many. */
  const refresh = async () => {
    if (busy) { return; }
    busy = true;
    try {
      if (!(await run("index.js", Date.now())) || !index) {
        element("summary").textContent = "The data of this gallery is gone. To write it again: callsheet open";
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
    }
    if (!index.done && !document.hidden) { setTimeout(refresh, RELOAD_MS); }
  };
  document.addEventListener("visibilitychange", () => { if (!document.hidden && index && !index.done) { refresh(); } });

  // ---- Words

  const number = (n) => n.toLocaleString("en-US");
  const plural = (n, word) => `${number(n)} ${word}${n === 1 ? "" : "s"}`;
  const words = (name) => name.replaceAll("_", " ");
  const span = (ms) => {
    const s = ms / 1000;
    if (s < 10) { return `${s.toFixed(1)} s`; }
    if (s < 60) { return `${Math.round(s)} s`; }
    if (s < 3600) { return `${Math.floor(s / 60)} min ${Math.round(s % 60)} s`; }
    return `${Math.floor(s / 3600)} h ${Math.round((s % 3600) / 60)} min`;
  };
  const clock = (seconds) => {
    const s = Math.round(seconds);
    return `${Math.floor(s / 60)}:${String(s % 60).padStart(2, "0")}`;
  };
  const size = (bytes) => {
    if (bytes < 1000) { return `${bytes} B`; }
    const units = ["kB", "MB", "GB", "TB"];
    let n = bytes / 1000;
    let unit = 0;
    while (n >= 1000 && unit < 3) { n /= 1000; unit++; }
    return `${n < 10 ? n.toFixed(1) : Math.round(n)} ${units[unit]}`;
  };
  const shown = (value) => (typeof value === "string" ? value : JSON.stringify(value));
  const time = (job) => (job.sent && job.ended ? Math.max(0, job.ended - job.sent) : null);
  const address = (path) => `./${path.split("/").map(encodeURIComponent).join("/")}`;
  const thumbnail = (key) => `${FOLDER}thumbs/${key.slice(0, 1)}/${key}.jpg`;
  const files = (job) => job.files || [];
  const isMissing = (file) => missing.has(file.key) || gone.has(file.key);
  const isOpen = (job) => ["queued", "submitting", "running", "fetching"].includes(job.state);

  const marks = (job) => {
    const found = [];
    if (job.state !== "succeeded" && !isOpen(job)) { found.push([job.state, words(job.state)]); }
    if (isOpen(job)) { found.push(["open", job.state === "fetching" ? "downloading" : job.state]); }
    if (job.late) { found.push(["late", isOpen(job) ? "overdue" : "late"]); }
    if (superseded.has(job.seq) && job.state !== "replaced") { found.push(["superseded", "superseded"]); }
    if ((job.drift || []).length) { found.push(["drift", "differs from plan"]); }
    if (files(job).some(isMissing)) { found.push(["gone", "file gone"]); }
    return found;
  };

  const make = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) { made.className = className; }
    if (text !== undefined) { made.textContent = text; }
    return made;
  };

  const marksOf = (job) => {
    const row = make("div", "marks");
    for (const [name, text] of marks(job)) { row.append(make("span", `mark ${name}`, text)); }
    return row;
  };

  const heading = () => {
    const n = (state) => index.states[state] || 0;
    const summary = element("summary");
    summary.textContent = "";
    const parts = [[`${number(n("succeeded"))} of ${plural(index.jobs, "job")} done`]];
    if (n("failed")) { parts.push([`${number(n("failed"))} failed`, "bad"]); }
    if (n("expired")) { parts.push([`${number(n("expired"))} expired`, "bad"]); }
    if (n("in_doubt")) { parts.push([`${number(n("in_doubt"))} in doubt`, "doubt"]); }
    const open = n("submitting") + n("running") + n("fetching");
    if (open) { parts.push([`${number(open)} in flight`]); }
    if (n("queued")) { parts.push([`${number(n("queued"))} waiting`]); }
    parts.push([`${number(index.charged)} of ${plural(index.budget, "credit")}`]);
    if (index.waived) { parts.push([`${number(index.waived)} waived`]); }
    parts.forEach(([text, name], at) => {
      if (at) { summary.append(" · "); }
      summary.append(make("span", name || "", text));
    });
    const bar = element("progress");
    bar.hidden = index.done;
    const ended = index.jobs - n("queued") - open;
    bar.firstElementChild.style.transform = `scaleX(${index.jobs ? ended / index.jobs : 0})`;
    const parked = element("parked");
    parked.hidden = !index.parked || index.done;
    if (index.parked) { parked.textContent = `Parked: ${index.parked.text}`; }
  };

  // ---- Filter

  const field = { text: element("text"), kind: element("kind"), state: element("state"), meta: element("meta"),
    value: element("value"), order: element("order") };
  /** Jobs as they are shown. */
  let view = [];
  const VALUES_MAX = 300;

  const searched = (job) => {
    if (job.searched === undefined) {
      const meta = Object.entries(job.meta || {}).map(([name, value]) => `${name} ${shown(value)}`);
      const parts = [job.id, job.job, job.kind, job.model, job.prompt, job.task, job.error?.code, job.error?.message,
        ...files(job).map((file) => file.path), ...meta];
      job.searched = parts.filter(Boolean).join("\n").toLowerCase();
    }
    return job.searched;
  };
  const states = (job) => [job.state, ...marks(job).map(([name]) => name)];

  /** Fills a select with what there is, most first, and keeps what is chosen. */
  const fill = (select, counts, all) => {
    const chosen = select.value;
    const options = [...counts].sort((a, b) => b[1] - a[1] || (a[0] < b[0] ? -1 : 1)).slice(0, VALUES_MAX);
    if (chosen && !options.some(([name]) => name === chosen)) { options.push([chosen, 0]); }
    const wanted = [["", all], ...options.map(([name, n]) => [name, `${words(name)} (${number(n)})`])];
    const same = select.options.length === wanted.length &&
      wanted.every(([value, text], at) => select.options[at].value === value && select.options[at].text === text);
    if (same) { return; }
    select.replaceChildren(...wanted.map(([value, text]) => new Option(text, value)));
    select.value = chosen;
  };
  const count = (counts, name) => counts.set(name, (counts.get(name) || 0) + 1);

  /** What there is to choose from. */
  const choices = () => {
    const [kinds, stateCounts, columns, values] = [new Map(), new Map(), new Map(), new Map()];
    for (const job of jobs.values()) {
      count(kinds, job.kind);
      for (const state of new Set(states(job))) { if (state !== "open") { count(stateCounts, state); } }
      for (const [name, value] of Object.entries(job.meta || {})) {
        count(columns, name);
        if (name === field.meta.value) { count(values, shown(value)); }
      }
    }
    fill(field.kind, kinds, "Every kind");
    fill(field.state, stateCounts, "Every state");
    fill(field.meta, columns, "Every column");
    element("meta-label").hidden = columns.size === 0;
    element("value-label").hidden = !field.meta.value;
    if (field.meta.value) { fill(field.value, values, "Every value"); }
  };

  const byManifest = (a, b) => a.line - b.line || (a.row < b.row ? -1 : a.row > b.row ? 1 : a.take - b.take || a.seq - b.seq);
  const ORDERS = {
    manifest: byManifest,
    newest: (a, b) => (b.ended || Infinity) - (a.ended || Infinity) || byManifest(a, b),
    credits: (a, b) => b.charged - a.charged || byManifest(a, b),
    time: (a, b) => (time(b) || 0) - (time(a) || 0) || byManifest(a, b),
  };

  const isFiltered = () => Boolean(field.text.value.trim() || field.kind.value || field.state.value || field.meta.value);

  const filter = () => {
    const active = view[cursor]?.seq;
    const terms = field.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const { kind, state, meta, value } = Object.fromEntries(Object.entries(field).map(([k, f]) => [k, f.value]));
    const fits = (job) => (!kind || job.kind === kind) &&
      (!state || states(job).includes(state)) &&
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
  const collect = () => { rows.clear(); choices(); filter(); };

  let typing = 0;
  element("filter").addEventListener("input", (event) => {
    clearTimeout(typing);
    if (event.target === field.meta) { field.value.value = ""; field.value.replaceChildren(new Option("Every value", "")); }
    typing = setTimeout(() => { choices(); scrollTo(0, Math.min(scrollY, gridTop())); filter(); }, event.target === field.text ? 90 : 0);
  });
  element("filter").addEventListener("submit", (event) => event.preventDefault());
  element("filter").addEventListener("reset", () => setTimeout(() => { choices(); filter(); }));
  element("load").addEventListener("click", () => { wantedPages += PAGES_AT_ONCE; refresh(); });

  // ---- Grid: only what is in sight is in the document

  const grid = element("grid");
  const tiles = new Map();
  let cursor = 0;
  let columns = 1;
  let tileWidth = 0;
  let pictureHeight = 0;
  let rowHeight = 1;
  let gap = 16;
  const CAPTION = 98;

  const gridTop = () => grid.getBoundingClientRect().top + scrollY - element("filter").offsetHeight;

  const measure = () => {
    const width = grid.clientWidth;
    gap = parseFloat(getComputedStyle(root).getPropertyValue("--gap")) || 16;
    columns = Math.max(2, Math.floor((width + gap) / (250 + gap)));
    tileWidth = Math.floor((width - gap * (columns - 1)) / columns);
    pictureHeight = Math.round(tileWidth * 0.7);
    rowHeight = pictureHeight + CAPTION + gap;
  };

  const draw = (isNew) => {
    const count = Math.ceil(view.length / columns);
    grid.style.height = `${Math.max(0, count * rowHeight - gap)}px`;
    const top = scrollY - (grid.getBoundingClientRect().top + scrollY);
    const first = Math.max(0, Math.floor(top / rowHeight) - 1) * columns;
    const end = Math.min(view.length, (Math.floor((top + innerHeight) / rowHeight) + 2) * columns);
    const inSight = new Set();
    const fresh = [];
    for (let at = first; at < end; at++) {
      const job = view[at];
      inSight.add(job.seq);
      let tile = tiles.get(job.seq);
      if (tile && tile.job !== job) { tile.remove(); tile = undefined; }
      if (!tile) {
        tile = makeTile(job);
        tiles.set(job.seq, tile);
        fresh.push(tile);
      }
      place(tile, at);
    }
    for (const [seq, tile] of tiles) {
      if (!inSight.has(seq)) { quiet(tile); waiting.delete(tile.firstElementChild); tile.remove(); tiles.delete(seq); }
    }
    if (fresh.length) { grid.append(...fresh); settle(); }
    if (isNew && tiles.size) { for (const tile of tiles.values()) { refreshMarks(tile); } }
    const active = view[cursor] && tiles.get(view[cursor].seq);
    if (active) { grid.setAttribute("aria-activedescendant", active.id); } else { grid.removeAttribute("aria-activedescendant"); }
  };

  const place = (tile, at) => {
    const x = (at % columns) * (tileWidth + gap);
    const y = Math.floor(at / columns) * rowHeight;
    tile.style.transform = `translate(${x}px, ${y}px)`;
    tile.style.width = `${tileWidth}px`;
    tile.style.height = `${rowHeight - gap}px`;
    tile.firstElementChild.style.height = `${pictureHeight}px`;
    tile.setAttribute("aria-posinset", at + 1);
    tile.setAttribute("aria-setsize", view.length);
    tile.setAttribute("aria-selected", at === cursor);
    tile.classList.toggle("active", at === cursor);
  };

  const takesOf = (job) => {
    if (rows.size === 0) {
      for (const each of jobs.values()) {
        const known = rows.get(each.row);
        if (known) { known.push(each); } else { rows.set(each.row, [each]); }
      }
      for (const takes of rows.values()) { takes.sort((a, b) => a.take - b.take || a.seq - b.seq); }
    }
    return rows.get(job.row) || [job];
  };
  const rows = new Map();

  const makeTile = (job) => {
    const tile = make("div", "tile");
    tile.job = job;
    tile.id = `job-${job.seq}`;
    tile.setAttribute("role", "option");
    tile.append(picture(job, files(job)[0], false));
    const caption = make("div", "caption");
    const takes = takesOf(job);
    caption.append(make("div", "name", job.id));
    const parts = [];
    if (takes.length > 1) { parts.push(`take ${job.take} of ${takes.length}`); }
    parts.push(isOpen(job) ? `${number(job.held || 0)} held` : plural(job.charged, "credit"));
    if (time(job) !== null) { parts.push(span(time(job))); }
    if (files(job).length > 1) { parts.push(`${files(job).length} files`); }
    parts.push(job.model || words(job.kind));
    caption.append(make("div", "facts", parts.join(" · ")), make("div", "prompt", job.prompt));
    tile.append(caption);
    tile.classList.toggle("taken", takes.length > 1);
    refreshMarks(tile);
    return tile;
  };

  const refreshMarks = (tile) => {
    const job = tile.job;
    tile.firstElementChild.querySelector(".marks")?.remove();
    tile.firstElementChild.append(marksOf(job));
    tile.classList.toggle("superseded", superseded.has(job.seq));
    const state = marks(job).map(([, text]) => text).join(", ") || "done";
    tile.setAttribute("aria-label", `${job.id}, ${words(job.kind)}, ${state}`);
  };

  // ---- Media

  const SVG = "http://www.w3.org/2000/svg";
  const wave = (peaks) => {
    const svg = document.createElementNS(SVG, "svg");
    svg.setAttribute("viewBox", `0 0 ${peaks.length * 3} 100`);
    svg.setAttribute("preserveAspectRatio", "none");
    svg.setAttribute("aria-hidden", "true");
    const path = document.createElementNS(SVG, "path");
    const bar = (peak, at) => { const h = Math.max(2, peak / 255 * 96); return `M${at * 3} ${50 - h / 2}h2v${h}h-2z`; };
    path.setAttribute("d", [...peaks].map(bar).join(""));
    path.setAttribute("fill", "currentColor");
    svg.append(path);
    return svg;
  };

  const said = (title, text) => {
    const box = make("div", "said");
    box.append(make("b", "", title), make("span", "", text || ""));
    return box;
  };

  /** The file is not there: that is said, with what brings it back. */
  const showGone = (box, job, file) => {
    gone.add(file.key);
    box.classList.add("gone");
    box.querySelector("img,video,audio")?.remove();
    box.querySelector(".said")?.remove();
    box.prepend(said("The file is gone", `${file.path} is not on disk. To download it again, free of charge: callsheet download ${job.name}`));
    const tile = tiles.get(job.seq);
    if (tile) { refreshMarks(tile); }
  };

  const REASONS = { canceled: "Canceled", expired: "Expired before it was sent", replaced: "Replaced before it was sent",
    queued: "Waiting", submitting: "Being sent", running: "Running", fetching: "Downloading" };

  const picture = (job, file, isLarge) => {
    const box = make("div", "picture");
    if (!file) {
      const title = job.error ? job.error.code : REASONS[job.state] || words(job.state);
      box.append(said(title, job.error?.message || ""));
      return box;
    }
    const type = file.type.split("/")[0];
    const fact = facts.get(file.key) || {};
    const name = `${job.id}: ${job.prompt}`.slice(0, 200);
    const failed = () => showGone(box, job, file);
    if (type === "image") {
      const image = make("img");
      image.alt = name;
      image.decoding = "async";
      image.draggable = false;
      if (fact.width) { image.width = fact.width; image.height = fact.height; }
      if (!isLarge && fact.thumb) {
        image.onerror = () => { image.onerror = failed; image.src = address(file.path); };
        image.src = thumbnail(file.key);
      } else {
        image.onerror = failed;
        later(box, () => { image.src = address(file.path); }, isLarge);
      }
      box.append(image);
    } else if (type === "video") {
      const video = make("video");
      video.playsInline = true;
      video.preload = "metadata";
      video.loop = !isLarge;
      video.muted = !isLarge;
      video.controls = isLarge;
      video.tabIndex = isLarge ? 0 : -1;
      video.setAttribute("aria-label", name);
      video.onerror = failed;
      const length = make("span", "length");
      length.hidden = true;
      video.onloadedmetadata = () => {
        length.textContent = clock(video.duration);
        length.hidden = isLarge || !Number.isFinite(video.duration);
      };
      const glyph = make("span", "glyph", "▸");
      if (!isLarge) { box.append(glyph); }
      later(box, () => { glyph.remove(); video.src = address(file.path); box.prepend(video); box.append(length); }, isLarge);
    } else if (type === "audio") {
      if (fact.peaks) { box.append(wave(fact.peaks)); } else if (!isLarge) { box.append(make("span", "glyph", "♪")); }
      const length = make("span", "length", fact.seconds ? clock(fact.seconds) : "");
      length.hidden = isLarge || !fact.seconds;
      box.append(length);
      const begin = () => { box.prepend(sound(job, file, box, length, isLarge, name)); };
      if (isLarge || !fact.seconds) { later(box, begin, isLarge); } else { onPlay.set(box, begin); }
    } else {
      box.append(make("span", "glyph", (file.path.split(".").pop() || "file").toUpperCase()));
    }
    return box;
  };

  const sound = (job, file, box, length, isLarge, name) => {
    const audio = make("audio");
    audio.preload = "metadata";
    audio.controls = isLarge;
    audio.setAttribute("aria-label", name);
    audio.onerror = () => showGone(box, job, file);
    audio.onloadedmetadata = () => {
      length.textContent = clock(audio.duration);
      length.hidden = isLarge || !Number.isFinite(audio.duration);
    };
    audio.ontimeupdate = () => { if (!isLarge) { length.textContent = `${clock(audio.currentTime)} / ${clock(audio.duration || 0)}`; } };
    audio.onplay = () => box.classList.add("playing");
    audio.onpause = () => box.classList.remove("playing");
    audio.src = address(file.path);
    return audio;
  };

  /** Large files are not opened while they only fly past. */
  const waiting = new Map();
  /** Sounds whose length is known are opened when they are played. */
  const onPlay = new WeakMap();
  const later = (box, begin, now) => { if (now) { begin(); } else { waiting.set(box, begin); } };
  const begin = (box) => {
    const begins = waiting.get(box) || onPlay.get(box);
    waiting.delete(box);
    onPlay.delete(box);
    begins?.();
  };
  let settling = 0;
  const settle = (wait = 140) => {
    clearTimeout(settling);
    settling = setTimeout(() => {
      // A few at a time: opening a video takes a while.
      let n = 0;
      for (const box of [...waiting.keys()]) {
        if (!box.isConnected) { waiting.delete(box); } else if (n < 4) { begin(box); n++; }
      }
      if (waiting.size) { settle(40); }
    }, wait);
  };

  const player = (tile) => tile?.querySelector("video, audio");
  const quiet = (tile) => { const media = player(tile); if (media) { media.pause(); media.onerror = null; media.removeAttribute("src"); media.load(); } };
  const play = (media) => {
    for (const other of grid.querySelectorAll("audio, video")) { if (other !== media) { other.pause(); } }
    // A file that cannot be played has said so by its error.
    media.play().catch(() => {});
  };
  const toggle = (tile) => {
    if (!tile) { return false; }
    begin(tile.firstElementChild);
    const media = player(tile);
    if (!media) { return false; }
    if (media.paused) { media.muted = false; play(media); } else { media.pause(); }
    return true;
  };

  grid.addEventListener("pointerover", (event) => {
    const tile = event.target.closest(".tile");
    if (tile && event.pointerType === "mouse" && files(tile.job)[0]?.type.startsWith("video/")) { begin(tile.firstElementChild); }
    const video = tile?.querySelector("video");
    if (video && event.pointerType === "mouse" && !tile.contains(event.relatedTarget)) { video.muted = true; play(video); }
  });
  grid.addEventListener("pointerout", (event) => {
    const tile = event.target.closest(".tile");
    if (tile && !tile.contains(event.relatedTarget)) { tile.querySelector("video")?.pause(); }
  });
  grid.addEventListener("click", (event) => {
    const tile = event.target.closest(".tile");
    if (!tile) { return; }
    move(view.indexOf(tile.job), false);
    if (event.target.closest(".picture") && files(tile.job)[0]?.type.startsWith("audio/")) { toggle(tile); } else { show(cursor); }
  });

  // ---- Keyboard

  const move = (to, scrolls = true) => {
    if (!view.length) { return; }
    cursor = Math.max(0, Math.min(view.length - 1, to));
    if (scrolls) {
      const top = grid.getBoundingClientRect().top + scrollY + Math.floor(cursor / columns) * rowHeight;
      const bar = element("filter").offsetHeight + 8;
      if (top < scrollY + bar) { scrollTo(0, top - bar); }
      else if (top + rowHeight > scrollY + innerHeight) { scrollTo(0, top + rowHeight - innerHeight); }
    }
    draw(false);
  };
  const perScreen = () => Math.max(1, Math.floor(innerHeight / rowHeight)) * columns;
  const STEPS = { ArrowLeft: () => -1, ArrowRight: () => 1, ArrowUp: () => -columns, ArrowDown: () => columns,
    PageUp: () => -perScreen(), PageDown: perScreen, Home: () => -Infinity, End: () => Infinity };

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) { return; }
    if (element("viewer").open) { inViewer(event); return; }
    const isTyping = event.target.matches("input, select, textarea");
    if (event.key === "Escape" && isTyping) {
      if (isFiltered() && event.target === field.text) { element("filter").reset(); }
      grid.focus();
    } else if (event.key === "/" && !isTyping) {
      event.preventDefault();
      field.text.focus();
    } else if (isTyping || event.target.matches("button, a")) {
      if (event.target === field.text && ["Enter", "ArrowDown"].includes(event.key)) { event.preventDefault(); grid.focus(); }
    } else if (STEPS[event.key]) {
      event.preventDefault();
      grid.focus({ preventScroll: true });
      move(cursor + STEPS[event.key]());
    } else if (event.key === "Enter" && view[cursor]) {
      event.preventDefault();
      show(cursor);
    } else if (event.key === " " && toggle(tiles.get(view[cursor]?.seq))) {
      event.preventDefault();
    } else if (event.key === "Escape") {
      grid.querySelectorAll("audio, video").forEach((media) => media.pause());
      if (isFiltered()) { element("filter").reset(); }
    }
  });

  // ---- Viewer: a job large, its takes beside each other

  const viewer = element("viewer");
  const stage = element("stage");
  const details = element("details");
  let stageOf = "";

  const show = (at) => {
    const job = view[at];
    if (!job) { return; }
    grid.querySelectorAll("audio, video").forEach((media) => media.pause());
    move(at);
    const takes = takesOf(job).filter((take) => take === job || files(take).length || !superseded.has(take.seq));
    const key = `${job.row} ${takes.length > 1 ? "" : job.seq}`;
    if (key !== stageOf) {
      stageOf = key;
      stage.replaceChildren();
      stage.classList.toggle("takes", takes.length > 1);
      for (const take of takes) {
        const list = files(take).length ? files(take) : [undefined];
        for (const file of list) { stage.append(figure(take, file, takes.length > 1)); }
      }
      stage.scrollTop = 0;
    }
    for (const each of stage.children) {
      each.classList.toggle("active", each.job === job);
      if (each.job === job && takes.length > 1) { each.scrollIntoView({ block: "nearest" }); }
    }
    explain(job);
    element("previous").disabled = cursor === 0;
    element("next").disabled = cursor === view.length - 1;
    if (!viewer.open) { viewer.showModal(); details.focus(); viewer.scrollTop = 0; }
  };

  const figure = (job, file, isTake) => {
    const made = make("figure");
    made.job = job;
    made.append(picture(job, file, true));
    if (isTake || files(job).length > 1) {
      const caption = make("figcaption");
      caption.append(make("b", "", isTake ? `Take ${job.take}` : file.path), make("span", "", plural(job.charged, "credit")));
      for (const [name, text] of marks(job)) { caption.append(make("span", `mark ${name}`, text)); }
      made.append(caption);
    }
    made.addEventListener("click", () => {
      const at = view.indexOf(job);
      if (at >= 0) { if (at !== cursor) { show(at); } } else { made.parentElement.querySelector(".active")?.classList.remove("active"); made.classList.add("active"); explain(job); }
    });
    return made;
  };

  const command = (text) => {
    const row = make("div", "command");
    const copy = make("button", "quiet", "Copy");
    copy.type = "button";
    copy.addEventListener("click", async () => {
      try { await navigator.clipboard.writeText(text); copy.textContent = "Copied"; } catch { getSelection().selectAllChildren(row.firstElementChild); }
      setTimeout(() => { copy.textContent = "Copy"; }, 1500);
    });
    row.append(make("code", "", text), copy);
    return row;
  };

  const pairs = (list) => {
    const table = make("dl");
    for (const [name, value] of list) {
      if (value === undefined || value === null || value === "") { continue; }
      table.append(make("dt", "", name), make("dd", "", value));
    }
    return table;
  };
  const at = (ms) => (ms ? new Date(ms).toLocaleString() : undefined);

  const explain = (job) => {
    const parts = [Object.assign(make("h2", "", job.id), { id: "viewer-name" }), marksOf(job)];
    if (job.error || job.next) {
      const box = make("div", `reason ${job.state === "failed" ? "" : job.state === "in_doubt" ? "in_doubt" : "calm"}`);
      if (job.error) { box.append(make("b", "", job.error.code), make("span", "", job.error.message)); }
      if (job.next) {
        box.append(make("p", "", job.next.text));
        if (job.next.command) { box.append(command(job.next.command)); }
      }
      parts.push(box);
    }
    if (files(job).some(isMissing)) {
      const box = make("div", "reason");
      box.append(make("b", "", "The file is gone"), make("span", "", "It is paid for, and can be downloaded again, free of charge."));
      box.append(command(`callsheet download ${job.name}`));
      parts.push(box);
    }
    if (job.prompt) { parts.push(make("p", "text", job.prompt)); }
    const credits = [plural(job.charged, "credit")];
    if (job.waived) { credits.push(`${number(job.waived)} waived`); }
    if (job.held) { credits.push(`${number(job.held)} held`); }
    if (job.price !== undefined && job.price !== job.charged + (job.waived || 0)) { credits.push(`planned ${number(job.price)}`); }
    parts.push(make("h3", "", "Made with"));
    parts.push(pairs([["Kind", words(job.kind)], ["Model", job.model],
      ...Object.entries(job.options || {}).map(([name, value]) => [name, shown(value)])]));
    parts.push(make("h3", "", "Result"));
    parts.push(pairs([["Credits", credits.join(", ")], ["Time taken", time(job) === null ? undefined : span(time(job))],
      ["Sent", at(job.sent)], ["Ended", at(job.ended)], ["Attempts", job.attempts > 1 ? String(job.attempts) : undefined],
      ["Take", takesOf(job).length > 1 ? `${job.take} of ${takesOf(job).length}` : undefined],
      ["Drift", (job.drift || []).join("; ")], ["Row", `line ${job.line}`], ["Task", job.task], ["Job", job.job]]));
    if (files(job).length) {
      const list = make("ul");
      for (const file of files(job)) {
        const link = make("a", "", file.path);
        link.href = address(file.path);
        link.target = "_blank";
        link.rel = "noopener";
        const fact = facts.get(file.key) || {};
        const more = [size(file.bytes), file.type];
        if (fact.width) { more.push(`${fact.width} × ${fact.height}`); }
        if (fact.seconds) { more.push(clock(fact.seconds)); }
        const item = make("li");
        item.append(link, make("span", "unseen", ", "), document.createElement("br"), make("span", "muted", more.join(" · ")));
        list.append(item);
      }
      parts.push(make("h3", "", files(job).length > 1 ? "Files" : "File"), list);
    }
    const meta = Object.entries(job.meta || {});
    if (meta.length) {
      parts.push(make("h3", "", "Columns"), pairs(meta.map(([name, value]) => [name, shown(value)])));
    }
    details.replaceChildren(...parts);
    details.scrollTop = 0;
  };

  const inViewer = (event) => {
    if (event.target.matches("video, audio") && [" ", "ArrowUp", "ArrowDown"].includes(event.key)) { return; }
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (step) { event.preventDefault(); show(Math.max(0, Math.min(view.length - 1, cursor + step))); }
    if (event.key === " " && !event.target.matches("button, a, video, audio")) {
      const media = [...stage.children].find((each) => each.job === view[cursor])?.querySelector("video, audio");
      if (media) { event.preventDefault(); if (media.paused) { media.play().catch(() => {}); } else { media.pause(); } }
    }
  };
  element("previous").addEventListener("click", () => show(cursor - 1));
  element("next").addEventListener("click", () => show(cursor + 1));
  element("close").addEventListener("click", () => viewer.close());
  viewer.addEventListener("close", () => {
    stage.querySelectorAll("video, audio").forEach((media) => { media.onerror = null; media.pause(); media.removeAttribute("src"); media.load(); });
    stage.replaceChildren();
    stageOf = "";
    grid.focus({ preventScroll: true });
  });

  // ---- Begin

  let frame = 0;
  addEventListener("scroll", () => {
    if (!frame) {
      frame = requestAnimationFrame(() => {
        frame = 0;
        element("filter").classList.toggle("stuck", scrollY > gridTop() - 20);
        draw(false);
      });
    }
  }, { passive: true });
  new ResizeObserver(() => {
    const anchor = Math.max(0, Math.floor((scrollY - gridTop()) / rowHeight)) * columns;
    measure();
    if (anchor > 0) { scrollTo(0, gridTop() + Math.floor(anchor / columns) * rowHeight); }
    draw(false);
  }).observe(element("empty").parentElement);
  measure();
  refresh();
})();
