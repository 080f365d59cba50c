// The replicas of a model on a cluster: what each of them is doing. A single server has none.

import { element } from "../dom.js";
import { brief } from "./scale.js";

/** A line for each replica. */
export function replicaRows(model) {
  return (model?.replicas ?? []).map((replica) => {
    const { name, running, slots, waiting, cache_blocks: blocks, cache_blocks_held: held } = replica;
    const cache = blocks ? `${brief((100 * held) / blocks)}% of the cache` : "";
    return element(
      "li",
      {},
      element("span", {}, name),
      element("span", {}, `${running} of ${slots} running`),
      element("span", {}, `${waiting} waiting`),
      element("span", {}, cache),
    );
  });
}
