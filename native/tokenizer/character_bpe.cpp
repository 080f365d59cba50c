// BPE of characters (Gemma 4): the text of a line is one word, spaces are escaped, pairs of
// characters are joined by the rank of their merge; what is not a token falls back to its bytes. A
// run of line ends that is a token is not merged up to.
//
// Lines are cut between characters that no token has side by side; see neighbours.h.
#include <array>

#include "tokenizer/merges.h"
#include "tokenizer/model.h"
#include "tokenizer/neighbours.h"
#include "tokenizer/unicode.h"

namespace ingot::tokenizer {
namespace {

class CharacterBpe final : public Model {
 public:
  CharacterBpe(const Vocabulary& vocabulary, Strings merges) : Model(vocabulary), merges_(merges) {
    for (std::uint32_t rank = 0; rank < merges_.size(); ++rank) {
      const auto [left, right] = merges_.halves(rank);
      neighbours_.insert_all(std::string(left).append(right));
    }
    for (int byte = 0; byte < 256; ++byte)
      byte_token_[static_cast<std::size_t>(byte)] =
          byte_token(vocabulary, static_cast<std::uint8_t>(byte));
  }

  void encode(std::string_view text, bool, Scratch& scratch, std::vector<Id>& out) const override {
    text = canonical_utf8(text, scratch.canonical);
    for (std::size_t start = 0; start < text.size();) {
      const bool ends = text[start] == '\n';
      std::size_t end = ends ? text.find_first_not_of('\n', start) : text.find('\n', start);
      end = std::min(end, text.size());
      const std::string_view run = text.substr(start, end - start);
      const Id id = ends ? vocabulary_.find_plain(run) : kNone;
      id != kNone ? out.push_back(id) : encode_line(run, scratch, out);
      start = end;
    }
  }

  void append_bytes(Id id, std::string& out) const override {
    append_spaced_piece(vocabulary_, id, out);
  }

 private:
  void encode_line(std::string_view line, Scratch& scratch, std::vector<Id>& out) const {
    std::size_t start = 0;
    std::uint32_t left = 0;
    for (std::size_t at = 0; at < line.size();) {
      const auto lead = static_cast<std::uint8_t>(line[at]);
      const std::size_t bytes = symbol_bytes(lead);
      const std::uint32_t right = lead < 128 ? lead : Neighbours::code_of(line.substr(at, bytes));
      if (at > start && !neighbours_.hold(left, right)) {
        encode_word(line.substr(start, at - start), scratch, out);
        start = at;
      }
      left = right;
      at += bytes;
    }
    encode_word(line.substr(start), scratch, out);
  }

  void encode_word(std::string_view word, Scratch& scratch, std::vector<Id>& out) const {
    scratch.words.encode(word, out, [&] { merge_word(word, scratch, out); });
  }

  void merge_word(std::string_view word, Scratch& scratch, std::vector<Id>& out) const {
    std::string& spelled = scratch.word;
    std::vector<Symbol>& symbols = scratch.merger.symbols;
    spelled.clear();
    symbols.clear();
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t bytes = symbol_bytes(static_cast<std::uint8_t>(word[at]));
      const auto start = static_cast<std::uint32_t>(spelled.size());
      spelled.append(word[at] == ' ' ? kSpace : word.substr(at, bytes));
      symbols.push_back({start, static_cast<std::uint32_t>(spelled.size()) - start, kNone});
      at += bytes;
    }
    const std::string_view text = spelled;
    const auto text_of = [&](const Symbol& symbol) {
      return text.substr(symbol.start, symbol.bytes);
    };
    scratch.merger.merge([&](const Symbol& left, const Symbol& right) {
      return merges_.find(text_of(left), text_of(right));
    });
    for (const Symbol& symbol : symbols) {
      const Id id = vocabulary_.find_plain(text_of(symbol));
      if (id != kNone) {
        out.push_back(id);
        continue;
      }
      for (const char byte : text_of(symbol)) {
        const Id part = byte_token_[static_cast<std::uint8_t>(byte)];
        if (part != kNone) out.push_back(part);
      }
    }
  }

  Merges merges_;
  Neighbours neighbours_;
  std::array<Id, 256> byte_token_;
};

}  // namespace

std::unique_ptr<const Model> make_character_bpe(const Vocabulary& vocabulary, Strings merges) {
  return std::make_unique<CharacterBpe>(vocabulary, merges);
}

}  // namespace ingot::tokenizer
