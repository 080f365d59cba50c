// Errors between the page and the server, with their headings and advice.
// A response or an exception comes in; a Failure of a known kind goes out.

const CONTEXT =
  /context (length|size|window)|exceed\w*.*context|context.*(full|exceed)|too many tokens/i;

export class Failure extends Error {
  /** kind: "key", "busy", "context", "gone", "cut" or "other". */
  constructor(kind, message, retryAfter = null) {
    super(message);
    this.kind = kind;
    this.retryAfter = retryAfter; // seconds, if the server named them
  }
}

/** The failure of a response with an error status. */
export async function failureOfResponse(response) {
  const error = await response.json().then(
    (body) => body?.error ?? {},
    () => ({}),
  );
  const message = error.message ?? `The server responded with ${response.status} ${response.statusText}.`;
  if (response.status === 401 || response.status === 403) return new Failure("key", message);
  if (response.status === 429 || (response.status === 503 && response.headers.has("Retry-After"))) {
    const seconds = Number(response.headers.get("Retry-After"));
    return new Failure("busy", message, Number.isFinite(seconds) ? Math.max(1, seconds) : 2);
  }
  return failureOfError(error, message);
}

/** The failure of an error object in a stream. */
export function failureOfError(error, message = error?.message ?? "The server reported an error.") {
  const full = error?.code === "context_length_exceeded" || CONTEXT.test(message);
  return new Failure(full ? "context" : "other", message);
}

/** The failure of an exception of fetch. */
export function failureOfException(error) {
  if (error instanceof Failure) return error;
  if (error instanceof TypeError) return new Failure("gone", "No response from the server.");
  return new Failure("other", String(error?.message ?? error));
}

const HEADINGS = {
  key: "The server requires an API key",
  busy: "The server is busy",
  context: "The conversation is too long for this model",
  gone: "The server cannot be reached",
  cut: "The answer was cut short",
  other: "Something went wrong",
};
const ADVICE = {
  key: "Enter the API key that the server was started with.",
  busy: "The queue is full.",
  context: "Edit an earlier message, or start a new conversation.",
  gone: "Is it still running? Your message is kept here.",
  cut: "The connection closed before the end of the answer.",
  other: "",
};

export const heading = (kind) => HEADINGS[kind] ?? HEADINGS.other;
export const advice = (kind) => ADVICE[kind] ?? "";
