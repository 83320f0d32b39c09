"use strict";

/** One verdict in the dialog about a command. */

/**
 * Returns what finds the texts of a verdict in a blob; see `verdict_texts.py`.
 *
 * @param {Verdicts} verdicts
 * @param {Object} blob
 * @param {number} command its place within the blob
 * @returns {function(number, number): Object|null} of model and epoch
 */
function textReader(verdicts, blob, command) {
  const text = (place) => (place === UNKNOWN || place === undefined ? null : blob.texts[place]);
  return (model, epoch) => {
    const at = (command * verdicts.models.length + model) * verdicts.epochs + epoch;
    const place = blob.at.indexOf(at);
    if (place < 0) return null;
    const of = (name) => text(blob[name][place]);
    return {
      completion: of("completion"), reason: of("reason"), refusal: of("refusal"),
      stop: of("stop_reason"), returned: of("returned_model"), upstream: of("upstream"),
      request: of("request_id"), worker: of("worker"), length: blob.lengths[at],
      attempts: blob.attempts.filter((each) => each[0] === at)
        .map(([, attempt, errorClass, status, wait, message, time]) =>
          ({ attempt, errorClass, status, wait, message: text(message), time })),
    };
  };
}

/** Outcomes that were read in a text: without one in the store, it was deleted since. */
const READ = ["ALLOW", "WARN", "BLOCK", "FORMAT_ERROR"];

/** Yields the elements that show a verdict. */
function* verdictElements(verdicts, cell, texts) {
  const { cells } = verdicts;
  const number = (name) => cells[name][cell];
  const known = (name, words) => (number(name) === UNKNOWN ? "" : words(number(name)));
  const given = texts || {};
  yield factList([
    ["Outcome", judgement(verdicts, cell)],
    ["No answer", known("error_class", (place) => worded(verdicts.errorClasses[place]))],
    ["Confidence", known("confidence", (value) => String(value / 1000))],
    ["Tokens", joined([["in", "input_tokens"], ["from cache", "cache_read_tokens"],
      ["out", "output_tokens"], ["reasoning", "reasoning_tokens"]].map(([words, name]) =>
      known(name, (value) => `${value.toLocaleString("en")} ${words}`)))],
    ["Cost", known("cost_nano_usd", (value) => `${inUsd(value)} USD`)],
    ["Time", joined([["service", "service_ms"], ["queue", "queue_ms"], ["limiter", "limiter_ms"],
      ["backoff", "backoff_ms"]].map(([words, name]) =>
      known(name, (value) => `${words} ${value.toLocaleString("en")} ms`)))],
    ["Attempts", `${number("attempts")}${number("generation") ? `, retry ${number("generation")}` : ""}`],
    ["Answered", known("created_s", (value) => inUtc(verdicts.since + value))],
    ["Stop reason", given.stop], ["Refusal", given.refusal], ["Returned model", given.returned],
    ["Upstream", given.upstream], ["Request id", given.request], ["Worker", given.worker],
    ...(given.attempts || []).map((each) => [`Failed attempt ${each.attempt}`, failure(each)]),
  ]);
  const heading = verdicts.epochs > 1 ? "h5" : "h4"; // below that of its epoch
  if (typeof given.reason === "string") yield* textElements(heading, "Reason", given.reason);
  if (typeof given.completion === "string") {
    yield* textElements(heading, "Completion", given.completion, given.length);
  } else if (given.completion === null && READ.includes(verdicts.outcomes[cells.outcome[cell]])) {
    yield make(heading, { class: "detail-heading" }, "Completion");
    yield make("p", {}, "It was deleted by `aegish-dist runs prune --completions`.");
  }
}

/** Returns outcome, label and whether it is right, in words. */
function judgement(verdicts, cell) {
  const { cells } = verdicts;
  const outcome = verdicts.outcomes[cells.outcome[cell]];
  const label = verdicts.labels[cells.label[cell]];
  const right = { 1: "correct", 0: "wrong" }[cells.correct[cell]] || "unscored";
  const named = label === outcome ? worded(label)
    : `${worded(outcome || "")}, which the rules call ${worded(label)}`;
  return `${named}: ${right} under ${verdicts.rule}`;
}

/** Returns a failed attempt in words. */
function failure(each) {
  return joined([worded(each.errorClass), each.status === UNKNOWN ? "" : `status ${each.status}`,
    each.wait === null ? "" : `retry after ${each.wait} s`, inUtc(each.time), each.message]);
}

/** Yields a text under its name, at first as much as is read at a glance. */
function* textElements(heading, name, text, length) {
  const lines = text.split("\n");
  const short = lines.slice(0, SHOWN_LINES).join("\n").slice(0, SHOWN_CHARS);
  const element = make("pre", { class: "detail-text", tabindex: 0, role: "group",
    "aria-label": name }, short || "(empty)");
  yield make(heading, { class: "detail-heading" }, name);
  yield element;
  if (short.length < text.length) {
    yield make("button", { type: "button", class: "detail-all", click: (event) => {
      element.textContent = text;
      element.focus();
      event.target.remove();
    } }, `Show all ${text.length.toLocaleString("en")} characters`);
  }
  if (length) {
    yield make("p", {}, `The completion has ${length.toLocaleString("en")} characters; this file ` +
      "holds the first ones, `aegish-dist verdicts show` all.");
  }
}

/** Makes a list of facts; those without a text are left out. */
function factList(facts) {
  const given = facts.filter(([, text]) => text);
  return make("dl", { class: "detail-facts" },
    ...given.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
}

/** Returns texts in one line, without the empty ones. */
function joined(texts) {
  return texts.filter((text) => text).join(", ");
}

/** Returns an amount in 1e-9 USD as a decimal number in USD. */
function inUsd(nano) {
  return (nano / 1e9).toFixed(9).replace(/\.?0+$/, "");
}

/** Returns seconds since 1970 as a time. */
function inUtc(seconds) {
  const time = new Date(seconds * 1000);
  return Number.isNaN(time.getTime()) ? "" : `${time.toISOString().slice(0, 19).replace("T", " ")} UTC`;
}
