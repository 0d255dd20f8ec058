// The samples of an experiment: searched, filtered, ordered, and put into the page some at a time.

const STEP = 100;
const LONG = 280;
const { tasks, keys, samples } = JSON.parse(byId("samples-data").textContent);
const searched = samples.map((sample) =>
  [sample.input, sample.output, ...sample.results, ...Object.values(sample.why), ...sample.errors.map(([, told]) => told)]
    .join("\n")
    .toLowerCase(),
);
let chosen = [];
let drawn = 0;
// Where tasks are compared, the samples on which they differ most come first.
let order = { by: tasks.length > 1 ? "differ" : "", descending: true };

/** A text; of a long one the beginning, and the whole on demand. */
function content(text, className = "content") {
  const box = make("div", { className, dir: "auto" }, text);
  if (text.length <= LONG && text.split("\n").length <= 6) {
    return [box];
  }
  box.classList.add("long");
  const button = make("button", { type: "button", className: "mini whole", ariaExpanded: "false" }, "whole text");
  button.addEventListener("click", () => {
    const isCut = box.classList.toggle("long");
    button.textContent = isCut ? "whole text" : "less";
    button.ariaExpanded = String(!isCut);
  });
  return [box, button];
}

const broken = (label) => label.split("/").flatMap((part, place) => (place ? ["/", make("wbr"), part] : [part]));
const failure = (sample, place) => sample.errors.find(([at]) => at === place);

function result(sample, place) {
  const failed = failure(sample, tasks[place]);
  const cell = make("td", {}, ...(failed ? content(failed[1], "content problem") : content(sample.results[place])));
  const why = Object.entries(sample.why).filter(([key]) => tasks.length === 1 || key.startsWith(`${tasks[place]}/`));
  const wrong = sample.errors.filter(([at]) => at.startsWith(`${tasks[place]}/`));
  if (why.length + wrong.length) {
    const told = [...why, ...wrong.map(([at, text]) => [at, `failed: ${text}`])];
    const list = make("dl", {}, ...told.flatMap(([at, text]) => [make("dt", {}, at), make("dd", { dir: "auto" }, text)]));
    cell.append(make("details", {}, make("summary", {}, "Why"), list));
  }
  return cell;
}

function score(sample, key) {
  const value = sample.scores[key];
  if (value === undefined) {
    return make("td", { className: "number problem" }, "failed");
  }
  const passed = sample.passed[key];
  const mark = passed === undefined ? "" : passed ? " ✓" : " ✗";
  return make("td", { className: passed === false ? "number bad" : "number" }, inShort(value) + mark);
}

function row(number) {
  const sample = samples[number];
  return make(
    "tr",
    { className: sample.errors.length ? "failed" : "" },
    make("td", {}, whole.format(sample.index)),
    make("td", {}, ...content(sample.input)),
    make("td", {}, ...content(sample.output)),
    ...tasks.map((_, place) => result(sample, place)),
    ...keys.map((key) => score(sample, key)),
  );
}

function drawMore() {
  byId("rows").append(...chosen.slice(drawn, drawn + STEP).map(row));
  drawn = Math.min(chosen.length, drawn + STEP);
  byId("more").hidden = drawn === chosen.length;
}

/** How far apart the tasks are on a sample: the largest difference by any evaluator. */
function apart(sample) {
  const byEvaluator = new Map();
  for (const [key, value] of Object.entries(sample.scores)) {
    const evaluator = key.slice(key.indexOf("/") + 1);
    byEvaluator.set(evaluator, [...(byEvaluator.get(evaluator) ?? []), value]);
  }
  const spread = [...byEvaluator.values()].map((values) => Math.max(...values) - Math.min(...values));
  return Math.max(0, ...spread) + (sample.errors.length ? 1e-6 : 0);
}

/** What a sample is sorted by: a number, or a text. */
function sortKey(sample) {
  if (order.by === "differ") {
    return apart(sample);
  }
  // What has no score failed, and is below all.
  return order.by.startsWith("score ") ? sample.scores[order.by.slice(6)] ?? -Infinity : sample[order.by] ?? sample.index;
}

const SHOWN = {
  all: ["All", () => true],
  failed: ["With an error", ({ errors }) => errors.length > 0],
  missed: ["Not passed", ({ passed }) => Object.values(passed).includes(false)],
  differ: ["Where tasks differ", (sample) => tasks.length > 1 && apart(sample) > 1e-5],
};

function choose() {
  const wanted = wordsOf(byId("search").value);
  const passes = SHOWN[byId("shown").value][1];
  chosen = samples.map((_, number) => number).filter(
    (number) => passes(samples[number]) && wanted.every((word) => searched[number].includes(word)),
  );
  if (order.by) {
    const compare = (x, y) => (typeof x === "string" ? (x < y ? -1 : x > y ? 1 : 0) : x - y || 0);
    const values = samples.map(sortKey);
    chosen.sort((x, y) => (order.descending ? -1 : 1) * compare(values[x], values[y]) || x - y);
  }
  byId("rows").replaceChildren();
  byId("count").textContent = many(chosen.length, "sample");
  drawn = 0;
  drawMore();
  for (const head of byId("head").querySelectorAll("th")) {
    head.removeAttribute("aria-sort");
    if (head.dataset.by === order.by) {
      head.setAttribute("aria-sort", order.descending ? "descending" : "ascending");
    }
  }
}

/** A heading that sorts: numbers from the lowest, as what is bad is looked for, then the other way round. */
function heading(label, by, className = "") {
  const button = make("button", { type: "button" }, ...broken(label));
  button.addEventListener("click", () => {
    order = { by, descending: order.by === by && !order.descending };
    choose();
  });
  return make("th", { className, scope: "col", dataset: { by } }, button);
}

const fixed = [heading("#", "index"), heading("Input", "input"), heading("Expected", "output")];
const plain = tasks.map((task) => make("th", { scope: "col" }, tasks.length === 1 ? "Result" : task));
byId("head").append(make("tr", {}, ...fixed, ...plain, ...keys.map((key) => heading(key, `score ${key}`, "number"))));
byId("differ").hidden = tasks.length < 2;
byId("differ").addEventListener("click", () => {
  order = { by: "differ", descending: true };
  choose();
});
const offered = Object.entries(SHOWN).map(([name, [label, passes]]) => [name, label, samples.filter(passes).length]);
fill(byId("shown"), offered.filter(([, , count]) => count).map(([name, label, count]) => [name, `${label} (${whole.format(count)})`]), "all");
byId("search").addEventListener("input", choose);
byId("shown").addEventListener("input", choose);
byId("more").addEventListener("click", drawMore);
byId("samples-csv").addEventListener("click", () => {
  const heads = ["#", "input", "expected", ...tasks, ...keys];
  const rows = chosen.map((number) => samples[number]).map((one) => [one.index, one.input, one.output, ...one.results, ...keys.map((key) => one.scores[key])]);
  downloadTable("samples.csv", [heads, ...rows]);
});
for (const button of document.querySelectorAll("main table:not(.samples) th button")) {
  button.addEventListener("click", () => sortBy(button.closest("th")));
}
startColours();
document.documentElement.classList.add("alive");
choose();
