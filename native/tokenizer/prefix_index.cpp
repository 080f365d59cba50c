#include "tokenizer/prefix_index.h"

#include <algorithm>

namespace ingot::tokenizer {

PrefixIndex::PrefixIndex(std::vector<Entry> entries) : entries_(std::move(entries)) {
  std::erase_if(entries_, [](const Entry& entry) { return entry.text.empty(); });
  std::stable_sort(entries_.begin(), entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.text < b.text; });
  const auto same = [](const Entry& a, const Entry& b) { return a.text == b.text; };
  entries_.erase(std::unique(entries_.begin(), entries_.end(), same), entries_.end());
  for (const Entry& entry : entries_) ++first_[static_cast<std::uint8_t>(entry.text[0]) + 1u];
  for (std::size_t byte = 0; byte < 256; ++byte) first_[byte + 1] += first_[byte];
}

void PrefixIndex::narrow(std::size_t& low, std::size_t& high, std::size_t depth,
                         std::uint8_t byte) const {
  const auto at = [&](std::size_t i) { return static_cast<std::uint8_t>(entries_[i].text[depth]); };
  // The first place in [from, to) whose byte is not below the wanted one.
  const auto first_not_below = [&](std::size_t from, std::size_t to, unsigned wanted) {
    while (from < to) {
      const std::size_t middle = (from + to) / 2;
      at(middle) < wanted ? from = middle + 1 : to = middle;
    }
    return from;
  };
  low = first_not_below(low, high, byte);
  high = first_not_below(low, high, byte + 1u);
}

}  // namespace ingot::tokenizer
