// The kernels on single rows, one at a time, for tests; the executor calls them directly.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include <cstdint>
#include <optional>
#include <stdexcept>

#include "isa/dispatch.h"

namespace nb = nanobind;
using ingot::active_kernels;

namespace {

using Row = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Out = nb::ndarray<float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <class... Rows>
int64_t common_length(const Out& out, const Rows&... rows) {
  if (((rows.size() != out.size()) || ...))
    throw std::invalid_argument("the rows must have the same length");
  return static_cast<int64_t>(out.size());
}

void exponentials(Row x, Out out) {
  active_kernels().exponentials(x.data(), common_length(out, x), out.data());
}

void softcap(Row x, float cap, Out out) {
  active_kernels().softcap(x.data(), common_length(out, x), cap, out.data());
}

void activate(ingot::Activation kind, Row gate, std::optional<Row> up, Out out) {
  active_kernels().activate(kind, gate.data(), up ? up->data() : nullptr,
                            common_length(out, gate, up ? *up : gate), out.data());
}

void norm(bool layer, Row x, Row weight, std::optional<Row> bias, float epsilon, Out out) {
  const auto kernel = layer ? active_kernels().layer_norm : active_kernels().rms_norm;
  kernel(x.data(), weight.data(), bias ? bias->data() : nullptr,
         common_length(out, x, weight, bias ? *bias : x), epsilon, out.data());
}

}  // namespace

void bind_rowwise(nb::module_& module) {
  module.def("exponentials", &exponentials, nb::arg("x"), nb::arg("out"));
  module.def("softcap", &softcap, nb::arg("x"), nb::arg("cap"), nb::arg("out"));
  module.def("activate", &activate, nb::arg("kind"), nb::arg("gate"), nb::arg("up").none(),
             nb::arg("out"));
  module.def("norm", &norm, nb::arg("layer"), nb::arg("x"), nb::arg("weight"),
             nb::arg("bias").none(), nb::arg("epsilon"), nb::arg("out"));
}
