// The ids of short words seen before: a direct-mapped table of one cache line per word.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"
#include "tokenizer/zeroed.h"

namespace ingot::tokenizer {

class WordCache {
 public:
  // Appends the ids of a word: those kept, or those that make() appends.
  template <class Make>
  void encode(std::string_view word, std::vector<Id>& out, const Make& make) {
    if (word.size() > kBytes) return make();
    Entry& entry = entries_[hash_bytes(word) >> (64 - kBits)];
    if (entry.bytes == word.size() && same_bytes(entry.word, word.data(), word.size())) {
      if (entry.ids == 1) return out.push_back(entry.id[0]);
      out.insert(out.end(), entry.id, entry.id + entry.ids);
      return;
    }
    const std::size_t before = out.size();
    make();
    const std::size_t count = out.size() - before;
    if (count > kIds) return;
    entry.bytes = static_cast<std::uint8_t>(word.size());
    entry.ids = static_cast<std::uint8_t>(count);
    std::memcpy(entry.word, word.data(), word.size());
    std::memcpy(entry.id, out.data() + before, count * sizeof(Id));
  }

 private:
  static constexpr std::size_t kBytes = 30, kIds = 8;
  // 65536 words, 4 MiB when all are in use: two megabytes of source code hold 15,000 words.
  static constexpr int kBits = 16;

  struct Entry {
    std::uint8_t bytes;  // 0: free
    std::uint8_t ids;
    char word[kBytes];
    Id id[kIds];
  };

  Zeroed<Entry> entries_ = make_zeroed<Entry>(std::size_t{1} << kBits);
};

}  // namespace ingot::tokenizer
