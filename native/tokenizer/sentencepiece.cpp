// SentencePiece BPE (Llama, Gemma, Phi-3): characters joined by the score of the token they
// make; what is not a token falls back to its bytes.
//
// The text is one word to SentencePiece. It is cut here between characters that stand side by
// side in no token, since nothing can be joined across such a place; the pieces are about a
// word long and come back often.
#include <array>
#include <bit>

#include "tokenizer/model.h"
#include "tokenizer/neighbours.h"
#include "tokenizer/unicode.h"

namespace ingot::tokenizer {
namespace {

// Floats as numbers of which the lower goes first: the higher score.
std::uint32_t order_of(float score) {
  const auto bits = std::bit_cast<std::uint32_t>(score + 0.0f);  // no negative zero
  const std::uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000;
  return ~ascending;
}

class SentencePiece final : public Model {
 public:
  SentencePiece(const Vocabulary& vocabulary, bool space_prefix, Id unknown)
      : Model(vocabulary), space_prefix_(space_prefix) {
    for (std::size_t id = 0; id < vocabulary.size(); ++id)
      neighbours_.insert_all(vocabulary.text(static_cast<Id>(id)));
    for (int byte = 0; byte < 256; ++byte) {
      const char plain = static_cast<char>(byte);
      Id id = byte_token(vocabulary, static_cast<std::uint8_t>(byte));
      if (id == kNone) id = vocabulary.find({&plain, 1});
      byte_token_[static_cast<std::size_t>(byte)] = id == kNone ? unknown : id;
    }
  }

  void encode(std::string_view text, bool after_special, Scratch& scratch,
              std::vector<Id>& out) const override {
    const bool prefixed = space_prefix_ && after_special;
    // A byte that starts no character swallows what follows it, an escaped space perhaps: the
    // text has to be cut into characters after the spaces are escaped, and stays in one piece.
    if (canonical_utf8(text, scratch.canonical).data() != text.data()) {
      spell(text, prefixed, scratch.word);
      return merge_word(scratch, out);
    }
    std::size_t start = 0;
    bool first = prefixed;
    std::uint32_t left = prefixed ? ' ' : kNothing;
    for (std::size_t at = 0; at < text.size();) {
      const auto lead = static_cast<std::uint8_t>(text[at]);
      const std::size_t bytes = symbol_bytes(lead);
      const std::uint32_t right = lead < 128 ? lead : Neighbours::code_of(text.substr(at, bytes));
      if (at > start && !neighbours_.hold(left, right)) {
        encode_word(text.substr(start, at - start), first, scratch, out);
        start = at;
        first = false;
      }
      left = right;
      at += bytes;
    }
    encode_word(text.substr(start), first, scratch, out);
  }

  void append_bytes(Id id, std::string& out) const override {
    append_spaced_piece(vocabulary_, id, out);
  }

 private:
  static constexpr std::uint32_t kNothing = 0xFFFFFFFF;

  void encode_word(std::string_view word, bool prefixed, Scratch& scratch,
                   std::vector<Id>& out) const {
    const auto make = [&] {
      spell(word, prefixed, scratch.word);
      merge_word(scratch, out);
    };
    prefixed ? make() : scratch.words.encode(word, out, make);
  }

  static void spell(std::string_view text, bool prefixed, std::string& word) {
    word.assign(prefixed ? kSpace : "");
    for (const char byte : text) byte == ' ' ? word.append(kSpace) : word.append(1, byte);
  }

  // The word is in scratch.word.
  void merge_word(Scratch& scratch, std::vector<Id>& out) const {
    const std::string_view word = scratch.word;
    std::vector<Symbol>& symbols = scratch.merger.symbols;
    symbols.clear();
    for (std::size_t at = 0; at < word.size();) {
      const std::size_t bytes =
          std::min(symbol_bytes(static_cast<std::uint8_t>(word[at])), word.size() - at);
      symbols.push_back({static_cast<std::uint32_t>(at), static_cast<std::uint32_t>(bytes), kNone});
      at += bytes;
    }
    scratch.merger.merge([&](const Symbol& left, const Symbol& right) -> Joint {
      const std::size_t bytes = std::size_t{left.bytes} + right.bytes;
      if (bytes > vocabulary_.longest()) return {};
      const Id id = vocabulary_.find_plain(word.substr(left.start, bytes));
      if (id == kNone) return {};
      return {order_of(vocabulary_.score(id)), id};
    });
    for (const Symbol& symbol : symbols) {
      const std::string_view text = word.substr(symbol.start, symbol.bytes);
      const Id id = symbol.id != kNone ? symbol.id : vocabulary_.find_plain(text);
      if (id != kNone) {
        out.push_back(id);
        continue;
      }
      for (const char byte : text) {
        const Id fallback = byte_token_[static_cast<std::uint8_t>(byte)];
        if (fallback != kNone) out.push_back(fallback);
      }
    }
  }

  bool space_prefix_;
  Neighbours neighbours_;
  std::array<Id, 256> byte_token_;
};

}  // namespace

Id byte_token(const Vocabulary& vocabulary, std::uint8_t byte) {
  constexpr char digits[] = "0123456789ABCDEF";
  const char spelled[] = {'<', '0', 'x', digits[byte >> 4], digits[byte & 15], '>'};
  return vocabulary.find({spelled, sizeof spelled});
}

void append_spaced_piece(const Vocabulary& vocabulary, Id id, std::string& out) {
  const std::string_view text = vocabulary.text(id);
  switch (vocabulary.type(id)) {
    case TokenType::kUnknown:
    case TokenType::kControl:
    case TokenType::kUserDefined:
      out += text;
      break;
    case TokenType::kNormal:
      for (std::size_t at = 0; at < text.size();) {
        const bool space = text.substr(at, kSpace.size()) == kSpace;
        out += space ? ' ' : text[at];
        at += space ? kSpace.size() : 1;
      }
      break;
    case TokenType::kByte: {
      const auto digit = [&](std::size_t at) {
        const char c = at < text.size() ? text[at] : '0';
        return c >= 'a' ? c - 'a' + 10 : c >= 'A' ? c - 'A' + 10 : c - '0';
      };
      out += static_cast<char>(digit(3) << 4 | (digit(4) & 15));
      break;
    }
    case TokenType::kUndefined:
    case TokenType::kUnused:
      break;
  }
}

std::unique_ptr<const Model> make_sentencepiece(const Vocabulary& vocabulary, bool space_prefix,
                                                Id unknown) {
  return std::make_unique<SentencePiece>(vocabulary, space_prefix, unknown);
}

}  // namespace ingot::tokenizer
