// The searches of kernels/encode_search_*.h with counts from an importance matrix, and those of
// grids (quantize/grid.h).
//
// Compiled once, into the namespace `quantize`, with the instructions every CPU has: an importance
// matrix is used once per file, so it is not worth a build per instruction set.
#include "quantize/weighted.h"

#include "formats/types.h"
#include "kernels/encode_few_bits.h"
#include "kernels/encode_iq4.h"
#include "kernels/encode_k_affine.h"
#include "kernels/encode_k_scale.h"
#include "quantize/grid.h"

namespace ingot::INGOT_ISA {

using Encoder = void (*)(const float* values, const Important& counts, uint8_t* block,
                         int64_t count);

static void store_fifth_bits_of(const uint8_t* levels, uint8_t* out) {
  uint32_t bits = 0;
  for (int i = 0; i < 32; ++i) bits |= static_cast<uint32_t>(levels[i] >> 4) << i;
  store_as(out, bits);
}

static void encode_q4_0(const float* values, const Important& counts, uint8_t* block,
                        int64_t count) {
  encode_lone_scales<EvenLevels<-8, 7>, 32, 18>(values, counts, block, count,
                                                [](uint16_t d, const uint8_t* levels, uint8_t* to) {
                                                  store_as(to, d);
                                                  pack_nibbles<16>(levels, to + 2);
                                                });
}

static void encode_q5_0(const float* values, const Important& counts, uint8_t* block,
                        int64_t count) {
  encode_lone_scales<EvenLevels<-16, 15>, 32, 22>(
      values, counts, block, count, [](uint16_t d, const uint8_t* levels, uint8_t* to) {
        store_as(to, d);
        store_fifth_bits_of(levels, to + 2);
        pack_nibbles<16>(levels, to + 6);
      });
}

constexpr int kBlocksAtOnce = 16;

// The lines of sixteen blocks of 32 with numbers in half precision.
struct HalfLines {
  using Lanes = simd::FloatLanes<kBlocksAtOnce>;
  HalfScale scale[kBlocksAtOnce], offset[kBlocksAtOnce];

  HalfLines(const Line<Lanes>& wanted, const float* unit) {
    for (int g = 0; g < kBlocksAtOnce; ++g) {
      scale[g] = HalfScale::nearest(wanted.scale[g], unit[g]);
      offset[g] = HalfScale::nearest(wanted.offset[g], unit[g]);
    }
  }
  Line<Lanes> line() const {
    float scales[kBlocksAtOnce], offsets[kBlocksAtOnce];
    for (int g = 0; g < kBlocksAtOnce; ++g)
      scales[g] = scale[g].value, offsets[g] = offset[g].value;
    return {Lanes::load(scales), Lanes::load(offsets)};
  }
};

// The best lines: those of the search, or those that put the lowest and the highest weight on a
// level. The latter are exact for weights that were quantized before, whatever they count.
template <int kMaxLevel, class Lanes, class Counts>
static HalfLines best_lines(const Lanes* weight, const float* unit, const Counts& counts) {
  HalfLines best(fit_affine<kMaxLevel, 32>(weight, counts, Lanes(-2.0f), Lanes(2.0f)), unit);
  Lanes least = squared_error<kMaxLevel, 32>(weight, counts, best.line());
  Lanes low = weight[0], high = weight[0];
  for (int i = 1; i < 32; ++i) low = min(low, weight[i]), high = max(high, weight[i]);
  for (const int span : {kMaxLevel, kMaxLevel - 1}) {
    const HalfLines trial({(high - low) * (1.0f / static_cast<float>(span)), low}, unit);
    const Lanes error = squared_error<kMaxLevel, 32>(weight, counts, trial.line());
    for (int g = 0; g < kBlocksAtOnce; ++g)
      if (error[g] < least[g]) best.scale[g] = trial.scale[g], best.offset[g] = trial.offset[g];
    least = min(error, least);
  }
  return best;
}

// Blocks of 32 under a scale and an offset in half precision, sixteen at once.
template <int kMaxLevel, int kBlockBytes, class Pack>
static void encode_lone_lines(const float* values, const Important& counts, uint8_t* block,
                              int64_t count, Pack pack) {
  constexpr int kLanes = kBlocksAtOnce;
  using Lanes = HalfLines::Lanes;
  for (int64_t b = 0; b < count; b += kLanes, values += kLanes * 32) {
    const LoneGroups<kLanes, 32> blocks(values, count - b);
    const auto counted = counts.template block<kLanes, 32>(b);
    const HalfLines found = best_lines<kMaxLevel>(blocks.weight, blocks.unit, counted);
    const Line<Lanes> line = found.line();
    const Lanes inverse = inverse_or_zero(line.scale);
    uint8_t levels[kLanes * 32];
    for (int i = 0; i < 32; ++i) {
      float row[kLanes];
      EvenLevels<0, kMaxLevel>::nearest((blocks.weight[i] - line.offset) * inverse).store(row);
      for (int g = 0; g < kLanes; ++g) levels[g * 32 + i] = static_cast<uint8_t>(row[g]);
    }
    for (int g = 0; g < kLanes && b + g < count; ++g, block += kBlockBytes) {
      const bool searched = blocks.searched(g);
      store_as(block,
               searched ? found.scale[g].bits : simd::float_to_half_bits(blocks.unsearched[g]));
      store_as(block + 2, searched ? found.offset[g].bits : static_cast<uint16_t>(0));
      pack(levels + 32 * g, block + 4);
    }
  }
}

static void encode_q4_1(const float* values, const Important& counts, uint8_t* block,
                        int64_t count) {
  encode_lone_lines<15, 20>(values, counts, block, count, [](const uint8_t* levels, uint8_t* to) {
    pack_nibbles<16>(levels, to);
  });
}

static void encode_q5_1(const float* values, const Important& counts, uint8_t* block,
                        int64_t count) {
  encode_lone_lines<31, 24>(values, counts, block, count, [](const uint8_t* levels, uint8_t* to) {
    store_fifth_bits_of(levels, to);
    pack_nibbles<16>(levels, to + 4);
  });
}

struct Entry {
  TensorType type;
  Encoder encode;
};

static constexpr Entry kEncoders[] = {
    {Q1_0::kType, encode_q1_0<Important>},
    {Q2_0::kType, encode_q2_0<Important>},
    {Q4_0::kType, encode_q4_0},
    {Q4_1::kType, encode_q4_1},
    {Q5_0::kType, encode_q5_0},
    {Q5_1::kType, encode_q5_1},
    {Q2_K::kType, encode_q2_k<Important>},
    {Q3_K::kType, encode_q3_k<Important>},
    {Q4_K::kType, encode_q4_k<Important>},
    {Q5_K::kType, encode_q5_k<Important>},
    {Q6_K::kType, encode_q6_k<Important>},
    {IQ4_NL::kType, encode_iq4_nl<Important>},
    {IQ4_XS::kType, encode_iq4_xs<Important>},
    {IQ3_S::kType, encode_iq3_s},
    {IQ3_XXS::kType, encode_iq3_xxs},
    {IQ2_S::kType, encode_iq2_s},
    {IQ2_XS::kType, encode_iq2_xs},
    {IQ2_XXS::kType, encode_iq2_xxs},
    {IQ1_M::kType, encode_iq1_m},
    {IQ1_S::kType, encode_iq1_s},
};

static Encoder encoder_of(uint32_t type) {
  for (const Entry& entry : kEncoders)
    if (static_cast<uint32_t>(entry.type) == type) return entry.encode;
  return nullptr;
}

}  // namespace ingot::INGOT_ISA

namespace ingot {

bool has_weighted_encoder(uint32_t type) { return INGOT_ISA::encoder_of(type) != nullptr; }

void encode_weighted(uint32_t type, const float* values, const float* importance, int64_t rows,
                     int64_t columns, uint8_t* out) {
  const TypeTraits* traits = find_type(type);
  const int64_t blocks = columns / traits->block_weights;
  const auto encode = INGOT_ISA::encoder_of(type);
  for (int64_t row = 0; row < rows; ++row) {
    encode(values + row * columns, {importance, columns}, out, blocks);
    out += blocks * traits->block_bytes;
  }
}

}  // namespace ingot
