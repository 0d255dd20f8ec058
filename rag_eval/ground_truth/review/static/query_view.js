// The question, its passages and what can be decided on them.

import { ICONS } from "./query_list.js";

export class QueryView {
  constructor(root, onChooseSpan) {
    this.find = (id) => root.getElementById(id);
    this.button = (action) => root.querySelector(`[data-action=${action}]`);
    this.find("spans").addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) onChooseSpan(Number(button.dataset.number));
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
    for (const action of ["adjust", "answers", "remove"]) this.button(action).disabled = spans.length === 0;
    this.find("spans").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest" });
  }
}

function fact(key, value) {
  return part("fact", `${key}: ${typeof value === "string" ? value : JSON.stringify(value)}`);
}

function part(name, text) {
  const element = document.createElement("span");
  element.className = name;
  element.textContent = text;
  return element;
}

const KINDS = { span: "", alternative: "or elsewhere, ", offered: "offered, ", rejected: "not an answer, " };

function card(span, number, isCurrent) {
  const item = document.createElement("li");
  const button = document.createElement("button");
  button.type = "button";
  button.className = `span ${span.kind} ${span.status}`;
  button.dataset.number = number;
  if (isCurrent) button.setAttribute("aria-current", "true");
  const origin = span.origin ? ` (${span.origin})` : "";
  const where = [span.doc_id, span.place, `${span.start}–${span.end}`].filter(Boolean).join(" · ");
  const place = `${KINDS[span.kind]}${where}${origin}`;
  button.append(part("place", `${ICONS[span.status]} ${place}`));
  const text = part("excerpt", span.text.length > 400 ? `${span.text.slice(0, 400)}…` : span.text);
  text.dir = "auto";
  button.append(text);
  if (span.judge) button.append(part("place", `${span.judge}: grade ${span.grade} of 3${span.reason ? `, ${span.reason}` : ""}`));
  if (span.fault) button.append(part("fault", span.fault));
  item.append(button);
  return item;
}
