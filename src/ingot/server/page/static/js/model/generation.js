// One answer being generated: a conversation and an answer come in, the stream fills the answer. An
// answer with content is continued where it ends. `changed` is emitted for views, `due` when it should be stored.

import { chatChunks } from "../api/client.js";
import { Failure, failureOfException } from "../api/failure.js";
import { Signal } from "../signal.js";
import { loadTokens, saveTokens } from "./storage.js";
import { requestFields } from "./sampling.js";
import { tokensOf } from "./tokens.js";

const ALTERNATIVES = 8;
const TRIES = 6; // of a request that the queue has no room for
const SAVE_EVERY = 2000; // milliseconds

export class Generation {
  #abort = new AbortController();
  #saved = performance.now();
  #took = false; // whether the stream has begun

  changed = new Signal();
  due = new Signal();
  tokens;
  progress = null; // of the prompt: {total, processed}, in tokens
  retryAt = null; // when a full queue is asked again

  /** `toolFields(settings)` gives the tools of the request. */
  constructor(conversation, node, toolFields = () => ({})) {
    this.toolFields = toolFields;
    this.conversation = conversation;
    this.node = node;
    this.continues = node.content !== "";
    this.tokens = this.continues ? loadTokens(node.id) : [];
    this.before = {
      written: node.usage?.written ?? 0,
      tokens: this.tokens.length,
      times: node.times,
    };
    delete node.usage;
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
    node.usage ??= {
      prompt: null,
      written: this.#written(this.tokens.length - this.before.tokens),
    };
    if (this.tokens.length) saveTokens(node.id, this.tokens);
    this.conversation.touch();
    this.changed.emit();
  }

  async #untilTaken() {
    for (let tries = 1; ; tries += 1) {
      try {
        return await this.#stream();
      } catch (error) {
        if (error.kind !== "busy" || tries === TRIES || this.#took) throw error;
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
      ...this.toolFields(conversation.settings),
      messages: conversation.messagesUpTo(this.continues ? node : conversation.parent(node)),
      ...(this.continues ? { continue_final_message: true } : {}),
      logprobs: true,
      top_logprobs: ALTERNATIVES,
      return_progress: true,
    };
    for await (const chunk of chatChunks(body, this.#abort.signal)) {
      node.model = chunk.model ?? node.model;
      if (chunk.usage) {
        const { prompt_tokens: prompt, completion_tokens: written } = chunk.usage;
        node.usage = { prompt: prompt - this.before.written, written: this.#written(written) };
      }
      const choice = chunk.choices?.[0];
      if (!choice) continue;
      this.progress = chunk.prompt_progress ?? this.progress;
      this.#take(choice);
      const now = performance.now();
      if (first === null && this.#took) first = now;
      if (first !== null) node.times = this.#times(began, first, now);
      this.changed.emit();
      this.#saveNowAndThen();
    }
    if (node.finish === null) throw new Failure("cut", "The stream ended without a finish reason.");
  }

  /** Tokens of the whole answer, after `more` of this stream. A stopped stream does not say. */
  #written(more) {
    return this.before.written + more;
  }

  /** Seconds; those of a continued answer add up. */
  #times(began, first, now) {
    const { times } = this.before;
    const writing = (now - first) / 1000;
    return {
      first: times?.first ?? (first - began) / 1000,
      writing: writing + (times?.writing ?? 0),
      thought: this.node.content ? this.node.times?.thought : writing,
    };
  }

  #take({ delta = {}, logprobs, finish_reason: reason }) {
    const { node } = this;
    const thought = delta.reasoning_content ?? "";
    node.reasoning += thought;
    node.content += delta.content ?? "";
    if (thought || delta.content) this.#took = true;
    for (const { index, id, function: part = {} } of delta.tool_calls ?? []) {
      node.calls ??= [];
      const call = (node.calls[index] ??= { id, name: "", text: "" });
      call.name += part.name ?? "";
      call.text += part.arguments ?? "";
      this.#took = true;
    }
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
