#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_gguf(nb::module_&) {}
