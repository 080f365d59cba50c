// The enums of kernels/codes.h, by the names that Python knows: `CODES` has them all.
#include "kernels/codes.h"

#include <nanobind/nanobind.h>

namespace nb = nanobind;
using namespace ingot;

void bind_codes(nb::module_& module) {
  nb::dict codes;
#define INGOT_MEMBER(member) .value(#member, Enum::member)
#define INGOT_BIND(Name, MEMBERS)                                        \
  {                                                                      \
    using Enum = Name;                                                   \
    codes[#Name] = nb::enum_<Enum>(module, #Name) MEMBERS(INGOT_MEMBER); \
  }
  INGOT_CODES(INGOT_BIND)
  INGOT_BIND(KvType, INGOT_KV_TYPES)
#undef INGOT_BIND
#undef INGOT_MEMBER
  module.attr("CODES") = codes;
}
