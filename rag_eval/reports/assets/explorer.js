// The explorer of questions: choose sides, filter, sort, open one. The address holds the selection.

const [FIRST, SECOND] = overlay.opened ?? [0, -1];
const PRESET = {
  a: FIRST,
  b: SECOND,
  cut: 0,
  metric: overlay.metrics?.[0].label,
  question: -1,
  shown: "all",
  order: SECOND >= 0 ? "differ" : "worst",
  search: "",
  document: -1,
  tag: -1,
};
const chosen = { ...PRESET };
let sides = [];
let list = null;
let writing = 0;
let pushes = false;

const cutName = ({ kind, size }) => (kind === "tokens" ? `${size}t` : String(size));
const cutLabel = ({ kind, size }) => (kind === "tokens" ? `${whole.format(size)} tokens` : `first ${many(size, "hit")}`);

/** Return the places of the metrics that fit the chosen cut, with those without a cut. */
function metricsOffered() {
  const { kind, size } = overlay.cuts[chosen.cut];
  const all = overlay.metrics.map((_, place) => place);
  const fitting = all.filter((place) => {
    const metric = overlay.metrics[place];
    return !metric.size || (metric.kind === kind && metric.size === size);
  });
  return fitting.length ? fitting : [0];
}

/** Return the place of the chosen metric. */
function metricPlace() {
  const offered = metricsOffered();
  return offered.find((place) => overlay.metrics[place].label === chosen.metric) ?? offered[0];
}

async function startExplorer() {
  if (!overlay.configurations.length) {
    return;
  }
  await loadQuestions();
  list = new QuestionList(byId("list"), (number) => open(number));
  readAddress();
  wireControls();
  await show();
  addEventListener("popstate", follow);
  addEventListener("hashchange", follow);
  addEventListener("keydown", pressed);
  // A link to a question scrolls to it; a reload stays where it is.
  const [visit] = performance.getEntriesByType("navigation");
  if (location.hash.includes("=") && visit?.type === "navigate") {
    byId("questions").scrollIntoView({ behavior: "instant" });
  }
}

/** Return the selection as an address, without defaults. */
function addressOf() {
  const { a, b, cut, metric, question, shown, order, search, document, tag } = chosen;
  const said = {
    q: [places.queries.ids[question] ?? "", ""],
    a: [a, PRESET.a],
    b: [b, PRESET.b],
    cut: [cutName(overlay.cuts[cut]), cutName(overlay.cuts[PRESET.cut])],
    by: [metric, PRESET.metric],
    show: [shown, PRESET.shown],
    order: [order, PRESET.order],
    find: [search, ""],
    doc: [document, -1],
    kind: [tag, -1],
  };
  const kept = Object.entries(said).filter(([, [value, preset]]) => value !== preset);
  return new URLSearchParams(kept.map(([name, [value]]) => [name, value]));
}

/** Read the selection from the address, unless it is a link to a section. Return whether it changed. */
function readAddress() {
  const hash = location.hash.slice(1);
  if (hash && !hash.includes("=")) {
    return false;
  }
  const before = JSON.stringify(chosen);
  const asked = new URLSearchParams(hash);
  const number = (name, least, most, preset) => {
    const value = Number.parseInt(asked.get(name) ?? "", 10);
    return value >= least && value < most ? value : preset;
  };
  const cut = overlay.cuts.findIndex((one) => cutName(one) === asked.get("cut"));
  const known = (name, choices, preset) => (choices.includes(asked.get(name)) ? asked.get(name) : preset);
  Object.assign(chosen, {
    a: number("a", 0, overlay.configurations.length, PRESET.a),
    b: number("b", -1, overlay.configurations.length, PRESET.b),
    cut: cut < 0 ? PRESET.cut : cut,
    metric: known("by", overlay.metrics.map(({ label }) => label), PRESET.metric),
    question: places.queries.ids.indexOf(asked.get("q") ?? ""),
    shown: known("show", Object.keys(SHOWN), PRESET.shown),
    order: known("order", Object.keys(ORDERS), PRESET.order),
    search: asked.get("find") ?? "",
    document: number("doc", 0, places.documents.titles.length, -1),
    tag: number("kind", 0, overlay.tags.length, -1),
  });
  return JSON.stringify(chosen) !== before;
}

/** Write the selection to the address after a pause: browsers refuse many changes in a row. */
function writeAddress(isStep = true) {
  pushes ||= isStep;
  clearTimeout(writing);
  writing = setTimeout(writeNow, 150);
}

function writeNow() {
  clearTimeout(writing);
  const address = `#${addressOf()}`;
  if (address !== location.hash) {
    history[pushes ? "pushState" : "replaceState"](null, "", address);
  }
  pushes = false;
}

/** Follow the address after the reader went back or followed a link. */
async function follow() {
  if (!readAddress() && !location.hash.includes("=")) {
    return;
  }
  await show();
  if (location.hash.includes("=") && !byId("questions").contains(document.activeElement)) {
    byId("questions").scrollIntoView();
  }
}

/** Change the selection. */
async function choose(change, isStep = true) {
  Object.assign(chosen, change);
  await show();
  writeAddress(isStep);
}

function wireControls() {
  const listen = (id, change, isStep = true) =>
    byId(id).addEventListener("input", (event) => choose(change(event.target.value), isStep));
  listen("side-a", (value) => ({ a: Number(value) }));
  listen("side-b", (value) => ({ b: Number(value) }));
  listen("cut", (value) => ({ cut: Number(value) }));
  listen("metric", (metric) => ({ metric }));
  listen("order", (order) => ({ order }));
  listen("shown", (shown) => ({ shown }));
  listen("document", (value) => ({ document: Number(value) }));
  listen("tag", (value) => ({ tag: Number(value) }));
  listen("search", (search) => ({ search }), false);
  byId("swap").addEventListener("click", swap);
  byId("copy").addEventListener("click", copyShown);
}

const swap = () => chosen.b >= 0 && choose({ a: chosen.b, b: chosen.a });

/** Copy a link to what is shown. */
function copyShown() {
  if (chosen.question >= 0 && (location.hash.includes("=") || writing)) {
    writeNow();
  }
  return copyLink();
}

function pressed(event) {
  if (isTyping(event)) {
    if (event.key === "Escape") {
      event.target.blur();
    }
    return;
  }
  const acts = {
    j: () => list.step(1),
    k: () => list.step(-1),
    "/": () => byId("search").focus(),
    x: swap,
    c: copyShown,
    o: unfold,
  };
  if (event.key in acts) {
    event.preventDefault();
    acts[event.key]();
  }
}

/** Unfold the open question, or fold its hits again. */
function unfold() {
  const details = [...byId("question").querySelectorAll("details")];
  const isOpen = details.length > 0 && details.every((one) => one.open);
  details.forEach((one) => (one.open = !isOpen));
  if (!isOpen) {
    // Hits are added a moment after their line opens.
    setTimeout(() => byId("question").querySelectorAll(".fold").forEach((button) => button.click()));
  }
}

/** Show the selection: the controls, the list, the question, and where the two sides differ. */
async function show() {
  const wanted = chosen.b >= 0 ? [chosen.a, chosen.b] : [chosen.a];
  const loaded = await Promise.all(wanted.map(loadSide));
  if (wanted[0] !== chosen.a || (wanted[1] ?? -1) !== chosen.b) {
    return;
  }
  sides = loaded;
  const place = metricPlace();
  const metric = overlay.metrics[place];
  chosen.metric = metric.label;
  const values = sides.map((side) => scoresOf(side, place));
  showControls(values, metric);
  const questions = chosenQuestions(values[0], values[1] ?? values[0], metric, chosen);
  const all = places.queries.ids.length;
  const some = questions.length === all ? "" : `${whole.format(questions.length)} of `;
  byId("count").textContent = `${some}${many(all, "question")}`;
  // A question that is not in the list is not open.
  if (!questions.includes(chosen.question)) {
    chosen.question = questions[0] ?? -1;
  }
  const largest = values.flatMap((column) => [...column]).reduce((x, y) => (y > x ? y : x), 0);
  const written = metric.share ? (value) => (Number.isNaN(value) ? "–" : `${Math.round(100 * value)}\u00a0%`) : inShort;
  list.show(questions, (number) => values.map((column) => column[number]), metric.share ? 1 : largest || 1, written, chosen.question);
  list.reveal();
  drawQuestion();
  showWhy(values, metric);
}

/** Fill the controls; options that match nothing are left out and deselected. */
function showControls(values, metric) {
  const isPair = chosen.b >= 0;
  const names = overlay.configurations.map((side, i) => [i, side.name]);
  fill(byId("side-a"), names, chosen.a);
  fill(byId("side-b"), [[-1, "– nothing –"], ...names], chosen.b);
  fill(byId("cut"), overlay.cuts.map((cut, i) => [i, cutLabel(cut)]), chosen.cut);
  const labels = metricsOffered().map((place) => overlay.metrics[place].label);
  fill(byId("metric"), labels.map((label) => [label, label]), chosen.metric);
  const filters = filtersFor(values[0], values[1] ?? values[0], metric, isPair);
  for (const [id, options, preset] of [["order", ordersFor(isPair), "worst"], ["shown", filters, "all"]]) {
    chosen[id] = options.some(([name]) => name === chosen[id]) ? chosen[id] : preset;
    fill(byId(id), options, chosen[id]);
  }
  const { titles } = places.documents;
  const { documents, tags } = places.queries;
  const counts = (lists) => {
    const found = new Map();
    lists.flat().forEach((one) => found.set(one, (found.get(one) ?? 0) + 1));
    return [...found];
  };
  const byTitle = counts(documents).sort(([x], [y]) => (titles[x] < titles[y] ? -1 : 1));
  const offered = byTitle.slice(0, 2000).map(([i, count]) => [i, `${titles[i]} (${whole.format(count)})`]);
  fill(byId("document"), [[-1, "Any document"], ...offered], chosen.document);
  const kinds = counts(tags).sort(([x], [y]) => x - y);
  const tagged = kinds.map(([i, count]) => [i, `${overlay.tags[i]} (${whole.format(count)})`]);
  fill(byId("tag"), [[-1, "Any kind"], ...tagged], chosen.tag);
  byId("tag").closest("label").hidden = overlay.tags.length === 0;
  if (byId("search") !== document.activeElement) {
    byId("search").value = chosen.search;
  }
}

/** Open a question. */
function open(number) {
  chosen.question = number;
  list.mark(number);
  list.reveal();
  drawQuestion();
  if (matchMedia("(max-width: 760px)").matches) {
    byId("question").scrollIntoView({ block: "start", behavior: "instant" });
  }
  writeAddress();
}

/** Draw the open question if it changed, and scroll to its first relevant text. */
function drawQuestion() {
  const { question: number, a, b, cut } = chosen;
  const pane = byId("question");
  const drawing = number < 0 ? `nothing ${chosen.search}` : [places.queries.ids[number], a, b, cutName(overlay.cuts[cut])].join(" ");
  const state = `${drawing} ${chosen.metric}`;
  if (pane.dataset.state === state) {
    return;
  }
  if (number < 0) {
    pane.replaceChildren(nothingShown());
  } else {
    const head = questionHead(number);
    const columns = sides.map((side) => make("div", {}, ladder(side, number, cut)));
    pane.replaceChildren(head, make("div", { className: sides.length > 1 ? "pair" : "pair alone" }, ...columns));
    pane.scrollTop = 0;
    const first = pane.querySelector("mark");
    if (first && matchMedia("(min-width: 761px)").matches) {
      const below = first.getBoundingClientRect().top - pane.getBoundingClientRect().top - head.offsetHeight;
      pane.scrollTop = below > 240 ? below - 64 : 0;
    }
  }
  pane.dataset.state = state;
  pane.dataset.drawn = drawing;
}

/** Return the message shown if no question passes the filters. */
function nothingShown() {
  const said = chosen.search ? `No question contains “${chosen.search}”. ` : "No question passes these filters. ";
  const clear = () => choose({ search: "", shown: "all", document: -1, tag: -1 });
  const button = make("button", { type: "button", onclick: clear }, chosen.search ? "Clear the search" : "Show all");
  return make("p", { className: "empty" }, said, button);
}

function questionHead(number) {
  const { ids, texts, tags, unanswerable } = places.queries;
  const truth = truthOf(number);
  const copies = truth.length - new Set(truth.map(([, , , group]) => group)).size;
  const labels = [
    unanswerable[number] && "declared unanswerable",
    copies && (copies === 1 ? "1 copy of the evidence" : `${whole.format(copies)} copies of the evidence`),
    ...tags[number].map((tag) => overlay.tags[tag]),
  ].filter(Boolean);
  const at = `${whole.format(list.active + 1)} of ${whole.format(list.questions.length)} · `;
  const step = (text, label, by) =>
    make("button", { type: "button", ariaLabel: label, onclick: () => list.step(by) }, text);
  const steps = make("div", { className: "steps" }, step("↑", "Previous question", -1), step("↓", "Next question", 1));
  const tagged = labels.map((label) => make("span", { className: "tag" }, label));
  return make(
    "header",
    {},
    make("div", { className: "top" }, make("h3", { dir: "auto" }, texts[number]), steps),
    make("p", { className: "small" }, at, make("code", {}, ids[number]), ...tagged),
    make("div", { className: sides.length > 1 ? "pair" : "pair alone" }, ...sides.map((side, i) => sideHead(side, i, number))),
  );
}

/** Return the head of a side: its name, score, counts and searches. */
function sideHead(side, i, number) {
  const { total, within } = findings(side, number, chosen.cut);
  const place = metricPlace();
  const metric = overlay.metrics[place];
  const value = scoresOf(side, place)[number];
  const score = metric.share && !Number.isNaN(value) ? percent(value) : inShort(value);
  const said = Object.entries(total).map(([kind, amount]) =>
    make("span", { className: `count ${kind}`, dataset: { amount } }, `${whole.format(amount)} ${kind}`),
  );
  const searched = side.searches?.[number] ?? [];
  return make(
    "div",
    { className: "side", dataset: { side: side.number, hits: within } },
    make("h4", {}, make("span", { className: "letter" }, "AB"[i]), make("bdi", {}, side.name), make("span", { className: "score" }, score)),
    make("p", { className: "small counts" }, `${overlay.unit}s: `, ...said.flatMap((one, n) => (n ? [", ", one] : [one])), ` in ${many(within, "hit")}`),
    ...searched.map((text) => make("p", { className: "small searched" }, "searched: ", make("q", { dir: "auto" }, text))),
  );
}
