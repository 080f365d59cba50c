// The sampling settings: one table for the panel that shows them and for the request that sends
// them. A setting without a value is not sent, so the server uses its default.

export const NUMBERS = [
  {
    name: "temperature",
    label: "Temperature",
    min: 0,
    max: 2,
    step: 0.05,
    hint: "0 always picks the most likely token; higher values vary more.",
  },
  {
    name: "top_p",
    label: "Top p",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "Keep the most likely tokens whose probabilities add up to this.",
  },
  {
    name: "top_k",
    label: "Top k",
    min: 0,
    max: 200,
    step: 1,
    hint: "Keep this many of the most likely tokens; 0 keeps all.",
  },
  {
    name: "min_p",
    label: "Min p",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "Drop tokens less likely than this fraction of the most likely one.",
  },
  {
    name: "repeat_penalty",
    label: "Repeat penalty",
    min: 0.5,
    max: 2,
    step: 0.01,
    hint: "Values above 1 make repeated tokens less likely.",
  },
];

export const WHOLE = [
  { name: "max_tokens", label: "Max tokens", min: 1, hint: "The longest answer, in tokens." },
  { name: "seed", label: "Seed", min: 0, hint: "The same seed gives the same answer." },
];

/** The fields of a request for a conversation's settings. */
export function requestFields(settings) {
  const fields = {};
  if (settings.model) fields.model = settings.model;
  for (const { name } of [...NUMBERS, ...WHOLE]) {
    if (settings[name] !== undefined) fields[name] = settings[name];
  }
  if (settings.stop?.length) fields.stop = settings.stop;
  return fields;
}
