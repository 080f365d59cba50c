// Arrays for caches: zero at first, and memory that is never used is never touched.
#pragma once

#include <cstdlib>
#include <memory>
#include <new>

namespace ingot::tokenizer {

template <class T>
struct Free {
  void operator()(T* array) const { std::free(array); }
};

template <class T>
using Zeroed = std::unique_ptr<T[], Free<T>>;

template <class T>
Zeroed<T> make_zeroed(std::size_t count) {
  Zeroed<T> array(static_cast<T*>(std::calloc(count, sizeof(T))));
  if (!array) throw std::bad_alloc();
  return array;
}

}  // namespace ingot::tokenizer
