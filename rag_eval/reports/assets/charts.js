// The charts: drawn by Vega when they come into sight, in the colours of the page.

const MOST_ROWS = 400;
const LEGEND = 110;
const drawn = new Map();

function startCharts() {
  const watcher = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      watcher.unobserve(target);
      drawOnce(target.dataset.chart);
    }),
    { rootMargin: "400px" },
  );
  for (const chart of manifest.charts) {
    const figure = byId(`chart-${chart.id}`);
    figure.dataset.chart = chart.id;
    chooseFrom(chart, figure);
    // Room for the chart and its legend, so that the page does not jump when it is drawn.
    figure.querySelector(".drawing").style.minHeight = `${chart.spec.height + LEGEND}px`;
    const numbers = figure.querySelector("details");
    numbers.addEventListener("toggle", () => numbers.open && drawNumbers(chart, numbers));
    watcher.observe(figure);
  }
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawCharts);
}

const drawOnce = (id) => (drawn.has(id) ? undefined : drawChart(id));

/** Draw what is not drawn yet, one chart at a time: pages are printed and photographed that nobody scrolled. */
async function drawRest() {
  for (const { id } of manifest.charts) {
    await new Promise((done) => setTimeout(done));
    await drawOnce(id);
  }
}

/** Paper is white: print in the light colours, whatever the screen has, and every chart. */
function startPrinting() {
  const root = document.documentElement;
  let theme;
  window.addEventListener("beforeprint", () => {
    theme = root.dataset.theme;
    root.dataset.theme = "light";
    manifest.charts.forEach(({ id }) => drawOnce(id));
  });
  window.addEventListener("afterprint", () => {
    if (theme === undefined) {
      delete root.dataset.theme;
    } else {
      root.dataset.theme = theme;
    }
  });
}

/** Draw again what is drawn, in the colours of now. */
function redrawCharts() {
  for (const id of [...drawn.keys()]) {
    drawChart(id);
  }
}

/** The selects of a chart, for each field that its rows are chosen by. */
function chooseFrom(chart, figure) {
  chart.chosen = { ...chart.choices };
  const bar = figure.querySelector(".choices");
  for (const [field, preset] of Object.entries(chart.choices)) {
    const values = [...new Set(chart.rows.map((row) => row[field]))];
    const select = make("select");
    fill(select, values.map((value) => [value, String(value)]), preset);
    select.addEventListener("input", () => {
      chart.chosen[field] = values.find((value) => String(value) === select.value);
      drawChart(chart.id);
      const numbers = figure.querySelector("details");
      drawNumbers(chart, numbers);
    });
    bar.append(make("label", {}, field === "k" ? "first hits " : `${field} `, select));
  }
}

const rowsOf = (chart) =>
  chart.rows.filter((row) => Object.entries(chart.chosen).every(([field, value]) => row[field] === value));

async function drawChart(id) {
  const chart = manifest.charts.find((one) => one.id === id);
  const place = byId(`chart-${id}`).querySelector(".drawing");
  const config = { ...chart.spec.config, ...chartColours() };
  // The wide ones first: what is equal to them stands in front of them.
  const rows = rowsOf(chart).sort((x, y) => (y.ring ?? 0) - (x.ring ?? 0));
  const spec = { ...chart.spec, datasets: { rows }, config };
  spec.params = chart.spec.params?.map((param) => ({ ...param, ...cssColour(param.name) }));
  const turn = (drawn.get(id)?.turn ?? 0) + 1;
  drawn.get(id)?.view?.finalize();
  drawn.set(id, { turn });
  // The interpreter runs Vega's expressions without eval, which the page's policy forbids.
  const options = { ast: true, actions: false, defaultStyle: false, renderer: "svg", tooltip: showTip, logLevel: 1 };
  const { view } = await vegaEmbed(place, spec, options);
  if (drawn.get(id).turn !== turn) {
    view.finalize();
    return;
  }
  drawn.set(id, { turn, view });
  view.addEventListener("click", (event, item) => lookInto(item?.datum));
  place.dataset.drawn = turn;
}

/** Look at the questions behind a mark of a chart. */
function lookInto(datum) {
  const side = overlay.sides.findIndex((one) => one.name === datum?.configuration);
  if (side < 0) {
    return;
  }
  const document = places.documents.titles.indexOf(datum.document ?? "");
  chosen.document = document;
  chooseSides({ a: side, b: chosen.b === side ? -1 : chosen.b });
  byId("questions").scrollIntoView({ behavior: "smooth" });
}

/** A colour of the page by its name in the style sheet. */
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** The colour that a chart asks for by a parameter, where the page has one of that name. */
function cssColour(name) {
  const value = colour({ onHigh: "heat-on-high", onLow: "heat-on-low" }[name] ?? "");
  return value ? { value } : {};
}

function chartColours() {
  const sizes = { labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
  const text = { ...sizes, labelColor: colour("ink"), titleColor: colour("quiet") };
  const lines = { gridColor: colour("line"), domainColor: colour("line"), tickColor: colour("line") };
  return {
    background: null,
    font: getComputedStyle(document.body).fontFamily,
    view: { stroke: null },
    axis: { ...text, ...lines, labelLimit: innerWidth < 620 ? 150 : 260, labelPadding: 6 },
    legend: {
      ...text,
      orient: "bottom",
      columns: innerWidth < 620 ? 1 : 2,
      labelLimit: 260,
      symbolOpacity: 1,
      symbolBaseFillColor: colour("quiet"),
      symbolBaseStrokeColor: colour("quiet"),
      symbolStrokeWidth: 2,
      layout: { bottom: { direction: "vertical", anchor: "start" } },
    },
    text: { color: colour("ink") },
    range: {
      category: manifest.colours.map((_, i) => colour(`series-${i}`)),
      heatmap: [colour("heat-low"), colour("heat-high")],
    },
  };
}

/** The tooltip, as text. */
function showTip(handler, event, item, value) {
  const tip = byId("tip");
  tip.hidden = value === null || value === undefined || value === "";
  if (tip.hidden) {
    return;
  }
  const lines = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
  tip.replaceChildren(...lines.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, String(text))]));
  const { offsetWidth, offsetHeight } = tip;
  tip.style.left = `${Math.min(event.clientX + 14, innerWidth - offsetWidth - 8)}px`;
  tip.style.top = `${Math.min(event.clientY + 14, innerHeight - offsetHeight - 8)}px`;
}

/** The numbers of a chart as a table, for eyes and ears that charts do not serve. */
function drawNumbers(chart, details) {
  const rows = rowsOf(chart).slice(0, MOST_ROWS);
  const fields = chart.fields.filter((field) => !(field in chart.chosen));
  const head = make("tr", {}, ...fields.map((field) => make("th", { scope: "col" }, field)));
  const cell = (value) => {
    const isNumber = typeof value === "number";
    return make("td", { className: isNumber ? "number" : "" }, isNumber ? inShort(value) : String(value ?? "–"));
  };
  const body = rows.map((row) => make("tr", {}, ...fields.map((field) => cell(row[field]))));
  const table = make("table", {}, make("thead", {}, head), make("tbody", {}, ...body));
  details.replaceChildren(details.querySelector("summary"), make("div", { className: "scroll", tabIndex: 0 }, table));
}
