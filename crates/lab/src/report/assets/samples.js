// Plots of samples: strips with boxes, samples over time, ratios with intervals, latency percentiles.

// The position of a dot across its strip. It depends only on the dot's number, so redrawing keeps it.
function spread(number) {
  return ((number * 0.618034) % 1) * 2 - 1;
}

function shownRows(rows) {
  return rows.filter((row) => !hidden.has(row.entity));
}

function noneShown(plot) {
  svg(plot.root, "text", { x: 0, y: 24, class: "muted" }, "Nothing to draw here.");
}

function drawStrip(place, index) {
  const quantity = data.quantities[index];
  const rows = shownRows(quantity.rows).filter((row) => row.points.length);
  const height = Math.max(1, rows.length) * 54 + 44;
  const plot = frame(place, height, "Samples of " + quantity.name);
  if (!rows.length) return noneShown(plot), plot;
  const scale = valueScale(rows.flatMap((row) => row.points.map((point) => point[1])), 6, plot.width - 6);
  const unit = quantity.unit;
  axisX(plot, scale, height - 36, 0, [unit || quantity.name, scale.remark].filter(Boolean).join(", "));
  rows.forEach((row, number) => {
    const top = number * 54, middle = top + 34;
    const group = svg(plot.root, "g", { class: colour(row.entity) });
    const name = data.entities[row.entity].label;
    const value = "median " + withUnit(row.quartiles[1], unit);
    label(group, { x: 0, y: top + 14, class: "label" }, name, plot.width - value.length * 7 - 20);
    svg(group, "text", { x: plot.width - 2, y: top + 14, "text-anchor": "end", class: "value" }, value);
    const [low, median, high] = row.quartiles.map(scale);
    if (row.points.length > 4) svg(group, "rect", { x: low, y: middle - 11, width: Math.max(1, high - low), height: 22, class: "box" });
    const outliers = new Set(row.outliers);
    const placed = row.points.map((point, i) => [scale(point[1]), middle + spread(i) * 8, point]);
    if (row.bins) drawBins(plot, group, row, name, unit, scale, middle);
    else dots(group, placed.filter((_, i) => !outliers.has(i)), row.points.length > 400 ? "many" : "");
    placed.forEach(([x, y], i) => { if (outliers.has(i)) svg(group, "circle", { cx: x, cy: y, r: 3.5, class: "ring" }); });
    svg(group, "line", { x1: median, x2: median, y1: middle - 13, y2: middle + 13, class: "median" });
    placed.forEach(([x, y, point], i) => {
      if (row.bins && !outliers.has(i)) return;
      plot.marks.push({ x, y, group: row.entity, lines: [name, withUnit(point[1], unit) + (outliers.has(i) ? " (outlier)" : ""), at(quantity, point[0])] });
    });
  });
  return plot;
}

// The distribution of a series with too many samples for single dots: bars whose heights are the shares.
function drawBins(plot, group, row, name, unit, scale, middle) {
  const [from, to, counts] = row.bins;
  const most = extent(counts)[1] || 1, width = (to - from) / counts.length;
  counts.forEach((count, i) => {
    if (!count) return;
    const left = scale(from + i * width), right = scale(from + (i + 1) * width), half = 11 * count / most;
    svg(group, "rect", { x: left, y: middle - half, width: Math.max(1, right - left), height: 2 * half, class: "bin" });
    plot.marks.push({
      x: (left + right) / 2, y: middle, left, right, group: row.entity,
      lines: [name, count + (count === 1 ? " sample" : " samples"), "from " + figure(from + i * width) + " to " + withUnit(from + (i + 1) * width, unit)],
    });
  });
}

function at(quantity, x) {
  return quantity.by_time ? "at " + figure(x) + " s" : "round " + x;
}

function drawTime(place, index) {
  const quantity = data.quantities[index];
  const rows = shownRows(quantity.rows).filter((row) => row.points.length);
  const height = 250, bottom = height - 36;
  const plot = frame(place, height, quantity.name + " over time");
  if (!rows.length) return noneShown(plot), plot;
  const all = rows.flatMap((row) => row.warm_up.concat(row.points));
  const [first, last] = extent(all.map((point) => point[0]));
  const start = quantity.by_time ? Math.min(0, first) : Math.min(first, 1) - 0.5;
  const x = linear(start, quantity.by_time ? last * 1.02 || 1 : last + 0.5, 34, plot.width - 6);
  const y = valueScale(all.map((point) => point[1]), bottom, 30);
  const warm = extent(rows.flatMap((row) => row.warm_up.map((point) => point[0])));
  if (rows.some((row) => row.warm_up.length)) {
    const right = x(quantity.by_time ? warm[1] : warm[1] + 0.5);
    svg(plot.root, "rect", { x: x(start), y: 20, width: Math.max(2, right - x(start)), height: bottom - 20, class: "warm" });
    svg(plot.root, "text", { x: x(start) + 3, y: bottom - 5, class: "muted" }, right - x(start) > 58 ? "warm-up" : "");
  }
  // Counted rounds that look like a warm-up are shaded, too, up to the last such round of any series.
  const warming = rows.filter((row) => row.warming && row.points.length >= row.warming).map((row) => row.points[row.warming - 1][0]);
  if (warming.length) {
    const from = x(quantity.by_time ? warm[1] : 0.5), to = x(extent(warming)[1] + (quantity.by_time ? 0 : 0.5));
    svg(plot.root, "rect", { x: from, y: 20, width: Math.max(2, to - from), height: bottom - 20, class: "warm half" });
    label(plot.root, { x: from + 3, y: bottom - 5, class: "muted" }, "looks like a warm-up", plot.width - from);
  }
  axisX(plot, x, bottom, bottom, quantity.by_time ? "seconds since the start" : "round");
  axisY(plot, y, [quantity.unit || quantity.name, y.remark].filter(Boolean).join(", "));
  for (const row of rows) {
    const group = svg(plot.root, "g", { class: colour(row.entity) });
    const name = data.entities[row.entity].label;
    const outliers = new Set(row.outliers);
    const placed = row.points.map((point) => [x(point[0]), y(point[1])]);
    if (placed.length > 1) svg(group, "path", { d: "M" + placed.map(([a, b]) => a.toFixed(1) + " " + b.toFixed(1)).join("L"), class: "thin" });
    dots(group, placed.filter((_, i) => !outliers.has(i)), placed.length > 400 ? "many" : "");
    dots(group, row.warm_up.map((point) => [x(point[0]), y(point[1])]), "faint");
    placed.forEach(([a, b], i) => { if (outliers.has(i)) svg(group, "circle", { cx: a, cy: b, r: 3.5, class: "ring" }); });
    const mark = (point, more) => plot.marks.push({
      x: x(point[0]), y: y(point[1]), group: row.entity,
      lines: [name, withUnit(point[1], quantity.unit) + more, at(quantity, point[0])],
    });
    row.warm_up.forEach((point) => mark(point, " (warm-up)"));
    row.points.forEach((point, i) => mark(point, outliers.has(i) ? " (outlier)" : ""));
  }
  return plot;
}

function drawForest(place, index) {
  const forest = data.forests[index];
  const rows = forest.rows.filter((row) => row.value > 0 && Number.isFinite(row.value));
  const height = Math.max(1, rows.length) * 46 + 44, bottom = height - 36;
  const plot = frame(place, height, "Ratios with their intervals");
  if (!rows.length) return noneShown(plot), plot;
  const ends = rows.flatMap((row) => [row.low, row.value, row.high]).filter((value) => value > 0);
  let [low, high] = extent(ends.concat([1]));
  const room = Math.max((high / low) ** 0.06, 1.002);
  [low, high] = [low / room, high * room];
  const position = logarithmic(low, high, 6, plot.width - 6);
  const scale = Object.assign((value) => position(value), { ticks: position.ticks });
  if (forest.percent && high / low < 4) {
    const change = linear((low - 1) * 100, (high - 1) * 100, 0, 1);
    scale.ticks = (count) => change.ticks(count).map(([value, text]) => [value / 100 + 1, (value > 0 ? "+" : "") + text + " %"]);
  }
  axisX(plot, scale, bottom, 0, forest.percent ? "change" : "ratio, with its 95 % interval");
  const one = scale(1);
  svg(plot.root, "line", { x1: one, x2: one, y1: 0, y2: bottom, class: "one" });
  rows.forEach((row, number) => {
    const top = number * 46, middle = top + 30;
    const group = svg(plot.root, "g", { class: "forest " + (row.tone || "plain") });
    // On a narrow screen, the texts would overlap, so only the figures are shown. The tooltip and the table
    // have the rest.
    const text = plot.width < 480 ? row.text.replace(/^.*: /, "") : row.text;
    label(group, { x: 0, y: top + 14, class: "label" }, row.label, plot.width - text.length * 7 - 16);
    svg(group, "text", { x: plot.width - 2, y: top + 14, "text-anchor": "end", class: "value" }, text);
    const reach = [row.low > 0 ? row.low : low, row.high > 0 ? row.high : high].map(scale);
    svg(group, "line", { x1: reach[0], x2: reach[1], y1: middle, y2: middle, class: "interval" });
    for (const end of reach) svg(group, "line", { x1: end, x2: end, y1: middle - 4, y2: middle + 4, class: "interval" });
    svg(group, "rect", { x: scale(row.value) - 4, y: middle - 4, width: 8, height: 8, class: "point" });
    plot.marks.push({ x: scale(row.value), y: middle, left: reach[0], right: reach[1], group: number, lines: [row.label, row.text] });
  });
  return plot;
}

const SHARES = [[1, "0"], [0.5, "50"], [0.1, "90"], [0.01, "99"], [0.001, "99.9"], [1e-4, "99.99"], [1e-5, "99.999"], [1e-6, "99.9999"]];

function drawLatency(place, index) {
  const quantity = data.latencies[index];
  const curves = shownRows(quantity.curves);
  const height = 270, bottom = height - 36;
  const plot = frame(place, height, "Latency percentiles of " + quantity.quantity);
  const steps = curves.map((curve) => curve.steps.filter((step) => step[1] !== null && step[1] > 0));
  const values = steps.flatMap((list) => list.map((step) => step[1]));
  if (!values.length) return noneShown(plot), plot;
  const least = Math.max(1e-9, extent(steps.flatMap((list) => list.map((step) => step[0])))[0]) * 0.7;
  const x = linear(0, -Math.log10(least), 34, plot.width - 6);
  const share = (value) => x(-Math.log10(Math.max(value, least)));
  let [low, high] = extent(values);
  const y = high / low > 8 ? logarithmic(low / 1.2, high * 1.3, bottom, 30) : linear(0, high * 1.1, bottom, 30);
  const every = plot.width < 480 ? 2 : 1;
  x.ticks = () => SHARES.filter(([value], i) => value >= least && (i < 2 || i % every === 0 || value > least * 12))
    .map(([value, text]) => [-Math.log10(value), text]);
  axisX(plot, x, bottom, 20, "percent of the operations");
  axisY(plot, y, high / low > 8 ? "us, logarithmic" : "us");
  curves.forEach((curve, number) => {
    const list = steps[number];
    if (!list.length) return;
    const group = svg(plot.root, "g", { class: colour(curve.entity) });
    const name = data.entities[curve.entity].label;
    let path = `M${share(list[0][0])} ${y(list[0][1])}`;
    list.forEach((step, i) => { path += `V${y(step[1]).toFixed(1)}H${share(i + 1 < list.length ? list[i + 1][0] : least).toFixed(1)}`; });
    svg(group, "path", { d: path, class: "curve" });
    list.forEach((step, i) => {
      const next = i + 1 < list.length ? list[i + 1][0] : 0;
      plot.marks.push({
        x: share(step[0]), y: y(step[1]), left: share(step[0]), right: share(next), group: curve.entity,
        lines: [name, figure((1 - next) * 100) + " % took at most " + figure(step[1]) + " us"],
      });
    });
  });
  return plot;
}
