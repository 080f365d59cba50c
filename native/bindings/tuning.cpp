// The numbers by which the executor divides work and chooses kernels, for `ingot doctor`.
#include <nanobind/nanobind.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "executor/ops.h"
#include "executor/pieces.h"
#include "executor/step.h"
#include "formats/types.h"
#include "isa/dispatch.h"

namespace nb = nanobind;

namespace {

std::map<std::string, int64_t> tuning() {
  return {
      {"piece_bytes", ingot::kPieceBytes},
      {"piece_row_multiple", ingot::kRowMultiple},
      {"piece_most_rows", ingot::kMaxPieceRows},
      {"pieces_per_thread", ingot::kPiecesPerMember},
      {"prompt_panel_rows", ingot::active_kernels().prompt_rows},
      {"prompt_least_columns", ingot::kLeastPieceColumns},
      {"decode_most_sequences", ingot::kMaxGenerationTokens},
      {"attention_part_positions", ingot::AttendOp::kPartPositions},
      {"attention_tile_rows", ingot::AttendOp::kTileRows},
      {"kv_block_tokens", ingot::kKvBlockTokens},
  };
}

const char* name_of(ingot::InputKind kind) {
  switch (kind) {
    case ingot::InputKind::kFloats:
      return "floats";
    case ingot::InputKind::kWords:
      return "words";
    case ingot::InputKind::kBytes:
      return "bytes";
  }
  return "";
}

// What the kernels of a type read as inputs, in decode and in prefill.
std::tuple<std::string, std::string> input_kinds(uint32_t type, ingot::Precision precision) {
  const ingot::KernelTable& kernels = ingot::active_kernels(precision);
  if (!ingot::find_type(type) || !kernels.generate[type]) return {"", ""};
  return {name_of(kernels.generate_kind[type]), name_of(kernels.prompt_kind[type])};
}

}  // namespace

void bind_tuning(nb::module_& module) {
  module.def("tuning", tuning);
  module.def("input_kinds", input_kinds, nb::arg("type"), nb::arg("precision"));
}
