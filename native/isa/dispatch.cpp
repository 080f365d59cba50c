#include "isa/dispatch.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace ingot {

// One function per namespace that isa/kernels.cpp was compiled into.
#define INGOT_DECLARE(name)              \
  namespace name {                       \
  const KernelTable& kernels(Precision); \
  }
INGOT_DECLARE(scalar)
#if defined(INGOT_HAVE_AVX2)
INGOT_DECLARE(avx2)
INGOT_DECLARE(avx512)
INGOT_DECLARE(amx)
#endif
#if defined(INGOT_HAVE_NEON)
INGOT_DECLARE(neon)
#endif
#undef INGOT_DECLARE

namespace {

#if defined(__x86_64__)

uint64_t enabled_state() {
  uint32_t lo, hi;
  __asm__ volatile("xgetbv" : "=a"(lo), "=d"(hi) : "c"(0));
  return static_cast<uint64_t>(hi) << 32 | lo;
}

// Linux hands out the tile registers only on request, per process.
bool request_tile_permission() {
#if defined(__linux__)
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
#else
  return false;
#endif
}

std::vector<std::string> detect_features() {
  std::vector<std::string> found;
  uint32_t a, b, c, d, a1, b1, c1, d1, a2, b2, c2, d2;
  if (!__get_cpuid(1, &a, &b, &c, &d)) return found;
  if (!__get_cpuid_count(7, 0, &a1, &b1, &c1, &d1)) b1 = c1 = d1 = 0;
  if (!__get_cpuid_count(7, 1, &a2, &b2, &c2, &d2)) a2 = 0;
  const bool os_saves = c >> 27 & 1;
  const uint64_t state = os_saves ? enabled_state() : 0;
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  const bool tiles = (state & 0x60000) == 0x60000 && (d1 >> 24 & 1) && request_tile_permission();
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
  add("avx512f", zmm && (b1 >> 16 & 1));
  add("avx512dq", zmm && (b1 >> 17 & 1));
  add("avx512bw", zmm && (b1 >> 30 & 1));
  add("avx512vl", zmm && (b1 >> 31 & 1));
  add("avx512vbmi", zmm && (c1 >> 1 & 1));
  add("avx512vnni", zmm && (c1 >> 11 & 1));
  add("avx512bf16", zmm && (a2 >> 5 & 1));
  add("amx_tile", tiles);
  add("amx_int8", tiles && (d1 >> 25 & 1));
  add("amx_bf16", tiles && (d1 >> 22 & 1));
  return found;
}

#elif defined(__aarch64__)
std::vector<std::string> detect_features() { return {"neon"}; }
#else
std::vector<std::string> detect_features() { return {}; }
#endif

std::vector<InstructionSet> list_sets() {
  std::vector<InstructionSet> sets{{scalar::kernels, {}, true}};
#if defined(INGOT_HAVE_AVX2)
  std::vector<std::string> needs{"avx2", "fma", "f16c", "bmi2"};
  sets.push_back({avx2::kernels, needs, false});
  for (const char* name :
       {"avx512f", "avx512dq", "avx512bw", "avx512vl", "avx512vbmi", "avx512vnni"})
    needs.push_back(name);
  sets.push_back({avx512::kernels, needs, false});
  for (const char* name : {"avx512bf16", "amx_tile", "amx_int8", "amx_bf16"}) needs.push_back(name);
  sets.push_back({amx::kernels, needs, false});
#endif
#if defined(INGOT_HAVE_NEON)
  sets.push_back({neon::kernels, {"neon"}, false});
#endif
  const std::vector<std::string>& have = cpu_features();
  for (InstructionSet& set : sets) {
    set.supported = std::all_of(set.requires_features.begin(), set.requires_features.end(),
                                [&](const std::string& need) {
                                  return std::find(have.begin(), have.end(), need) != have.end();
                                });
  }
  return sets;
}

const InstructionSet* best_set() {
  const InstructionSet* best = nullptr;
  for (const InstructionSet& set : instruction_sets())
    if (set.supported) best = &set;
  return best;
}

std::atomic<const InstructionSet*>& active() {
  static std::atomic<const InstructionSet*> set{best_set()};
  return set;
}

}  // namespace

const std::vector<std::string>& cpu_features() {
  static const std::vector<std::string> features = detect_features();
  return features;
}

const std::vector<InstructionSet>& instruction_sets() {
  static const std::vector<InstructionSet> sets = list_sets();
  return sets;
}

const KernelTable& active_kernels(Precision precision) {
  return active().load(std::memory_order_relaxed)->kernels(precision);
}

void set_isa(const std::string& name) {
  std::string known;
  for (const InstructionSet& set : instruction_sets()) {
    if (name == set.name()) {
      if (!set.supported)
        throw std::invalid_argument("this CPU cannot run the instruction set '" + name + "'");
      active().store(&set, std::memory_order_relaxed);
      return;
    }
    known += known.empty() ? "" : ", ";
    known += set.name();
  }
  throw std::invalid_argument("unknown instruction set '" + name + "' (this build has: " + known +
                              ")");
}

}  // namespace ingot
