// The charts: drawn by Vega when they come into sight. Their colours are variables of the style sheet, so that they
// follow the page between light, dark and paper without being drawn again.

const MOST_ROWS = 400;
const LEGEND = 110;
const drawn = new Map();
let waiting = Promise.resolve();

function startCharts() {
  const watcher = new IntersectionObserver(
    (entries) => entries.filter((entry) => entry.isIntersecting).forEach(({ target }) => {
      watcher.unobserve(target);
      drawInTurn(target.dataset.chart);
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
}

const drawOnce = (id) => (drawn.has(id) ? undefined : drawChart(id));

/** Draw a chart after those that wait, with a pause between two, so that the page never stands still for long. */
function drawInTurn(id) {
  const pause = () => new Promise((done) => setTimeout(done));
  waiting = waiting.then(pause).then(() => drawOnce(id));
}

/** Draw what is not drawn yet: pages are printed and photographed that nobody scrolled. */
const drawRest = () => manifest.charts.forEach(({ id }) => drawInTurn(id));

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
  const config = { ...chart.spec.config, ...chartStyle() };
  // The wide ones first: what is equal to them stands in front of them.
  const rows = rowsOf(chart).sort((x, y) => (y.ring ?? 0) - (x.ring ?? 0));
  const spec = { ...chart.spec, datasets: { rows }, config };
  const turn = (drawn.get(id)?.turn ?? 0) + 1;
  drawn.get(id)?.view?.finalize();
  drawn.set(id, { turn });
  // The interpreter runs Vega's expressions without eval, which the page's policy forbids.
  const options = { ast: true, actions: false, defaultStyle: false, renderer: "svg", tooltip: showTip, logLevel: 1 };
  let view;
  try {
    ({ view } = await vegaEmbed(place, spec, options));
  } catch (error) {
    // One chart that cannot be drawn takes nothing else with it.
    console.error(error);
    place.replaceChildren(make("p", { className: "notice" }, "This chart cannot be drawn. Its numbers are below."));
    return;
  }
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
  const side = overlay.configurations.findIndex((one) => one.name === datum?.configuration);
  if (side < 0) {
    return;
  }
  const document = places.documents.titles.indexOf(datum.document ?? "");
  chosen.document = document;
  chooseSides({ a: side, b: chosen.b === side ? -1 : chosen.b });
  byId("questions").scrollIntoView({ behavior: "smooth" });
}

/** How all charts look; a narrow screen has less room for names. */
function chartStyle() {
  const sizes = { labelFontSize: 12, titleFontSize: 12, titleFontWeight: 500 };
  const text = { ...sizes, labelColor: "var(--ink)", titleColor: "var(--quiet)" };
  const lines = { gridColor: "var(--line)", domainColor: "var(--line)", tickColor: "var(--line)" };
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
      symbolBaseFillColor: "var(--quiet)",
      symbolBaseStrokeColor: "var(--quiet)",
      symbolStrokeWidth: 2,
      layout: { bottom: { direction: "vertical", anchor: "start" } },
    },
    text: { color: "var(--ink)" },
    range: { category: Array.from({ length: manifest.colours }, (_, i) => `var(--series-${i})`) },
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
