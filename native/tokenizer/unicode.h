// Code points: their UTF-8 form, major category, lower case and decomposition.
//
// The tables hold Unicode 15.1 as llama.cpp's do. Decoding is lenient in llama.cpp's way:
// see canonical_utf8(); all other code works on text that has gone through it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::tokenizer {

enum class Category : std::uint8_t {
  kUnassigned,
  kLetter,
  kNumber,
  kPunctuation,
  kMark,
  kSymbol,
  kSeparator,
  kOther,
};
constexpr int kCategories = 8;

// Category in the low three bits, White_Space in bit 3.
std::uint8_t properties_of(std::uint32_t code);

inline Category category_of(std::uint32_t code) {
  return static_cast<Category>(properties_of(code) & 7);
}
inline bool is_white_space(std::uint32_t code) { return (properties_of(code) & 8) != 0; }

// Simple lower case; the code point itself when it has none.
std::uint32_t lower_of(std::uint32_t code);

// The first code point of the canonical decomposition: a letter without its accents.
std::uint32_t base_of(std::uint32_t code);

void append_utf8(std::uint32_t code, std::string& out);

// Bytes of the symbol that starts with this byte, as SentencePiece cuts text: by the
// leading byte alone (a stray continuation byte counts as one).
inline std::size_t symbol_bytes(std::uint8_t lead) {
  return lead < 0xC0 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
}

// Bytes of the code point that any text starts with, overlong forms and four bytes beyond
// U+10FFFF included; 0 when it starts with none.
std::size_t code_point_bytes(std::string_view text);

// The text itself when every code point in it is written in its shortest form, else a
// copy in `storage` in which overlong forms are shortened and every byte that starts no
// code point is U+FFFD. Surrogates pass: str cannot hold them, bytes may.
std::string_view canonical_utf8(std::string_view text, std::string& storage);

// The code point at `at` of canonical text; moves `at` past it.
inline std::uint32_t next_code(const std::uint8_t*& at) {
  const std::uint32_t lead = *at++;
  if (lead < 0x80) return lead;
  if (lead < 0xE0) return (lead & 0x1F) << 6 | (*at++ & 0x3Fu);
  if (lead < 0xF0) {
    const std::uint32_t code = (lead & 0x0F) << 12 | (at[0] & 0x3Fu) << 6 | (at[1] & 0x3Fu);
    at += 2;
    return code;
  }
  const std::uint32_t code =
      (lead & 0x07) << 18 | (at[0] & 0x3Fu) << 12 | (at[1] & 0x3Fu) << 6 | (at[2] & 0x3Fu);
  at += 3;
  return code;
}

}  // namespace ingot::tokenizer
