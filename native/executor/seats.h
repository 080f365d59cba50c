// Where the members of a team run: the CPUs that each keeps to and their NUMA node.
#pragma once

#include <vector>

namespace ingot {

struct Seat {
  std::vector<int> cpus;
  int node;
  int replica;  // of the weights' copies, which it reads
};

using Seats = std::vector<Seat>;  // of every member; empty: they run anywhere

// The replica that the calling thread reads; set by the pool.
inline thread_local int this_replica = 0;

}  // namespace ingot
