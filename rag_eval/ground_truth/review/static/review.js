// The review: what is shown, what is being adjusted, and what each action does.

import { DocumentText } from "./text.js";
import { DRAFT_KEYS, KEYS, listed } from "./keys.js";
import { isOpen } from "./query_list.js";
import { Problem, getDocument, getQuery, getState, post } from "./server.js";

const find = (id) => document.getElementById(id);
const SAID_FOR = 6000;
const KEPT_DOCUMENTS = 8;
const SHOWN_BROKEN = 3;
const DECIDED = {
  accepted: "Accepted and saved.",
  rejected: "Rejected and saved.",
  unanswerable: "Nothing answers it: saved.",
};
const placeOf = (span) => [span.doc_id, span.start, span.end];
const isPlace = (one, other) => Boolean(other) && placeOf(one).join("\n") === placeOf(other).join("\n");

export class Review {
  constructor(list, queryView, view, sheet) {
    this.list = list;
    this.queryView = queryView;
    this.view = view;
    this.sheet = sheet;
    this.query = null; // the query shown, as the server tells it
    this.spanNumber = 0;
    this.shown = null; // the document shown: {id, text, digest}
    this.documents = new Map(); // those shown before, the latest last
    this.draft = null; // what is being adjusted (number) or added (null): {number, range or null}
    this.picked = null; // what is selected or found, outside of adjusting
    this.revision = null; // of what is shown
    this.work = Promise.resolve();
  }

  // Actions wait for each other, so that fast typing is neither lost nor out of order.
  run(action) {
    this.work = this.work.then(action).catch(async (error) => {
      if (!(error instanceof Problem)) throw error;
      this.say(error.message, true);
      // The page shows what is there now; what was being adjusted goes on where it still can.
      if (error.isConflict) await this.refresh().catch((other) => this.say(other.message, true));
    });
    return this.work;
  }

  // What the page says

  say(sentence, isProblem = false) {
    clearTimeout(this.silence);
    find("said").textContent = sentence;
    find("said").classList.toggle("problem", isProblem);
    if (!isProblem) this.silence = setTimeout(() => this.say(""), SAID_FOR);
  }

  count() {
    const { rows } = this.list;
    const done = rows.filter((row) => row.status !== "open").length;
    const rejected = rows.filter((row) => row.status === "rejected").length;
    find("progress").max = Math.max(rows.length, 1);
    find("progress").value = done;
    const offered = rows.reduce((sum, row) => sum + row.offered, 0);
    const told = [`${done} of ${rows.length} reviewed`, rejected ? `${rejected} rejected` : "", offered ? `${offered} to judge` : ""];
    find("counts").textContent = told.filter(Boolean).join(", ");
  }

  draw() {
    const number = this.list.rows.findIndex((row) => row.id === this.query.row.id);
    this.queryView.show(this.query, `${number + 1} of ${this.list.rows.length}`, this.spanNumber);
    this.drawMarks();
  }

  drawMarks() {
    const { draft, shown } = this;
    find("draft-bar").hidden = draft === null;
    find("keys").replaceChildren(listed(draft ? DRAFT_KEYS : KEYS));
    document.body.classList.toggle("drafting", draft !== null);
    if (!shown) return;
    const passages = this.query.spans
      .map((span, number) => ({ span, number, kind: number === this.spanNumber ? "current" : "other" }))
      .filter(({ span, number }) => span.doc_id === shown.id && !span.fault && number !== draft?.number)
      .filter(({ span, kind }) => span.kind !== "rejected" || kind === "current");
    this.sheet.show(shown, passages);
    const marks = passages
      .map(({ span, kind }) => ({ start: shown.text.toUnits(span.start), end: shown.text.toUnits(span.end), kind }))
      .sort((one, other) => (one.kind === "current") - (other.kind === "current"));
    if (draft?.range) marks.push({ ...draft.range, kind: "draft" });
    else if (this.picked && !draft) marks.push({ ...this.picked, kind: "found" });
    this.view.mark(marks);
    if (draft) find("draft-text").textContent = this.draftSentence();
  }

  draftSentence() {
    const what = this.draft.number === null ? "New passage" : "New place";
    if (!this.draft.range) return `${what}: select text in the document, or find it with /`;
    return `${what}: ${this.lengthOf(this.draft.range)}. Select other text, or move its ends.`;
  }

  lengthOf({ start, end }) {
    const points = this.shown.text.toPoints(end) - this.shown.text.toPoints(start);
    return points === 1 ? "1 character" : `${points} characters`;
  }

  // What is shown

  async start(state) {
    this.revision = state.revision;
    find("file").textContent = state.file;
    document.title = `${state.file} – review`;
    find("document-choice").replaceChildren(...state.documents.map((id) => new Option(id, id)));
    this.tellBroken(state.broken);
    this.list.fill(state.queries);
    this.count();
    this.shown = null;
    this.documents.clear();
    const again = state.queries.find((row) => row.id === this.query?.row.id);
    const first = again ?? state.queries.find((row) => row.status === "open") ?? state.queries[0];
    if (first) await this.open(first.id);
    else this.say("There is no query to review.");
  }

  // What somebody else has changed is shown; what is being adjusted stays.
  async refresh() {
    const state = await getState();
    this.revision = state.revision;
    this.tellBroken(state.broken);
    this.list.fill(state.queries);
    this.count();
    const { id } = this.query.row;
    if (!state.queries.some((row) => row.id === id)) {
      this.draft = null;
      return state.queries.length ? this.open(state.queries[0].id) : undefined;
    }
    const shown = this.query.spans[this.spanNumber];
    this.query = await getQuery(id);
    this.list.choose(id);
    if (this.draft?.number != null) {
      this.draft.number = this.query.spans.findIndex((one) => isPlace(one, shown));
      if (this.draft.number < 0) this.draft = null;
    }
    this.spanNumber = Math.max(0, this.query.spans.findIndex((one) => isPlace(one, shown)));
    this.documents.clear();
    this.draw();
  }

  tellBroken(lines) {
    const more = lines.length > SHOWN_BROKEN ? `; and ${lines.length - SHOWN_BROKEN} more` : "";
    find("broken").hidden = lines.length === 0;
    find("broken").textContent = `Not to be read, and left as they are: ${lines.slice(0, SHOWN_BROKEN).join("; ")}${more}`;
  }

  async open(id) {
    this.query = await getQuery(id);
    const { row, spans } = this.query;
    const offered = spans.findIndex((span) => span.kind === "offered");
    this.spanNumber = row.status === "open" ? 0 : Math.max(0, offered);
    this.draft = this.picked = null;
    this.list.choose(id);
    document.body.classList.remove("listing");
    find("list-button").setAttribute("aria-expanded", "false");
    await this.showSpan();
  }

  async showSpan() {
    const span = this.query.spans[this.spanNumber];
    const isShown = span && (await this.showDocument(span.doc_id));
    if (!isShown && !this.shown && find("document-choice").value) await this.showDocument(find("document-choice").value);
    this.draw();
    this.view.reveal("current");
  }

  async showDocument(id) {
    if (this.shown?.id === id) return true;
    if (![...find("document-choice").options].some((option) => option.value === id)) return false;
    this.shown = this.documents.get(id) ?? (await this.readDocument(id));
    find("document-choice").value = id;
    this.picked = null;
    this.view.show(this.shown.text);
    return true;
  }

  async readDocument(id) {
    const told = await getDocument(id);
    this.documents.set(id, { id, digest: told.digest, text: new DocumentText(told.text) });
    if (this.documents.size > KEPT_DOCUMENTS) this.documents.delete(this.documents.keys().next().value);
    return this.documents.get(id);
  }

  async chooseDocument(id) {
    if (this.draft) this.draft.range = null;
    await this.showDocument(id);
    this.drawMarks();
  }

  // A query came back changed from the server.
  take(told) {
    this.query = told;
    this.revision = told.revision;
    this.spanNumber = Math.min(this.spanNumber, Math.max(0, told.spans.length - 1));
    this.list.update(told.row);
    this.count();
  }

  // What can be done

  step(steps) {
    const id = this.list.away(steps);
    return id ? this.open(id) : this.say(steps > 0 ? "This is the last query." : "This is the first query.");
  }

  async decide(decision) {
    this.take(await post("decide", { id: this.query.row.id, version: this.query.version, decision }));
    const next = this.list.nextOpen();
    if (next) await this.open(next);
    else this.draw();
    const isDone = !this.list.rows.some(isOpen);
    const said = DECIDED[decision];
    this.say(isDone ? `${said} Every query is reviewed.` : said);
  }

  // Decide on the passage shown, and go on to the next that is not decided.
  async judge(decision) {
    const span = this.query.spans[this.spanNumber];
    if (!span) return this.say("There is no passage: add one with n, or press 0 if nothing answers it.", true);
    const { spans } = this.query;
    const order = [...spans.slice(this.spanNumber + 1), ...spans.slice(0, this.spanNumber)];
    const next = order.find((one) => one.status === "open");
    this.take(await post("judge", { id: this.query.row.id, place: placeOf(span), decision }));
    let said = decision === "accepted" ? "It answers: saved." : "It does not answer: saved.";
    const nextQuery = next || isOpen(this.query.row) ? null : this.list.nextOpen();
    if (nextQuery) await this.open(nextQuery);
    else {
      this.spanNumber = Math.max(0, this.query.spans.findIndex((one) => isPlace(one, next ?? span)));
      await this.showSpan();
      if (!next && this.query.row.status === "open") said += " a accepts the question.";
    }
    this.say(this.list.rows.some(isOpen) ? said : `${said} Every query is reviewed.`);
  }

  chooseSpan(number) {
    if (this.draft || !this.query.spans[number]) return undefined;
    this.spanNumber = number;
    return this.showSpan();
  }

  // What is selected or was found, without white space around it.
  chosenRange() {
    const range = this.view.selected() ?? this.picked;
    return range && this.shown ? this.shown.text.trimmed(range) : null;
  }

  async adjust() {
    const span = this.query.spans[this.spanNumber];
    if (!span) return this.say("There is no passage to adjust: add one with n.", true);
    const chosen = this.chosenRange();
    if (!chosen) await this.showDocument(span.doc_id);
    this.begin(this.spanNumber, chosen ?? this.rangeOf(span));
  }

  // Where a span stands, or the nearest place that has its text.
  rangeOf(span) {
    if (span.doc_id !== this.shown?.id) return null;
    const { text } = this.shown;
    const range = { start: text.toUnits(span.start), end: text.toUnits(span.end) };
    return span.fault ? text.nearest(span.text, range.start) : range;
  }

  begin(number, range) {
    this.draft = { number, range };
    this.picked = null;
    this.say("");
    document.getSelection()?.removeAllRanges();
    this.drawMarks();
    this.view.reveal("draft");
  }

  cancel() {
    this.draft = null;
    this.draw();
    this.view.reveal("current");
    this.say("Left as it was.");
  }

  async save() {
    if (!this.draft?.range) return this.say("Select the text first.", true);
    const { text, id, digest } = this.shown;
    const start = text.toPoints(this.draft.range.start);
    const end = text.toPoints(this.draft.range.end);
    const old = this.query.spans[this.draft.number ?? -1];
    const span = { doc_id: id, start, end, digest, replaces: old ? placeOf(old) : null };
    this.take(await post("span", { id: this.query.row.id, span }));
    this.draft = null;
    this.spanNumber = Math.max(0, this.query.spans.findIndex((one) => isPlace(one, span)));
    this.draw();
    this.view.reveal("current");
    this.say(`Saved at ${start}–${end}.`);
  }

  async undo() {
    const told = await post("undo");
    if (told.nothing) return this.say("There is nothing to undo.");
    this.take(told);
    await this.open(told.row.id);
    this.say("Undone and saved.");
  }

  moveEnd({ key, shiftKey, altKey }) {
    if (!this.draft.range) return;
    const { text } = this.shown;
    let { start, end } = this.draft.range;
    if (shiftKey) start = key === "ArrowRight" ? text.startAfter(start, altKey) : text.startBefore(start, altKey);
    else end = key === "ArrowRight" ? text.endAfter(end, altKey) : text.endBefore(end, altKey);
    if (start < end) this.draft.range = { start, end };
    this.drawMarks();
    this.view.reveal("draft");
  }

  findNext(sought) {
    if (!sought.trim() || !this.shown) return;
    const range = this.shown.text.found(sought, (this.draft?.range ?? this.picked)?.end ?? 0);
    if (!range) return this.say("That is not in this document.", true);
    if (this.draft) this.draft.range = range;
    else this.picked = range;
    this.drawMarks();
    this.view.reveal(this.draft ? "draft" : "found");
    this.say(this.draft ? "Found: Esc, then Enter saves it." : "Found: Esc, then n adds it, or e adjusts the passage to it.");
  }

  // What the mouse, a finger or the caret has selected.
  select() {
    const range = this.shown && this.view.selected();
    const trimmed = range && this.shown.text.trimmed(range);
    if (!trimmed) return;
    if (this.draft) {
      this.draft.range = trimmed;
      document.getSelection().removeAllRanges();
      this.drawMarks();
    } else {
      this.say(`${this.lengthOf(trimmed)} selected: e adjusts the passage to them, n adds them as one.`);
    }
  }
}
