// The keys of the gallery.

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
