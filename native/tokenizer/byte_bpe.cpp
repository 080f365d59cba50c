// Byte-level BPE (GPT-2 and most vocabularies since): words from the Splitter, bytes written
// as printable characters, pairs joined by the rank of their merge.
#include <array>
#include <bit>
#include <stdexcept>
#include <unordered_map>

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

// (left, right) -> rank and result of the merge.
class MergeTable {
 public:
  explicit MergeTable(std::size_t merges) : slots_(std::bit_ceil(2 * merges + 2)) {}

  // The first of equal pairs stays.
  void insert(Id left, Id right, Joint joint) {
    Slot& slot = *probe(left, right);
    if (slot.joint.id == kNone) slot = {left, right, joint};
  }

  Joint find(Id left, Id right) const {
    return const_cast<MergeTable*>(this)->probe(left, right)->joint;
  }

 private:
  struct Slot {
    Id left = kNone, right = kNone;
    Joint joint;
  };

  Slot* probe(Id left, Id right) {
    const auto pair =
        std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
    const std::uint64_t hash = pair * 0x9E3779B97F4A7C15;
    std::size_t at = (hash ^ hash >> 32) & (slots_.size() - 1);
    while (slots_[at].left != kNone && (slots_[at].left != left || slots_[at].right != right)) {
      at = (at + 1) & (slots_.size() - 1);
    }
    return &slots_[at];
  }

  std::vector<Slot> slots_;
};

class ByteBpe final : public Model {
 public:
  ByteBpe(const Vocabulary& vocabulary, Strings merges, const BpeOptions& options)
      : Model(vocabulary),
        splitter_(options.passes),
        whole_words_(options.whole_words),
        merges_(merges.size()) {
    std::string spelled;
    for (std::size_t byte = 0; byte < 256; ++byte) {
      spelled.clear();
      append_utf8(alphabet().code_of[byte], spelled);
      byte_symbol_[byte] = symbol_of(spelled);
    }
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::string_view merge = merges[i];
      const std::size_t space = merge.find(' ', 1);
      if (space == merge.npos) continue;
      const std::string_view left = merge.substr(0, space), right = merge.substr(space + 1);
      spelled.assign(left).append(right);
      merges_.insert(symbol_of(left), symbol_of(right),
                     {static_cast<std::uint32_t>(i), symbol_of(spelled)});
    }
    extra_ids_.clear();
  }

  void encode(std::string_view text, bool, Scratch& scratch, std::vector<Id>& out) const override {
    text = canonical_utf8(text, scratch.canonical);
    const Byte* begin = reinterpret_cast<const Byte*>(text.data());
    splitter_.split(begin, begin + text.size(), [&](const Byte* from, const Byte* to) {
      encode_word({reinterpret_cast<const char*>(from), static_cast<std::size_t>(to - from)},
                  scratch, out);
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
  void encode_word(std::string_view word, Scratch& scratch, std::vector<Id>& out) const {
    if (word.size() > WordCache::kBytes) return merge_word(word, scratch, out);
    WordCache::Entry& entry = scratch.words.slot(hash_bytes(word));
    if (WordCache::holds(entry, word)) {
      out.insert(out.end(), entry.id, entry.id + entry.ids);
      return;
    }
    const std::size_t before = out.size();
    merge_word(word, scratch, out);
    WordCache::store(entry, word, out.data() + before, out.size() - before);
  }

  void merge_word(std::string_view word, Scratch& scratch, std::vector<Id>& out) const {
    if (whole_words_) {
      scratch.word.clear();
      for (const char byte : word) {
        append_utf8(alphabet().code_of[static_cast<Byte>(byte)], scratch.word);
      }
      const Id id = vocabulary_.find(scratch.word);
      if (id != kNone) {
        out.push_back(id);
        return;
      }
    }
    std::vector<Symbol>& symbols = scratch.merger.symbols;
    symbols.resize(word.size());
    for (std::size_t i = 0; i < word.size(); ++i) {
      symbols[i] = {static_cast<std::uint32_t>(i), 1, byte_symbol_[static_cast<Byte>(word[i])]};
    }
    scratch.merger.merge([this](const Symbol& left, const Symbol& right) {
      return merges_.find(left.id, right.id);
    });
    for (const Symbol& symbol : symbols) emit(symbol.id, out);
  }

  void emit(Id symbol, std::vector<Id>& out) const {
    const auto known = static_cast<Id>(vocabulary_.size());
    if (symbol < known) {
      out.push_back(symbol);
    } else {
      const std::vector<Id>& parts = extra_parts_[static_cast<std::size_t>(symbol - known)];
      out.insert(out.end(), parts.begin(), parts.end());
    }
  }

  // The id of a token, or a number behind the vocabulary for a text that merges or bytes need
  // but no token has. In the end such a symbol gives the tokens of its single bytes.
  Id symbol_of(std::string_view text) {
    const Id id = vocabulary_.find(text);
    if (id != kNone) return id;
    const auto fresh = static_cast<Id>(vocabulary_.size() + extra_parts_.size());
    const auto [found, inserted] = extra_ids_.try_emplace(std::string(text), fresh);
    if (inserted) {
      std::vector<Id>& parts = extra_parts_.emplace_back();
      for (std::size_t i = 0; i < text.size(); ++i) {
        const Id part = vocabulary_.find(text.substr(i, 1));
        if (part != kNone) parts.push_back(part);
      }
    }
    return found->second;
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
  std::array<Id, 256> byte_symbol_;
  MergeTable merges_;
  std::unordered_map<std::string, Id> extra_ids_;  // while building
  std::vector<std::vector<Id>> extra_parts_;
};

}  // namespace

std::unique_ptr<const Model> make_byte_bpe(const Vocabulary& vocabulary, Strings merges,
                                           const BpeOptions& options) {
  return std::make_unique<ByteBpe>(vocabulary, merges, options);
}

}  // namespace ingot::tokenizer
