// Matrix products for generation with a few columns: a group of rows is unpacked, stretch
// by stretch, into words that all columns share, and multiplied in tiles of rows x columns.
//
// The tiles do not depend on the format, only on how many runs a stretch has.
#pragma once

#include "isa/table.h"
#include "kernels/linear_block.h"

namespace ingot::INGOT_ISA {

inline constexpr int kGroupRows = 12;     // unpacked together: 8 kB
inline constexpr int kGroupColumns = 16;  // their inputs are 10 kB, the totals 12 kB: all in L1
// Rows of a tile with four columns: as many as leave their sums in registers. Where runs are
// short there are float sums beside the integer ones.
template <int run>
inline constexpr int kTileRows =
    run == kInputBlock ? (simd::kLanes == 16 ? 6 : 2) : (simd::kLanes == 16 ? 3 : 1);

struct alignas(64) UnpackedStretch {
  int16_t words[kInputBlock];   // in the order of two_runs_of_input() where runs are short
  float factor[kGroupColumns];  // of each run; of each column, its scale included, where there
                                // is but one run
  float min[16];
};
static_assert(kGroupColumns == 16);

inline simd::Ints dot_words(simd::Ints sums, const simd::Words& words, const simd::Words& values) {
  repeat<16 / simd::kLanes>([&](auto v) { sums = simd::dot(sums, words.v[v], values.v[v]); });
  return sums;
}

// Part i of the inputs that meet runs 2 * two and 2 * two + 1: 16 of one, 16 of the other.
template <int run>
inline simd::Words two_runs_of_input(const InputBlock& input, int two, int i) {
  const int16_t* from = input.values + two * 2 * run + i * 16;
  return simd::load_two_words(from, from + run);
}

// Two blocks, 16 weights of each at a time: out[i] holds number i of `a`, then number i of `b`.
template <class F>
inline void read_paired_lanes(const uint8_t* a, const uint8_t* b,
                              simd::U8x32 (&out)[2 * F::kSlices]) {
  if constexpr (requires { F::paired_lanes(a, b, out); }) {
    F::paired_lanes(a, b, out);
  } else {
    for_each_slice<F>([&](auto slice) {
      const simd::U8x32 first = F::template lanes<slice>(a), second = F::template lanes<slice>(b);
      out[2 * slice] = simd::join(simd::low_half(first), simd::low_half(second));
      out[2 * slice + 1] = simd::join(simd::high_half(first), simd::high_half(second));
    });
  }
}

// The words that meet them; with an odd number of blocks the last one stands in for the
// next, whose factor is zero.
template <class F, class Two>
inline void read_two_runs(const uint8_t* blocks, int count, Two two,
                          simd::Words (&words)[kRun<F> / 16]) {
  if constexpr (kRun<F> == F::kWeights) {
    const int first = two * 2, second = first + 1 < count ? first + 1 : first;
    simd::U8x32 lanes[kRun<F> / 16];
    read_paired_lanes<F>(blocks + first * F::kBytes, blocks + second * F::kBytes, lanes);
    repeat<kRun<F> / 16>([&](auto i) { words[i] = simd::widen(lanes[i]); });
  } else {
    static_assert(kRun<F> == 16 && F::kSlices == 2);
    const uint8_t* block = blocks + two / 2 * F::kBytes;
    words[0] = simd::widen(two % 2 ? F::template lanes<1>(block) : F::template lanes<0>(block));
  }
}

// Pairs of runs in so many blocks.
template <class F>
inline int runs_in(int count) {
  return (count * F::kWeights + 2 * kRun<F> - 1) / (2 * kRun<F>);
}

// `scales` are those of the columns.
template <class F>
INGOT_FLATTEN inline void unpack_row(const uint8_t* blocks, int count,
                                     const float (&scales)[kGroupColumns], UnpackedStretch& out) {
  Stretch<F> stretch;
  read_stretch<F>(blocks, count, stretch);
  if constexpr (kRuns<F> == 1) {
    for (int c = 0; c < kGroupColumns; c += simd::kLanes)
      simd::store(out.factor + c, simd::multiply(simd::load_floats(scales + c),
                                                 simd::splat_float(stretch.factor[0])));
    for_each_slice<F>([&](auto slice) {
      simd::store_words(out.words + slice * 32, read_words<F, slice>(blocks, stretch));
    });
  } else {
    for (int i = 0; i < 16; i += simd::kLanes)
      simd::store(out.factor + i, simd::load_floats(stretch.factor + i));
    const auto unpack_two_runs = [&](auto two) {
      simd::Words words[kRun<F> / 16];
      read_two_runs<F>(blocks, count, two, words);
      repeat<kRun<F> / 16>(
          [&](auto i) { simd::store_words(out.words + two * 2 * kRun<F> + i * 32, words[i]); });
    };
    for (int two = 0; two < runs_in<F>(count); ++two) unpack_two_runs(two);
  }
  repeat<Stretch<F>::kMinVectors>(
      [&](auto v) { simd::store(out.min + v * simd::kLanes, stretch.min[v]); });
}

// Calls body(true or false as a compile-time constant).
template <class Body>
inline void if_constant(bool condition, Body body) {
  condition ? body(std::true_type{}) : body(std::false_type{});
}

// Some rows times columns `first` and up, over `twos` pairs of runs (ignored where the stretch
// is one run). `fresh`: there is nothing in the totals yet.
template <int run, int kMinGroupOfTile, int kColumns>
INGOT_FLATTEN void few_tile(const UnpackedStretch* rows, const InputBlock* const* inputs, int first,
                            int twos, bool fresh, simd::Floats (*total)[kGroupColumns]) {
  constexpr int kRows = kTileRows<run>;
  inputs += first;
  simd::Floats sum[kRows][kColumns];
  if constexpr (run == kInputBlock) {
    simd::Ints sums[kRows][kColumns];
    repeat<kRows>(
        [&](auto r) { repeat<kColumns>([&](auto c) { sums[r][c] = simd::zero_ints(); }); });
    for (int k = 0; k < kInputBlock; k += 32) {
      simd::Words values[kColumns];
      repeat<kColumns>([&](auto c) { values[c] = simd::load_words(inputs[c]->values + k); });
      repeat<kRows>([&](auto r) {
        const simd::Words words = simd::load_words(rows[r].words + k);
        repeat<kColumns>([&](auto c) { sums[r][c] = dot_words(sums[r][c], words, values[c]); });
      });
    }
    if_constant(fresh, [&](auto is_fresh) {
      repeat<kRows>([&](auto r) {
        repeat<kColumns>([&](auto c) {
          sum[r][c] = simd::multiply_add(simd::to_floats(sums[r][c]),
                                         simd::splat_float(rows[r].factor[first + c]),
                                         is_fresh ? simd::zero_floats() : total[r][first + c]);
        });
      });
    });
  } else {
    simd::Floats part[kRows][kColumns];
    repeat<kRows>(
        [&](auto r) { repeat<kColumns>([&](auto c) { part[r][c] = simd::zero_floats(); }); });
    for (int two = 0; two < twos; ++two) {
      simd::HalfSums sums[kRows][kColumns];
      repeat<kRows>(
          [&](auto r) { repeat<kColumns>([&](auto c) { sums[r][c] = simd::zero_half_sums(); }); });
      repeat<run / 16>([&](auto i) {
        simd::Words values[kColumns];
        repeat<kColumns>([&](auto c) { values[c] = two_runs_of_input<run>(*inputs[c], two, i); });
        repeat<kRows>([&](auto r) {
          const simd::Words words = simd::load_words(rows[r].words + two * 2 * run + i * 32);
          repeat<kColumns>(
              [&](auto c) { sums[r][c] = simd::dot_halves(sums[r][c], words, values[c]); });
        });
      });
      repeat<kRows>([&](auto r) {
        const simd::HalfFactors factors = simd::load_half_factors(rows[r].factor + two * 2);
        repeat<kColumns>(
            [&](auto c) { part[r][c] = simd::add_scaled(part[r][c], sums[r][c], factors); });
      });
    }
    if_constant(fresh, [&](auto is_fresh) {
      repeat<kRows>([&](auto r) {
        repeat<kColumns>([&](auto c) {
          sum[r][c] = simd::multiply_add(part[r][c], simd::splat_float(inputs[c]->scale),
                                         is_fresh ? simd::zero_floats() : total[r][first + c]);
        });
      });
    });
  }
  if constexpr (kMinGroupOfTile > 0) {
    for (int i = 0; i < kInputBlock / kMinGroupOfTile; i += simd::kLanes) {
      simd::Floats min[kRows];
      repeat<kRows>([&](auto r) { min[r] = simd::load_floats(rows[r].min + i); });
      repeat<kColumns>([&](auto c) {
        const float* sums = kMinGroupOfTile == 32 ? inputs[c]->sum32 : inputs[c]->sum16;
        const simd::Floats x = simd::load_floats(sums + i);
        repeat<kRows>([&](auto r) { sum[r][c] = simd::multiply_add(min[r], x, sum[r][c]); });
      });
    }
  }
  repeat<kRows>(
      [&](auto r) { repeat<kColumns>([&](auto c) { total[r][first + c] = sum[r][c]; }); });
}

// The weights that come next, asked for a few lines at a time between tiles: a core can wait
// for a dozen lines at once, so to ask for all of them together would hold everything up.
struct Ahead {
  const uint8_t* next;
  int64_t lines;  // of one tile
  void ask() {
    for (int64_t i = 0; i < lines; ++i, next += 64) simd::prefetch(next);
  }
};

// All columns of a group from `first` on, in tiles of 4, 2 and 1.
template <int run, int kMinGroupOfTile, int kColumns>
void few_columns(const UnpackedStretch* unpacked, int rows, const InputBlock* const* inputs,
                 int first, int columns, int twos, bool fresh, simd::Floats (*total)[kGroupColumns],
                 Ahead& ahead) {
  for (; first + kColumns <= columns; first += kColumns) {
    for (int r = 0; r < rows; r += kTileRows<run>) {
      few_tile<run, kMinGroupOfTile, kColumns>(unpacked + r, inputs, first, twos, fresh, total + r);
      ahead.ask();
    }
  }
  if constexpr (kColumns > 1)
    few_columns<run, kMinGroupOfTile, kColumns / 2>(unpacked, rows, inputs, first, columns, twos,
                                                    fresh, total, ahead);
}

// Column c of the totals summed over the lanes: the results of up to kGroupRows rows.
inline void sum_totals(const simd::Floats (*total)[kGroupColumns], int c, int rows, float* out) {
  for (int begin = 0; begin < rows; begin += simd::kLanes) {
    simd::Floats vectors[simd::kLanes];
    for (int i = 0; i < simd::kLanes; ++i)
      vectors[i] = total[begin + i < rows ? begin + i : rows - 1][c];
    float sums[simd::kLanes];
    simd::store(sums, simd::sums(vectors));
    for (int i = 0; i < simd::kLanes && begin + i < rows; ++i) out[begin + i] = sums[i];
  }
}

// Up to kGroupRows rows and kGroupColumns columns.
template <class F>
void few_group(const uint8_t* weight, int64_t row_bytes, const LinearInput& input, int rows,
               int64_t column, int columns, float* out, int64_t out_stride) {
  constexpr int kStretchBytes = kBlocksPerStretch<F> * F::kBytes;
  UnpackedStretch unpacked[kGroupRows];
  simd::Floats total[kGroupRows][kGroupColumns];
  const InputBlock* inputs[kGroupColumns];
  for (int c = 0; c < columns; ++c)
    inputs[c] = reinterpret_cast<const InputBlock*>(input.quantized) + column + c;
  constexpr int kTall = kTileRows<kRun<F>>;
  const int tiled = (rows + kTall - 1) / kTall * kTall;
  const int64_t stretches = (input.width + kInputBlock - 1) / kInputBlock;
  const int64_t tiles = stretches * (tiled / kTall) * (columns / 4 + columns / 2 % 2 + columns % 2);
  Ahead ahead{weight + kGroupRows * row_bytes, (kGroupRows * row_bytes / 64 + tiles - 1) / tiles};
  bool fresh = true;
  for (int64_t left = input.width / F::kWeights; left > 0; left -= kBlocksPerStretch<F>) {
    const int count = left < kBlocksPerStretch<F> ? static_cast<int>(left) : kBlocksPerStretch<F>;
    float scales[kGroupColumns] = {};
    for (int c = 0; c < columns; ++c) scales[c] = inputs[c]->scale;
    for (int r = 0; r < tiled; ++r) {
      // Where rows run out, the last one is repeated and its result dropped.
      const uint8_t* blocks = weight + (r < rows ? r : rows - 1) * row_bytes;
      unpack_row<F>(blocks, count, scales, unpacked[r]);
    }
    few_columns<kRun<F>, F::kHasMin ? kMinGroup<F> : 0, 4>(unpacked, tiled, inputs, 0, columns,
                                                           runs_in<F>(count), fresh, total, ahead);
    fresh = false;
    weight += kStretchBytes;
    for (int c = 0; c < columns; ++c) inputs[c] = next_stretch(inputs[c], input);
  }
  for (int c = 0; c < columns; ++c) sum_totals(total, c, rows, out + c * out_stride);
}

template <class F>
void generate_few(const uint8_t* weight, int64_t row_bytes, const LinearInput& input, int64_t begin,
                  int64_t end, float* out, int64_t out_stride) {
  for (int64_t row = begin; row < end; row += kGroupRows) {
    const int rows = end - row < kGroupRows ? static_cast<int>(end - row) : kGroupRows;
    for (int64_t column = 0; column < input.columns; column += kGroupColumns) {
      const int64_t left = input.columns - column;
      const int columns = left < kGroupColumns ? static_cast<int>(left) : kGroupColumns;
      few_group<F>(weight + row * row_bytes, row_bytes, input, rows, column, columns,
                   out + column * out_stride + row, out_stride);
    }
  }
}

}  // namespace ingot::INGOT_ISA
