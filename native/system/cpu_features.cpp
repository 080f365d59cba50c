#include "system/cpu_features.h"

#include "system/system.h"

#if defined(__x86_64__)
#include <cpuid.h>

#include <cstdint>
#endif

namespace ingot::system {

#if defined(__x86_64__)

namespace {

uint64_t enabled_state() {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return static_cast<uint64_t>(hi) << 32 | lo;
}

}  // namespace

std::vector<std::string> detect_features() {
  std::vector<std::string> found;
  uint32_t a, b, c, d, a1, b1, c1, d1, a2, b2, c2, d2;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  if (!__get_cpuid_count(7, 0, &a1, &b1, &c1, &d1)) b1 = c1 = d1 = 0;
  if (!__get_cpuid_count(7, 1, &a2, &b2, &c2, &d2)) a2 = 0;
  const bool os_saves = c >> 27 & 1;
  const uint64_t state = os_saves ? enabled_state() : 0;
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  const bool tiles = (state & 0x60000) == 0x60000 && (d1 >> 24 & 1) && request_tiles();
  const auto add = [&](const char* name, bool present) {
    if (present) found.push_back(name);
  };
  add("sse4_2", c >> 20 & 1);
  add("popcnt", c >> 23 & 1);
  add("avx", ymm && (c >> 28 & 1));
  add("f16c", ymm && (c >> 29 & 1));
  add("fma", ymm && (c >> 12 & 1));
  add("bmi2", b1 >> 8 & 1);
  add("avx2", ymm && (b1 >> 5 & 1));
  add("avxvnni", ymm && (a2 >> 4 & 1));
  add("avx512f", zmm && (b1 >> 16 & 1));
  add("avx512dq", zmm && (b1 >> 17 & 1));
  add("avx512bw", zmm && (b1 >> 30 & 1));
  add("avx512vl", zmm && (b1 >> 31 & 1));
  add("avx512vnni", zmm && (c1 >> 11 & 1));
  add("avx512bf16", zmm && (a2 >> 5 & 1));
  add("amx_tile", tiles);
  add("amx_int8", tiles && (d1 >> 25 & 1));
  add("amx_bf16", tiles && (d1 >> 22 & 1));
  return found;
}

#elif defined(__aarch64__)

std::vector<std::string> detect_features() {
  std::vector<std::string> found = arm_features();
  found.insert(found.begin(), "neon");  // a part of ARMv8.0
  return found;
}

#else

std::vector<std::string> detect_features() { return {}; }

#endif

}  // namespace ingot::system
