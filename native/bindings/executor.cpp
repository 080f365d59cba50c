// ingot._native.Program: built operation by operation from Python, then run.
//
// Arrays handed in (weights, biases, cache pools) must outlive the program; the Python
// side keeps them.
#include "executor/executor.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/array_view.h"
#include "bindings/gil.h"
#include "executor/expert_ops.h"
#include "executor/linear_op.h"
#include "executor/ops.h"
#include "executor/recurrent_ops.h"
#include "executor/route.h"
#include "isa/dispatch.h"

namespace nb = nanobind;
using namespace ingot;

namespace {

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = Flat<const float>;
using Weight =
    std::tuple<Flat<const uint8_t>, uint32_t, int64_t, int64_t>;  // bytes, type, rows, columns
// weight, bias, length of a run, epsilon, layer
using Norm = std::tuple<Floats, std::optional<Floats>, int64_t, float, bool>;
// weight, bias, scale, residual, out
using Part = std::tuple<Weight, std::optional<Floats>, float, std::optional<int>, int>;
using Experts = std::tuple<Weight, std::optional<Floats>>;  // rows of all experts, their biases
// group, pool, block bytes, offset in block, type, head size
using Cache = std::tuple<int, Flat<uint8_t>, int64_t, int64_t, uint32_t, int64_t>;

// group, pool, block bytes, offset in block
using State = std::tuple<int, Flat<uint8_t>, int64_t, int64_t>;

constexpr int kMaxThreads = 1024;

[[noreturn]] void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

WeightRef as_weight(const Weight& w) {
  const auto& [bytes, type, rows, columns] = w;
  const TypeTraits* traits = find_type(type);
  if (!traits || rows < 1 || columns < 1 || columns % traits->block_weights)
    refuse("a weight of type " + std::to_string(type) + " cannot have rows of " +
           std::to_string(columns));
  const WeightRef ref{bytes.data(), static_cast<TensorType>(type), rows, columns};
  if (static_cast<int64_t>(bytes.size()) != rows * ref.row_bytes())
    refuse(std::string(traits->name) + ": " + std::to_string(bytes.size()) + " bytes are not " +
           std::to_string(rows) + " rows of " + std::to_string(columns));
  return ref;
}

NormRef as_norm(const Norm& n) {
  const auto& [weight, bias, length, epsilon, layer] = n;
  const int64_t count = static_cast<int64_t>(weight.size());
  if (bias && bias->size() != weight.size()) refuse("a norm's weight and bias differ in length");
  if (length < 1 || count < 1 || count % length) refuse("a norm's weight that is not whole runs");
  return {weight.data(), bias ? bias->data() : nullptr, count, length, epsilon, layer};
}

std::optional<NormRef> as_norm(const std::optional<Norm>& n) {
  return n ? std::optional(as_norm(*n)) : std::nullopt;
}

bool is_cache_type(uint32_t type) {
  switch (static_cast<TensorType>(type)) {
    case TensorType::F32:
    case TensorType::F16:
    case TensorType::BF16:
    case TensorType::Q8_0:
    case TensorType::Q4_0:
      return true;
    default:
      return false;
  }
}

CacheLayer as_cache(const Cache& c, int64_t heads) {
  const auto& [group, pool, block_bytes, offset, type, head_size] = c;
  if (!is_cache_type(type) || head_size < 1 || head_size > kMaxHeadSize ||
      head_size % find_type(type)->block_weights)
    refuse("heads of " + std::to_string(head_size) + " elements cannot be cached as type " +
           std::to_string(type));
  const CacheLayer layer{group,    pool.data(), block_bytes, offset, static_cast<TensorType>(type),
                         head_size};
  if (group < 0 || offset < 0 || offset + 2 * heads * layer.head_bytes() > block_bytes ||
      static_cast<int64_t>(pool.size()) % block_bytes)
    refuse("a layer of the cache outside its blocks");
  return layer;
}

StateRef as_state(const State& s, int64_t floats) {
  const auto& [group, pool, block_bytes, offset] = s;
  if (group < 0 || offset < 0 || block_bytes < 1 || block_bytes % 4 || offset % 4 ||
      offset + floats * 4 > block_bytes || static_cast<int64_t>(pool.size()) % block_bytes)
    refuse("a state outside its blocks");
  return {group, pool.data(), block_bytes, offset};
}

class Program {
 public:
  Program(int threads, int64_t arena_bytes_per_token, int64_t max_tokens, int64_t max_positions,
          int64_t max_width)
      : kernels_(active_kernels()),
        executor_(checked(threads), arena_bytes_per_token, max_tokens),
        max_tokens_(max_tokens),
        max_positions_(max_positions),
        buffers_(kernels_, threads, max_tokens, max_width),
        expert_buffers_(kernels_, threads, max_tokens),
        attend_buffers_(threads, std::min(max_tokens, kMaxGenerationTokens), max_positions) {}

  int value(int64_t offset, int64_t width, bool selected, bool logits) {
    values_.push_back({offset, width, selected, logits});
    if (logits) vocabulary_ = width;
    return static_cast<int>(values_.size()) - 1;
  }

  void embed(const Weight& weight, float scale, const std::optional<Weight>& positions,
             const std::optional<Floats>& types, int out) {
    embedding_rows_ = std::get<2>(weight);
    EmbedOp::Spec spec{as_weight(weight), scale, std::nullopt, types ? types->data() : nullptr,
                       at(out)};
    check_table(spec.weight, at(out));
    if (positions) {
      spec.positions = as_weight(*positions);
      check_table(*spec.positions, at(out));
      if (spec.positions->rows < max_positions_)
        refuse("a context of " + std::to_string(max_positions_) + " tokens for " +
               std::to_string(spec.positions->rows) + " learned positions");
    }
    if (types && (types->size() == 0 || types->size() % at(out).width))
      refuse("an embedding of another width than its value");
    types_ = types ? static_cast<int64_t>(types->size()) / at(out).width : 1;
    executor_.add(std::make_unique<EmbedOp>(std::move(spec), executor_.threads()));
  }
  void take_rows(int out) {
    if (has_selected(at(out))) refuse("rows that are taken are those of all tokens");
    taken_width_ = at(out).width;
    executor_.add(std::make_unique<TakeRowsOp>(at(out)));
  }
  void norm(const Norm& norm, int source, std::optional<int> residual, int out) {
    same_shape({at(source), residual ? at(*residual) : at(out), at(out)});
    check_runs(as_norm(norm), at(source));
    executor_.add(std::make_unique<NormOp>(as_norm(norm), at(source), at(residual), at(out)));
  }
  void select(int source, int out) {
    if (has_selected(at(source)) || !has_selected(at(out)) || at(source).width != at(out).width)
      refuse("a selection takes rows of all tokens to rows of the wanted ones");
    executor_.add(std::make_unique<SelectOp>(at(source), at(out)));
  }
  void activate(int gate, std::optional<int> up, int kind, int out) {
    same_shape({at(gate), up ? at(*up) : at(out), at(out)});
    executor_.add(std::make_unique<ActivateOp>(at(gate), at(up), as_activation(kind), at(out)));
  }
  void causal_conv(int source, const Floats& weight, const Floats& bias, int out,
                   const State& state) {
    same_shape({at(source), at(out)});
    const int64_t channels = at(source).width;
    const int64_t taps = static_cast<int64_t>(weight.size()) / channels;
    if (taps < 1 || taps * channels != static_cast<int64_t>(weight.size()) ||
        static_cast<int64_t>(bias.size()) != channels || has_selected(at(source)))
      refuse("a convolution that does not fit its channels");
    CausalConvOp::Spec spec{at(source),  at(out), weight.data(),
                            bias.data(), taps,    as_state(state, (taps - 1) * channels)};
    executor_.add(std::make_unique<CausalConvOp>(spec));
    add_group(state, true);
  }
  void state_scan(int x, int step, int b, int c, int out, const Floats& decay, const Floats& skip,
                  int64_t groups, const State& state) {
    same_shape({at(x), at(out)});
    same_shape({at(b), at(c)});
    const int64_t heads = at(step).width;
    if (has_selected(at(x)) || has_selected(at(step)) || has_selected(at(b)))
      refuse("a state space of selected rows");
    if (groups < 1 || heads % groups || at(b).width % groups || at(x).width % heads)
      refuse("a state space whose heads and groups do not go together");
    StateScanOp::Spec spec{at(x),        at(step),    at(b), at(c),  at(out),
                           decay.data(), skip.data(), false, groups, {}};
    const int64_t vectors = groups * spec.vectors();
    const int64_t own = static_cast<int64_t>(decay.size());
    spec.one_decay = own == vectors * kLanes;
    if ((!spec.one_decay && own != vectors * kLanes * spec.states()) ||
        static_cast<int64_t>(skip.size()) != vectors * kLanes)
      refuse("a state space of the wrong sizes");
    spec.state = as_state(state, vectors * kLanes * spec.states());
    executor_.add(std::make_unique<StateScanOp>(spec));
    add_group(state, true);
  }
  void softcap(int source, float cap, int out) {
    same_shape({at(source), at(out)});
    executor_.add(std::make_unique<SoftCapOp>(at(source), cap, at(out)));
  }
  int rotary(std::vector<double> speeds, double magnitude, bool adjacent) {
    auto table =
        std::make_unique<RotaryTable>(Rotary{std::move(speeds), magnitude, adjacent}, max_tokens_);
    rotaries_.push_back(table.get());
    executor_.add(std::move(table));
    return static_cast<int>(rotaries_.size()) - 1;
  }
  void linear(int source, const std::optional<Norm>& norm, const std::vector<Part>& parts,
              std::optional<int> activation) {
    LinearOp::Spec spec{at(source), as_norm(norm), {}, std::nullopt};
    if (spec.source.width > buffers_.width) refuse("a linear map wider than max_width");
    if (spec.norm) check_runs(*spec.norm, spec.source);
    if (parts.empty() || (activation && parts.size() > 2)) refuse("a linear map of no use");
    for (const auto& [weight, bias, scale, residual, out] : parts) {
      const WeightRef ref = as_weight(weight);
      if (!has_linear(static_cast<uint32_t>(ref.type))) refuse("a matrix of a type without kernel");
      if (ref.columns != spec.source.width || ref.rows != at(out).width)
        refuse("a weight that does not fit between its values");
      if (has_selected(at(out)) != has_selected(spec.source)) refuse("a linear map that selects");
      if (residual) same_shape({at(*residual), at(out)});
      if (bias && static_cast<int64_t>(bias->size()) != ref.rows)
        refuse("a bias of the wrong length");
      spec.parts.push_back({ref, bias ? bias->data() : nullptr, scale, at(residual), at(out)});
    }
    if (activation) spec.gate = as_activation(*activation);
    executor_.add(std::make_unique<LinearOp>(std::move(spec), buffers_));
  }
  void route(int scores, int out, int64_t used, int gating, bool normalize, float scale, float near,
             const std::optional<Floats>& bias) {
    const int64_t experts = at(scores).width;
    if (gating < 0 || gating >= kGatingKinds) refuse("there is no such gating");
    if (used < 1 || used > std::min(experts, kMaxExpertsUsed) || at(out).width != 2 * used ||
        has_selected(at(out)) != has_selected(at(scores)))
      refuse("a choice of " + std::to_string(used) + " of " + std::to_string(experts) + " experts");
    if (bias && static_cast<int64_t>(bias->size()) != experts) refuse("a bias of the wrong length");
    expert_buffers_.groups.make_room(experts, used, max_tokens_);
    choice_ = out;
    experts_ = experts;
    const RouteOp::Spec spec{at(scores), at(out), used, static_cast<GatingKind>(gating),
                             normalize,  scale,   near, bias ? bias->data() : nullptr};
    executor_.add(std::make_unique<RouteOp>(spec, expert_buffers_.groups, executor_.threads()));
  }
  void expert_gate(int source, int choice, const std::vector<Experts>& parts, int activation,
                   int out) {
    if (parts.empty() || parts.size() > 2) refuse("experts of no use");
    std::vector<ExpertWeight> weights;
    for (const Experts& part : parts) {
      weights.push_back(as_experts(part, source, choice));
      if (at(out).width != at(choice).width / 2 * weights.back().rows)
        refuse("experts that do not fit between their values");
    }
    const bool own = at(source).width != weights[0].all.columns;
    executor_.add(std::make_unique<ExpertGateOp>(
        at(source), own, std::move(weights), as_activation(activation), at(out), expert_buffers_));
  }
  void expert_mix(int source, int choice, const Experts& part, std::optional<int> residual,
                  int out) {
    const ExpertWeight weight = as_experts(part, source, choice);
    if (at(out).width != weight.rows) refuse("experts that do not fit between their values");
    same_shape({residual ? at(*residual) : at(out), at(out)});
    executor_.add(std::make_unique<ExpertMixOp>(at(source), at(source).width != weight.all.columns,
                                                weight, at(choice), at(residual), at(out),
                                                expert_buffers_));
  }
  void gate_rows(int source, int gate, std::optional<int> residual, int out) {
    same_shape({at(source), residual ? at(*residual) : at(out), at(out)});
    if (at(gate).width != 1 || has_selected(at(gate)) != has_selected(at(out)))
      refuse("a gate that is not one number a row");
    executor_.add(std::make_unique<GateRowsOp>(at(source), at(gate), at(residual), at(out)));
  }
  void store_kv(int query, int key, int value, const std::optional<Norm>& query_norm,
                const std::optional<Norm>& key_norm, std::optional<int> rotary,
                const Cache& cache) {
    const int64_t head_size = std::get<5>(cache);
    StoreKvOp::Spec spec{at(query),
                         at(key),
                         at(value),
                         as_norm(query_norm),
                         as_norm(key_norm),
                         rotary ? rotaries_.at(*rotary) : nullptr,
                         as_cache(cache, at(key).width / std::max<int64_t>(1, head_size))};
    if (at(key).width != at(value).width || at(key).width % head_size ||
        at(query).width % head_size || has_selected(at(query)))
      refuse("query, key and value that are not whole heads");
    if (spec.query_norm) check_runs(*spec.query_norm, spec.query);
    if (spec.key_norm) check_runs(*spec.key_norm, spec.key);
    if (spec.rotary && 2 * spec.rotary->pairs() > head_size) refuse("a turn longer than a head");
    executor_.add(std::make_unique<StoreKvOp>(std::move(spec)));
    add_group(cache, false);
  }
  void attend(int query, int out, const Cache& cache, int64_t heads, int64_t kv_heads, float scale,
              float softcap, int64_t window, const std::optional<Floats>& sinks, bool causal) {
    if (sinks && static_cast<int64_t>(sinks->size()) != heads)
      refuse("attention needs a sink per head");
    if (kv_heads < 1 || heads < 1 || heads % kv_heads)
      refuse(std::to_string(heads) + " query heads over " + std::to_string(kv_heads) +
             " key heads");
    if (!causal && window > 0) refuse("a window of tokens that see their whole sequence");
    same_shape({at(query), at(out)});
    const CacheLayer layer = as_cache(cache, kv_heads);
    if (at(query).width != heads * layer.head_size || has_selected(at(query)))
      refuse("a query that is not whole heads");
    causal_ = causal_ && causal;
    AttendOp::Spec spec{at(query), at(out),  layer,
                        heads,     kv_heads, scale,
                        softcap,   window,   sinks ? sinks->data() : nullptr,
                        causal};
    executor_.add(std::make_unique<AttendOp>(std::move(spec), attend_buffers_));
  }

  // A step allocates nothing: arrays are looked at where they are. `tables` holds, for each
  // sequence and in it each cache group, the block of each run of positions; `table_ends` where
  // each of them ends.
  void run(nb::handle ids_array, nb::handle positions_array, nb::handle counts_array,
           nb::handle tables_array, nb::handle table_ends_array, nb::handle outputs_array,
           nb::handle types_array, nb::handle rows_array, bool prompt, nb::handle logits_array) {
    const ArrayView<const int32_t> ids(ids_array, 1, "ids"),
        positions(positions_array, 1, "positions"), counts(counts_array, 1, "counts"),
        tables(tables_array, 1, "tables"), table_ends(table_ends_array, 1, "table_ends"),
        outputs(outputs_array, 1, "outputs");
    const ArrayView<float> logits(logits_array, 2, "logits");
    const bool typed = !types_array.is_none();
    const ArrayView<const int32_t> types(typed ? types_array : ids_array, 1, "types");
    const int64_t tokens = ids.size();
    if (rows_array.is_none() != !taken_width_) refuse("rows are for a program that takes them");
    std::optional<ArrayView<const float>> rows;
    if (taken_width_) {
      rows.emplace(rows_array, 2, "rows");
      if (rows->size(0) != tokens || rows->size(1) != taken_width_)
        refuse("rows have the wrong shape");
    }
    if (tokens < 1 || tokens > max_tokens_) refuse(std::to_string(tokens) + " tokens in one step");
    if (!prompt && tokens > attend_buffers_.max_tokens)
      refuse(std::to_string(tokens) + " tokens in one generation step");
    if (positions.size() != tokens) refuse("ids and positions differ in length");
    if (outputs.size() > tokens) refuse("more outputs than tokens");
    if (logits.size(0) != outputs.size() || logits.size(1) != vocabulary_)
      refuse("logits have the wrong shape");
    for (int64_t t = 0; t < tokens; ++t)
      if (embedding_rows_ && (ids[t] < 0 || ids[t] >= embedding_rows_))
        refuse("token id " + std::to_string(ids[t]) + " is not in the vocabulary");
    for (int64_t i = 0; i < outputs.size(); ++i)
      if (outputs[i] < 0 || outputs[i] >= tokens) refuse("an output that is no token");
    if (typed && types.size() != tokens) refuse("ids and types differ in length");
    for (int64_t t = 0; typed && t < tokens; ++t)
      if (types[t] < 0 || types[t] >= types_)
        refuse("token type " + std::to_string(types[t]) + " of " + std::to_string(types_));
    place_runs(positions, counts, tables, table_ends);
    const Batch batch{static_cast<int32_t>(tokens),
                      ids.data(),
                      positions.data(),
                      typed ? types.data() : nullptr,
                      rows ? rows->data() : nullptr,
                      static_cast<int32_t>(runs_.size()),
                      runs_.data(),
                      static_cast<int32_t>(outputs.size()),
                      outputs.data(),
                      prompt ? Phase::kPrompt : Phase::kGeneration,
                      logits.data()};
    GilRelease unlocked;
    executor_.run(batch, kernels_);
  }

  // Copies rows of a value that a step of so many tokens left in the arena. Only a value that
  // lives to the end of the program is still there.
  void read(int value, int64_t tokens, nb::handle out_array) const {
    const ArrayView<float> out(out_array, 2, "out");
    const ValueRef& ref = at(value);
    if (ref.logits) refuse("logits are not in the arena");
    if (tokens < 1 || tokens > max_tokens_ || out.size(0) > tokens || out.size(1) != ref.width)
      refuse("the rows of a value have another shape");
    const uint8_t* first = executor_.arena() + ref.offset * tokens;
    std::memcpy(out.data(), first, out.size(0) * ref.width * sizeof(float));
  }

 private:
  using Ints = ArrayView<const int32_t>;

  static int checked(int threads) {
    if (threads < 1 || threads > kMaxThreads) refuse(std::to_string(threads) + " threads");
    return threads;
  }
  // Remembers how many blocks a group of the cache has.
  template <class Place>
  void add_group(const Place& place, bool recurrent) {
    const size_t group = std::get<0>(place);
    if (group >= groups_.size()) groups_.resize(group + 1);
    groups_[group] = {static_cast<int64_t>(std::get<1>(place).size()) / std::get<2>(place),
                      recurrent};
  }
  bool has_linear(uint32_t type) const { return kernels_.generate[type] && kernels_.prompt[type]; }
  static ActivationKind as_activation(int activation) {
    if (activation < 0 || activation >= kActivationKinds) refuse("there is no such activation");
    return static_cast<ActivationKind>(activation);
  }
  // The experts of the latest route, one input for all that a token uses or one for each.
  ExpertWeight as_experts(const Experts& part, int source, int choice) {
    const auto& [weight, bias] = part;
    if (choice != choice_) refuse("experts must stand behind the route that chooses them");
    const WeightRef all = as_weight(weight);
    const int64_t used = at(choice).width / 2;
    if (!has_linear(static_cast<uint32_t>(all.type))) refuse("a matrix of a type without kernel");
    if (all.rows % experts_ ||
        (at(source).width != all.columns && at(source).width != used * all.columns))
      refuse("experts that do not fit between their values");
    if (has_selected(at(source)) != has_selected(at(choice))) refuse("experts that select");
    if (bias && static_cast<int64_t>(bias->size()) != all.rows)
      refuse("a bias of the wrong length");
    const ExpertWeight experts{all, all.rows / experts_, bias ? bias->data() : nullptr};
    expert_buffers_.make_room(experts_, used, all.columns, experts.is_float());
    return experts;
  }
  static bool has_selected(const ValueRef& value) { return value.selected || value.logits; }
  static void same_shape(std::initializer_list<ValueRef> values) {
    for (const ValueRef& value : values)
      if (value.width != values.begin()->width ||
          has_selected(value) != has_selected(*values.begin()))
        refuse("values of different shapes");
  }
  static void check_runs(const NormRef& norm, const ValueRef& value) {
    if (value.width % norm.length || (norm.count != norm.length && norm.count != value.width))
      refuse("a norm that does not fit its value");
  }
  void check_table(const WeightRef& table, const ValueRef& value) const {
    if (value.width != table.columns) refuse("an embedding of another width than its value");
    if (!kernels_.decode[static_cast<uint32_t>(table.type)])
      refuse("an embedding of no known type");
  }

  // Fills runs_ with the sequences of a batch, every block they may touch checked.
  void place_runs(const Ints& positions, const Ints& counts, const Ints& tables,
                  const Ints& table_ends) {
    const int64_t groups = static_cast<int64_t>(groups_.size());
    if (table_ends.size() != counts.size() * groups)
      refuse("a sequence needs a block table per group");
    runs_.clear();
    table_pointers_.resize(table_ends.size());
    int64_t first = 0, begin = 0;
    for (int64_t s = 0; s < counts.size(); ++s) {
      const int64_t count = counts[s];
      if (count < 1 || count > positions.size() - first)
        refuse("sequences do not add up to the tokens");
      if (!causal_ && positions[first] != 0)
        refuse("tokens that see later ones cannot be added to a sequence");
      int64_t deepest = 0;
      for (int64_t t = first; t < first + count; ++t) {
        if (positions[t] < 0 || positions[t] >= max_positions_)
          refuse("position " + std::to_string(positions[t]) + " is outside the context");
        if (t > first && positions[t] != positions[t - 1] + 1)
          refuse("a sequence's positions do not follow each other");
        deepest = std::max<int64_t>(deepest, positions[t]);
      }
      for (int64_t g = 0; g < groups; ++g) {
        const int64_t end = table_ends[s * groups + g];
        if (end < begin || end > tables.size() || deepest / kKvBlockTokens >= end - begin)
          refuse("position " + std::to_string(deepest) + " has no block");
        // A run may be without a state, but not those that the step reads and ends in.
        const bool recurrent = groups_[g].recurrent;
        for (int64_t i = begin; i < end; ++i)
          if (tables[i] < (recurrent ? -1 : 0) || tables[i] >= groups_[g].blocks)
            refuse("block " + std::to_string(tables[i]) + " is not in the cache");
        const auto has_state = [&](int64_t position) {
          return tables[begin + position / kKvBlockTokens] >= 0;
        };
        const int64_t start = positions[first];
        if (recurrent && (!has_state(deepest) || (start > 0 && !has_state(start - 1))))
          refuse("position " + std::to_string(deepest) + " has no state");
        table_pointers_[s * groups + g] = tables.data() + begin;
        begin = end;
      }
      runs_.push_back({static_cast<int32_t>(first), static_cast<int32_t>(count),
                       table_pointers_.data() + s * groups});
      first += count;
    }
    if (first != positions.size()) refuse("sequences do not add up to the tokens");
  }

  ValueRef at(int id) const { return values_.at(id); }
  std::optional<ValueRef> at(std::optional<int> id) const {
    return id ? std::optional(values_.at(*id)) : std::nullopt;
  }

  const KernelTable& kernels_;  // those in use when the program was made: buffers fit them
  Executor executor_;
  const int64_t max_tokens_, max_positions_;
  LinearOp::Buffers buffers_;
  ExpertBuffers expert_buffers_;
  int choice_ = -1;  // of the latest route, whose groups the experts behind it use
  int64_t experts_ = 0;
  AttendOp::Buffers attend_buffers_;
  int64_t vocabulary_ = 0, types_ = 1;
  int64_t embedding_rows_ = 0, taken_width_ = 0;  // of the operation that begins the program
  bool causal_ = true;
  struct Group {
    int64_t blocks = 0;
    bool recurrent = false;
  };
  std::vector<Group> groups_;  // of the cache
  std::vector<ValueRef> values_;
  std::vector<const RotaryTable*> rotaries_;
  std::vector<SequenceRun> runs_;
  std::vector<const int32_t*> table_pointers_;
};

}  // namespace

void bind_executor(nb::module_& module) {
  module.attr("KV_BLOCK_TOKENS") = kKvBlockTokens;
  module.attr("MAX_GENERATION_TOKENS") = kMaxGenerationTokens;
  module.def(
      "has_linear",
      [](uint32_t type) { return find_type(type) && active_kernels().generate[type] != nullptr; },
      nb::arg("type"), "Whether matrices of a type can be multiplied.");
  nb::class_<Program>(module, "Program")
      .def(nb::init<int, int64_t, int64_t, int64_t, int64_t>(), nb::kw_only(), nb::arg("threads"),
           nb::arg("arena_bytes_per_token"), nb::arg("max_tokens"), nb::arg("max_positions"),
           nb::arg("max_width"))
      .def("value", &Program::value, nb::kw_only(), nb::arg("offset"), nb::arg("width"),
           nb::arg("selected"), nb::arg("logits"))
      .def("embed", &Program::embed, nb::kw_only(), nb::arg("weight"), nb::arg("scale"),
           nb::arg("positions").none(), nb::arg("types").none(), nb::arg("out"))
      .def("take_rows", &Program::take_rows, nb::kw_only(), nb::arg("out"))
      .def("norm", &Program::norm, nb::kw_only(), nb::arg("norm"), nb::arg("source"),
           nb::arg("residual").none(), nb::arg("out"))
      .def("select", &Program::select, nb::kw_only(), nb::arg("source"), nb::arg("out"))
      .def("activate", &Program::activate, nb::kw_only(), nb::arg("gate"), nb::arg("up").none(),
           nb::arg("kind"), nb::arg("out"))
      .def("causal_conv", &Program::causal_conv, nb::kw_only(), nb::arg("source"),
           nb::arg("weight"), nb::arg("bias"), nb::arg("out"), nb::arg("state"))
      .def("state_scan", &Program::state_scan, nb::kw_only(), nb::arg("x"), nb::arg("step"),
           nb::arg("b"), nb::arg("c"), nb::arg("out"), nb::arg("decay"), nb::arg("skip"),
           nb::arg("groups"), nb::arg("state"))
      .def("softcap", &Program::softcap, nb::kw_only(), nb::arg("source"), nb::arg("cap"),
           nb::arg("out"))
      .def("rotary", &Program::rotary, nb::kw_only(), nb::arg("speeds"), nb::arg("magnitude"),
           nb::arg("adjacent"))
      .def("linear", &Program::linear, nb::kw_only(), nb::arg("source"), nb::arg("norm").none(),
           nb::arg("parts"), nb::arg("activation").none())
      .def("route", &Program::route, nb::kw_only(), nb::arg("scores"), nb::arg("out"),
           nb::arg("used"), nb::arg("gating"), nb::arg("normalize"), nb::arg("scale"),
           nb::arg("near"), nb::arg("bias").none())
      .def("expert_gate", &Program::expert_gate, nb::kw_only(), nb::arg("source"),
           nb::arg("choice"), nb::arg("parts"), nb::arg("activation"), nb::arg("out"))
      .def("expert_mix", &Program::expert_mix, nb::kw_only(), nb::arg("source"), nb::arg("choice"),
           nb::arg("part"), nb::arg("residual").none(), nb::arg("out"))
      .def("gate_rows", &Program::gate_rows, nb::kw_only(), nb::arg("source"), nb::arg("gate"),
           nb::arg("residual").none(), nb::arg("out"))
      .def("store_kv", &Program::store_kv, nb::kw_only(), nb::arg("query"), nb::arg("key"),
           nb::arg("value"), nb::arg("query_norm").none(), nb::arg("key_norm").none(),
           nb::arg("rotary").none(), nb::arg("cache"))
      .def("attend", &Program::attend, nb::kw_only(), nb::arg("query"), nb::arg("out"),
           nb::arg("cache"), nb::arg("heads"), nb::arg("kv_heads"), nb::arg("scale"),
           nb::arg("softcap"), nb::arg("window"), nb::arg("sinks").none(), nb::arg("causal"))
      .def("run", &Program::run, nb::kw_only(), nb::arg("ids"), nb::arg("positions"),
           nb::arg("counts"), nb::arg("tables"), nb::arg("table_ends"), nb::arg("outputs"),
           nb::arg("types").none(), nb::arg("rows").none(), nb::arg("prompt"), nb::arg("logits"))
      .def("read", &Program::read, nb::kw_only(), nb::arg("value"), nb::arg("tokens"),
           nb::arg("out"));
}
