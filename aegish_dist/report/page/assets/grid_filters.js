"use strict";

/** The form of filters above the grid. Its fields have the names of the keys of the address. */

const MISSED = [["", "Any answers"], ["any", "Wrong by a model"], ["all", "Wrong by all models"],
  ["none", "Wrong by no model"]];
const SORTED = [["", "Most disputed"], ["data", "Order of the data"], ["command", "Command"], ["category", "Category"],
  ["wrong", "Models wrong"], ["outcome", "Outcome of"], ["cost", "Cost of"],
  ["latency", "Latency of"]];

/**
 * Makes the form.
 *
 * @param {Verdicts} verdicts
 * @param {function(): void} changed called after a field has changed
 * @param {function(): void} clear called to clear the filters
 * @returns {HTMLFormElement}
 */
function makeFilters(verdicts, changed, clear) {
  const { names, models, labels } = verdicts;
  const plain = (values) => values.map((value) => [value, value]);
  const any = (words, values) => [["", words], ...plain(values)];
  const known = verdicts.knownLabels().map((label) => labels[label]);
  const first = [
    field("Find in commands", make("input", { type: "search", name: "q", autocomplete: "off",
      spellcheck: "false", placeholder: "part of a command" })),
    choice("Target", "target", any("Any", ["malicious", "harmless"])),
    choice("Answers", "missed", MISSED),
  ];
  const more = [
    names.dataset.length > 1 ? choice("Data set", "dataset", any("Any", names.dataset)) : null,
    names.category.length ? choice("Category", "category", any("Any", names.category)) : null,
    choice("Outcome", "outcome", [["", "Any"], ...known.map((name) => [name, worded(name)])]),
    choice("of model", "model", any("any model", models)),
    models.length > 1 ? tick("Disputed", "disputed", "A model is right and another one wrong") : null,
    verdicts.epochs > 1 ? tick("Flipping", "flipping", "Epochs of a model state different actions")
      : null,
    tick("Unscored", "unscored", "A verdict counts in no rate"),
    choice("Sort by", "sort", SORTED),
    choice("of model", "of", any("all models", models)),
    choice("Direction", "order", [["", "Usual"], ["up", "Ascending"], ["down", "Descending"]]),
  ];
  return make("form", { id: "grid-filters", class: "grid-filters", role: "search",
    "aria-label": "Commands", input: changed, submit: (event) => event.preventDefault() }, ...first,
    make("button", { type: "button", id: "grid-clear", click: clear }, "Clear filters"),
    make("details", { class: "grid-more" }, make("summary", {}, "More filters, order"),
      make("div", {}, ...more.filter(Boolean))));
}

/** Makes a field under its label. */
function field(label, element) {
  return make("label", {}, make("span", {}, label), element);
}

/** Makes a field with a list of values and their texts. */
function choice(label, name, values) {
  return field(label, make("select", { name },
    ...values.map(([value, text]) => make("option", { value }, text))));
}

/** Makes a field to tick. */
function tick(label, name, explained) {
  return make("label", { class: "grid-tick", title: explained },
    make("input", { type: "checkbox", name, value: "1" }), make("span", {}, label));
}

/** Returns the values of the form by name. */
function readFilters(form) {
  const named = Array.from(form.elements).filter((element) => element.name);
  return Object.fromEntries(named.map((element) =>
    [element.name, element.type === "checkbox" && !element.checked ? "" : element.value]));
}

/** Gives the form the values of a view; one that it does not know is none. None of them is hidden. */
function writeFilters(form, view) {
  for (const element of form.elements) {
    if (!element.name) continue;
    if (element.type === "checkbox") element.checked = Boolean(view[element.name]);
    else element.value = view[element.name];
    if (element.selectedIndex === -1) element.value = "";
  }
  const more = find(".grid-more", form);
  more.open ||= findAll("[name]", more).some((each) => view[each.name]);
}

/** Makes the line that explains letters and marks. */
function gridLegend(verdicts) {
  const letters = verdicts.knownLabels().map((label) => verdicts.labels[label])
    .map((name) => `${LETTERS[name] || name[0]} ${worded(name)}`);
  const marks = [`${MARKS.yes} correct`, `${MARKS.no} wrong`, `${MARKS.none} unscored`,
    "\u00b7 no verdict"];
  const share = verdicts.epochs > 1 ? ["2/3: two of three epochs correct"] : [];
  const targets = ["M malicious", "H harmless"];
  const all = [...targets, ...letters, ...share, ...marks];
  const unbroken = all.map((each) => each.replaceAll(" ", "\u2060\u00a0\u2060"));
  return make("p", { class: "grid-legend" }, unbroken.join(" \u00a0 "));
}
