// Finds the special tokens in a text before anything else looks at it.
//
// As llama.cpp does: the longest tokens are taken out first, each from left to right, then
// shorter ones from what is left. User-defined tokens are always found; control and unknown
// tokens only when asked, and never inside a span marked as plain text.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/trie.h"
#include "tokenizer/vocabulary.h"

namespace ingot::tokenizer {

struct Span {
  std::size_t begin, end;
};

// A special token in a text; the place includes white space that the token strips.
struct SpecialMatch {
  std::size_t begin, end;
  Id id;
};

// Tokens that swallow white space on one side.
struct Strips {
  std::vector<Id> left, right;
};

class SpecialTokens {
 public:
  SpecialTokens(const Vocabulary& vocabulary, const Strips& strips);

  // In order of their place. `plain` is sorted.
  std::vector<SpecialMatch> find(std::string_view text, bool controls,
                                 std::span<const Span> plain) const;

 private:
  struct Search;

  // The tokens that are nothing but runs of one byte, longest first, and by the length of a run
  // the first that fits into it.
  struct Run {
    std::vector<SpecialMatch> tokens;  // begin 0, end the length
    std::vector<std::size_t> first_fit;
  };
  enum class Lead : std::uint8_t { kNone, kRun, kToken };

  void find_runs(const std::vector<Id>& ids, bool controls);
  bool strips_left(Id id) const;
  bool strips_right(Id id) const;
  bool precedes(Id a, Id b) const;

  const Vocabulary& vocabulary_;
  Strips strips_;
  // [0]: user-defined tokens only, [1]: all.
  std::array<Trie, 2> index_;
  std::array<std::array<Lead, 256>, 2> leads_{};
  std::array<std::vector<Run>, 2> runs_;
};

}  // namespace ingot::tokenizer
