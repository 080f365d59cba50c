// A NumPy array's memory for the length of one call, through the buffer protocol.
//
// nanobind's own arrays ask the heap for a descriptor each time; this one does not, so a
// step of a generation can take its inputs as arrays and still allocate nothing.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <type_traits>

namespace ingot {

// T is float or int32_t; const if the array is only read.
template <class T>
class ArrayView {
 public:
  ArrayView(nanobind::handle array, int dimensions, const char* name) {
    const int access = std::is_const_v<T> ? 0 : PyBUF_WRITABLE;
    if (PyObject_GetBuffer(array.ptr(), &view_, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | access))
      throw nanobind::python_error();
    const bool floats = std::is_same_v<std::remove_const_t<T>, float>;
    const char kind = view_.format && !view_.format[1] ? view_.format[0] : 0;
    const bool right_kind = floats ? kind == 'f' : kind == 'i' || kind == 'l';
    if (view_.ndim != dimensions || view_.itemsize != sizeof(T) || !right_kind) {
      PyBuffer_Release(&view_);
      throw std::invalid_argument(std::string(name) + " must be a " +
                                  (floats ? "float32" : "int32") + " array of " +
                                  std::to_string(dimensions) + " dimensions");
    }
  }
  ~ArrayView() { PyBuffer_Release(&view_); }
  ArrayView(const ArrayView&) = delete;
  ArrayView& operator=(const ArrayView&) = delete;

  int64_t size(int dimension = 0) const { return view_.shape[dimension]; }
  T* data() const { return static_cast<T*>(view_.buf); }
  T& operator[](int64_t i) const { return data()[i]; }

 private:
  Py_buffer view_;
};

}  // namespace ingot
