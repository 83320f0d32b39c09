"use strict";

/**
 * The grid of models and commands: only the rows in view are elements. See `grid.py` for the ids
 * and data attributes.
 */

const LETTERS = { ALLOW: "A", WARN: "W", BLOCK: "B", TIMEOUT_ERROR: "T", FORMAT_ERROR: "F",
  API_ERROR: "E", CONTENT_FILTER: "C", TOKEN_LIMIT: "L", PARSE_ERROR: "P" };
const ACTIONS = ["ALLOW", "WARN", "BLOCK"];
const MARKS = { yes: "\u2713", no: "\u2717", some: "", none: "\u2013", absent: "" };
const WORDS = { yes: "correct", no: "wrong", some: "partly correct", none: "unscored" };
const SPARE_ROWS = 2;
const MOST_WIDE = 6;  // models whose names stand across; those of more stand upright, on one line

/** The grid itself: rows, keyboard, scrolling. */
class GridView {
  /**
   * @param {Verdicts} verdicts
   * @param {function(number, number): void} open called with command and model, -1 for none
   * @param {function(string, string): void} sort called with a key of `SORTS` and a model
   */
  constructor(verdicts, open, sort) {
    Object.assign(this, { verdicts, open, sort });
    this.chosen = [];
    this.rows = new Map();
    this.active = { row: 0, column: 0 };
    this.narrow = window.matchMedia("(max-width: 45rem)");
    this.head = this._makeHead();
    this.body = make("div", { role: "rowgroup", class: "grid-body" });
    this.grid = make("div", { id: "grid", role: "grid", "aria-label": "Commands by model",
      "aria-colcount": verdicts.models.length + 1, class: "grid",
      keydown: (event) => this._onKey(event), click: (event) => this._onClick(event),
      focusin: (event) => this._onFocus(event) },
      make("div", { role: "rowgroup", class: "grid-head" }, this.head), this.body);
    this.element = make("div", { id: "grid-box", class: "grid-box" }, this.grid);
    markMore(this.element);
    this.element.dataset.wide = String(verdicts.models.length <= MOST_WIDE);
    this.element.style.setProperty("--columns", verdicts.models.length);
    this.element.addEventListener("scroll", () => this._draw(), { passive: true });
    new ResizeObserver(() => this._resize()).observe(this.element);
  }

  /** Shows commands in an order. */
  show(chosen, sorted) {
    this.chosen = chosen;
    this.active.row = Math.min(this.active.row, chosen.length - 1);
    this.grid.setAttribute("aria-rowcount", chosen.length + 1);
    for (const cell of this.head.children) {
      const key = cell.dataset.model === undefined ? "command" : "outcome";
      const isSorted = sorted.sort === key && (key === "command" || cell.dataset.model === sorted.model);
      if (isSorted) cell.setAttribute("aria-sort", sorted.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    for (const [place, row] of this.rows) {
      if (place < chosen.length) this._place(row, place);
      else {
        row.remove();
        this.rows.delete(place);
      }
    }
    this._resize();
    for (const cell of findAll("[tabindex='0']", this.grid)) cell.tabIndex = -1;
    this._cell(this.active.row, this.active.column).tabIndex = 0; // of the head if no row is left
  }

  /** Puts the focus on the cell of a command and a model; on the command when the model is -1. */
  focusOn(command, model) {
    const row = this.chosen.indexOf(command);
    if (row >= 0) this._go(row, model + 1);
  }

  _makeHead() {
    const { models, short } = this.verdicts;
    const named = (name) => (models.length <= MOST_WIDE ? breakable(name) : [name]);
    const cell = (column, name, properties) => make("div", { role: "columnheader", tabindex: -1,
      "aria-colindex": column, ...properties }, make("span", {}, ...named(name)));
    return make("div", { role: "row", class: "grid-row", "aria-rowindex": 1 },
      cell(1, "Command", { class: "grid-command" }),
      ...models.map((model, place) =>
        cell(place + 2, short[place], { class: "grid-cell", "data-model": place, title: model })));
  }

  _resize() {
    this.rowHeight = this.narrow.matches ? 58 : 32;
    this.body.style.height = `${this.chosen.length * this.rowHeight}px`;
    for (const [place, row] of this.rows) row.style.top = `${place * this.rowHeight}px`;
    this._draw();
  }

  /** Makes elements of the rows in view, and drops the others. */
  _draw() {
    const { scrollTop, clientHeight } = this.element;
    const first = Math.max(0, Math.floor(scrollTop / this.rowHeight) - SPARE_ROWS);
    const last = Math.min(this.chosen.length - 1,
      Math.ceil((scrollTop + clientHeight) / this.rowHeight) + SPARE_ROWS);
    const wanted = new Set(this.active.row >= 0 ? [this.active.row] : []);
    for (let place = first; place <= last; place += 1) wanted.add(place);
    const free = [];
    for (const [place, row] of this.rows) {
      if (wanted.has(place)) continue;
      this.rows.delete(place);
      free.push(row);
    }
    for (const place of wanted) {
      if (!this.rows.has(place)) this._place(free.pop() || this._makeRow(), place);
    }
    for (const row of free) row.remove();
    this._order();
  }

  /** Puts rows in their order; that of the active cell stays in place, as it may have the focus. */
  _order() {
    const places = Array.from(this.rows.keys()).sort((a, b) => a - b);
    if (places.every((place, index) => this.body.children[index] === this.rows.get(place))) return;
    const kept = this.rows.get(this.active.row);
    for (const place of places) {
      const row = this.rows.get(place);
      if (row !== kept) this.body.insertBefore(row, kept && place < this.active.row ? kept : null);
    }
  }

  _makeRow() {
    const cells = this.verdicts.models.map((_, model) => make("div", { role: "gridcell",
      tabindex: -1, class: "grid-cell", "aria-colindex": model + 2, "data-model": model }));
    return make("div", { role: "row", class: "grid-row" },
      make("div", { role: "rowheader", tabindex: -1, class: "grid-command", "aria-colindex": 1 }),
      ...cells);
  }

  _place(row, place) {
    const { verdicts, active } = this;
    const command = this.chosen[place];
    row.style.top = `${place * this.rowHeight}px`;
    row.dataset.command = verdicts.commands.id[command];
    row.setAttribute("aria-rowindex", place + 2);
    const [header, ...cells] = row.children;
    header.textContent = verdicts.commands.text[command].replaceAll("\n", " \u21b5 ");
    header.dataset.target = verdicts.commands.malicious[command] ? "malicious" : "harmless";
    cells.forEach((cell, model) => this._fill(cell, model, command));
    Array.from(row.children).forEach((cell, column) => {
      cell.tabIndex = active.row === place && active.column === column ? 0 : -1;
    });
    if (row.parentNode === null) this.body.append(row);
    this.rows.set(place, row);
  }

  _fill(cell, model, command) {
    const shown = cellContent(this.verdicts, model, command);
    cell.textContent = shown.text;
    cell.dataset.right = shown.right;
    cell.setAttribute("aria-label", `${this.verdicts.models[model]}: ${shown.words}`);
  }

  _cell(row, column) {
    const element = row < 0 ? this.head : this.rows.get(row);
    return element && element.children[column];
  }

  _go(row, column) {
    const { active } = this;
    const before = this._cell(active.row, active.column);
    if (before) before.tabIndex = -1;
    active.row = Math.max(-1, Math.min(row, this.chosen.length - 1));
    active.column = Math.max(0, Math.min(column, this.verdicts.models.length));
    this._draw();
    const cell = this._cell(active.row, active.column);
    cell.tabIndex = 0;
    cell.focus({ preventScroll: true });
    cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  _onKey(event) {
    const { row, column } = this.active;
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.rowHeight) - 3);
    const far = event.ctrlKey || event.metaKey;
    const moves = { ArrowUp: [row - 1, column], ArrowDown: [row + 1, column],
      ArrowLeft: [row, column - 1], ArrowRight: [row, column + 1],
      PageUp: [Math.max(0, row - page), column], PageDown: [row + page, column],
      Home: [far ? 0 : row, 0], End: [far ? Infinity : row, Infinity] };
    if (Object.hasOwn(moves, event.key)) this._go(...moves[event.key]);
    else if (event.key === "Enter" || event.key === " ") this._enter(event.target);
    else return;
    event.preventDefault();
  }

  _onClick(event) {
    const cell = event.target.closest("[role=gridcell], [role=rowheader], [role=columnheader]");
    if (cell) this._enter(cell);
  }

  _onFocus(event) {
    const cell = event.target.closest("[aria-colindex]");
    if (!cell) return;
    const before = this._cell(this.active.row, this.active.column);
    if (before) before.tabIndex = -1;
    this.active.row = Number(cell.parentNode.getAttribute("aria-rowindex")) - 2;
    this.active.column = Number(cell.getAttribute("aria-colindex")) - 1;
    cell.tabIndex = 0;
  }

  _enter(cell) {
    const { model } = cell.dataset;
    if (cell.getAttribute("role") === "columnheader") {
      if (model === undefined) this.sort("command", "");
      else this.sort("outcome", this.verdicts.models[model]);
      return;
    }
    const place = Number(cell.parentNode.getAttribute("aria-rowindex")) - 2;
    this.open(this.chosen[place], model === undefined ? UNKNOWN : Number(model));
  }
}

/**
 * Returns what a cell shows: text, whether it is right, and words for those who do not see it.
 *
 * @returns {{text: string, right: string, words: string}}
 */
function cellContent(verdicts, model, command) {
  const label = verdicts.mainLabel(model, command);
  if (label === UNKNOWN) {
    const isAsked = verdicts.isAsked(model, command);
    return { text: isAsked ? "\u00b7" : "", right: "absent",
      words: isAsked ? "no verdict" : "not asked about this data set" };
  }
  const right = verdicts.right[model * verdicts.count + command];
  const scored = verdicts.scored[model * verdicts.count + command];
  const kind = rightKind(right, scored);
  const name = worded(verdicts.labels[label]);
  const letter = LETTERS[verdicts.labels[label]] || name[0];
  if (verdicts.epochs === 1) {
    return { text: `${letter}\u2009${MARKS[kind]}`, right: kind, words: `${name}, ${WORDS[kind]}` };
  }
  const share = scored ? `${right}/${scored}` : MARKS.none;
  const said = epochLabels(verdicts, model, command).join(", ");
  const words = scored ? `${said}: ${right} of ${scored} correct` : `${said}: unscored`;
  return { text: `${letter}\u2009${share}`, right: kind, words };
}

/** Returns what a model said about a command epoch by epoch, in a word each. */
function epochLabels(verdicts, model, command) {
  const first = verdicts.cell(model, command, 0);
  return Array.from({ length: verdicts.epochs }, (_, epoch) =>
    worded(verdicts.labels[verdicts.cells.label[first + epoch]] || "no verdict"));
}

/** Writes an outcome or a reason as the tables do: `TIMEOUT_ERROR` and `deadline` are `timeout`. */
function worded(name) {
  if (ACTIONS.includes(name)) return name;
  return name === "deadline" ? "timeout"
    : name.toLowerCase().replace(/_error$/, "").replaceAll("_", " ");
}

/** Returns `yes`, `no`, `some` or `none`, which is unscored. */
function rightKind(right, scored) {
  if (scored === 0) return "none";
  if (right === scored) return "yes";
  return right === 0 ? "no" : "some";
}
