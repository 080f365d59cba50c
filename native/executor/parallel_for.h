// Split a range over a few threads and wait for all of them.
#pragma once

#include <cstdint>
#include <functional>

namespace ingot {

// Calls body(begin, end) on disjoint pieces that cover 0..count; at most `threads`
// at once, each at least `grain` long. An exception in any piece is rethrown here. If the system
// has no more threads, the calling one does the rest.
void parallel_for(int64_t count, int64_t grain, int threads,
                  const std::function<void(int64_t begin, int64_t end)>& body);

}  // namespace ingot
