"use strict";

/**
 * Sorting every table by any of its columns, and choosing rows of some by words of their heading.
 *
 * The first click on a heading sorts numbers from the greatest and text from A, the second the other
 * way round, the third restores the order of the report. Undefined values are last either way.
 */

const UNDEFINED = "\u2013";
const NARROW = window.matchMedia("(max-width: 45rem)");
const collator = new Intl.Collator("en", { numeric: true });

/**
 * Reads what a cell is sorted by.
 *
 * @param {HTMLTableCellElement} cell
 * @returns {number|string|null} null where it is undefined
 */
function sortKey(cell) {
  if (cell.dataset.value !== undefined) return Number(cell.dataset.value);
  const shown = cell.textContent.trim();
  return shown.startsWith(UNDEFINED) ? null : shown; // beside it may stand how many were scored
}

/** Compares two sort keys, the lesser first; text follows numbers. */
function compareKeys(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return collator.compare(a, b);
}

/** The rows of a table with their order in the report. */
class SortableTable {
  /** @param {HTMLTableElement} table */
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    this.rows = Array.from(this.body.rows);
    this.headings = Array.from(table.tHead.rows[0].cells);
    this.headings.forEach((heading, column) => {
      const button = make("button", { type: "button", click: () => this.next(column) });
      button.append(...heading.childNodes);
      heading.append(button);
    });
  }

  /** Sorts by a column, the other way round if it is sorted by it, and a third time not at all. */
  next(column) {
    const now = this.headings[column].getAttribute("aria-sort");
    const numeric = this.rows.some((row) => row.cells[column].dataset.value !== undefined);
    const first = numeric ? "descending" : "ascending";
    const second = numeric ? "ascending" : "descending";
    this.sort(column, now === null ? first : now === first ? second : null);
  }

  /**
   * Sorts by a column.
   *
   * @param {number} column
   * @param {"ascending"|"descending"|null} direction null: as in the report
   */
  sort(column, direction) {
    for (const heading of this.headings) heading.removeAttribute("aria-sort");
    this.table.toggleAttribute("data-sorted", direction !== null);
    if (direction === null) return this.body.append(...this.rows);
    this.headings[column].setAttribute("aria-sort", direction);
    const sign = direction === "ascending" ? 1 : -1;
    const keyed = this.rows.map((row) => ({ row, key: sortKey(row.cells[column]) }));
    keyed.sort((a, b) => {
      if (a.key === null || b.key === null) return Number(a.key === null) - Number(b.key === null);
      return sign * compareKeys(a.key, b.key);
    });
    return this.body.append(...keyed.map((each) => each.row));
  }

  /** Gives the table other rows, in their order. */
  replace(rows) {
    this.rows = rows;
    this.body.replaceChildren(...rows);
    this.sort(0, null);
  }

  /** Makes the choice of a column for narrow screens, where cards have no headings. */
  choice() {
    const options = this.headings.map((heading, column) =>
      make("option", { value: column }, heading.textContent.replace("\n", " ")));
    const order = make("option", { value: "" }, "as in the report");
    const change = () => {
      this.sort(0, null);
      if (select.value !== "") this.next(Number(select.value));
    };
    const select = make("select", { change }, order, ...options);
    return make("label", { class: "sort" }, "Sort", select);
  }
}

/** Makes the field that shows only rows whose heading has all the words typed. */
function filterField(sortable) {
  const shown = make("span", { role: "status" });
  const texts = sortable.rows.map((row) => {
    const name = find("th", row);
    return `${name.title} ${name.textContent}`.toLowerCase();
  });
  const input = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const wanted = texts.map((text) => words.every((word) => text.includes(word)));
    sortable.rows.forEach((row, place) => { row.hidden = !wanted[place]; });
    const count = wanted.filter(Boolean).length;
    fill(shown, words.length ? `${count} of ${texts.length} models` : `${texts.length} models`);
  };
  const field = make("input", { type: "search", autocomplete: "off", spellcheck: "false",
    placeholder: "part of a name", input });
  input();
  return [make("label", {}, "Filter models", field), shown];
}

/** Tells a region that scrolls whether there is more to its right, which fades out there. */
function markMore(region) {
  const mark = () => region.toggleAttribute("data-more",
    region.scrollLeft + region.clientWidth < region.scrollWidth - 1);
  region.addEventListener("scroll", mark, { passive: true });
  new ResizeObserver(mark).observe(region);
}

/**
 * Gives a table its buttons, and the row of fields above it.
 *
 * @param {HTMLTableElement} table
 * @returns {SortableTable}
 */
function furnishTable(table) {
  const sortable = new SortableTable(table);
  const tools = make("div", { class: "tools" });
  table.closest(".scroll").before(tools);
  if ("filter" in table.dataset) tools.append(...filterField(sortable));
  const narrow = () => {
    if (NARROW.matches && !find(".sort", tools)) tools.append(sortable.choice());
  };
  if (table.matches(".board")) NARROW.addEventListener("change", narrow);
  if (table.matches(".board")) narrow();
  return sortable;
}

const own = find("#pairs") ? find("table", find("#pairs").closest("section")) : null;
for (const table of findAll(".scroll > table")) {
  if (table !== own && table.tBodies[0].rows.length > 1) furnishTable(table);
}
findAll(".scroll, .drawing").forEach(markMore);
