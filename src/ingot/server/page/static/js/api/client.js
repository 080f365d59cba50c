// The server's endpoints. Addresses are relative, so that the page works under any prefix.
// Every error leaves this module as a Failure.

import { Failure, failureOfError, failureOfException, failureOfResponse } from "./failure.js";
import { eventData } from "./sse.js";

const KEY = "ingot/key";

export const apiKey = {
  get: () => localStorage.getItem(KEY) ?? "",
  set: (key) => (key ? localStorage.setItem(KEY, key) : localStorage.removeItem(KEY)),
};

async function ask(path, options = {}) {
  const headers = { ...options.headers };
  if (apiKey.get()) headers.Authorization = `Bearer ${apiKey.get()}`;
  let response;
  try {
    response = await fetch(path, { ...options, headers, cache: "no-store" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw failureOfException(error);
  }
  if (!response.ok) throw await failureOfResponse(response);
  return response;
}

const getJson = (path) => ask(path).then((response) => response.json());

/** The names of the models that the server offers. */
export const modelNames = async () => (await getJson("v1/models")).data.map((model) => model.id);

/** The server's default settings (llama-server's `/props`). */
export async function samplingDefaults() {
  const settings = (await getJson("props")).default_generation_settings ?? {};
  return settings.params ?? settings;
}

/** Counters and gauges of every model. */
export const serverStatus = () => getJson("api/status");

/** The chunks of an answer, as they arrive. */
export async function* chatChunks(body, signal) {
  const response = await ask("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  try {
    for await (const data of eventData(response)) {
      if (data === "[DONE]") return;
      const chunk = JSON.parse(data);
      if (chunk.error) throw failureOfError(chunk.error);
      yield chunk;
    }
  } catch (error) {
    if (error instanceof Failure || error.name === "AbortError") throw error;
    throw new Failure("cut", String(error.message ?? error));
  }
  throw new Failure("cut", "The stream ended without its last event.");
}
