// One question: the hits of a side by rank with their relevant text, down to where the context ends; then the relevant
// text that came too late, and the text that was not found.

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const decoded = new Map();
const LONG = 260;
const KEPT = 90;
const AROUND = 120;

/** Return the carried text of a document in pieces, decoded when first shown. */
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

/** Return the text between two places as runs {start, end, text}; text is null if the report does not carry it. */
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

/** Return what a side found of a question: its hits, and the text found, missed and surplus. */
function findings(side, question, cut) {
  const truth = truthOf(question);
  const hits = hitsOf(side, question, cut);
  const within = hits.filter((hit) => hit.counts);
  const evidence = evidenceOf(truth, within);
  const documents = new Set([...evidence.map(([document]) => document), ...within.map((hit) => hit.document)]);
  const total = { found: 0, missed: 0, surplus: 0 };
  const missed = new Map();
  const found = new Map();
  for (const document of documents) {
    const spans = (rows) => rows.filter((row) => row[0] === document).map(([, start, end]) => [start, end]);
    const retrieved = within.filter((hit) => hit.document === document).map(({ start, end }) => [start, end]);
    const marks = marksOf(spans(evidence), retrieved);
    const counts = countMarks(marks);
    for (const kind of Object.keys(total)) {
      total[kind] += overlay.unit === "chunk" ? Number(counts[kind] > 0) : counts[kind];
    }
    const of = (kind) => merged(marks.filter((mark) => mark.kind === kind).map(({ start, end }) => [start, end]));
    missed.set(document, of("missed"));
    found.set(document, of("found"));
  }
  return { hits, within: within.length, total, found, missed };
}

/** Clip intervals to a stretch. */
const clipped = (intervals, from, to) =>
  intervals.map(([start, end]) => [Math.max(start, from), Math.min(end, to)]).filter(([start, end]) => start < end);

const lengthOf = (intervals) => intervals.reduce((sum, [start, end]) => sum + end - start, 0);

/** Subtract intervals from others. */
function without(intervals, others) {
  let left = intervals;
  for (const [from, to] of others) {
    left = left.flatMap(([start, end]) => [
      ...(start < Math.min(end, from) ? [[start, Math.min(end, from)]] : []),
      ...(Math.max(start, to) < end ? [[Math.max(start, to), end]] : []),
    ]);
  }
  return left;
}

/** Return irrelevant text; long text is folded to the ends that touch relevant text. */
function surplus(text, keepsStart, keepsEnd) {
  const letters = [...text];
  if (letters.length <= LONG) {
    return [text];
  }
  const head = keepsStart ? letters.slice(0, KEPT).join("") : "";
  const tail = keepsEnd ? letters.slice(-KEPT).join("") : "";
  const rest = letters.slice(keepsStart ? KEPT : 0, keepsEnd ? -KEPT : undefined);
  const label = `… ${many(rest.length, "character")} …`;
  const button = make("button", { type: "button", className: "fold" }, label);
  button.addEventListener("click", () => button.replaceWith(rest.join("")));
  return [head, button, tail];
}

/** Return the text of a stretch with its relevant parts marked. */
function stretch(document, from, to, marks, kind) {
  const box = make("div", { className: "text", dir: "auto", dataset: { at: [document, from, to].join(":") } });
  const note = (start, end, relevant) => {
    for (const run of textBetween(document, start, end)) {
      if (run.text === null) {
        const count = many(run.end - run.start, "character");
        box.append(make("span", { className: "absent" }, `⋯ ${count} not carried in this report ⋯`));
      } else if (relevant) {
        const dataset = { at: [document, run.start, run.end].join(":") };
        box.append(make("mark", { className: kind, dataset }, run.text));
      } else {
        box.append(...surplus(run.text, start > from || !marks.length, end < to));
      }
    }
  };
  let place = from;
  for (const [start, end] of marks) {
    note(place, start, false);
    note(start, end, true);
    place = end;
  }
  note(place, to, false);
  return box;
}

/** Return the page or other place of a stretch, or the first and the last; "" if the document has none. */
function placeOf(document, start, end) {
  const told = places.documents.places?.[document] ?? [];
  const [first, last] = [start, Math.max(start, end - 1)].map((at) => told.find(([from, to]) => from <= at && at < to)?.[2]);
  return first === last ? (first ?? "") : [first, last].filter(Boolean).join(" to ");
}

/** Return the document and the place of a stretch. */
function titleOf(document, start, end) {
  const title = make("bdi", {}, places.documents.titles[document]);
  const place = placeOf(document, start, end);
  return make("span", {}, title, ...(place ? [" · ", make("bdi", {}, place)] : []));
}

/** Return the line above a hit: its rank, source, tokens and gain. */
function whereabouts(said, hit, spent, brings) {
  const tokens = hit.tokens >= 0 ? `${whole.format(hit.tokens)} tokens${spent >= 0 ? `, up to ${whole.format(spent)}` : ""}` : "";
  const parts = [titleOf(hit.document, hit.start, hit.end), tokens, brings].filter(Boolean);
  return make("div", { className: "where" }, make("b", {}, said), ...parts.flatMap((part) => [" · ", part]));
}

/** Return consecutive hits without relevant text, folded to one line. */
function idleHits(hits) {
  const ranks = hits.length === 1 ? `hit ${hits[0].rank}` : `hits ${hits[0].rank} to ${hits.at(-1).rank}`;
  const known = hits.every((hit) => hit.tokens >= 0);
  const tokens = known ? `, ${whole.format(hits.reduce((sum, hit) => sum + hit.tokens, 0))} tokens` : "";
  const details = make("details", {}, make("summary", {}, `${ranks}: nothing relevant${tokens}`));
  const list = make("ol");
  details.addEventListener("toggle", () => {
    if (details.open && !list.children.length) {
      for (const hit of hits) {
        const where = make("div", { className: "where" }, `${hit.rank} · `, titleOf(hit.document, hit.start, hit.end));
        list.append(make("li", {}, where, stretch(hit.document, hit.start, hit.end, [], "")));
      }
    }
  });
  details.append(list);
  return make("li", {}, details);
}

/** Return the line where the context ends. */
function cutLine(cut, within) {
  const { kind, size } = overlay.cuts[cut];
  const end = kind === "tokens" ? `${whole.format(size)} tokens` : `first ${many(size, "hit")}`;
  return make("li", { className: "cut" }, within ? `${end}: the context ends here` : `${end}: no hit fits`);
}

/** Return the hits of one side of a question. */
function ladder(side, question, cut) {
  const { hits, within, found, missed } = findings(side, question, cut);
  const list = make("ol", { className: "hits", dataset: { side: side.number } });
  const all = [...found.values(), ...missed.values()].reduce((sum, spans) => sum + lengthOf(spans), 0);
  let idle = [];
  let spent = 0;
  const flush = () => {
    if (idle.length) {
      list.append(idleHits(idle));
      idle = [];
    }
  };
  const seen = new Map();
  const left = new Map(missed);
  let isOver = false;
  const end = () => {
    flush();
    list.append(cutLine(cut, within));
    isOver = true;
  };
  for (const hit of hits) {
    if (!hit.counts && !isOver) {
      end();
    }
    spent = spent >= 0 && hit.tokens >= 0 && hit.counts ? spent + hit.tokens : -1;
    const relevant = clipped((hit.counts ? found : left).get(hit.document) ?? [], hit.start, hit.end);
    if (!relevant.length) {
      idle.push(hit);
      continue;
    }
    flush();
    if (hit.counts) {
      const fresh = lengthOf(without(relevant, seen.get(hit.document) ?? []));
      seen.set(hit.document, merged([...(seen.get(hit.document) ?? []), ...relevant]));
      const brings = fresh ? `brings ${percent(fresh / all)}` : "already found";
      const where = whereabouts(`Found: hit ${hit.rank}`, hit, spent, brings);
      list.append(make("li", { className: "got" }, where, stretch(hit.document, hit.start, hit.end, relevant, "found")));
    } else {
      left.set(hit.document, without(left.get(hit.document), relevant));
      const brings = `would bring ${percent(lengthOf(relevant) / all)}`;
      const where = whereabouts(`Too late: hit ${hit.rank}`, hit, -1, brings);
      list.append(make("li", { className: "late" }, where, stretch(hit.document, hit.start, hit.end, relevant, "missed")));
    }
  }
  if (!isOver) {
    end();
  }
  flush();
  for (const [document, spans] of left) {
    for (const [start, to] of spans) {
      const length = places.documents.lengths[document];
      const [from, until] = overlay.unit === "chunk" ? [start, to] : [Math.max(0, start - AROUND), Math.min(length, to + AROUND)];
      const lost = percent((to - start) / all);
      const where = make("div", { className: "where" }, make("b", {}, "Not among the hits"), " · ", titleOf(document, start, to), ` · ${lost}`);
      const text = stretch(document, from, until, [[start, to]], "missed");
      list.append(make("li", { className: "late" }, where, text));
    }
  }
  return list;
}

// Offsets of the report count code points; JavaScript's strings count UTF-16 units. They differ after every character
// outside the basic plane, such as an emoji.

/** Return the places, in code points, of the characters that take two units. */
function doublePlaces(text) {
  const places = [];
  for (let unit = 0, point = 0; unit < text.length; unit++, point++) {
    const code = text.charCodeAt(unit);
    if (code >= 0xd800 && code <= 0xdbff) {
      places.push(point);
      unit++;
    }
  }
  return places;
}

/** Count the numbers of a sorted list below a value. */
function countBelow(sorted, value) {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < value) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low;
}

/** Return the text between two places in code points. */
function sliceByPoints(text, doubles, from, to) {
  return text.slice(from + countBelow(doubles, from), to + countBelow(doubles, to));
}
