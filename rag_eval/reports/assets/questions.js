// The questions: what is known about each, and in which order they are looked at.

const overlay = manifest.overlay;
const places = { truth: null, documents: null, queries: null, pieces: null, texts: null };

/** Load what every question needs. */
async function loadQuestions() {
  const names = Object.keys(places);
  const loaded = await Promise.all(names.map(section));
  names.forEach((name, i) => (places[name] = loaded[i]));
}

/** Load the hits and chunks of a side. */
async function loadSide(side) {
  const { name, chunks: cut, rewritten } = overlay.configurations[side];
  const [hits, chunks, scores, searches] = await Promise.all([
    section(`hits-${side}`),
    section(`chunks-${cut}`),
    section(`scores-${side}`),
    rewritten ? section(`searches-${side}`) : null,
  ]);
  return { number: side, name, hits, chunks, scores, searches };
}

/** The scores of a side by one metric, a value for each question; NaN where there is none. */
function scoresOf(side, metric) {
  const count = places.queries.ids.length;
  const place = overlay.metrics.indexOf(metric);
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

/** The first k hits of a question: {rank, document, start, end}. */
function hitsOf(side, question, k) {
  const found = [];
  for (let rank = 1; rank <= Math.min(k, overlay.depth); rank++) {
    const chunk = side.hits[question * overlay.depth + rank - 1];
    if (chunk >= 0) {
      const [document, start, end] = side.chunks.subarray(3 * chunk, 3 * chunk + 3);
      found.push({ rank, document, start, end });
    }
  }
  return found;
}

/** Whether less of a metric is better. */
const isCost = (metric) => overlay.costs.includes(metric);

// Keys and tests see the negative of a cost, so that more is better everywhere.
const ORDERS = {
  worst: { label: "Worst of A first", key: (a) => a },
  differ: { label: "Where A and B differ most", key: (a, b) => -Math.abs(a - b), pair: true },
  better: { label: "Where A is better than B", key: (a, b) => b - a, pair: true },
  lower: { label: "Where A is worse than B", key: (a, b) => a - b, pair: true },
  best: { label: "Best of A first", key: (a) => -a },
  dataset: { label: "As in the dataset", key: (a, b, question) => question },
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

/** The orders or filters that mean something for a metric and as many sides as there are: [name, label]. */
function offered(choices, metric, isPair) {
  return Object.entries(choices)
    .filter(([, choice]) => (isPair || !choice.pair) && !(choice.share && isCost(metric)))
    .map(([name, choice]) => [name, (overlay.recalls.includes(metric) && choice.recall) || choice.label]);
}

/** The questions that pass the filters, in the order asked for. */
function chosenQuestions(scoresA, scoresB, { shown, order, search, document, tag, metric }) {
  const sign = isCost(metric) ? -1 : 1;
  const [a, b] = [scoresA, scoresB].map((scores) => scores.map((value) => sign * value));
  const { ids, texts, searchable, documents, tags, unanswerable } = places.queries;
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
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
