// Why one side is better: where each loses recall, and on which documents and kinds of questions they differ.

const ENOUGH = 20;
const FEW = 3;
const FEWEST_DOCUMENTS = 6;
let showsAll = false;

/** Show both tables for the sides that are open. */
function showWhy(values, metric) {
  const names = sides.map((side) => side.name);
  byId("why-title").textContent = names.length > 1 ? `Why: ${names[0]} against ${names[1]}` : `Why: ${names[0]}`;
  showLosses();
  showSlices(values, metric);
}

/** Return the losses of a side, a share for each cause; null for an earlier run. */
const lossesOf = (side) => charts.losses?.[side.number] ?? null;

/** Show a row for each cause, in the order in which a passage can be lost. */
function showLosses() {
  const figure = byId("losses");
  const shown = sides.filter((side) => lossesOf(side));
  figure.hidden = !shown.length;
  if (!shown.length) {
    return;
  }
  const losses = shown.map(lossesOf);
  const causes = Object.keys(charts.meanings);
  const most = Math.max(...losses.flat().map(Math.abs), 1e-9);
  const points = (share) => (Math.abs(share) < 5e-5 ? "0" : (100 * share).toFixed(Math.abs(share) < 0.001 ? 2 : 1).replace("-", "−"));
  const isThere = (place) => losses.some((shares) => shares[place] !== 0);
  const own = losses[0];
  const worst = own.indexOf(Math.max(...own));
  const total = own.reduce((sum, share) => sum + share, 0);
  const title = total < 5e-5 ? "Nothing is missed" : `Most of what is missed is ${charts.meanings[causes[worst]]}`;
  figure.querySelector("h3").textContent = title;
  const head = make("tr", {}, make("th", { scope: "col" }, "lost where"), ...shown.map((side) => make("th", { scope: "col" }, side.name)));
  const isPair = shown.length > 1;
  head.append(...(isPair ? [make("th", { scope: "col", className: "number" }, "difference")] : []));
  const rows = causes.filter((_, place) => isThere(place)).map((cause) => {
    const place = causes.indexOf(cause);
    const bars = losses.map((shares, i) => {
      const bar = make("i", { className: i ? "" : "acc" });
      bar.style.width = `${Math.max(1, (90 * Math.abs(shares[place])) / most)}px`;
      return make("td", {}, make("div", { className: "barrow" }, shares[place] ? bar : "", points(shares[place])));
    });
    const apart = isPair ? [make("td", { className: "number" }, signed(100 * (losses[0][place] - losses[1][place])))] : [];
    return make("tr", {}, make("th", { scope: "row" }, cause, make("small", {}, charts.meanings[cause])), ...bars, ...apart);
  });
  const none = causes.filter((_, place) => !isThere(place));
  if (none.length) {
    rows.push(make("tr", { className: "na" }, make("th", { scope: "row" }, none.join(", ")), make("td", { colSpan: shown.length + (isPair ? 1 : 0) }, "nothing lost, or no part of these")));
  }
  const totals = losses.map((shares) => shares.reduce((sum, share) => sum + share, 0));
  rows.push(make("tr", { className: "sum" }, make("th", { scope: "row" }, "missed in all"), ...totals.map((sum) => make("td", {}, points(sum))), ...(isPair ? [make("td", { className: "number" }, signed(100 * (totals[0] - totals[1])))] : [])));
  figure.querySelector(".table").replaceChildren(make("table", { className: "losses" }, make("thead", {}, head), make("tbody", {}, ...rows)));
}

/** Return a quantile of the normal distribution, by Acklam's tail formula, for shares above 0.975. */
function tailQuantile(share) {
  const q = Math.sqrt(-2 * Math.log(1 - share));
  const c = [-0.007784894002430293, -0.3223964580411365, -2.400758277161838, -2.549732539343734, 4.374664141464968, 2.938163982698783];
  const d = [0.007784695709041462, 0.3224671290700398, 2.445134137142996, 3.754408661907416];
  const above = c.reduce((sum, one) => sum * q + one, 0);
  return -above / (d.reduce((sum, one) => sum * q + one, 0) * q + 1);
}

/** Return documents and kinds of questions, with their questions' count and the mean of each side. */
function slicesOf(values) {
  const { documents, tags, unanswerable } = places.queries;
  const found = { document: new Map(), kind: new Map() };
  documents.forEach((own, question) => {
    if (unanswerable[question] || values.some((column) => Number.isNaN(column[question]))) {
      return;
    }
    for (const [group, numbers] of [["document", own], ["kind", tags[question]]]) {
      for (const number of numbers) {
        const known = found[group].get(number);
        if (known) {
          known.push(question);
        } else {
          found[group].set(number, [question]);
        }
      }
    }
  });
  const mean = (column, questions) => questions.reduce((sum, question) => sum + column[question], 0) / questions.length;
  return Object.entries(found).flatMap(([group, some]) =>
    [...some].map(([number, questions]) => {
      const means = values.map((column) => mean(column, questions));
      const apart = means.length > 1 ? means[0] - means[1] : 0;
      const error = means.length > 1 ? errorOf(questions, (q) => values[0][q] - values[1][q] - apart) : 0;
      const name = group === "document" ? places.documents.titles[number] : overlay.tags[number];
      return { group, number, name, count: questions.length, means, apart, error };
    }),
  );
}

/** Return the standard error of a mean over documents, or over questions if there are few documents. */
function errorOf(questions, stray) {
  const sums = new Map();
  const add = (unit, question) => sums.set(unit, (sums.get(unit) ?? 0) + stray(question));
  questions.forEach((question) => add(places.queries.documents[question][0], question));
  if (sums.size < FEWEST_DOCUMENTS) {
    sums.clear();
    questions.forEach((question) => add(question, question));
  }
  const squares = [...sums.values()].reduce((sum, one) => sum + one ** 2, 0);
  return Math.sqrt((squares * sums.size) / Math.max(1, sums.size - 1)) / questions.length;
}

/** Show the slices with the largest differences; a click on a count opens its questions. */
function showSlices(values, metric) {
  const figure = byId("slices");
  const all = slicesOf(values);
  const large = all.filter(({ count }) => count >= ENOUGH);
  const isPair = sides.length > 1;
  figure.hidden = !all.length;
  if (!all.length) {
    return;
  }
  const z = tailQuantile(1 - 0.025 / Math.max(1, large.length));
  const sure = large.filter(({ apart, error }) => isPair && Math.abs(apart) > z * error && error > 0);
  const scale = metric.share ? 100 : 1;
  const written = (value) => (metric.share ? (100 * value).toFixed(1) : inShort(value));
  const finding = () => {
    if (!isPair) {
      return "By document and kind of question";
    }
    // The first two were tested by the objective when the page was written; other pairs have intervals only.
    if (chosen.a === 0 && chosen.b === charts.roles.second && metric.name === charts.objective) {
      return charts.finding.replace(/\.$/, "");
    }
    if (!sure.length) {
      return large.length ? "No slice differs by more than its interval" : `No document or kind has ${ENOUGH} questions`;
    }
    const first = sure.toSorted((one, other) => Math.abs(other.apart) - Math.abs(one.apart))[0];
    const isBetter = first.apart > 0 !== metric.cost;
    return `A is ${isBetter ? "better" : "worse"} on ${first.name} (${signed(scale * first.apart)} ${metric.share ? "points" : ""})`;
  };
  figure.querySelector("h3").textContent = finding();
  figure.querySelector(".note").textContent =
    `${metric.name}, mean over the questions. Intervals are 95 %${large.length > 1 ? `, for all ${large.length} slices of ${ENOUGH} or more questions together` : ""}, by documents where there are ${FEWEST_DOCUMENTS}.`;
  const reach = Math.max(...large.map(({ apart, error }) => Math.abs(apart) + z * error), 1e-6);
  const heads = ["slice", "questions", ...sides.map((_, i) => "AB"[i]), ...(isPair ? [metric.share ? "points" : "difference", ""] : [])];
  const head = make("tr", {}, ...heads.map((name, i) => {
    const cell = make("th", { scope: "col", className: i === 0 ? "" : i === heads.length - 1 && isPair ? "drawn" : i > 1 && i < 2 + sides.length ? "number each" : "number" });
    cell.append(name ? make("button", { type: "button", onclick: () => sortBy(cell) }, name) : make("span", { className: "hidden" }, "drawn"));
    return cell;
  }));
  const rows = [];
  for (const [group, title] of [["document", "By document"], ["kind", "By kind of question"]]) {
    const own = all.filter((one) => one.group === group).sort((x, y) => (isPair ? Math.abs(y.apart) - Math.abs(x.apart) : x.means[0] - y.means[0]));
    const enough = own.filter(({ count }) => count >= ENOUGH);
    const shown = showsAll ? own : enough.slice(0, FEW);
    if (shown.length) {
      rows.push(make("tr", { className: "group" }, make("th", { scope: "colgroup", colSpan: heads.length }, title)), ...shown.map((one) => sliceRow(one, { isPair, scale, written, reach, z })));
    }
  }
  const table = make("table", { className: "slices" }, make("thead", {}, head), make("tbody", {}, ...rows));
  const button = byId("all-slices");
  button.hidden = !showsAll && rows.filter((row) => !row.className).length === all.length;
  button.textContent = showsAll ? "Show the largest differences" : `Show all ${all.length} documents and kinds`;
  button.onclick = () => {
    showsAll = !showsAll;
    showSlices(values, metric);
  };
  figure.querySelector(".table").replaceChildren(table);
}

function sliceRow({ group, number, name, count, means, apart, error }, { isPair, scale, written, reach, z }) {
  const address = new URLSearchParams({ a: chosen.a, b: chosen.b, [group === "document" ? "doc" : "kind"]: number, order: isPair ? "differ" : "worst" });
  const link = make("a", { href: `#${address}`, title: "Read these questions" }, whole.format(count));
  const cell = (value, text, kind = "number") => make("td", { className: kind, dataset: { value } }, text);
  const row = make("tr", {}, make("th", { scope: "row" }, make("bdi", {}, name)), cell(count, link), ...means.map((mean) => cell(mean, written(mean), "number each")));
  if (isPair) {
    row.append(cell(apart, signed(scale * apart, scale === 1 ? 2 : 1)), make("td", { className: "drawn", dataset: { value: apart } }, count >= ENOUGH ? interval(apart, z * error, reach) : make("span", { className: "small" }, `under ${ENOUGH}`)));
  }
  return row;
}

/** Draw a difference with its interval. */
function interval(apart, half, reach) {
  const [width, middle] = [174, 87];
  const x = (value) => middle + (82 * value) / reach;
  const drawing = shape("svg", { viewBox: `0 0 ${width} 24`, width, height: 24, "aria-hidden": "true" });
  drawing.append(rule("axis", middle, 0, middle, 24), rule("ci", x(apart - half), 12, x(apart + half), 12), shape("circle", { class: "dot", cx: x(apart), cy: 12, r: 4 }));
  return drawing;
}
