// Reads memory and does nothing with it: the ceiling of everything that streams weights.
#pragma once

#include <cstdint>

namespace ingot {

// Reads `size` bytes once on so many threads; returns their sum, so that they are read.
uint64_t read_through(const uint8_t* data, int64_t size, int threads);

}  // namespace ingot
