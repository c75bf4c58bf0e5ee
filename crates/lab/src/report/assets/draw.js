// Drawing: elements, scales, the frame and axes of a plot, and the marks that the pointer and the arrow keys
// select.

const SVG = "http://www.w3.org/2000/svg";

function html(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

function svg(parent, tag, attributes, text) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes || {})) node.setAttribute(name, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

// Four significant digits, as in the tables.
function figure(value) {
  if (value === null || !Number.isFinite(value)) return "no number";
  if (Number.isInteger(value) && Math.abs(value) < 1e15) return String(value);
  const size = Math.abs(value);
  if (size < 1e-4 || size >= 1e15) return value.toExponential(3);
  return value.toFixed(Math.min(7, Math.max(0, 3 - Math.floor(Math.log10(size)))));
}

function withUnit(value, unit) {
  return unit ? figure(value) + " " + unit : figure(value);
}

function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
  let unit = 0;
  while (count >= 1024 && unit + 1 < units.length) { count /= 1024; unit += 1; }
  return figure(count) + " " + units[unit];
}

// Axis labels: no more digits than are needed to distinguish two ticks.
function tickText(value, step) {
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e7 || size < 1e-5)) return value.toExponential().replace("e+", "e");
  const decimals = step >= 1 ? 0 : Math.min(7, Math.ceil(-Math.log10(step) - 1e-9));
  return value.toFixed(decimals).replace(/^-/, "\u2212");
}

function finite(values) {
  return values.filter((value) => value !== null && Number.isFinite(value));
}

// The minimum and maximum of many numbers. Math.min with thousands of arguments can overflow the stack.
function extent(values) {
  let low = Infinity, high = -Infinity;
  for (const value of values) {
    if (value === null || !Number.isFinite(value)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  return low <= high ? [low, high] : [0, 1];
}

function niceStep(span, count) {
  const rough = span / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const share = rough / power;
  return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

function linear(low, high, from, to) {
  const span = high - low || 1;
  const scale = (value) => from + ((value - low) / span) * (to - from);
  scale.ticks = (count) => {
    const step = niceStep(span, count);
    const ticks = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9 && ticks.length < 50; i += 1) {
      ticks.push([i * step, tickText(i * step, step)]);
    }
    return ticks;
  };
  return scale;
}

function logarithmic(low, high, from, to) {
  const [l, h] = [Math.log10(low), Math.log10(high)];
  const span = h - l || 1;
  const scale = (value) => from + ((Math.log10(value) - l) / span) * (to - from);
  scale.ticks = (count) => {
    if (high / low < 4) return linear(low, high, from, to).ticks(count);
    const each = span > 0.8 * count ? [1] : span > 0.4 * count ? [1, 3] : [1, 2, 5];
    const skip = Math.max(1, Math.ceil(span / count));
    const ticks = [];
    for (let power = Math.floor(l); power <= Math.ceil(h) && ticks.length < 60; power += 1) {
      if (each.length === 1 && power % skip !== 0) continue;
      for (const digit of each) {
        const value = digit * 10 ** power;
        if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push([value, tickText(value, value)]);
      }
    }
    return ticks;
  };
  return scale;
}

// The scale for measured values: from 0 if that takes less than half of the axis; logarithmic if the values
// span several powers of ten. Dots show positions, not lengths as bars do, so an axis need not begin at 0. If
// it does not, a remark says so.
function valueScale(values, from, to) {
  let [low, high] = extent(values);
  if (low > 0 && high / low > 200) {
    return Object.assign(logarithmic(low / 1.15, high * 1.15, from, to), { remark: "logarithmic" });
  }
  if (low >= 0 && low < high * 0.5) return linear(0, high * 1.04 || 1, from, to);
  if (low === high && low === 0) return linear(0, 1, from, to);
  const room = (high - low || Math.abs(high) * 0.1) * 0.08;
  const scale = linear(low - room, high + room, from, to);
  if (low > 0) scale.remark = "axis does not begin at 0";
  return scale;
}

function shorten(text, pixels) {
  const room = Math.max(4, Math.floor(pixels / 6.6));
  return text.length <= room ? text : text.slice(0, room - 1) + "\u2026";
}

// A text, shortened to the available width. If it is shortened, its title has the whole text.
function label(parent, attributes, text, pixels) {
  const short = shorten(text, pixels);
  const node = svg(parent, "text", attributes, short);
  if (short !== text) svg(node, "title", {}, text);
  return node;
}

function colour(entity) {
  return entity < 8 ? "s" + entity : "other";
}

// An empty plot of the given height, as wide as its place: {root, width, height, marks}.
function frame(place, height, name) {
  const width = Math.max(220, Math.floor(place.clientWidth));
  place.querySelectorAll("svg").forEach((old) => old.remove());
  const root = svg(place, "svg", {
    viewBox: `0 0 ${width} ${height}`, width, height, tabindex: "0", role: "group",
    "aria-roledescription": "plot", "aria-label": name + ". Arrow keys go from mark to mark.",
  });
  place.prepend(root);
  return { root, width, height, marks: [] };
}

// The horizontal axis at y, with grid lines up to top.
function axisX(plot, scale, y, top, title) {
  const group = svg(plot.root, "g", { class: "axis" });
  for (const [value, text] of scale.ticks(Math.max(2, Math.floor(plot.width / 90)))) {
    const x = scale(value);
    svg(group, "line", { x1: x, x2: x, y1: top, y2: y });
    svg(group, "text", { x, y: y + 15, "text-anchor": x > plot.width - 18 ? "end" : x < 18 ? "start" : "middle" }, text);
  }
  svg(group, "text", { x: plot.width - 2, y: y + 31, "text-anchor": "end", class: "title" }, title);
  return group;
}

// The vertical axis: its labels are above the grid lines, so they need no margin.
function axisY(plot, scale, title, count) {
  const group = svg(plot.root, "g", { class: "axis" });
  for (const [value, text] of scale.ticks(count || 4)) {
    const y = scale(value);
    svg(group, "line", { x1: 0, x2: plot.width, y1: y, y2: y });
    svg(group, "text", { x: 0, y: y - 3 }, text);
  }
  svg(group, "text", { x: 0, y: 12, class: "title" }, title);
  return group;
}

// Many dots as one element: segments of length 0 with round ends.
function dots(parent, points, classes) {
  let path = "";
  for (const [x, y] of points) path += `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
  if (path) svg(parent, "path", { d: path, class: "dots " + classes });
}

// The tooltip with a mark's values, and the same text for screen readers: one of each for the page.
const tip = html("div", { class: "tip", hidden: "" });
const spoken = html("div", { class: "spoken", "aria-live": "polite" });

function hideTip() {
  tip.hidden = true;
  document.querySelectorAll(".cursor").forEach((old) => old.remove());
}

function showTip(plot, mark, say) {
  hideTip();
  svg(plot.root, "circle", { cx: mark.x, cy: mark.y, r: 6, class: "cursor" });
  tip.replaceChildren(...mark.lines.map((line, i) => html("div", i ? {} : { class: "first" }, line)));
  if (say) spoken.textContent = mark.lines.join(", ");
  tip.hidden = false;
  const box = plot.root.getBoundingClientRect();
  const share = box.width / plot.width;
  const x = box.left + mark.x * share, y = box.top + mark.y * share;
  const left = Math.min(Math.max(8, x + 12), document.documentElement.clientWidth - tip.offsetWidth - 8);
  const above = y - tip.offsetHeight - 12;
  tip.style.left = left + window.scrollX + "px";
  tip.style.top = (above > 4 ? above : y + 14) + window.scrollY + "px";
}

// Makes the marks of a plot respond to the pointer and to keys. A mark: {x, y, lines, group}, and
// {left, right} if it extends horizontally.
function listen(plot) {
  const marks = plot.marks;
  let current = -1;
  const distance = (mark, x, y) => {
    const left = mark.left === undefined ? mark.x : mark.left, right = mark.right === undefined ? mark.x : mark.right;
    const dx = x < left ? left - x : x > right ? x - right : 0;
    return dx * dx + (y - mark.y) * (y - mark.y);
  };
  const point = (event) => {
    const box = plot.root.getBoundingClientRect();
    const share = plot.width / box.width;
    const x = (event.clientX - box.left) * share, y = (event.clientY - box.top) * share;
    let best = -1, least = 40 * 40;
    marks.forEach((mark, i) => {
      const far = distance(mark, x, y);
      if (far < least) { best = i; least = far; }
    });
    current = best;
    if (best < 0) hideTip(); else showTip(plot, marks[best], false);
  };
  plot.root.addEventListener("pointermove", point);
  // Touch has no hovering: a tapped mark is shown until the next tap elsewhere.
  plot.root.addEventListener("pointerdown", point);
  plot.root.addEventListener("pointerleave", (event) => { if (event.pointerType !== "touch") hideTip(); });
  plot.root.addEventListener("blur", hideTip);
  plot.root.addEventListener("keydown", (event) => {
    const group = (step) => {
      const now = marks[Math.max(0, current)].group;
      for (let i = Math.max(0, current) + step; i >= 0 && i < marks.length; i += step) {
        if (marks[i].group !== now) return i;
      }
      return current;
    };
    const move = {
      ArrowRight: () => Math.min(marks.length - 1, current + 1), ArrowLeft: () => Math.max(0, current - 1),
      ArrowDown: () => group(1), ArrowUp: () => group(-1), Home: () => 0, End: () => marks.length - 1,
    }[event.key];
    if (event.key === "Escape") hideTip();
    if (!move || !marks.length) return;
    event.preventDefault();
    current = Math.max(0, move());
    showTip(plot, marks[current], true);
  });
}
