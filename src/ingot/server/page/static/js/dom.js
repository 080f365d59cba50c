// Elements from plain data. Text goes in as text nodes: nothing here parses HTML, and no other
// module makes elements by other means, so that what a model writes can never become markup.

const SVG = "http://www.w3.org/2000/svg";
const MATH = "http://www.w3.org/1998/Math/MathML";

/** An element. Functions are listeners; null, undefined and false leave an attribute out. */
export function element(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

/** An SVG element. */
export function svgElement(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(SVG, tag), attributes, children);
}

/** A MathML element. */
export function mathElement(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS(MATH, tag), attributes, children);
}

function furnish(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") node.addEventListener(name, value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return node;
}

/** The one element that a selector names; the page is broken without it. */
export function find(selector, within = document) {
  const node = within.querySelector(selector);
  if (!node) throw new Error(`the page has no ${selector}`);
  return node;
}

/** Set a node's text only if it differs: no needless layout, no lost selection. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** Make a field as high as its text, up to what the style allows. */
export function fitHeight(field) {
  field.style.height = "auto";
  const height = field.scrollHeight;
  if (height > 0) field.style.height = `${height}px`; // it is 0 while the field is hidden
}

export const touch = matchMedia("(pointer: coarse)");

/** Whether a key sends a message: Enter, unless it begins a line as with Shift or on a phone. */
export const isSendKey = (event) =>
  event.key === "Enter" && !event.shiftKey && !event.isComposing && !touch.matches;

/** Call `task` once before the next frame, however often the returned function is called. */
export function oncePerFrame(task) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      task();
    });
  };
}
