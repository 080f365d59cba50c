// JSON before it is parsed: comes in as bytes, goes out as the first thing that forbids parsing it.
//
// A parser makes an object for every value, and can do nothing else meanwhile. scan() makes none:
// it walks over the bytes once, and finds what would take a parser too long or too deep, and what
// some parsers take that is no JSON. Whatever else is wrong is left to the parser. It knows nothing
// of Python.
#pragma once

#include <cstddef>
#include <string_view>

namespace ingot::json {

enum class Fault {
  kNone,
  kValues,     // more values than allowed; names in objects are values, too
  kDepth,      // lists and objects within each other, more than allowed
  kNumber,     // a number or word that is longer than allowed
  kNotFinite,  // NaN, an infinity, or a number that would become one
  kSurrogate,  // half a surrogate pair, not a character
  kEncoding,   // a zero byte: UTF-16 or UTF-32, or no text at all
  kDuplicate,  // an object that has a name twice
};

struct Limits {
  size_t values;
  size_t depth;
  size_t word;  // bytes of a number, or of anything else without quotes
};

Fault scan(std::string_view text, const Limits& limits);

}  // namespace ingot::json
