// A document's text in the browser's units. The server counts code points, JavaScript counts UTF-16 units.

const BLOCK_UNITS = 2000;

const words = new Intl.Segmenter(undefined, { granularity: "word" });
const graphemes = new Intl.Segmenter(undefined, { granularity: "grapheme" });
const NEARBY = 400;

const isLow = (unit) => unit >= 0xdc00 && unit <= 0xdfff;

export class DocumentText {
  // Blocks are what the page lays out one by one, and where counting starts.
  constructor(text) {
    this.text = text;
    this.blocks = [];
    let points = 0;
    for (let start = 0; start < text.length; ) {
      const end = blockEnd(text, start);
      this.blocks.push({ start, end, points });
      points += pointsBetween(text, start, end);
      start = end;
    }
    this.points = points;
  }

  // Code points before a UTF-16 unit. A unit inside a pair counts as the start of the pair.
  toPoints(unit) {
    if (unit >= this.text.length) return this.points;
    const block = lastWhere(this.blocks, (one) => one.start <= unit);
    return block.points + pointsBetween(this.text, block.start, this.whole(unit));
  }

  // The UTF-16 unit at which a code point starts.
  toUnits(point) {
    if (point >= this.points) return this.text.length;
    const block = lastWhere(this.blocks, (one) => one.points <= point);
    let unit = block.start;
    for (let left = point - block.points; left > 0; left--) unit += isLow(this.text.charCodeAt(unit + 1)) ? 2 : 1;
    return unit;
  }

  // The unit itself, or the start of the pair it lies in.
  whole(unit) {
    return unit > 0 && isLow(this.text.charCodeAt(unit)) ? unit - 1 : unit;
  }

  // The range without white space around it; null when nothing is left.
  trimmed({ start, end }) {
    const text = this.text.slice(start, end);
    const rest = text.trimStart();
    const from = start + text.length - rest.length;
    const until = from + rest.trimEnd().length;
    return until > from ? { start: from, end: until } : null;
  }

  // Ends and starts of the words around a unit, or of its characters as people see them.
  endAfter(unit, byGrapheme) {
    return this.piecesAfter(unit, byGrapheme)[0]?.end ?? Math.min(this.text.length, unit + NEARBY);
  }

  endBefore(unit, byGrapheme) {
    return this.piecesBefore(unit, byGrapheme).findLast((piece) => piece.end < unit)?.end ?? this.far(unit);
  }

  startAfter(unit, byGrapheme) {
    return this.piecesAfter(unit, byGrapheme).find((piece) => piece.start > unit)?.start ?? this.text.length;
  }

  startBefore(unit, byGrapheme) {
    return this.piecesBefore(unit, byGrapheme).at(-1)?.start ?? this.far(unit);
  }

  // The place of a text, the nearest to a unit; null when it is nowhere.
  nearest(text, unit) {
    let best = null;
    for (let at = this.text.indexOf(text); text && at >= 0; at = this.text.indexOf(text, at + 1)) {
      if (best === null || Math.abs(at - unit) < Math.abs(best - unit)) best = at;
    }
    return best === null ? null : { start: best, end: best + text.length };
  }

  // The next place of a text after a unit, whatever its case, from the top again at the end; null when it is nowhere.
  found(text, unit) {
    const escaped = text.replace(/[\\^$.*+?()[\]{}|/]/g, "\\$&");
    const pattern = new RegExp(escaped.replace(/\s+/g, "\\s+"), "giu");
    for (const from of [unit, 0]) {
      pattern.lastIndex = from;
      const match = pattern.exec(this.text);
      if (match && match[0]) return { start: match.index, end: match.index + match[0].length };
    }
    return null;
  }

  piecesAfter(unit, byGrapheme) {
    return this.pieces(unit, this.whole(Math.min(this.text.length, unit + NEARBY)), byGrapheme);
  }

  piecesBefore(unit, byGrapheme) {
    return this.pieces(this.far(unit), unit, byGrapheme);
  }

  far(unit) {
    return this.whole(Math.max(0, unit - NEARBY));
  }

  pieces(from, until, byGrapheme) {
    const segments = (byGrapheme ? graphemes : words).segment(this.text.slice(from, until));
    return Array.from(segments)
      .filter((one) => byGrapheme || one.isWordLike)
      .map((one) => ({ start: from + one.index, end: from + one.index + one.segment.length }));
  }
}

function pointsBetween(text, start, end) {
  let points = end - start;
  for (let unit = start; unit < end; unit++) if (isLow(text.charCodeAt(unit))) points--;
  return points;
}

function blockEnd(text, start) {
  let end = start + BLOCK_UNITS;
  if (end >= text.length) return text.length;
  const line = text.lastIndexOf("\n", end - 1);
  if (line > start + BLOCK_UNITS / 2) return line + 1;
  const space = text.lastIndexOf(" ", end - 1);
  if (space > start + BLOCK_UNITS / 2) return space + 1;
  // No pair and no CRLF is taken apart.
  while (end < text.length && (isLow(text.charCodeAt(end)) || text[end] === "\n")) end++;
  return end;
}

function lastWhere(items, holds) {
  let low = 0;
  let high = items.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (holds(items[middle])) low = middle;
    else high = middle - 1;
  }
  return items[low];
}
