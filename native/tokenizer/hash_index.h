// Finds entries by the hash of their bytes. The bytes stay where they are.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <vector>

namespace ingot::tokenizer {

// Open addressing over (half a hash, number of the thing).
class HashIndex {
 public:
  static constexpr std::uint32_t kAbsent = 0xFFFFFFFF;

  explicit HashIndex(std::size_t count) : slots_(std::bit_ceil(count + count / 2 + 2)) {}

  // Inserts 0..count-1; of things that are the same, the first stays.
  template <class HashOf, class Same>
  void fill(std::size_t count, const HashOf& hash_of, const Same& same) {
    // The slots of a block are fetched together: one by one, each would wait for memory.
    std::array<std::uint64_t, 32> hashes;
    for (std::size_t block = 0; block < count; block += hashes.size()) {
      const std::size_t size = std::min(hashes.size(), count - block);
      for (std::size_t i = 0; i < size; ++i) {
        hashes[i] = hash_of(static_cast<std::uint32_t>(block + i));
        __builtin_prefetch(&slots_[hashes[i] & (slots_.size() - 1)], 1);
      }
      for (std::size_t i = 0; i < size; ++i) {
        const auto thing = static_cast<std::uint32_t>(block + i);
        Slot& slot =
            slots_[place(hashes[i], [&](std::uint32_t other) { return same(other, thing); })];
        if (slot.thing == kAbsent) slot = {tag_of(hashes[i]), thing};
      }
    }
  }

  // The thing with this hash that `is_it` accepts.
  template <class IsIt>
  std::uint32_t find(std::uint64_t hash, const IsIt& is_it) const {
    return slots_[place(hash, is_it)].thing;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t thing = kAbsent;
  };

  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  // Its slot, or the free one where it would be.
  template <class IsIt>
  std::size_t place(std::uint64_t hash, const IsIt& is_it) const {
    const std::size_t mask = slots_.size() - 1;
    std::size_t at = hash & mask;
    while (slots_[at].thing != kAbsent &&
           !(slots_[at].tag == tag_of(hash) && is_it(slots_[at].thing))) {
      at = (at + 1) & mask;
    }
    return at;
  }

  std::vector<Slot> slots_;
};

}  // namespace ingot::tokenizer
