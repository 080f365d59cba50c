// Text in a header: strict UTF-8 for keys and names, and a safe way to quote them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace ingot::gguf {

// The position of the first byte that is not well-formed UTF-8 (overlong forms,
// surrogates and code points above U+10FFFF included), or the size if there is none.
inline size_t find_invalid_utf8(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  size_t i = 0;
  while (i < text.size()) {
    const uint8_t lead = byte(i);
    if (lead < 0x80) {
      i += 1;
      continue;
    }
    size_t length;
    uint8_t low = 0x80, high = 0xBF;  // what the second byte may be
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    if (length > text.size() - i) return i;
    if (byte(i + 1) < low || byte(i + 1) > high) return i;
    for (size_t k = 2; k < length; ++k) {
      if (byte(i + k) < 0x80 || byte(i + k) > 0xBF) return i;
    }
    i += length;
  }
  return text.size();
}

// Valid UTF-8 in quotes, on one line and of bounded length, for an error message.
inline std::string quote(std::string_view text) {
  constexpr size_t kMost = 96;
  const bool cut = text.size() > kMost;
  if (cut) {
    size_t end = kMost;
    while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) --end;
    text = text.substr(0, end);
  }
  std::string out = "'";
  for (const char c : text) {
    const auto code = static_cast<uint8_t>(c);
    out += code < 0x20 || code == 0x7F ? '?' : c;
  }
  return out + (cut ? "...'" : "'");
}

}  // namespace ingot::gguf
