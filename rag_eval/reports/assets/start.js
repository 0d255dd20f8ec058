// Bring the page to life: the table sorts, the colours switch, charts and questions appear.

function startTables() {
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => sortBy(button.closest("th")));
  }
}

function sortBy(heading) {
  const body = heading.closest("table").tBodies[0];
  const place = [...heading.parentElement.children].indexOf(heading);
  const descending = heading.getAttribute("aria-sort") !== "descending";
  for (const other of heading.parentElement.children) {
    other.removeAttribute("aria-sort");
  }
  heading.setAttribute("aria-sort", descending ? "descending" : "ascending");
  const key = (row) => row.children[place].dataset.value ?? row.children[place].textContent;
  const compare = (x, y) => {
    const [left, right] = [Number(key(x)), Number(key(y))];
    return Number.isNaN(left) || Number.isNaN(right) ? key(y).localeCompare(key(x)) : right - left;
  };
  const rows = [...body.rows].sort(compare);
  body.replaceChildren(...(descending ? rows : rows.reverse()));
}

function startColours() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const root = document.documentElement;
  const button = byId("colours");
  const isDark = () => (root.dataset.theme ?? (dark.matches ? "dark" : "light")) === "dark";
  const name = () => (button.textContent = isDark() ? "Light" : "Dark");
  button.hidden = false;
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    name();
  });
  dark.addEventListener("change", name);
  name();
}

async function start() {
  startTables();
  startColours();
  watchEdges();
  if (!("DecompressionStream" in window)) {
    byId("old-browser").hidden = false;
    return;
  }
  document.documentElement.classList.add("alive");
  byId("charts").hidden = manifest.charts.length === 0;
  byId("questions").hidden = overlay.configurations.length === 0;
  startCharts();
  startPrinting();
  await startExplorer();
  drawRest();
}

start();
