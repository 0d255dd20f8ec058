// The document on the page: blocks of text that the browser lays out when they come into view, with marks in them; and
// beside it the pages that the passage is on, where the document has pages.

export class DocumentView {
  constructor(element) {
    this.element = element;
    this.shown = null;
    this.drawn = [];
  }

  show(text) {
    if (this.shown === text) return;
    this.shown = text;
    this.drawn = text.blocks.map(() => null);
    this.element.replaceChildren(
      ...text.blocks.map(() => {
        const block = document.createElement("div");
        block.className = "block";
        block.dir = "auto";
        return block;
      }),
    );
    this.element.scrollTop = 0;
    this.mark([]);
  }

  // Marks are {start, end, kind}; where they overlap the later one shows. Only blocks that change are drawn again.
  mark(marks) {
    this.shown.blocks.forEach((block, number) => {
      const inside = marks.filter((mark) => mark.start < block.end && mark.end > block.start);
      const drawing = JSON.stringify(inside);
      if (this.drawn[number] === drawing) return;
      this.drawn[number] = drawing;
      this.element.children[number].replaceChildren(...this.pieces(block, inside));
    });
  }

  pieces(block, marks) {
    const within = (unit) => Math.min(Math.max(unit, block.start), block.end);
    const borders = new Set([block.start, block.end]);
    for (const mark of marks) borders.add(within(mark.start)).add(within(mark.end));
    const places = [...borders].sort((one, other) => one - other);
    return places.slice(1).map((end, index) => {
      const start = places[index];
      const text = document.createTextNode(this.shown.text.slice(start, end));
      const mark = marks.findLast((one) => one.start <= start && one.end >= end);
      if (!mark) return text;
      const element = document.createElement("mark");
      element.className = mark.kind;
      element.append(text);
      return element;
    });
  }

  // Scroll so that the first mark of a kind stands in the upper half.
  reveal(kind) {
    const target = this.element.querySelector(`mark.${kind}`);
    if (!target) return;
    const scroll = () => {
      const box = this.element.getBoundingClientRect();
      const place = target.getBoundingClientRect();
      if (place.top >= box.top + 8 && place.bottom <= box.bottom - 8) return;
      this.element.scrollTop += place.top - box.top - Math.min(box.height / 3, 160);
    };
    scroll();
    // Blocks that came into view now have their true height, which can move the target once more.
    requestAnimationFrame(() => {
      scroll();
      requestAnimationFrame(scroll);
    });
  }

  scrollBy(pages) {
    this.element.scrollBy({ top: pages * this.element.clientHeight * 0.85 });
  }

  // The selected stretch of the document in units; null when nothing of it is selected.
  selected() {
    const selection = document.getSelection();
    if (!this.shown || !selection || selection.isCollapsed || selection.rangeCount === 0) return null;
    const range = selection.getRangeAt(0);
    if (!range.intersectsNode(this.element)) return null;
    const start = this.unitAt(range.startContainer, range.startOffset);
    const end = this.unitAt(range.endContainer, range.endOffset);
    return start < end ? { start, end } : null;
  }

  unitAt(node, offset) {
    const before = document.createRange();
    before.selectNodeContents(this.element);
    if (before.comparePoint(node, offset) < 0) return 0;
    if (before.comparePoint(node, offset) > 0) return this.shown.text.length;
    if (node === this.element) {
      return offset < this.shown.blocks.length ? this.shown.blocks[offset].start : this.shown.text.length;
    }
    const element = node.nodeType === Node.ELEMENT_NODE ? node : node.parentElement;
    const block = element.closest(".block");
    before.setStart(block, 0);
    before.setEnd(node, offset);
    const number = Array.prototype.indexOf.call(this.element.children, block);
    return this.shown.whole(this.shown.blocks[number].start + before.toString().length);
  }
}

const MOST_PAGES = 3;

export class SheetView {
  constructor(element, button, name) {
    this.element = element;
    this.button = button;
    this.name = name;
    this.isOn = matchMedia("(min-width: 761px)").matches;
    this.drawn = null;
    this.papers = new Map();
  }

  toggle() {
    this.isOn = !this.isOn;
    this.settle();
    if (this.isOn) this.reveal();
  }

  settle() {
    const isThere = this.papers.size > 0;
    this.button.hidden = !isThere;
    this.button.setAttribute("aria-pressed", String(this.isOn));
    this.element.hidden = !(isThere && this.isOn);
  }

  // Show the pages of the current passage, {span, kind} of all, with boxes on those that are on them.
  show(shown, passages) {
    const current = passages.find(({ kind }) => kind === "current");
    if (current || this.drawn?.shown !== shown) this.lay(shown, current?.span);
    for (const [page, paper] of this.papers) {
      const boxes = passages.flatMap(({ span, kind }) =>
        span.boxes.filter((one) => one[0] === page).map((one) => boxOf(one, kind)),
      );
      paper.replaceChildren(paper.firstChild, ...boxes);
    }
    this.settle();
    this.reveal();
  }

  lay(shown, span) {
    const pages = [...new Set(span?.boxes.map(([page]) => page))].slice(0, MOST_PAGES);
    const drawn = { shown, pages: pages.join() };
    if (this.drawn?.shown === shown && this.drawn.pages === drawn.pages) return;
    this.drawn = drawn;
    this.name.textContent = span?.place ?? "";
    this.papers = new Map(pages.map((page) => [page, this.paper(shown.id, page)]));
    this.element.replaceChildren(...this.papers.values());
  }

  paper(id, page) {
    const paper = document.createElement("div");
    const picture = document.createElement("img");
    paper.className = "paper";
    picture.alt = `Page ${page} of ${id}`;
    picture.addEventListener("load", () => this.reveal());
    picture.addEventListener("error", () => {
      // What cannot be drawn is told by the text alone.
      this.papers.delete(page);
      paper.remove();
      this.settle();
    });
    picture.src = `/api/picture?${new URLSearchParams({ id, page })}`;
    paper.append(picture);
    return paper;
  }

  reveal() {
    const box = this.element.querySelector("i.current")?.getBoundingClientRect();
    const frame = this.element.getBoundingClientRect();
    if (box && (box.top < frame.top || box.bottom > frame.bottom)) {
      this.element.scrollTop += box.top - frame.top - frame.height / 3;
    }
  }
}

function boxOf([, left, top, right, bottom], kind) {
  const box = document.createElement("i");
  box.className = kind;
  const shares = { left, top, width: right - left, height: bottom - top };
  for (const [side, share] of Object.entries(shares)) box.style[side] = `${100 * share}%`;
  return box;
}
