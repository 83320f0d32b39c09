"use strict";

/**
 * The differences from a model that the reader chooses, by the metric that the reader chooses. The
 * report shows one choice; the data of all pairs stand beside it.
 *
 * @typedef {Object} PairSeen
 * @property {number} model place in the order of the leaderboard
 * @property {number} against place of the other model
 * @property {(number|null)[]} drawn difference and ends of its interval, in points
 * @property {string[]} texts the same three as the report writes them
 * @property {string} p adjusted p
 * @property {string} verdict better, worse, tied or undefined
 */

const TURNED = { better: "worse", worse: "better" };

/** @returns {PairSeen} a pair as it stands in the data */
function readPair([model, against, a, b, c, textA, textB, textC, p, verdict]) {
  return { model, against, drawn: [a, b, c], texts: [textA, textB, textC], p, verdict };
}

/** Changes the sign of a number as the report writes it. */
function turnText(text) {
  return text.startsWith("+") ? `-${text.slice(1)}` : text.replace("-", "+");
}

/** @returns {PairSeen} the same pair seen from its other model */
function turnPair(pair) {
  const minus = (value) => (value === null ? null : -value);
  const [difference, low, high] = pair.drawn;
  const [text, textLow, textHigh] = pair.texts;
  return {
    model: pair.against,
    against: pair.model,
    drawn: [minus(difference), minus(high), minus(low)],
    texts: [turnText(text), turnText(textHigh), turnText(textLow)],
    p: pair.p,
    verdict: TURNED[pair.verdict] || pair.verdict,
  };
}

/**
 * Chooses the pairs of one model, the greatest difference first, or all pairs: each seen from the
 * model that is later in the order, those against the first model first.
 */
function choosePairs(pairs, against) {
  const turns = (pair) => (against === null ? pair.model < pair.against : pair.model === against);
  return pairs
    .map((pair) => (turns(pair) ? turnPair(pair) : pair))
    .filter((pair) => against === null || pair.against === against)
    .sort((a, b) => a.against - b.against || (b.drawn[0] ?? -Infinity) - (a.drawn[0] ?? -Infinity));
}

/** Draws an interval as the report does, on a scale with 0 in its middle. */
function drawInterval([difference, low, high], widest) {
  if (difference === null) return null;
  const place = (value) => (100 * (1 + value / widest)).toFixed(1);
  const paths = [makeSvg("path", { class: "aim", d: `M${place(0)} 0V12` })];
  if (low !== null && high !== null) {
    const [from, to] = [place(low), place(high)];
    paths.push(makeSvg("path", { d: `M${from} 3V9M${from} 6H${to}M${to} 3V9` }));
  }
  paths.push(makeSvg("path", { class: "dot", d: `M${place(difference)} 6h0` }));
  const box = { class: "bar", viewBox: "0 0 200 12", preserveAspectRatio: "none" };
  return makeSvg("svg", { ...box, "aria-hidden": "true" }, ...paths);
}

/** @returns {string|null} what a p value is sorted by; the least ones are written as `<0.001` */
function pValue(text) {
  if (text === UNDEFINED) return null;
  return text.startsWith("<") ? "0" : text;
}

/** Makes the row of a pair. */
function pairRow(pair, { models, names }, widest) {
  const [difference, low, high] = pair.texts;
  const cell = (label, properties, ...children) =>
    make("td", { role: "cell", "data-label": label, ...properties }, ...children);
  const interval = pair.drawn[1] === null ? "" : `\n[${low}, ${high}]`;
  return make("tr", { role: "row" },
    make("th", { scope: "row", role: "rowheader", class: "model", title: models[pair.model] },
      ...breakable(names[pair.model])),
    cell("against", { class: "other", title: models[pair.against] }, ...breakable(names[pair.against])),
    cell("difference [95% CI]", { class: "score", "data-value": pair.drawn[0] },
      `${difference}${interval}`, drawInterval(pair.drawn, widest)),
    cell("p adj.", { "data-value": pValue(pair.p) }, pair.p),
    cell("verdict", { class: `words ${pair.verdict}` }, pair.verdict));
}

/** Lets the reader choose metric and model. */
function furnishDifferences(section) {
  const data = JSON.parse(find("#pairs").textContent);
  const sortable = furnishTable(find("table", section));
  const metrics = data.metrics.map(({ title, pairs }) => ({ title, pairs: pairs.map(readPair) }));
  const metric = make("select", { change: () => draw() },
    ...metrics.map(({ title }, place) => make("option", { value: place }, title)));
  const model = make("select", { change: () => draw() },
    data.all ? make("option", { value: "" }, "all pairs") : null,
    ...data.models.map((name, place) => make("option", { value: place }, name)));
  const said = make("span", { role: "status" });
  model.value = "0";

  function draw() {
    const pairs = metrics[Number(metric.value)].pairs;
    const ends = pairs.flatMap((pair) => pair.drawn.slice(1).map(Math.abs));
    const widest = Math.max(1, Math.ceil(Math.max(...ends)));
    const against = model.value === "" ? null : Number(model.value);
    const chosen = choosePairs(pairs, against).filter((pair) => pair.drawn[0] !== null);
    sortable.table.classList.toggle("against-one", against !== null);
    sortable.replace(chosen.map((pair) => pairRow(pair, data, widest)));
    const { title } = metrics[Number(metric.value)];
    const minus = against === null ? "" : ` minus that of ${data.models[against]},`;
    fill(find("p", section), `${title}${minus} on the commands that both models answered, in percentage `
      + `points with 95% intervals, drawn from -${widest} to +${widest}; the line is 0. p is adjusted `
      + `for all ${pairs.length} pairs (Holm).`);
    fill(said, `${chosen.length} ${chosen.length === 1 ? "difference" : "differences"}`);
  }

  find(".scroll", section).before(make("div", { class: "tools" },
    make("label", {}, "Metric", metric), make("label", {}, "Against", model), said));
}

if (find("#pairs")) furnishDifferences(find("#pairs").closest("section"));
