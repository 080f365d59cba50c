// What is said about an answer in one line: the model, the number of tokens and the speed.

const SHORTEST = 0.05; // seconds of writing that say something about speed

export function factsOf({ model, usage, times, finish }) {
  const facts = [];
  if (model) facts.push(model);
  if (usage?.written) facts.push(`${usage.written} tokens`);
  if (usage?.written > 1 && times?.writing > SHORTEST)
    facts.push(`${((usage.written - 1) / times.writing).toFixed(1)} per second`);
  if (times) facts.push(`first after ${times.first.toFixed(2)} s`);
  if (finish === "stopped" || finish === "edited") facts.push(finish);
  return facts.map((fact) => fact.replaceAll(" ", "\u00a0")).join(" · "); // a fact is not broken
}
