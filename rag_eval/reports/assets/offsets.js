// Offsets of the report count code points; JavaScript's strings count UTF-16 units. They differ after every character
// outside the basic plane, such as an emoji.

/** The places, in code points, of the characters that take two units. */
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

/** How many numbers of a sorted list are below a value. */
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

/** The text between two places in code points. */
function sliceByPoints(text, doubles, from, to) {
  return text.slice(from + countBelow(doubles, from), to + countBelow(doubles, to));
}
