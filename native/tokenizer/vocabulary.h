// The tokens of a vocabulary, read in place from the file: text, score and type by id, and the
// id of a text by hashing. Only the types are copied (a byte each).
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/bytes.h"
#include "tokenizer/hash_index.h"

namespace ingot::tokenizer {

using Id = std::int32_t;
constexpr Id kNone = -1;

// The numbers of the file format.
enum class TokenType : std::uint8_t {
  kUndefined,
  kNormal,
  kUnknown,
  kControl,
  kUserDefined,
  kUnused,
  kByte,
};

// A string array of a GGUF header: offsets[i] is the place of an 8-byte length, and the bytes
// follow it.
class Strings {
 public:
  Strings() = default;
  // Throws std::invalid_argument when an entry reaches beyond the data.
  Strings(std::span<const std::uint8_t> data, std::span<const std::uint64_t> offsets);

  std::size_t size() const { return offsets_.size(); }
  std::string_view operator[](std::size_t i) const {
    const char* start = reinterpret_cast<const char*>(data_.data() + offsets_[i]);
    return {start + 8, load_as<std::uint64_t>(start)};
  }

 private:
  std::span<const std::uint8_t> data_;
  std::span<const std::uint64_t> offsets_;
};

class Vocabulary {
 public:
  // Empty scores count as 0, empty types as normal.
  Vocabulary(Strings texts, std::span<const float> scores, std::span<const std::int32_t> types);

  std::size_t size() const { return texts_.size(); }
  std::size_t longest() const { return longest_; }  // bytes
  std::string_view text(Id id) const { return texts_[static_cast<std::size_t>(id)]; }
  float score(Id id) const { return scores_.empty() ? 0 : scores_[static_cast<std::size_t>(id)]; }
  TokenType type(Id id) const { return types_[static_cast<std::size_t>(id)]; }
  // kNone when no token reads like this; the first of several that do.
  Id find(std::string_view text) const {
    const auto is_it = [&](std::uint32_t id) { return same_text(texts_[id], text); };
    return static_cast<Id>(index_.find(hash_bytes(text), is_it));  // kAbsent is kNone
  }
  // As find(), but only tokens that plain text may become: neither control nor unknown tokens.
  Id find_plain(std::string_view text) const {
    const Id id = find(text);
    return id != kNone && is_control(id) ? kNone : id;
  }
  bool is_control(Id id) const {
    return type(id) == TokenType::kControl || type(id) == TokenType::kUnknown;
  }

  // Before the vocabulary is shared: for tokens whose type in the file is known to be wrong.
  void set_type(Id id, TokenType type) { types_[static_cast<std::size_t>(id)] = type; }

 private:
  Strings texts_;
  std::span<const float> scores_;
  std::vector<TokenType> types_;
  HashIndex index_;
  std::size_t longest_ = 0;
};

}  // namespace ingot::tokenizer
