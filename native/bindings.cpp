// The Python module ingot._native: what each layer binds, and nothing else.
#include <nanobind/nanobind.h>

namespace nb = nanobind;

void bind_executor(nb::module_& module);
void bind_gguf(nb::module_& module);
void bind_isa(nb::module_& module);
void bind_json(nb::module_& module);
void bind_kernels(nb::module_& module);
void bind_quant(nb::module_& module);
void bind_rowwise(nb::module_& module);
void bind_sampling(nb::module_& module);
void bind_tokenizer(nb::module_& module);

NB_MODULE(_native, module) {
  module.doc() = "Ingot's native core; use it through the ingot package.";
  bind_isa(module);
  bind_gguf(module);
  bind_json(module);
  bind_quant(module);
  bind_executor(module);
  bind_tokenizer(module);
  bind_kernels(module);
  bind_rowwise(module);
  bind_sampling(module);
}
