// Reads the source of a Pattern into its sequences and its table of classes.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizer/pattern.h"

namespace ingot::tokenizer {

class PatternParser {
 public:
  PatternParser(std::string_view source, ClassTable& classes);

  std::vector<Sequence> parse();

 private:
  // What [...] says: any of its parts, perhaps negated, perhaps only where `within` holds.
  struct ClassPart {
    enum Kind : std::uint8_t { kRange, kCategory, kWhiteSpace, kNotWhiteSpace, kDigit } kind;
    std::uint32_t low = 0, high = 0;  // kRange
    Category category = Category::kUnassigned;
  };
  struct ClassSource {
    bool negated = false;
    std::vector<ClassPart> parts;
    std::shared_ptr<const ClassSource> within;
  };

  std::vector<Sequence> alternation();
  Sequence sequence();
  Element atom();
  void quantifier(Element& element);
  ClassSource bracket();
  ClassPart escaped();
  std::uint32_t literal();
  std::uint32_t number();

  Element class_element(ClassSource source);
  static bool holds(const ClassSource& source, std::uint32_t code, std::uint8_t properties);
  void fill_table();

  bool at_end() const { return at_ == end_; }
  bool accept(std::string_view token);
  void expect(std::string_view token);
  [[noreturn]] void fail(const char* reason) const;

  std::string_view source_;
  const Byte *at_, *end_;
  ClassTable& table_;
  std::vector<ClassSource> classes_;
};

}  // namespace ingot::tokenizer
