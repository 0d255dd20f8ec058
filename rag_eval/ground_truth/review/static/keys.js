// Which key does what; the page lists them from here.

export const KEYS = [
  { keys: ["j", "ArrowDown"], shown: ["j", "↓"], action: "next", label: "next query" },
  { keys: ["k", "ArrowUp"], shown: ["k", "↑"], action: "previous", label: "previous query" },
  { keys: ["a"], shown: ["a"], action: "accept", label: "accept the question" },
  { keys: ["r"], shown: ["r"], action: "reject", label: "reject the question" },
  { keys: ["0"], shown: ["0"], action: "nothing", label: "nothing answers it" },
  { keys: ["l", "ArrowRight"], shown: ["l", "→"], action: "nextSpan", label: "next passage" },
  { keys: ["h", "ArrowLeft"], shown: ["h", "←"], action: "previousSpan", label: "previous passage" },
  { keys: ["y"], shown: ["y"], action: "answers", label: "this passage answers" },
  { keys: ["x"], shown: ["x"], action: "remove", label: "it does not" },
  { keys: ["e"], shown: ["e"], action: "adjust", label: "adjust it" },
  { keys: ["n"], shown: ["n"], action: "add", label: "add a passage" },
  { keys: ["u"], shown: ["u"], action: "undo", label: "undo" },
  { keys: ["f"], shown: ["f"], action: "chooseFilter", label: "choose what is listed" },
  { keys: ["/"], shown: ["/"], action: "find", label: "find in the document" },
  { keys: ["d"], shown: ["d"], action: "chooseDocument", label: "choose the document" },
  { keys: [" ", "PageDown"], shown: ["Space"], action: "pageDown", label: "scroll the document" },
  { keys: ["PageUp"], shown: ["PgUp"], action: "pageUp", label: "scroll back" },
  { keys: ["p"], shown: ["p"], action: "page", label: "show or hide the page" },
  { keys: ["?"], shown: ["?"], action: "help", label: "help" },
];

export const DRAFT_KEYS = [
  { keys: ["Enter"], shown: ["Enter"], action: "save", label: "save the new place" },
  { keys: ["Escape"], shown: ["Esc"], action: "cancel", label: "leave it as it was" },
  { keys: ["ArrowLeft", "ArrowRight"], shown: ["←", "→"], action: "moveEnd", label: "move the end by a word" },
  { keys: [], shown: ["Shift", "← →"], label: "move the start" },
  { keys: [], shown: ["Alt", "← →"], label: "by a character" },
  { keys: ["/"], shown: ["/"], action: "find", label: "find in the document" },
  { keys: ["d"], shown: ["d"], action: "chooseDocument", label: "choose the document" },
  { keys: [" ", "PageDown"], shown: ["Space"], action: "pageDown", label: "scroll the document" },
  { keys: ["PageUp"], shown: ["PgUp"], action: "pageUp", label: "scroll back" },
  { keys: ["?"], shown: ["?"], action: "help", label: "help" },
];

export function actionOf(event, isDrafting) {
  if (event.ctrlKey || event.metaKey || event.isComposing) return null;
  if (event.altKey && !(isDrafting && event.key.startsWith("Arrow"))) return null;
  return (isDrafting ? DRAFT_KEYS : KEYS).find((one) => one.keys.includes(event.key))?.action ?? null;
}

export function listed(keys) {
  const list = document.createElement("dl");
  for (const { shown, label } of keys) {
    const pair = document.createElement("div");
    const term = document.createElement("dt");
    for (const key of shown) {
      const cap = document.createElement("kbd");
      cap.textContent = key;
      term.append(cap);
    }
    const meaning = document.createElement("dd");
    meaning.textContent = label;
    pair.append(term, meaning);
    list.append(pair);
  }
  return list;
}
