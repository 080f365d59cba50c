// Records of attention: ingot.graph.ops.attention.
#include "bindings/program.h"

namespace ingot {
namespace {

struct StoreKv : Operation {
  int query, key, value;
  std::optional<Normalization> query_norm, key_norm;
  std::optional<Rotary> rope;
  bool norms_last;
  KvPlace kv_layer;

  void add_to(Program& program) const override {
    const ValueRef q = program.at(query), k = program.at(key), v = program.at(value);
    const int64_t head_size = std::max<int64_t>(1, kv_layer.head_size);
    const bool shared = kv_layer.shared_value > 0;
    StoreKvOp::Spec spec{q,
                         k,
                         v,
                         program.norm(query_norm, q),
                         program.norm(key_norm, k),
                         rope ? program.rotary(*rope) : nullptr,
                         norms_last,
                         kv_layer.layer(shared ? 1 : k.width / head_size)};
    const bool whole = shared ? v.width == kv_layer.shared_value && k.width + v.width == head_size
                              : k.width == v.width && k.width % head_size == 0;
    if (!whole || q.width % head_size || has_selected(q))
      refuse("query, key and value that are not whole heads");
    if (spec.rotary && 2 * spec.rotary->pairs() > std::min(head_size, k.width))
      refuse("a rotary embedding longer than a head");
    program.add(std::make_unique<StoreKvOp>(std::move(spec)));
    program.add_group(kv_layer.group,
                      static_cast<int64_t>(kv_layer.pool.size()) / kv_layer.block_bytes, false);
  }
};

struct Attend : Operation {
  int query, out;
  KvPlace kv_layer;
  int64_t heads, kv_heads;
  float scale;
  int64_t window;
  bool chunked;
  float softcap;
  std::optional<Floats> sinks;
  bool causal;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(query), to = program.at(out);
    if (sinks && length(*sinks) != heads) refuse("attention needs a sink per head");
    if (kv_heads < 1 || heads < 1 || heads % kv_heads)
      refuse(std::to_string(heads) + " query heads over " + std::to_string(kv_heads) +
             " key heads");
    const CacheLayer layer = kv_layer.layer(kv_heads);
    if (from.width != heads * layer.head_size || to.width != heads * layer.value_size() ||
        has_selected(from) || has_selected(to))
      refuse("a query that is not whole heads");
    program.batch.causal = program.batch.causal && causal;
    const AttendOp::Spec spec{from,    to,     layer,   heads,       kv_heads, scale,
                              softcap, window, chunked, data(sinks), causal};
    program.add(std::make_unique<AttendOp>(spec, program.attend_buffers));
  }
};

struct HeadLinear : Operation {
  int source, out;
  Matrix weight;
  int64_t heads, first, rows;
  bool transposed;

  void add_to(Program& program) const override {
    const HeadLinearOp::Spec spec{
        program.at(source), program.at(out), weight.ref(), heads, first, rows, transposed};
    if (heads < 1 || first < 0 || rows < 1 || spec.weight.rows % heads ||
        first + rows > spec.weight.rows / heads)
      refuse("matrices that are not one for each head");
    if (spec.source.width % heads || spec.kept() < 0 ||
        spec.out.width != heads * (spec.kept() + spec.results()) ||
        has_selected(spec.source) != has_selected(spec.out))
      refuse("heads that do not fit their matrices");
    if (!program.kernels.decode[weight.type]) refuse("a matrix of a type without kernel");
    program.add(std::make_unique<HeadLinearOp>(spec, program.head_buffers));
  }
};

struct PickHeads : Operation {
  int source, out;
  int64_t heads, first;

  void add_to(Program& program) const override {
    const PickHeadsOp::Spec spec{program.at(source), program.at(out), heads, first};
    if (heads < 1 || first < 0 || spec.source.width % heads || spec.out.width % heads ||
        first + spec.out.width / heads > spec.source.width / heads ||
        has_selected(spec.source) != has_selected(spec.out))
      refuse("parts of heads outside of them");
    program.add(std::make_unique<PickHeadsOp>(spec));
  }
};

}  // namespace
}  // namespace ingot

using namespace ingot;

void bind_attention_operations(nb::module_& module) {
  bind_part(module, "Rotary", Field{"frequencies", &Rotary::frequencies},
            Field{"layout", &Rotary::layout}, Field{"magnitude", &Rotary::magnitude});
  bind_operation(module, "StoreKv", Field{"query", &StoreKv::query}, Field{"key", &StoreKv::key},
                 Field{"value", &StoreKv::value}, Field{"query_norm", &StoreKv::query_norm},
                 Field{"key_norm", &StoreKv::key_norm}, Field{"rope", &StoreKv::rope},
                 Field{"norms_last", &StoreKv::norms_last}, Field{"kv_layer", &StoreKv::kv_layer});
  bind_operation(module, "Attend", Field{"query", &Attend::query}, Field{"out", &Attend::out},
                 Field{"kv_layer", &Attend::kv_layer}, Field{"heads", &Attend::heads},
                 Field{"kv_heads", &Attend::kv_heads}, Field{"scale", &Attend::scale},
                 Field{"window", &Attend::window}, Field{"chunked", &Attend::chunked},
                 Field{"softcap", &Attend::softcap}, Field{"sinks", &Attend::sinks},
                 Field{"causal", &Attend::causal});
  bind_operation(module, "HeadLinear", Field{"source", &HeadLinear::source},
                 Field{"out", &HeadLinear::out}, Field{"weight", &HeadLinear::weight},
                 Field{"heads", &HeadLinear::heads}, Field{"first", &HeadLinear::first},
                 Field{"rows", &HeadLinear::rows}, Field{"transposed", &HeadLinear::transposed});
  bind_operation(module, "PickHeads", Field{"source", &PickHeads::source},
                 Field{"out", &PickHeads::out}, Field{"heads", &PickHeads::heads},
                 Field{"first", &PickHeads::first});
}
