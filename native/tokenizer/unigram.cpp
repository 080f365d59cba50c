// Unigram (T5, XLM-R): normalized text, and among all ways to cut it into tokens the one with
// the highest sum of scores.
//
// Sums are doubles and the first of equals stays, as in llama.cpp. SentencePiece adds floats, so it
// can choose another of several equal cuts.
#include <algorithm>
#include <cstring>
#include <limits>

#include "tokenizer/model.h"
#include "tokenizer/trie.h"
#include "tokenizer/unicode.h"

namespace ingot::tokenizer {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";

// SentencePiece's precompiled map from character sequences to replacements: the size of a
// double-array trie, the trie (32-bit units) and the replacements, each ended by a zero byte.
class CharsMap {
 public:
  explicit CharsMap(std::span<const std::uint8_t> bytes) {
    if (bytes.empty()) return;
    std::uint32_t trie = 0;
    if (bytes.size() >= 4) std::memcpy(&trie, bytes.data(), 4);
    if (bytes.size() < 4 || trie > bytes.size() - 4) {
      throw std::invalid_argument("the precompiled character map is cut short");
    }
    units_.resize(trie / 4);
    std::memcpy(units_.data(), bytes.data() + 4, units_.size() * 4);
    replacements_.assign(bytes.begin() + 4 + trie, bytes.end());
    replacements_.push_back('\0');
  }

  struct Replacement {
    std::size_t consumed = 0;  // 0: nothing matches
    std::string_view text;
  };

  // Of the longest sequence that the text starts with.
  Replacement find(std::string_view text) const {
    Replacement found;
    std::uint32_t node = 0, unit = 0;
    if (!load(node, unit)) return found;
    node = offset(unit);
    for (std::size_t i = 0; i < text.size() && text[i] != 0; ++i) {
      const auto byte = static_cast<std::uint8_t>(text[i]);
      node ^= byte;
      if (!load(node, unit) || (unit & 0x800000FF) != byte) break;
      node ^= offset(unit);
      if (!(unit >> 8 & 1)) continue;
      std::uint32_t place = 0;
      if (!load(node, place)) break;
      place &= 0x7FFFFFFF;
      if (place < replacements_.size()) found = {i + 1, replacements_.data() + place};
    }
    return found;
  }

 private:
  static std::uint32_t offset(std::uint32_t unit) { return unit >> 10 << ((unit & 0x200) >> 6); }

  bool load(std::uint32_t node, std::uint32_t& unit) const {
    if (node >= units_.size()) return false;
    unit = units_[node];
    return true;
  }

  std::vector<std::uint32_t> units_;
  std::string replacements_;
};

class Unigram final : public Model {
 public:
  Unigram(const Vocabulary& vocabulary, const UnigramOptions& options)
      : Model(vocabulary), options_(options), charsmap_(options.charsmap) {
    options_.charsmap = {};
    float lowest = std::numeric_limits<float>::max();
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      const Id id = static_cast<Id>(i);
      const TokenType type = vocabulary.type(id);
      const bool user_defined = type == TokenType::kUserDefined;
      if (type == TokenType::kNormal) lowest = std::min(lowest, vocabulary.score(id));
      if (user_defined) user_defined_.insert(vocabulary.text(id), id);
      if (user_defined || type == TokenType::kNormal || type == TokenType::kUnused) {
        tokens_.insert(vocabulary.text(id), id);
      }
    }
    constexpr float penalty = 10;
    unknown_score_ = lowest - penalty;
  }

  void encode(std::string_view text, bool, Scratch& scratch, std::vector<Id>& out) const override {
    normalize(text, scratch.word);
    best_path(scratch.word, out);
  }

  void append_bytes(Id id, std::string& out) const override {
    append_spaced_piece(vocabulary_, id, out);
  }

 private:
  // The best way to reach a place of the text.
  struct Step {
    double score = std::numeric_limits<double>::lowest();
    std::uint32_t from = 0;
    Id id = kNone;
  };

  void best_path(std::string_view text, std::vector<Id>& out) const {
    std::vector<Step> steps(text.size() + 1);
    steps[0].score = 0;
    const auto offer = [&](std::size_t from, std::size_t to, double score, Id id) {
      if (score > steps[to].score) steps[to] = {score, static_cast<std::uint32_t>(from), id};
    };
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t character =
          std::min(symbol_bytes(static_cast<std::uint8_t>(text[at])), text.size() - at);
      const double reached = steps[at].score;
      bool known = false;
      tokens_.each_prefix(text.substr(at), [&](Id id, std::size_t bytes) {
        known |= bytes == character;
        const bool user_defined = vocabulary_.type(id) == TokenType::kUserDefined;
        const double score = user_defined ? 0.0 : double{vocabulary_.score(id)};
        offer(at, at + bytes, reached + score, id);
      });
      if (!known) offer(at, at + character, reached + unknown_score_, options_.unknown);
      at += character;
    }
    const std::size_t before = out.size();
    bool after_unknown = false;  // neighbouring unknown characters are one unknown token
    for (std::size_t at = text.size(); at > 0; at = steps[at].from) {
      const bool unknown = steps[at].id == options_.unknown;
      if (!(unknown && (after_unknown || options_.unknown == kNone))) out.push_back(steps[at].id);
      after_unknown = unknown;
    }
    std::reverse(out.begin() + static_cast<std::ptrdiff_t>(before), out.end());
  }

  void normalize(std::string_view text, std::string& out) const {
    out.clear();
    bool prefixed = false, in_word = false;
    for (std::size_t at = 0; at < text.size();) {
      std::string_view piece;
      at += next_piece(text.substr(at), piece);
      for (const char c : piece) {
        if (c == ' ') {
          in_word = false;
          if (!options_.merge_spaces) out += kSpace;
          continue;
        }
        if (!in_word && (options_.merge_spaces || (options_.space_prefix && !prefixed))) {
          out += kSpace;
          prefixed = true;
        }
        in_word = true;
        out += c;
      }
    }
  }

  // The normalized form of what the text starts with; how many bytes that takes.
  std::size_t next_piece(std::string_view text, std::string_view& piece) const {
    // What looks like the start of a user-defined token stays as it is.
    const std::size_t reserved = user_defined_.each_prefix(text, [](Id, std::size_t) {});
    if (reserved > 0) {
      piece = text.substr(0, reserved);
      return reserved;
    }
    const CharsMap::Replacement replacement = charsmap_.find(text);
    if (replacement.consumed > 0) {
      piece = replacement.text;
      return replacement.consumed;
    }
    const std::size_t bytes = code_point_bytes(text);
    piece = bytes > 0 ? text.substr(0, bytes) : "\xEF\xBF\xBD";
    return std::max<std::size_t>(bytes, 1);
  }

  Trie tokens_, user_defined_;
  UnigramOptions options_;
  CharsMap charsmap_;
  double unknown_score_;
};

}  // namespace

std::unique_ptr<const Model> make_unigram(const Vocabulary& vocabulary,
                                          const UnigramOptions& options) {
  return std::make_unique<Unigram>(vocabulary, options);
}

}  // namespace ingot::tokenizer
