// The report's data. Small data is JSON in the page; large sections are packed, and unpacked when first needed.

const manifest = JSON.parse(document.getElementById("manifest").textContent);
const TYPES = { int32: Int32Array, float32: Float32Array, bytes: Uint8Array };
const unpacked = new Map();

/** Return a section: a typed array, or its JSON. */
function section(name) {
  if (!unpacked.has(name)) {
    unpacked.set(name, unpack(name));
  }
  return unpacked.get(name);
}

async function unpack(name) {
  const element = document.getElementById(`section-${name}`);
  const packed = atob(element.textContent);
  const bytes = new Uint8Array(packed.length);
  for (let i = 0; i < packed.length; i++) {
    bytes[i] = packed.charCodeAt(i);
  }
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  const plain = await new Response(stream).arrayBuffer();
  element.remove();
  const kind = element.dataset.kind;
  return kind === "json" ? JSON.parse(new TextDecoder("utf-8").decode(plain)) : new TYPES[kind](plain);
}

// The questions, and how they are filtered and sorted.

const overlay = manifest.overlay;
const places = { truth: null, documents: null, queries: null, pieces: null, texts: null };

/** Load the data that every question needs. */
async function loadQuestions() {
  const names = Object.keys(places);
  const loaded = await Promise.all(names.map(section));
  names.forEach((name, i) => (places[name] = loaded[i]));
  const { texts, ids, documents } = places.queries;
  const { titles } = places.documents;
  places.queries.searchable = texts.map((text, i) =>
    [text, ids[i], ...documents[i].map((document) => titles[document])].join(" ").toLowerCase(),
  );
}

const loadedSides = new Map();

/** Return the hits, chunks and scores of a side, unpacked once. */
function loadSide(number) {
  if (!loadedSides.has(number)) {
    loadedSides.set(number, unpackSide(number));
  }
  return loadedSides.get(number);
}

async function unpackSide(number) {
  const { name, chunks: cut, rewritten } = overlay.configurations[number];
  const [hits, late, reach, chunks, scores, searches] = await Promise.all([
    section(`hits-${number}`),
    section(`late-${number}`),
    section(`reach-${number}`),
    section(`chunks-${cut}`),
    section(`scores-${number}`),
    rewritten ? section(`searches-${number}`) : null,
  ]);
  const side = { number, name, hits, reach, chunks, scores, searches, late: new Map(), first: null };
  const count = places.queries.ids.length;
  const shown = reach.subarray(overlay.cuts.length * count);
  side.first = new Int32Array(count + 1);
  shown.forEach((hits, question) => (side.first[question + 1] = side.first[question] + hits));
  for (let row = 0; row < late.length; row += 3) {
    side.late.set(late[row], [...(side.late.get(late[row]) ?? []), [late[row + 1], late[row + 2]]]);
  }
  return side;
}

/** Return the scores of a side by a metric, one for each question; NaN where there is none. */
function scoresOf(side, place) {
  const count = places.queries.ids.length;
  return side.scores.subarray(place * count, (place + 1) * count);
}

/** Return the truth of a question: [document, start, end, group]; members of a group are alternatives. */
function truthOf(question) {
  const rows = [];
  const { offsets } = places.queries;
  for (let row = offsets[question]; row < offsets[question + 1]; row++) {
    rows.push(places.truth.subarray(4 * row, 4 * row + 4));
  }
  return rows;
}

/** Return the hits of a question: {rank, document, start, end, tokens, counts}; `counts` if they are within the cut. Hits
 * without a place in the documents are left out. */
function hitsOf(side, question, cut) {
  const reach = side.reach[cut * places.queries.ids.length + question];
  const found = [];
  const note = (rank, chunk) => {
    if (chunk >= 0) {
      const [document, start, end, tokens] = side.chunks.subarray(4 * chunk, 4 * chunk + 4);
      found.push({ rank, document, start, end, tokens, counts: rank <= reach });
    }
  };
  for (let place = side.first[question]; place < side.first[question + 1]; place++) {
    note(place - side.first[question] + 1, side.hits[place]);
  }
  for (const [rank, chunk] of side.late.get(question) ?? []) {
    note(rank, chunk);
  }
  return found;
}

// Keys and tests get the negative of a cost, so that more is always better.
const ORDERS = {
  worst: { label: "worst of A first", key: (a) => a },
  differ: { label: "largest difference", key: (a, b) => -Math.abs(a - b), pair: true },
  better: { label: "A better than B", key: (a, b) => b - a, pair: true },
  lower: { label: "A worse than B", key: (a, b) => a - b, pair: true },
  best: { label: "best of A first", key: (a) => -a },
  dataset: { label: "as in the dataset", key: (a, b, question) => question },
};

const SHOWN = {
  all: { label: "All questions", test: () => true },
  nothing: { label: "A scores 0", recall: "A finds nothing", test: (a) => a === 0, share: true },
  part: { label: "A scores between 0 and 1", recall: "A finds a part", test: (a) => a > 0 && a < 1, share: true },
  everything: { label: "A scores 1", recall: "A finds everything", test: (a) => a >= 1, share: true },
  better: { label: "A beats B", test: (a, b) => a > b, pair: true },
  worse: { label: "B beats A", test: (a, b) => a < b, pair: true },
  unanswerable: { label: "Declared unanswerable", test: (a, b, question) => places.queries.unanswerable[question] > 0 },
};

/** Return scores of which more is better. */
const asGains = (scores, metric) => (metric.cost ? scores.map((value) => -value) : scores);

/** Return the orders for one or two sides: [name, label]. */
const ordersFor = (isPair) =>
  Object.entries(ORDERS)
    .filter(([, choice]) => isPair || !choice.pair)
    .map(([name, choice]) => [name, choice.label]);

/** Return the filters that some question passes, with the count: [name, label]. */
function filtersFor(scoresA, scoresB, metric, isPair) {
  const [a, b] = [scoresA, scoresB].map((scores) => asGains(scores, metric));
  const options = [];
  for (const [name, choice] of Object.entries(SHOWN)) {
    if ((choice.pair && !isPair) || (choice.share && (metric.cost || !metric.share))) {
      continue;
    }
    let count = 0;
    for (let question = 0; question < a.length; question++) {
      count += choice.test(a[question], b[question], question) ? 1 : 0;
    }
    if (count) {
      options.push([name, `${(metric.recall && choice.recall) || choice.label} (${whole.format(count)})`]);
    }
  }
  return options;
}

/** Return the questions that pass the filters, sorted. */
function chosenQuestions(scoresA, scoresB, metric, { shown, order, search, document, tag }) {
  const [a, b] = [scoresA, scoresB].map((scores) => asGains(scores, metric));
  const { ids, texts, searchable, documents, tags, unanswerable } = places.queries;
  const words = wordsOf(search);
  const kept = [];
  for (let question = 0; question < ids.length; question++) {
    if (
      SHOWN[shown].test(a[question], b[question], question) &&
      (document < 0 || documents[question].includes(document)) &&
      (tag < 0 || tags[question].includes(tag)) &&
      words.every((word) => searchable[question].includes(word))
    ) {
      kept.push(question);
    }
  }
  const key = Float64Array.from(texts, (_, question) => ORDERS[order].key(a[question], b[question], question));
  // Questions without a score come last; equal ones stay as in the dataset.
  const rank = (question) => (unanswerable[question] || Number.isNaN(key[question]) ? Infinity : key[question]);
  const compare = (x, y) => {
    const difference = rank(x) - rank(y);
    return Number.isNaN(difference) || difference === 0 ? x - y : difference;
  };
  return order === "dataset" ? kept : kept.sort(compare);
}
