// One question: the text of its documents with what was found, missed and brought along, for one side or two.

const FEW_DOCUMENTS = 8;
const MORE = 4000;
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const decoded = new Map();

/** The carried text of a document: pieces by place, decoded when first shown. */
function piecesOf(document) {
  if (!decoded.has(document)) {
    const pieces = [];
    const rows = places.pieces;
    for (let row = places.documents.pieces[document]; row < places.documents.pieces[document + 1]; row++) {
      const [start, end, first, last] = rows.subarray(4 * row, 4 * row + 4);
      const text = decoder.decode(places.texts.subarray(first, last));
      pieces.push({ start, end, text, doubles: doublePlaces(text) });
    }
    decoded.set(document, pieces);
  }
  return decoded.get(document);
}

/** The text between two places as runs: {start, end, text}, text null where the report does not carry it. */
function textBetween(document, from, to) {
  const runs = [];
  let place = from;
  for (const piece of piecesOf(document)) {
    const start = Math.max(place, piece.start);
    const end = Math.min(to, piece.end);
    if (start < end) {
      if (start > place) {
        runs.push({ start: place, end: start, text: null });
      }
      runs.push({ start, end, text: sliceByPoints(piece.text, piece.doubles, start - piece.start, end - piece.start) });
      place = end;
    }
  }
  if (place < to) {
    runs.push({ start: place, end: to, text: null });
  }
  return runs;
}

/** Where the chunks of a document begin and end within a window: place → "begin", "end" or "both". */
function cutsWithin(side, document, from, to) {
  const { chunks } = side;
  const first = firstChunk(chunks, document, from);
  const cuts = new Map();
  const note = (place, kind) => {
    if (place > from && place < to) {
      cuts.set(place, cuts.has(place) && cuts.get(place) !== kind ? "both" : kind);
    }
  };
  for (let row = first; 3 * row < chunks.length && chunks[3 * row] === document && chunks[3 * row + 1] < to; row++) {
    note(chunks[3 * row + 1], "begin");
    note(chunks[3 * row + 2], "end");
  }
  return cuts;
}

/** The first chunk, of those by document and start, that may reach a place; chunks may overlap. */
function firstChunk(chunks, document, place) {
  const reach = overlay.longest;
  let low = 0;
  let high = chunks.length / 3;
  while (low < high) {
    const middle = (low + high) >> 1;
    const before = chunks[3 * middle] - document || chunks[3 * middle + 1] - (place - reach);
    if (before < 0) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/** What one side has of one document: hits, marks and counts. */
function viewOf(side, document, truth, hits) {
  const own = hits.filter((hit) => hit.document === document);
  const marks = marksOf(truth, own.map(({ start, end }) => [start, end]));
  return { side, document, hits: own, marks, counts: countMarks(marks) };
}

/** All that is shown of a question: for each document a view of each side, those with truth first, then by rank. */
function question(number, sides, k) {
  const truth = truthOf(number);
  const hits = sides.map((side) => hitsOf(side, number, k));
  const evidence = hits.map((found) => evidenceOf(truth, found));
  const ranks = new Map(evidence.flat().map(([document]) => [document, 0]));
  for (const hit of hits.flat()) {
    ranks.set(hit.document, Math.min(ranks.get(hit.document) ?? Infinity, hit.rank));
  }
  const documents = [...ranks.keys()].sort((a, b) => ranks.get(a) - ranks.get(b) || a - b);
  return documents.map((document) => {
    const within = (places) => places.filter(([doc]) => doc === document).map(([, start, end]) => [start, end]);
    const relevant = within(evidence.flat());
    const views = sides.map((side, i) => viewOf(side, document, within(evidence[i]), hits[i]));
    const spans = [...relevant, ...views.flatMap((view) => view.hits.map(({ start, end }) => [start, end]))];
    const length = places.documents.lengths[document];
    return { document, length, views, windows: windowsOf(spans, length), relevant: relevant.length > 0 };
  });
}

/** The counts of one side over all documents: characters, or chunks where the truth is whole chunks. */
function totalOf(rows, i) {
  const total = { found: 0, missed: 0, surplus: 0, hits: 0 };
  for (const { views } of rows) {
    const { counts, hits } = views[i];
    total.hits += hits.length;
    for (const kind of ["found", "missed", "surplus"]) {
      total[kind] += overlay.unit === "chunk" ? Number(counts[kind] > 0) : counts[kind];
    }
  }
  return total;
}

/** The text of a window with its marks, ranks and cuts. */
function windowText(view, from, to) {
  const fragment = document.createDocumentFragment();
  const cuts = overlay.unit === "chunk" ? new Map() : cutsWithin(view.side, view.document, from, to);
  const begins = new Map();
  for (const hit of view.hits) {
    if (hit.start >= from && hit.start < to) {
      begins.set(hit.start, [...(begins.get(hit.start) ?? []), hit.rank]);
    }
  }
  const inside = view.marks.filter((mark) => mark.end > from && mark.start < to);
  const borders = inside.flatMap((mark) => [mark.start, mark.end]).filter((place) => place > from && place < to);
  const stops = [...new Set([from, to, ...borders, ...cuts.keys(), ...begins.keys()])].sort((a, b) => a - b);
  let next = 0;
  for (let i = 0; i + 1 < stops.length; i++) {
    const [start, end] = [stops[i], stops[i + 1]];
    if (cuts.has(start)) {
      fragment.append(make("i", { className: `cut ${cuts.get(start)}`, ariaHidden: "true" }));
    }
    for (const rank of begins.get(start) ?? []) {
      fragment.append(make("b", { className: "rank", title: `Hit ${rank} begins here` }, String(rank)));
    }
    while (next < inside.length && inside[next].end <= start) {
      next++;
    }
    const kind = next < inside.length && inside[next].start <= start ? inside[next].kind : "";
    fragment.append(...textBetween(view.document, start, end).map((run) => runElement(run, kind)));
  }
  return fragment;
}

function runElement({ start, end, text }, kind) {
  const shown = text ?? `⋯ ${many(end - start, "character")} not carried in this report ⋯`;
  const element = kind ? make("mark", { className: kind }, shown) : make("span", {}, shown);
  element.classList.toggle("absent", text === null);
  element.dataset.length = end - start;
  return element;
}

/** The button in place of what is left out, which brings some of it back. */
function gapButton(view, from, to, open) {
  const kind = view.marks.find((mark) => mark.start <= from && mark.end >= to)?.kind ?? "";
  const label = `⋯ ${many(to - from, "character")} ⋯`;
  const button = make("button", { type: "button", className: `gap ${kind}`, onclick: open }, label);
  button.setAttribute("aria-label", `Show ${many(to - from, "more character")}`);
  return button;
}

/** One document; one that holds nothing relevant is folded, unless it is the first hit. */
function documentElement(row) {
  const title = make("bdi", {}, places.documents.titles[row.document]);
  if (row.relevant) {
    const tag = make("span", { className: "tag" }, overlay.unit === "chunk" ? "relevant" : "holds the answer");
    return make("section", { className: "document" }, make("h4", {}, title, tag), columnsElement(row));
  }
  const ranks = row.views.map(({ hits }, i) => `${row.views.length > 1 ? `${"AB"[i]}: ` : ""}${ranksOf(hits)}`);
  const summary = make("summary", {}, title, make("span", { className: "tag" }, ranks.join(" · ")));
  const details = make("details", { className: "document" }, summary);
  const show = () => details.open && details.children.length < 2 && details.append(columnsElement(row));
  details.addEventListener("toggle", show);
  details.open = row.views.some((view) => view.hits.some((hit) => hit.rank === 1));
  show();
  return details;
}

const ranksOf = (hits) => (hits.length ? `hit ${hits.map((hit) => hit.rank).join(", ")}` : "no hit");

/** The text for every side; gaps open on both sides at once, so that the texts stay beside each other. */
function columnsElement(row) {
  const columns = make("div", { className: "columns" });
  const draw = () => columns.replaceChildren(...row.views.map((view, i) => columnElement(row, view, () => reveal(i))));
  const reveal = (i) => {
    draw();
    columns.children[i].focus({ preventScroll: true });
  };
  draw();
  return columns;
}

function columnElement(row, view, redraw) {
  const column = make("div", { className: "text", dir: "auto", dataset: { side: view.side.number } });
  column.tabIndex = -1;
  const gap = (from, to) => {
    const open = () => {
      row.windows = merged([...row.windows, [from, Math.min(to, from + MORE)]]);
      redraw();
    };
    column.append(gapButton(view, from, to, open));
  };
  let place = 0;
  for (const [from, to] of row.windows) {
    if (from > place) {
      gap(place, from);
    }
    column.append(windowText(view, from, to));
    place = to;
  }
  if (place < row.length) {
    gap(place, row.length);
  }
  return column;
}
