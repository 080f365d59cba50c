// IQ2 and IQ3: a run of weights is a point of magnitudes, and signs are stored apart. Three of the
// formats store seven signs of eight; the eighth makes the number of negative ones even.
#include "formats/grids.h"
#include "kernels/encode_pack.h"
#include "quantize/grid.h"
#include "quantize/grid_search.h"
#include "quantize/near_points.h"

namespace ingot::INGOT_ISA {
namespace {

using Points2 = NearPoints<8, 3>;
using Points3 = NearPoints<4, 8>;

constexpr float kLevels2[] = {8, 25, 43};
constexpr float kLevels3Xxs[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kLevels3S[] = {1, 3, 5, 7, 9, 11, 13, 15};

const Points2& points_2_xxs() {
  static const Points2 points(kGridIq2Xxs, kLevels2);
  return points;
}
const Points2& points_2_xs() {
  static const Points2 points(kGridIq2Xs, kLevels2);
  return points;
}
const Points2& points_2_s() {
  static const Points2 points(kGridIq2S, kLevels2);
  return points;
}
const Points3& points_3_xxs() {
  static const Points3 points(kGridIq3Xxs, kLevels3Xxs);
  return points;
}
const Points3& points_3_s() {
  static const Points3 points(kGridIq3S, kLevels3S);
  return points;
}

template <auto& kPoints, int kGroupWeights, int kTopLevel, bool kEvenSigns>
class SignedGroup {
  using Points = std::remove_cvref_t<decltype(kPoints())>;
  using Lanes = typename Points::Lanes;
  static constexpr int kRun = sizeof(Lanes) / sizeof(float);
  static constexpr int kRuns = kGroupWeights / kRun, kSignBytes = kGroupWeights / 8;

 public:
  static constexpr int kWeights = kGroupWeights;
  static constexpr int kTries = Points::kMost, kFewTries = Points::kFew;
  static constexpr float kTop = kTopLevel;
  static constexpr int kMaxScale = 31;
  static constexpr float kFactor = kTopLevel == 43 ? 0.125f : kTopLevel == 62 ? 0.25f : 1.0f;
  // The extreme weight meets the top level, falls short of it or overshoots.
  static constexpr float kStretches[] = {1.0f,  0.94f, 1.06f, 0.88f, 1.12f, 0.82f,
                                         1.18f, 0.76f, 1.3f,  0.68f, 0.58f, 0.45f};
  struct Choice {
    uint16_t point[kRuns];
    uint8_t signs[kSignBytes];
  };

  void load(const float* values, const float* counts, float inverse_unit) {
    for (int byte = 0; byte < kSignBytes; ++byte)
      load_eight(values + 8 * byte, counts + 8 * byte, inverse_unit, byte);
    for (int r = 0; r < kRuns; ++r) weighed_[r] = magnitude_[r] * count_[r];
  }

  float largest() const { return largest_; }

  GridSums fit(float scale, int tries, Choice& choice) const {
    const Points& points = kPoints();
    const Lanes inverse = scale > 0 ? 1 / scale : 0;
    Lanes products = 0.0f, squares = 0.0f;  // of each lane, until all runs are added
    std::copy(signs_, signs_ + kSignBytes, choice.signs);
    for (int r = 0; r < kRuns; ++r) {
      const auto near = points.near(magnitude_[r] * inverse);
      const int best =
          near.count > 1 ? points.best(near, tries, 0, count_[r] * scale, weighed_[r] * -2.0f).point
                         : near.first[0];
      const Lanes& q = points.point(best);
      products += q * weighed_[r];
      squares += q * q * count_[r];
      choice.point[r] = static_cast<uint16_t>(best);
    }
    return {Points::sum_of(products), Points::sum_of(squares)};
  }

 private:
  // The magnitudes of eight weights. If an odd number is negative and must not be, the sign of
  // the weight that matters least is turned; its magnitude is negative then.
  void load_eight(const float* values, const float* counts, float inverse_unit, int byte) {
    float magnitude[8];
    uint8_t negative = 0;
    int least = 0;
    for (int i = 0; i < 8; ++i) {
      magnitude[i] = std::fabs(values[i]) * inverse_unit;
      negative |= static_cast<uint8_t>((values[i] < 0) << i);
      largest_ = std::max(largest_, magnitude[i]);
      if (counts[i] * magnitude[i] < counts[least] * magnitude[least]) least = i;
    }
    if (kEvenSigns && std::popcount(negative) % 2) {
      negative ^= static_cast<uint8_t>(1 << least);
      magnitude[least] = -magnitude[least];
    }
    signs_[byte] = negative;
    for (int i = 0; i < 8; i += kRun) {
      magnitude_[(8 * byte + i) / kRun] = Lanes::load(magnitude + i);
      count_[(8 * byte + i) / kRun] = Lanes::load(counts + i);
    }
  }

  Lanes magnitude_[kRuns], count_[kRuns], weighed_[kRuns];
  uint8_t signs_[kSignBytes];
  float largest_ = 0;
};

// Searches block after block; pack(found, bytes) writes one.
template <class Group, int kBytes, class Pack>
void encode_blocks(const float* values, const Important& counts, uint8_t* block, int64_t count,
                   Pack pack) {
  for (int64_t b = 0; b < count; ++b, values += kGridWeights, block += kBytes) {
    const auto found = search_grid_block<Group>(values, counts.importance + b * kGridWeights);
    std::memset(block, 0, kBytes);
    pack(found, block);
  }
}

// Four sign indices of seven bits, and a scale on top.
template <class Block>
uint32_t sign_word(const Block& found, int g) {
  uint32_t word = static_cast<uint32_t>(found.scale[g]) << 28;
  for (int i = 0; i < 4; ++i) word |= (found.choice[g].signs[i] & 127u) << (7 * i);
  return word;
}

// Two scales a byte.
template <class Block>
void pack_scales(const Block& found, uint8_t* to) {
  for (int g = 0; g < Block::kGroups; g += 2)
    to[g / 2] = static_cast<uint8_t>(found.scale[g] | found.scale[g + 1] << 4);
}

}  // namespace

void encode_iq2_xxs(const float* values, const Important& counts, uint8_t* block, int64_t count) {
  using Group = SignedGroup<points_2_xxs, 32, 43, true>;
  encode_blocks<Group, 66>(values, counts, block, count, [](const auto& found, uint8_t* to) {
    store_as(to, found.d);
    for (int g = 0; g < 8; ++g) {
      uint8_t* group = to + 2 + 8 * g;
      for (int i = 0; i < 4; ++i) group[i] = static_cast<uint8_t>(found.choice[g].point[i]);
      store_as(group + 4, sign_word(found, g));
    }
  });
}

void encode_iq2_xs(const float* values, const Important& counts, uint8_t* block, int64_t count) {
  using Group = SignedGroup<points_2_xs, 16, 43, true>;
  encode_blocks<Group, 74>(values, counts, block, count, [](const auto& found, uint8_t* to) {
    store_as(to, found.d);
    for (int run = 0; run < 32; ++run) {
      const auto& choice = found.choice[run / 2];
      const int seven = choice.signs[run % 2] & 127;
      store_as(to + 2 + 2 * run, static_cast<uint16_t>(choice.point[run % 2] | seven << 9));
    }
    pack_scales(found, to + 66);
  });
}

void encode_iq2_s(const float* values, const Important& counts, uint8_t* block, int64_t count) {
  using Group = SignedGroup<points_2_s, 16, 43, false>;
  encode_blocks<Group, 82>(values, counts, block, count, [](const auto& found, uint8_t* to) {
    store_as(to, found.d);
    for (int run = 0; run < 32; ++run) {
      const int point = found.choice[run / 2].point[run % 2];
      to[2 + run] = static_cast<uint8_t>(point);
      to[34 + run] = found.choice[run / 2].signs[run % 2];
      to[66 + run / 4] |= static_cast<uint8_t>(point >> 8 << (run % 4 * 2));
    }
    pack_scales(found, to + 74);
  });
}

void encode_iq3_xxs(const float* values, const Important& counts, uint8_t* block, int64_t count) {
  using Group = SignedGroup<points_3_xxs, 32, 62, true>;
  encode_blocks<Group, 98>(values, counts, block, count, [](const auto& found, uint8_t* to) {
    store_as(to, found.d);
    for (int run = 0; run < 64; ++run)
      to[2 + run] = static_cast<uint8_t>(found.choice[run / 8].point[run % 8]);
    for (int g = 0; g < 8; ++g) store_as(to + 66 + 4 * g, sign_word(found, g));
  });
}

void encode_iq3_s(const float* values, const Important& counts, uint8_t* block, int64_t count) {
  using Group = SignedGroup<points_3_s, 32, 15, false>;
  encode_blocks<Group, 110>(values, counts, block, count, [](const auto& found, uint8_t* to) {
    store_as(to, found.d);
    for (int run = 0; run < 64; ++run) {
      const int point = found.choice[run / 8].point[run % 8];
      to[2 + run] = static_cast<uint8_t>(point);
      to[66 + run / 8] |= static_cast<uint8_t>(point >> 8 << run % 8);
    }
    for (int byte = 0; byte < 32; ++byte) to[74 + byte] = found.choice[byte / 4].signs[byte % 4];
    pack_scales(found, to + 106);
  });
}

}  // namespace ingot::INGOT_ISA
