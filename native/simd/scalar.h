// simd.h's operations in plain C++: the twin the vector builds are tested against.
#pragma once

#include <cstdint>
#include <cstring>

#include "simd/half.h"

namespace ingot::INGOT_ISA::simd {

template <int kLanes>
struct Bytes {
  uint8_t lane[kLanes];
};
using U8x16 = Bytes<16>;
using U8x32 = Bytes<32>;

template <int n, class Function>
inline Bytes<n> map(Function function) {
  Bytes<n> out;
  for (int i = 0; i < n; ++i) out.lane[i] = static_cast<uint8_t>(function(i));
  return out;
}

inline U8x16 load16(const void* p) {
  U8x16 v;
  std::memcpy(v.lane, p, 16);
  return v;
}
inline U8x32 load32(const void* p) {
  U8x32 v;
  std::memcpy(v.lane, p, 32);
  return v;
}
inline void store32(void* p, U8x32 v) { std::memcpy(p, v.lane, 32); }
inline U8x32 join(U8x16 lo, U8x16 hi) {
  return map<32>([&](int i) { return i < 16 ? lo.lane[i] : hi.lane[i - 16]; });
}
inline U8x32 from_words(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  const uint64_t words[4] = {a, b, c, d};
  return map<32>([&](int i) { return words[i / 8] >> (i % 8 * 8); });
}
inline U8x16 low_half(U8x32 v) { return load16(v.lane); }
inline U8x16 high_half(U8x32 v) { return load16(v.lane + 16); }
inline U8x32 swap_middle_quarters(U8x32 v) {
  return map<32>([&](int i) { return v.lane[i < 8 || i >= 24 ? i : i < 16 ? i + 8 : i - 8]; });
}
inline U8x32 splat(uint8_t byte) {
  return map<32>([&](int) { return byte; });
}

template <int n>
inline Bytes<n> operator&(Bytes<n> a, Bytes<n> b) {
  return map<n>([&](int i) { return a.lane[i] & b.lane[i]; });
}
template <int n>
inline Bytes<n> operator|(Bytes<n> a, Bytes<n> b) {
  return map<n>([&](int i) { return a.lane[i] | b.lane[i]; });
}
template <int n>
inline Bytes<n> operator^(Bytes<n> a, Bytes<n> b) {
  return map<n>([&](int i) { return a.lane[i] ^ b.lane[i]; });
}
template <int n>
inline Bytes<n> operator+(Bytes<n> a, Bytes<n> b) {
  return map<n>([&](int i) { return a.lane[i] + b.lane[i]; });
}
template <int n>
inline Bytes<n> operator-(Bytes<n> a, Bytes<n> b) {
  return map<n>([&](int i) { return a.lane[i] - b.lane[i]; });
}
template <int shift, int n>
inline Bytes<n> shift_right(Bytes<n> v) {
  return map<n>([&](int i) { return v.lane[i] >> shift; });
}
template <int shift, int n>
inline Bytes<n> shift_left(Bytes<n> v) {
  return map<n>([&](int i) { return v.lane[i] << shift; });
}

template <int from, int to>
inline U8x32 move_bit(U8x32 v) {
  return map<32>([&](int i) { return (v.lane[i] >> from & 1) << to; });
}
inline U8x32 nibbles(U8x16 v) {
  return map<32>([&](int i) { return i < 16 ? v.lane[i] & 15 : v.lane[i - 16] >> 4; });
}

inline U8x32 lookup16(U8x16 table, U8x32 index) {
  return map<32>([&](int i) { return table.lane[index.lane[i] & 15]; });
}
inline U8x32 at_least(U8x32 v, uint8_t bound) {
  return map<32>([&](int i) { return v.lane[i] >= bound ? 0xff : 0x00; });
}
inline U8x32 spread_bits(uint32_t bits) {
  return map<32>([&](int i) { return (bits >> i & 1) ? 0xff : 0x00; });
}
inline U8x32 negate_where(U8x32 v, uint32_t bits) {
  return map<32>([&](int i) { return (bits >> i & 1) ? -v.lane[i] : v.lane[i]; });
}
inline U8x32 four_of_each(const uint8_t* p) {
  return map<32>([&](int i) { return p[i / 4]; });
}
inline U8x32 load_odd_words(const uint8_t* p) {
  return map<32>([&](int i) { return p[i / 4 * 8 + 4 + i % 4]; });
}
inline U8x32 load_odd_bytes(const uint8_t* p) {
  return map<32>([&](int i) { return p[2 * i + 1]; });
}
inline uint32_t word_of(U8x32 v, int i) {
  return v.lane[4 * i] | v.lane[4 * i + 1] << 8 | v.lane[4 * i + 2] << 16 |
         static_cast<uint32_t>(v.lane[4 * i + 3]) << 24;
}
inline U8x32 spread_sevens(U8x32 v) {
  return map<32>([&](int i) { return word_of(v, i / 4) >> (i % 4 * 7) & 127; });
}
inline uint64_t top_nibbles(U8x32 v) {
  uint64_t nibbles = 0;
  for (int i = 0; i < 8; ++i) nibbles |= static_cast<uint64_t>(word_of(v, i) >> 28) << (i * 8);
  return nibbles;
}
inline U8x32 gather_eights(const uint64_t* a, const uint64_t* b, const uint64_t* c,
                           const uint64_t* d) {
  return from_words(*a, *b, *c, *d);
}
template <class At>
inline U8x32 gather_fours(At at) {
  return map<32>([&](int i) { return *at(i / 4) >> (i % 4 * 8); });
}

inline void store_scaled(float* out, U8x32 v, float lo, float hi) {
  for (int i = 0; i < 32; ++i) out[i] = (i < 16 ? lo : hi) * static_cast<int8_t>(v.lane[i]);
}
inline void store_scaled(float* out, U8x32 v, float lo, float hi, float min_lo, float min_hi) {
  store_scaled(out, v, lo, hi);
  for (int i = 0; i < 32; ++i) out[i] += i < 16 ? min_lo : min_hi;
}

inline float half_to_float(uint16_t half) { return half_bits_to_float(half); }

}  // namespace ingot::INGOT_ISA::simd
