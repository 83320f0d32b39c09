"use strict";

/** What the grid shows, as text of the address: which commands, in which order. */

const VIEW = "#commands";
const KEYS = ["q", "target", "dataset", "category", "outcome", "model", "missed", "disputed",
  "flipping", "unscored", "sort", "of", "order", "open", "set", "at"];
/** The keys of the open command, when there is none. */
const CLOSED = { open: "", set: "", at: "" };
/** What the clearing of filters leaves as it is. */
const NO_FILTERS = ["sort", "of", "order"];
const SORTS = { "": "down", command: "up", category: "up", wrong: "down", outcome: "up", cost: "down",
  latency: "down" };

/**
 * Reads a view of the grid from an address.
 *
 * @param {string} hash the part from `#` on
 * @returns {Object<string, string>|null} by key, empty where it has none; null: no view of the grid
 */
function readView(hash) {
  if (hash !== VIEW && !hash.startsWith(`${VIEW}?`)) return null;
  const found = new URLSearchParams(hash.slice(VIEW.length + 1));
  return Object.fromEntries(KEYS.map((key) => [key, found.get(key) || ""]));
}

/** Returns the address of a view; see `readView`. */
function viewAddress(view) {
  const given = KEYS.filter((key) => view[key]).map((key) => [key, view[key]]);
  return given.length ? `${VIEW}?${new URLSearchParams(given)}` : VIEW;
}

/**
 * Returns the commands of a view in its order.
 *
 * @param {Verdicts} verdicts
 * @param {Object<string, string>} view as of `readView`
 * @returns {number[]} places of commands
 */
function chooseCommands(verdicts, view) {
  const conditions = conditionsOf(verdicts, view);
  const chosen = [];
  for (let command = 0; command < verdicts.count; command += 1) {
    if (conditions.every((holds) => holds(command))) chosen.push(command);
  }
  return sortCommands(verdicts, view, chosen);
}

/** Returns the functions that all have to hold for a command; a name that is not there is none. */
function conditionsOf(verdicts, view) {
  const { commands, names, labels, models } = verdicts;
  const conditions = [];
  const keep = (wanted, holds) => { if (wanted) conditions.push(holds); };
  const text = view.q.toLowerCase();
  const dataset = names.dataset.indexOf(view.dataset);
  const category = names.category.indexOf(view.category);
  const label = labels.indexOf(view.outcome);
  const model = models.indexOf(view.model);
  keep(text, (each) => verdicts.lower[each].includes(text));
  keep(view.target === "malicious", (each) => commands.malicious[each] === 1);
  keep(view.target === "harmless", (each) => commands.malicious[each] === 0);
  keep(dataset >= 0, (each) => commands.dataset[each] === dataset);
  keep(category >= 0, (each) => commands.category[each] === category);
  keep(label >= 0, (each) => verdicts.hasLabel(each, label, model));
  keep(view.missed === "all", (each) => verdicts.missedByAll(each));
  keep(view.missed === "any", (each) => verdicts.wrongModels[each] > 0);
  keep(view.missed === "none", (each) => verdicts.wrongModels[each] === 0);
  keep(view.disputed, (each) => verdicts.isDisputed(each));
  keep(view.flipping, (each) => verdicts.flipping[each] === 1);
  keep(view.unscored, (each) => verdicts.unscored[each] === 1);
  return conditions;
}

/** Whether a view has the greatest values first. */
function sortsDown(view) {
  return (view.order || SORTS[view.sort]) === "down";
}

/** Sorts commands as a view says; what has no value comes last. */
function sortCommands(verdicts, view, chosen) {
  const valueOf = sortValue(verdicts, view);
  if (valueOf === null) return view.order === "down" ? chosen.reverse() : chosen;
  const sign = sortsDown(view) ? -1 : 1;
  const values = new Map(chosen.map((command) => [command, valueOf(command)]));
  const compare = (a, b) => {
    const left = values.get(a);
    const right = values.get(b);
    if (left === right) return a - b;
    if (left === null || right === null) return left === null ? 1 : -1;
    return left < right ? -sign : sign;
  };
  return chosen.sort(compare);
}

/** Returns what gives the value of a command that it is sorted by; null: as in the data. */
function sortValue(verdicts, view) {
  const { commands, names, models } = verdicts;
  const model = models.indexOf(view.of);
  const choices = {
    "": (each) => Math.min(verdicts.rightModels[each], verdicts.wrongModels[each]),
    command: (each) => verdicts.lower[each],
    category: (each) => names.category[commands.category[each]] ?? null,
    wrong: (each) => verdicts.wrongModels[each],
    outcome: (each) => outcomeValue(verdicts, Math.max(model, 0), each),
    cost: (each) => verdicts.measure("cost_nano_usd", each, model, false),
    latency: (each) => verdicts.measure("service_ms", each, model, true),
  };
  return Object.hasOwn(choices, view.sort) ? choices[view.sort] : null;
}

/** Returns a number that is less for wrong answers than for right ones, and then by label. */
function outcomeValue(verdicts, model, command) {
  const place = model * verdicts.count + command;
  const label = verdicts.mainLabel(model, command);
  if (label === UNKNOWN) return null;
  const scored = verdicts.scored[place];
  const share = scored ? verdicts.right[place] / scored : 2;
  return 100 * share + label;
}
