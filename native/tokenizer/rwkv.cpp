// RWKV's vocabulary: the longest token at every place, byte by byte. Files hold the tokens
// escaped the way Python writes bytes.
#include "tokenizer/model.h"
#include "tokenizer/trie.h"

namespace ingot::tokenizer {
namespace {

void append_unescaped(std::string_view text, std::string& out) {
  const auto digit = [](char c) { return c >= 'a' ? c - 'a' + 10 : c - '0'; };
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\' || at + 1 == text.size()) {
      if (text[at] != '\\') out += text[at];
      continue;
    }
    const char c = text[++at];
    if (c == 'x') {
      if (at + 2 < text.size()) {
        out += static_cast<char>(digit(text[at + 1]) << 4 | (digit(text[at + 2]) & 15));
      }
      at += 2;
    } else {
      out += c == 't' ? '\t' : c == 'n' ? '\n' : c == 'r' ? '\r' : c;
    }
  }
}

class Rwkv final : public Model {
 public:
  Rwkv(const Vocabulary& vocabulary, Id unknown) : Model(vocabulary), unknown_(unknown) {
    std::string bytes;
    for (std::size_t i = 0; i < vocabulary.size(); ++i) {
      const Id id = static_cast<Id>(i);
      if (vocabulary.is_control(id)) continue;
      bytes.clear();
      append_unescaped(vocabulary.text(id), bytes);
      tokens_.insert(bytes, id);
    }
  }

  void encode(std::string_view text, bool, Scratch&, std::vector<Id>& out) const override {
    while (!text.empty()) {
      Id longest = unknown_;
      std::size_t taken = 1;
      tokens_.each_prefix(text, [&](Id id, std::size_t bytes) { longest = id, taken = bytes; });
      if (longest != kNone) out.push_back(longest);
      text.remove_prefix(taken);
    }
  }

  void append_bytes(Id id, std::string& out) const override {
    append_unescaped(vocabulary_.text(id), out);
  }

 private:
  Trie tokens_;
  Id unknown_;
};

}  // namespace

std::unique_ptr<const Model> make_rwkv(const Vocabulary& vocabulary, Id unknown) {
  return std::make_unique<Rwkv>(vocabulary, unknown);
}

}  // namespace ingot::tokenizer
