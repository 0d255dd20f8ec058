// The list of questions. Only the visible rows are in the page, however many questions there are.

const ROW_HEIGHT = 76;

/** A list box of many rows; arrow keys open the next one. */
class QuestionList {
  constructor(box, opened) {
    this.box = box;
    this.opened = opened;
    this.questions = [];
    this.active = -1;
    this.rows = make("div", { className: "rows" });
    box.replaceChildren(this.rows);
    // Kept from events: reading them from the box after every change would force a layout each time.
    this.top = 0;
    this.height = box.clientHeight;
    box.addEventListener("scroll", () => this.scrolled());
    box.addEventListener("keydown", (event) => this.moved(event));
    box.addEventListener("click", (event) => this.clicked(event));
    new ResizeObserver(() => this.resized()).observe(box);
  }

  scrolled() {
    this.top = this.box.scrollTop;
    this.draw();
  }

  resized() {
    this.height = this.box.clientHeight;
    this.draw();
  }

  scrollTo(top) {
    if (top !== this.top) {
      this.box.scrollTop = top;
      this.scrolled();
    }
  }

  /** Show questions. `values` returns the scores of a question on each side, `full` is the score of a full bar, `written`
   * formats a score. */
  show(questions, values, full, written, open) {
    const same = questions.length === this.questions.length && questions.every((one, i) => one === this.questions[i]);
    this.questions = questions;
    this.values = values;
    this.full = full;
    this.written = written;
    this.active = questions.indexOf(open);
    if (!same) {
      this.rows.style.height = `${questions.length * ROW_HEIGHT}px`;
      this.scrollTo(0);
    }
    this.mark(open);
  }

  /** Mark a question as the open one. */
  mark(question) {
    this.active = this.questions.indexOf(question);
    this.draw();
  }

  /** Scroll to the open question. */
  reveal() {
    const top = this.active * ROW_HEIGHT;
    if (this.active >= 0 && (top < this.top || top + ROW_HEIGHT > this.top + this.height)) {
      this.scrollTo(Math.max(0, top - this.height / 2 + ROW_HEIGHT / 2));
    }
  }

  /** Open the question that is so many rows further. */
  step(rows) {
    const place = Math.min(this.questions.length - 1, Math.max(0, this.active + rows));
    if (place >= 0 && place !== this.active) {
      this.opened(this.questions[place]);
    }
  }

  moved(event) {
    const page = Math.max(1, Math.floor(this.height / ROW_HEIGHT) - 1);
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in steps) {
      event.preventDefault();
      this.step(steps[event.key]);
    }
  }

  clicked(event) {
    const row = event.target.closest("[role=option]");
    if (row) {
      this.opened(Number(row.dataset.question));
    }
  }

  draw() {
    const first = Math.max(0, Math.floor(this.top / ROW_HEIGHT) - 4);
    const last = Math.min(this.questions.length, first + Math.ceil(this.height / ROW_HEIGHT) + 9);
    const shown = new Set(this.active >= 0 ? [this.active] : []);
    for (let place = first; place < last; place++) {
      shown.add(place);
    }
    this.rows.replaceChildren(...[...shown].sort((a, b) => a - b).map((place) => this.row(place)));
    this.box.setAttribute("aria-activedescendant", this.active >= 0 ? `question-${this.active}` : "");
  }

  row(place) {
    const number = this.questions[place];
    const { texts, unanswerable, documents, offsets } = places.queries;
    const titles = documents[number].map((document) => places.documents.titles[document]);
    const passages = offsets[number + 1] - offsets[number];
    const about = unanswerable[number] ? "" : `${titles.join(", ")} · ${many(passages, "passage")}`;
    const scores = unanswerable[number]
      ? [make("span", { className: "tag" }, "unanswerable")]
      : this.values(number).map((value, side) => scoreBar(value, side, this.full, this.written));
    const row = make(
      "div",
      { id: `question-${place}`, className: "row", dataset: { question: number } },
      make("bdi", { className: "asked" }, texts[number]),
      ...scores,
      make("bdi", { className: "about" }, about),
    );
    row.style.top = `${place * ROW_HEIGHT}px`;
    const aria = { role: "option", "aria-setsize": this.questions.length, "aria-posinset": place + 1 };
    for (const [name, value] of Object.entries({ ...aria, "aria-selected": place === this.active })) {
      row.setAttribute(name, value);
    }
    return row;
  }
}

function scoreBar(value, side, full, written) {
  const bar = make("i", { ariaHidden: "true" }, make("i"));
  bar.firstChild.style.width = `${100 * Math.min(1, Math.max(0, value / full))}%`;
  bar.firstChild.style.height = "4px";
  return make("span", { className: `score side-${side}`, title: "AB"[side] }, written(value), bar);
}
