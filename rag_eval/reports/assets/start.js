// Start the page: filter and sort the ranking, switch colours, draw charts and questions.

const MANY = 30;
const SOME = 10;
let showsWorse = false;

function startRanking() {
  const table = document.querySelector(".ranking");
  if (!table) {
    return;
  }
  for (const button of document.querySelectorAll("th button")) {
    button.addEventListener("click", () => {
      sortBy(button.closest("th"));
      filterRanking();
    });
  }
  byId("find").addEventListener("input", filterRanking);
  byId("clear").addEventListener("click", () => {
    byId("find").value = "";
    filterRanking();
    byId("find").focus();
  });
  byId("all-worse").addEventListener("click", () => {
    showsWorse = true;
    filterRanking();
  });
  byId("ranking-csv").addEventListener("click", () => downloadRanking(table));
  filterRanking();
}

/** Show the rows with all the words; of many significantly worse ones, only the first few. */
function filterRanking() {
  const queryWords = wordsOf(byId("find").value);
  const table = document.querySelector(".ranking");
  const rows = [...table.querySelectorAll("tbody tr[data-name]")];
  const isMatch = (row) => queryWords.every((word) => row.dataset.name.toLowerCase().includes(word));
  const found = rows.filter(isMatch);
  const worse = found.filter((row) => row.dataset.group === "worse");
  const folded = found.length > MANY && !showsWorse ? new Set(worse.slice(SOME)) : new Set();
  rows.forEach((row) => (row.hidden = !isMatch(row) || folded.has(row)));
  for (const head of table.querySelectorAll("tr.group")) {
    head.hidden = !rows.some((row) => !row.hidden && row.dataset.group === head.dataset.group);
  }
  byId("ranked").textContent = `${found.length - folded.size} of ${rows.length}`;
  byId("no-rank").hidden = found.length > 0;
  byId("all-worse").hidden = !folded.size;
  byId("all-worse").textContent = `Show all ${worse.length} that are worse`;
}

/** Download the visible ranking as CSV. */
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
    await startExplorer();
  } else {
    byId("copy").addEventListener("click", copyLink);
  }
}

start();
