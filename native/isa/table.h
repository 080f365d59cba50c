// What one build of the kernels offers: a table of function pointers, filled by
// isa/kernels.cpp once per instruction set and chosen by isa/dispatch.cpp.
#pragma once

#include <cstdint>

#include "formats/types.h"
#include "kernels/tasks.h"

namespace ingot {

struct KernelTable {
  // Indexed by type number; nullptr where a type has no such kernel.
  static constexpr uint32_t kTypes = 64;
  using Decode = void (*)(const uint8_t* blocks, float* out, int64_t count);
  using Encode = void (*)(const float* values, uint8_t* blocks, int64_t count);

  const char* name;
  Decode decode[kTypes];
  Encode encode[kTypes];

  // Linear maps (kernels/linear.h).
  using Linear = void (*)(const uint8_t* weight, int64_t row_bytes, const LinearInput& input,
                          int64_t begin, int64_t end, float* out, int64_t out_stride,
                          uint8_t* scratch);
  Linear generate[kTypes];
  Linear prompt[kTypes];
  int64_t (*quantized_bytes)(int64_t width);
  void (*quantize_generate)(const float* x, int64_t width, uint8_t* out);
  void (*quantize_prompt)(const float* x, int64_t width, uint8_t* out);
  int64_t prompt_rows;
  int64_t (*scratch_bytes)(int64_t width);

  // One row of activations (kernels/rowwise.h).
  using Norm = void (*)(const float* x, const float* weight, const float* bias, int64_t n,
                        float epsilon, float* out);
  Norm rms_norm;
  Norm layer_norm;
  void (*turn_head)(float* head, int64_t pairs, bool adjacent, const float* cos, const float* sin);
  void (*activate)(ActivationKind kind, const float* gate, const float* up, int64_t n, float* out);
  void (*softcap)(const float* x, int64_t n, float cap, float* out);

  // Attention over the paged cache (kernels/attention.h).
  void (*attend)(const AttendTask& task);
  void (*join_parts)(const AttendRow* parts, const float* mixes, int64_t count, int64_t part_stride,
                     int64_t mix_stride, int64_t size, float* out);
};

}  // namespace ingot
