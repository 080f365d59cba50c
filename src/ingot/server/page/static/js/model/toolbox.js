// The tools that a model may call: those that the user describes in the settings, and those of the
// server's MCP servers that the conversation uses. Settings come in, the tools of a request go out.

import { callTool, mcpServers } from "../api/client.js";
import { Failure } from "../api/failure.js";
import { Signal } from "../signal.js";

const ROUNDS = 10; // of calls without asking the user again

export class Toolbox {
  #servers = []; // as the server lists them; none if MCP is off

  changed = new Signal();

  get servers() {
    return this.#servers;
  }

  /** Learn the MCP servers. A server without MCP has none. */
  async learn() {
    this.#servers = await mcpServers().catch(() => []);
    this.changed.emit();
  }

  /** The tools of a request; throws a Failure if the user's own tools are not valid. */
  requestFields(settings) {
    const own = toolsFrom(settings.tools ?? "");
    const names = new Set(own.map((tool) => tool.function.name));
    const others = this.#offered(settings)
      .filter(({ name }) => !names.has(name))
      .map(({ name, description, schema }) => ({
        type: "function",
        function: { name, description, parameters: schema },
      }));
    const tools = [...own, ...others];
    return tools.length ? { tools } : {};
  }

  /** The MCP tool that a model calls by this name: {server, tool}, or null. */
  find(settings, name) {
    if (isOwn(settings, name)) return null;
    return this.#offered(settings).find((one) => one.name === name) ?? null;
  }

  /** Run a call of an MCP tool: {text, failed}. Never throws. */
  async run({ server, tool }, text) {
    try {
      const result = await callTool(server, tool, JSON.parse(text || "{}"));
      return { text: result.text, failed: result.is_error };
    } catch (error) {
      return { text: `The call failed: ${error.message}`, failed: true };
    }
  }

  /** The tools of the servers that a conversation uses; a name that two have gets its server's. */
  #offered({ mcp = [] }) {
    const all = this.#servers
      .filter(({ name }) => mcp.includes(name))
      .flatMap(({ name: server, tools }) =>
        tools.map(({ name: tool, description, input_schema: schema }) => ({
          server,
          tool,
          description,
          schema,
        })),
      );
    const count = Map.groupBy(all, ({ tool }) => tool);
    return all.map((one) => {
      const name = count.get(one.tool).length > 1 ? `${one.server}_${one.tool}` : one.tool;
      return { ...one, name: name.replace(/[^\w-]/g, "_").slice(0, 64) };
    });
  }
}

/** Whether the user has described a tool of this name. */
function isOwn({ tools = "" }, name) {
  try {
    return toolsFrom(tools).some((tool) => tool.function.name === name);
  } catch {
    return false; // the next request says what is wrong with them
  }
}

/** Whether calls after this message may run without asking: not after many rounds of them. */
export function mayRunAlone(conversation, node) {
  let rounds = 0;
  for (let at = node; at?.calls; at = conversation.parent(at)) rounds += 1;
  return rounds % ROUNDS !== 0;
}

/** The user's own tools, in OpenAI's form or as plain functions. Throws a Failure. */
export function toolsFrom(text) {
  if (!text.trim()) return [];
  let listed;
  try {
    listed = JSON.parse(text);
  } catch (error) {
    throw new Failure("other", `The tools in the settings are not JSON: ${error.message}.`);
  }
  return (Array.isArray(listed) ? listed : [listed]).map((entry) => {
    const described = entry?.function ?? entry;
    if (typeof described?.name !== "string" || !described.name)
      throw new Failure("other", "A tool in the settings has no name.");
    return { type: "function", function: described };
  });
}

/** The messages of an answer with calls: the calls, then their results. */
export function callMessages({ content, calls }) {
  const tool_calls = calls.map(({ id, name, text }) => ({
    id,
    type: "function",
    function: { name, arguments: text },
  }));
  const results = calls.map(({ id, result }) => ({
    role: "tool",
    tool_call_id: id,
    content: result?.text ?? "The user did not run this call.",
  }));
  return [{ role: "assistant", content: content || null, tool_calls }, ...results];
}
