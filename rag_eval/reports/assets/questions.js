// The report's numbers: the small ones stand in the page as JSON, the large ones packed, and are unpacked when first
// asked for, so that a page with many questions opens at once.

const manifest = JSON.parse(document.getElementById("manifest").textContent);
const TYPES = { int32: Int32Array, float32: Float32Array, bytes: Uint8Array };
const unpacked = new Map();

/** A packed section: a typed array, or what its JSON holds. */
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

// The questions: what is known about each, and in which order they are looked at.

const overlay = manifest.overlay;
const places = { truth: null, documents: null, queries: null, pieces: null, texts: null };

/** Load what every question needs. */
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

/** The hits, chunks and scores of a side, unpacked once. */
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

/** The scores of a side by one metric, by its place, a value for each question; NaN where there is none. */
function scoresOf(side, place) {
  const count = places.queries.ids.length;
  return side.scores.subarray(place * count, (place + 1) * count);
}

/** The truth of a question: [document, start, end, group]; the members of a group say the same. */
function truthOf(question) {
  const rows = [];
  const { offsets } = places.queries;
  for (let row = offsets[question]; row < offsets[question + 1]; row++) {
    rows.push(places.truth.subarray(4 * row, 4 * row + 4));
  }
  return rows;
}

/** The hits of a question that the page carries: {rank, document, start, end, tokens, counts}; `counts` is whether they
 * are within a cut, by its place. Those without a place in the documents are left out. */
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

// Keys and tests see the negative of a cost, so that more is better everywhere.
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

/** The scores as keys and tests see them. */
const asGains = (scores, metric) => (metric.cost ? scores.map((value) => -value) : scores);

/** The orders that mean something for as many sides as there are: [name, label]. */
const ordersFor = (isPair) =>
  Object.entries(ORDERS)
    .filter(([, choice]) => isPair || !choice.pair)
    .map(([name, choice]) => [name, choice.label]);

/** The filters that some question passes, with how many do: [name, label]. */
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

/** The questions that pass the filters, in the order asked for. */
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
  // What has no score comes last; equal ones stay as in the dataset.
  const rank = (question) => (unanswerable[question] || Number.isNaN(key[question]) ? Infinity : key[question]);
  const compare = (x, y) => {
    const difference = rank(x) - rank(y);
    return Number.isNaN(difference) || difference === 0 ? x - y : difference;
  };
  return order === "dataset" ? kept : kept.sort(compare);
}
