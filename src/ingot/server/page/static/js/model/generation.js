// One answer being generated: a conversation and its empty answer come in, the stream fills it.
// `changed` is emitted for views, `due` when it should be stored.

import { chatChunks } from "../api/client.js";
import { Failure, failureOfException } from "../api/failure.js";
import { Signal } from "../signal.js";
import { saveTokens } from "./storage.js";
import { requestFields } from "./sampling.js";
import { tokensOf } from "./tokens.js";

const ALTERNATIVES = 5;
const TRIES = 6; // of a request that the queue has no room for
const SAVE_EVERY = 2000; // milliseconds

export class Generation {
  #abort = new AbortController();
  #saved = performance.now();

  changed = new Signal();
  due = new Signal();
  tokens = [];
  retryAt = null; // when a full queue is asked again

  constructor(conversation, node) {
    this.conversation = conversation;
    this.node = node;
    node.model = conversation.settings.model ?? null;
  }

  /** Stop generating; the text so far stays. */
  stop() {
    this.#abort.abort();
  }

  /** Generate the answer. Never throws: errors are in `node.failure`. */
  async run() {
    const { node } = this;
    try {
      await this.#untilTaken();
    } catch (error) {
      if (this.#abort.signal.aborted) {
        node.finish = "stopped";
      } else {
        const { kind, message } = failureOfException(error);
        node.finish = "failed";
        node.failure = { kind, message };
      }
    }
    this.retryAt = null;
    node.usage ??= { prompt: null, written: this.tokens.length }; // a stopped stream does not tell
    if (this.tokens.length) saveTokens(node.id, this.tokens);
    this.conversation.touch();
    this.changed.emit();
  }

  async #untilTaken() {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#stream();
      } catch (error) {
        if (error.kind !== "busy" || tries === TRIES || this.node.content) throw error;
        await this.#wait(error.retryAfter ?? tries);
      }
    }
  }

  async #stream() {
    const { conversation, node } = this;
    const began = performance.now();
    let first = null;
    const body = {
      ...requestFields(conversation.settings),
      messages: conversation.messagesUpTo(conversation.parent(node)),
      logprobs: true,
      top_logprobs: ALTERNATIVES,
    };
    for await (const chunk of chatChunks(body, this.#abort.signal)) {
      node.model = chunk.model ?? node.model;
      if (chunk.usage) {
        const { prompt_tokens: prompt, completion_tokens: written } = chunk.usage;
        node.usage = { prompt, written };
      }
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      this.#take(choice);
      const now = performance.now();
      if (first === null && (node.content || node.reasoning)) first = now;
      if (first !== null) {
        const thought = node.content ? node.times?.thought : (now - first) / 1000;
        node.times = { first: (first - began) / 1000, writing: (now - first) / 1000, thought };
      }
      this.changed.emit();
      this.#saveNowAndThen();
    }
    if (node.finish === null) throw new Failure("cut", "The stream ended without a finish reason.");
  }

  #take({ delta = {}, logprobs, finish_reason: reason }) {
    const { node } = this;
    const thought = delta.reasoning_content ?? "";
    node.reasoning += thought;
    node.content += delta.content ?? "";
    this.tokens.push(...tokensOf(logprobs, thought !== ""));
    if (reason) node.finish = reason;
  }

  #saveNowAndThen() {
    if (performance.now() - this.#saved < SAVE_EVERY) return;
    this.#saved = performance.now();
    this.due.emit();
  }

  async #wait(seconds) {
    this.retryAt = Date.now() + seconds * 1000;
    const { signal } = this.#abort;
    while (Date.now() < this.retryAt) {
      this.changed.emit();
      const rest = Math.min(500, this.retryAt - Date.now());
      await new Promise((resolve) => setTimeout(resolve, rest));
      signal.throwIfAborted();
    }
    this.retryAt = null;
    this.changed.emit();
  }
}
