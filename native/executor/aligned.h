// Memory that starts on a cache line, as vector kernels want it.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

namespace ingot {

class AlignedBytes {
 public:
  static constexpr int64_t kAlignment = 64;
  static constexpr std::align_val_t kAligned{kAlignment};

  AlignedBytes() = default;
  explicit AlignedBytes(int64_t size)
      : bytes_(static_cast<uint8_t*>(::operator new(round_up(size), kAligned))) {}
  static int64_t round_up(int64_t size) {
    return (size + kAlignment) / kAlignment * kAlignment;  // never nothing
  }
  uint8_t* data() const { return bytes_.get(); }

 private:
  struct Free {
    void operator()(uint8_t* p) const { ::operator delete(p, kAligned); }
  };
  std::unique_ptr<uint8_t[], Free> bytes_;
};

}  // namespace ingot
