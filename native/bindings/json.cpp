#include <nanobind/nanobind.h>

#include "bindings/gil.h"
#include "json/scan.h"

namespace nb = nanobind;

void bind_json(nb::module_& module) {
  using ingot::json::Fault;
  nb::enum_<Fault>(module, "JsonFault")
      .value("NONE", Fault::kNone)
      .value("VALUES", Fault::kValues)
      .value("DEPTH", Fault::kDepth)
      .value("NUMBER", Fault::kNumber)
      .value("NOT_FINITE", Fault::kNotFinite)
      .value("SURROGATE", Fault::kSurrogate)
      .value("ENCODING", Fault::kEncoding)
      .value("DUPLICATE", Fault::kDuplicate);
  module.def(
      "scan_json",
      [](nb::bytes body, size_t values, size_t depth, size_t word) {
        const std::string_view text(body.c_str(), body.size());
        ingot::GilRelease unlocked;
        return ingot::json::scan(text, {values, depth, word});
      },
      nb::arg("body"), nb::kw_only(), nb::arg("values"), nb::arg("depth"), nb::arg("word"));
}
