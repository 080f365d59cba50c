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

/** A stored token as an object. */
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

/** Perplexity: exp of the mean negative logprob. */
export function perplexity(tokens) {
  const sum = tokens.reduce((total, [, logprob]) => total + logprob, 0);
  return tokens.length ? Math.exp(-sum / tokens.length) : null;
}

/** A token's text with visible spaces. */
export const visible = (text) =>
  text.replaceAll("\n", "↵").replaceAll("\t", "⇥").replaceAll(" ", "␣") || "∅";
