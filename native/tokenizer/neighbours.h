// Which characters stand side by side in some token: between others a text can be cut, since
// nothing is joined across such a place. May say yes wrongly, never no.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace ingot::tokenizer {

constexpr std::string_view kSpace = "\xE2\x96\x81";

class Neighbours {
 public:
  Neighbours() : others_(kWords) {}

  // All pairs of a text.
  void insert_all(std::string_view text) {
    std::uint32_t left = kStart;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t bytes =
          std::min(symbol_bytes(static_cast<std::uint8_t>(text[at])), text.size() - at);
      const std::uint32_t right = code_of(text.substr(at, bytes));
      if (left != kStart) insert(left, right);
      left = right;
      at += bytes;
    }
  }

  // A character as a number: its bytes, the escaped space as a space.
  static std::uint32_t code_of(std::string_view symbol) {
    if (symbol.size() == 1) return static_cast<std::uint8_t>(symbol[0]);
    if (symbol == kSpace) return ' ';
    std::uint32_t code = 0;
    std::memcpy(&code, symbol.data(), symbol.size());
    return code;
  }

  bool hold(std::uint32_t left, std::uint32_t right) const {
    if ((left | right) < 128) return ascii_[left] >> right & 1;
    const std::uint32_t place = place_of(left, right);
    return others_[place / 64] >> place % 64 & 1;
  }

 private:
  static constexpr std::uint32_t kStart = 0xFFFFFFFF;
  static constexpr std::size_t kWords = 1 << 15;  // 2 Mbit: an eighth full with 262k tokens

  static std::uint32_t place_of(std::uint32_t left, std::uint32_t right) {
    const std::uint64_t pair = std::uint64_t{left} << 32 | right;
    return static_cast<std::uint32_t>(pair * 0x9E3779B97F4A7C15 >> 43);
  }

  void insert(std::uint32_t left, std::uint32_t right) {
    if ((left | right) < 128) {
      ascii_[left] |= static_cast<unsigned __int128>(1) << right;
    } else {
      const std::uint32_t place = place_of(left, right);
      others_[place / 64] |= std::uint64_t{1} << place % 64;
    }
  }

  std::array<unsigned __int128, 128> ascii_{};
  std::vector<std::uint64_t> others_;
};

}  // namespace ingot::tokenizer
