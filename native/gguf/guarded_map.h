// A read-only memory map of a file that may be cut short while it is in use.
//
// A file and its size come in, its bytes go out. Reading a page that the file no longer has
// raises SIGBUS, whose default is the end of the process. Here such a page reads as zeros and
// the map is marked as damaged: whoever has read asks for the mark before using the result.
// It knows nothing of what the bytes mean.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ingot::gguf {

class GuardedMap {
 public:
  // Maps `size` bytes (more than none) of an open file, which may be closed after that. The first
  // map installs the handler of SIGBUS. Throws std::system_error.
  GuardedMap(int descriptor, size_t size);
  ~GuardedMap();
  GuardedMap(const GuardedMap&) = delete;
  GuardedMap& operator=(const GuardedMap&) = delete;

  const uint8_t* data() const { return data_; }
  size_t size() const { return size_; }

  // Whether a page could not be read. It stays so: pages from there on may read as zeros.
  bool is_damaged() const;

  // Asks the system to read the file ahead of its use; nothing waits for it.
  void prefetch() const;

  // Gives back the memory of the first bytes; whoever uses them again has them read again.
  void release(size_t bytes) const;

  struct Range;  // what the handler knows of a map

 private:
  const uint8_t* data_;
  size_t size_;
  Range* range_;
};

}  // namespace ingot::gguf
