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
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "executor/linear_op.h"
#include "executor/ops.h"
#include "isa/dispatch.h"

namespace nb = nanobind;
using namespace ingot;

namespace {

template <class T>
using Flat = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Floats = Flat<const float>;
using Ints = Flat<const int32_t>;
using Weight =
    std::tuple<Flat<const uint8_t>, uint32_t, int64_t, int64_t>;  // bytes, type, rows, columns
using Norm =
    std::tuple<Floats, std::optional<Floats>, float, bool>;  // weight, bias, epsilon, layer
using Part =
    std::tuple<Weight, std::optional<Floats>, std::optional<int>, int>;  // bias, residual, out
// group, pool, block bytes, offset in block, type, head size
using Cache = std::tuple<int, Flat<uint8_t>, int64_t, int64_t, uint32_t, int64_t>;

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
  const auto& [weight, bias, epsilon, layer] = n;
  if (bias && bias->size() != weight.size()) refuse("a norm's weight and bias differ in length");
  return {weight.data(), bias ? bias->data() : nullptr, static_cast<int64_t>(weight.size()),
          epsilon, layer};
}

std::optional<NormRef> as_norm(const std::optional<Norm>& n) {
  return n ? std::optional(as_norm(*n)) : std::nullopt;
}

CacheLayer as_cache(const Cache& c) {
  const auto& [group, pool, block_bytes, offset, type, head_size] = c;
  if (head_size < 1 || head_size > kMaxHeadSize)
    refuse("heads of " + std::to_string(head_size) + " elements");
  return {group, pool.data(), block_bytes, offset, static_cast<TensorType>(type), head_size};
}

class Program {
 public:
  Program(int threads, int64_t arena_bytes_per_token, int64_t max_tokens, int64_t max_positions,
          int64_t max_width)
      : executor_(threads, arena_bytes_per_token, max_tokens),
        max_tokens_(max_tokens),
        max_positions_(max_positions),
        buffers_(active_kernels(), threads, max_tokens, max_width),
        attend_buffers_(threads, std::min(max_tokens, kMaxGenerationTokens), max_positions) {}

  int value(int64_t offset, int64_t width, bool selected, bool logits) {
    values_.push_back({offset, width, selected, logits});
    if (logits) vocabulary_ = width;
    return static_cast<int>(values_.size()) - 1;
  }

  void embed(const Weight& weight, float scale, int out) {
    embedding_rows_ = std::get<2>(weight);
    executor_.add(std::make_unique<EmbedOp>(as_weight(weight), scale, at(out)));
  }
  void norm(const Norm& norm, int source, std::optional<int> residual, int out) {
    executor_.add(std::make_unique<NormOp>(as_norm(norm), at(source), at(residual), at(out)));
  }
  void select(int source, int out) {
    executor_.add(std::make_unique<SelectOp>(at(source), at(out)));
  }
  void softcap(int source, float cap, int out) {
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
    for (const auto& [weight, bias, residual, out] : parts) {
      const WeightRef ref = as_weight(weight);
      if (ref.columns != spec.source.width) refuse("a weight's columns are not its source's width");
      if (bias && static_cast<int64_t>(bias->size()) != ref.rows)
        refuse("a bias of the wrong length");
      spec.parts.push_back({ref, bias ? bias->data() : nullptr, at(residual), at(out)});
    }
    if (activation) spec.gate = static_cast<ActivationKind>(*activation);
    executor_.add(std::make_unique<LinearOp>(std::move(spec), buffers_));
  }
  void store_kv(int query, int key, int value, const std::optional<Norm>& query_norm,
                const std::optional<Norm>& key_norm, std::optional<int> rotary,
                const Cache& cache) {
    executor_.add(std::make_unique<StoreKvOp>(
        StoreKvOp::Spec{at(query), at(key), at(value), as_norm(query_norm), as_norm(key_norm),
                        rotary ? rotaries_.at(*rotary) : nullptr, as_cache(cache)}));
    groups_ = std::max(groups_, std::get<0>(cache) + 1);
  }
  void attend(int query, int out, const Cache& cache, int64_t heads, int64_t kv_heads, float scale,
              float softcap, int64_t window, const std::optional<Floats>& sinks) {
    if (sinks && static_cast<int64_t>(sinks->size()) != heads)
      refuse("attention needs a sink per head");
    if (kv_heads < 1 || heads % kv_heads || heads / kv_heads > AttendOp::kTileRows)
      refuse(std::to_string(heads) + " query heads over " + std::to_string(kv_heads) +
             " key heads");
    executor_.add(std::make_unique<AttendOp>(
        AttendOp::Spec{at(query), at(out), as_cache(cache), heads, kv_heads, scale, softcap, window,
                       sinks ? sinks->data() : nullptr},
        attend_buffers_));
  }

  // tables: per sequence, per cache group, the block of each run of positions.
  void run(Ints ids, Ints positions, Ints run_counts, const std::vector<std::vector<Ints>>& tables,
           Ints outputs, bool prompt,
           nb::ndarray<float, nb::ndim<2>, nb::c_contig, nb::device::cpu> logits) {
    const int64_t tokens = ids.size();
    if (tokens < 1 || tokens > max_tokens_) refuse(std::to_string(tokens) + " tokens in one step");
    if (!prompt && tokens > attend_buffers_.max_tokens)
      refuse(std::to_string(tokens) + " tokens in one generation step");
    if (static_cast<int64_t>(positions.size()) != tokens)
      refuse("ids and positions differ in length");
    if (tables.size() != run_counts.size()) refuse("a sequence without block tables");
    if (logits.shape(0) != outputs.size() || static_cast<int64_t>(logits.shape(1)) != vocabulary_)
      refuse("logits have the wrong shape");
    runs_.clear();
    table_pointers_.clear();
    table_pointers_.reserve(tables.size() * groups_);
    int32_t first = 0;
    for (size_t s = 0; s < tables.size(); ++s) {
      if (static_cast<int>(tables[s].size()) != groups_)
        refuse("a sequence needs a block table per group");
      const int32_t count = run_counts.data()[s];
      if (count < 1 || first + count > tokens) refuse("sequences do not add up to the tokens");
      for (const Ints& table : tables[s]) {
        for (int32_t t = first; t < first + count; ++t)
          if (positions.data()[t] < 0 || positions.data()[t] >= max_positions_ ||
              positions.data()[t] / kKvBlockTokens >= static_cast<int64_t>(table.size()))
            refuse("position " + std::to_string(positions.data()[t]) + " has no block");
        table_pointers_.push_back(table.data());
      }
      runs_.push_back({first, count, nullptr});
      first += count;
    }
    if (first != tokens) refuse("sequences do not add up to the tokens");
    for (size_t s = 0; s < runs_.size(); ++s)
      runs_[s].tables = table_pointers_.data() + s * groups_;
    for (int64_t t = 0; t < tokens; ++t)
      if (ids.data()[t] < 0 || ids.data()[t] >= embedding_rows_)
        refuse("token id " + std::to_string(ids.data()[t]) + " is not in the vocabulary");
    for (size_t i = 0; i < outputs.size(); ++i)
      if (outputs.data()[i] < 0 || outputs.data()[i] >= tokens)
        refuse("an output that is no token");
    const Batch batch{static_cast<int32_t>(tokens),
                      ids.data(),
                      positions.data(),
                      static_cast<int32_t>(runs_.size()),
                      runs_.data(),
                      static_cast<int32_t>(outputs.size()),
                      outputs.data(),
                      prompt ? Phase::kPrompt : Phase::kGeneration,
                      logits.data()};
    nb::gil_scoped_release unlocked;
    executor_.run(batch, active_kernels());
  }

 private:
  ValueRef at(int id) const { return values_.at(id); }
  std::optional<ValueRef> at(std::optional<int> id) const {
    return id ? std::optional(values_.at(*id)) : std::nullopt;
  }

  Executor executor_;
  const int64_t max_tokens_, max_positions_;
  LinearOp::Buffers buffers_;
  AttendOp::Buffers attend_buffers_;
  int64_t vocabulary_ = 0, embedding_rows_ = 0;
  int groups_ = 0;
  std::vector<ValueRef> values_;
  std::vector<const RotaryTable*> rotaries_;
  std::vector<SequenceRun> runs_;
  std::vector<const int32_t*> table_pointers_;
};

}  // namespace

void bind_executor(nb::module_& module) {
  module.attr("KV_BLOCK_TOKENS") = kKvBlockTokens;
  module.attr("MAX_GENERATION_TOKENS") = kMaxGenerationTokens;
  nb::class_<Program>(module, "Program")
      .def(nb::init<int, int64_t, int64_t, int64_t, int64_t>(), nb::kw_only(), nb::arg("threads"),
           nb::arg("arena_bytes_per_token"), nb::arg("max_tokens"), nb::arg("max_positions"),
           nb::arg("max_width"))
      .def("value", &Program::value, nb::kw_only(), nb::arg("offset"), nb::arg("width"),
           nb::arg("selected"), nb::arg("logits"))
      .def("embed", &Program::embed, nb::kw_only(), nb::arg("weight"), nb::arg("scale"),
           nb::arg("out"))
      .def("norm", &Program::norm, nb::kw_only(), nb::arg("norm"), nb::arg("source"),
           nb::arg("residual").none(), nb::arg("out"))
      .def("select", &Program::select, nb::kw_only(), nb::arg("source"), nb::arg("out"))
      .def("softcap", &Program::softcap, nb::kw_only(), nb::arg("source"), nb::arg("cap"),
           nb::arg("out"))
      .def("rotary", &Program::rotary, nb::kw_only(), nb::arg("speeds"), nb::arg("magnitude"),
           nb::arg("adjacent"))
      .def("linear", &Program::linear, nb::kw_only(), nb::arg("source"), nb::arg("norm").none(),
           nb::arg("parts"), nb::arg("activation").none())
      .def("store_kv", &Program::store_kv, nb::kw_only(), nb::arg("query"), nb::arg("key"),
           nb::arg("value"), nb::arg("query_norm").none(), nb::arg("key_norm").none(),
           nb::arg("rotary").none(), nb::arg("cache"))
      .def("attend", &Program::attend, nb::kw_only(), nb::arg("query"), nb::arg("out"),
           nb::arg("cache"), nb::arg("heads"), nb::arg("kv_heads"), nb::arg("scale"),
           nb::arg("softcap"), nb::arg("window"), nb::arg("sinks").none())
      .def("run", &Program::run, nb::kw_only(), nb::arg("ids"), nb::arg("positions"),
           nb::arg("run_counts"), nb::arg("tables"), nb::arg("outputs"), nb::arg("prompt"),
           nb::arg("logits"));
}
