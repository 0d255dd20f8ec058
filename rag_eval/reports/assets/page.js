// Small helpers. All text goes through textContent: what a document or a model wrote stays text.

/** An element with properties, data-… values and children; strings become text. */
function make(tag, { dataset = {}, attributes = {}, ...properties } = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  Object.assign(element.dataset, dataset);
  for (const [name, value] of Object.entries(attributes)) {
    element.setAttribute(name, value);
  }
  element.append(...children);
  return element;
}

const EDGED = "nav .links, .scroll, .canvas";
const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en-GB");

/** A metric's value: three decimals, or a whole number where it is a count. */
function inShort(value) {
  if (Number.isNaN(value)) {
    return "–";
  }
  return Math.abs(value) < 10 ? value.toFixed(3) : whole.format(Math.round(value));
}

/** One thing or several: 1 character, 2 characters. */
const many = (count, noun) => `${whole.format(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Fill a select with options: [value, label]. */
function fill(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, label]) => make("option", { value, selected: String(value) === String(chosen) }, label)),
  );
}

/** Mark the boxes that go on to the right of what is in sight, so that the style sheet can show it. */
function watchEdges() {
  const look = (box) => box.toggleAttribute("data-more", box.scrollWidth - box.clientWidth - box.scrollLeft > 2);
  const watcher = new ResizeObserver((entries) => entries.forEach(({ target }) => look(target.closest(EDGED))));
  for (const box of document.querySelectorAll(EDGED)) {
    box.addEventListener("scroll", () => look(box));
    [box, ...box.children].forEach((element) => watcher.observe(element));
  }
}
