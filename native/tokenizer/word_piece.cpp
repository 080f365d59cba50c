// WordPiece (BERT): text is cleaned, lower-cased and cut into words, and every word is covered
// by the longest tokens from the left, or is unknown.
//
// Tokens that start a word carry U+2581 in front in GGUF files. Only the first code point of a
// decomposition is kept, as in llama.cpp: it takes accents off letters, and the vowels off Hangul.
#include "tokenizer/model.h"
#include "tokenizer/trie.h"
#include "tokenizer/unicode.h"

namespace ingot::tokenizer {
namespace {

constexpr std::string_view kWordStart = "\xE2\x96\x81";

// The blocks of which BERT takes every character for a word.
bool is_ideograph(std::uint32_t code) {
  return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
         (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B73F) ||
         (code >= 0x2B740 && code <= 0x2B81F) ||
         (code >= 0x2B920 && code <= 0x2CEAF) ||  // BERT's own typing error for 2B820
         (code >= 0xF900 && code <= 0xFAFF) || (code >= 0x2F800 && code <= 0x2FA1F);
}

class WordPiece final : public Model {
 public:
  WordPiece(const Vocabulary& vocabulary, const WordPieceOptions& options)
      : Model(vocabulary), options_(options) {
    for (std::size_t i = vocabulary.size(); i-- > 0;) {  // of equal tokens the first is meant
      const Id id = static_cast<Id>(i);
      if (!vocabulary.is_control(id)) tokens_.insert(vocabulary.text(id), id);
    }
  }

  void encode(std::string_view text, bool, Scratch& scratch, std::vector<Id>& out) const override {
    text = canonical_utf8(text, scratch.canonical);
    std::string& word = scratch.word;
    word = kWordStart;
    const auto finish = [&] {
      if (word.size() == kWordStart.size()) return;
      scratch.words.encode(word, out, [&] { cover(word, out); });
      word.resize(kWordStart.size());
    };
    const auto* at = reinterpret_cast<const std::uint8_t*>(text.data());
    for (const auto* end = at + text.size(); at < end;) {
      std::uint32_t code = next_code(at);
      if (options_.strip_accents) code = base_of(code);
      const Category category = category_of(code);
      if (is_white_space(code)) {
        finish();
        continue;
      }
      if (code == 0 || code == 0xFFFD || category == Category::kOther) continue;
      if (options_.strip_accents && category == Category::kMark) continue;
      const bool alone = category == Category::kPunctuation ||
                         (category == Category::kSymbol && code < 0x7F) || is_ideograph(code);
      if (alone) finish();
      append_utf8(options_.lower_case ? lower_of(code) : code, word);
      if (alone) finish();
    }
    finish();
  }

  void append_bytes(Id id, std::string& out) const override {
    append_spaced_piece(vocabulary_, id, out);
  }

 private:
  void cover(std::string_view word, std::vector<Id>& out) const {
    const std::size_t before = out.size();
    while (!word.empty()) {
      Id longest = kNone;
      std::size_t taken = 0;
      tokens_.each_prefix(word, [&](Id id, std::size_t bytes) { longest = id, taken = bytes; });
      if (longest == kNone) {
        out.resize(before);
        if (options_.unknown != kNone) out.push_back(options_.unknown);
        return;
      }
      out.push_back(longest);
      word.remove_prefix(taken);
    }
  }

  Trie tokens_;
  WordPieceOptions options_;
};

}  // namespace

std::unique_ptr<const Model> make_word_piece(const Vocabulary& vocabulary,
                                             const WordPieceOptions& options) {
  return std::make_unique<WordPiece>(vocabulary, options);
}

}  // namespace ingot::tokenizer
