// IQ1: a run of eight weights is a point of -1, 0 and 1, all of it shifted by an eighth up or down.
// In eighths, as here, all are whole numbers. IQ1_S has one shift for the 32 weights of a scale,
// IQ1_M one for each run.
#include "formats/grids.h"
#include "kernels/encode_pack.h"
#include "quantize/grid.h"
#include "quantize/grid_search.h"
#include "quantize/near_points.h"

namespace ingot::INGOT_ISA {
namespace {

using Points = NearPoints<8, 3>;
using Lanes = Points::Lanes;

const Points& points() {
  static constexpr float kLevels[] = {-8, 0, 8};
  static const Points found(kGridIq1S, kLevels);
  return found;
}

template <int kGroupWeights, bool kShiftOfRun>
class ShiftedGroup {
  static constexpr int kRuns = kGroupWeights / 8;

 public:
  static constexpr int kWeights = kGroupWeights;
  static constexpr int kTries = Points::kMost, kFewTries = Points::kFew / 2;  // for two shifts
  static constexpr float kTop = 9;
  static constexpr int kMaxScale = 15;
  static constexpr float kFactor = 0.125f;
  // Most of the best scales let the extreme weight fall short of the top.
  static constexpr float kStretches[] = {0.5f, 0.65f, 0.38f, 0.85f, 0.28f};
  struct Choice {
    uint16_t point[kRuns];
    uint8_t down;  // a bit for each run that is shifted down
  };

  void load(const float* values, const float* counts, float inverse_unit) {
    for (int r = 0; r < kRuns; ++r) {
      weight_[r] = Lanes::load(values + 8 * r) * inverse_unit;
      count_[r] = Lanes::load(counts + 8 * r);
      weighed_[r] = weight_[r] * count_[r];
    }
    largest_ = largest_magnitude(values, kGroupWeights) * inverse_unit;
  }

  float largest() const { return largest_; }

  GridSums fit(float scale, int tries, Choice& choice) const {
    Lanes products = 0.0f, squares = 0.0f;  // of each lane, until all runs are added
    const auto add = [&](int r, int point, float shift) {
      const Lanes q = points().point(point) + shift;
      products += q * weighed_[r];
      squares += q * q * count_[r];
      choice.point[r] = static_cast<uint16_t>(point);
    };
    choice.down = 0;
    Points::Best up[kRuns], down[kRuns];
    float less = 0;  // error of all runs if they are shifted down
    for (int r = 0; r < kRuns; ++r) {
      up[r] = fit_run(r, scale, 1, tries);
      down[r] = fit_run(r, scale, -1, tries);
      less += down[r].error - up[r].error;
    }
    for (int r = 0; r < kRuns; ++r) {
      const bool take = kShiftOfRun ? down[r].error < up[r].error : less < 0;
      if (take) choice.down |= static_cast<uint8_t>(kShiftOfRun ? 1 << r : 1);
      add(r, take ? down[r].point : up[r].point, take ? -1 : 1);
    }
    return {Points::sum_of(products), Points::sum_of(squares)};
  }

 private:
  // The best point of a run under a scale and a shift.
  Points::Best fit_run(int r, float scale, float shift, int tries) const {
    const Lanes inverse = scale > 0 ? 1 / scale : 0;
    const auto near = points().near(weight_[r] * inverse - shift);
    return points().best(near, tries, shift, count_[r] * scale, weighed_[r] * -2.0f);
  }

  Lanes weight_[kRuns], count_[kRuns], weighed_[kRuns];
  float largest_ = 0;
};

}  // namespace

void encode_iq1_s(const float* values, const Important& counts, uint8_t* block, int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += kGridWeights, block += 50) {
    const auto found =
        search_grid_block<ShiftedGroup<32, false>>(values, counts.importance + b * kGridWeights);
    store_as(block, found.d);
    for (int g = 0; g < 8; ++g) {
      const auto& choice = found.choice[g];
      int high = found.scale[g] << 12 | choice.down << 15;
      for (int i = 0; i < 4; ++i) {
        block[2 + 4 * g + i] = static_cast<uint8_t>(choice.point[i]);
        high |= choice.point[i] >> 8 << (3 * i);
      }
      store_as(block + 34 + 2 * g, static_cast<uint16_t>(high));
    }
  }
}

void encode_iq1_m(const float* values, const Important& counts, uint8_t* block, int64_t count) {
  for (int64_t b = 0; b < count; ++b, values += kGridWeights, block += 56) {
    const auto found =
        search_grid_block<ShiftedGroup<16, true>>(values, counts.importance + b * kGridWeights);
    for (int g = 0; g < 16; ++g) {
      const auto& choice = found.choice[g];
      const auto nibble = [&](int i) { return choice.point[i] >> 8 | (choice.down >> i & 1) << 3; };
      for (int i = 0; i < 2; ++i) block[2 * g + i] = static_cast<uint8_t>(choice.point[i]);
      block[32 + g] = static_cast<uint8_t>(nibble(0) | nibble(1) << 4);
    }
    for (int word = 0; word < 4; ++word) {
      int packed = (found.d >> (4 * word) & 15) << 12;
      for (int i = 0; i < 4; ++i) packed |= found.scale[4 * word + i] << (3 * i);
      store_as(block + 48 + 2 * word, static_cast<uint16_t>(packed));
    }
  }
}

}  // namespace ingot::INGOT_ISA
