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
// an offset; a sum then starts at minus that times the sum of its inputs.
template <class F>
inline constexpr int kByteOffset = -F::kLeast;
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
};

// The rows of a strip. Where they run out, lanes repeat the last one.
struct StripRows {
  const uint8_t* row[simd::kLanes];
  StripRows(const uint8_t* blocks, int64_t row_bytes, int rows) {
    for (int r = 0; r < simd::kLanes; ++r) row[r] = blocks + (r < rows ? r : rows - 1) * row_bytes;
  }
};

// Rows unpacked one by one.
template <class F>
inline void unpack_each_row(const StripRows& rows, ByteStrip& strip) {
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
    simd::Pairs quads[simd::kLanes];
    for (int r = 0; r < simd::kLanes; ++r) {
      simd::U8x32 slices[kSlicesAtOnce];
      repeat<kSlicesAtOnce>([&](auto i) {
        slices[i] = lanes_of<F, part * kSlicesAtOnce + i>(rows.row[r], signs[r]) +
                    simd::splat(kByteOffset<F>);
      });
      quads[r] = simd::as_pairs(slices);
    }
    simd::transpose(quads);
    for (int i = 0; i < simd::kLanes; ++i)
      simd::store_pairs(reinterpret_cast<int16_t*>(strip.weights[part * simd::kLanes + i]),
                        quads[i]);
  });
}

#if defined(__AVX2__)
template <class F>
inline constexpr bool kTurns = requires(simd::TurnedAt block) { F::turned_d(block); };

// The whole lines of a block of every row.
template <class F>
class Turned {
 public:
  explicit Turned(const StripRows& rows) : rows_(rows.row) {
    constexpr int kWhole = F::kBytes / 4 * 4, kAtOnce = simd::kLineBytes, kRest = kWhole % kAtOnce;
    repeat<kWhole / kAtOnce>([&](auto i) { simd::turn_lines(rows_, i * kAtOnce, lines_); });
    if constexpr (kRest > kAtOnce / 2) {
      simd::turn_lines(rows_, kWhole - kAtOnce, lines_);
    } else {
      if constexpr (kRest > 16) simd::turn16(rows_, kWhole - 32, lines_);
      if constexpr (kRest > 0) simd::turn16(rows_, kWhole - 16, lines_);
    }
  }
  simd::TurnedAt begin() const { return {rows_, lines_, 0}; }

 private:
  const uint8_t* const* rows_;
  alignas(64) uint8_t lines_[F::kBytes / 4 * simd::kLineBytes];
};

// The weights of slice `slice`: eight vectors.
template <class F, int slice>
inline simd::Quads turned_weights(const Turned<F>& block) {
  return F::template lanes<slice>(block.begin()) + simd::splat(kByteOffset<F>);
}

template <class F>
inline void read_turned_factors(const Turned<F>& block, StripFactors& factors) {
  static_assert(kByteFactorGroup<F> == F::kGroup);
  const simd::Floats d = F::turned_d(block.begin());
  repeat<F::kGroups>([&](auto g) {
    const simd::Ints scale = F::template turned_scale<g>(block.begin());
    simd::store(factors.factor[g], simd::multiply(d, simd::to_floats(scale)));
  });
  if constexpr (F::kHasMin) {
    const simd::Floats m = F::turned_m(block.begin());
    repeat<F::kGroups>([&](auto g) {
      const simd::Ints min = F::template turned_min<g>(block.begin());
      simd::store(factors.min[g], simd::multiply(m, simd::to_floats(min)));
    });
  }
}

template <class F>
INGOT_FLATTEN inline void unpack_turned(const StripRows& rows, ByteStrip& strip) {
  const Turned<F> block(rows);
  read_turned_factors<F>(block, strip.factors);
  for_each_slice<F>([&](auto slice) {
    const simd::Quads weights = turned_weights<F, slice>(block);
    repeat<8>([&](auto i) { simd::store_line(strip.weights[slice * 8 + i][0], weights.v[i]); });
  });
}
#else
template <class F>
inline constexpr bool kTurns = false;
template <class F>
void unpack_turned(const StripRows& rows, ByteStrip& strip);
#endif

// One block of `rows` rows.
template <class F>
inline void unpack_byte_strip(const uint8_t* blocks, int64_t row_bytes, int rows,
                              ByteStrip& strip) {
  const StripRows all(blocks, row_bytes, rows);
  if constexpr (kTurns<F>) {
    unpack_turned<F>(all, strip);
  } else {
    unpack_each_row<F>(all, strip);
  }
}

}  // namespace ingot::INGOT_ISA
