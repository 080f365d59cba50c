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

const postJson = (path, body, signal) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

const getJson = (path) => ask(path).then((response) => response.json());

/** The models that the server offers, as it lists them. */
export const listModels = async () => (await getJson("v1/models")).data;

export const loadModel = (model) => postJson("models/load", { model });
export const unloadModel = (model) => postJson("models/unload", { model });

/** Whether the server downloads models for clients, and the downloads under way. */
export const modelDownloads = () => getJson("models/downloads");

export const downloadModel = (model) => postJson("models/download", { model });
export const cancelDownload = (model) => postJson("models/download/cancel", { model });

/** What happens to the models, as it happens. */
export async function* modelEvents(signal) {
  for await (const data of eventData(await ask("models/sse", { signal }))) yield JSON.parse(data);
}

/** The default settings of a model (llama-server's `/props`), which is not loaded for that. */
export async function samplingDefaults(model) {
  const path = `props?model=${encodeURIComponent(model)}`;
  const settings = (await getJson(path)).default_generation_settings ?? {};
  return settings.params ?? settings;
}

/** Counters and gauges of every model. */
export const serverStatus = () => getJson("api/status");

/** The same of the last two minutes, oldest first. */
export const serverHistory = async () => (await getJson("api/status/history")).samples;

/** The text of a PDF, whose bytes are given in base64. */
export const pdfText = async (data) =>
  (await (await postJson("api/pdf-text", { data })).json()).text;

/** The MCP servers with their tools; fails if the server has none. */
export const mcpServers = async () => (await getJson("mcp/servers")).data;

export const callTool = async (server, tool, args) =>
  (await postJson("mcp/call", { server, tool, arguments: args })).json();

/** The chunks of an answer, as they arrive. */
export async function* chatChunks(body, signal) {
  const streamed = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await postJson("v1/chat/completions", streamed, signal);
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
