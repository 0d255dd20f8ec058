// Bring the page to life: the ranking is filtered and sorted, the colours switch, charts and questions appear.

const MANY = 30;
const SOME = 10;
let showsWorse = false;
let ranked = null;

function startRanking() {
  const table = document.querySelector(".ranking");
  if (!table) {
    return;
  }
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      sortBy(head);
      if (table.contains(head)) {
        chosen.sort = `${head.getAttribute("aria-sort") === "descending" ? "-" : ""}${head.cellIndex}`;
        filterRanking();
        keepShown();
      }
    });
  }
  // As it was written: rows, and which heading they are sorted by.
  ranked = { first: [...table.tBodies[0].rows], sorts: [...table.tHead.rows[0].cells].map((head) => head.getAttribute("aria-sort")) };
  const parts = new Map();
  for (const row of table.querySelectorAll("tbody tr[data-name]")) {
    for (const part of row.dataset.parts.split("\n")) {
      parts.set(part, (parts.get(part) ?? 0) + 1);
    }
  }
  // What every configuration has tells none apart.
  const rows = table.querySelectorAll("tbody tr[data-name]").length;
  const offered = [...parts].filter(([, count]) => count > 1 && count < rows).sort(([x], [y]) => (x < y ? -1 : 1));
  fill(byId("part"), [["", "all parts"], ...offered.map(([part, count]) => [part, `${part} (${count})`])], "");
  byId("part").hidden = !offered.length;
  const filtered = () => {
    Object.assign(chosen, { rank: byId("find").value, part: byId("part").value });
    filterRanking();
    keepShown();
  };
  byId("find").addEventListener("input", filtered);
  byId("part").addEventListener("input", filtered);
  byId("clear").addEventListener("click", () => {
    byId("find").value = byId("part").value = "";
    filtered();
    byId("find").focus();
  });
  byId("all-worse").addEventListener("click", () => {
    showsWorse = true;
    filterRanking();
  });
  byId("ranking-csv").addEventListener("click", () => downloadRanking(table));
  filterRanking();
}

let keeping = 0;

/** Put how the ranking is shown into the address, beside what stands there, once the reader rests. */
function keepShown() {
  clearTimeout(keeping);
  keeping = setTimeout(() => {
    const address = new URLSearchParams(location.hash.includes("=") ? location.hash.slice(1) : "");
    RANKING.forEach((name) => (chosen[name] ? address.set(name, chosen[name]) : address.delete(name)));
    history.replaceState(null, "", `#${address}`);
  }, 150);
}

/** Show the ranking as the address has it. */
function showRanking() {
  const table = document.querySelector(".ranking");
  byId("find").value = chosen.rank;
  byId("part").value = [...byId("part").options].some(({ value }) => value === chosen.part) ? chosen.part : "";
  const head = table.tHead.rows[0].cells[Math.abs(Number.parseInt(chosen.sort, 10))];
  if (head?.querySelector("button")) {
    sortBy(head, chosen.sort.startsWith("-"));
  } else {
    table.tBodies[0].replaceChildren(...ranked.first);
    [...table.tHead.rows[0].cells].forEach((cell, i) => cell.toggleAttribute("aria-sort", false) || (ranked.sorts[i] && cell.setAttribute("aria-sort", ranked.sorts[i])));
  }
  filterRanking();
}

/** Show the rows that have all the words; of many that are worse, the first few. */
function filterRanking() {
  const asked = wordsOf(byId("find").value);
  const part = byId("part").value;
  const table = document.querySelector(".ranking");
  const rows = [...table.querySelectorAll("tbody tr[data-name]")];
  const isAsked = (row) => asked.every((word) => row.dataset.name.toLowerCase().includes(word)) && (!part || row.dataset.parts.split("\n").includes(part));
  const found = rows.filter(isAsked);
  const worse = found.filter((row) => row.dataset.group === "worse");
  const folded = found.length > MANY && !showsWorse ? new Set(worse.slice(SOME)) : new Set();
  rows.forEach((row) => (row.hidden = !isAsked(row) || folded.has(row)));
  for (const head of table.querySelectorAll("tr.group")) {
    head.hidden = !rows.some((row) => !row.hidden && row.dataset.group === head.dataset.group);
  }
  byId("ranked").textContent = `${found.length - folded.size} of ${rows.length}`;
  byId("no-rank").hidden = found.length > 0;
  byId("all-worse").hidden = !folded.size;
  byId("all-worse").textContent = `Show all ${worse.length} that are worse`;
}

/** The ranking as it is shown, for a spreadsheet. */
function downloadRanking(table) {
  const heads = [...table.tHead.rows[0].cells];
  const kept = heads.map((head, i) => [head, i]).filter(([head]) => !head.dataset.drawn);
  const value = (cell) => (cell.dataset.value === undefined ? cell.dataset.text ?? cell.textContent.trim() : Number(cell.dataset.value));
  const rows = [...table.tBodies[0].rows].filter((row) => row.dataset.name && !row.hidden);
  downloadTable("ranking.csv", [kept.map(([head]) => head.textContent.trim()), ...rows.map((row) => kept.map(([, i]) => value(row.cells[i])))]);
}

async function start() {
  startColours();
  startRanking();
  if (!("DecompressionStream" in window)) {
    byId("old-browser").hidden = false;
    return;
  }
  document.documentElement.classList.add("alive");
  byId("questions").hidden = overlay.configurations.length === 0;
  byId("why").hidden = overlay.configurations.length === 0;
  startCharts();
  if (overlay.configurations.length) {
    startLosses();
    await startExplorer();
  } else {
    byId("copy").addEventListener("click", copyLink);
  }
}

start();
