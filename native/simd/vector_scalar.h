// vector.h's operations in plain C++: the twin the vector builds are tested against.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>

#include "simd/simd.h"

namespace ingot::INGOT_ISA::simd {

inline constexpr int kLanes = 8;
struct Floats {
  float lane[kLanes];
};
struct Ints {
  int32_t lane[kLanes];
};
struct Pairs {
  int16_t word[2 * kLanes];
};
struct Words {
  Pairs v[2];
};

template <class Vector, class Function>
inline Vector each_lane(Function function) {
  Vector out;
  for (int i = 0; i < kLanes; ++i) out.lane[i] = function(i);
  return out;
}

inline Floats splat_float(float x) {
  return each_lane<Floats>([&](int) { return x; });
}
inline Floats zero_floats() { return splat_float(0); }
inline Floats load_floats(const float* p) {
  return each_lane<Floats>([&](int i) { return p[i]; });
}
inline Floats load_halves(const uint8_t* p) {
  return each_lane<Floats>([&](int i) { return half_bits_to_float(load_bits(p + 2 * i)); });
}
inline Floats load_bfloat16s(const uint8_t* p) {
  return each_lane<Floats>([&](int i) {
    return std::bit_cast<float>(static_cast<uint32_t>(load_bits(p + 2 * i)) << 16);
  });
}
inline Floats load_halves_at(const uint8_t* p, int64_t stride) {
  return each_lane<Floats>([&](int i) { return half_bits_to_float(load_bits(p + i * stride)); });
}
struct ByteFloats {
  Floats v[2];
};
inline ByteFloats signed_floats(U8x16 bytes) {
  const auto eight = [&](int at) {
    return each_lane<Floats>([&](int i) { return static_cast<int8_t>(bytes.lane[at + i]); });
  };
  return {{eight(0), eight(8)}};
}
inline void store(float* p, Floats v) { std::memcpy(p, v.lane, sizeof(v)); }
inline Floats add(Floats a, Floats b) {
  return each_lane<Floats>([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Floats multiply(Floats a, Floats b) {
  return each_lane<Floats>([&](int i) { return a.lane[i] * b.lane[i]; });
}
inline Floats multiply_add(Floats a, Floats b, Floats c) { return add(multiply(a, b), c); }

template <class Lane>
inline Lane sum_lanes(const Lane (&v)[kLanes]) {
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}
inline float sum(Floats v) { return sum_lanes(v.lane); }
inline Floats sums(const Floats (&v)[kLanes]) {
  return each_lane<Floats>([&](int i) { return sum(v[i]); });
}

inline Ints zero_ints() {
  return each_lane<Ints>([](int) { return 0; });
}
inline Ints splat_int(int32_t n) {
  return each_lane<Ints>([&](int) { return n; });
}
inline Ints add(Ints a, Ints b) {
  return each_lane<Ints>([&](int i) { return a.lane[i] + b.lane[i]; });
}
inline Ints larger(Ints a, Ints b) {
  return each_lane<Ints>([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
inline Ints magnitude_bits(Floats v) {
  return each_lane<Ints>([&](int i) { return std::bit_cast<int32_t>(v.lane[i]) & 0x7fffffff; });
}
inline void store_ints(int32_t* p, Ints v) { std::memcpy(p, v.lane, sizeof(v)); }
// Adding 1.5 * 2^23 leaves the rounded integer in the low bits of the mantissa.
inline Ints round_to_ints(Floats v) {
  return each_lane<Ints>(
      [&](int i) { return std::bit_cast<int32_t>(v.lane[i] + 0x1.8p23f) - 0x4b400000; });
}
inline Floats to_floats(Ints v) {
  return each_lane<Floats>([&](int i) { return static_cast<float>(v.lane[i]); });
}
inline int32_t sum(Ints v) { return sum_lanes(v.lane); }
inline void store_words(int16_t* p, Ints v) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int16_t>(v.lane[i]);
}

inline void store_bytes(int8_t* p, Ints v) {
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<int8_t>(v.lane[i]);
}

inline Pairs load_pairs(const int16_t* p) {
  Pairs v;
  std::memcpy(v.word, p, sizeof(v));
  return v;
}
inline void store_pairs(int16_t* p, Pairs v) { std::memcpy(p, v.word, sizeof(v)); }
inline Pairs splat_pair(const int16_t* p) {
  Pairs v;
  for (int i = 0; i < 2 * kLanes; ++i) v.word[i] = p[i % 2];
  return v;
}
inline Ints dot(Ints sum, Pairs a, Pairs b) {
  return each_lane<Ints>([&](int i) {
    return sum.lane[i] + (a.word[2 * i] * b.word[2 * i] + a.word[2 * i + 1] * b.word[2 * i + 1]);
  });
}

inline Ints dot_bytes(Ints sum, Pairs unsigned_bytes, Pairs signed_bytes) {
  uint8_t a[4 * kLanes];
  int8_t b[4 * kLanes];
  std::memcpy(a, unsigned_bytes.word, sizeof(a));
  std::memcpy(b, signed_bytes.word, sizeof(b));
  for (int i = 0; i < 4 * kLanes; ++i) sum.lane[i / 4] += a[i] * b[i];
  return sum;
}
template <int most, int i, int quads>
inline void add_quad(Ints& sum, Pairs&, Pairs unsigned_bytes, Pairs signed_bytes) {
  sum = dot_bytes(sum, unsigned_bytes, signed_bytes);
}
inline constexpr int kMostByte = 255;
inline Pairs as_pairs(const U8x32 (&v)[1]) { return std::bit_cast<Pairs>(v[0]); }

// word(i) for i in 0..31
template <class Function>
inline Words each_word(Function word) {
  Words w;
  for (int i = 0; i < 32; ++i) w.v[i / 16].word[i % 16] = static_cast<int16_t>(word(i));
  return w;
}
inline int16_t word_at(const Words& w, int i) { return w.v[i / 16].word[i % 16]; }

inline Words widen(U8x32 v) {
  return each_word([&](int i) { return static_cast<int8_t>(v.lane[i]); });
}
inline Words widen_unsigned(U8x32 v) {
  return each_word([&](int i) { return v.lane[i]; });
}
inline Words load_two_words(const int16_t* p, const int16_t* q) {
  return {{load_pairs(p), load_pairs(q)}};
}
inline Words load_words(const int16_t* p) { return load_two_words(p, p + 16); }
inline void store_words(int16_t* p, Words w) {
  store_pairs(p, w.v[0]);
  store_pairs(p + 16, w.v[1]);
}

struct GroupScales {
  int16_t pair[16][2];
};
inline void set_group_scales(GroupScales& scales, uint64_t first, uint64_t last) {
  for (int g = 0; g < 16; ++g)
    scales.pair[g][0] = scales.pair[g][1] =
        static_cast<int8_t>((g < 8 ? first : last) >> (g % 8 * 8));
}
template <int g>
inline Words splat_group(const GroupScales& scales) {
  return {{splat_pair(scales.pair[g]), splat_pair(scales.pair[g])}};
}
template <int g>
inline Words splat_two_groups(const GroupScales& scales) {
  return {{splat_pair(scales.pair[g]), splat_pair(scales.pair[g + 1])}};
}
inline Words scale(Words w, Words v) {
  return each_word([&](int i) { return word_at(w, i) * word_at(v, i); });
}
inline Words keep(Words w, int16_t m) {
  return each_word([&](int i) { return word_at(w, i) & m; });
}
inline Words merge(Words w, Words v, int16_t m) {
  return each_word([&](int i) { return word_at(w, i) | (word_at(v, i) & m); });
}
inline Words subtract(Words w, int16_t n) {
  return each_word([&](int i) { return word_at(w, i) - n; });
}
template <int n>
inline Words shift_right(Words w) {
  return each_word([&](int i) { return static_cast<uint16_t>(word_at(w, i)) >> n; });
}
template <int n>
inline Words shift_left(Words w) {
  return each_word([&](int i) { return static_cast<uint16_t>(word_at(w, i)) << n; });
}

struct HalfSums {
  Ints lo, hi;
};
struct HalfFactors {
  float lo, hi;
};
inline HalfSums zero_half_sums() { return {zero_ints(), zero_ints()}; }
inline HalfSums dot_halves(HalfSums sums, Words w, Words v) {
  return {dot(sums.lo, w.v[0], v.v[0]), dot(sums.hi, w.v[1], v.v[1])};
}
inline HalfFactors load_half_factors(const float* p) { return {p[0], p[1]}; }
inline Floats add_scaled(Floats total, HalfSums sums, HalfFactors factors) {
  return multiply_add(to_floats(sums.hi), splat_float(factors.hi),
                      multiply_add(to_floats(sums.lo), splat_float(factors.lo), total));
}

inline void transpose(Pairs (&row)[kLanes]) {
  Pairs t[kLanes];
  for (int i = 0; i < kLanes; ++i)
    for (int j = 0; j < kLanes; ++j)
      for (int k = 0; k < 2; ++k) t[i].word[2 * j + k] = row[j].word[2 * i + k];
  std::memcpy(row, t, sizeof(t));
}

inline void prefetch(const void*) {}
inline void prefetch_near(const void*) {}

}  // namespace ingot::INGOT_ISA::simd
