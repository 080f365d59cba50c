// The ids of short words seen before: a direct-mapped table of one cache line per word.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace ingot::tokenizer {

class WordCache {
 public:
  static constexpr std::size_t kBytes = 30, kIds = 8;

  struct alignas(64) Entry {
    std::uint8_t bytes = 0;  // 0: free
    std::uint8_t ids = 0;
    char word[kBytes];
    Id id[kIds];
  };

  WordCache() : entries_(kEntries) {}

  Entry& slot(std::uint64_t hash) { return entries_[hash >> (64 - kBits)]; }

  static bool holds(const Entry& entry, std::string_view word) {
    return entry.bytes == word.size() && std::memcmp(entry.word, word.data(), word.size()) == 0;
  }

  static void store(Entry& entry, std::string_view word, const Id* ids, std::size_t count) {
    if (word.size() > kBytes || count > kIds) return;
    entry.bytes = static_cast<std::uint8_t>(word.size());
    entry.ids = static_cast<std::uint8_t>(count);
    std::memcpy(entry.word, word.data(), word.size());
    std::memcpy(entry.id, ids, count * sizeof(Id));
  }

 private:
  static constexpr int kBits = 14;  // 1 MiB: what stays in a second-level cache
  static constexpr std::size_t kEntries = std::size_t{1} << kBits;

  std::vector<Entry> entries_;
};

}  // namespace ingot::tokenizer
