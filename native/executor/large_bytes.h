// Memory in huge pages where the system has them: what is read from end to end comes faster.
#pragma once

#include <cstdint>

namespace ingot {

class LargeBytes {
 public:
  LargeBytes() = default;
  explicit LargeBytes(int64_t size);  // throws std::bad_alloc
  ~LargeBytes();
  LargeBytes(const LargeBytes&) = delete;
  LargeBytes& operator=(LargeBytes&& other) noexcept;

  uint8_t* data() const { return data_; }  // aligned to 64 bytes at least

 private:
  uint8_t* data_ = nullptr;
  int64_t size_ = 0;
};

}  // namespace ingot
