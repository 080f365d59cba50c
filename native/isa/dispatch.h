// Which instruction sets this build holds, which of them this CPU can run, and
// the one in use.
#pragma once

#include <string>
#include <vector>

#include "isa/table.h"

namespace ingot {

struct InstructionSet {
  // Stated here: kernels() is compiled for the set, and a CPU without it cannot call it.
  const char* name;
  const KernelTable& (*kernels)(Precision);
  std::vector<std::string> requires_features;  // of cpu_features()
  bool supported;                              // by this CPU and operating system
};

// What the CPU offers and the operating system has enabled, e.g. "avx2", "amx_int8".
const std::vector<std::string>& cpu_features();

// All compiled sets, slowest first.
const std::vector<InstructionSet>& instruction_sets();

// The table in use: the best supported one, or the one that set_isa() chose.
const KernelTable& active_kernels(Precision precision = Precision::EXACT);

// Throws std::invalid_argument, saying why, for a name that is unknown or that
// this CPU cannot run.
void set_isa(const std::string& name);

}  // namespace ingot
