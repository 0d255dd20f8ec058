// The samples of an experiment: searched, filtered, ordered, and put into the page some at a time.

const STEP = 100;
const { tasks, keys, samples } = JSON.parse(byId("samples-data").textContent);
const words = samples.map((sample) =>
  [sample.input, sample.output, ...sample.results, ...Object.values(sample.why), ...sample.errors.map(([, told]) => told)]
    .join("\n")
    .toLowerCase(),
);
let chosen = [];
let drawn = 0;

const content = (text, className = "content") => make("div", { className, dir: "auto" }, text);
const broken = (label) => label.split("/").flatMap((part, place) => (place ? ["/", make("wbr"), part] : [part]));
const heading = (label, className = "") => make("th", { className, scope: "col" }, ...broken(label));
const failure = (sample, place) => sample.errors.find(([at]) => at === place);

function result(sample, place) {
  const failed = failure(sample, tasks[place]);
  const cell = make("td", {}, failed ? content(failed[1], "problem") : content(sample.results[place]));
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
    return make("td", { className: "score problem" }, "failed");
  }
  const passed = sample.passed[key];
  const mark = passed === undefined ? "" : passed ? " ✓" : " ✗";
  return make("td", { className: passed === false ? "score bad" : "score" }, inShort(value) + mark);
}

function row(number) {
  const sample = samples[number];
  return make(
    "tr",
    { className: sample.errors.length ? "failed" : "" },
    make("td", {}, whole.format(sample.index)),
    make("td", {}, content(sample.input)),
    make("td", {}, content(sample.output)),
    ...tasks.map((_, place) => result(sample, place)),
    ...keys.map((key) => score(sample, key)),
  );
}

function drawMore() {
  byId("rows").append(...chosen.slice(drawn, drawn + STEP).map(row));
  drawn = Math.min(chosen.length, drawn + STEP);
  byId("more").hidden = drawn === chosen.length;
}

function choose() {
  const wanted = byId("search").value.toLowerCase().split(/\s+/).filter(Boolean);
  const shown = byId("shown").value;
  const order = byId("order").value;
  chosen = samples.map((_, number) => number).filter((number) => {
    const { errors, passed } = samples[number];
    const bad = shown === "failed" ? errors.length > 0 : shown !== "missed" || Object.values(passed).includes(false);
    return bad && wanted.every((word) => words[number].includes(word));
  });
  if (order !== "") {
    // What has no score comes first: it failed.
    const value = (number) => samples[number].scores[keys[order]] ?? -Infinity;
    chosen.sort((x, y) => (value(x) === value(y) ? x - y : value(x) - value(y)));
  }
  byId("rows").replaceChildren();
  byId("count").textContent = many(chosen.length, "sample");
  drawn = 0;
  drawMore();
}

byId("head").append(
  make(
    "tr",
    {},
    heading("#"),
    heading("Input"),
    heading("Expected"),
    ...tasks.map((task) => heading(tasks.length === 1 ? "Result" : task)),
    ...keys.map((key) => heading(key, "score")),
  ),
);
fill(byId("shown"), [["all", "All"], ["failed", "With an error"], ["missed", "Not passed"]], "all");
fill(byId("order"), [["", "as in the data"], ...keys.map((key, place) => [place, `lowest ${key}`])], "");
for (const [id, event] of [["search", "input"], ["shown", "change"], ["order", "change"]]) {
  byId(id).addEventListener(event, choose);
}
byId("more").addEventListener("click", drawMore);
document.documentElement.classList.add("alive");
choose();
watchEdges();
