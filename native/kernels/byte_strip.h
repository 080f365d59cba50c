// One stretch of kLanes rows as bytes, one row a lane: what byte products multiply.
//
// A vector holds four weights of every row, ready to meet four inputs of one column. Rows become
// lanes either before or after they are unpacked. Before is cheaper: packed rows are shorter. A
// format that can (formats/block.h, "turned") does it so.
#pragma once

#include "kernels/byte_input.h"
#include "kernels/linear_block.h"

namespace ingot::INGOT_ISA {

// Products are of unsigned weights and signed inputs. Weights that may be negative are stored plus
// an offset; a sum then starts at minus that times the sum of its inputs. Where weights may be
// signed, those that an offset would make too large have none.
template <class F>
inline constexpr bool kAddsOffset =
    !simd::kTakesNegativeBytes || F::kMost - F::kLeast <= simd::kMostByte;
template <class F>
inline constexpr int kByteOffset = kAddsOffset<F> ? -F::kLeast : 0;
// The largest magnitude of what is stored.
template <class F>
inline constexpr int kByteMost =
    kAddsOffset<F> ? F::kMost - F::kLeast : (-F::kLeast > F::kMost ? -F::kLeast : F::kMost);
// Weights that are multiplied by one factor.
template <class F>
inline constexpr int kByteFactorGroup = F::kGroup < 32 ? 16 : 32;
template <class F>
inline constexpr int kByteFactors = kInputBlock / kByteFactorGroup<F>;

struct alignas(64) StripFactors {
  float factor[16][simd::kLanes];  // of each group
  float min[16][simd::kLanes];
};

struct alignas(64) ByteStrip {
  uint8_t weights[kInputBlock / 4][simd::kLanes][4];  // q + kByteOffset
  StripFactors factors;

  // Takes quads `quad` and `quad` + 1 of every row, which have an offset.
  template <int offset>
  void put_two(int quad, simd::Fours first, simd::Fours second) {
    simd::store_fours(weights[quad][0], first);
    simd::store_fours(weights[quad + 1][0], second);
  }
  // Called when all is there.
  template <int groups, bool has_min>
  void finish() {}
};

// The rows of a strip. Where they run out, lanes repeat the last one.
struct StripRows {
  const uint8_t* row[simd::kLanes];
  StripRows(const uint8_t* blocks, int64_t row_bytes, int rows) {
    for (int r = 0; r < simd::kLanes; ++r) row[r] = blocks + (r < rows ? r : rows - 1) * row_bytes;
  }
};

// Rows unpacked one by one.
template <class F, class Strip>
inline void unpack_each_row(const StripRows& rows, Strip& strip) {
  Signs<F> signs[simd::kLanes];
  for (int r = 0; r < simd::kLanes; ++r) {
    const auto s = F::scales(rows.row[r]);
    signs[r] = signs_of<F>(rows.row[r]);
    for (int i = 0; i < kByteFactors<F>; ++i) {
      const int g = i * kByteFactorGroup<F> / F::kGroup;
      strip.factors.factor[i][r] = s.d * static_cast<float>(s.scale[g]);
      if constexpr (F::kHasMin) strip.factors.min[i][r] = s.m * static_cast<float>(s.min[g]);
    }
  }
  constexpr int kSlicesAtOnce = simd::kLanes / 8;
  repeat<F::kSlices / kSlicesAtOnce>([&](auto part) {
    simd::Fours quads[simd::kLanes];
    for (int r = 0; r < simd::kLanes; ++r) {
      simd::U8x32 slices[kSlicesAtOnce];
      repeat<kSlicesAtOnce>([&](auto i) {
        slices[i] = lanes_of<F, part * kSlicesAtOnce + i>(rows.row[r], signs[r]) +
                    simd::splat(kByteOffset<F>);
      });
      quads[r] = simd::as_fours(slices);
    }
    simd::transpose(quads);
    for (int i = 0; i < simd::kLanes; i += 2)
      strip.template put_two<kByteOffset<F>>(part * simd::kLanes + i, quads[i], quads[i + 1]);
  });
  strip.template finish<kByteFactors<F>, F::kHasMin>();
}

#if defined(INGOT_TURNS)
template <class F>
inline constexpr bool kTurns = requires(simd::TurnedAt block) { F::turned_d(block); };

// The lines of a stretch.
template <class F>
inline constexpr int kTurnedLines = (kBlocksPerStretch<F> * F::kBytes + 3) / 4;
template <class F>
inline constexpr int kTurnedBytes = kTurnedLines<F> * simd::kLineBytes;

template <class F>
INGOT_FLATTEN [[gnu::noinline]] void turn_stretch(const uint8_t* const* rows, uint8_t* lines) {
  constexpr int kBytes = kBlocksPerStretch<F> * F::kBytes;
  constexpr int kWhole = kBytes / 4 * 4, kAtOnce = simd::kLineBytes, kRest = kWhole % kAtOnce;
  repeat<kWhole / kAtOnce>([&](auto i) { simd::turn_lines(rows, i * kAtOnce, lines); });
  if constexpr (kRest > kAtOnce / 2) {
    simd::turn_lines(rows, kWhole - kAtOnce, lines);
  } else {
    if constexpr (kRest > 16) simd::turn16(rows, kWhole - 32, lines);
    if constexpr (kRest > 0) simd::turn16(rows, kWhole - 16, lines);
  }
  if constexpr (kWhole < kBytes) simd::turn2(rows, kWhole, lines);
}

// Blocks of 18, 22, 34 or 17 bytes begin within a word: words of their weights would be joined from
// two lines. Lines that are kept hold the first bytes (a scale) of all blocks of a stretch apart,
// before what is left of them, whole words.
template <class F>
inline constexpr int kHeads = F::kWeights < kInputBlock ? F::kBytes % 4 : 0;
template <class F>
inline constexpr bool kHasHeads = kHeads<F> != 0;
template <class F>
inline constexpr int kHeadBytes = kBlocksPerStretch<F> * kHeads<F>;  // of a stretch

// `count` blocks of every row, fewer than kBlocksPerStretch only at the end of a row; then zeros.
template <class F, bool kApart>
inline void turn_blocks(const StripRows& rows, int count, uint8_t* lines) {
  if (!kApart && count == kBlocksPerStretch<F>) return turn_stretch<F>(rows.row, lines);
  uint8_t copied[simd::kLanes][kBlocksPerStretch<F> * F::kBytes] = {};
  const uint8_t* row[simd::kLanes];
  for (int r = 0; r < simd::kLanes; ++r) {
    row[r] = copied[r];
    if constexpr (kApart) {
      constexpr int kBody = F::kBytes - kHeads<F>;
      for (int b = 0; b < count; ++b) {
        const uint8_t* block = rows.row[r] + b * F::kBytes;
        std::memcpy(copied[r] + b * kHeads<F>, block, kHeads<F>);
        std::memcpy(copied[r] + kHeadBytes<F> + b * kBody, block + kHeads<F>, kBody);
      }
    } else {
      std::memcpy(copied[r], rows.row[r], static_cast<size_t>(count) * F::kBytes);
    }
  }
  turn_stretch<F>(row, lines);
}

inline constexpr int kStretchSlices = kInputBlock / 32;

template <class F, bool kApart, int slice>
inline simd::TurnedAt block_of_slice(const uint8_t* lines) {
  constexpr int block = slice / F::kSlices;
  if constexpr (kApart)
    return {.lines = lines,
            .body = kHeadBytes<F> + block * (F::kBytes - kHeads<F>),
            .head = block * kHeads<F>,
            .heads = kHeads<F>};
  return {.lines = lines, .body = block * F::kBytes};
}

// The weights of slice `slice` of a stretch: eight vectors.
template <class F, bool kApart, int slice>
inline simd::Quads turned_weights(const uint8_t* lines) {
  return F::template lanes<slice % F::kSlices>(block_of_slice<F, kApart, slice>(lines)) +
         simd::splat(kByteOffset<F>);
}

// What a group of every row is multiplied by.
struct LaneFactors {
  simd::Floats factor, min;
};
template <class F, bool kApart, int group>
inline LaneFactors turned_factors(const uint8_t* lines) {
  static_assert(kByteFactorGroup<F> == F::kGroup);
  constexpr int slice = group * F::kGroup / 32;
  const simd::TurnedAt block = block_of_slice<F, kApart, slice>(lines);
  LaneFactors found{F::turned_d(block), simd::zero_floats()};
  if constexpr (F::kHasMin) found.min = F::turned_m(block);
  if constexpr (F::kGroups > 1) {
    constexpr int g = group % F::kGroups;
    found.factor =
        simd::multiply(found.factor, simd::to_floats(F::template turned_scale<g>(block)));
    if constexpr (F::kHasMin)
      found.min = simd::multiply(found.min, simd::to_floats(F::template turned_min<g>(block)));
  }
  return found;
}

template <class F, bool kApart>
INGOT_FLATTEN [[gnu::noinline]] void read_turned_factors(const uint8_t* lines,
                                                         StripFactors& factors) {
  repeat<kByteFactors<F>>([&](auto g) {
    const LaneFactors found = turned_factors<F, kApart, g>(lines);
    simd::store(factors.factor[g], found.factor);
    if constexpr (F::kHasMin) simd::store(factors.min[g], found.min);
  });
}

template <class F, bool kApart, class Strip>
INGOT_FLATTEN inline void unpack_turned(const uint8_t* lines, Strip& strip) {
  read_turned_factors<F, kApart>(lines, strip.factors);
  repeat<kStretchSlices>([&](auto slice) {
    const simd::Quads weights = turned_weights<F, kApart, slice>(lines);
    repeat<4>([&](auto i) {
      strip.template put_two<kByteOffset<F>>(slice * 8 + i * 2, simd::fours_of(weights.v[i * 2]),
                                             simd::fours_of(weights.v[i * 2 + 1]));
    });
  });
  strip.template finish<kByteFactors<F>, F::kHasMin>();
}
#else
template <class F>
inline constexpr bool kTurns = false;
template <class F>
inline constexpr int kTurnedBytes = 0;
template <class F, bool kApart>
void turn_blocks(const StripRows& rows, int count, uint8_t* lines);
template <class F, bool kApart, class Strip>
void unpack_turned(const uint8_t* lines, Strip& strip);
#endif

// A stretch of `rows` rows: `count` blocks of each.
template <class F, class Strip>
inline void unpack_byte_strip(const uint8_t* blocks, int64_t row_bytes, int rows, int count,
                              Strip& strip) {
  const StripRows all(blocks, row_bytes, rows);
  if constexpr (kTurns<F>) {
    alignas(64) uint8_t lines[kTurnedBytes<F>];
    turn_blocks<F, false>(all, count, lines);
    unpack_turned<F, false>(lines, strip);
  } else {
    unpack_each_row<F>(all, strip);
  }
}

}  // namespace ingot::INGOT_ISA
