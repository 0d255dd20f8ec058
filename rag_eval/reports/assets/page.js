// Helpers. All text goes through textContent, so that what a document or a model wrote stays text.

/** Make an element with properties, data-… values and children; strings become text. */
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

/** Write a value of a metric: three decimals, or a whole number from 10 on. */
function inShort(value) {
  if (Number.isNaN(value)) {
    return "–";
  }
  return Math.abs(value) < 10 ? value.toFixed(3) : whole.format(Math.round(value));
}

/** Write a share in per cent, with one decimal unless it is 0 or 1. */
const percent = (share) => `${share === 0 || share === 1 ? 100 * share : (100 * share).toFixed(1)}\u00a0%`;

/** Write a number with its sign. */
const signed = (value, decimals = 1) =>
  Math.abs(value) < 0.5 * 10 ** -decimals ? "±0" : `${value > 0 ? "+" : "−"}${Math.abs(value).toFixed(decimals)}`;

/** Write a count with its noun: 1 character, 2 characters. */
const many = (count, noun) => `${whole.format(count)} ${noun}${count === 1 ? "" : "s"}`;

/** Return the words of a search in lower case. */
const wordsOf = (text) => text.toLowerCase().split(/\s+/).filter(Boolean);

/** Fill a select with options: [value, label]. */
function fill(select, options, chosen) {
  select.replaceChildren(
    ...options.map(([value, label]) => make("option", { value, selected: String(value) === String(chosen) }, label)),
  );
}

/** Download a file. */
function download(name, type, content) {
  const address = URL.createObjectURL(new Blob([content], { type }));
  make("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Download rows as CSV; an apostrophe keeps a spreadsheet from running a text as a formula. */
function downloadTable(name, rows) {
  const cell = (value) => {
    const text = typeof value === "string" && /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  download(name, "text/csv", rows.map((row) => row.map(cell).join(",")).join("\r\n") + "\r\n");
}

/** Copy a text to the clipboard, also on pages without a secure origin. */
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

/** Copy the address of the page, and confirm it on the button. */
async function copyLink() {
  await copyText(location.href);
  const button = byId("copy");
  button.textContent = "Copied";
  setTimeout(() => (button.textContent = "Copy link"), 1500);
}

/** Switch between light and dark, and remember the choice if there is storage. */
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
      // without storage the choice lasts as long as the page
    }
    name();
  });
  dark.addEventListener("change", name);
  name();
}

/** Sort the rows of a table by a column, within groups that start with a row of class "group". */
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

/** Return whether a key is meant for a field or the browser. */
const isTyping = (event) =>
  event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
