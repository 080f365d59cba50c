// Compiled once per instruction set, like the other files beside it (CMakeLists.txt
// sets INGOT_ISA and the compiler's flags): the same headers, each time in another
// namespace, so that the linker cannot take a function built for one instruction set for another's.
#include "formats/all.h"
#include "isa/families.h"
#include "kernels/attention.h"
#include "kernels/delta.h"
#include "kernels/expand.h"
#include "kernels/heads.h"
#include "kernels/low_rank.h"
#include "kernels/recurrent.h"
#include "kernels/rowwise.h"
#include "kernels/score.h"

#define INGOT_STRING_OF(x) #x
#define INGOT_STRING(x) INGOT_STRING_OF(x)

namespace ingot::INGOT_ISA {

static KernelTable make_table(Precision precision) noexcept {
  KernelTable table{};
  table.name = INGOT_STRING(INGOT_ISA);
  add_formats(table);
  add_linear(table, precision);
  add_rows(table);
  table.rms_norm = rms_norm;
  table.layer_norm = layer_norm;
  table.rotate_head = rotate_head;
  table.activate = activate;
  table.softcap = softcap;
  table.mix_rows = mix_rows;
  table.exponentials = exponentials;
  table.xielu = xielu;
  table.map_head = map_head;
  table.add_head_rows = add_head_rows;
#define INGOT_ENTRY(Name, Value) \
  table.add_up[static_cast<uint32_t>(TensorType::Name)] = add_up<Value>;
  INGOT_FLOAT_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
  table.attend = attend;
  table.attend_expanded = attend_expanded;
  table.score_positions = score_positions;
  table.join_parts = join_parts;
  table.causal_conv = causal_conv;
  table.state_scan = state_scan;
  table.delta_rule = delta_rule;
  return table;
}

const KernelTable& kernels(Precision precision) {
  static const KernelTable exact = make_table(Precision::EXACT);
  static const KernelTable fast = make_table(Precision::FAST);
  return precision == Precision::FAST ? fast : exact;
}

}  // namespace ingot::INGOT_ISA
