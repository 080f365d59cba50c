#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <cerrno>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "bindings/gil.h"
#include "gguf/guarded_map.h"
#include "gguf/scan.h"

namespace nb = nanobind;

namespace {

using Bytes = nb::ndarray<const uint8_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// Gives the vector to NumPy without copying it.
nb::object as_array(std::vector<uint64_t>&& values) {
  auto* owned = new std::vector<uint64_t>(std::move(values));
  nb::capsule owner(owned, [](void* p) noexcept { delete static_cast<std::vector<uint64_t>*>(p); });
  return nb::cast(
      nb::ndarray<nb::numpy, uint64_t, nb::ndim<1>>(owned->data(), {owned->size()}, owner));
}

nb::str as_text(const uint8_t* data, ingot::gguf::Text text) {
  return nb::str(reinterpret_cast<const char*>(data) + text.at, text.size);
}

nb::tuple as_tuple(const uint8_t* data, ingot::gguf::Header&& header) {
  nb::list entries;
  for (ingot::gguf::Entry& entry : header.entries) {
    const bool strings = entry.type == ingot::gguf::ValueType::kArray &&
                         entry.element == ingot::gguf::ValueType::kString;
    entries.append(
        nb::make_tuple(as_text(data, entry.key), static_cast<uint32_t>(entry.type),
                       static_cast<uint32_t>(entry.element), entry.count, entry.value_at,
                       strings ? as_array(std::move(entry.strings)) : nb::object(nb::none())));
  }
  nb::list tensors;
  for (const ingot::gguf::Tensor& tensor : header.tensors) {
    nb::list shape;  // NumPy's order: the contiguous dimension last
    for (uint32_t i = tensor.dimension_count; i-- > 0;) shape.append(tensor.dimensions[i]);
    tensors.append(nb::make_tuple(as_text(data, tensor.name), tensor.type, nb::tuple(shape),
                                  tensor.at, tensor.bytes));
  }
  return nb::make_tuple(header.version, header.alignment, header.end, header.data_start, entries,
                        tensors);
}

nb::object scan_gguf(Bytes bytes, uint64_t file_size, nb::str path) {
  std::optional<ingot::gguf::Header> header;
  std::optional<ingot::gguf::ScanError> bad;
  {
    ingot::GilRelease unlocked;
    try {
      header = ingot::gguf::scan(bytes.data(), bytes.size(), file_size);
    } catch (const ingot::gguf::ScanError& error) {
      bad = error;
    }
  }
  if (bad) {
    nb::object type = nb::module_::import_("ingot.errors").attr("GgufError");
    nb::object error = type(nb::str(bad->what()), nb::arg("field") = bad->field,
                            nb::arg("offset") = bad->offset, nb::arg("path") = path);
    PyErr_SetObject(type.ptr(), error.ptr());
    throw nb::python_error();
  }
  if (!header) return nb::none();
  return as_tuple(bytes.data(), std::move(*header));
}

using ingot::gguf::GuardedMap;

void open_map(GuardedMap* self, int descriptor, size_t size) {
  try {
    new (self) GuardedMap(descriptor, size);
  } catch (const std::system_error& error) {
    errno = error.code().value();
    PyErr_SetFromErrno(PyExc_OSError);
    throw nb::python_error();
  }
}

auto bytes_of(nb::handle_t<GuardedMap> self) {
  const auto& map = nb::cast<const GuardedMap&>(self);
  return nb::ndarray<nb::numpy, const uint8_t, nb::ndim<1>>(map.data(), {map.size()}, self);
}

}  // namespace

void bind_gguf(nb::module_& module) {
  nb::class_<GuardedMap>(module, "GuardedMap",
                         "A read-only map of a file; pages the file loses while it is in use read\n"
                         "as zeros instead of ending the process.")
      .def("__init__", &open_map, nb::arg("descriptor"), nb::arg("size"))
      .def_prop_ro("bytes", &bytes_of, "All of it; a view keeps the map alive.")
      .def_prop_ro("is_damaged", &GuardedMap::is_damaged, "Whether a page could not be read.")
      .def("prefetch", &GuardedMap::prefetch,
           "Ask the system to read the file ahead of its use; nothing waits for it.")
      .def("release", &GuardedMap::release, nb::arg("bytes"),
           "Give back the memory of the first bytes; they are read again if they are needed.");
  module.def("scan_gguf", &scan_gguf, nb::arg("data"), nb::arg("file_size"), nb::arg("path"),
             "Scan a header: (version, alignment, end, data start, entries, tensors), or None if\n"
             "it goes on after `data`. An entry is (key, type, element type, count, position,\n"
             "positions of strings or None), a tensor (name, type, shape, position, bytes).");
}
