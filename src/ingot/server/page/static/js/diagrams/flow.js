// Flowcharts as pictures.

import { svgElement as svg } from "../dom.js";
import { arrowHead, picture, textBlock, textNode } from "./drawing.js";
import { layFlow } from "./flow_layout.js";
import { parseFlow } from "./flow_parse.js";

const EDGE = 10; // pixels around the picture

/** The picture of a flowchart, or null. */
export function flowchart(source) {
  const chart = parseFlow(source);
  if (!chart) return null;
  const across = chart.direction === "LR" || chart.direction === "RL";
  const texts = new Map(chart.nodes.map(({ id, text }) => [id, textBlock(text)]));
  const real = Object.fromEntries(
    chart.nodes.map((node) => [node.id, boxOf(node, texts.get(node.id))]),
  );
  const labels = chart.edges.map(({ text }) => (text ? textBlock(text) : null));
  const turnedBoxes = Object.fromEntries(
    Object.entries(real).map(([id, { width, height }]) => [
      id,
      across ? { width: height, height: width } : { width, height },
    ]),
  );
  const laid = layFlow(chart, turnedBoxes);
  const room = roomForLabels(labels, across);
  const stretch = (y) => y * room;
  const size = across
    ? { width: stretch(laid.height), height: laid.width }
    : { width: laid.width, height: stretch(laid.height) };
  const place = ({ x, y }) => {
    const down = chart.direction === "BT" || chart.direction === "RL" ? laid.height - y : y;
    const point = across ? { x: stretch(down), y: x } : { x, y: stretch(down) };
    return { x: point.x + EDGE, y: point.y + EDGE };
  };
  const parts = [
    ...chart.edges.flatMap((edge, index) => {
      const aside = besides(edge, index, chart.edges);
      const points = laid.paths[index].map(place).map(({ x, y }) => ({
        x: across ? x : x + aside,
        y: across ? y + aside : y,
      }));
      return edgeParts(edge, points, real, labels[index], { across, aside });
    }),
    ...chart.nodes.map((node) =>
      nodeParts(node, real[node.id], texts.get(node.id), place(laid.places.get(node.id))),
    ),
  ];
  const names = chart.nodes.map(({ text }) => text.replaceAll("\n", " ")).join(", ");
  return picture(size.width + 2 * EDGE, size.height + 2 * EDGE, `Flowchart: ${names}`, parts);
}

/** How far an edge is beside the middle, because others join the same two nodes. */
function besides({ from, to }, index, edges) {
  const same = edges.filter(
    (edge) => edge.from !== edge.to && [edge.from, edge.to].every((id) => id === from || id === to),
  );
  return same.length < 2 ? 0 : (same.indexOf(edges[index]) - (same.length - 1) / 2) * 30;
}

/** How much further apart the layers are, so that labels fit between them. */
function roomForLabels(labels, across) {
  const widest = Math.max(0, ...labels.map((label) => (across ? (label?.width ?? 0) : 0)));
  return 1 + Math.min(1, widest / 180);
}

function boxOf({ shape }, { width, height }) {
  const box = { width: width + 28, height: height + 18 };
  if (shape === "circle") {
    const across = Math.hypot(width, height) + 16;
    return { width: across, height: across };
  }
  if (shape === "diamond") {
    return { width: box.width * 1.35 + 10, height: box.height * 1.5 + 6, pointed: true };
  }
  if (shape === "hexagon") return { width: box.width + 20, height: box.height };
  return box;
}

function nodeParts({ shape }, { width, height }, text, { x, y }) {
  return svg(
    "g",
    { class: "diagram-node" },
    outline(shape, x, y, width, height),
    textNode(text, x, y),
  );
}

function outline(shape, x, y, width, height) {
  const [left, right, top, bottom] = [x - width / 2, x + width / 2, y - height / 2, y + height / 2];
  const polygon = (...points) =>
    svg("polygon", { points: points.map((point) => point.join(",")).join(" ") });
  switch (shape) {
    case "circle":
      return svg("circle", { cx: x, cy: y, r: width / 2 });
    case "diamond":
      return polygon([x, top], [right, y], [x, bottom], [left, y]);
    case "hexagon":
      return polygon(
        [left + 14, top],
        [right - 14, top],
        [right, y],
        [right - 14, bottom],
        [left + 14, bottom],
        [left, y],
      );
    default: {
      const rx = { stadium: height / 2, round: 9 }[shape] ?? 3;
      return svg("rect", { x: left, y: top, width, height, rx });
    }
  }
}

function edgeParts({ from, to, line, arrow }, points, boxes, label, { across, aside }) {
  if (from === to) points = around(points[0], boxes[from]);
  else {
    const way = { across, aside };
    points[0] = border(points[0], boxes[from], points[1], way);
    points[points.length - 1] = border(points.at(-1), boxes[to], points.at(-2), way);
  }
  const path = svg("path", {
    class: `diagram-line diagram-${line}`,
    d: curve(points, across && from !== to),
  });
  const end = points.at(-1);
  const before = points.at(-2);
  const along = across
    ? [Math.sign(end.x - before.x) || 1, 0]
    : [0, Math.sign(end.y - before.y) || 1];
  const angle = from === to ? Math.PI : Math.atan2(along[1], along[0]);
  const middle =
    points.length % 2
      ? points[(points.length - 1) / 2]
      : between(points[points.length / 2 - 1], points[points.length / 2]);
  return [
    path,
    ...(arrow ? [arrowHead(end.x, end.y, angle)] : []),
    ...(label ? [labelParts(label, middle)] : []),
  ];
}

const between = (one, other) => ({ x: (one.x + other.x) / 2, y: (one.y + other.y) / 2 });

function labelParts(label, { x, y }) {
  const [width, height] = [label.width + 8, label.height + 2];
  return svg(
    "g",
    { class: "diagram-label" },
    svg("rect", { x: x - width / 2, y: y - height / 2, width, height, rx: 4 }),
    textNode(label, x, y),
  );
}

/** Where an edge leaves a box: on the side that faces the other end. The sides of a diamond fall off
 * from its middle. */
function border({ x, y }, { width, height, pointed = false }, other, { across, aside }) {
  const [along, wide] = across ? [width / 2, height / 2] : [height / 2, width / 2];
  const reach = pointed ? along * (1 - Math.abs(aside) / wide) : along;
  if (across) return { x: x + (Math.sign(other.x - x) || 1) * reach, y };
  return { x, y: y + (Math.sign(other.y - y) || 1) * reach };
}

/** The way of an edge that leads back to its own box. */
function around({ x, y }, { width, height }) {
  const right = x + width / 2;
  return [
    { x: right, y: y - height / 4 },
    { x: right + 24, y: y - height / 4 },
    { x: right + 24, y: y + height / 4 },
    { x: right, y: y + height / 4 },
  ];
}

function curve(points, across) {
  const round = (value) => value.toFixed(1);
  let path = `M${round(points[0].x)},${round(points[0].y)}`;
  points.slice(1).forEach((point, index) => {
    const last = points[index];
    const middle = between(last, point);
    const bends = across
      ? [middle.x, last.y, middle.x, point.y]
      : [last.x, middle.y, point.x, middle.y];
    path += `C${bends.map(round).join(",")},${round(point.x)},${round(point.y)}`;
  });
  return path;
}
