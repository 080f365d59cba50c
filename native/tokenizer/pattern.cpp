#include "tokenizer/pattern.h"

#include <algorithm>
#include <bit>
#include <stdexcept>

#include "tokenizer/pattern_parser.h"

namespace ingot::tokenizer {
namespace {

// Walks one class, one step or as far as it goes.
class Walker {
 public:
  Walker(const ClassTable& classes, const Byte* end) : classes_(classes), end_(end) {}

  bool is_at(const Byte* at, ClassMask mask) const {
    if (at == end_) return false;
    if (*at < 128) return (classes_.of_ascii(*at) & mask) != 0;
    return (classes_.of(next_code(at)) & mask) != 0;
  }

  // Moves `at` over up to `max` members of the class; how many.
  std::uint32_t run(const Byte*& at, ClassMask mask, std::uint32_t max) const {
    std::uint32_t count = 0;
    for (; count < max && at < end_; ++count) {
      if (*at < 128) {
        if (!(classes_.of_ascii(*at) & mask)) break;
        ++at;
      } else {
        const Byte* next = at;
        if (!(classes_.of(next_code(next)) & mask)) break;
        at = next;
      }
    }
    return count;
  }

  const Byte* end() const { return end_; }

  // The end of the match of [first, last) from `at`; null when there is none.
  const Byte* match(const Element* first, const Element* last, const Byte* at) const {
    for (const Element* element = first; element != last; ++element) {
      switch (element->kind) {
        case Element::kEnd:
          if (at != end_) return nullptr;
          break;
        case Element::kNotAhead:
          if (is_at(at, element->mask)) return nullptr;
          break;
        case Element::kGroup:
          if (!repeat_group(*element, at)) return nullptr;
          break;
        case Element::kClass: {
          const std::uint32_t count = run(at, element->mask, element->max);
          if (count < element->min) return nullptr;
          if (element + 1 == last) return at;
          if (count == element->min) break;
          return give_back(element, last, at, count);
        }
      }
    }
    return at;
  }

 private:
  // Tries what follows a repeat, from its greedy end backwards.
  const Byte* give_back(const Element* repeat, const Element* last, const Byte* at,
                        std::uint32_t count) const {
    while (true) {
      if (const Byte* matched = match(repeat + 1, last, at)) return matched;
      if (count-- == repeat->min) return nullptr;
      do --at;
      while ((*at & 0xC0) == 0x80);
    }
  }

  bool repeat_group(const Element& element, const Byte*& at) const {
    for (std::uint32_t count = 0; count < element.max; ++count) {
      const Byte* next = nullptr;
      for (const Sequence& sequence : element.group->alternatives) {
        next = match(sequence.data(), sequence.data() + sequence.size(), at);
        if (next != nullptr) break;
      }
      if (next == nullptr || next == at) return count >= element.min;
      at = next;
    }
    return true;
  }

  const ClassTable& classes_;
  const Byte* end_;
};

constexpr ClassMask kAnything = ~ClassMask{0};

}  // namespace

ClassMask ClassTable::beyond_ascii(std::uint32_t code) const {
  const std::uint8_t properties = properties_of(code);
  if (starts_.size() == 1) return masks_[0][properties];
  const auto after = std::upper_bound(starts_.begin(), starts_.end(), code);
  return masks_[static_cast<std::size_t>(after - starts_.begin()) - 1][properties];
}

Pattern::Pattern(std::string_view source) {
  std::vector<Sequence> sequences = PatternParser(source, classes_).parse();
  if (sequences.size() > 32) throw std::invalid_argument("a pattern has up to 32 alternatives");
  int memories = 0;
  for (Sequence& sequence : sequences) {
    Alternative alternative;
    alternative.first = first_of(sequence);
    const bool leads =
        sequence.size() > 1 && sequence[0].kind == Element::kClass && sequence[0].max == kUnbounded;
    if (leads && memories < static_cast<int>(Memory{}.failed_until.size())) {
      alternative.memory = memories++;
    }
    alternative.elements = std::move(sequence);
    alternatives_.push_back(std::move(alternative));
  }
  for (std::uint32_t code = 0; code < 128; ++code) {
    for (std::size_t i = 0; i < alternatives_.size(); ++i) {
      const ClassMask first = alternatives_[i].first;
      if (first == kAnything || (classes_.of(code) & first)) ascii_starts_[code] |= 1u << i;
    }
  }
}

// kAnything when the sequence can match nothing at all.
ClassMask Pattern::first_of(const Sequence& elements) const {
  ClassMask first = 0;
  for (const Element& element : elements) {
    if (element.kind == Element::kClass) {
      first |= element.mask;
    } else if (element.kind == Element::kGroup) {
      for (const Sequence& inner : element.group->alternatives) first |= first_of(inner);
    } else {
      continue;
    }
    if (element.min > 0) return first;
  }
  return kAnything;
}

const Byte* Pattern::match(const Byte* at, const Byte* end, Memory& memory) const {
  const Walker walker(classes_, end);
  std::uint32_t candidates;
  if (*at < 128) {
    candidates = ascii_starts_[*at];
  } else {
    const Byte* next = at;
    const ClassMask mask = classes_.of(next_code(next));
    candidates = 0;
    for (std::size_t i = 0; i < alternatives_.size(); ++i) {
      const ClassMask first = alternatives_[i].first;
      if (first == kAnything || (mask & first)) candidates |= 1u << i;
    }
  }
  for (; candidates != 0; candidates &= candidates - 1) {
    const Alternative& tried =
        alternatives_[static_cast<std::size_t>(std::countr_zero(candidates))];
    const Element* elements = tried.elements.data();
    if (tried.memory >= 0 && at < memory.failed_until[static_cast<std::size_t>(tried.memory)]) {
      continue;
    }
    if (const Byte* matched = walker.match(elements, elements + tried.elements.size(), at)) {
      return matched;
    }
    if (tried.memory >= 0) {
      const Byte* run_end = at;
      walker.run(run_end, elements->mask, kUnbounded);
      memory.failed_until[static_cast<std::size_t>(tried.memory)] = run_end;
    }
  }
  return nullptr;
}

Splitter::Splitter(const std::vector<std::string_view>& passes) {
  for (const std::string_view pass : passes) {
    if (pass == "@thousands") {
      passes_.push_back({Kind::kThousands, nullptr});
    } else if (pass == "@thousands-ascii") {
      passes_.push_back({Kind::kAsciiThousands, nullptr});
    } else {
      passes_.push_back({Kind::kPattern, std::make_unique<Pattern>(pass)});
    }
  }
}

std::size_t Splitter::count_digits(const Byte*& at, const Byte* end, Kind kind) {
  std::size_t count = 0;
  for (; at < end; ++count) {
    const Byte* next = at;
    const std::uint32_t code = next_code(next);
    const bool digit = kind == Kind::kThousands ? category_of(code) == Category::kNumber
                                                : code >= '0' && code <= '9';
    if (!digit) break;
    at = next;
  }
  return count;
}

}  // namespace ingot::tokenizer
