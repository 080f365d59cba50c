#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <limits>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/gil.h"
#include "executor/parallel_for.h"
#include "isa/dispatch.h"
#include "sampling/philox.h"
#include "sampling/select.h"
#include "sampling/tail.h"

namespace nb = nanobind;
namespace sp = ingot::sampling;

namespace {

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Table = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

constexpr int64_t kRowsPerThread = 8;  // a row takes some 30 us, starting a thread about as long

const ingot::RowKernels& kernels() { return ingot::active_kernels().row; }

// Results that have no number: the caller turns them into its own error.
void check(sp::RowState state) {
  if (state == sp::RowState::kNotFinite) throw std::invalid_argument("NaN or infinity");
  if (state == sp::RowState::kEmpty) throw std::invalid_argument("no token is left");
}

int64_t size_of(const Flat<const float>& row) {
  if (row.size() == 0) throw std::invalid_argument("no token is left");
  return static_cast<int64_t>(row.size());
}

// The largest `counts[i]` values of row i, as far as there are so many; 0 leaves a row alone.
// found[i] is how many there are, or -1 for a row with NaN or +inf.
void select_top(Table<const float> rows, Flat<const int32_t> counts, Table<int32_t> ids,
                Table<float> logits, Flat<int32_t> found, int threads) {
  const auto number = static_cast<int64_t>(rows.shape(0)),
             width = static_cast<int64_t>(ids.shape(1));
  if (counts.size() != rows.shape(0) || found.size() != rows.shape(0) ||
      ids.shape(0) != rows.shape(0) || logits.shape(0) != rows.shape(0) ||
      ids.shape(1) != logits.shape(1)) {
    throw std::invalid_argument("the arrays do not have one row each for every row of logits");
  }
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts.data()[i] < 0 || counts.data()[i] > width) {
      throw std::invalid_argument("a count is negative or larger than the room for it");
    }
  }
  const auto size = static_cast<int64_t>(rows.shape(1));
  ingot::GilRelease unlocked;
  ingot::parallel_for(number, kRowsPerThread, threads, [&](int64_t begin, int64_t end) {
    std::vector<sp::Candidate> candidates;
    for (int64_t i = begin; i < end; ++i) {
      found.data()[i] = 0;
      if (counts.data()[i] == 0) continue;
      candidates.clear();
      const sp::RowState state =
          sp::select_top(kernels(), rows.data() + i * size, size, counts.data()[i], candidates);
      if (state == sp::RowState::kNotFinite) {
        found.data()[i] = -1;
        continue;
      }
      found.data()[i] = static_cast<int32_t>(candidates.size());
      for (size_t j = 0; j < candidates.size(); ++j) {
        ids.data()[i * width + static_cast<int64_t>(j)] = candidates[j].id;
        logits.data()[i * width + static_cast<int64_t>(j)] = candidates[j].logit;
      }
    }
  });
}

// Samples a token from some rows: `counts` and `least` whole numbers for each, `numbers` its
// share, distance, temperature and random number. A token is -1 for a row with NaN or +inf,
// -2 for one in which all is banned.
void sample_rows(Table<const float> rows, Flat<const int32_t> which, Flat<const int32_t> counts,
                 Flat<const int32_t> least, Table<const double> numbers, Flat<int32_t> tokens,
                 int threads) {
  if (counts.size() != which.size() || least.size() != which.size() ||
      tokens.size() != which.size() || numbers.shape(0) != which.size() || numbers.shape(1) != 4) {
    throw std::invalid_argument("the arrays do not have an entry each for every row asked for");
  }
  for (size_t i = 0; i < which.size(); ++i) {
    if (which.data()[i] < 0 || static_cast<size_t>(which.data()[i]) >= rows.shape(0) ||
        counts.data()[i] < 1 || least.data()[i] < 1) {
      throw std::invalid_argument("a row is not there, or a count is below 1");
    }
  }
  const auto size = static_cast<int64_t>(rows.shape(1));
  ingot::GilRelease unlocked;
  ingot::parallel_for(
      static_cast<int64_t>(which.size()), kRowsPerThread, threads, [&](int64_t begin, int64_t end) {
        std::vector<sp::Candidate> scratch;
        for (int64_t i = begin; i < end; ++i) {
          const double* number = numbers.data() + 4 * i;
          const sp::Tail tail{counts.data()[i],
                              number[0],
                              number[1],
                              least.data()[i],
                              static_cast<float>(number[2]),
                              number[3]};
          const sp::RowState state = sp::sample_row(kernels(), rows.data() + which.data()[i] * size,
                                                    size, tail, scratch, tokens.data()[i]);
          if (state == sp::RowState::kNotFinite) tokens.data()[i] = -1;
          if (state == sp::RowState::kEmpty) tokens.data()[i] = -2;
        }
      });
}

using Ids = nb::ndarray<nb::numpy, int32_t, nb::ndim<1>>;
using Floats = nb::ndarray<nb::numpy, float, nb::ndim<1>>;
using Doubles = nb::ndarray<nb::numpy, double, nb::ndim<1>>;

template <class Array, class T>
Array owned(std::vector<T>&& values) {
  auto* kept = new std::vector<T>(std::move(values));
  nb::capsule owner(kept,
                    [](void* pointer) noexcept { delete static_cast<std::vector<T>*>(pointer); });
  return Array(kept->data(), {kept->size()}, owner);
}

std::tuple<Ids, Floats> select_near_top(Flat<const float> row, double distance) {
  const int64_t size = size_of(row);
  std::vector<sp::Candidate> candidates;
  sp::RowState state;
  {
    ingot::GilRelease unlocked;
    state = sp::select_near_top(kernels(), row.data(), size, distance, candidates);
  }
  check(state);
  std::vector<int32_t> ids;
  std::vector<float> logits;
  for (const sp::Candidate& one : candidates) {
    ids.push_back(one.id);
    logits.push_back(one.logit);
  }
  return {owned<Ids>(std::move(ids)), owned<Floats>(std::move(logits))};
}

std::tuple<double, double, double> sum_row(Flat<const float> row) {
  const int64_t size = size_of(row);
  sp::RowSums sums{};
  sp::RowState state;
  {
    ingot::GilRelease unlocked;
    state = sp::sum_row(kernels(), row.data(), size, sums);
  }
  check(state);
  return {sums.largest, sums.total, sums.weighted};
}

// The largest value and the sum of exp(v - largest) of each row; both NaN for a row that is
// not usable.
void sum_rows(Table<const float> rows, Table<double> out, int threads) {
  if (out.shape(0) != rows.shape(0) || out.shape(1) != 2) {
    throw std::invalid_argument("the sums need two numbers for every row of logits");
  }
  const auto number = static_cast<int64_t>(rows.shape(0));
  const auto size = static_cast<int64_t>(rows.shape(1));
  ingot::GilRelease unlocked;
  ingot::parallel_for(number, 1, threads, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
      sp::RowSums sums{};
      const bool usable =
          sp::sum_row(kernels(), rows.data() + i * size, size, sums) == sp::RowState::kUsable;
      out.data()[2 * i] = usable ? static_cast<double>(sums.largest) : kNone;
      out.data()[2 * i + 1] = usable ? sums.total : kNone;
    }
  });
}

std::tuple<double, double> spread_of_row(Flat<const float> row) {
  const int64_t size = size_of(row);
  sp::RowSpread spread{};
  sp::RowState state;
  {
    ingot::GilRelease unlocked;
    state = sp::spread_of_row(kernels(), row.data(), size, spread);
  }
  check(state);
  return {spread.mean, spread.deviation};
}

Doubles softmax(Flat<const float> row) {
  const int64_t size = size_of(row);
  std::vector<double> out(row.size());
  sp::RowState state;
  {
    ingot::GilRelease unlocked;
    state = sp::softmax_row(kernels(), row.data(), size, out.data());
  }
  check(state);
  return owned<Doubles>(std::move(out));
}

int64_t draw(Flat<const float> row, double uniform) {
  const int64_t size = size_of(row);
  int64_t index = 0;
  sp::RowState state;
  {
    ingot::GilRelease unlocked;
    state = sp::draw_from_row(kernels(), row.data(), size, uniform, index);
  }
  check(state);
  return index;
}

void mask_row(Flat<float> row, Flat<const uint32_t> words) {
  ingot::GilRelease unlocked;
  sp::mask_row(row.data(), static_cast<int64_t>(row.size()), words.data(),
               static_cast<int64_t>(words.size()));
}

void repeat_lengths(Flat<const int32_t> tokens, Flat<int32_t> lengths) {
  if (lengths.size() != tokens.size()) {
    throw std::invalid_argument("as many lengths as tokens are needed");
  }
  ingot::GilRelease unlocked;
  sp::repeat_lengths(tokens.data(), static_cast<int64_t>(tokens.size()), lengths.data());
}

Doubles map_values(Flat<const double> x, void (*function)(const double*, int64_t, double*)) {
  std::vector<double> out(x.size());
  function(x.data(), static_cast<int64_t>(x.size()), out.data());
  return owned<Doubles>(std::move(out));
}

}  // namespace

void bind_sampling(nb::module_& module) {
  module.def("select_top", &select_top, nb::arg("rows"), nb::arg("counts"), nb::arg("ids"),
             nb::arg("logits"), nb::arg("found"), nb::arg("threads"));
  module.def("sample_rows", &sample_rows, nb::arg("rows"), nb::arg("which"), nb::arg("counts"),
             nb::arg("least"), nb::arg("numbers"), nb::arg("tokens"), nb::arg("threads"));
  module.def("select_near_top", &select_near_top, nb::arg("row"), nb::arg("distance"));
  module.def("sum_row", &sum_row, nb::arg("row"));
  module.def("sum_rows", &sum_rows, nb::arg("rows"), nb::arg("out"), nb::arg("threads"));
  module.def("spread_of_row", &spread_of_row, nb::arg("row"));
  module.def("softmax", &softmax, nb::arg("row"));
  module.def("draw", &draw, nb::arg("row"), nb::arg("uniform"));
  module.def("mask_row", &mask_row, nb::arg("row"), nb::arg("words"));
  module.def("repeat_lengths", &repeat_lengths, nb::arg("tokens"), nb::arg("lengths"));
  module.def("exp", [](Flat<const double> x) { return map_values(x, kernels().exp); });
  module.def("log", [](Flat<const double> x) { return map_values(x, kernels().log); });
  module.def("uniform_at", &sp::uniform_at, nb::arg("seed"), nb::arg("place"), nb::arg("purpose"));
}
