#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>
#include <string>
#include <tuple>

#include "bindings/gil.h"
#include "executor/parallel_for.h"
#include "formats/grids.h"
#include "formats/types.h"
#include "isa/dispatch.h"
#include "quantize/weighted.h"

namespace nb = nanobind;

namespace {

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr int64_t kBytesPerPiece = 1 << 16;  // below this a thread costs more than it saves

const ingot::TypeTraits& traits_of(uint32_t type) {
  const ingot::TypeTraits* traits = ingot::find_type(type);
  if (!traits) throw std::invalid_argument("unknown tensor type " + std::to_string(type));
  return *traits;
}

// The number of whole blocks in both arrays, or an error: the kernels trust it.
int64_t count_blocks(const ingot::TypeTraits& traits, size_t bytes, size_t weights) {
  if (bytes % traits.block_bytes || weights % traits.block_weights ||
      bytes / traits.block_bytes != weights / traits.block_weights) {
    throw std::invalid_argument(std::string(traits.name) + ": " + std::to_string(bytes) +
                                " bytes do not hold " + std::to_string(weights) + " weights");
  }
  return static_cast<int64_t>(bytes / traits.block_bytes);
}

void decode(uint32_t type, Flat<const uint8_t> blocks, Flat<float> out, int threads) {
  const ingot::TypeTraits& traits = traits_of(type);
  const int64_t count = count_blocks(traits, blocks.size(), out.size());
  const auto kernel = ingot::active_kernels().decode[type];
  if (!kernel) throw std::invalid_argument(std::string(traits.name) + " has no decoder");
  const uint8_t* from = blocks.data();
  float* to = out.data();
  ingot::GilRelease unlocked;
  ingot::parallel_for(
      count, kBytesPerPiece / traits.block_bytes, threads, [&](int64_t begin, int64_t end) {
        kernel(from + begin * traits.block_bytes, to + begin * traits.block_weights, end - begin);
      });
}

void encode_weighted(uint32_t type, Flat<const float> values, Flat<const float> importance,
                     Flat<uint8_t> out, int threads) {
  const ingot::TypeTraits& traits = traits_of(type);
  count_blocks(traits, out.size(), values.size());
  const auto columns = static_cast<int64_t>(importance.size());
  if (!ingot::has_weighted_encoder(type))
    throw std::invalid_argument(std::string(traits.name) + " has no encoder with an importance");
  if (!columns || columns % traits.block_weights || values.size() % importance.size())
    throw std::invalid_argument("the importance of " + std::to_string(columns) +
                                " columns does not fit " + std::to_string(values.size()) +
                                " weights");
  const int64_t rows = static_cast<int64_t>(values.size()) / columns;
  const int64_t row_bytes = columns / traits.block_weights * traits.block_bytes;
  const float *from = values.data(), *columns_from = importance.data();
  uint8_t* to = out.data();
  ingot::GilRelease unlocked;
  ingot::parallel_for(rows, 1 + kBytesPerPiece / row_bytes, threads,
                      [&](int64_t begin, int64_t end) {
                        ingot::encode_weighted(type, from + begin * columns, columns_from,
                                               end - begin, columns, to + begin * row_bytes);
                      });
}

void encode(uint32_t type, Flat<const float> values, Flat<uint8_t> out, int threads) {
  const ingot::TypeTraits& traits = traits_of(type);
  const int64_t count = count_blocks(traits, out.size(), values.size());
  const auto kernel = ingot::active_kernels().encode[type];
  const float* from = values.data();
  uint8_t* to = out.data();
  if (!kernel && !ingot::has_weighted_encoder(type))
    throw std::invalid_argument(std::string(traits.name) + " has no encoder");
  const std::vector<float> even(kernel ? 0 : traits.block_weights, 1.0f);
  ingot::GilRelease unlocked;
  ingot::parallel_for(count, kBytesPerPiece / traits.block_bytes, threads,
                      [&](int64_t begin, int64_t end) {
                        const float* weights = from + begin * traits.block_weights;
                        uint8_t* blocks = to + begin * traits.block_bytes;
                        if (kernel)
                          kernel(weights, blocks, end - begin);
                        else  // each block is a row
                          ingot::encode_weighted(type, weights, even.data(), end - begin,
                                                 traits.block_weights, blocks);
                      });
}

std::vector<std::tuple<std::string, uint32_t, uint32_t, uint32_t>> tensor_types() {
  std::vector<std::tuple<std::string, uint32_t, uint32_t, uint32_t>> rows;
  for (const ingot::TypeTraits& t : ingot::kTypeTraits)
    rows.emplace_back(t.name, t.id, t.block_weights, t.block_bytes);
  return rows;
}

// A view of one grid's bytes: [entries, weights per entry].
using Grid = nb::ndarray<nb::numpy, const int8_t, nb::ndim<2>, nb::c_contig>;

template <class Entry, size_t n>
Grid view_grid(const Entry (&entries)[n]) {
  return Grid(entries, {n, sizeof(Entry)}, nb::handle());
}

Grid grid(const std::string& name) {
  if (name == "IQ2_XXS") return view_grid(ingot::kGridIq2Xxs);
  if (name == "IQ2_XS") return view_grid(ingot::kGridIq2Xs);
  if (name == "IQ2_S") return view_grid(ingot::kGridIq2S);
  if (name == "IQ1_S") return view_grid(ingot::kGridIq1S);
  if (name == "IQ3_XXS") return view_grid(ingot::kGridIq3Xxs);
  if (name == "IQ3_S") return view_grid(ingot::kGridIq3S);
  throw std::invalid_argument("there is no grid named " + name);
}

bool has_encoder(uint32_t type) {
  return ingot::active_kernels().encode[traits_of(type).id] || ingot::has_weighted_encoder(type);
}

}  // namespace

void bind_quant(nb::module_& module) {
  module.def("tensor_types", &tensor_types,
             "(name, type number, weights per block, bytes per block) of every type.");
  module.def("decode", &decode, nb::arg("type"), nb::arg("blocks"), nb::arg("out"),
             nb::arg("threads"));
  module.def("encode", &encode, nb::arg("type"), nb::arg("values"), nb::arg("out"),
             nb::arg("threads"));
  module.def("has_encoder", &has_encoder, nb::arg("type"));
  module.def("encode_weighted", &encode_weighted, nb::arg("type"), nb::arg("values"),
             nb::arg("importance"), nb::arg("out"), nb::arg("threads"),
             "Rows of as many columns as `importance` has; errors count as much as their column.");
  module.def("has_weighted_encoder", &ingot::has_weighted_encoder, nb::arg("type"));
  module.def("grid", &grid, nb::arg("name"), nb::rv_policy::reference,
             "The points of an IQ format's grid, as formats/grids.h describes them.");
}
