// Tokens as the page keeps them: short, because an answer has many. The log probabilities of a
// chunk, as OpenAI shapes them, come in; [text, logprob, alternatives, thought] goes out.

const DIGITS = 4;
const short = (logprob) => Number(Math.max(logprob, -99).toFixed(DIGITS));

/** The tokens of one chunk. */
export function tokensOf(logprobs, thought) {
  return (logprobs?.content ?? []).map((entry) => {
    const others = (entry.top_logprobs ?? []).map((other) => [textOf(other), short(other.logprob)]);
    return [textOf(entry), short(entry.logprob), others, thought ? 1 : 0];
  });
}

/** A token's text; one that is a part of a character is written as its bytes. */
function textOf({ token, bytes }) {
  if (!token.includes("\ufffd") || !bytes) return token;
  return bytes.map((byte) => `⟨${byte.toString(16).padStart(2, "0")}⟩`).join("");
}

/** A kept token by its names. */
export function read([text, logprob, others, thought]) {
  const probability = Math.exp(logprob);
  const alternatives = others.map(([other, value]) => ({
    text: other,
    probability: Math.exp(value),
    chosen: other === text,
  }));
  if (!alternatives.some(({ chosen }) => chosen)) {
    alternatives.push({ text, probability, chosen: true });
  }
  const likeliest = alternatives[0].chosen;
  return { text, logprob, probability, alternatives, likeliest, thought: thought === 1 };
}

/** exp of the mean surprise: between how many words the model was in doubt, on average. */
export function perplexity(tokens) {
  const sum = tokens.reduce((total, [, logprob]) => total + logprob, 0);
  return tokens.length ? Math.exp(-sum / tokens.length) : null;
}

/** A token's text with its spaces to be seen. */
export const visible = (text) =>
  text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
