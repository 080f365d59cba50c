// Recent history: the server's counters come in, gauges and rates go out as samples.
// A rate is the difference of two states, so the first state gives none.

export const WINDOW = 120; // seconds that are kept

const COUNTERS = [
  "generated_tokens",
  "prompt_tokens",
  "reused_tokens",
  "steps",
  "text_steps",
  "guessed_tokens",
  "accepted_tokens",
];

export class History {
  samples = [];
  #before = null;

  /** Take the state of a model at a time in seconds. */
  take(at, model) {
    const before = this.#before;
    this.#before = { at, model };
    const restarted = before && COUNTERS.some((name) => model[name] < before.model[name]);
    if (!before || restarted || at <= before.at) return;
    const more = (name) => model[name] - before.model[name];
    const rate = (name) => more(name) / (at - before.at);
    this.samples.push({
      at,
      generated: rate("generated_tokens"),
      prompt: rate("prompt_tokens"),
      reused: rate("reused_tokens"),
      running: model.running,
      waiting: model.waiting,
      batch: ratio(more("text_steps"), more("steps")),
      perStep: ratio(more("generated_tokens"), more("text_steps")),
      accepted: share(more("accepted_tokens"), more("guessed_tokens")),
      held: share(model.cache_blocks_held, model.cache_blocks),
      kept: share(model.cache_blocks_kept, model.cache_blocks),
    });
    while (this.samples[0].at < at - WINDOW - 2) this.samples.shift();
  }
}

const ratio = (part, whole) => (whole ? part / whole : 0);
const share = (part, whole) => 100 * ratio(part, whole);
