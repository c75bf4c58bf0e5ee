// Plots of what the path did: the pipeline of bios, queue depth, pauses, sizes.

const ROWS = 40;

// The time span of a trace's plot: that of the longest trace, so that all can be compared by eye; or its own,
// if it would be too short to be visible in that.
function span(own, all) {
  const longest = Math.max(...all);
  return longest < own * 25 ? longest : own;
}

function millis(us) {
  return Math.abs(us) < 1000 ? figure(us) + " us" : Math.abs(us) < 1e6 ? figure(us / 1000) + " ms" : figure(us / 1e6) + " s";
}

// A scale of microseconds, with labels in a suitable unit.
function timeScale(from, to, left, right) {
  const [unit, size] = to < 2e3 ? ["us", 1] : to < 2e6 ? ["ms", 1e3] : ["s", 1e6];
  const inner = linear(from / size, to / size, left, right);
  const scale = (us) => inner(us / size);
  scale.ticks = (count) => inner.ticks(count).map(([value, text]) => [value * size, text]);
  scale.unit = unit;
  return scale;
}

function windowOf(trace, first) {
  const bios = trace.bios.slice(first, first + ROWS);
  const from = first === 0 ? 0 : extent(bios.map((bio) => bio[0]))[0];
  const to = extent(bios.map((bio) => (bio[2] === null ? bio[1] : bio[2])))[1];
  return [bios, from, Math.max(to, from + 1)];
}

function drawPipeline(place, index) {
  const trace = data.traces[index];
  const first = Number(place.dataset.first || 0);
  const [bios, from, own] = windowOf(trace, first);
  const rowHeight = bios.length > 24 ? 9 : 14;
  const top = 30, height = Math.max(1, bios.length) * rowHeight + top + 44, bottom = height - 36;
  const plot = frame(place, height, "Pipeline of " + data.entities[trace.entity].label);
  if (!bios.length) return noneShown(plot), plot;
  const to = first === 0 ? span(own, data.traces.filter((t) => t.bios.length).map((t) => windowOf(t, 0)[2])) : own;
  const x = timeScale(from, to, 58, plot.width - 6);
  axisX(plot, x, bottom, top, x.unit + " since the start");
  const group = svg(plot.root, "g", { class: colour(trace.entity) });
  bios.forEach((bio, i) => {
    const y = top + i * rowHeight, thick = rowHeight - 3;
    const done = bio[2] === null ? to : bio[2];
    if (rowHeight > 9 || i % 4 === 0) svg(plot.root, "text", { x: 52, y: y + thick - 1, "text-anchor": "end", class: "size" }, bytes(bio[3]));
    if (bio[1] > bio[0]) svg(group, "rect", { x: x(bio[0]), y: y + thick / 2 - 1.5, width: Math.max(0.5, x(bio[1]) - x(bio[0])), height: 3, class: "build" });
    svg(group, "rect", { x: x(bio[1]), y, width: Math.max(1, x(done) - x(bio[1])), height: thick, class: bio[2] === null ? "service unended" : "service" });
    plot.marks.push({
      x: x(bio[1]), y: y + thick / 2, left: x(bio[0]), right: x(done), group: i,
      lines: [
        `bio ${first + i + 1}: ${trace.operations[bio[4]] || ""} ${bytes(bio[3])}`,
        "built in " + millis(bio[1] - bio[0]) + ", submitted at " + millis(bio[1]),
        bio[2] === null ? "no completion was seen" : "completed after " + millis(bio[2] - bio[1]),
      ],
    });
  });
  if (first === 0) {
    const at = x(bios[0][1]);
    svg(plot.root, "line", { x1: at, x2: at, y1: 16, y2: bottom, class: "one" });
    const right = at > plot.width * 0.6;
    svg(plot.root, "text", { x: at + (right ? -4 : 4), y: 22, class: "label", "text-anchor": right ? "end" : "start" }, "first submitted: " + millis(bios[0][1]));
  }
  return plot;
}

function drawDepth(place, index) {
  const trace = data.traces[index];
  const height = 170, bottom = height - 36;
  const plot = frame(place, height, "Queue depth of " + data.entities[trace.entity].label);
  if (!trace.depth.length) return noneShown(plot), plot;
  const x = timeScale(0, span(trace.span_us || 1, data.traces.map((t) => t.span_us)), 34, plot.width - 6);
  const y = linear(0, Math.max(1, ...data.traces.map((t) => t.most_in_flight)) * 1.1, bottom, 26);
  axisX(plot, x, bottom, bottom, x.unit + " since the start");
  y.ticks = ((ticks) => (count) => ticks(count).filter(([value]) => Number.isInteger(value)))(y.ticks);
  axisY(plot, y, "bios on the device", 3);
  const group = svg(plot.root, "g", { class: colour(trace.entity) });
  let line = `M${x(trace.depth[0][0])} ${y(0)}`;
  for (const [time, depth] of trace.depth) line += `H${x(time).toFixed(1)}V${y(depth).toFixed(1)}`;
  line += `H${x(trace.span_us).toFixed(1)}`;
  svg(group, "path", { d: line + `V${y(0)}Z`, class: "area" });
  svg(group, "path", { d: line, class: "curve" });
  trace.depth.forEach(([time, depth], i) => {
    const next = i + 1 < trace.depth.length ? trace.depth[i + 1][0] : trace.span_us;
    plot.marks.push({
      x: x(time), y: y(depth), left: x(time), right: x(next), group: 0,
      lines: [depth === 1 ? "1 bio on the device" : depth + " bios on the device", "from " + millis(time)],
    });
  });
  return plot;
}

function drawPauses(place, index) {
  const trace = data.traces[index];
  const height = 170, bottom = height - 36;
  const plot = frame(place, height, "Pauses and commits of " + data.entities[trace.entity].label);
  const spans = trace.pauses.map((pause) => [...pause, "pause"]).concat(trace.commits.map((commit) => [...commit, "commit"]));
  spans.sort((a, b) => a[0] - b[0]);
  if (!spans.length) return noneShown(plot), plot;
  const x = timeScale(0, span(trace.span_us || 1, data.traces.map((t) => t.span_us)), 34, plot.width - 6);
  const y = timeScale(0, extent(spans.map((s) => s[1]))[1] * 1.15 || 1, bottom, 26);
  axisX(plot, x, bottom, bottom, x.unit + " since the start");
  axisY(plot, y, y.unit + " long", 3);
  const group = svg(plot.root, "g", { class: colour(trace.entity) });
  for (const [begin, took, what] of spans) {
    svg(group, "line", { x1: x(begin), x2: x(begin), y1: bottom, y2: y(took), class: "stem " + what });
    svg(group, what === "pause" ? "circle" : "rect", what === "pause"
      ? { cx: x(begin), cy: y(took), r: 3, class: "head" } : { x: x(begin) - 3, y: y(took) - 3, width: 6, height: 6, class: "head commit" });
    plot.marks.push({ x: x(begin), y: y(took), group: what, lines: [what + " of " + millis(took), "at " + millis(begin)] });
  }
  return plot;
}

function drawSizes(place, index) {
  const trace = data.traces[index];
  const rows = trace.sizes;
  const height = Math.max(1, rows.length) * 24 + 8;
  const plot = frame(place, height, "Bio sizes of " + data.entities[trace.entity].label);
  if (!rows.length) return noneShown(plot), plot;
  const all = rows.reduce((sum, row) => sum + row[1], 0);
  const x = linear(0, extent(rows.map((row) => row[1]))[1], 0, Math.max(20, plot.width - 84 - 110));
  const group = svg(plot.root, "g", { class: colour(trace.entity) });
  rows.forEach(([size, count], i) => {
    const y = i * 24 + 4, name = (trace.sizes_are_classes ? "from " : "") + bytes(size);
    svg(plot.root, "text", { x: 78, y: y + 13, "text-anchor": "end", class: "size" }, name);
    svg(group, "rect", { x: 84, y, width: Math.max(1, x(count)), height: 17, class: "bar" });
    const text = `${count} (${figure(Math.round((count / all) * 1000) / 10)} %)`;
    svg(plot.root, "text", { x: 84 + x(count) + 6, y: y + 13, class: "value" }, text);
    plot.marks.push({ x: 84 + x(count), y: y + 8, left: 84, group: i, lines: [name, text + " of the bios"] });
  });
  return plot;
}
