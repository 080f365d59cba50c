// Scores and mixes of keys and values that the cache holds as integers (kernels/turned_cache.h):
// sums of products of 16-bit integers, without a pass through floats.
//
// A query is rounded to 16 bits under one scale for each 32 elements. The shares of a block's
// positions, times the scales of their values, are rounded so for each 32 elements, too: under the
// largest share times the largest scale. That is 1.5e-5 of the largest number at most. Sums of 32
// products with 8 bits are exact in 32.
#pragma once

#include <algorithm>
#include <bit>

#include "formats/q4_0.h"
#include "formats/q8_0.h"
#include "kernels/attend_rows.h"
#include "kernels/linear_input.h"
#include "kernels/turned_cache.h"
#include "simd/pair_shifts.h"

namespace ingot::INGOT_ISA {

inline constexpr int kTurned = 32;  // elements of a group
inline constexpr int kMostWord = 32767;

// The bytes of a group of format F, and where it lies.
template <class F>
struct TurnedGroup {
  static_assert(F::kWeights == kTurned);
  static constexpr int kBytes = F::kBytes - 2;                // of a block
  static constexpr int kHalves = kTurned / kBytes;            // elements of a byte
  static constexpr int kStride = kKvBlockTokens * F::kBytes;  // from group to group

  // The elements of half `half` of the bytes of words: first and third, or second and fourth.
  template <int half, bool odd>
  static simd::Pairs pairs(simd::Pairs words) {
    constexpr int bits = 8 / kHalves;
    return simd::shifted<(odd ? 8 : 16) - bits*(half + 1), 16 - bits>(words);
  }
};

// Calls body(half, odd) for all pairs of words.
template <class F, class Body>
inline void each_part(Body body) {
  repeat<TurnedGroup<F>::kHalves>(
      [&](auto half) { repeat<2>([&](auto odd) { body(half, odd); }); });
}

// Sums of a row that are made at once: a number in all lanes costs as much as a product.
inline constexpr int kSumsOfRow = 2;

inline simd::Pairs load_turned(const uint8_t* p) {
  return simd::load_pairs(reinterpret_cast<const int16_t*>(p));
}

// Queries as integers: all words, then all scales.
struct QueryWords {
  int16_t* words;  // [rows][size]
  float* scales;   // [rows][size / kTurned]
  int64_t size;

  QueryWords(float* scratch, int rows, int64_t size)
      : words(reinterpret_cast<int16_t*>(scratch)), scales(scratch + rows * size / 2), size(size) {}
  const int16_t* row(int i) const { return words + i * size; }
  const float* row_scales(int i) const { return scales + i * (size / kTurned); }
};
static_assert(attend_scratch_floats(kTurned) >= kKvBlockTokens * (kTurned / 2 + 1));

inline int32_t largest_of_32(const float* x) {
  simd::Ints largest = simd::magnitude_bits(simd::load_floats(x));
  for (int i = simd::kLanes; i < 32; i += simd::kLanes)
    largest = simd::larger(largest, simd::magnitude_bits(simd::load_floats(x + i)));
  int32_t lanes[simd::kLanes];
  simd::store_ints(lanes, largest);
  return *std::max_element(lanes, lanes + simd::kLanes);
}

inline void round_query(const float* query, const QueryWords& out, int row) {
  for (int64_t d = 0; d < out.size; d += kTurned) {
    const InputScale scale = input_scale<kMostWord>(largest_of_32(query + d));
    for (int i = 0; i < kTurned; i += simd::kLanes)
      simd::store_words(out.words + row * out.size + d + i, scale.round(query + d + i));
    out.scales[(row * out.size + d) / kTurned] = scale.scale;
  }
}

template <class F>
struct TurnedKeys {
  const uint8_t* first;
  const uint8_t* next;  // those of the next block; may be null
  const QueryWords* queries;
};
template <class F>
struct TurnedValues {
  const uint8_t* first;
  const uint8_t* next;
};

template <int kRows, class F, class Values>
INGOT_FLATTEN inline void score_rows(const AttendTask& task, const int* rows,
                                     const TurnedKeys<F>& keys, const Values&,
                                     float (*scores)[kBlock]) {
  using Group = TurnedGroup<F>;
  const int16_t* query[kRows];
  const float* factors[kRows];
  for (int i = 0; i < kRows; ++i) {
    query[i] = keys.queries->row(rows[i]);
    factors[i] = keys.queries->row_scales(rows[i]);
  }
  const int64_t groups = task.head_size / kTurned;
  for (int position = 0; position < kBlock; position += kSumsOfRow * simd::kLanes) {
    repeat<kRows>([&](auto i) {
      repeat<kSumsOfRow>([&](auto v) {
        simd::store(scores[i] + position + v * simd::kLanes, simd::zero_floats());
      });
    });
    for (int64_t g = 0; g < groups; ++g) {
      const uint8_t* group = keys.first + g * Group::kStride;
      simd::Ints sum[kRows][kSumsOfRow];
      repeat<kRows>(
          [&](auto i) { repeat<kSumsOfRow>([&](auto v) { sum[i][v] = simd::zero_ints(); }); });
      repeat<Group::kBytes / 4>([&](auto word) {
        const int64_t at = turned_key_byte(4 * word, position);
        simd::Pairs words[kSumsOfRow];
        repeat<kSumsOfRow>([&](auto v) {
          if (keys.next) simd::prefetch(keys.next + g * Group::kStride + at + v * 4 * simd::kLanes);
          words[v] = load_turned(group + at + v * 4 * simd::kLanes);
        });
        each_part<F>([&](auto half, auto odd) {
          constexpr int element = Group::kBytes * half + 4 * word + 2 * odd;
          simd::Pairs pairs[kSumsOfRow];
          repeat<kSumsOfRow>(
              [&](auto v) { pairs[v] = Group::template pairs < half, odd != 0 > (words[v]); });
          repeat<kRows>([&](auto i) {
            const simd::Pairs splat = simd::splat_pair(query[i] + g * kTurned + element);
            repeat<kSumsOfRow>([&](auto v) { sum[i][v] = simd::dot(sum[i][v], pairs[v], splat); });
          });
        });
      });
      repeat<kSumsOfRow>([&](auto v) {
        const simd::Floats scale = simd::load_halves(group + 2 * (position + v * simd::kLanes));
        repeat<kRows>([&](auto i) {
          const simd::Floats factor = simd::multiply(scale, simd::splat_float(factors[i][g]));
          float* out = scores[i] + position + v * simd::kLanes;
          simd::store(
              out, simd::multiply_add(simd::to_floats(sum[i][v]), factor, simd::load_floats(out)));
        });
      });
    }
  }
}

// The scales of a group's values divided by the largest of those that a row sees, 0 elsewhere: what
// is there may be no number.
struct TurnedScales {
  float largest;
  alignas(64) float part[kBlock];
};

inline void find_scales(const uint8_t* group, int first, int last, TurnedScales& out) {
  for (int i = 0; i < kBlock; i += simd::kLanes)
    simd::store(out.part + i, simd::load_halves(group + 2 * i));
  std::fill(out.part, out.part + first, 0.0f);
  std::fill(out.part + last, out.part + kBlock, 0.0f);
  const InputScale scale = input_scale<1>(largest_of_32(out.part));
  out.largest = scale.scale;
  const simd::Floats inverse = simd::splat_float(scale.inverse);
  for (int i = 0; i < kBlock; i += simd::kLanes)
    simd::store(out.part + i, simd::multiply(simd::load_floats(out.part + i), inverse));
}

// shares of positions times scales of values, as words under one scale, which is returned
inline float round_shares(const Fold& fold, InputScale share, const TurnedScales& scales,
                          int16_t* words) {
  const simd::Floats inverse = simd::splat_float(share.inverse);
  for (int i = 0; i < kBlock; i += simd::kLanes) {
    const simd::Floats part = simd::multiply(simd::load_floats(scales.part + i), inverse);
    const simd::Floats weight = simd::load_floats(fold.weight + i);
    simd::store_words(words + i, simd::round_to_ints(simd::multiply(part, weight)));
  }
  return share.scale * scales.largest;
}

template <int kRows, class F>
INGOT_FLATTEN inline void mix_values(float* mix, int64_t size, const Fold* folds,
                                     const TurnedValues<F>& values) {
  using Group = TurnedGroup<F>;
  InputScale share[kRows];
  for (int r = 0; r < kRows; ++r) {
    const float* weight = folds[r].weight;
    const float most = simd::maximum(simd::max(F32x16::load(weight), F32x16::load(weight + 16)));
    share[r] = input_scale<kMostWord>(std::bit_cast<int32_t>(most));
  }
  for (int64_t d = 0; d < size; d += kTurned) {
    const int64_t at = d / kTurned * Group::kStride;
    const uint8_t* group = values.first + at;
    alignas(64) int16_t share_words[kRows][kBlock];
    float factors[kRows];
    TurnedScales scales;
    for (int r = 0; r < kRows; ++r) {
      const Fold& fold = folds[r];
      if (r == 0 || fold.first != folds[r - 1].first || fold.last != folds[r - 1].last)
        find_scales(group, fold.first, fold.last, scales);
      factors[r] = round_shares(fold, share[r], scales, share_words[r]);
    }
    constexpr int kLines = kSumsOfRow / Group::kHalves;
    for (int byte = 0; byte < Group::kBytes; byte += kLines * simd::kLanes) {
      simd::Ints sum[kRows][kSumsOfRow];
      repeat<kRows>(
          [&](auto r) { repeat<kSumsOfRow>([&](auto v) { sum[r][v] = simd::zero_ints(); }); });
      repeat<kBlock / 4>([&](auto four) {
        simd::Pairs words[kLines];
        repeat<kLines>([&](auto line) {
          const int64_t start =
              turned_value_byte(byte, 4 * four, Group::kBytes) + line * 4 * simd::kLanes;
          if (values.next) simd::prefetch(values.next + at + start);
          words[line] = load_turned(group + start);
        });
        repeat<2>([&](auto odd) {
          simd::Pairs pairs[kSumsOfRow];
          repeat<kSumsOfRow>([&](auto v) {
            pairs[v] = Group::template pairs < v / kLines, odd != 0 > (words[v % kLines]);
          });
          repeat<kRows>([&](auto r) {
            const simd::Pairs splat = simd::splat_pair(share_words[r] + 4 * four + 2 * odd);
            repeat<kSumsOfRow>([&](auto v) { sum[r][v] = simd::dot(sum[r][v], pairs[v], splat); });
          });
        });
      });
      repeat<kRows>([&](auto r) {
        const simd::Floats factor = simd::splat_float(factors[r]);
        const simd::Floats shrink = simd::splat_float(folds[r].shrink);
        repeat<kSumsOfRow>([&](auto v) {
          float* out =
              mix + r * size + d + byte + v / kLines * Group::kBytes + v % kLines * simd::kLanes;
          simd::store(out, simd::multiply_add(simd::to_floats(sum[r][v]), factor,
                                              simd::multiply(simd::load_floats(out), shrink)));
        });
      });
    }
  }
}

// keys[element][position] of a block, as floats.
template <class F>
inline void decode_turned(const uint8_t* from, int64_t size, float* keys) {
  using Group = TurnedGroup<F>;
  for (int64_t d = 0; d < size; d += kTurned, from += Group::kStride) {
    float scale[kBlock];
    for (int i = 0; i < kBlock; i += simd::kLanes)
      simd::store(scale + i, simd::load_halves(from + 2 * i));
    repeat<kTurned>([&](auto element) {
      constexpr int byte = element % Group::kBytes, bits = 8 / Group::kHalves;
      constexpr int high = 8 * kPlaceInWord[byte % 4] + bits * (element / Group::kBytes + 1);
      uint32_t words[kBlock];
      std::memcpy(words, from + turned_key_byte(byte / 4 * 4, 0), sizeof(words));
      float* out = keys + (d + element) * kBlock;
      for (int position = 0; position < kBlock; ++position) {
        const int32_t value = static_cast<int32_t>(words[position] << (32 - high)) >> (32 - bits);
        out[position] = scale[position] * static_cast<float>(value);
      }
    });
  }
}

}  // namespace ingot::INGOT_ISA
