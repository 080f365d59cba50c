// Records of attention: ingot.graph.ops.attention.
#include "bindings/program.h"

namespace ingot {
namespace {

struct Rope : Operation {
  int source, out;
  int64_t head_size;
  std::vector<double> frequencies;
  RopeLayout layout;
  double magnitude;

  void add_to(Program& program) const override {
    const ValueRef from = program.at(source), to = program.at(out);
    same_shape({from, to});
    if (head_size < 1 || from.width % head_size || has_selected(from))
      refuse("heads that are not whole");
    if (2 * static_cast<int64_t>(frequencies.size()) > head_size)
      refuse("a rotary embedding longer than a head");
    const RotaryTable* table = program.rotary({frequencies, magnitude, layout});
    program.add(std::make_unique<RopeOp>(from, head_size, table, to));
  }
};

struct StoreKv : Operation {
  std::optional<int> query;
  int key, value;
  std::optional<Normalization> query_norm, key_norm;
  std::optional<Rotary> rope;
  bool norms_last;
  KvPlace kv_layer;

  void add_to(Program& program) const override {
    const std::optional<ValueRef> q = program.at(query);
    const ValueRef k = program.at(key), v = program.at(value);
    const int64_t head_size = std::max<int64_t>(1, kv_layer.head_size);
    const bool shared = kv_layer.shared_value > 0;
    StoreKvOp::Spec spec{q,
                         k,
                         v,
                         program.norm(query_norm, q.value_or(k)),
                         program.norm(key_norm, k),
                         rope ? program.rotary(*rope) : nullptr,
                         norms_last,
                         kv_layer.layer(shared ? 1 : k.width / head_size)};
    const bool whole = shared ? v.width == kv_layer.shared_value && k.width + v.width == head_size
                              : k.width == v.width && k.width % head_size == 0;
    if (!whole || (q && (q->width % head_size || has_selected(*q))))
      refuse("query, key and value that are not whole heads");
    if (spec.rotary && 2 * spec.rotary->pairs() > std::min(head_size, k.width))
      refuse("a rotary embedding longer than a head");
    program.add(std::make_unique<StoreKvOp>(std::move(spec)));
    program.add_group(kv_layer.group,
                      static_cast<int64_t>(kv_layer.pool.size()) / kv_layer.block_bytes, false);
  }
};

// What the distance from query to key adds to the scores of each head; far ones as those at the
// ends.
struct DistanceBias {
  Floats weight;             // [buckets][heads]
  std::vector<int> buckets;  // of the distances from -reach to reach

  int64_t reach() const { return static_cast<int64_t>(buckets.size()) / 2; }
  // [heads][2 * (reach + kKvBlockTokens)]: so many that a block can be read wherever it begins.
  std::vector<float> table(int64_t heads) const {
    if (buckets.size() % 2 == 0 || length(weight) % heads) refuse("a bias of other distances");
    const int64_t span = reach() + kKvBlockTokens;
    std::vector<float> table;
    table.reserve(2 * span * heads);
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t distance = -span; distance < span; ++distance) {
        const int bucket = buckets[std::clamp(distance, -reach(), reach()) + reach()];
        if (bucket < 0 || bucket >= length(weight) / heads) refuse("a bias that is not there");
        table.push_back(weight.data()[bucket * heads + head]);
      }
    return table;
  }
};

struct HeadMatrix {
  Matrix weight;
  int64_t first, rows;

  HeadMatrixRef ref(int64_t heads) const {
    const HeadMatrixRef ref{weight.ref(), first, rows};
    if (first < 0 || rows < 1 || ref.weight.rows % heads || first + rows > ref.weight.rows / heads)
      refuse("matrices that are not one for each head");
    return ref;
  }
};

struct Expansion {
  HeadMatrix key, value;
  bool latent_rows;
};

// Attention over latents, which expands those of some prompts.
class ExpandableAttendOp : public AttendOp {
 public:
  ExpandableAttendOp(AttendOp::Spec spec, AttendOp::Buffers& buffers,
                     ExpandedAttention::Spec expanded, ExpandedAttention::Buffers& expanded_buffers)
      : AttendOp(std::move(spec), buffers), expanded_(std::move(expanded), expanded_buffers) {}
  void reset() override {
    AttendOp::reset();
    expanded_.reset();
  }
  void run(const Step& step, int member) override {
    AttendOp::run(step, member);
    if (step.batch.phase == Phase::kPrompt) expanded_.run(step, member);
  }

 private:
  ExpandedAttention expanded_;
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
  SeenPart seen;
  std::optional<DistanceBias> bias;
  std::vector<float> slopes;
  std::optional<Expansion> expansion;
  std::optional<int> chosen;

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
    if (!slopes.empty() && static_cast<int64_t>(slopes.size()) != heads)
      refuse("attention needs a slope per head");
    if (seen != SeenPart::ALL && (window || !causal)) refuse("a window on a part of a sequence");
    const std::optional<ValueRef> positions = program.at(chosen);
    if (positions && (has_selected(*positions) || expansion))
      refuse("chosen positions of other tokens, or of latents that are expanded");
    program.batch.causal = program.batch.causal && causal;
    program.batch.encoded = program.batch.encoded || seen != SeenPart::ALL;
    if (seen == SeenPart::ENCODED)  // written by another program
      program.add_group(kv_layer.group,
                        static_cast<int64_t>(kv_layer.pool.size()) / kv_layer.block_bytes, false);
    AttendOp::Spec spec{from,
                        to,
                        layer,
                        heads,
                        kv_heads,
                        scale,
                        softcap,
                        window,
                        chunked,
                        data(sinks),
                        causal,
                        seen,
                        slopes.empty() ? nullptr : slopes.data(),
                        bias ? bias->table(heads) : std::vector<float>(),
                        bias ? bias->reach() : 0,
                        expansion.has_value(),
                        positions};
    if (!expansion) {
      program.add(std::make_unique<AttendOp>(std::move(spec), program.attend_buffers));
      return;
    }
    program.add(std::make_unique<ExpandableAttendOp>(std::move(spec), program.attend_buffers,
                                                     expanded(program, layer, from, to),
                                                     program.expanded_buffers));
  }

  ExpandedAttention::Spec expanded(const Program& program, const CacheLayer& layer, ValueRef from,
                                   ValueRef to) const {
    const ExpandedAttention::Spec spec{from,
                                       to,
                                       layer,
                                       heads,
                                       scale,
                                       softcap,
                                       expansion->key.ref(heads),
                                       expansion->value.ref(heads),
                                       expansion->latent_rows};
    const int64_t latent = spec.latent();
    const int64_t keys = spec.latent_rows ? spec.key.rows : spec.key.weight.columns;
    if (latent < 1 || keys != latent || spec.value.weight.columns != latent ||
        spec.key_size() > latent || spec.value.rows > latent)
      refuse("an expansion of other latents");
    if (kv_heads != 1 || !causal || window || sinks || bias || !slopes.empty() ||
        seen != SeenPart::ALL)
      refuse("an expansion of an attention that is not plain");
    for (const HeadMatrix* matrix : {&expansion->key, &expansion->value})
      if (!program.kernels.decode[matrix->weight.type]) refuse("a matrix of a type without kernel");
    return spec;
  }
};

struct ChoosePositions : Operation {
  int query, head_weights, out;
  KvPlace kv_layer;
  int64_t heads;

  void add_to(Program& program) const override {
    const ChooseOp::Spec spec{program.at(query), program.at(head_weights), program.at(out),
                              kv_layer.layer(1), heads};
    if (heads < 1 || spec.query.width != heads * spec.cache.head_size ||
        spec.weights.width != heads || spec.out.width < 1)
      refuse("an indexer's query that is not whole heads");
    if (has_selected(spec.query) || has_selected(spec.weights) || has_selected(spec.out))
      refuse("positions of some tokens only");
    if (program.max_positions > 1 << 24) refuse("positions that no float32 can be");
    program.add(std::make_unique<ChooseOp>(spec, program.choose_buffers));
  }
};

struct HeadLinear : Operation {
  int source, out;
  Matrix weight;
  int64_t heads, first, rows;
  bool transposed, expandable;

  void add_to(Program& program) const override {
    const HeadLinearOp::Spec spec{
        program.at(source), program.at(out), weight.ref(), heads, first, rows,
        transposed,         expandable};
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
  bind_part(module, "DistanceBias", Field{"weight", &DistanceBias::weight},
            Field{"buckets", &DistanceBias::buckets});
  bind_part(module, "HeadMatrix", Field{"weight", &HeadMatrix::weight},
            Field{"first", &HeadMatrix::first}, Field{"rows", &HeadMatrix::rows});
  bind_part(module, "Expansion", Field{"key", &Expansion::key}, Field{"value", &Expansion::value},
            Field{"latent_rows", &Expansion::latent_rows});
  bind_operation(module, "Rope", Field{"source", &Rope::source}, Field{"out", &Rope::out},
                 Field{"head_size", &Rope::head_size}, Field{"frequencies", &Rope::frequencies},
                 Field{"layout", &Rope::layout}, Field{"magnitude", &Rope::magnitude});
  bind_operation(module, "StoreKv", Field{"query", &StoreKv::query}, Field{"key", &StoreKv::key},
                 Field{"value", &StoreKv::value}, Field{"query_norm", &StoreKv::query_norm},
                 Field{"key_norm", &StoreKv::key_norm}, Field{"rope", &StoreKv::rope},
                 Field{"norms_last", &StoreKv::norms_last}, Field{"kv_layer", &StoreKv::kv_layer});
  bind_operation(module, "Attend", Field{"query", &Attend::query}, Field{"out", &Attend::out},
                 Field{"kv_layer", &Attend::kv_layer}, Field{"heads", &Attend::heads},
                 Field{"kv_heads", &Attend::kv_heads}, Field{"scale", &Attend::scale},
                 Field{"window", &Attend::window}, Field{"chunked", &Attend::chunked},
                 Field{"softcap", &Attend::softcap}, Field{"sinks", &Attend::sinks},
                 Field{"causal", &Attend::causal}, Field{"seen", &Attend::seen},
                 Field{"bias", &Attend::bias}, Field{"slopes", &Attend::slopes},
                 Field{"expansion", &Attend::expansion}, Field{"chosen", &Attend::chosen});
  bind_operation(module, "ChoosePositions", Field{"query", &ChoosePositions::query},
                 Field{"head_weights", &ChoosePositions::head_weights},
                 Field{"out", &ChoosePositions::out}, Field{"kv_layer", &ChoosePositions::kv_layer},
                 Field{"heads", &ChoosePositions::heads});
  bind_operation(module, "HeadLinear", Field{"source", &HeadLinear::source},
                 Field{"out", &HeadLinear::out}, Field{"weight", &HeadLinear::weight},
                 Field{"heads", &HeadLinear::heads}, Field{"first", &HeadLinear::first},
                 Field{"rows", &HeadLinear::rows}, Field{"transposed", &HeadLinear::transposed},
                 Field{"expandable", &HeadLinear::expandable});
  bind_operation(module, "PickHeads", Field{"source", &PickHeads::source},
                 Field{"out", &PickHeads::out}, Field{"heads", &PickHeads::heads},
                 Field{"first", &PickHeads::first});
}
