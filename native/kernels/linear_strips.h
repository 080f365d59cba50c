// Matrix products of bytes for generation: a strip of kLanes rows, one row a lane, times a few
// columns. What is unpacked stays in registers.
//
// The rows of a strip are turned (simd/turned.h) stretch by stretch, or were turned before: a copy
// of a matrix with its rows interleaved holds strip after strip, of each the lines of every
// stretch. It is as large as the matrix, comes from memory in one stream, and gives the same bits.
#pragma once

#include "kernels/linear_bytes.h"

#if defined(INGOT_TURNS)

namespace ingot::INGOT_ISA {

// What a strip is multiplied by. Where there are fewer columns, the last one is repeated.
template <int kColumns>
struct StripInputs {
  const ByteBlock* column[kColumns];
  int64_t stride;

  explicit StripInputs(const LinearInput& input) : stride(input.quantized_stride) {
    const int last = static_cast<int>(input.columns) - 1;
    repeat<kColumns>([&](auto c) { column[c] = byte_blocks(input) + std::min<int>(c, last); });
  }
  void advance() {
    repeat<kColumns>([&](auto c) {
      column[c] =
          reinterpret_cast<const ByteBlock*>(reinterpret_cast<const uint8_t*>(column[c]) + stride);
    });
  }
};

// Asks for a slice's share of the lines of a stretch. A core can wait for a dozen lines at once, so
// to ask for all of them together would hold everything up.
template <class F, int slice>
inline void prefetch_share(const uint8_t* lines) {
  constexpr int kAll = (kTurnedBytes<F> + 63) / 64;
  constexpr int kFirst = kAll * slice / kStretchSlices, kEnd = kAll * (slice + 1) / kStretchSlices;
  for (int i = kFirst; i < kEnd; ++i) simd::prefetch_near(lines + i * 64);
}

// Adds some stretches of a strip to its totals. `ahead`: asks for what lies so many bytes further
// on; 0: for nothing.
template <class F, bool kApart, int kColumns>
INGOT_FLATTEN [[gnu::noinline]] void add_lines(const uint8_t* lines, int64_t stretches,
                                               int64_t ahead, StripInputs<kColumns>& inputs,
                                               simd::Floats (&totals)[kColumns]) {
  constexpr ByteShape shape = kByteShape<F>;
  constexpr int kHalves = 32 / shape.group, kQuads = 8 / kHalves;  // groups of a slice
  simd::Floats total[kColumns];
  repeat<kColumns>([&](auto c) { total[c] = totals[c]; });
  for (; stretches > 0; --stretches, lines += kTurnedBytes<F>) {
    const auto add = [&](auto last, const simd::Bytes* weights, const LaneFactors& factors,
                         const ByteGroup& group, simd::Floats& scaled, simd::Floats& into) {
      simd::Ints sum = start_of_group<shape>(group, kByteOffset<F>);
      simd::Parts part;
      repeat<kQuads>([&](auto i) {
        simd::add_quad<shape.most, i, kQuads>(sum, part, simd::fours_of(weights[i]),
                                              group.template quad<i>());
      });
      add_group<shape, last>(
          sum, [&] { return factors.factor; }, [&] { return factors.min; }, group, scaled, into);
    };
    // Second bytes meet the weights while these are in registers.
    simd::Floats seconds[kColumns];
    const SecondBytes* second[kColumns];
    uint32_t has_seconds = 0;  // bit g: a column has those of group g
    repeat<kColumns>([&](auto c) {
      seconds[c] = simd::zero_floats();
      second[c] = inputs.column[c]->second;
      has_seconds |= inputs.column[c]->seconds;
    });
    repeat<kStretchSlices>([&](auto slice) {
      if (ahead) prefetch_share<F, slice>(lines + ahead);
      const simd::Quads weights = turned_weights<F, kApart, slice>(lines);
      LaneFactors factors[kHalves];
      repeat<kHalves>([&](auto half) {
        factors[half] = turned_factors<F, kApart, slice * kHalves + half>(lines);
      });
      repeat<kColumns>([&](auto c) {
        simd::Floats scaled;
        repeat<kHalves>([&](auto half) {
          add(std::bool_constant < half == kHalves - 1 > {}, weights.v + half * kQuads,
              factors[half], group_of<shape>(*inputs.column[c], slice * kHalves + half), scaled,
              total[c]);
        });
      });
      if constexpr (shape.seconds) {
        if (has_seconds >> slice & 1) {
          for (int c = 0; c < kColumns; ++c) {
            if ((inputs.column[c]->seconds >> slice & 1) == 0) continue;
            simd::Floats scaled;
            add(std::true_type{}, weights.v, factors[0], second_group(*second[c]++), scaled,
                seconds[c]);
          }
        }
      }
    });
    if constexpr (shape.seconds)
      repeat<kColumns>([&](auto c) { total[c] = simd::add(total[c], seconds[c]); });
    inputs.advance();
  }
  repeat<kColumns>([&](auto c) { totals[c] = total[c]; });
}

// How generation and panels read a matrix as its file has it...
template <class F>
struct RowsOfFile {
  using Panel = BytePanel<F>;

  template <int kColumns>
  static void add_strip(const uint8_t* weight, int64_t row_bytes, int rows, int64_t width,
                        StripInputs<kColumns>& inputs, simd::Floats (&totals)[kColumns]) {
    alignas(64) uint8_t lines[kTurnedBytes<F>];
    StripRows block(weight, row_bytes, rows);
    for (int64_t k = 0; k < width; k += kInputBlock) {
      const int64_t left = std::min<int64_t>(width - k, kInputBlock);
      turn_blocks<F, false>(block, static_cast<int>(left / F::kWeights), lines);
      add_lines<F, false, kColumns>(lines, 1, 0, inputs, totals);
      for (const uint8_t*& row : block.row) {
        prefetch_stretch<F>(row + simd::kLanes * row_bytes);
        row += kBlocksPerStretch<F> * F::kBytes;
      }
    }
  }
};

// ... and a copy of it with its rows interleaved. `row_bytes` are a strip's, divided by its rows.
// Where rows end within a stretch, the copy has the lines of the blocks that there are: those of
// their heads (kHeads), then the others.
template <class F>
inline size_t lines_bytes(int64_t blocks) {
  return static_cast<size_t>((blocks * F::kBytes + 3) / 4 * simd::kLineBytes);
}

template <class F>
inline size_t head_lines_bytes(int64_t blocks) {
  return static_cast<size_t>((blocks * kHeads<F> + 3) / 4 * simd::kLineBytes);
}

// A stretch of so many blocks, filled up with zeros.
template <class F>
struct PaddedLines {
  alignas(64) uint8_t lines[kTurnedBytes<F>] = {};
  PaddedLines(const uint8_t* some, int64_t blocks) {
    const size_t heads = head_lines_bytes<F>(blocks);
    std::memcpy(lines, some, heads);
    std::memcpy(lines + kHeadBytes<F> * simd::kLanes, some + heads, lines_bytes<F>(blocks) - heads);
  }
};

template <class F>
struct InterleavedPanel : BytePanel<F> {
  static const uint8_t* at(const uint8_t* strip, int64_t k) {
    return strip + k / kInputBlock * kTurnedBytes<F>;
  }
  static void prefetch_next(const uint8_t* from, int64_t, int) {
    for (int i = 0; i < kTurnedBytes<F>; i += 64) simd::prefetch(from + kTurnedBytes<F> + i);
  }
  using typename BytePanel<F>::Strip;
  static void unpack(const uint8_t* lines, int64_t, int, int count, Strip& strip) {
    if (kBlocksPerStretch<F> == 1 || count == kBlocksPerStretch<F>)
      return unpack_turned<F, kHasHeads<F>>(lines, strip);
    unpack_turned<F, kHasHeads<F>>(PaddedLines<F>(lines, count).lines, strip);
  }
};

template <class F>
struct InterleavedRows {
  using Panel = InterleavedPanel<F>;
  // What a processor fetches by itself when memory is read in order is not enough: it stops at the
  // end of a page, and where a scale at the end of a block is read before its weights. (Zen 5, two
  // threads, GB/s of each without and with asking: Q4_K 16 and 39, Q6_K 13 and 37.) From 4 to 16 kB
  // ahead are within a tenth of each other.
  static constexpr int64_t kAhead = 8 << 10;

  template <int kColumns>
  static void add_strip(const uint8_t* weight, int64_t, int, int64_t width,
                        StripInputs<kColumns>& inputs, simd::Floats (&totals)[kColumns]) {
    const int64_t whole = width / kInputBlock, rest = width % kInputBlock / F::kWeights;
    add_lines<F, kHasHeads<F>, kColumns>(weight, whole, kAhead, inputs, totals);
    if (rest > 0) {
      const PaddedLines<F> last(weight + whole * kTurnedBytes<F>, rest);
      add_lines<F, kHasHeads<F>, kColumns>(last.lines, 1, 0, inputs, totals);
    }
  }
};

template <class F>
int64_t interleaved_row_bytes(int64_t width) {
  const int64_t whole = width / kInputBlock, rest = width % kInputBlock / F::kWeights;
  return whole * kTurnedLines<F> * 4 + static_cast<int64_t>(lines_bytes<F>(rest)) / simd::kLanes;
}

// Writes the copy of some rows, a multiple of kLanes.
template <class F>
void interleave_rows(const uint8_t* weight, int64_t row_bytes, int64_t rows, int64_t width,
                     uint8_t* out) {
  for (int64_t row = 0; row < rows; row += simd::kLanes) {
    StripRows block(weight + row * row_bytes, row_bytes, simd::kLanes);
    for (int64_t k = 0; k < width; k += kInputBlock) {
      const int64_t blocks = std::min<int64_t>(width - k, kInputBlock) / F::kWeights;
      alignas(64) uint8_t lines[kTurnedBytes<F>];
      turn_blocks<F, kHasHeads<F>>(block, static_cast<int>(blocks), lines);
      const size_t heads = head_lines_bytes<F>(blocks), all = lines_bytes<F>(blocks);
      std::memcpy(out, lines, heads);
      std::memcpy(out + heads, lines + kHeadBytes<F> * simd::kLanes, all - heads);
      out += all;
      for (const uint8_t*& each : block.row) each += blocks * F::kBytes;
    }
  }
}

// More columns than this cost less in panels: strips keep a total of each in a register.
inline constexpr int kStripColumns = simd::kLanes / 2;

// In strips with the least kColumns that is enough: a power of two.
template <class Rows, int kColumns>
void generate_strips(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                     int64_t begin, int64_t end, float* out, int64_t out_stride) {
  if constexpr (kColumns < kStripColumns)
    if (input.columns > kColumns)
      return generate_strips<Rows, kColumns * 2>(weight, row_bytes, input, begin, end, out,
                                                 out_stride);
  for (int64_t row = begin; row < end; row += simd::kLanes) {
    const int rows = static_cast<int>(std::min<int64_t>(end - row, simd::kLanes));
    StripInputs<kColumns> inputs(input);
    simd::Floats totals[kColumns];
    repeat<kColumns>([&](auto c) { totals[c] = simd::zero_floats(); });
    Rows::template add_strip<kColumns>(weight + row * row_bytes, row_bytes, rows, input.width,
                                       inputs, totals);
    for (int c = 0; c < input.columns; ++c) {
      float results[simd::kLanes];
      simd::store(results, totals[c]);
      std::memcpy(out + c * out_stride + row, results, static_cast<size_t>(rows) * sizeof(float));
    }
  }
}

template <class Rows>
void generate_bytes(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                    int64_t begin, int64_t end, float* out, int64_t out_stride, uint8_t* scratch) {
  if (input.columns > kStripColumns) {
    prompt_linear<typename Rows::Panel>(weight, row_bytes, input, begin, end, out, out_stride,
                                        scratch);
  } else {
    generate_strips<Rows, 1>(weight, row_bytes, input, begin, end, out, out_stride);
  }
}

}  // namespace ingot::INGOT_ISA

#endif
