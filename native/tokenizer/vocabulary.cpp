#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ingot::tokenizer {
Strings::Strings(std::span<const std::uint8_t> data, std::span<const std::uint64_t> offsets)
    : data_(data), offsets_(offsets) {
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::uint64_t start = offsets[i];
    if (start > data.size() || data.size() - start < 8 ||
        load_as<std::uint64_t>(reinterpret_cast<const char*>(data.data() + start)) >
            data.size() - start - 8) {
      throw std::invalid_argument("string " + std::to_string(i) + " lies outside the file");
    }
  }
}

Vocabulary::Vocabulary(Strings texts, std::span<const float> scores,
                       std::span<const std::int32_t> types)
    : texts_(texts),
      scores_(scores),
      types_(texts.size(), TokenType::kNormal),
      index_(texts.size()) {
  if (texts.size() > 0x7FFFFFFF) throw std::invalid_argument("more tokens than ids");
  if ((!scores.empty() && scores.size() < texts.size()) ||
      (!types.empty() && types.size() < texts.size())) {
    throw std::invalid_argument("fewer scores or types than tokens");
  }
  for (std::size_t i = 0; i < (types.empty() ? 0 : texts.size()); ++i) {
    const bool known = types[i] >= 0 && types[i] <= static_cast<int>(TokenType::kByte);
    types_[i] = known ? static_cast<TokenType>(types[i]) : TokenType::kUndefined;
  }
  index_.fill(
      texts.size(),
      [&](std::uint32_t id) {
        longest_ = std::max(longest_, texts_[id].size());
        return hash_bytes(texts_[id]);
      },
      [&](std::uint32_t a, std::uint32_t b) { return same_text(texts_[a], texts_[b]); });
}

}  // namespace ingot::tokenizer
