#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <map>

#include "isa/dispatch.h"

namespace nb = nanobind;

void bind_isa(nb::module_& module) {
  module.def("cpu_features", [] { return ingot::cpu_features(); });
  module.def(
      "instruction_sets",
      [](bool supported_only) {
        std::vector<std::string> names;
        for (const ingot::InstructionSet& set : ingot::instruction_sets())
          if (set.supported || !supported_only) names.push_back(set.name);
        return names;
      },
      nb::arg("supported_only") = true);
  module.def("instruction_set_needs", [] {
    std::map<std::string, std::vector<std::string>> needs;
    for (const ingot::InstructionSet& set : ingot::instruction_sets())
      needs[set.name] = set.requires_features;
    return needs;
  });
  module.def("active_isa", [] { return std::string(ingot::active_kernels().name); });
  module.def("set_isa", [](const std::string& name) { ingot::set_isa(name); }, nb::arg("name"));
}
