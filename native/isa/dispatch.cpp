#include "isa/dispatch.h"

#include <algorithm>
#include <atomic>
#include <stdexcept>

#include "system/cpu_features.h"

namespace ingot {

// One function per namespace that isa/kernels.cpp was compiled into.
#define INGOT_DECLARE(name)              \
  namespace name {                       \
  const KernelTable& kernels(Precision); \
  }
INGOT_DECLARE(scalar)
#if defined(INGOT_HAVE_AVX2)
INGOT_DECLARE(avx2)
INGOT_DECLARE(avxvnni)
INGOT_DECLARE(avx512)
INGOT_DECLARE(avx512vnni)
INGOT_DECLARE(amx)
#endif
#if defined(INGOT_HAVE_NEON)
INGOT_DECLARE(neon)
INGOT_DECLARE(dotprod)
INGOT_DECLARE(i8mm)
#endif
#undef INGOT_DECLARE

namespace {

std::vector<InstructionSet> list_sets() {
  std::vector<InstructionSet> sets{{"scalar", scalar::kernels, {}, true}};
#if defined(INGOT_HAVE_AVX2)
  std::vector<std::string> needs{"avx2", "fma", "f16c", "bmi2"};
  sets.push_back({"avx2", avx2::kernels, needs, false});
  sets.push_back({"avxvnni", avxvnni::kernels, {"avx2", "fma", "f16c", "bmi2", "avxvnni"}, false});
  for (const char* name : {"avx512f", "avx512dq", "avx512bw", "avx512vl"}) needs.push_back(name);
  sets.push_back({"avx512", avx512::kernels, needs, false});
  needs.push_back("avx512vnni");
  sets.push_back({"avx512vnni", avx512vnni::kernels, needs, false});
  for (const char* name : {"avx512bf16", "amx_tile", "amx_int8", "amx_bf16"}) needs.push_back(name);
  sets.push_back({"amx", amx::kernels, needs, false});
#endif
#if defined(INGOT_HAVE_NEON)
  sets.push_back({"neon", neon::kernels, {"neon"}, false});
  sets.push_back({"dotprod", dotprod::kernels, {"neon", "dotprod"}, false});
  sets.push_back({"i8mm", i8mm::kernels, {"neon", "dotprod", "i8mm"}, false});
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
  static const std::vector<std::string> features = system::detect_features();
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
    if (name == set.name) {
      if (!set.supported)
        throw std::invalid_argument("this CPU cannot run the instruction set '" + name + "'");
      active().store(&set, std::memory_order_relaxed);
      return;
    }
    known += known.empty() ? "" : ", ";
    known += set.name;
  }
  throw std::invalid_argument("unknown instruction set '" + name + "' (this build has: " + known +
                              ")");
}

}  // namespace ingot
