"""What the fake server of the page's tests writes, by a word in the question.

A question comes in; tokens go out, each with made-up alternatives. The same question always gets
the same tokens.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from zlib import crc32

HOSTILE = (
    "Here is some markup: <script>window.broken = 1</script> and "
    '<img src=x onerror="window.broken = 2"> and [a link](javascript:window.broken=3) '
    "and <b>bold</b>.\n\n<svg onload=window.broken=4></svg>\n\n"
    "```html\n<script>window.broken = 5</script>\n```\n\n"
    "| cell |\n|---|\n| <img src=y onerror=window.broken=6> |\n"
)
RICH = """\
A palindrome reads the same **forwards and backwards**. The idea: every palindrome has a *centre*, \
so try each one and walk outwards.

```python
def longest_palindrome(text: str) -> str:
    # Each centre is a letter or the gap between two.
    best = ""
    for centre in range(len(text)):
        for width in (0, 1):
            left, right = centre, centre + width
            while left >= 0 and right < len(text) and text[left] == text[right]:
                left, right = left - 1, right + 1
            best = max(best, text[left + 1:right], key=len)
    return best
```

## How fast is it?

| approach | time | space |
|---|---:|---:|
| every substring | `O(n³)` | `O(1)` |
| from each centre | `O(n²)` | `O(1)` |
| Manacher | `O(n)` | `O(n)` |

1. Walking outwards costs at most `n` steps a centre.
2. There are `2n` centres:
   - `n` letters,
   - and the gaps between them.

> Simple first. For a text of a few thousand letters this is instant.

Read more about [palindromes](https://example.org/palindromes).
"""
FIGURES = r"""
The roots of $ax^2 + bx + c = 0$ are

$$
x_{1,2} = \frac{-b \pm \sqrt{b^2 - 4ac}}{2a}
$$

and a Gaussian has \(\sigma > 0\):

\[
\int_{-\infty}^{\infty} e^{-x^2/2\sigma^2} \, dx = \sigma\sqrt{2\pi},
\qquad \sum_{n=1}^{\infty} \frac{1}{n^2} = \frac{\pi^2}{6}
\]

$$
A = \begin{pmatrix} 1 & 0 \\ 0 & \lambda \end{pmatrix}, \quad
f(x) = \begin{cases} x & \text{if } x \ge 0 \\ -x & \text{otherwise} \end{cases}
$$

It costs $5, $\mathbb{E}[X] \in \mathbb{R}$.

```mermaid
flowchart TD
    A[Request] --> B{Cached?}
    B -->|Yes| C[Reuse the prefix]
    B -->|No| D[Read the prompt]
    C --> E(Decode)
    D --> E
    E --> F{End?}
    F -->|No| E
    F -->|Yes| G([Answer])
```

```mermaid
sequenceDiagram
    participant U as User
    participant S as Server
    participant M as Model
    U->>S: POST /v1/chat/completions
    S->>M: prompt
    loop every token
        M-->>S: token
        S-->>U: chunk
    end
    Note right of S: counts tokens
    S-->>U: [DONE]
```

```mermaid
pie
    "a": 1
```
"""
PLAIN = (
    "Light from the sun holds all colours. Air scatters blue light more than red light, because "
    "its waves are shorter, so blue reaches your eyes from every direction.\n\nThat is why the sky "
    "is blue."
)
THOUGHT = "The user asks for a number. Seven is a fine one: small, odd and prime."
ALTERNATIVES = (" the", " a", " every", " some", " this")


@dataclass(frozen=True, slots=True)
class Piece:
    """One token of an answer."""

    text: str
    thought: bool = False

    @property
    def logprobs(self) -> list[tuple[str, float]]:
        """Log probabilities of the token and of others, the likeliest first."""
        chance = crc32(self.text.encode()) % 1000
        own = -0.02 if chance < 500 else -(chance - 480) / 140
        others = [(text, -2.3 - 0.6 * rank) for rank, text in enumerate(ALTERNATIVES)]
        everyone = [(self.text, own), *(other for other in others if other[0] != self.text)]
        return sorted(everyone, key=lambda entry: -entry[1])[:5]


def answer(question: str) -> Iterator[Piece]:
    """Write an answer to a question."""
    if "think" in question:
        yield from _pieces(THOUGHT, thought=True)
        yield from _pieces("Take 7.")
    elif "markup" in question:
        yield from _pieces(HOSTILE)
    elif "figures" in question:
        yield from _pieces(FIGURES)
    elif "palindrome" in question:
        yield from _pieces(RICH)
    elif "sky" in question:
        yield from _pieces(PLAIN)
    else:
        yield from _pieces(f"You said: {question}")


def continuation(question: str, beginning: str) -> Iterator[Piece]:
    """Write the rest of an answer whose beginning is given; of another text, an end."""
    whole = "".join(piece.text for piece in answer(question) if not piece.thought)
    yield from _pieces(whole.removeprefix(beginning) if whole.startswith(beginning) else " THE END")


def _pieces(text: str, thought: bool = False) -> Iterator[Piece]:
    for match in re.finditer(r"\s?\w{1,7}|\s?[^\w\s]+|\s", text):
        yield Piece(match[0], thought)
