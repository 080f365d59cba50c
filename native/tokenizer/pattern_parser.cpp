// The syntax: alternatives with |, classes [...] with ranges, ^ and && between brackets,
// \p{L} \p{N} \p{P} \p{M} \p{S} \s \S \d, groups (?:...), a negative look-ahead of one class
// (?!...), $ for the end of the piece, and the quantifiers ? * + {n} {n,m}.
#include "tokenizer/pattern_parser.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace ingot::tokenizer {

PatternParser::PatternParser(std::string_view source, ClassTable& classes)
    : source_(source),
      at_(reinterpret_cast<const Byte*>(source.data())),
      end_(at_ + source.size()),
      table_(classes) {}

std::vector<Sequence> PatternParser::parse() {
  std::vector<Sequence> alternatives = alternation();
  if (!at_end()) fail("unbalanced )");
  fill_table();
  return alternatives;
}

void PatternParser::fail(const char* reason) const {
  const std::size_t place = source_.size() - static_cast<std::size_t>(end_ - at_);
  throw std::invalid_argument("pattern '" + std::string(source_) + "': " + reason + " at byte " +
                              std::to_string(place));
}

bool PatternParser::accept(std::string_view token) {
  const std::string_view rest(reinterpret_cast<const char*>(at_),
                              static_cast<std::size_t>(end_ - at_));
  if (!rest.starts_with(token)) return false;
  at_ += token.size();
  return true;
}

void PatternParser::expect(std::string_view token) {
  if (!accept(token)) fail(("expected " + std::string(token)).c_str());
}

std::vector<Sequence> PatternParser::alternation() {
  std::vector<Sequence> alternatives;
  do alternatives.push_back(sequence());
  while (accept("|"));
  return alternatives;
}

Sequence PatternParser::sequence() {
  Sequence elements;
  while (!at_end() && *at_ != '|' && *at_ != ')') {
    Element element = atom();
    quantifier(element);
    elements.push_back(std::move(element));
  }
  return elements;
}

Element PatternParser::atom() {
  if (accept("(?:")) {
    auto group = std::make_shared<Group>();
    group->alternatives = alternation();
    expect(")");
    Element element{Element::kGroup};
    element.group = std::move(group);
    return element;
  }
  if (accept("(?!")) {
    Element element = atom();
    expect(")");
    if (element.kind != Element::kClass) fail("a look-ahead takes one class");
    element.kind = Element::kNotAhead;
    return element;
  }
  if (accept("$")) return Element{Element::kEnd};
  if (accept("[")) return class_element(bracket());
  ClassSource one;
  if (accept("\\")) {
    one.parts.push_back(escaped());
  } else {
    const std::uint32_t code = literal();
    one.parts.push_back({ClassPart::kRange, code, code});
  }
  return class_element(std::move(one));
}

void PatternParser::quantifier(Element& element) {
  if (accept("?")) {
    element.min = 0;
  } else if (accept("*")) {
    element.min = 0, element.max = kUnbounded;
  } else if (accept("+")) {
    element.max = kUnbounded;
  } else if (accept("{")) {
    element.min = element.max = number();
    if (accept(",")) element.max = number();
    expect("}");
    if (element.max < element.min) fail("empty range of repeats");
  }
}

std::uint32_t PatternParser::number() {
  std::uint32_t value = 0;
  if (at_end() || *at_ < '0' || *at_ > '9') fail("expected a number");
  while (!at_end() && *at_ >= '0' && *at_ <= '9' && value < 10000)
    value = value * 10 + *at_++ - '0';
  return value;
}

std::uint32_t PatternParser::literal() {
  if (at_end()) fail("unexpected end");
  if (symbol_bytes(*at_) > static_cast<std::size_t>(end_ - at_)) fail("cut code point");
  return next_code(at_);
}

// Behind the backslash.
PatternParser::ClassPart PatternParser::escaped() {
  if (accept("p{")) {
    constexpr std::string_view names = "LNPMS";
    constexpr Category categories[] = {Category::kLetter, Category::kNumber, Category::kPunctuation,
                                       Category::kMark, Category::kSymbol};
    const std::size_t index = at_end() ? names.npos : names.find(static_cast<char>(*at_));
    if (index == names.npos) fail("unknown category");
    ++at_;
    expect("}");
    ClassPart part{ClassPart::kCategory};
    part.category = categories[index];
    return part;
  }
  if (accept("s")) return {ClassPart::kWhiteSpace};
  if (accept("S")) return {ClassPart::kNotWhiteSpace};
  if (accept("d")) return {ClassPart::kDigit};
  std::uint32_t code = literal();
  if (code == 'r') code = '\r';
  if (code == 'n') code = '\n';
  if (code == 't') code = '\t';
  return {ClassPart::kRange, code, code};
}

// Behind the opening bracket.
PatternParser::ClassSource PatternParser::bracket() {
  ClassSource source;
  source.negated = accept("^");
  while (!accept("]")) {
    if (accept("&&[")) {
      source.within = std::make_shared<ClassSource>(bracket());
      expect("]");
      break;
    }
    ClassPart part{ClassPart::kRange};
    if (accept("\\")) {
      part = escaped();
    } else {
      part.low = part.high = literal();
    }
    if (part.kind == ClassPart::kRange && at_ + 1 < end_ && at_[0] == '-' && at_[1] != ']') {
      ++at_;
      part.high = accept("\\") ? escaped().high : literal();
      if (part.high < part.low) fail("empty range");
    }
    source.parts.push_back(part);
  }
  return source;
}

Element PatternParser::class_element(ClassSource source) {
  if (classes_.size() == 64) fail("more than 64 classes");
  Element element{Element::kClass};
  element.mask = ClassMask{1} << classes_.size();
  classes_.push_back(std::move(source));
  return element;
}

bool PatternParser::holds(const ClassSource& source, std::uint32_t code, std::uint8_t properties) {
  const bool white = (properties & 8) != 0;
  const auto category = static_cast<Category>(properties & 7);
  bool any = false;
  for (const ClassPart& part : source.parts) {
    switch (part.kind) {
      case ClassPart::kRange:
        any |= code >= part.low && code <= part.high && !(white && code >= 128);
        break;
      case ClassPart::kCategory:
        any |= category == part.category;
        break;
      case ClassPart::kWhiteSpace:
        any |= white;
        break;
      case ClassPart::kNotWhiteSpace:
        any |= !white;
        break;
      case ClassPart::kDigit:
        any |= code >= '0' && code <= '9';
        break;
    }
  }
  return any != source.negated && (!source.within || holds(*source.within, code, properties));
}

void PatternParser::fill_table() {
  const auto mask_of = [&](std::uint32_t code, std::uint8_t properties) {
    ClassMask mask = 0;
    for (std::size_t i = 0; i < classes_.size(); ++i) {
      if (holds(classes_[i], code, properties)) mask |= ClassMask{1} << i;
    }
    return mask;
  };
  for (std::uint32_t code = 0; code < 128; ++code) {
    table_.ascii_[code] = mask_of(code, properties_of(code));
  }
  // Between two borders of ranges, only the properties decide.
  std::vector<std::uint32_t>& starts = table_.starts_;
  starts.push_back(128);
  for (const ClassSource& outer : classes_) {
    for (const ClassSource* source = &outer; source != nullptr; source = source->within.get()) {
      for (const ClassPart& part : source->parts) {
        if (part.kind != ClassPart::kRange) continue;
        if (part.low > 128) starts.push_back(part.low);
        if (part.high >= 128) starts.push_back(part.high + 1);
      }
    }
  }
  std::sort(starts.begin(), starts.end());
  starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
  for (const std::uint32_t start : starts) {
    std::array<ClassMask, 16> masks;
    for (std::uint8_t properties = 0; properties < 16; ++properties) {
      masks[properties] = mask_of(start, properties);
    }
    table_.masks_.push_back(masks);
  }
}

}  // namespace ingot::tokenizer
