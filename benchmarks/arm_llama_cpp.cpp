// Multiplies a matrix some times with llama.cpp's CPU backend, in an emulator that counts
// instructions (bench_arm.py).
//
// Usage: arm_llama_cpp FORMAT ROWS WIDTH COLUMNS REPACKED ROUNDS
// REPACKED: 1 multiplies the interleaved copy that llama.cpp makes when it loads a model; the
// program ends with 3 if it makes none of this format on this CPU.
#include <strings.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static ggml_type type_of(const char* name) {
  for (int i = 0; i < GGML_TYPE_COUNT; ++i) {
    const auto type = static_cast<ggml_type>(i);
    const char* known = ggml_type_name(type);
    if (known && !strcasecmp(known, name)) return type;
  }
  std::fprintf(stderr, "llama.cpp has no format %s\n", name);
  std::exit(2);
}

static ggml_backend_buffer_type_t repacking_type(ggml_backend_dev_t device) {
  auto* registry = ggml_backend_dev_backend_reg(device);
  const auto list = reinterpret_cast<ggml_backend_dev_get_extra_bufts_t>(
      ggml_backend_reg_get_proc_address(registry, "ggml_backend_dev_get_extra_bufts"));
  for (auto* type = list(device); type && *type; ++type)
    if (!std::strcmp(ggml_backend_buft_name(*type), "CPU_REPACK")) return *type;
  return nullptr;
}

int main(int, char** arguments) {
  const ggml_type type = type_of(arguments[1]);
  const int64_t rows = std::atoll(arguments[2]), width = std::atoll(arguments[3]);
  const int64_t columns = std::atoll(arguments[4]);
  const bool repacked = std::atoi(arguments[5]);

  ggml_backend_t backend = ggml_backend_cpu_init();
  ggml_backend_cpu_set_n_threads(backend, 1);
  const ggml_init_params params{1 << 20, nullptr, true};
  ggml_context* weights = ggml_init(params);
  ggml_context* rest = ggml_init(params);
  ggml_tensor* weight = ggml_new_tensor_2d(weights, type, width, rows);
  ggml_tensor* input = ggml_new_tensor_2d(rest, GGML_TYPE_F32, width, columns);
  ggml_tensor* product = ggml_mul_mat(rest, weight, input);
  ggml_cgraph* graph = ggml_new_graph(rest);
  ggml_build_forward_expand(graph, product);

  ggml_backend_dev_t device = ggml_backend_get_device(backend);
  auto* kind = repacked ? repacking_type(device) : ggml_backend_get_default_buffer_type(backend);
  if (!kind) return 3;
  ggml_backend_alloc_ctx_tensors_from_buft(weights, kind);
  if (repacked && (!weight->extra || !ggml_backend_dev_supports_op(device, product))) return 3;
  ggml_backend_alloc_ctx_tensors(rest, backend);

  std::mt19937 random(0);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<size_t>(width * std::max(rows, columns)));
  for (float& value : values) value = normal(random);
  std::vector<uint8_t> packed(ggml_nbytes(weight));
  ggml_quantize_chunk(type, values.data(), packed.data(), 0, rows, width, nullptr);
  ggml_backend_tensor_set(weight, packed.data(), 0, packed.size());
  ggml_backend_tensor_set(input, values.data(), 0, ggml_nbytes(input));
  for (int i = std::atoi(arguments[6]); i > 0; --i) ggml_backend_graph_compute(backend, graph);
}
