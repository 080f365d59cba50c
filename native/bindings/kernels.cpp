// Kernels one at a time, for tests and benchmarks; the executor calls them directly.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cstdint>
#include <stdexcept>
#include <string>

#include "bindings/gil.h"
#include "executor/aligned.h"
#include "executor/read_probe.h"
#include "formats/types.h"
#include "isa/dispatch.h"

namespace nb = nanobind;

namespace {

template <class T>
using Matrix = nb::ndarray<T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

bool is_prompt(const std::string& phase) {
  if (phase == "prompt") return true;
  if (phase == "generation") return false;
  throw std::invalid_argument("a phase is 'generation' or 'prompt', not '" + phase + "'");
}

void require(bool condition, const char* message) {
  if (!condition) throw std::invalid_argument(message);
}

int64_t quantized_bytes(int64_t width, ingot::Precision precision) {
  return ingot::active_kernels(precision).quantized_bytes(width);
}

bool holds_columns(size_t held, int64_t columns) {
  constexpr int64_t kGroup = ingot::KernelTable::kColumnGroup;
  return static_cast<int64_t>(held) == (columns + kGroup - 1) / kGroup * kGroup;
}

// Inputs for weights of `type`.
void quantize(uint32_t type, const std::string& phase, Matrix<const float> values,
              Matrix<uint8_t> out, ingot::Precision precision) {
  const ingot::KernelTable& kernels = ingot::active_kernels(precision);
  require(ingot::find_type(type), "unknown tensor type");
  ingot::InputQuantizer quantizer;
  quantizer.add(kernels, static_cast<ingot::TensorType>(type));
  const bool prompt = is_prompt(phase);
  const int64_t columns = values.shape(0), width = values.shape(1);
  require(holds_columns(out.shape(0), columns) &&
              static_cast<int64_t>(out.shape(1)) == kernels.quantized_bytes(width),
          "out must have quantized_bytes(width) for every column, 16 columns at a time");
  require(reinterpret_cast<uintptr_t>(out.data()) % 64 == 0, "out must be aligned to 64 bytes");
  ingot::GilRelease unlocked;
  for (int64_t c = 0; c < columns; ++c)
    quantizer.quantize(kernels, prompt, values.data() + c * width, width, out.data(),
                       static_cast<int64_t>(out.shape(0)), c);
}

int64_t row_bytes(const ingot::TypeTraits& traits, int64_t width) {
  return width / traits.block_weights * traits.block_bytes;
}

// How many rows are interleaved in a copy of weights of `type`; 0: there is no such copy.
int64_t interleaved_rows(uint32_t type, ingot::Precision precision) {
  require(ingot::find_type(type), "unknown tensor type");
  return ingot::active_kernels(precision).interleaved[type].rows;
}

// Bytes of a row of it.
int64_t interleaved_row_bytes(uint32_t type, int64_t width, ingot::Precision precision) {
  require(interleaved_rows(type, precision) > 0, "there is no such copy");
  return ingot::active_kernels(precision).interleaved[type].row_bytes(width);
}

void interleave(uint32_t type, Matrix<const uint8_t> weight, int64_t width, Matrix<uint8_t> out,
                ingot::Precision precision) {
  const int64_t together = interleaved_rows(type, precision);
  const int64_t rows = weight.shape(0);
  require(together > 0 && rows % together == 0, "these rows cannot be interleaved");
  require(static_cast<int64_t>(weight.shape(1)) == row_bytes(*ingot::find_type(type), width),
          "a row of weight must hold width weights");
  require(static_cast<int64_t>(out.shape(0)) == rows &&
              static_cast<int64_t>(out.shape(1)) == interleaved_row_bytes(type, width, precision),
          "out must have interleaved_row_bytes(width) for every row");
  require(reinterpret_cast<uintptr_t>(out.data()) % 64 == 0, "out must be aligned to 64 bytes");
  ingot::GilRelease unlocked;
  ingot::active_kernels(precision).interleaved[type].write(
      weight.data(), static_cast<int64_t>(weight.shape(1)), rows, width, out.data());
}

// Rows [begin, end) of `weight`, or of an interleaved copy, times every column, into
// out[column][row].
void linear(uint32_t type, const std::string& phase, Matrix<const uint8_t> weight,
            Matrix<const float> values, Matrix<const uint8_t> quantized, int64_t begin, int64_t end,
            Matrix<float> out, ingot::Precision precision, bool interleaved) {
  const ingot::KernelTable& kernels = ingot::active_kernels(precision);
  const ingot::TypeTraits* traits = ingot::find_type(type);
  require(traits, "unknown tensor type");
  const ingot::KernelTable::Interleaved& copied = kernels.interleaved[type];
  auto kernel = is_prompt(phase) ? kernels.prompt[type] : kernels.generate[type];
  if (interleaved) kernel = is_prompt(phase) ? copied.prompt : copied.generate;
  require(kernel, "there is no matrix kernel for this type");
  const int64_t rows = weight.shape(0), columns = values.shape(0), width = values.shape(1);
  require(width > 0 && width % traits->block_weights == 0, "width must be a multiple of the block");
  require(static_cast<int64_t>(weight.shape(1)) ==
              (interleaved ? copied.row_bytes(width) : row_bytes(*traits, width)),
          "a row of weight must hold width weights");
  require(!interleaved || begin % copied.rows == 0, "begin must be that of interleaved rows");
  require(columns > 0 && holds_columns(quantized.shape(0), columns) &&
              static_cast<int64_t>(quantized.shape(1)) == kernels.quantized_bytes(width),
          "quantized must hold every column of values, 16 columns at a time");
  require(reinterpret_cast<uintptr_t>(quantized.data()) % 64 == 0,
          "quantized must be aligned to 64 bytes");
  require(0 <= begin && begin <= end && end <= rows, "the rows must lie in weight");
  require(
      static_cast<int64_t>(out.shape(0)) == columns && static_cast<int64_t>(out.shape(1)) == rows,
      "out must be [columns, rows]");
  const int64_t room = static_cast<int64_t>(quantized.shape(0));
  const ingot::LinearInput input{.values = values.data(),
                                 .value_stride = width,
                                 .quantized = quantized.data(),
                                 .bytes = quantized.data() + kernels.bytes_begin(room, width),
                                 .quantized_stride = kernels.quantized_stride(room),
                                 .columns = columns,
                                 .width = width};
  const ingot::AlignedBytes scratch(kernels.scratch_bytes(width));
  ingot::GilRelease unlocked;
  kernel(weight.data(), static_cast<int64_t>(weight.shape(1)), input, begin, end, out.data(), rows,
         scratch.data());
}

int64_t multiply_in_registers(int64_t rounds) {
  int16_t words[ingot::KernelTable::kPeakWords];
  for (int i = 0; i < ingot::KernelTable::kPeakWords; ++i) words[i] = static_cast<int16_t>(i);
  int32_t sum;
  ingot::GilRelease unlocked;
  return ingot::active_kernels().multiply_in_registers(words, rounds, &sum);
}

uint64_t read_through(nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu> data,
                      int threads) {
  ingot::GilRelease unlocked;
  return ingot::read_through(data.data(), static_cast<int64_t>(data.size()), threads);
}

}  // namespace

void bind_kernels(nb::module_& module) {
  module.def("quantized_bytes", &quantized_bytes, nb::arg("width"), nb::arg("precision"),
             "Bytes of one quantized input column.");
  module.def("quantize_inputs", &quantize, nb::arg("type"), nb::arg("phase"), nb::arg("values"),
             nb::arg("out"), nb::arg("precision"));
  module.def("linear", &linear, nb::arg("type"), nb::arg("phase"), nb::arg("weight"),
             nb::arg("values"), nb::arg("quantized"), nb::arg("begin"), nb::arg("end"),
             nb::arg("out"), nb::arg("precision"), nb::arg("interleaved") = false);
  module.def("interleaved_rows", &interleaved_rows, nb::arg("type"), nb::arg("precision"));
  module.def("interleaved_row_bytes", &interleaved_row_bytes, nb::arg("type"), nb::arg("width"),
             nb::arg("precision"));
  module.def("interleave", &interleave, nb::arg("type"), nb::arg("weight"), nb::arg("width"),
             nb::arg("out"), nb::arg("precision"));
  module.def("multiply_in_registers", &multiply_in_registers, nb::arg("rounds"));
  module.def("read_through", read_through, nb::arg("data"), nb::arg("threads"));
}
