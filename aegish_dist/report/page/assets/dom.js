"use strict";

/**
 * Building and finding elements. Text becomes text nodes: no function here reads markup, so that
 * foreign text cannot become an element.
 */

const SVG = "http://www.w3.org/2000/svg";

/**
 * Makes an HTML element.
 *
 * @param {string} tag its name
 * @param {Object<string, unknown>} [properties] attributes by name; a function listens to the event
 *   of that name, such as `click`; `style` is an object of style properties; `true` is an attribute
 *   without value; what is `false`, `null` or `undefined` is left out
 * @param {...(Node|string|number|null)} children text and elements, in order; `null` is left out
 * @returns {HTMLElement}
 */
function make(tag, properties, ...children) {
  return furnish(document.createElement(tag), properties, children);
}

/**
 * Makes an SVG element, as `make` does.
 *
 * @param {string} tag its name
 * @param {Object<string, unknown>} [properties] as of `make`
 * @param {...(Node|string|number|null)} children as of `make`
 * @returns {SVGElement}
 */
function makeSvg(tag, properties, ...children) {
  return furnish(document.createElementNS(SVG, tag), properties, children);
}

/** Gives a new element its attributes, listeners, styles and children. */
function furnish(element, properties, children) {
  for (const [name, value] of Object.entries(properties || {})) {
    if (value === false || value === null || value === undefined) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * Finds the first element for a CSS selector.
 *
 * @param {string} selector
 * @param {ParentNode} [within] where to look; the whole page when absent
 * @returns {Element|null}
 */
function find(selector, within) {
  return (within || document).querySelector(selector);
}

/**
 * Finds all elements for a CSS selector.
 *
 * @param {string} selector
 * @param {ParentNode} [within] where to look; the whole page when absent
 * @returns {Element[]}
 */
function findAll(selector, within) {
  return Array.from((within || document).querySelectorAll(selector));
}

/** Removes the children of an element and gives it these. */
function fill(element, ...children) {
  element.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/**
 * Splits a name into text with places to break behind `/`, `:` and `_`.
 *
 * @param {string} name
 * @returns {(string|HTMLElement)[]}
 */
function breakable(name) {
  const words = name.match(/[^/:_]*[/:_]+|[^/:_]+/g) || [];
  return words.flatMap((word, place) => (place ? [make("wbr"), word] : [word]));
}
