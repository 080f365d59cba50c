#include "tokenizer/vocabulary.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <stdexcept>
#include <string>

namespace ingot::tokenizer {
namespace {

std::uint64_t load(const char* at, std::size_t bytes) {
  std::uint64_t value = 0;
  std::memcpy(&value, at, bytes);
  return value;
}

// Both halves of the 128-bit product, folded.
std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
  const auto product = static_cast<unsigned __int128>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t odd1 = 0x9E3779B97F4A7C15, odd2 = 0xD6E8FEB86659FD93;
  const char* at = text.data();
  std::size_t left = text.size();
  std::uint64_t hash = left * odd1;
  for (; left > 8; at += 8, left -= 8) hash = mix(hash ^ load(at, 8), odd2);
  return mix(hash ^ load(at, left), odd1);
}

Strings::Strings(std::span<const std::uint8_t> data, std::span<const std::uint64_t> offsets)
    : data_(data), offsets_(offsets) {
  for (std::size_t i = 0; i < offsets.size(); ++i) {
    const std::uint64_t start = offsets[i];
    if (start > data.size() || data.size() - start < 8 ||
        load(reinterpret_cast<const char*>(data.data() + start), 8) > data.size() - start - 8) {
      throw std::invalid_argument("string " + std::to_string(i) + " lies outside the file");
    }
  }
}

std::string_view Strings::operator[](std::size_t i) const {
  const char* start = reinterpret_cast<const char*>(data_.data() + offsets_[i]);
  return {start + 8, load(start, 8)};
}

Vocabulary::Vocabulary(Strings texts, std::span<const float> scores,
                       std::span<const std::int32_t> types)
    : texts_(texts), scores_(scores), types_(texts.size(), TokenType::kNormal) {
  if (texts.size() > 0x7FFFFFFF) throw std::invalid_argument("more tokens than ids");
  if ((!scores.empty() && scores.size() < texts.size()) ||
      (!types.empty() && types.size() < texts.size())) {
    throw std::invalid_argument("fewer scores or types than tokens");
  }
  for (std::size_t i = 0; i < (types.empty() ? 0 : texts.size()); ++i) {
    const bool known = types[i] >= 0 && types[i] <= static_cast<int>(TokenType::kByte);
    types_[i] = known ? static_cast<TokenType>(types[i]) : TokenType::kUndefined;
  }
  // At most half full, so that a probe is short.
  slots_.assign(std::bit_ceil(2 * texts.size() + 2), {0, kNone});
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    const std::string_view text = texts[i];
    longest_ = std::max(longest_, text.size());
    const std::uint64_t hash = hash_bytes(text);
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    std::size_t at = hash & mask;
    while (slots_[at].id != kNone &&
           !(slots_[at].tag == tag && this->text(slots_[at].id) == text)) {
      at = (at + 1) & mask;
    }
    if (slots_[at].id == kNone) slots_[at] = {tag, static_cast<Id>(i)};
  }
}

Id Vocabulary::find(std::string_view text) const {
  const std::uint64_t hash = hash_bytes(text);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].id != kNone; at = (at + 1) & mask) {
    if (slots_[at].tag == tag && this->text(slots_[at].id) == text) return slots_[at].id;
  }
  return kNone;
}

}  // namespace ingot::tokenizer
