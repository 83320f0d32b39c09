"use strict";

/** The section in view is marked in the navigation, and commands can be copied. */

const links = new Map(findAll("nav a").map((link) => [link.hash.slice(1), link]));

/** Marks the link of the last section that begins above the middle of the window. */
function markSection() {
  const begun = findAll("main > section[id]").filter(
    (section) => section.getBoundingClientRect().top < window.innerHeight / 3);
  const current = begun.length ? links.get(begun[begun.length - 1].id) : undefined;
  for (const link of links.values()) {
    if (link === current) continue;
    link.removeAttribute("aria-current");
  }
  if (!current || current.hasAttribute("aria-current")) return;
  current.setAttribute("aria-current", "true");
  const list = current.closest("ul");
  list.scrollLeft = current.offsetLeft - list.offsetLeft - list.clientWidth / 2;
}

let waiting = false;
window.addEventListener("scroll", () => {
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    markSection();
  });
}, { passive: true });
new ResizeObserver(markSection).observe(find("main"));  // the grid comes later, and moves the rest

/** Puts a button beside a command that copies it. */
function offerCopy(box) {
  const said = make("span", { role: "status" });
  const click = () => navigator.clipboard.writeText(box.textContent).then(
    () => fill(said, "Copied"), () => fill(said, "Select the text and copy it"));
  box.before(make("div", { class: "tools" }, make("button", { type: "button", click }, "Copy"), said));
}

if (navigator.clipboard) findAll("pre.copied").forEach(offerCopy);
