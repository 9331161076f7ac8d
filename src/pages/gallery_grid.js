// The grid of jobs: only what is in sight is in the document.

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
  gap = parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--gap")) || 16;
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
  parts.push(isOpen(job) && !job.charged ? `${number(job.held || 0)} held` : plural(job.charged, "credit"));
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
