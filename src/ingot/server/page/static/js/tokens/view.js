// An answer token by token; less likely tokens have warmer colours. One token at a time has the
// focus; arrow keys move it, and a card shows the alternatives. A slider shows the probabilities at
// another temperature.

import { element, setText } from "../dom.js";
import { perplexity, read, visible } from "../model/tokens.js";
import { TokenCard } from "./card.js";

// The lowest probability of each shade, from no colour to the warmest.
const SHADES = [0.9, 0.7, 0.5, 0.3, 0.1, 0.03, 0];

export class TokenView {
  #tokens = [];
  #spans = [];
  #card = new TokenCard();
  #facts = element("span", { class: "token-facts" });
  #temperature = 1;
  #shown = -1; // the token whose card is open
  #text = element("div", {
    class: "token-text",
    role: "group",
    "aria-label": "Tokens: use the arrow keys to move",
  });

  constructor(tokens) {
    this.element = element(
      "div",
      { class: "token-view" },
      element("div", { class: "token-legend" }, legend(), this.#slider(), this.#facts),
      this.#text,
      this.#card.element,
    );
    this.#text.addEventListener("pointerover", (event) => this.#point(event.target));
    this.#text.addEventListener("pointerleave", () => this.#leave());
    this.#text.addEventListener("focusin", (event) => this.#focused(event.target));
    this.#text.addEventListener("focusout", () => this.#card.hide());
    this.#text.addEventListener("keydown", (event) => this.#key(event));
    this.show(tokens);
  }

  /** Show more tokens of the same answer. */
  show(tokens) {
    for (const kept of tokens.slice(this.#tokens.length)) {
      const node = span(read(kept, this.#temperature), this.#spans.length === 0);
      this.#spans.push(node);
      this.#text.append(node);
    }
    this.#tokens = [...tokens];
    setText(this.#facts, factsOf(tokens));
    this.element.querySelector(".token-heat").hidden = !tokens.length;
    if (!tokens.length) setText(this.#text, "The tokens of this answer were not stored.");
  }

  focus() {
    this.#spans[0]?.focus({ preventScroll: true });
  }

  /** Probabilities at another temperature: the colours and the open card change. */
  #slider() {
    const value = element("output", {}, "1.00");
    const slide = element("input", { type: "range", min: 0, max: 2, step: 0.05, value: 1 });
    slide.addEventListener("input", () => {
      this.#temperature = Number(slide.value);
      setText(value, this.#temperature.toFixed(2));
      this.#tokens.forEach((token, index) => paint(this.#spans[index], this.#read(token)));
      if (this.#shown >= 0) this.#open(this.#shown);
    });
    const title = "The probabilities that the same tokens have at another temperature";
    return element("label", { class: "token-heat", title }, "temperature", slide, value);
  }

  #read(token) {
    return read(token, this.#temperature);
  }

  #open(index) {
    this.#shown = index;
    this.#card.show(this.#read(this.#tokens[index]), this.#spans[index], this.element);
  }

  #point(target) {
    const index = this.#spans.indexOf(target.closest(".token"));
    if (index >= 0) this.#open(index);
  }

  #leave() {
    const index = this.#spans.indexOf(document.activeElement);
    if (index >= 0) this.#point(this.#spans[index]);
    else this.#card.hide();
  }

  #focused(target) {
    for (const one of this.#spans) if (one !== target && one.tabIndex === 0) one.tabIndex = -1;
    target.tabIndex = 0;
    this.#point(target);
  }

  #key(event) {
    const at = this.#spans.indexOf(document.activeElement);
    const last = this.#spans.length - 1;
    const to = {
      ArrowLeft: at - 1,
      ArrowRight: at + 1,
      ArrowUp: this.#inLine(at, -1),
      ArrowDown: this.#inLine(at, 1),
      Home: 0,
      End: last,
    }[event.key];
    if (event.key === "Escape") this.#card.hide();
    if (to === undefined) return;
    event.preventDefault();
    this.#spans[Math.min(last, Math.max(0, to))]?.focus();
  }

  /** The token nearest to this one in the line above or below. */
  #inLine(at, step) {
    const from = this.#spans[at]?.getBoundingClientRect();
    if (!from) return at;
    for (let index = at + step; index >= 0 && index < this.#spans.length; index += step) {
      const box = this.#spans[index].getBoundingClientRect();
      const other = (box.top - from.top) * step > from.height / 2;
      if (other && (step > 0 ? box.right >= from.left : box.left <= from.left)) return index;
    }
    return at;
  }
}

function span(token, first) {
  const node = element(
    "span",
    { tabindex: first ? "0" : "-1", role: "img" },
    token.text.replaceAll("\n", "↵\n") || "∅",
  );
  paint(node, token);
  return node;
}

function paint(node, token) {
  const shade = SHADES.findIndex((lowest) => token.probability >= lowest);
  const kinds = ["token", `shade-${shade}`];
  if (!token.likeliest) kinds.push("unlikely");
  if (token.thought) kinds.push("thought");
  node.className = kinds.join(" ");
  const percent = (token.probability * 100).toFixed(1);
  node.setAttribute("aria-label", `${visible(token.text)}, ${percent} percent`);
}

function legend() {
  const swatches = SHADES.map((_, shade) => element("span", { class: `swatch shade-${shade}` }));
  return element("span", { class: "token-scale" }, "sure", ...swatches, "surprising");
}

function factsOf(tokens) {
  if (!tokens.length) return "";
  const others = tokens.filter((token) => !read(token).likeliest).length;
  const doubt = perplexity(tokens).toFixed(2);
  return `${tokens.length} tokens · ${others} not the most likely · perplexity ${doubt}`;
}
