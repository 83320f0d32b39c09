"use strict";

/** Unpacking the verdicts of the page, and what they say command by command. */

const UNKNOWN = -1;

/**
 * Unpacks a data element: base64, gzip, JSON.
 *
 * @param {string} id of the element
 * @returns {Promise<Object|null>} null when the page has no such element
 */
async function unpack(id) {
  const element = document.getElementById(id);
  if (element === null) return null;
  const stream = new Blob([bytesOf(element.textContent.trim())]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).json();
}

/** Returns the bytes that a text in base64 stands for. */
function bytesOf(text) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(text);
  const content = atob(text);
  const bytes = new Uint8Array(content.length);
  for (let place = 0; place < content.length; place += 1) bytes[place] = content.charCodeAt(place);
  return bytes;
}

/** All verdicts of a run, by model and command; each is a place in the ranking or in the data. */
class Verdicts {
  /** @param {Object} packed what `grid.py` has packed */
  constructor(packed) {
    Object.assign(this, packed);
    this.count = packed.commands.id.length;
    this.lower = packed.commands.text.map((text) => text.toLowerCase());
    this.asked = packed.asked.map((names) => {
      const places = names.map((name) => packed.names.dataset.indexOf(name));
      return packed.names.dataset.map((_, place) => places.includes(place));
    });
    this._judge();
  }

  /** Returns the place of a verdict in the columns of `cells`. */
  cell(model, command, epoch) {
    return (model * this.count + command) * this.epochs + epoch;
  }

  /** Counts, for each command, which models are right and wrong in most of their scored epochs. */
  _judge() {
    const { count, epochs, models, cells } = this;
    this.right = new Uint16Array(models.length * count);
    this.scored = new Uint16Array(models.length * count);
    this.wrongModels = new Uint16Array(count);
    this.rightModels = new Uint16Array(count);
    this.askedModels = new Uint16Array(count);
    this.flipping = new Uint8Array(count);
    this.unscored = new Uint8Array(count);
    for (let model = 0; model < models.length; model += 1) {
      for (let command = 0; command < count; command += 1) {
        const first = this.cell(model, command, 0);
        let right = 0;
        let scored = 0;
        let action = UNKNOWN;
        for (let cell = first; cell < first + epochs; cell += 1) {
          const outcome = cells.outcome[cell];
          if (outcome === UNKNOWN) continue;
          if (cells.correct[cell] === UNKNOWN) this.unscored[command] = 1;
          else scored += 1;
          if (cells.correct[cell] === 1) right += 1;
          if (outcome > 2) continue; // no stated action
          if (action !== UNKNOWN && action !== outcome) this.flipping[command] = 1;
          action = outcome;
        }
        this.right[model * count + command] = right;
        this.scored[model * count + command] = scored;
        if (2 * right < scored) this.wrongModels[command] += 1;
        if (2 * right > scored) this.rightModels[command] += 1;
        if (this.isAsked(model, command)) this.askedModels[command] += 1;
      }
    }
  }

  /** Whether a model was put to the dataset of a command. */
  isAsked(model, command) {
    return this.asked[model][this.commands.dataset[command]];
  }

  /** Whether every model that was asked got a command wrong. */
  missedByAll(command) {
    return this.wrongModels[command] > 0 && this.wrongModels[command] === this.askedModels[command];
  }

  /** Whether one model got a command right and another one wrong. */
  isDisputed(command) {
    return this.wrongModels[command] > 0 && this.rightModels[command] > 0;
  }

  /** Whether a model gave a label in one of the epochs; any model when `model` is -1. */
  hasLabel(command, label, model) {
    const first = model === UNKNOWN ? 0 : model;
    const last = model === UNKNOWN ? this.models.length - 1 : model;
    for (let each = first; each <= last; each += 1) {
      const start = this.cell(each, command, 0);
      for (let cell = start; cell < start + this.epochs; cell += 1) {
        if (this.cells.label[cell] === label) return true;
      }
    }
    return false;
  }

  /** Returns the names of the labels that verdicts have, most wanted first. */
  knownLabels() {
    const known = new Set(this.cells.label);
    return this.labels.map((_, label) => label).filter((label) => known.has(label));
  }

  /**
   * Adds up or averages a column over a command's verdicts; null where it is unknown throughout.
   *
   * @param {string} name of the column
   * @param {number} command
   * @param {number} model -1: all of them
   * @param {boolean} isMean
   */
  measure(name, command, model, isMean) {
    const column = this.cells[name];
    const first = model === UNKNOWN ? 0 : model;
    const last = model === UNKNOWN ? this.models.length - 1 : model;
    let sum = 0;
    let known = 0;
    for (let each = first; each <= last; each += 1) {
      const start = this.cell(each, command, 0);
      for (let cell = start; cell < start + this.epochs; cell += 1) {
        if (column[cell] === UNKNOWN) continue;
        sum += column[cell];
        known += 1;
      }
    }
    if (known === 0) return null;
    return isMean ? sum / known : sum;
  }

  /** Returns the label of a model's epochs that is the most frequent one, -1 without a verdict. */
  mainLabel(model, command) {
    const start = this.cell(model, command, 0);
    if (this.epochs === 1) return this.cells.label[start];
    const counts = new Map();
    let best = UNKNOWN;
    for (let cell = start; cell < start + this.epochs; cell += 1) {
      const label = this.cells.label[cell];
      if (label === UNKNOWN) continue;
      counts.set(label, (counts.get(label) || 0) + 1);
      if (best === UNKNOWN || counts.get(label) > counts.get(best)) best = label;
    }
    return best;
  }
}
