// Which parts of a document were found, missed or surplus.

/** Sort intervals [start, end) by start and merge those that overlap or touch. */
function merged(intervals) {
  const result = [];
  for (const [start, end] of [...intervals].sort((a, b) => a[0] - b[0])) {
    const last = result.at(-1);
    if (last && start <= last[1]) {
      last[1] = Math.max(last[1], end);
    } else if (start < end) {
      result.push([start, end]);
    }
  }
  return result;
}

/** Return the stretches of a document that are relevant, retrieved or both: {start, end, kind}, by start. */
function marksOf(truth, hits) {
  const sides = [merged(truth), merged(hits)];
  const borders = [...new Set(sides.flat(2))].sort((a, b) => a - b);
  const next = [0, 0];
  const marks = [];
  for (let i = 0; i + 1 < borders.length; i++) {
    const start = borders[i];
    const [relevant, retrieved] = sides.map((intervals, side) => {
      while (next[side] < intervals.length && intervals[next[side]][1] <= start) {
        next[side]++;
      }
      return next[side] < intervals.length && intervals[next[side]][0] <= start;
    });
    if (relevant || retrieved) {
      const kind = relevant && retrieved ? "found" : relevant ? "missed" : "surplus";
      marks.push({ start, end: borders[i + 1], kind });
    }
  }
  return marks;
}

/** Return the truth that counts for these hits, as [document, start, end]: of each group the best covered member, and
 * of the others, such as copies, only what was retrieved. */
function evidenceOf(truth, hits) {
  const groups = new Map();
  for (const [document, start, end, group] of truth) {
    const own = merged(hits.filter((hit) => hit.document === document).map((hit) => [hit.start, hit.end]));
    const parts = own.map(([from, to]) => [document, Math.max(from, start), Math.min(to, end)]);
    const retrieved = parts.filter(([, from, to]) => from < to);
    const covered = retrieved.reduce((sum, [, from, to]) => sum + to - from, 0) / (end - start);
    groups.set(group, [...(groups.get(group) ?? []), { place: [document, start, end], retrieved, covered }]);
  }
  return [...groups.values()].flatMap((members) => {
    const best = members.reduce((one, other) => (other.covered > one.covered ? other : one));
    return members.flatMap((member) => (member === best ? [member.place] : member.retrieved));
  });
}

/** Count the characters found, missed and surplus. */
function countMarks(marks) {
  const counts = { found: 0, missed: 0, surplus: 0 };
  for (const { start, end, kind } of marks) {
    counts[kind] += end - start;
  }
  return counts;
}
