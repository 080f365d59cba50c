// Texts in sorted order, to find all of them that a longer text starts with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace ingot::tokenizer {

class PrefixIndex {
 public:
  struct Entry {
    std::string_view text;
    Id id;
  };

  PrefixIndex() = default;
  // Empty texts are left out; of equal ones the first stays.
  explicit PrefixIndex(std::vector<Entry> entries);

  bool starts(std::uint8_t byte) const { return first_[byte] < first_[byte + 1u]; }

  // Calls found(id, bytes) for every entry that `text` starts with, from short to long.
  template <class Found>
  void each_prefix(std::string_view text, const Found& found) const {
    if (text.empty()) return;
    const auto lead = static_cast<std::uint8_t>(text[0]);
    std::size_t low = first_[lead], high = first_[lead + 1u];
    for (std::size_t depth = 1; low < high; ++depth) {
      if (entries_[low].text.size() == depth) found(entries_[low].id, depth), ++low;
      if (depth == text.size()) return;
      narrow(low, high, depth, static_cast<std::uint8_t>(text[depth]));
    }
  }

 private:
  // To the entries of [low, high) that have this byte at this depth.
  void narrow(std::size_t& low, std::size_t& high, std::size_t depth, std::uint8_t byte) const;

  std::vector<Entry> entries_;
  std::array<std::uint32_t, 257> first_{};  // where the entries of a first byte begin
};

}  // namespace ingot::tokenizer
