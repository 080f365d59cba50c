"""Writes unicode_table.inc: what the tokenizers need to know of every code point.

Comes in: Unicode 15.1, the version llama.cpp's tables hold, from the standard
`unicodedata` of Python 3.13 or from the package `unicodedata2==15.1.0`.
Goes out: the major category and white space of each code point as a two-stage table,
the simple lower case, and the first code point of the canonical decomposition (Hangul is
left out: it follows from arithmetic).

    python native/tokenizer/make_unicode_table.py > native/tokenizer/unicode_table.inc
"""

import sys

try:
    import unicodedata2 as unicodedata
except ImportError:
    import unicodedata

VERSION = "15.1.0"
BLOCK = 128
CODE_POINTS = 0x110000
# The order of enum Category in unicode.h; unassigned code points have none.
CATEGORIES = "LNPMSZC"
WHITE_SPACE_BIT = 8
# The property White_Space, which unicodedata does not carry.
WHITE_SPACE = {
    *range(0x09, 0x0E), 0x20, 0x85, 0xA0, 0x1680, *range(0x2000, 0x200B),
    0x2028, 0x2029, 0x202F, 0x205F, 0x3000,
}  # fmt: skip
HANGUL = range(0xAC00, 0xD7A4)


def properties(code: int) -> int:
    """Category number and white-space bit of one code point, as one small number."""
    category = unicodedata.category(chr(code))
    number = 0 if category == "Cn" else 1 + CATEGORIES.index(category[0])
    return number | (WHITE_SPACE_BIT if code in WHITE_SPACE else 0)


def numbers(values: list[int]) -> str:
    """Values as the lines of a C++ initializer."""
    lines, line = [], " "
    for value in values:
        item = f" {value},"
        if len(line) + len(item) > 100:
            lines.append(line)
            line = " "
        line += item
    return "\n".join([*lines, line])


def pairs(mapping: dict[int, int]) -> str:
    """A mapping as rows of {from, to}."""
    flat = [f"{{{key}, {value}}}," for key, value in sorted(mapping.items())]
    return "\n".join("  " + " ".join(flat[i : i + 6]) for i in range(0, len(flat), 6))


def main() -> None:
    """Print the table."""
    if unicodedata.unidata_version != VERSION:
        sys.exit(f"Unicode {VERSION} is needed, this is {unicodedata.unidata_version}")
    blocks: dict[tuple[int, ...], int] = {}
    index = []
    for start in range(0, CODE_POINTS, BLOCK):
        block = tuple(properties(code) for code in range(start, start + BLOCK))
        index.append(blocks.setdefault(block, len(blocks)))
    packed = [
        block[i] | block[i + 1] << 4 for block in blocks for i in range(0, BLOCK, 2)
    ]  # two code points per byte
    lower = {
        code: ord(chr(code).lower()[0])
        for code in range(CODE_POINTS)
        if chr(code).lower()[0] != chr(code)
    }
    base = {}
    for code in range(CODE_POINTS):
        first = ord(unicodedata.normalize("NFD", chr(code))[0])
        if first != code and code not in HANGUL:
            base[code] = first
    print(f"// Unicode {VERSION}, written by make_unicode_table.py; do not edit.")
    print("// clang-format off")
    print(f"constexpr std::uint32_t kBlock = {BLOCK};")
    print(f"constexpr std::uint8_t kBlockOf[] = {{\n{numbers(index)}\n}};")
    print(f"constexpr std::uint8_t kPacked[] = {{\n{numbers(packed)}\n}};")
    print(f"constexpr CodePair kLower[] = {{\n{pairs(lower)}\n}};")
    print(f"constexpr CodePair kBase[] = {{\n{pairs(base)}\n}};")


if __name__ == "__main__":
    main()
