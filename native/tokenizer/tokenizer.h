// Text to ids and back: special tokens, the vocabulary kind, and what goes around them.
//
// Immutable once built; any number of threads may use one at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/model.h"
#include "tokenizer/special.h"
#include "tokenizer/vocabulary.h"

namespace ingot::tokenizer {

struct Framing {
  std::vector<Id> before, after;  // ids around a text that asks for them
};

class Tokenizer {
 public:
  Tokenizer(const Vocabulary& vocabulary, std::shared_ptr<const Model> model, const Strips& strips,
            Framing framing);

  struct Request {
    std::string_view text;
    bool add_special = true;
    bool parse_special = false;
    std::span<const Span> plain;  // sorted
  };
  std::vector<Id> encode(const Request& request) const;

  // Ids must lie in the vocabulary.
  std::string decode(std::span<const Id> ids, bool skip_special) const;

 private:
  class Lease;

  const Vocabulary& vocabulary_;
  std::shared_ptr<const Model> model_;
  SpecialTokens special_;
  Framing framing_;
  // Working memory not in use, newest last.
  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> idle_;
};

}  // namespace ingot::tokenizer
