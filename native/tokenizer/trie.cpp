#include "tokenizer/trie.h"

#include <stdexcept>

namespace ingot::tokenizer {

Trie::Trie() : slots_(64), ids_(1, kNone) {}

void Trie::insert(std::string_view text, Id id) {
  constexpr std::size_t most_nodes = 1 << 24;  // what a key has room for
  if (text.empty()) return;
  if (ids_.size() + text.size() > most_nodes) {
    throw std::invalid_argument("the vocabulary is too large for a prefix tree");
  }
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<std::uint8_t>(c);
    std::uint32_t next = child(node, byte);
    if (next == 0) {
      if (2 * ids_.size() > slots_.size()) grow();
      next = static_cast<std::uint32_t>(ids_.size());
      ids_.push_back(kNone);
      const std::uint32_t key = node << 8 | byte;
      if (node == 0) {
        roots_[byte] = next;
      } else {
        *const_cast<Slot*>(probe(slots_, key)) = {key, next};
      }
    }
    node = next;
  }
  ids_[node] = id;
}

void Trie::grow() {
  std::vector<Slot> larger(slots_.size() * 2);
  for (const Slot& slot : slots_) {
    if (slot.child != 0) *const_cast<Slot*>(probe(larger, slot.key)) = slot;
  }
  slots_.swap(larger);
}

}  // namespace ingot::tokenizer
