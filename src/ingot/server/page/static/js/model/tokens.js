// Tokens in the short form that the page stores, because an answer has many. The logprobs of a
// chunk in OpenAI's form come in; [text, logprob, alternatives, thought] goes out.

const DIGITS = 4;
const short = (logprob) => Number(Math.max(logprob, -99).toFixed(DIGITS));

/** The tokens of one chunk. */
export function tokensOf(logprobs, thought) {
  return (logprobs?.content ?? []).map((entry) => {
    const others = (entry.top_logprobs ?? []).map((other) => [textOf(other), short(other.logprob)]);
    return [textOf(entry), short(entry.logprob), others, thought ? 1 : 0];
  });
}

/** A token's text, or its bytes if it is only part of a character. */
function textOf({ token, bytes }) {
  if (!token.includes("\ufffd") || !bytes) return token;
  return bytes.map((byte) => `⟨${byte.toString(16).padStart(2, "0")}⟩`).join("");
}

/** A stored token as an object, with the probabilities that it has at a temperature. */
export function read([text, logprob, others, thought], temperature = 1) {
  const known = others.map(([other, value]) => ({
    text: other,
    logprob: value,
    chosen: other === text,
  }));
  const listed = known.some(({ chosen }) => chosen);
  if (!listed) known.push({ text, logprob, chosen: true });
  const { probabilities, rest } = weigh(
    known.map((one) => one.logprob),
    temperature,
  );
  const alternatives = known.map((one, index) => ({ ...one, probability: probabilities[index] }));
  const rank = listed ? known.findIndex(({ chosen }) => chosen) + 1 : null;
  const { probability } = alternatives.find(({ chosen }) => chosen);
  const facts = { text, logprob, probability, alternatives, rest, rank };
  return { ...facts, likeliest: rank === 1, thought: thought === 1 };
}

/** Probabilities of the known tokens at a temperature, and `rest`, that of all others together. The
 * others are not known one by one. They count as if each were as likely as the least likely known
 * token, so that `rest` is exact at temperature 1 and an estimate elsewhere. */
function weigh(logprobs, temperature) {
  const most = Math.max(...logprobs);
  if (temperature === 0) {
    const best = logprobs.indexOf(most);
    return { probabilities: logprobs.map((_, index) => (index === best ? 1 : 0)), rest: 0 };
  }
  const weight = (logprob) => Math.exp((logprob - most) / temperature);
  const unknown = Math.max(0, 1 - logprobs.reduce((sum, one) => sum + Math.exp(one), 0));
  const least = Math.min(...logprobs);
  const others = (unknown / Math.exp(least)) * weight(least);
  const total = logprobs.reduce((sum, one) => sum + weight(one), others);
  return { probabilities: logprobs.map((one) => weight(one) / total), rest: others / total };
}

/** Perplexity: exp of the mean negative logprob. */
export function perplexity(tokens) {
  const sum = tokens.reduce((total, [, logprob]) => total + logprob, 0);
  return tokens.length ? Math.exp(-sum / tokens.length) : null;
}

/** A token's text with visible spaces. */
export const visible = (text) =>
  text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
