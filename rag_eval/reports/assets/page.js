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

const byId = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en-GB");

/** A metric's value: three decimals, or a whole number where it is a count. */
function inShort(value) {
  if (Number.isNaN(value)) {
    return "–";
  }
  return Math.abs(value) < 10 ? value.toFixed(3) : whole.format(Math.round(value));
}

/** A share in per cent, with one decimal unless it is all or nothing. */
const percent = (share) => `${share === 0 || share === 1 ? 100 * share : (100 * share).toFixed(1)}\u00a0%`;

/** A number with its sign, a minus for a hyphen. */
const signed = (value, decimals = 1) =>
  Math.abs(value) < 0.5 * 10 ** -decimals ? "±0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(decimals)}`;

/** One thing or several: 1 character, 2 characters. */
const many = (count, noun) => `${whole.format(count)} ${noun}${count === 1 ? "" : "s"}`;

/** The words of a search, in small letters. */
const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

/** Fill a select with options: [value, label]. */
function fill(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, label]) => make("option", { value, selected: String(value) === String(chosen) }, label)),
  );
}

/** Give the reader a file. */
function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Rows as a file for a spreadsheet; a text that would be taken for a formula begins with an apostrophe. */
function downloadTable(name, rows) {
  const cell = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  download(name, "text/csv", rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n");
}

/** Put a text on the clipboard; an old way serves where the new one is refused. */
async function copyText(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const box = make("textarea", { value: text, className: "hidden" });
    document.body.append(box);
    box.select();
    document.execCommand("copy");
    box.remove();
  }
}

/** Copy where the page is, once what is chosen stands in the address, and say so. */
async function copyLink() {
  await copyText(location.href);
  const button = byId("copy");
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

/** The switch between light and dark; what was chosen is kept where there is storage. */
function startColours() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const button = byId("colours");
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const name = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("rag-eval-theme", root.dataset.theme);
    } catch {
      // it is forgotten with the page
    }
    name();
  });
  dark.addEventListener("change", name);
  name();
}

/** Sort the rows of a table by a column, within their groups: a row of class "group" begins one. */
function sortBy(heading, descending = heading.getAttribute("aria-sort") !== "descending") {
  const body = heading.closest("table").tBodies[0];
  const place = [...heading.parentElement.children].indexOf(heading);
  for (const other of heading.parentElement.children) {
    other.removeAttribute("aria-sort");
  }
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const key = (row) => row.children[place].dataset.value ?? row.children[place].textContent;
  const compare = (x, y) => {
    const [left, right] = [key(x), key(y)];
    const apart = Number(right) - Number(left);
    return (descending ? 1 : -1) * (Number.isNaN(apart) ? right.localeCompare(left) : apart);
  };
  const groups = [];
  for (const row of body.rows) {
    if (row.classList.contains("group") || !groups.length) {
      groups.push([]);
    }
    groups.at(-1).push(row);
  }
  const sorted = groups.map((rows) => {
    const head = rows[0].classList.contains("group") ? rows.splice(0, 1) : [];
    return [...head, ...rows.sort(compare)];
  });
  body.replaceChildren(...sorted.flat());
}

/** Whether keys are for a field just now, or for the browser. */
const isTyping = (event) =>
  event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
