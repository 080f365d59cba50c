// Short byte strings, compared and hashed in a few instructions: most words and tokens are
// shorter than two registers, where a call to the library costs more than the work.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace ingot::tokenizer {

template <class T>
T load_as(const char* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Overlapping reads of the first and last bytes; never beyond the text.
inline bool same_bytes(const char* a, const char* b, std::size_t size) {
  if (size >= 8) {
    for (std::size_t at = 0; at + 8 < size; at += 8) {
      if (load_as<std::uint64_t>(a + at) != load_as<std::uint64_t>(b + at)) return false;
    }
    return load_as<std::uint64_t>(a + size - 8) == load_as<std::uint64_t>(b + size - 8);
  }
  if (size >= 4) {
    return load_as<std::uint32_t>(a) == load_as<std::uint32_t>(b) &&
           load_as<std::uint32_t>(a + size - 4) == load_as<std::uint32_t>(b + size - 4);
  }
  for (std::size_t at = 0; at < size; ++at) {
    if (a[at] != b[at]) return false;
  }
  return true;
}

inline bool same_text(std::string_view a, std::string_view b) {
  return a.size() == b.size() && same_bytes(a.data(), b.data(), a.size());
}

// Both halves of the 128-bit product, folded.
inline std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t odd1 = 0x9E3779B97F4A7C15, odd2 = 0xD6E8FEB86659FD93;
  const char* at = text.data();
  const std::size_t size = text.size();
  std::uint64_t hash = size * odd1, last = 0;
  if (size >= 8) {
    const char* end = at + size - 8;
    for (; at < end; at += 8) hash = mix(hash ^ load_as<std::uint64_t>(at), odd2);
    last = load_as<std::uint64_t>(end);
  } else if (size >= 4) {
    last = std::uint64_t{load_as<std::uint32_t>(at)} << 32 | load_as<std::uint32_t>(at + size - 4);
  } else if (size > 0) {
    last = std::uint64_t{load_as<std::uint8_t>(at)} << 16 |
           std::uint64_t{load_as<std::uint8_t>(at + size / 2)} << 8 |
           load_as<std::uint8_t>(at + size - 1);
  }
  return mix(hash ^ last, odd1);
}

}  // namespace ingot::tokenizer
