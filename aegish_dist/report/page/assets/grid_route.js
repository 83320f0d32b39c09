"use strict";

/** Filters, address and history of the grid; begins with the page. */

/** Joins filters, grid and dialog, and keeps the address at what they show. */
class GridPage {
  /**
   * @param {Element} root where to show the grid
   * @param {Verdicts} verdicts
   */
  constructor(root, verdicts) {
    this.verdicts = verdicts;
    this.view = readView(VIEW);
    this.address = "";
    this.opened = false;
    this.filters = makeFilters(verdicts, () => this._fromFilters(), () => this._clear());
    this.grid = new GridView(verdicts, (command, model) => this._open(command, model),
      (sort, model) => this._sortBy(sort, model));
    this.detail = new Detail(verdicts, (step) => this._step(step), () => this._close());
    this.count = make("p", { id: "grid-count", "aria-live": "polite" });
    root.append(this.filters, this.count, gridLegend(verdicts), this.grid.element,
      this.detail.element);
    window.addEventListener("hashchange", () => this._onAddress());
    this._show();
    this.follow(true);
  }

  /** Follows the address; going to an element of the page has taken the focus from the grid. */
  _onAddress() {
    this.follow(false);
    if (this.left) this.grid.focusOn(...this.left);
    this.left = null;
  }

  /** Shows what the address says, if it is a view of the grid; no address is that of all commands. */
  follow(isFirst) {
    if (window.location.hash === this.address) return;
    const view = readView(window.location.hash || VIEW);
    this.address = window.location.hash;
    if (view === null) {
      this.detail.close();
      this.view = { ...this.view, ...CLOSED };
      this.opened = false;
      return;
    }
    const isOpen = this.detail.isOpen;
    this.view = view;
    writeFilters(this.filters, view);
    this._show();
    this._showDetail();
    if (isFirst) this.filters.parentNode.parentNode.scrollIntoView();
    if (isOpen && !view.open) this.opened = false;
  }

  _show() {
    const { verdicts, view } = this;
    const shownView = viewAddress({ ...view, ...CLOSED });
    if (shownView === this.shownView) return; // else the focus would be lost
    this.shownView = shownView;
    this.chosen = chooseCommands(verdicts, view);
    const shown = this.chosen.length;
    const are = shown === 1 ? "is" : "are";
    this.count.textContent = shown === verdicts.count && shown !== 1
      ? `All ${inWords(shown)} are shown.`
      : `${shown.toLocaleString("en")} of ${inWords(verdicts.count)} ${are} shown.`;
    this.grid.show(this.chosen, { sort: view.sort, down: sortsDown(view),
      model: String(Math.max(0, verdicts.models.indexOf(view.of))) });
  }

  _showDetail() {
    const { view, verdicts } = this;
    const command = findCommand(verdicts, view.open, view.set);
    if (command === UNKNOWN) {
      this.detail.close();
      return;
    }
    const place = this.chosen.indexOf(command);
    this.detail.show(command, verdicts.models.indexOf(view.at), {
      before: place > 0, after: place >= 0 && place < this.chosen.length - 1,
      place, shown: this.chosen.length });
  }

  /** Goes to a view; `isStep` makes an entry of the history, to which Back returns. */
  _go(changes, isStep) {
    this.view = { ...this.view, ...changes };
    const address = viewAddress(this.view);
    if (isStep) window.location.hash = address;
    else window.location.replace(address);
    this.address = window.location.hash;
  }

  _fromFilters() {
    const fields = readFilters(this.filters);
    const isTyping = Object.entries(fields).every(([key, value]) =>
      key === "q" || value === this.view[key]);
    this._go(fields, !isTyping || !this.view.q);
    this._show();
  }

  _clear() {
    const kept = Object.fromEntries(NO_FILTERS.map((key) => [key, this.view[key]]));
    this._go({ ...readView(VIEW), ...kept }, true);
    writeFilters(this.filters, this.view);
    this._show();
    this.filters.elements.q.focus();
  }

  _sortBy(sort, of) {
    const { view } = this;
    const isSame = view.sort === sort && view.of === of;
    const turned = sortsDown(view) ? "up" : "down";
    this._go({ sort, of, order: isSame ? turned : "" }, true);
    writeFilters(this.filters, this.view);
    this._show();
  }

  _open(command, model) {
    this._go(this._addressOf(command, model), true);
    this.opened = true;
    this._showDetail();
  }

  _addressOf(command, model) {
    const { commands, names, models } = this.verdicts;
    const open = commands.id[command];
    const isAlone = commands.id.indexOf(open) === commands.id.lastIndexOf(open);
    return { open, set: isAlone ? "" : names.dataset[commands.dataset[command]],
      at: model === UNKNOWN ? "" : models[model] };
  }

  _step(step) {
    const place = this.chosen.indexOf(this.detail.command) + step;
    if (place < 0 || place >= this.chosen.length) return;
    this._go(this._addressOf(this.chosen[place], this.detail.model), false);
    this._showDetail();
  }

  _close() {
    const { command, model } = this.detail;
    if (this.view.open) {
      if (this.opened) {
        this.left = [command, model];
        window.history.back();
      } else this._go(CLOSED, false);
      this.view = { ...this.view, ...CLOSED };
    }
    this.opened = false;
    this.grid.focusOn(command, model);
  }
}

/** Returns a command by its id, and the name of its dataset where several have it; -1: none. */
function findCommand(verdicts, id, dataset) {
  if (!id) return UNKNOWN;
  const { commands, names } = verdicts;
  const place = names.dataset.indexOf(dataset);
  return commands.id.findIndex((each, command) =>
    each === id && (place === UNKNOWN || commands.dataset[command] === place));
}

/** Returns how many commands there are, in words. */
function inWords(count) {
  return `${count.toLocaleString("en")} ${count === 1 ? "command" : "commands"}`;
}

/** Unpacks the data and shows the grid, or says why there is none. */
async function startGrid() {
  const root = document.getElementById("grid-view");
  if (root === null) return;
  const state = document.getElementById("grid-state");
  if (typeof DecompressionStream === "undefined") {
    state.textContent = "This browser is too old to unpack the commands: it takes Chrome or Edge " +
      "111, Firefox 113, Safari 16.4 or a newer one.";
    return;
  }
  state.textContent = "Unpacking the commands\u2026";
  try {
    const page = new GridPage(root, new Verdicts(await unpack("grid-columns")));
    state.remove();
    root.dataset.ready = "true";
    return page;
  } catch {
    root.replaceChildren();
    state.textContent = "The commands in this file are damaged: write the report again.";
  }
}

startGrid();
