// The sampling settings: one table for the panel that shows them and for the request that sends
// them. A setting without a value is not sent, so the server uses its default.

import { Failure } from "../api/failure.js";

/** Groups of settings; those with a `step` have a slider. The first group is always visible. */
export const GROUPS = [
  {
    title: "Main",
    settings: [
      number(
        "temperature",
        "Temperature",
        0,
        2,
        0.05,
        "0 always picks the most likely token; higher values vary more.",
      ),
      number(
        "top_p",
        "Top p",
        0,
        1,
        0.01,
        "Keep the most likely tokens whose probabilities add up to this.",
      ),
      number("top_k", "Top k", 0, 200, 1, "Keep this many of the most likely tokens; 0 keeps all."),
      number(
        "min_p",
        "Min p",
        0,
        1,
        0.01,
        "Drop tokens less likely than this fraction of the most likely one.",
      ),
      number(
        "repeat_penalty",
        "Repeat penalty",
        0.5,
        2,
        0.01,
        "Values above 1 make repeated tokens less likely.",
      ),
      whole("max_tokens", "Max tokens", 1, "The longest answer, in tokens."),
      whole("seed", "Seed", 0, "The same seed gives the same answer."),
    ],
  },
  {
    title: "More filters",
    settings: [
      number(
        "typical_p",
        "Typical p",
        0.01,
        1,
        0.01,
        "Keep tokens whose surprise is near the average; 1 is off.",
      ),
      number(
        "tfs_z",
        "Tail free",
        0.01,
        1,
        0.01,
        "Drop the tail where probabilities flatten out; 1 is off.",
      ),
      number(
        "top_n_sigma",
        "Top n sigma",
        -1,
        5,
        0.1,
        "Keep tokens within n standard deviations of the best; -1 is off.",
      ),
      number(
        "xtc_probability",
        "XTC probability",
        0,
        1,
        0.01,
        "How often the most likely tokens are left out; 0 is off.",
      ),
      number(
        "xtc_threshold",
        "XTC threshold",
        0,
        0.5,
        0.01,
        "Only tokens above this probability can be left out.",
      ),
      number(
        "epsilon_cutoff",
        "Epsilon cutoff",
        0,
        0.1,
        0.001,
        "Drop tokens below this probability; 0 is off.",
      ),
      number(
        "eta_cutoff",
        "Eta cutoff",
        0,
        0.1,
        0.001,
        "As epsilon, lower if the model is unsure; 0 is off.",
      ),
      whole("min_keep", "Min keep", 0, "Tokens that every filter keeps."),
    ],
  },
  {
    title: "Penalties",
    settings: [
      whole(
        "repeat_last_n",
        "Repeat window",
        -1,
        "Tokens that the penalties look back; -1 is all.",
      ),
      number(
        "presence_penalty",
        "Presence penalty",
        -2,
        2,
        0.05,
        "Against tokens that occurred at all.",
      ),
      number(
        "frequency_penalty",
        "Frequency penalty",
        -2,
        2,
        0.05,
        "Against tokens, by how often they occurred.",
      ),
      number(
        "dry_multiplier",
        "DRY multiplier",
        0,
        5,
        0.05,
        "Against continuing a repetition; 0 is off.",
      ),
      number("dry_base", "DRY base", 1, 4, 0.05, "How fast the penalty grows with the repetition."),
      whole(
        "dry_allowed_length",
        "DRY allowed length",
        0,
        "Repetitions up to this length are free.",
      ),
      whole("dry_penalty_last_n", "DRY window", -1, "Tokens that DRY looks back; -1 is all."),
    ],
  },
  {
    title: "Temperature and Mirostat",
    settings: [
      number(
        "dynatemp_range",
        "Temperature range",
        0,
        2,
        0.05,
        "The temperature follows the entropy within this range.",
      ),
      number(
        "dynatemp_exponent",
        "Temperature exponent",
        0,
        5,
        0.1,
        "How the entropy becomes a temperature.",
      ),
      number(
        "mirostat",
        "Mirostat",
        0,
        2,
        1,
        "1 or 2 keeps the surprise constant, instead of filters.",
      ),
      number("mirostat_tau", "Mirostat tau", 0, 10, 0.1, "The surprise that Mirostat aims for."),
      number("mirostat_eta", "Mirostat eta", 0, 1, 0.01, "How fast Mirostat adapts."),
      number(
        "adaptive_target",
        "Adaptive target",
        -1,
        1,
        0.01,
        "The probability that adaptive-p aims for; -1 is off.",
      ),
      number("adaptive_decay", "Adaptive decay", 0, 0.99, 0.01, "How long adaptive-p remembers."),
    ],
  },
];

function number(name, label, min, max, step, hint) {
  return { name, label, min, max, step, hint };
}

function whole(name, label, min, hint) {
  return { name, label, min, hint };
}

/** The names of everything that "Reset" clears and a preset holds. */
export const NAMES = [
  ...GROUPS.flatMap(({ settings }) => settings.map(({ name }) => name)),
  "stop",
  "samplers",
  "format",
];

/** The fields of a request for a conversation's settings. */
export function requestFields(settings) {
  const fields = {};
  if (settings.model) fields.model = settings.model;
  for (const { name } of GROUPS.flatMap((group) => group.settings)) {
    if (settings[name] !== undefined) fields[name] = settings[name];
  }
  if (settings.stop?.length) fields.stop = settings.stop;
  if (settings.samplers?.length) fields.samplers = settings.samplers;
  return { ...fields, ...formatFields(settings.format) };
}

/** The forms that an answer can have. */
export const FORMATS = [
  { kind: "text", label: "Any text" },
  { kind: "json", label: "JSON" },
  { kind: "schema", label: "JSON schema", example: '{"type": "object", "properties": {…}}' },
  { kind: "grammar", label: "Grammar (GBNF)", example: 'root ::= "yes" | "no"' },
];

function formatFields({ kind, text = "" } = {}) {
  switch (kind) {
    case "json":
      return { response_format: { type: "json_object" } };
    case "schema": {
      const json_schema = { name: "answer", schema: schemaFrom(text) };
      return { response_format: { type: "json_schema", json_schema } };
    }
    case "grammar":
      return { grammar: text };
    default:
      return {};
  }
}

/** What is wrong with the text of a format, or null. */
export function formatProblem({ kind, text = "" }) {
  if (kind === "grammar") return text.trim() ? null : "Enter a grammar.";
  if (kind !== "schema") return null;
  try {
    schemaFrom(text);
  } catch (failure) {
    return failure.message;
  }
  return null;
}

function schemaFrom(text) {
  try {
    return JSON.parse(text);
  } catch (error) {
    throw new Failure("other", `The JSON schema in the settings is not JSON: ${error.message}.`);
  }
}
