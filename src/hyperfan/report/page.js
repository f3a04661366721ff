// Switches hide what belongs to them; a tooltip tells the value under the pointer, or the one the arrow keys are at.
const REACH = 40;
document.documentElement.classList.add("live");

const boxes = [...document.querySelectorAll("[data-switch]")];
const belonging = [...document.querySelectorAll("[data-in]")];

function applySwitches() {
  const off = new Set(boxes.filter((box) => !box.checked).map((box) => box.dataset.switch));
  for (const element of belonging) {
    element.classList.toggle("off", element.dataset.in.split(" ").some((name) => off.has(name)));
  }
  hide();
}

const tip = document.createElement("div");
tip.className = "tip";
tip.setAttribute("role", "status");
document.body.append(tip);

const ring = document.createElementNS(document.querySelector("svg")?.namespaceURI ?? null, "circle");
ring.setAttribute("class", "cursor");
ring.setAttribute("r", "6");

// The points of a line are read off its path, and what is said of each from beside it.
const read = new Map();
function pointsOf(series) {
  if (!read.has(series)) {
    const line = series.querySelector(":scope > .line");
    const points = line
      ? [...line.getAttribute("d").matchAll(/(-?[\d.]+),(-?[\d.]+)/g)].map(([, x, y], i) => (
          { x: +x, y: +y, tip: line.dataset.tip.split("|")[i], element: series }))
      : [...series.querySelectorAll(".point")].map((element) => (
          { x: +element.dataset.x, y: +element.dataset.y, tip: element.dataset.tip, element }));
    read.set(series, points);
  }
  return read.get(series).filter((point) => !point.element.closest(".off"));
}

function seriesIn(element) {
  return [...element.querySelectorAll(".series")].filter((series) => pointsOf(series).length);
}

function show(series, point) {
  const svg = series.closest("svg");
  ring.setAttribute("cx", point.x);
  ring.setAttribute("cy", point.y);
  svg.append(ring);
  const label = document.createElement("b");
  label.textContent = series.dataset.label;
  tip.replaceChildren(label, point.tip);
  const at = new DOMPoint(point.x, point.y).matrixTransform(svg.getScreenCTM());
  const left = Math.min(at.x + 14, innerWidth - tip.offsetWidth - 8);
  const above = at.y - tip.offsetHeight - 12;
  tip.style.left = `${Math.max(left, 8)}px`;
  tip.style.top = `${above < 8 ? at.y + 14 : above}px`;
}

function hide() {
  tip.replaceChildren();
  ring.remove();
}

function nearest(svg, event) {
  const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
  let best = { far: REACH };
  for (const series of seriesIn(svg)) {
    for (const point of pointsOf(series)) {
      const far = Math.hypot(point.x - at.x, point.y - at.y);
      if (far < best.far) best = { far, series, point };
    }
  }
  return best;
}

for (const panels of document.querySelectorAll(".panels")) {
  let line = 0;
  let place = 0;

  function showCurrent() {
    const all = seriesIn(panels);
    if (!all.length) return hide();
    line = Math.min(Math.max(line, 0), all.length - 1);
    const points = pointsOf(all[line]);
    place = Math.min(Math.max(place, 0), points.length - 1);
    all[line].closest("svg").scrollIntoView({ block: "nearest" });
    show(all[line], points[place]);
  }

  const moves = {
    ArrowRight: () => { place += 1; },
    ArrowLeft: () => { place -= 1; },
    ArrowDown: () => { line += 1; },
    ArrowUp: () => { line -= 1; },
    Home: () => { place = 0; },
    End: () => { place = Infinity; },
  };
  panels.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    if (!(event.key in moves)) return;
    event.preventDefault();
    moves[event.key]();
    showCurrent();
  });
  panels.addEventListener("focus", () => { if (panels.matches(":focus-visible")) showCurrent(); });
  panels.addEventListener("blur", hide);
  panels.addEventListener("pointermove", (event) => {
    const svg = event.target.closest("svg");
    const { series, point } = svg ? nearest(svg, event) : {};
    if (series) show(series, point);
    else hide();
  });
  panels.addEventListener("pointerleave", hide);
}

for (const box of boxes) box.addEventListener("change", applySwitches);
addEventListener("scroll", () => { if (!document.activeElement.matches(".panels")) hide(); }, { passive: true });
