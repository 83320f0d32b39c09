"use strict";

/** The dialog about one command: each model's verdicts about it, with all that is known of them. */

const SHOWN_CHARS = 1500;
const SHOWN_LINES = 30;

/** The dialog; its texts are unpacked when it is opened. */
class Detail {
  /**
   * @param {Verdicts} verdicts
   * @param {function(number): void} step called with -1 or 1 to show the command before or after
   * @param {function(): void} closed called when the user has closed it
   */
  constructor(verdicts, step, closed) {
    Object.assign(this, { verdicts, step, closed, command: UNKNOWN, model: UNKNOWN });
    this.blob = { number: UNKNOWN, content: null };
    this.content = make("div", { class: "detail-content" });
    const button = (id, text, click) => make("button", { type: "button", id, click }, text);
    this.before = button("grid-previous", "\u2190 Previous", () => step(-1));
    this.after = button("grid-next", "Next \u2192", () => step(1));
    this.place = make("span", { class: "detail-place", role: "status" });
    this.element = make("dialog", { id: "grid-detail", class: "detail",
      "aria-labelledby": "detail-title", close: () => this._onClose() },
      make("div", { class: "detail-bar" }, this.before, this.after, this.place,
        button("grid-close", "Close", () => this.element.close())),
      this.content);
  }

  /** Whether it is shown. */
  get isOpen() {
    return this.element.open;
  }

  /** Closes it without calling `closed`. */
  close() {
    this.command = UNKNOWN;
    if (this.element.open) this.element.close();
  }

  /**
   * Shows a command.
   *
   * @param {number} command
   * @param {number} model whose verdicts are shown first; -1: of all models
   * @param {{before: boolean, after: boolean, place: number, shown: number}} position in the grid
   */
  async show(command, model, position) {
    this.command = command;
    this.model = model;
    this.before.disabled = !position.before;
    this.after.disabled = !position.after;
    this.place.textContent = position.place < 0 ? "outside of the filters"
      : `${(position.place + 1).toLocaleString("en")} of ${position.shown.toLocaleString("en")}`;
    this.element.dataset.command = this.verdicts.commands.id[command];
    if (!this.element.open) this.element.showModal();
    const texts = await this._textsOf(command);
    if (this.command !== command) return;
    fill(this.content, ...this._about(command), ...this._models(command, model, texts));
    this.element.scrollTop = 0;
    const shown = find("details[open] summary", this.content);
    if (shown !== null && model !== UNKNOWN) shown.scrollIntoView({ block: "nearest" });
    this.element.dataset.shown = this.verdicts.commands.id[command];
  }

  _onClose() {
    if (this.command !== UNKNOWN) this.closed();
    this.command = UNKNOWN;
  }

  /** Returns what gives the texts of a verdict of a command: by name, with `attempts`. */
  async _textsOf(command) {
    const { blobs } = this.verdicts;
    if (!blobs.length) return { note: "This file holds no completions and no other texts.", of: null };
    const number = blobs.findLastIndex((first) => first <= command);
    try {
      if (this.blob.number !== number) {
        this.blob = { number, content: await unpack(`grid-texts-${number}`) };
      }
    } catch {
      return { note: "The texts of this command are damaged: write the report again.", of: null };
    }
    const { content } = this.blob;
    if (content === null) return { note: "The texts of this command are not in this file.", of: null };
    return { note: "", of: textReader(this.verdicts, content, command - blobs[number]) };
  }

  _about(command) {
    const { commands, names } = this.verdicts;
    const named = (kind) => names[kind][commands[kind][command]];
    const link = make("input", { id: "grid-link", readonly: true, "aria-label": "Link to this command",
      value: window.location.href, focus: (event) => event.target.select() });
    return [
      make("h3", { id: "detail-title" }, "Command"),
      make("pre", { class: "detail-text" }, commands.text[command]),
      factList([["Target", commands.malicious[command] ? "malicious" : "harmless"],
        ["Left out", commands.excluded[command] ? "by the overlay: its verdicts are unscored" : ""],
        ["Category", named("category")], ["Cluster", named("cluster")],
        ["Data set", named("dataset")], ["Id", commands.id[command]]]),
      make("p", { class: "detail-link" }, link, make("button", { type: "button", id: "grid-copy",
        click: (event) => copyLink(link, event.target) }, "Copy link")),
    ];
  }

  _models(command, model, texts) {
    const { models } = this.verdicts;
    const note = texts.note ? make("p", {}, texts.note) : null;
    return [note, ...models.map((name, place) => {
      const shown = cellContent(this.verdicts, place, command);
      const element = make("details", { "data-model": place, class: "detail-model" },
        make("summary", {}, make("span", { class: "detail-name" }, name),
          make("span", { class: "grid-cell", "data-right": shown.right, "aria-hidden": "true" },
            shown.text),
          make("span", { class: "detail-words" }, shown.words)));
      const build = () => {
        if (element.children.length === 1) element.append(...this._epochs(command, place, texts));
      };
      element.addEventListener("toggle", build);
      if (place === model || (model === UNKNOWN && models.length * this.verdicts.epochs <= 4)) {
        build();
        element.open = true;
      }
      return element;
    })];
  }

  *_epochs(command, model, texts) {
    const { verdicts } = this;
    if (!verdicts.isAsked(model, command)) {
      yield make("p", {}, "This model was not asked about this data set.");
      return;
    }
    for (let epoch = 0; epoch < verdicts.epochs; epoch += 1) {
      const cell = verdicts.cell(model, command, epoch);
      if (verdicts.epochs > 1) yield make("h4", {}, `Epoch ${epoch + 1}`);
      if (verdicts.cells.outcome[cell] === UNKNOWN) yield make("p", {}, "No verdict.");
      else yield* verdictElements(verdicts, cell, texts.of ? texts.of(model, epoch) : null);
    }
  }
}

/** Selects a link and puts it on the clipboard, where the browser lets it. */
async function copyLink(link, button) {
  link.select();
  try {
    await window.navigator.clipboard.writeText(link.value);
    button.textContent = "Copied";
  } catch {
    button.textContent = "Selected: copy it by the keyboard";
  }
}
