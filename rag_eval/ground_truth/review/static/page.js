// The page: what keys, buttons and selections do.

import { DocumentView, SheetView } from "./document_view.js";
import { DRAFT_KEYS, KEYS, actionOf, listed } from "./keys.js";
import { QueryList } from "./query_list.js";
import { QueryView } from "./query_view.js";
import { Review } from "./review.js";
import { getRevision, getState } from "./server.js";

const find = (id) => document.getElementById(id);
const view = new DocumentView(find("document"));
const list = new QueryList(find("list"), find("list-empty"), (id) => review.run(() => review.open(id)));
const queryView = new QueryView(document, (number) => review.run(() => review.chooseSpan(number)));
const sheet = new SheetView(find("sheet"), find("sheet-button"), find("sheet-name"));
const review = new Review(list, queryView, view, sheet);

const ACTIONS = {
  next: () => review.step(1),
  previous: () => review.step(-1),
  accept: () => review.decide("accepted"),
  reject: () => review.decide("rejected"),
  adjust: () => review.adjust(),
  nothing: () => review.decide("unanswerable"),
  answers: () => review.judge("accepted"),
  remove: () => review.judge("rejected"),
  add: () => review.begin(null, review.chosenRange()),
  undo: () => review.undo(),
  nextSpan: () => review.chooseSpan(review.spanNumber + 1),
  previousSpan: () => review.chooseSpan(review.spanNumber - 1),
  save: () => review.save(),
  cancel: () => review.cancel(),
  moveEnd: (event) => review.moveEnd(event),
  find: () => find("find").select(),
  chooseDocument: () => find("document-choice").focus(),
  chooseFilter: () => find("filter").focus(),
  pageDown: () => view.scrollBy(1),
  pageUp: () => view.scrollBy(-1),
  page: () => sheet.toggle(),
  help: () => find("help").showModal(),
};
// While a place is being adjusted a decision would leave it half done.
const WHILE_DRAFTING = ["save", "cancel", "page"];

document.addEventListener("keydown", (event) => {
  if (find("help").open) return;
  const field = event.target.closest("input, select");
  if (field) {
    if (event.key === "Escape") field.blur();
    if (event.key === "Enter" && field.id === "find") review.run(() => review.findNext(field.value));
    return;
  }
  const isPressed = event.target.closest("button, a") && (event.key === "Enter" || event.key === " ");
  const action = isPressed ? null : actionOf(event, review.draft !== null);
  if (!action) return;
  event.preventDefault();
  if (action === "help" || review.query) review.run(() => ACTIONS[action](event));
});

document.addEventListener("click", (event) => {
  const action = event.target.closest("[data-action]")?.dataset.action;
  if (!action || !review.query) return;
  if (review.draft && !WHILE_DRAFTING.includes(action)) review.say("Save or cancel the new place first.", true);
  else review.run(() => ACTIONS[action](event));
});

// A press on a button must not take the selection away before the button can use it.
document.addEventListener("pointerdown", (event) => {
  if (event.target.closest("[data-action]")) event.preventDefault();
});

let settling;
const settle = (milliseconds) => {
  clearTimeout(settling);
  settling = setTimeout(() => review.select(), milliseconds);
};
// Fingers and carets end a selection without a sign, so it counts when it has not moved for a moment.
let isPointing = false;
document.addEventListener("pointerdown", () => (isPointing = true));
document.addEventListener("pointerup", () => {
  isPointing = false;
  settle(0);
});
document.addEventListener("pointercancel", () => (isPointing = false));
document.addEventListener("selectionchange", () => {
  if (!isPointing) settle(400);
});

find("filter").addEventListener("change", (event) => {
  list.sift(event.target.value);
  event.target.blur();
});
find("document-choice").addEventListener("change", (event) => {
  const { value } = event.target;
  event.target.blur();
  review.run(() => review.chooseDocument(value));
});
find("help-button").addEventListener("click", () => find("help").showModal());
find("list-button").addEventListener("click", () => {
  const isOpen = document.body.classList.toggle("listing");
  find("list-button").setAttribute("aria-expanded", String(isOpen));
});
// What others decide is shown soon after.
const look = () =>
  review.run(async () => {
    if (review.query && (await getRevision()) !== review.revision) await review.refresh();
  });
window.addEventListener("focus", look);
setInterval(() => {
  if (!document.hidden) look();
}, 5000);

const title = document.createElement("h3");
title.textContent = "While adjusting";
find("help-keys").replaceChildren(listed(KEYS), title, listed(DRAFT_KEYS));
review.run(async () => review.start(await getState()));
