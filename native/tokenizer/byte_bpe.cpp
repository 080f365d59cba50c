// Byte-level BPE (GPT-2 and most vocabularies since): words from the Splitter, bytes written
// as printable characters, pairs joined by the rank of their merge.
#include <array>

#include "tokenizer/merges.h"
#include "tokenizer/model.h"
#include "tokenizer/pattern.h"
#include "tokenizer/unicode.h"

namespace ingot::tokenizer {
namespace {

// GPT-2's alphabet: printable Latin-1 bytes stand for themselves, the others are numbered
// from U+0100 on.
struct Alphabet {
  std::array<std::uint16_t, 256> code_of{};
  std::array<std::int16_t, 512> byte_of{};

  Alphabet() {
    byte_of.fill(-1);
    std::uint16_t next = 256;
    for (std::uint16_t byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
      code_of[byte] = printable ? byte : next++;
      byte_of[code_of[byte]] = static_cast<std::int16_t>(byte);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

class ByteBpe final : public Model {
 public:
  ByteBpe(const Vocabulary& vocabulary, Strings merges, const BpeOptions& options)
      : Model(vocabulary),
        splitter_(options.passes),
        whole_words_(options.whole_words),
        merges_(merges) {}

  void encode(std::string_view text, bool, Scratch& scratch, std::vector<Id>& out) const override {
    text = canonical_utf8(text, scratch.canonical);
    const Byte* begin = reinterpret_cast<const Byte*>(text.data());
    splitter_.split(begin, begin + text.size(), [&](const Byte* from, const Byte* to) {
      const std::string_view word(reinterpret_cast<const char*>(from),
                                  static_cast<std::size_t>(to - from));
      scratch.words.encode(word, out, [&] { merge_word(word, scratch, out); });
    });
  }

  void append_bytes(Id id, std::string& out) const override {
    const std::string_view text = vocabulary_.text(id);
    switch (vocabulary_.type(id)) {
      case TokenType::kUnknown:
      case TokenType::kControl:
      case TokenType::kUserDefined:
        out += text;
        break;
      case TokenType::kNormal:
        append_plain(text, out);
        break;
      case TokenType::kByte:
        append_spaced_piece(vocabulary_, id, out);
        break;
      case TokenType::kUndefined:
      case TokenType::kUnused:
        break;
    }
  }

 private:
  void merge_word(std::string_view word, Scratch& scratch, std::vector<Id>& out) const {
    std::string& spelled = scratch.word;
    std::vector<Symbol>& symbols = scratch.merger.symbols;
    spelled.clear();
    symbols.clear();
    for (const char byte : word) {
      const auto start = static_cast<std::uint32_t>(spelled.size());
      append_utf8(alphabet().code_of[static_cast<Byte>(byte)], spelled);
      symbols.push_back({start, static_cast<std::uint32_t>(spelled.size()) - start,
                         static_cast<Id>(static_cast<Byte>(byte))});
    }
    if (whole_words_) {
      const Id id = vocabulary_.find_plain(spelled);
      if (id != kNone) {
        out.push_back(id);
        return;
      }
    }
    const std::string_view text = spelled;
    const auto text_of = [&](const Symbol& symbol) {
      return text.substr(symbol.start, symbol.bytes);
    };
    scratch.merger.merge([&](const Symbol& left, const Symbol& right) {
      return scratch.merges.joint(left.id, right.id,
                                  [&] { return merges_.find(text_of(left), text_of(right)); });
    });
    for (const Symbol& symbol : symbols) {
      const Id id = scratch.merges.token(symbol.id, merges_.symbols(),
                                         [&] { return vocabulary_.find_plain(text_of(symbol)); });
      id != kNone ? out.push_back(id) : append_parts(text_of(symbol), out);
    }
  }

  // For a symbol that is not a token: the tokens of its single bytes, as far as there are any.
  void append_parts(std::string_view symbol, std::vector<Id>& out) const {
    for (std::size_t i = 0; i < symbol.size(); ++i) {
      const Id part = vocabulary_.find_plain(symbol.substr(i, 1));
      if (part != kNone) out.push_back(part);
    }
  }

  static void append_plain(std::string_view text, std::string& out) {
    std::string storage;
    text = canonical_utf8(text, storage);
    const Byte* at = reinterpret_cast<const Byte*>(text.data());
    for (const Byte* end = at + text.size(); at < end;) {
      const std::uint32_t code = next_code(at);
      const int byte = code < 512 ? alphabet().byte_of[code] : -1;
      byte >= 0 ? out.push_back(static_cast<char>(byte)) : append_utf8(code, out);
    }
  }

  Splitter splitter_;
  bool whole_words_;
  Merges merges_;
};

}  // namespace

std::unique_ptr<const Model> make_byte_bpe(const Vocabulary& vocabulary, Strings merges,
                                           const BpeOptions& options) {
  return std::make_unique<ByteBpe>(vocabulary, merges, options);
}

}  // namespace ingot::tokenizer
