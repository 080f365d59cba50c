// The searches of kernels/encode_search_*.h with counts from an importance matrix.
//
// Compiled once, into the namespace `quantize`, with the instructions every CPU has: an importance
// matrix is used once per file, so it is not worth a build per instruction set.
#include "quantize/weighted.h"

#include "formats/types.h"
#include "kernels/encode_iq4.h"
#include "kernels/encode_k_affine.h"
#include "kernels/encode_k_scale.h"

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
  encode_lone_scales<EvenLevels<-8, 7>, 18>(values, counts, block, count,
                                            [](uint16_t d, const uint8_t* levels, uint8_t* to) {
                                              store_as(to, d);
                                              pack_nibbles<16>(levels, to + 2);
                                            });
}

static void encode_q5_0(const float* values, const Important& counts, uint8_t* block,
                        int64_t count) {
  encode_lone_scales<EvenLevels<-16, 15>, 22>(values, counts, block, count,
                                              [](uint16_t d, const uint8_t* levels, uint8_t* to) {
                                                store_as(to, d);
                                                store_fifth_bits_of(levels, to + 2);
                                                pack_nibbles<16>(levels, to + 6);
                                              });
}

// Blocks of 32 under a scale and an offset in half precision, sixteen at once.
template <int kMaxLevel, int kBlockBytes, class Pack>
static void encode_lone_lines(const float* values, const Important& counts, uint8_t* block,
                              int64_t count, Pack pack) {
  constexpr int kLanes = 16;
  using Lanes = simd::FloatLanes<kLanes>;
  for (int64_t b = 0; b < count; b += kLanes, values += kLanes * 32) {
    const LoneGroups<kLanes, 32> blocks(values, count - b);
    const auto counted = counts.template block<kLanes, 32>(b);
    const Line<Lanes> wanted =
        fit_affine<kMaxLevel, 32>(blocks.weight, counted, Lanes(-2.0f), Lanes(2.0f));
    float scale[kLanes], offset[kLanes];
    uint16_t bits[kLanes][2];
    for (int g = 0; g < kLanes; ++g) {
      const HalfScale d = HalfScale::nearest(wanted.scale[g], blocks.unit[g]);
      const HalfScale m = HalfScale::nearest(wanted.offset[g], blocks.unit[g]);
      scale[g] = d.value, offset[g] = m.value;
      bits[g][0] = blocks.searched(g) ? d.bits : simd::float_to_half_bits(blocks.unsearched[g]);
      bits[g][1] = blocks.searched(g) ? m.bits : 0;
    }
    const Lanes inverse = inverse_or_zero(Lanes::load(scale)), low = Lanes::load(offset);
    uint8_t levels[kLanes * 32];
    for (int i = 0; i < 32; ++i) {
      float row[kLanes];
      EvenLevels<0, kMaxLevel>::nearest((blocks.weight[i] - low) * inverse).store(row);
      for (int g = 0; g < kLanes; ++g) levels[g * 32 + i] = static_cast<uint8_t>(row[g]);
    }
    for (int g = 0; g < kLanes && b + g < count; ++g, block += kBlockBytes) {
      store_as(block, bits[g][0]);
      store_as(block + 2, bits[g][1]);
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
