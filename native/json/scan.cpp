#include "json/scan.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <system_error>
#include <vector>

namespace ingot::json {
namespace {

std::optional<uint32_t> hex4(std::string_view text, size_t at) {
  if (at + 4 > text.size()) return std::nullopt;
  uint32_t value = 0;
  const char* end = text.data() + at + 4;
  const auto [rest, error] = std::from_chars(text.data() + at, end, value, 16);
  if (error != std::errc{} || rest != end) return std::nullopt;
  return value;
}

bool is_high(uint32_t unit) { return unit >= 0xD800 && unit < 0xDC00; }
bool is_low(uint32_t unit) { return unit >= 0xDC00 && unit < 0xE000; }

// Whether a number or word would be read as NaN or as an infinity.
bool is_not_finite(std::string_view word) {
  if (word.starts_with('-')) word.remove_prefix(1);
  if (word.starts_with('N') || word.starts_with('I')) return true;
  const size_t exponent = word.find_first_of("eE");
  if (exponent == std::string_view::npos || word.substr(exponent + 1).starts_with('-')) {
    return false;
  }
  return std::isinf(std::strtod(std::string(word).c_str(), nullptr));
}

class Scanner {
 public:
  Scanner(std::string_view text, const Limits& limits) : text_(text), limits_(limits) {}

  Fault scan() {
    while (at_ < text_.size()) {
      if (const Fault fault = take(); fault != Fault::kNone) return fault;
    }
    return Fault::kNone;
  }

 private:
  // Takes one bracket, mark, string, number or word, or one byte of white space.
  Fault take() {
    switch (text_[at_]) {
      case '\0':
        return Fault::kEncoding;
      case '"':
        return take_string();
      case '[':
      case '{':
        ++at_;
        opened_.push_back(names_.size());
        return opened_.size() > limits_.depth ? Fault::kDepth : counted();
      case ']':
      case '}':
        ++at_;
        return close();
      case ':':
        ++at_;
        names_.push_back(last_string_);
        return names_.size() > limits_.values ? Fault::kValues : Fault::kNone;
      case ',':
      case ' ':
      case '\t':
      case '\n':
      case '\r':
        ++at_;
        return Fault::kNone;
      default:
        return take_word();
    }
  }

  Fault counted() { return ++values_ > limits_.values ? Fault::kValues : Fault::kNone; }

  Fault close() {
    if (opened_.empty()) return Fault::kNone;  // the parser will say so
    const auto first = names_.begin() + static_cast<std::ptrdiff_t>(opened_.back());
    opened_.pop_back();
    std::sort(first, names_.end());
    const bool twice = std::adjacent_find(first, names_.end()) != names_.end();
    names_.erase(first, names_.end());
    return twice ? Fault::kDuplicate : Fault::kNone;
  }

  Fault take_string() {
    const size_t start = ++at_;
    for (; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      const char byte = text_[at_];
      if (byte == '\0') return Fault::kEncoding;
      if (byte == '\\' && !take_escape()) return Fault::kSurrogate;
      // Half a pair as UTF-8 would write it, which Python's parser lets through.
      if (byte == '\xED' && at_ + 1 < text_.size() && static_cast<uint8_t>(text_[at_ + 1]) >= 0xA0)
        return Fault::kSurrogate;
    }
    last_string_ = text_.substr(start, std::min(at_, text_.size()) - start);
    ++at_;
    return counted();
  }

  // Goes to the last byte of an escape; false if it is half a pair.
  bool take_escape() {
    ++at_;
    if (at_ >= text_.size() || text_[at_] != 'u') return true;
    const std::optional<uint32_t> unit = hex4(text_, at_ + 1);
    if (!unit) return true;  // the parser will say so
    at_ += 4;
    if (is_low(*unit)) return false;
    if (!is_high(*unit)) return true;
    if (text_.substr(at_ + 1, 2) != "\\u") return false;
    const std::optional<uint32_t> second = hex4(text_, at_ + 3);
    at_ += 6;
    return second && is_low(*second);
  }

  Fault take_word() {
    const size_t start = at_;
    const size_t end = std::min(text_.find_first_of(kEnds, at_), text_.size());
    if (end - start > limits_.word) return Fault::kNumber;
    if (is_not_finite(text_.substr(start, end - start))) return Fault::kNotFinite;
    at_ = end;
    return counted();
  }

  static constexpr std::string_view kEnds{"[]{}:,\" \t\n\r\0", 12};

  std::string_view text_;
  Limits limits_;
  size_t at_ = 0;
  size_t values_ = 0;
  std::vector<size_t> opened_;  // for each list or object that is open: its first name
  std::vector<std::string_view> names_;
  std::string_view last_string_;
};

}  // namespace

Fault scan(std::string_view text, const Limits& limits) { return Scanner(text, limits).scan(); }

}  // namespace ingot::json
