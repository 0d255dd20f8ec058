// The charts, drawn as SVG: direct labels, no legends, and no line through a value that was not measured.

const charts = manifest.charts;
const AXIS = [0, 0.2, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.999];
const OCTAVE = [250, 500, 1000, 2000, 4000, 8000, 16000, 32000, 64000];
const ROLES = [
  ["ship", "win", "ship"],
  ["second", "second", "runner-up"],
  ["cheap", "cheap", "cheapest"],
];

/** Make an SVG element with attributes and children; strings become text. */
function shape(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, typeof value === "number" ? Number(value.toFixed(1)) : value);
  }
  element.append(...children);
  return element;
}

/** Label a tick; the last one, 0.999, stands for 100 %. */
const tickLabel = (share) => `${Math.round(100 * share)}\u00a0%`;
const rule = (kind, x1, y1, x2, y2) => shape("line", { class: kind, x1, y1, x2, y2 });
const words = (x, y, text, kind = "", anchor = "start") => shape("text", { x, y, class: kind, "text-anchor": anchor }, text);
/** Shorten a name to so many characters, some of them from its end. */
const shortened = (name, most, end = Math.max(0, Math.floor((most - 1) / 2))) =>
  name.length > most ? `${name.slice(0, Math.max(0, most - 1 - end))}…${end ? name.slice(-end) : ""}` : name;

/** Shorten names, all at the same place: the one nearest to the middle that keeps most names distinct. */
function toldApart(names, most) {
  const middle = Math.floor((most - 1) / 2);
  const ends = [...Array(most).keys()].sort((x, y) => Math.abs(x - middle) - Math.abs(y - middle));
  const distinct = (end) => new Set(names.map((name) => shortened(name, most, end))).size;
  const best = ends.reduce((found, end) => (distinct(end) > distinct(found) ? end : found));
  return new Map(names.map((name) => [name, shortened(name, most, best)]));
}

/** Split a long name into two rows, after a comma if possible, else after a word. */
function rowsOf(name, most) {
  const cuts = [", ", " "].map((mark) => name.lastIndexOf(mark, most - mark.length) + mark.length).filter((cut, i) => cut > 1 - i && name.length - cut <= most);
  const cut = cuts[0] ?? Math.ceil(name.length / 2);
  return name.length > most ? [name.slice(0, cut).trim(), shortened(name.slice(cut), most)] : [name];
}

/** Draw the mark of a role: a dot, a ring or a square. */
const marker = (role, x, y, size = 5) =>
  role === "cheap"
    ? shape("rect", { class: "m-cheap", x: x - size + 0.5, y: y - size + 0.5, width: 2 * size - 1, height: 2 * size - 1 })
    : shape("circle", { class: `m-${role}`, cx: x, cy: y, r: size });

/** Return a path through points, [x, y] or null for a gap. */
function line(points) {
  let path = "";
  let isOn = false;
  for (const point of points) {
    path += point ? `${isOn ? "L" : "M"}${point[0].toFixed(1)},${point[1].toFixed(1)}` : "";
    isOn = point !== null;
  }
  return path;
}

/** Make an empty drawing with a label for screen readers. */
const sheet = (width, height, label) =>
  shape("svg", { viewBox: `0 0 ${Math.round(width)} ${Math.round(height)}`, width, height, role: "img", "aria-label": label });

/** Return a scale for shares that is stretched towards 1, up to the first tick above all values. */
function shareScale(values, top, bottom, begin = 0) {
  const most = values.reduce((x, y) => Math.max(x, y), 0);
  const end = [0.8, 0.9, 0.95, 0.98, 0.99].find((tick) => tick >= most) ?? 0.999;
  const stretched = (share) => Math.log(1 - Math.min(share, end));
  const place = (share) => bottom - ((bottom - top) * (stretched(share) - stretched(begin))) / (stretched(end) - stretched(begin));
  const apart = [end, begin];
  for (const tick of AXIS.filter((one) => one < end && one > begin).reverse()) {
    if (apart.every((other) => Math.abs(place(tick) - place(other)) >= 22)) {
      apart.push(tick);
    }
  }
  return { place, ticks: apart };
}

/** Return the configurations with a role: [role, class, word, number]; one with two roles is named once. */
function roles() {
  const found = new Map();
  for (const [name, kind, word] of ROLES) {
    const number = charts.roles?.[name] ?? -1;
    const said = word === "ship" && !charts.shipped ? "first" : word;
    if (found.has(number)) {
      found.get(number)[2] += `, ${said}`;
    } else if (number >= 0 && number < charts.configurations.length) {
      found.set(number, [name, kind, said, number]);
    }
  }
  return [...found.values()];
}

/** Draw recall against tokens, a line for each configuration, with the strip of winners above. */
function frontier(width) {
  const { budgets, lines } = charts.curves;
  const isNarrow = width < 620;
  const lanes = charts.strip ?? [];
  const [left, right] = isNarrow ? [44, 20] : [lanes.length ? 208 : 136, 152];
  const labels = toldApart(lanes.map(({ name }) => name), isNarrow ? 48 : 54);
  const heads = lanes.map(({ name }) => rowsOf(labels.get(name), isNarrow ? 48 : 28));
  const step = isNarrow ? 34 : heads.some((rows) => rows.length > 1) ? 32 : 20;
  const laneTop = 12;
  const named = roles();
  const above = 20 * named.length + 8;
  const top = laneTop + lanes.length * step + (lanes.length ? 20 : 12) + above;
  const bottom = top + (isNarrow ? 260 : 280);
  const drawing = sheet(width, bottom + 44, `${charts.unit} found against tokens of context, for ${many(lines.length, "configuration")}; the numbers are in a table beside it.`);
  const [low, high] = [Math.log2(budgets[0]), Math.log2(budgets.at(-1))];
  const across = width - left - right;
  const x = (budget) => left + (across * (Math.log2(budget) - low)) / (high - low || 1);
  const means = lines.flatMap((points) => points.filter(Boolean).map(([mean]) => mean));
  const ends = named.slice(0, 1).flatMap(([, , , number]) => lines[number].filter(Boolean).map(([mean, , end]) => end ?? mean));
  const { place: y, ticks } = shareScale([...means, ...ends], top, bottom);
  for (const tick of OCTAVE.filter((one) => one >= budgets[0] && one <= budgets.at(-1))) {
    const isBudget = tick === charts.budget;
    const isDropped = isNarrow && ![250, 1000, 4000, 16000].includes(tick) && !isBudget;
    drawing.append(rule("grid", x(tick), laneTop, x(tick), bottom));
    drawing.append(isDropped ? "" : words(x(tick), bottom + 18, whole.format(tick), isBudget ? "t-ink t-b" : "", "middle"));
  }
  for (const tick of ticks) {
    drawing.append(rule(tick ? "grid" : "axis", left, y(tick), left + across, y(tick)));
    drawing.append(words(left - 8, y(tick) + 4, tickLabel(tick), "", "end"));
  }
  drawing.append(words(left + across / 2, bottom + 36, "tokens of context a question (log scale)", "t-q", "middle"));
  if (!isNarrow) {
    drawing.append(words(0, top + 4, `${charts.unit[0].toUpperCase()}${charts.unit.slice(1)}`, "t-ink t-b"), words(0, top + 20, "found; stretched", "t-q"), words(0, top + 36, "towards 100\u00a0%", "t-q"));
  }
  const at = charts.budget;
  const isInside = at >= budgets[0] && at <= budgets.at(-1);
  if (isInside) {
    // Not through the names of the roles, which stand between the lanes and the lines.
    drawing.append(rule("budget", x(at), 4, x(at), top - above), rule("budget", x(at), top, x(at), bottom + 4));
    drawing.append(words(x(at) + 8, bottom - 8, "budget", "t-ink t-b"));
  }
  lanes.forEach((lane, i) => {
    const row = laneTop + 10 + i * step + (isNarrow ? 14 : 0);
    const isShip = lane.name === charts.configurations[charts.roles?.ship];
    const kind = `${isShip ? "t-acc t-b" : "t-ink"} lane halo`;
    const [at, anchor] = isNarrow ? [left, "start"] : [left - 12, "end"];
    const first = isNarrow ? row - 8 : row + 11 - 7 * heads[i].length;
    heads[i].forEach((text, n) => drawing.append(words(at, first + 14 * n, text, kind, anchor)));
    drawing.append(rule("lane-bg", left, row, left + across, row));
    for (const [from, to] of lane.tied) {
      drawing.append(rule(`lane-tied${isShip ? " acc" : ""}`, x(from), row, x(to), row));
    }
    for (const [from, to] of lane.first) {
      const wide = Math.max(3, x(to) - x(from));
      drawing.append(shape("rect", { class: `lane-first${isShip ? " acc" : ""}`, x: x(from), y: row - 5, width: wide, height: 10 }));
    }
  });
  const emphasised = new Map(named.map(([, kind, , number]) => [number, kind]));
  const pointsOf = (number) => lines[number].map((point, i) => (point ? [x(budgets[i]), y(point[0])] : null));
  const ship = charts.roles?.ship ?? -1;
  if (ship >= 0 && lines[ship]) {
    drawing.append(band(lines[ship].map((point, i) => (point && point[1] !== null ? [x(budgets[i]), y(point[1]), y(point[2])] : null))));
  }
  lines.forEach((_, number) => {
    if (!emphasised.has(number)) {
      const named = number === lastOf(lines);
      const path = shape("path", { class: named ? "other named" : "other", d: line(pointsOf(number)) });
      path.append(shape("title", {}, charts.configurations[number]));
      drawing.append(path);
    }
  });
  for (const [number, kind] of [...emphasised].reverse()) {
    drawing.append(shape("path", { class: kind, d: line(pointsOf(number)) }));
  }
  const near = budgets.indexOf(at);
  [...named].reverse().forEach(([, kind, , number]) => {
    const point = near >= 0 ? lines[number][near] : null;
    drawing.append(point ? marker(kind, x(at), y(point[0])) : "");
  });
  // Named above the lines, where none passes.
  named.forEach(([, kind, word, number], i) => {
    const point = near >= 0 ? lines[number][near] : null;
    const room = Math.floor((width - left - 40) / 7.6) - word.length - 9;
    const said = `${shortened(charts.configurations[number], Math.max(8, room))}${point ? ` ${percent(point[0])}` : ""}`;
    const row = top - above + 4 + 20 * i;
    drawing.append(rule(kind, left, row, left + 32, row), marker(kind, left + 16, row, 4));
    drawing.append(words(left + 40, row + 4, `${word}: ${said}`, kind === "win" ? "t-acc t-b halo" : "t-ink halo"));
  });
  if (!isNarrow) {
    endLabels(drawing, lines, named, { left: left + across + 8, y, top });
  }
  drawing.append(shape("line", { class: "reading", y1: laneTop, y2: bottom, visibility: "hidden" }));
  drawing.scaleX = x;
  // The slider stands below the axis that it reads.
  byId("read").style.marginInline = `${left - 8}px ${right - 8}px`;
  byId("read").style.width = `${across + 16}px`;
  return drawing;
}

/** Return the configuration that finds most at the largest budget. */
function lastOf(lines) {
  const ends = lines.map((points) => points.at(-1)?.[0] ?? -1);
  return ends.indexOf(Math.max(...ends));
}

/** Label the line that ends highest, unless it has a role, and the thin lines. */
function endLabels(drawing, lines, named, { left, y, top }) {
  const best = lastOf(lines);
  const others = lines.length - named.length;
  let below = top;
  if (best >= 0 && lines[best].at(-1) && !named.some(([, , , number]) => number === best)) {
    below = Math.max(top + 4, y(lines[best].at(-1)[0]) + 4);
    const name = charts.configurations[best];
    const rows = rowsOf(name, 24);
    rows.forEach((row, i) => drawing.append(words(left, below + 15 * i, row, "t-q")));
    below += 15 * rows.length;
  }
  if (others > 0) {
    drawing.append(words(left, Math.max(below + 16, top + 150), `thin lines: ${others === 1 ? "the other" : `the ${others} others`}`, "t-q"));
  }
}

/** Return the area between two edges, [x, low, high] or null for a gap. */
function band(edges) {
  const stretches = [[]];
  edges.forEach((edge) => (edge ? stretches.at(-1).push(edge) : stretches.push([])));
  const path = stretches
    .filter((some) => some.length > 1)
    .map((some) => `${line(some.map(([x, , high]) => [x, high]))}L${line(some.toReversed().map(([x, low]) => [x, low])).slice(1)}Z`);
  return shape("path", { class: "band", d: path.join("") });
}

/** Start the slider that reads the chart at any budget. */
function startReading() {
  const { budgets, lines } = charts.curves;
  const slider = byId("read");
  const closest = budgets.reduce((best, one, i) => (Math.abs(one - charts.budget) < Math.abs(budgets[best] - charts.budget) ? i : best), 0);
  Object.assign(slider, { min: 0, max: budgets.length - 1, value: closest });
  const read = () => {
    const at = Number(slider.value);
    const order = lines
      .map((points, number) => [points[at]?.[0] ?? -1, number])
      .filter(([mean]) => mean >= 0)
      .sort((one, other) => other[0] - one[0]);
    const said = order.slice(0, 3).map(([mean, number]) => `${charts.configurations[number]} ${percent(mean)}`);
    const ended = lines.length - order.length;
    const rest = ended ? ` ${ended === 1 ? "One has" : `${ended} have`} too few hits for so many tokens.` : "";
    byId("readout").textContent = `At ${whole.format(budgets[at])} tokens: ${said.join(", then ") || "nothing"}.${rest}`;
    slider.setAttribute("aria-valuetext", `${whole.format(budgets[at])} tokens`);
    const drawing = document.querySelector("#chart-frontier svg");
    const rule = drawing?.querySelector(".reading");
    ["x1", "x2"].forEach((end) => rule?.setAttribute(end, drawing.scaleX(budgets[at])));
    rule?.setAttribute("visibility", budgets[at] === charts.budget ? "hidden" : "visible");
  };
  slider.addEventListener("input", read);
  read();
}

/** Return a title: the budgets over which nothing is significantly better than the first. */
function frontierFinding() {
  const name = charts.configurations[charts.roles.ship];
  if (!charts.safe) {
    return `${charts.unit[0].toUpperCase()}${charts.unit.slice(1)} found against tokens of context`;
  }
  const [from, to] = charts.safe.map((budget) => whole.format(budget));
  return `From ${from} to ${to} tokens nothing is significantly better than ${name}`;
}

/** Return whether there are scores at budgets. */
const hasCurves = () => charts.curves.lines.some((points) => points.filter(Boolean).length > 1);

/** Draw the chart into its figure, now and when its width changes. */
function startCharts() {
  const figure = byId("chart-frontier");
  figure.hidden = !charts.configurations || !hasCurves();
  if (figure.hidden) {
    return;
  }
  const box = figure.querySelector(".drawing");
  figure.querySelector("h3").textContent = frontierFinding();
  let drawn = 0;
  const redraw = () => {
    const width = Math.floor(box.clientWidth);
    if (width > 0 && width !== drawn) {
      drawn = width;
      box.replaceChildren(frontier(width));
      box.dataset.drawn = width;
    }
  };
  redraw();
  new ResizeObserver(redraw).observe(box);
  startReading();
}
