// What starts the gallery, and keeps it drawn as the page is scrolled and resized.

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
