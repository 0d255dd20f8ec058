// The question, its spans and what can be decided on them.

export class QueryView {
  constructor(root, onChooseSpan, onChooseAlternative) {
    this.find = (id) => root.getElementById(id);
    this.button = (action) => root.querySelector(`[data-action=${action}]`);
    this.find("spans").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      const { number, alternative } = button.dataset;
      if (alternative === undefined) onChooseSpan(Number(number));
      else onChooseAlternative(Number(number), Number(alternative));
    });
  }

  show(query, position, spanNumber) {
    const { row, metadata, spans } = query;
    this.find("position").textContent = position;
    this.find("status").textContent = row.status;
    this.find("status").className = `badge ${row.status}`;
    this.find("query-id").textContent = row.id;
    this.find("metadata").replaceChildren(...Object.entries(metadata).map(([key, value]) => fact(key, value)));
    this.find("question").textContent = row.text;
    this.find("unanswerable").hidden = !row.unanswerable;
    this.find("spans").replaceChildren(...spans.map((span, number) => card(span, number, number === spanNumber)));
    this.button("undo").disabled = !query.undo;
    this.button("adjust").disabled = spans.length === 0;
    this.button("remove").disabled = spans.length < 2;
    this.find("spans").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }
}

function fact(key, value) {
  const element = document.createElement("span");
  element.className = "fact";
  element.textContent = `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`;
  return element;
}

function card(span, number, isCurrent) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = "span";
  button.dataset.number = number;
  if (isCurrent) button.setAttribute("aria-current", "true");
  const place = document.createElement("span");
  place.className = "place";
  place.textContent = `${span.doc_id} · ${span.start}–${span.end}`;
  const text = document.createElement("span");
  text.className = "excerpt";
  text.dir = "auto";
  text.textContent = span.text.length > 400 ? `${span.text.slice(0, 400)}…` : span.text;
  button.append(place, text);
  if (span.fault) {
    const fault = document.createElement("span");
    fault.className = "fault";
    fault.textContent = span.fault;
    button.append(fault);
  }
  item.append(button);
  if (span.alternatives.length) item.append(alternatives(span, number));
  return item;
}

// The other places that say the same, each to be gone to.
function alternatives(span, number) {
  const list = document.createElement("div");
  list.className = "alternatives";
  const places = span.alternatives.length === 1 ? "1 other place" : `${span.alternatives.length} other places`;
  list.append(`or ${places}:`);
  span.alternatives.forEach((one, which) => {
    const button = document.createElement("button");
    button.type = "button";
    button.dataset.number = number;
    button.dataset.alternative = which;
    button.textContent = `${one.doc_id} · ${one.start}–${one.end}${one.origin ? ` (${one.origin})` : ""}`;
    button.title = one.text;
    list.append(button);
  });
  return list;
}
