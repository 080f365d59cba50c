// The card of a token: its place among the alternatives, and their probabilities.

import { element } from "../dom.js";
import { newId } from "../model/conversation.js";
import { visible } from "../model/tokens.js";

const GAP = 6; // pixels between token and card

export class TokenCard {
  element = element("div", {
    class: "token-card",
    id: `card-${newId()}`,
    role: "tooltip",
    hidden: true,
  });

  /** Show the card of a token under its span, inside `frame`. */
  show(token, span, frame) {
    const rows = token.alternatives.map(({ text, probability, chosen }) =>
      row(element("code", {}, visible(text)), probability, chosen ? "chosen" : null),
    );
    if (token.rest > 0) rows.push(row(element("em", {}, "all others"), token.rest, "rest"));
    this.element.replaceChildren(
      element("p", { class: "token-place" }, placeOf(token)),
      element("ol", {}, ...rows),
    );
    this.element.hidden = false;
    span.setAttribute("aria-describedby", this.element.id);
    this.#place(span.getClientRects()[0], frame.getBoundingClientRect());
  }

  hide() {
    this.element.hidden = true;
  }

  #place(token, frame) {
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const below = token.bottom + GAP + height < innerHeight;
    const top = below ? token.bottom + GAP : token.top - GAP - height;
    const left = Math.min(
      Math.max(token.left, frame.left),
      Math.max(frame.left, frame.right - width),
    );
    this.element.style.top = `${top - frame.top}px`;
    this.element.style.left = `${left - frame.left}px`;
  }
}

function row(label, probability, kind) {
  const bar = element("span", { class: "token-bar" }, element("span"));
  bar.firstChild.style.width = `${(probability * 100).toFixed(1)}%`;
  const share = element("span", { class: "token-percent" }, percent(probability));
  return element("li", { class: kind }, label, bar, share);
}

/** The place of a token among the most likely ones. */
function placeOf({ rank, alternatives }) {
  if (rank === null) return `Not among the ${alternatives.length - 1} most likely tokens`;
  const place = { 1: "The", 2: "The 2nd", 3: "The 3rd" }[rank] ?? `The ${rank}th`;
  return `${place} most likely token`;
}

function percent(probability) {
  const value = probability * 100;
  if (value >= 99.95) return "100%";
  return value < 0.05 ? "<0.1%" : `${value.toFixed(1)}%`;
}
