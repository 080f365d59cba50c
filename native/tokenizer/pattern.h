// Splitting patterns: a small regular-expression matcher over code-point classes.
//
// In: a pattern in the syntax of the pre-tokenizers (see pattern_parser.cpp for what it
// knows) and canonical UTF-8 text. Out: where the match that starts at a place ends.
// Alternatives are tried in order; repeats are greedy and of one class give back, repeats of
// a group do not (nothing follows the ones in use that would ask for it). No recursion grows
// with the text.
//
// Ranges never hold white space beyond ASCII, which only \s does: llama.cpp replaces it before
// it matches.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/unicode.h"

namespace ingot::tokenizer {

using Byte = std::uint8_t;
// One bit per class of a pattern.
using ClassMask = std::uint64_t;

struct Group;

// One step of a sequence.
struct Element {
  enum Kind : std::uint8_t { kClass, kGroup, kNotAhead, kEnd } kind;
  ClassMask mask = 0;  // kClass, kNotAhead: the bit of the class
  std::uint32_t min = 1, max = 1;
  std::shared_ptr<const Group> group;
};
constexpr std::uint32_t kUnbounded = 0xFFFFFFFF;

using Sequence = std::vector<Element>;

struct Group {
  std::vector<Sequence> alternatives;
};

// Which classes every code point belongs to.
class ClassTable {
 public:
  ClassMask of(std::uint32_t code) const { return code < 128 ? ascii_[code] : beyond_ascii(code); }
  ClassMask of_ascii(Byte byte) const { return ascii_[byte]; }

 private:
  friend class PatternParser;
  ClassMask beyond_ascii(std::uint32_t code) const;

  std::array<ClassMask, 128> ascii_{};
  // The code points from starts_[i] on belong to the classes in masks_[i][properties].
  std::vector<std::uint32_t> starts_;
  std::vector<std::array<ClassMask, 16>> masks_;
};

class Pattern {
 public:
  // Throws std::invalid_argument when the source is not understood.
  explicit Pattern(std::string_view source);

  // What a search through one segment remembers, so that a repeat which failed once is not
  // walked again from each of its later starts.
  struct Memory {
    std::array<const Byte*, 4> failed_until{};
  };

  // False when no match starts with this ASCII byte.
  bool may_start(Byte byte) const { return byte >= 128 || ascii_starts_[byte] != 0; }

  // The end of the match at `at` in a segment that ends at `end`; null when there is none.
  const Byte* match(const Byte* at, const Byte* end, Memory& memory) const;

 private:
  struct Alternative {
    Sequence elements;
    ClassMask first = 0;  // classes a match can start with
    int memory = -1;      // place in Memory when it starts with an unbounded repeat
  };
  ClassMask first_of(const Sequence& elements) const;

  ClassTable classes_;
  std::vector<Alternative> alternatives_;
  std::array<std::uint32_t, 128> ascii_starts_{};  // bit i: alternative i can start here
};

// The passes of a pre-tokenizer: each cuts every piece of the one before into matches and
// what lies between them.
class Splitter {
 public:
  // A pass is a pattern, or one of two ways to group digits in threes from the right, which
  // as a pattern would look ahead over the same digits again and again:
  // "@thousands" cuts after every group of \p{N} (AFMoE: the text before it stays with it);
  // "@thousands-ascii" cuts before every full group of 0-9 (SuperBPE).
  explicit Splitter(const std::vector<std::string_view>& passes);

  // Calls sink(begin, end) for every piece in order. Pieces are never empty.
  template <class Sink>
  void split(const Byte* begin, const Byte* end, const Sink& sink) const {
    run(0, begin, end, sink);
  }

 private:
  enum class Kind : std::uint8_t { kPattern, kThousands, kAsciiThousands };
  struct Pass {
    Kind kind;
    std::unique_ptr<const Pattern> pattern;
  };

  template <class Sink>
  void run(std::size_t pass, const Byte* begin, const Byte* end, const Sink& sink) const {
    if (begin == end) return;
    if (pass == passes_.size()) {
      sink(begin, end);
    } else if (passes_[pass].kind == Kind::kPattern) {
      run_pattern(pass, begin, end, sink);
    } else {
      run_thousands(pass, begin, end, sink);
    }
  }

  template <class Sink>
  void run_pattern(std::size_t pass, const Byte* begin, const Byte* end, const Sink& sink) const {
    const Pattern& pattern = *passes_[pass].pattern;
    Pattern::Memory memory;
    const Byte* done = begin;
    for (const Byte* at = begin; at < end;) {
      if (!pattern.may_start(*at)) {
        ++at;
        continue;
      }
      const Byte* matched = pattern.match(at, end, memory);
      if (matched == nullptr || matched == at) {
        at += symbol_bytes(*at);
        continue;
      }
      run(pass + 1, done, at, sink);
      run(pass + 1, at, matched, sink);
      done = at = matched;
    }
    run(pass + 1, done, end, sink);
  }

  template <class Sink>
  void run_thousands(std::size_t pass, const Byte* begin, const Byte* end, const Sink& sink) const {
    const Kind kind = passes_[pass].kind;
    const Byte* done = begin;
    for (const Byte* at = begin; at < end;) {
      const Byte* after = at;
      std::size_t digits = count_digits(after, end, kind);
      if (digits == 0) {
        at += symbol_bytes(*at);
        continue;
      }
      for (std::size_t group = (digits - 1) % 3 + 1; digits > 0; digits -= group, group = 3) {
        if (kind == Kind::kAsciiThousands && group == 3) {
          run(pass + 1, done, at, sink);
          done = at;
        }
        for (std::size_t i = 0; i < group; ++i) at += symbol_bytes(*at);
        if (kind == Kind::kThousands) {
          run(pass + 1, done, at, sink);
          done = at;
        }
      }
    }
    run(pass + 1, done, end, sink);
  }

  static std::size_t count_digits(const Byte*& at, const Byte* end, Kind kind);

  std::vector<Pass> passes_;
};

}  // namespace ingot::tokenizer
