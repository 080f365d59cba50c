// A vocabulary kind: how plain text becomes ids, and what a token reads as.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/merge.h"
#include "tokenizer/merge_cache.h"
#include "tokenizer/vocabulary.h"
#include "tokenizer/word_cache.h"

namespace ingot::tokenizer {

// Working memory of one encoding thread. Keeps the words it has seen, so it belongs to one
// tokenizer for good.
struct Scratch {
  WordCache words;
  Merger merger;
  MergeCache merges;      // of byte-level BPE
  std::string canonical;  // text brought to canonical UTF-8
  std::string word;       // one word in the vocabulary's own spelling
};

class Model {
 public:
  explicit Model(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}
  virtual ~Model() = default;

  // Appends the ids of a stretch of text without special tokens. `after_special`: it is
  // at the start or follows a special token.
  virtual void encode(std::string_view text, bool after_special, Scratch& scratch,
                      std::vector<Id>& out) const = 0;

  // Appends the bytes of a token; nothing for types without text.
  virtual void append_bytes(Id id, std::string& out) const = 0;

 protected:
  const Vocabulary& vocabulary_;
};

// What all kinds but byte-level BPE and RWKV do: U+2581 stands for a space, <0x..> for a byte.
void append_spaced_piece(const Vocabulary& vocabulary, Id id, std::string& out);

// The token <0x..> of a byte, or kNone.
Id byte_token(const Vocabulary& vocabulary, std::uint8_t byte);

struct BpeOptions {
  std::vector<std::string_view> passes;  // of the Splitter
  bool whole_words = false;              // a word that is a token is not merged up to
};
std::unique_ptr<const Model> make_byte_bpe(const Vocabulary& vocabulary, Strings merges,
                                           const BpeOptions& options);

std::unique_ptr<const Model> make_character_bpe(const Vocabulary& vocabulary, Strings merges);

std::unique_ptr<const Model> make_sentencepiece(const Vocabulary& vocabulary, bool space_prefix,
                                                Id unknown);

struct WordPieceOptions {
  bool lower_case = true;
  bool strip_accents = true;
  Id unknown = kNone;
};
std::unique_ptr<const Model> make_word_piece(const Vocabulary& vocabulary,
                                             const WordPieceOptions& options);

struct UnigramOptions {
  std::span<const std::uint8_t> charsmap;  // SentencePiece's precompiled normalization
  bool space_prefix = false;
  bool merge_spaces = false;
  Id unknown = kNone;
};
std::unique_ptr<const Model> make_unigram(const Vocabulary& vocabulary,
                                          const UnigramOptions& options);

std::unique_ptr<const Model> make_rwkv(const Vocabulary& vocabulary, Id unknown);

}  // namespace ingot::tokenizer
