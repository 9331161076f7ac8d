// Thumbnails, waveforms and players of the gallery.

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
  box.prepend(said("The file is gone", `${file.path} is not on disk. To download it again, free of charge: ${typedCommand(`callsheet download ${job.name}`)}`));
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
