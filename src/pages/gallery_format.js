// How numbers, times, sizes and the marks of a job are written, and the summary above the gallery.

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

const stateMarks = (job) => {
  const found = [];
  if (job.state !== "succeeded" && !isOpen(job)) { found.push([job.state, words(job.state)]); }
  if (isOpen(job)) { found.push(["open", job.state === "fetching" ? "downloading" : job.state]); }
  if (job.late) { found.push(["late", isOpen(job) ? "overdue" : "late"]); }
  if (superseded.has(job.seq) && job.state !== "replaced") { found.push(["superseded", "superseded"]); }
  if ((job.drift || []).length) { found.push(["drift", "differs from plan"]); }
  if (files(job).some(isMissing)) { found.push(["gone", "file gone"]); }
  return found;
};

/** What a person decided about its outputs, or that this is waited for; nothing where nobody asks for it. */
const decision = (job) => {
  const name = job.review?.decision;
  return name === "waiting" && superseded.has(job.seq) ? undefined : name;
};
const decisionText = (name) => (name === "waiting" ? "waiting for review" : words(name));
const marks = (job) => {
  const name = decision(job);
  return name ? [...stateMarks(job), [name, decisionText(name)]] : stateMarks(job);
};

const withFlags = (text, commands) => (index?.flags ? text.replace(commands, `$& ${index.flags.replaceAll("$", "$$$$")}`) : text);
/** A text in which every command has the flags that it needs to work on this state. */
const typed = (text) => withFlags(text, /\bcallsheet (review [a-z-]+|[a-z]+)/g);
/** The same of one command: the names in it stay as they are. */
const typedCommand = (text) => withFlags(text, /^callsheet (review [a-z-]+|[a-z]+)/);

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
  if (index.parked) { parked.textContent = `Parked: ${typed(index.parked.text)}`; }
};
