// The settings that a request can carry: one table for the panel that shows them and for the
// request that sends them. A setting without a value is not sent: the server decides.

export const NUMBERS = [
  {
    name: "temperature",
    label: "Temperature",
    min: 0,
    max: 2,
    step: 0.05,
    hint: "0 always takes the likeliest token; higher is bolder.",
  },
  {
    name: "top_p",
    label: "Top p",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "Keep the likeliest tokens that together reach this probability.",
  },
  {
    name: "top_k",
    label: "Top k",
    min: 0,
    max: 200,
    step: 1,
    hint: "Keep this many of the likeliest tokens; 0 keeps all.",
  },
  {
    name: "min_p",
    label: "Min p",
    min: 0,
    max: 1,
    step: 0.01,
    hint: "Drop tokens less likely than this share of the likeliest.",
  },
  {
    name: "repeat_penalty",
    label: "Repeat penalty",
    min: 0.5,
    max: 2,
    step: 0.01,
    hint: "Above 1 makes tokens that were used less likely.",
  },
];

export const WHOLE = [
  { name: "max_tokens", label: "Longest answer", min: 1, hint: "In tokens." },
  { name: "seed", label: "Seed", min: 0, hint: "The same seed gives the same answer." },
];

/** The fields of a request that a conversation's settings stand for. */
export function requestFields(settings) {
  const fields = {};
  if (settings.model) fields.model = settings.model;
  for (const { name } of [...NUMBERS, ...WHOLE]) {
    if (settings[name] !== undefined) fields[name] = settings[name];
  }
  if (settings.stop?.length) fields.stop = settings.stop;
  return fields;
}
