// Where the nodes of a flowchart go: layers from the start to the end, nodes of a layer in an order
// with few crossings. Edges over several layers pass through points of their own. The chart comes in;
// layers of placed boxes and the points of each edge go out, as if the chart went downwards.

const BETWEEN = 28; // pixels between two boxes of a layer
const LAYERS = 52; // pixels between two layers
const SWEEPS = 8;

/** boxes: {id: {width, height}}. Returns {places: {id: {x, y}}, paths: [[{x, y}]], width, height}. */
export function layFlow({ nodes, edges }, boxes) {
  const forward = withoutCycles(nodes, edges);
  const rank = ranksOf(nodes, forward);
  const size = new Map(nodes.map(({ id }) => [id, boxes[id]]));
  const chains = forward.map((edge) => chainOf(edge, rank, size));
  const layers = [];
  for (const [id, at] of rank) (layers[at] ??= []).push(id);
  order(layers, chains);
  const { places, width, height } = coordinates(layers, size, chains);
  const paths = chains.map((chain, index) => {
    const points = chain.map((id) => places.get(id));
    return forward[index].turned ? points.toReversed() : points;
  });
  return { places, paths, width, height };
}

/** Edges in which one that leads back is turned around. An edge to itself stays. */
function withoutCycles(nodes, edges) {
  const state = new Map(); // 1: on the way, 2: done
  const turned = new Set();
  const leaving = Map.groupBy(edges, ({ from }) => from);
  const visit = (id) => {
    state.set(id, 1);
    for (const edge of leaving.get(id) ?? []) {
      if (state.get(edge.to) === 1) turned.add(edge);
      else if (!state.has(edge.to)) visit(edge.to);
    }
    state.set(id, 2);
  };
  for (const { id } of nodes) if (!state.has(id)) visit(id);
  return edges.map((edge) =>
    turned.has(edge)
      ? { from: edge.to, to: edge.from, turned: true }
      : { from: edge.from, to: edge.to },
  );
}

/** The layer of every node: the longest way to it. */
function ranksOf(nodes, edges) {
  const rank = new Map(nodes.map(({ id }) => [id, 0]));
  for (let changed = true, round = 0; changed && round <= nodes.length; round += 1) {
    changed = false;
    for (const { from, to } of edges) {
      if (from === to || rank.get(to) > rank.get(from)) continue;
      rank.set(to, rank.get(from) + 1);
      changed = true;
    }
  }
  return rank;
}

/** The nodes and points that an edge passes; new points get a layer and a size. */
function chainOf({ from, to }, rank, size) {
  const chain = [from];
  for (let at = rank.get(from) + 1; at < rank.get(to); at += 1) {
    const id = `\u0000${size.size}`;
    rank.set(id, at);
    size.set(id, { width: 12, height: 0 });
    chain.push(id);
  }
  return [...chain, to];
}

/** Order every layer by the mean place of its neighbours, down and up a few times. */
function order(layers, chains) {
  const links = chains.flatMap((chain) => chain.slice(1).map((id, index) => [chain[index], id]));
  const above = Map.groupBy(links, ([, to]) => to);
  const below = Map.groupBy(links, ([from]) => from);
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const down = sweep % 2 === 0;
    const place = new Map(layers.flatMap((layer) => layer.map((id, index) => [id, index])));
    for (const layer of down ? layers : layers.toReversed()) {
      const mean = new Map(
        layer.map((id, index) => {
          const near = ((down ? above : below).get(id) ?? []).map(([from, to]) =>
            place.get(down ? from : to),
          );
          return [id, near.length ? near.reduce((sum, one) => sum + one, 0) / near.length : index];
        }),
      );
      layer.sort((one, other) => mean.get(one) - mean.get(other));
      layer.forEach((id, index) => place.set(id, index));
    }
  }
}

function coordinates(layers, size, chains) {
  const places = new Map();
  let y = 0;
  for (const layer of layers) {
    const height = Math.max(...layer.map((id) => size.get(id).height));
    let x = 0;
    for (const id of layer) {
      const { width } = size.get(id);
      places.set(id, { x: x + width / 2, y: y + height / 2 });
      x += width + BETWEEN;
    }
    y += height + LAYERS;
  }
  settle(layers, size, chains, places);
  const left = Math.min(...[...places].map(([id, { x }]) => x - size.get(id).width / 2));
  for (const place of places.values()) place.x -= left;
  const width = Math.max(...[...places].map(([id, { x }]) => x + size.get(id).width / 2));
  return { places, width, height: y - LAYERS };
}

/** Move every node towards its neighbours, as far as the others of its layer allow. */
function settle(layers, size, chains, places) {
  const near = new Map([...places.keys()].map((id) => [id, []]));
  for (const chain of chains) {
    chain.slice(1).forEach((id, index) => {
      near.get(id).push(chain[index]);
      near.get(chain[index]).push(id);
    });
  }
  for (let round = 0; round < 3 * SWEEPS; round += 1) {
    for (const layer of round % 2 ? layers.toReversed() : layers) {
      const wanted = layer.map((id) => {
        const others = near
          .get(id)
          .filter((one) => one !== id)
          .map((one) => places.get(one).x);
        return others.length
          ? others.reduce((sum, one) => sum + one, 0) / others.length
          : places.get(id).x;
      });
      place(layer, wanted, size, places);
    }
  }
}

/** Put a layer at the wanted places, pushed apart where they are too near, and centred on them. */
function place(layer, wanted, size, places) {
  const gap = (index) =>
    (size.get(layer[index - 1]).width + size.get(layer[index]).width) / 2 + BETWEEN;
  const at = [...wanted];
  for (let index = 1; index < at.length; index += 1) {
    at[index] = Math.max(at[index], at[index - 1] + gap(index));
  }
  const shift = at.reduce((sum, x, index) => sum + wanted[index] - x, 0) / at.length;
  layer.forEach((id, index) => (places.get(id).x = at[index] + shift));
}
