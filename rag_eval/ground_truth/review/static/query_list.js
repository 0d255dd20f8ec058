// The list of queries at the side.

export const ICONS = { open: "○", accepted: "✓", rejected: "✕" };
const FILTERS = {
  faulty: (row) => row.faulty,
  offered: (row) => row.offered > 0,
};
// Whether there is something to decide on a query.
export const isOpen = (row) => row.status === "open" || (row.offered > 0 && row.status !== "rejected");

export class QueryList {
  constructor(element, empty, onChoose) {
    this.element = element;
    this.empty = empty;
    this.items = new Map();
    this.rows = [];
    this.filter = "all";
    this.current = null;
    element.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (button) onChoose(button.dataset.id);
    });
  }

  fill(rows) {
    this.rows = rows;
    this.items.clear();
    this.element.replaceChildren(
      ...rows.map((row) => {
        const item = document.createElement("li");
        const button = document.createElement("button");
        button.type = "button";
        button.dataset.id = row.id;
        const icon = document.createElement("span");
        icon.className = "icon";
        const text = document.createElement("span");
        text.className = "text";
        text.dir = "auto";
        text.textContent = row.text;
        const count = document.createElement("span");
        count.className = "count";
        button.append(icon, text, count);
        item.append(button);
        this.items.set(row.id, item);
        this.draw(row);
        return item;
      }),
    );
    this.sift();
  }

  update(row) {
    const number = this.rows.findIndex((one) => one.id === row.id);
    if (number >= 0) this.rows[number] = row;
    this.draw(row);
    this.sift();
  }

  draw(row) {
    const item = this.items.get(row.id);
    item.className = row.faulty && row.status === "open" ? "faulty" : row.status;
    const icon = item.querySelector(".icon");
    icon.textContent = row.faulty && row.status === "open" ? "!" : ICONS[row.status];
    icon.setAttribute("role", "img");
    icon.setAttribute("aria-label", row.faulty ? `${row.status}, with a fault` : row.status);
    item.querySelector(".count").textContent = row.offered ? `${row.offered} to judge` : "";
  }

  sift(filter = this.filter) {
    this.filter = filter;
    let count = 0;
    for (const row of this.rows) {
      const fits = filter === "all" || row.status === filter || FILTERS[filter]?.(row);
      // The one being looked at stays until another is chosen.
      const item = this.items.get(row.id);
      const isHidden = !fits && row.id !== this.current;
      if (item.hidden !== isHidden) item.hidden = isHidden;
      if (fits) count++;
    }
    this.empty.hidden = count > 0;
  }

  choose(id) {
    this.items.get(this.current)?.firstChild.removeAttribute("aria-current");
    this.current = id;
    this.sift();
    const button = this.items.get(id)?.firstChild;
    button?.setAttribute("aria-current", "true");
    button?.scrollIntoView({ block: "nearest" });
  }

  get visible() {
    return this.rows.filter((row) => !this.items.get(row.id).hidden);
  }

  // The query so many steps away among those shown; null at the ends.
  away(steps) {
    const visible = this.visible;
    const number = visible.findIndex((row) => row.id === this.current) + steps;
    return visible[number]?.id ?? null;
  }

  // The next query that is not decided, after the current one and then from the top; null when all are.
  nextOpen() {
    const visible = this.visible;
    const number = visible.findIndex((row) => row.id === this.current);
    const order = [...visible.slice(number + 1), ...visible.slice(0, number)];
    return order.find(isOpen)?.id ?? null;
  }
}
