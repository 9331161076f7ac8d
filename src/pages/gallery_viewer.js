// The viewer: a job large, its takes beside each other.

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

const command = (untyped) => {
  const text = typedCommand(untyped);
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

/** `rejected by ana, 3/1/2026, 10:00:00: too dark` */
const decided = (job) => {
  const { by, at: when, note } = job.review || {};
  if (!decision(job)) { return undefined; }
  return decisionText(decision(job)) + (by ? ` by ${by}` : "") + (when ? `, ${at(when)}` : "") + (note ? `: ${note}` : "");
};

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
  const notes = [];
  if (job.late) {
    notes.push(isOpen(job) ? ["Overdue", "Its deadline has passed. Its task is polled less often, and its outputs are downloaded when it ends."]
      : ["Late", "It ended after its deadline. It is paid for."]);
  }
  if (superseded.has(job.seq) && job.state !== "replaced") {
    notes.push(["Superseded", "A later manifest asks for something else in its row. Its outputs stay, under a name of their own."]);
  }
  for (const [mark, text] of notes) {
    const box = make("div", "reason calm");
    box.append(make("b", "", mark), make("span", "", text), command(`callsheet explain ${job.name}`));
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
    ["Decision", decided(job)], ["Drift", (job.drift || []).join("; ")], ["Row", `line ${job.line}`], ["Task", job.task], ["Job", job.job]]));
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
