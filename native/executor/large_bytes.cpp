#include "executor/large_bytes.h"

#include <utility>

#include "system/system.h"

namespace ingot {

LargeBytes::LargeBytes(int64_t size) : data_(system::allocate_pages(size)), size_(size) {}

LargeBytes::~LargeBytes() {
  if (data_) system::free_pages(data_, size_);
}

LargeBytes& LargeBytes::operator=(LargeBytes&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace ingot
