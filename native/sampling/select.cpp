#include "sampling/select.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

namespace ingot::sampling {
namespace {

constexpr float kBanned = -std::numeric_limits<float>::infinity();

bool comes_first(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
}

// The block maxima of a row and the largest of them.
struct Scan {
  std::vector<float> maxima;
  float largest = kBanned;
};

RowState scan_row(const RowKernels& kernels, const float* row, int64_t size, Scan& scan) {
  scan.maxima.resize(static_cast<size_t>(row_blocks(size)));
  if (!kernels.maxima(row, size, scan.maxima.data())) return RowState::kNotFinite;
  for (const float value : scan.maxima) scan.largest = std::max(scan.largest, value);
  return scan.largest > kBanned ? RowState::kUsable : RowState::kEmpty;
}

// All values of at least `threshold`, in the row's order; blocks below it are not looked at.
void gather(const float* row, int64_t size, const Scan& scan, float threshold,
            std::vector<Candidate>& found) {
  found.clear();
  for (size_t block = 0; block < scan.maxima.size(); ++block) {
    if (!(scan.maxima[block] >= threshold)) continue;
    const int64_t begin = static_cast<int64_t>(block) * kRowBlock;
    const int64_t end = std::min(begin + kRowBlock, size);
    for (int64_t i = begin; i < end; ++i) {
      if (row[i] >= threshold && row[i] > kBanned) {
        found.push_back({row[i], static_cast<int32_t>(i)});
      }
    }
  }
}

}  // namespace

RowState select_top(const RowKernels& kernels, const float* row, int64_t size, int64_t count,
                    std::vector<Candidate>& found) {
  Scan scan;
  const RowState state = scan_row(kernels, row, size, scan);
  if (state != RowState::kUsable) return state;
  float threshold = kBanned;
  const auto wanted = static_cast<size_t>(count);
  if (wanted <= scan.maxima.size()) {
    // As many blocks as tokens are wanted reach the wanted-th largest maximum, so the
    // wanted-th largest value is not below it.
    std::vector<float> maxima = scan.maxima;
    std::nth_element(maxima.begin(), maxima.begin() + (count - 1), maxima.end(),
                     std::greater<float>());
    threshold = maxima[wanted - 1];
  }
  gather(row, size, scan, threshold, found);
  if (found.size() > wanted) {
    std::nth_element(found.begin(), found.begin() + (count - 1), found.end(), comes_first);
    found.resize(wanted);
  }
  std::sort(found.begin(), found.end(), comes_first);
  return state;
}

RowState select_near_top(const RowKernels& kernels, const float* row, int64_t size, double distance,
                         std::vector<Candidate>& found) {
  Scan scan;
  const RowState state = scan_row(kernels, row, size, scan);
  if (state != RowState::kUsable) return state;
  gather(row, size, scan, static_cast<float>(scan.largest - distance), found);
  return state;
}

RowState sum_row(const RowKernels& kernels, const float* row, int64_t size, RowSums& sums) {
  Scan scan;
  const RowState state = scan_row(kernels, row, size, scan);
  if (state != RowState::kUsable) return state;
  std::vector<double> totals(scan.maxima.size()), weighted(scan.maxima.size());
  kernels.exponentials(row, size, scan.largest, totals.data(), weighted.data());
  sums = {scan.largest, 0.0, 0.0};
  for (const double total : totals) sums.total += total;
  for (const double weight : weighted) sums.weighted += weight;
  return state;
}

RowState spread_of_row(const RowKernels& kernels, const float* row, int64_t size,
                       RowSpread& spread) {
  Scan scan;
  const RowState state = scan_row(kernels, row, size, scan);
  if (state != RowState::kUsable) return state;
  const RowMoments moments = kernels.moments(row, size, scan.largest);
  const double mean = moments.sum / moments.count;
  const double variance = moments.squares / moments.count - mean * mean;
  spread = {scan.largest + mean, std::sqrt(std::max(variance, 0.0))};
  return state;
}

RowState softmax_row(const RowKernels& kernels, const float* row, int64_t size, double* out) {
  RowSums sums;
  const RowState state = sum_row(kernels, row, size, sums);
  if (state != RowState::kUsable) return state;
  for (int64_t i = 0; i < size; ++i) out[i] = static_cast<double>(row[i]) - sums.largest;
  kernels.exp(out, size, out);
  for (int64_t i = 0; i < size; ++i) out[i] /= sums.total;
  return state;
}

RowState draw_from_row(const RowKernels& kernels, const float* row, int64_t size, double uniform,
                       int64_t& index) {
  Scan scan;
  const RowState state = scan_row(kernels, row, size, scan);
  if (state != RowState::kUsable) return state;
  std::vector<double> totals(scan.maxima.size()), weighted(scan.maxima.size());
  kernels.exponentials(row, size, scan.largest, totals.data(), weighted.data());
  double total = 0.0;
  for (const double block : totals) total += block;

  // The block in which the running sum passes what is wanted, then the value in it. Where
  // rounding leaves the sum just short, it is the last one that counts.
  double wanted = uniform * total, passed = 0.0;
  size_t last = 0;
  for (size_t block = 0; block < totals.size(); ++block) {
    if (totals[block] == 0.0) continue;
    wanted -= passed;
    passed = totals[block];
    last = block;
    if (passed > wanted) break;
  }
  const int64_t begin = static_cast<int64_t>(last) * kRowBlock;
  const int64_t length = std::min(kRowBlock, size - begin);
  double values[kRowBlock];
  for (int64_t i = 0; i < length; ++i) {
    values[i] = static_cast<double>(row[begin + i]) - scan.largest;
  }
  kernels.exp(values, length, values);
  double sum = 0.0;
  for (int64_t i = 0; i < length; ++i) {
    if (values[i] == 0.0) continue;
    index = begin + i;
    sum += values[i];
    if (sum > wanted) break;
  }
  return state;
}

void mask_row(float* row, int64_t size, const uint32_t* words, int64_t word_count) {
  constexpr int64_t kBits = 32;
  const int64_t covered = std::min(size, word_count * kBits);
  for (int64_t begin = 0; begin < covered; begin += kBits) {
    const uint32_t word = words[begin / kBits];
    const int64_t end = std::min(begin + kBits, covered);
    if (word == 0) {
      std::fill(row + begin, row + end, kBanned);
    } else if (word != 0xffffffffu) {
      for (int64_t i = begin; i < end; ++i) {
        if (!(word >> (i - begin) & 1)) row[i] = kBanned;
      }
    }
  }
  std::fill(row + covered, row + size, kBanned);
}

// The Z function of the reversed sequence: matches found once are not compared again.
void repeat_lengths(const int32_t* tokens, int64_t count, int32_t* lengths) {
  const auto from_end = [&](int64_t i) { return tokens[count - 1 - i]; };
  int64_t left = 0, right = 0;  // the match that reaches furthest: [left, right) from the end
  for (int64_t k = 1; k < count; ++k) {
    int64_t known = 0;
    if (k < right) {
      known = std::min<int64_t>(lengths[count - 1 - (k - left)], right - k);
    }
    while (k + known < count && from_end(known) == from_end(k + known)) ++known;
    if (k + known > right) {
      left = k;
      right = k + known;
    }
    lengths[count - 1 - k] = static_cast<int32_t>(known);
  }
}

}  // namespace ingot::sampling
