// Texts by their bytes, to find all of them that a longer text starts with.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/vocabulary.h"

namespace ingot::tokenizer {

class Trie {
 public:
  Trie();

  // Of equal texts the last stays; empty ones are left out.
  void insert(std::string_view text, Id id);

  bool starts(std::uint8_t byte) const { return roots_[byte] != 0; }

  // Calls found(id, bytes) for every text that `text` starts with, from short to long. Returns
  // how many bytes it could follow, which may end inside a text.
  template <class Found>
  std::size_t each_prefix(std::string_view text, const Found& found) const {
    std::size_t depth = 0;
    for (std::uint32_t node = 0; depth < text.size(); ++depth) {
      node = child(node, static_cast<std::uint8_t>(text[depth]));
      if (node == 0) break;
      if (ids_[node] != kNone) found(ids_[node], depth + 1);
    }
    return depth;
  }

 private:
  struct Slot {
    std::uint32_t key = 0;    // node and byte
    std::uint32_t child = 0;  // 0: free
  };

  std::uint32_t child(std::uint32_t node, std::uint8_t byte) const {
    return node == 0 ? roots_[byte] : probe(slots_, node << 8 | byte)->child;
  }
  static const Slot* probe(const std::vector<Slot>& slots, std::uint32_t key) {
    const std::size_t mask = slots.size() - 1;
    std::size_t at = (key * std::uint64_t{0x9E3779B97F4A7C15} >> 32) & mask;
    while (slots[at].child != 0 && slots[at].key != key) at = (at + 1) & mask;
    return &slots[at];
  }
  void grow();

  std::array<std::uint32_t, 256> roots_{};  // children of node 0, the root
  std::vector<Slot> slots_;                 // children of all others
  std::vector<Id> ids_;                     // by node
};

}  // namespace ingot::tokenizer
