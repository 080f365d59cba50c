#include "tokenizer/unicode.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace ingot::tokenizer {
namespace {

struct CodePair {
  std::uint32_t from, to;
};

#include "tokenizer/unicode_table.inc"

constexpr std::uint32_t kCodePoints = 0x110000;
constexpr std::uint32_t kReplacement = 0xFFFD;
constexpr std::uint32_t kInvalid = 0xFFFFFFFF;

template <std::size_t n>
std::uint32_t look_up(const CodePair (&table)[n], std::uint32_t code) {
  const auto* found = std::lower_bound(
      std::begin(table), std::end(table), code,
      [](const CodePair& pair, std::uint32_t wanted) { return pair.from < wanted; });
  return found != std::end(table) && found->from == code ? found->to : code;
}

// One code point of any bytes, overlong forms and numbers beyond Unicode included; kInvalid
// when none starts here.
std::uint32_t lenient_code(const std::uint8_t* at, const std::uint8_t* end, std::size_t& bytes) {
  const std::uint32_t lead = at[0];
  bytes = 1;
  if (lead < 0x80) return lead;
  if (lead < 0xC0 || lead >= 0xF8) return kInvalid;
  const std::size_t wanted = symbol_bytes(at[0]);
  if (static_cast<std::size_t>(end - at) < wanted) return kInvalid;
  std::uint32_t code = lead & (0x7Fu >> wanted);
  for (std::size_t i = 1; i < wanted; ++i) {
    if ((at[i] & 0xC0) != 0x80) return kInvalid;
    code = code << 6 | (at[i] & 0x3Fu);
  }
  bytes = wanted;
  return code;
}

std::uint32_t unicode_code(const std::uint8_t* at, const std::uint8_t* end, std::size_t& bytes) {
  const std::uint32_t code = lenient_code(at, end, bytes);
  if (code < kCodePoints) return code;
  bytes = 1;
  return kInvalid;
}

std::size_t shortest_form(std::uint32_t code) {
  return code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
}

// Length of the canonical prefix of [at, end).
std::size_t canonical_prefix(const std::uint8_t* start, const std::uint8_t* end) {
  const std::uint8_t* at = start;
  while (at < end) {
    std::uint64_t eight;
    while (end - at >= 8 && (std::memcpy(&eight, at, 8), !(eight & 0x8080808080808080u))) at += 8;
    if (at == end) break;
    std::size_t bytes;
    const std::uint32_t code = unicode_code(at, end, bytes);
    if (code == kInvalid || bytes != shortest_form(code)) break;
    at += bytes;
  }
  return static_cast<std::size_t>(at - start);
}

}  // namespace

std::uint8_t properties_of(std::uint32_t code) {
  if (code >= kCodePoints) return 0;
  const std::uint32_t place = kBlockOf[code / kBlock] * kBlock + code % kBlock;
  return kPacked[place / 2] >> (place % 2 * 4) & 15;
}

std::uint32_t lower_of(std::uint32_t code) { return look_up(kLower, code); }

std::uint32_t base_of(std::uint32_t code) {
  constexpr std::uint32_t first = 0xAC00, last = 0xD7A3, per_lead = 588, leads = 0x1100;
  if (code >= first && code <= last) return leads + (code - first) / per_lead;
  return look_up(kBase, code);
}

void append_utf8(std::uint32_t code, std::string& out) {
  if (code < 0x80) {
    out += static_cast<char>(code);
    return;
  }
  const std::size_t bytes = shortest_form(code);
  const std::uint32_t mark = 0xF0u << (4 - bytes) & 0xFF;
  out += static_cast<char>(mark | code >> (6 * (bytes - 1)));
  for (std::size_t left = bytes - 1; left > 0; --left) {
    out += static_cast<char>(0x80 | (code >> (6 * (left - 1)) & 0x3F));
  }
}

std::size_t code_point_bytes(std::string_view text) {
  const auto* start = reinterpret_cast<const std::uint8_t*>(text.data());
  std::size_t bytes;
  return lenient_code(start, start + text.size(), bytes) == kInvalid ? 0 : bytes;
}

std::string_view canonical_utf8(std::string_view text, std::string& storage) {
  const auto* start = reinterpret_cast<const std::uint8_t*>(text.data());
  const auto* end = start + text.size();
  const std::size_t good = canonical_prefix(start, end);
  if (good == text.size()) return text;
  storage.assign(text.data(), good);
  for (const std::uint8_t* at = start + good; at < end;) {
    std::size_t bytes;
    const std::uint32_t code = unicode_code(at, end, bytes);
    append_utf8(code == kInvalid ? kReplacement : code, storage);
    at += bytes;
  }
  return storage;
}

}  // namespace ingot::tokenizer
