// What the CPU can do, by its own account and the system's.
#pragma once

#include <string>
#include <vector>

namespace ingot::system {

// What the CPU has and the operating system has enabled, e.g. "avx2", "amx_int8", "dotprod".
std::vector<std::string> detect_features();

}  // namespace ingot::system
