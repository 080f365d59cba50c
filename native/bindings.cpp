// The Python module ingot._native: what each layer binds, and nothing else.
#include <nanobind/nanobind.h>

#include <cerrno>
#include <system_error>

#include "bindings/gil.h"

namespace nb = nanobind;

void bind_codes(nb::module_& module);
void bind_gguf(nb::module_& module);
void bind_isa(nb::module_& module);
void bind_json(nb::module_& module);
void bind_kernels(nb::module_& module);
void bind_program(nb::module_& module);
void bind_quant(nb::module_& module);
void bind_rowwise(nb::module_& module);
void bind_sampling(nb::module_& module);
void bind_tokenizer(nb::module_& module);
void bind_tuning(nb::module_& module);

namespace {

// An error of the system's is OSError.
void translate(const std::exception_ptr& error, void*) {
  try {
    std::rethrow_exception(error);
  } catch (const std::system_error& of_system) {
    errno = of_system.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
  }
}

}  // namespace

NB_MODULE(_native, module) {
  module.doc() = "Ingot's native core; use it through the ingot package.";
  // What a thread has that a fork left out, or that sleeps while the interpreter ends, never goes.
  nb::set_leak_warnings(false);
  nb::register_exception_translator(translate);
  ingot::keep_threads_away_at_exit(module);
  bind_isa(module);
  bind_gguf(module);
  bind_json(module);
  bind_quant(module);
  bind_codes(module);
  bind_program(module);
  bind_tokenizer(module);
  bind_kernels(module);
  bind_tuning(module);
  bind_rowwise(module);
  bind_sampling(module);
}
