// Records: structs that Python makes by keyword, field by field.
//
// The record of an operation has the name and the fields of its class in `ingot.graph.ops`, so that
// the CPU backend can hand over any of them without knowing it. Names and types are checked when
// a record is made; `FIELDS` of each class names them for tests.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstdint>
#include <optional>
#include <utility>

namespace ingot {

namespace nb = nanobind;

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = Flat<const float>;

template <class Record, class Type>
struct Field {
  const char* name;
  Type Record::* member;
};
template <class Record, class Type>
Field(const char*, Type Record::*) -> Field<Record, Type>;

template <class T>
inline constexpr bool is_optional = false;
template <class T>
inline constexpr bool is_optional<std::optional<T>> = true;

template <class Type>
nb::arg keyword(const char* name) {
  nb::arg arg(name);
  if (is_optional<Type>) arg.none();
  return arg;
}

// Binds a record as the module's class `name` and enters it in the module's dictionary `list`.
template <class Record, class... Base, class... Types>
void bind_record(nb::module_& module, const char* list, const char* name,
                 Field<Record, Types>... fields) {
  nb::class_<Record, Base...> record(module, name);
  record.def(
      "__init__",
      [fields...](Record* self, Types... values) {
        Record* made = new (self) Record();
        ((made->*fields.member = std::move(values)), ...);
      },
      nb::kw_only(), keyword<Types>(fields.name)...);
  record.attr("FIELDS") = nb::make_tuple(fields.name...);
  nb::cast<nb::dict>(module.attr(list))[name] = record;
}

}  // namespace ingot
