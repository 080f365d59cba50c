// Records of attention: ingot.graph.ops.attention.
#include "bindings/program.h"

namespace ingot {
namespace {

struct StoreKv : Operation {
  int query, key, value;
  std::optional<Normalization> query_norm, key_norm;
  std::optional<Rotary> rope;
  KvPlace kv_layer;

  void add_to(Program& program) const override {
    const ValueRef q = program.at(query), k = program.at(key), v = program.at(value);
    const int64_t head_size = std::max<int64_t>(1, kv_layer.head_size);
    StoreKvOp::Spec spec{q,
                         k,
                         v,
                         program.norm(query_norm, q),
                         program.norm(key_norm, k),
                         rope ? program.rotary(*rope) : nullptr,
                         kv_layer.layer(k.width / head_size)};
    if (k.width != v.width || k.width % head_size || q.width % head_size || has_selected(q))
      refuse("query, key and value that are not whole heads");
    if (spec.rotary && 2 * spec.rotary->pairs() > head_size)
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
  float softcap;
  std::optional<Floats> sinks;
  bool causal;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(query), to = program.at(out);
    if (sinks && length(*sinks) != heads) refuse("attention needs a sink per head");
    if (kv_heads < 1 || heads < 1 || heads % kv_heads)
      refuse(std::to_string(heads) + " query heads over " + std::to_string(kv_heads) +
             " key heads");
    if (!causal && window > 0) refuse("a window of tokens that see their whole sequence");
    same_shape({from, to});
    const CacheLayer layer = kv_layer.layer(kv_heads);
    if (from.width != heads * layer.head_size || has_selected(from))
      refuse("a query that is not whole heads");
    program.batch.causal = program.batch.causal && causal;
    const AttendOp::Spec spec{from,  to,      layer,  heads,       kv_heads,
                              scale, softcap, window, data(sinks), causal};
    program.add(std::make_unique<AttendOp>(spec, program.attend_buffers));
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
                 Field{"kv_layer", &StoreKv::kv_layer});
  bind_operation(module, "Attend", Field{"query", &Attend::query}, Field{"out", &Attend::out},
                 Field{"kv_layer", &Attend::kv_layer}, Field{"heads", &Attend::heads},
                 Field{"kv_heads", &Attend::kv_heads}, Field{"scale", &Attend::scale},
                 Field{"window", &Attend::window}, Field{"softcap", &Attend::softcap},
                 Field{"sinks", &Attend::sinks}, Field{"causal", &Attend::causal});
}
