// The clients in JavaScript: openai, Vercel's AI SDK, ollama. Prints what each found as JSON.
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";

const [url, modules, only = ""] = process.argv.slice(2); // `only`: steps whose names begin with it
const require = createRequire(pathToFileURL(`${modules}/package.json`));
const load = (name) => import(pathToFileURL(require.resolve(name)));
const { OpenAI } = await load("openai");
const { generateText, streamText, generateObject, tool, stepCountIs } = await load("ai");
const { createOpenAICompatible } = await load("@ai-sdk/openai-compatible");
const { Ollama } = await load("ollama");
const { z } = await load("zod");

const key = "sesame";
const [hello, weather, person] = ["Say hello.", "What is the weather in Rome?", "Give a person as JSON."];
const long = "word ".repeat(20000);
const user = (content) => [{ role: "user", content }];
const schema = {
  type: "object",
  properties: { name: { type: "string" }, age: { type: "integer" } },
  required: ["name", "age"],
  additionalProperties: false,
};
const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
const offered = [{ type: "function", function: { name: "get_weather", parameters } }];
let called = [];
const getWeather = ({ city }) => {
  called.push(city);
  return `sunny in ${city}`;
};
const errorOf = async (call) => {
  try {
    return { error: "", message: `no error, but ${JSON.stringify(await call())}` };
  } catch (error) {
    return { error: error.constructor.name, message: String(error.message) };
  }
};
const results = {};
const tell = async (client, steps) => {
  results[client] = {};
  for (const [name, step] of Object.entries(steps)) {
    if (!name.startsWith(only)) continue;
    called = [];
    results[client][name] = await step();
    if (name === "tools") results[client]["tools called"] = called;
  }
};

const openai = new OpenAI({ baseURL: `${url}/v1`, apiKey: key, maxRetries: 0 });
const ask = (messages, more = {}) => openai.chat.completions.create({ model: "any", messages, ...more });
await tell("openai", {
  chat: async () => (await ask(user(hello))).choices[0].message.content,
  stream: async () => {
    let text = "";
    for await (const chunk of await ask(user(hello), { stream: true })) text += chunk.choices[0].delta.content ?? "";
    return text;
  },
  structured: async () => {
    const response_format = { type: "json_schema", json_schema: { name: "person", schema } };
    return JSON.parse((await ask(user(person), { response_format })).choices[0].message.content);
  },
  tools: async () => {
    const runner = openai.chat.completions.runTools({
      model: "any",
      messages: user(weather),
      tools: [
        {
          type: "function",
          function: { name: "get_weather", parse: JSON.parse, function: getWeather, parameters, description: "The weather." },
        },
      ],
    });
    return await runner.finalContent();
  },
  error: () => errorOf(() => ask(user(long))),
});

const model = createOpenAICompatible({ name: "ingot", baseURL: `${url}/v1`, apiKey: key, supportsStructuredOutputs: true })("any");
await tell("ai", {
  chat: async () => (await generateText({ model, prompt: hello, maxRetries: 0 })).text,
  stream: async () => {
    let text = "";
    for await (const part of streamText({ model, prompt: hello }).textStream) text += part;
    return text;
  },
  structured: async () =>
    (await generateObject({ model, prompt: person, schema: z.object({ name: z.string(), age: z.number().int() }) })).object,
  tools: async () => {
    const get_weather = tool({ description: "The weather.", inputSchema: z.object({ city: z.string() }), execute: getWeather });
    return (await generateText({ model, prompt: weather, tools: { get_weather }, stopWhen: stepCountIs(3) })).text;
  },
  error: () => errorOf(() => generateText({ model, prompt: long, maxRetries: 0 })),
});

const ollama = new Ollama({ host: url, headers: { Authorization: `Bearer ${key}` } });
await tell("ollama", {
  chat: async () => (await ollama.chat({ model: "any", messages: user(hello) })).message.content,
  stream: async () => {
    let text = "";
    for await (const part of await ollama.chat({ model: "any", messages: user(hello), stream: true })) text += part.message.content;
    return text;
  },
  structured: async () =>
    JSON.parse((await ollama.chat({ model: "any", messages: user(person), format: schema })).message.content),
  tools: async () => {
    const messages = user(weather);
    for (;;) {
      const { message } = await ollama.chat({ model: "any", messages, tools: offered });
      if (!message.tool_calls?.length) return message.content;
      messages.push(message);
      for (const call of message.tool_calls)
        messages.push({ role: "tool", tool_name: call.function.name, content: getWeather(call.function.arguments) });
    }
  },
  generate: async () => (await ollama.generate({ model: "any", prompt: hello })).response,
  generate_stream: async () => {
    let text = "";
    for await (const part of await ollama.generate({ model: "any", prompt: hello, stream: true })) text += part.response;
    return text;
  },
  embed: async () => (await ollama.embed({ model: "any", input: [hello, weather] })).embeddings.map((one) => Math.hypot(...one)),
  tags: async () => (await ollama.list()).models.map(({ name }) => name),
  error: () => errorOf(() => ollama.chat({ model: "any", messages: user(long) })),
});
console.log(JSON.stringify(results));
