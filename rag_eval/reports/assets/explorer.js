// The questions of the report: choose sides, filter, sort, open one. What is open stands in the address.

const chosen = {
  a: 0,
  b: overlay.second ?? -1,
  k: overlay.k,
  metric: overlay.metric,
  question: -1,
  shown: "all",
  order: "worst",
  search: "",
  document: -1,
  tag: -1,
};
let sides = [];
let list = null;
let writing = 0;

/** The full name of the metric that is looked at; the first one where the report does not carry it. */
function metricName() {
  const names = [`${chosen.metric}@${chosen.k}`, chosen.metric];
  return names.find((name) => overlay.metrics.includes(name)) ?? overlay.metrics[0];
}

async function startExplorer() {
  if (!overlay.configurations.length) {
    return;
  }
  await loadQuestions();
  places.queries.searchable = places.queries.texts.map((text, i) => `${text} ${places.queries.ids[i]}`.toLowerCase());
  list = new QuestionList(byId("list"), (number) => open({ question: number }));
  readAddress();
  fillControls();
  wireControls();
  const follow = async () => {
    await chooseSides();
    list.reveal();
  };
  await follow();
  window.addEventListener("hashchange", () => readAddress() && follow());
  // Who follows a link to a question wants to see it; who reloads the page stays where they are.
  const [visit] = performance.getEntriesByType("navigation");
  if (chosen.question >= 0 && /[#&]q=/.test(location.hash) && visit?.type === "navigate") {
    byId("questions").scrollIntoView({ behavior: "instant" });
  }
}

/** Take the open question, the sides and k from the address; true when something changed. */
function readAddress() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const before = JSON.stringify(chosen);
  const number = (name, least, most) => {
    const value = Number.parseInt(asked.get(name) ?? "", 10);
    return value >= least && value < most ? value : undefined;
  };
  chosen.a = number("a", 0, overlay.configurations.length) ?? chosen.a;
  chosen.b = number("b", -1, overlay.configurations.length) ?? chosen.b;
  const k = number("k", 1, overlay.depth + 1);
  chosen.k = overlay.ks.includes(k) ? k : chosen.k;
  if (asked.has("q")) {
    chosen.question = places.queries.ids.indexOf(asked.get("q"));
  }
  return JSON.stringify(chosen) !== before;
}

/** Put the open question into the address, once the reader rests: browsers refuse many changes in a row. */
function writeAddress() {
  clearTimeout(writing);
  writing = setTimeout(() => {
    const { a, b, k, question } = chosen;
    const address = new URLSearchParams({ q: places.queries.ids[question], a, b, k });
    history.replaceState(null, "", `#${address}`);
  }, 150);
}

function fillControls() {
  const names = overlay.configurations.map((side, i) => [i, side.name]);
  fill(byId("side-a"), names, chosen.a);
  fill(byId("side-b"), [[-1, "– nothing –"], ...names], chosen.b);
  fill(byId("cut"), overlay.ks.map((k) => [k, `first ${k}`]), chosen.k);
  const bases = [...new Set(overlay.metrics.map((name) => name.replace(/@\d+$/, "")))];
  fill(byId("metric"), bases.map((name) => [name, name]), chosen.metric);
  const { titles } = places.documents;
  const holding = [...new Set(places.queries.documents.flat())].sort((x, y) => (titles[x] < titles[y] ? -1 : 1));
  fill(byId("document"), [[-1, "Any document"], ...holding.slice(0, 2000).map((i) => [i, titles[i]])], chosen.document);
  fill(byId("tag"), [[-1, "Any kind"], ...overlay.tags.map((tag, i) => [i, tag])], chosen.tag);
  byId("tag").closest("label").hidden = overlay.tags.length === 0;
  byId("boundary").hidden = overlay.unit === "chunk";
}

/** Show what is chosen; orders and filters that mean nothing now are not offered, and no longer chosen. */
function showChoices() {
  const isPair = chosen.b >= 0;
  for (const [id, choices, preset] of [["order", ORDERS, "worst"], ["shown", SHOWN, "all"]]) {
    const options = offered(choices, chosen.metric, isPair);
    chosen[id] = options.some(([name]) => name === chosen[id]) ? chosen[id] : preset;
    fill(byId(id), options, chosen[id]);
  }
  const { a, b, k, metric, document } = chosen;
  for (const [id, value] of Object.entries({ "side-a": a, "side-b": b, cut: k, metric, document })) {
    byId(id).value = value;
  }
}

function wireControls() {
  const listen = (id, change) => byId(id).addEventListener("input", (event) => change(event.target.value));
  listen("side-a", (value) => chooseSides({ a: Number(value) }));
  listen("side-b", (value) => chooseSides({ b: Number(value) }));
  listen("cut", (value) => chooseSides({ k: Number(value) }));
  listen("metric", (metric) => chooseSides({ metric }));
  listen("order", (order) => refine({ order }));
  listen("shown", (shown) => refine({ shown }));
  listen("document", (value) => refine({ document: Number(value) }));
  listen("tag", (value) => refine({ tag: Number(value) }));
  listen("search", (search) => refine({ search }));
  byId("swap").addEventListener("click", () => chosen.b >= 0 && chooseSides({ a: chosen.b, b: chosen.a }));
  byId("previous").addEventListener("click", () => list.step(-1));
  byId("next").addEventListener("click", () => list.step(1));
  byId("previous-below").addEventListener("click", () => stepBelow(-1));
  byId("next-below").addEventListener("click", () => stepBelow(1));
}

/** Open the next question for a reader who is at the end of this one. */
function stepBelow(rows) {
  list.step(rows);
  byId("question").scrollIntoView({ block: "start" });
}

/** Look at other sides, another k or another metric. */
async function chooseSides(change = {}) {
  Object.assign(chosen, change);
  const wanted = chosen.b >= 0 ? [chosen.a, chosen.b] : [chosen.a];
  const loaded = await Promise.all(wanted.map(loadSide));
  if (wanted[0] !== chosen.a || (wanted[1] ?? -1) !== chosen.b) {
    return;
  }
  sides = loaded;
  showChoices();
  refine();
}

/** Filter and sort again; the open question stays open. */
function refine(change = {}) {
  Object.assign(chosen, change);
  const values = sides.map((side) => scoresOf(side, metricName()));
  const questions = chosenQuestions(values[0], values[1] ?? values[0], chosen);
  const all = places.queries.ids.length;
  const some = questions.length === all ? "" : `${whole.format(questions.length)} of `;
  byId("count").textContent = `${some}${many(all, "question")}`;
  byId("nothing").hidden = questions.length > 0;
  if (chosen.question < 0 && questions.length) {
    chosen.question = questions[0];
  }
  const full = isCost(chosen.metric) ? values.flatMap((column) => [...column]).reduce((x, y) => (y > x ? y : x), 0) : 1;
  list.show(questions, (number) => values.map((column) => column[number]), full, chosen.question);
  drawQuestion();
}

/** Open a question. */
function open(change) {
  Object.assign(chosen, change);
  list.mark(chosen.question);
  list.reveal();
  drawQuestion();
  writeAddress();
}

/** Show the open question, unless it stands there as it is. */
function drawQuestion() {
  const { question: number, a, b, k } = chosen;
  const pane = byId("question");
  const drawing = [places.queries.ids[number], a, b, k].join(" ");
  if (number < 0 || pane.dataset.drawn === drawing) {
    return;
  }
  const rows = question(number, sides, k);
  const few = rows.slice(0, FEW_DOCUMENTS).map(documentElement);
  const rest = rows.slice(FEW_DOCUMENTS);
  pane.replaceChildren(questionHead(number), sidesHead(number, rows), ...few);
  pane.classList.toggle("pair", sides.length > 1);
  if (rest.length) {
    const more = make("button", { type: "button", className: "more" }, `Show ${many(rest.length, "more document")}`);
    more.addEventListener("click", () => more.replaceWith(...rest.map(documentElement)));
    pane.append(more);
  }
  pane.dataset.drawn = drawing;
}

function questionHead(number) {
  const { ids, texts, tags, unanswerable } = places.queries;
  const kinds = tags[number].map((tag) => overlay.tags[tag]);
  const truth = truthOf(number);
  const copies = truth.length - new Set(truth.map(([, , , group]) => group)).size;
  const special = [
    unanswerable[number] && "declared unanswerable",
    copies && (copies === 1 ? "1 copy of the evidence" : `${whole.format(copies)} copies of the evidence`),
  ];
  const labels = [...special.filter(Boolean), ...kinds];
  const shown = labels.map((label) => make("span", { className: "tag" }, label));
  return make(
    "header",
    {},
    make("h3", { dir: "auto" }, texts[number]),
    make("p", { className: "small" }, make("code", {}, ids[number]), ...shown),
  );
}

function sidesHead(number, rows) {
  return make("div", { className: "columns sides" }, ...sides.map((side, i) => sideHead(side, i, number, rows)));
}

/** The name of a side, what it found, missed and brought along, and its scores. */
function sideHead(side, i, number, rows) {
  const total = totalOf(rows, i);
  const counts = ["found", "missed", "surplus"].map((kind) => countElement(side, kind, total[kind]));
  const unit = make("span", { className: "small" }, `${overlay.unit}s, in ${many(total.hits, "hit")}`);
  const values = overlay.metrics
    .filter((name) => name.endsWith(`@${chosen.k}`) || !/@\d+$/.test(name))
    .map((name) => [name.replace(/@\d+$/, ""), scoresOf(side, name)[number]])
    .filter(([, value]) => !Number.isNaN(value))
    .map(([name, value]) => make("span", { className: "value" }, `${name} `, make("strong", {}, inShort(value))));
  return make(
    "div",
    { className: "side", dataset: { side: side.number } },
    make("h4", {}, make("span", { className: `letter side-${i}` }, "AB"[i]), " ", side.name),
    make("p", { className: "counts" }, ...counts, unit),
    make("p", { className: "values" }, ...values),
    ...searchedFor(side, number),
  );
}

/** What was searched in the place of the question, or beside it. */
function searchedFor(side, number) {
  const texts = side.searches?.[number] ?? [];
  return texts.map((text) => make("p", { className: "small searched" }, "searched: ", make("q", { dir: "auto" }, text)));
}

/** How much of a kind there is; what is relevant is gone to by a click, one stretch after the other. */
function countElement(side, kind, amount) {
  const content = [make("mark", { className: kind }, kind), ` ${whole.format(amount)}`];
  const properties = { className: `count ${kind}`, dataset: { amount } };
  if (kind === "surplus" || !amount) {
    return make("span", properties, ...content);
  }
  let turn = 0;
  const onclick = () => {
    const stretches = byId("question").querySelectorAll(`.text[data-side="${side.number}"] :is(mark, .gap).${kind}`);
    stretches[turn++ % stretches.length]?.scrollIntoView({ block: "center" });
  };
  return make("button", { type: "button", title: `Go to what was ${kind}`, onclick, ...properties }, ...content);
}
