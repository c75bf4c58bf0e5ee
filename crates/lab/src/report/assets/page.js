// The page: its data, the plots in their places, legends that hide series, and the colour theme.

const data = JSON.parse(document.getElementById("data").textContent);
const hidden = new Set();
const drawers = {
  strip: drawStrip, time: drawTime, forest: drawForest, latency: drawLatency,
  pipeline: drawPipeline, depth: drawDepth, pauses: drawPauses, sizes: drawSizes,
};

// If a plot cannot be drawn, a message is shown in its place, and the others are drawn.
function draw(place) {
  if (!place.clientWidth) return;
  place.dataset.width = place.clientWidth;
  place.querySelectorAll(".problem").forEach((old) => old.remove());
  try {
    const plot = drawers[place.dataset.plot](place, Number(place.dataset.index));
    listen(plot);
    place.dataset.drawn = plot.marks.length;
  } catch (error) {
    place.dataset.failed = String(error);
    console.error(place.dataset.plot, error);
    place.prepend(html("p", { class: "problem" }, "This plot could not be drawn: " + error));
  }
}

const places = [...document.querySelectorAll("figure[data-plot] > .plot")];

function drawAll() {
  hideTip();
  places.forEach(draw);
}

function fillLegends() {
  for (const legend of document.querySelectorAll("[data-legend]")) {
    const numbers = legend.dataset.legend.split(" ").map(Number);
    for (const number of numbers) {
      const button = html("button", { type: "button", "aria-pressed": "true", "data-entity": number, title: "Show or hide" },
        html("span", { class: "swatch " + colour(number) }), data.entities[number].label);
      button.addEventListener("click", () => {
        if (!hidden.delete(number)) hidden.add(number);
        for (const same of document.querySelectorAll(`button[data-entity="${number}"]`)) same.setAttribute("aria-pressed", String(!hidden.has(number)));
        drawAll();
      });
      legend.append(button);
    }
  }
}

// Long traces are shown one window at a time.
function fillWindows() {
  for (const place of places) {
    if (place.dataset.plot !== "pipeline") continue;
    const trace = data.traces[Number(place.dataset.index)];
    if (trace.bios.length <= ROWS) continue;
    const shown = html("output", {});
    const slider = html("input", { type: "range", min: 0, max: trace.bios.length - ROWS, value: 0, step: 1 });
    const say = () => {
      const first = Number(slider.value);
      const more = trace.bios_in_all > trace.bios.length ? `, of which the first ${trace.bios.length} are kept` : "";
      shown.textContent = `bios ${first + 1} to ${first + ROWS} of ${trace.bios_in_all}${more}`;
    };
    slider.addEventListener("input", () => { place.dataset.first = slider.value; say(); hideTip(); draw(place); });
    say();
    place.after(html("label", { class: "window" }, slider, shown));
  }
}

const themes = ["auto", "light", "dark"];
const wantsDark = matchMedia("(prefers-color-scheme: dark)");
let theme = "auto";

function applyTheme() {
  document.documentElement.dataset.theme = theme === "auto" ? (wantsDark.matches ? "dark" : "light") : theme;
  document.getElementById("theme").textContent = { auto: "Colours: system", light: "Colours: light", dark: "Colours: dark" }[theme];
}

document.getElementById("theme").addEventListener("click", () => {
  theme = themes[(themes.indexOf(theme) + 1) % themes.length];
  applyTheme();
});
wantsDark.addEventListener("change", applyTheme);

applyTheme();
document.body.append(tip, spoken);
fillLegends();
fillWindows();
drawAll();
document.documentElement.dataset.drawn = places.filter((place) => place.dataset.drawn !== undefined).length;
new ResizeObserver(() => {
  if (places.some((place) => place.clientWidth !== Number(place.dataset.width))) drawAll();
}).observe(document.body);
