#include "bindings/program.h"

#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "bindings/gil.h"
#include "executor/pieces.h"
#include "isa/dispatch.h"

namespace ingot {

namespace {

constexpr int kMaxThreads = 1024;

int checked(int threads) {
  if (threads < 1 || threads > kMaxThreads) refuse(std::to_string(threads) + " threads");
  return threads;
}

Seats checked(const std::vector<Program::SeatRecord>& records, int threads) {
  Seats seats;
  for (const auto& [cpus, node, replica] : records) {
    if (node < 0 || replica < 0 || replica > node) refuse("a seat without a node or a replica");
    for (const int cpu : cpus)
      if (cpu < 0) refuse("a seat at CPU " + std::to_string(cpu));
    seats.push_back({cpus, node, replica});
  }
  if (!seats.empty() && static_cast<int>(seats.size()) != threads)
    refuse(std::to_string(seats.size()) + " seats for " + std::to_string(threads) + " threads");
  return seats;
}

}  // namespace

WeightRef Matrix::ref() const {
  const TypeTraits* traits = find_type(type);
  if (!traits || rows < 1 || columns < 1 || columns % traits->block_weights)
    refuse("a weight of type " + std::to_string(type) + " cannot have rows of " +
           std::to_string(columns));
  const WeightRef ref{data.data(), static_cast<TensorType>(type), rows, columns};
  if (static_cast<int64_t>(data.size()) != rows * ref.row_bytes())
    refuse(std::string(traits->name) + ": " + std::to_string(data.size()) + " bytes are not " +
           std::to_string(rows) + " rows of " + std::to_string(columns));
  return ref;
}

CacheLayer KvPlace::layer(int64_t heads) const {
  const TypeTraits& traits = *find_type(static_cast<uint32_t>(type));
  if (head_size < 1 || head_size > kMaxHeadSize || head_size % traits.block_weights)
    refuse("heads of " + std::to_string(head_size) + " elements cannot be cached as " +
           traits.name);
  const CacheLayer layer{group,     pool.data(), block_bytes, offset, static_cast<TensorType>(type),
                         head_size, shared_value};
  if (shared_value < 0 || shared_value > head_size || (shared_value && heads != 1))
    refuse("values of " + std::to_string(shared_value) + " elements inside keys of " +
           std::to_string(heads) + " heads of " + std::to_string(head_size));
  if (group < 0 || offset < 0 ||
      offset + layer.sides() * heads * layer.head_bytes() > block_bytes ||
      static_cast<int64_t>(pool.size()) % block_bytes)
    refuse("a layer of the cache outside its blocks");
  return layer;
}

StateRef StatePlace::ref(int64_t floats) const {
  if (group < 0 || offset < 0 || block_bytes < 1 || block_bytes % 4 || offset % 4 ||
      offset + floats * 4 > block_bytes || static_cast<int64_t>(pool.size()) % block_bytes)
    refuse("a state outside its blocks");
  return {group, pool.data(), block_bytes, offset};
}

Program::Program(int threads, const std::vector<SeatRecord>& seats, Precision precision,
                 int64_t arena_bytes_per_token, int64_t max_tokens, int64_t max_positions)
    : kernels(active_kernels(precision)),
      max_tokens(max_tokens),
      max_positions(max_positions),
      linear_buffers(kernels, threads, max_tokens),
      expert_buffers(kernels, threads, max_tokens),
      attend_buffers(threads, std::min(max_tokens, kMaxGenerationTokens), max_positions),
      head_buffers(threads),
      expanded_buffers(threads, max_tokens),
      choose_buffers(threads, max_positions),
      copies(kernels, checked(seats, threads)),
      executor_(checked(threads), checked(seats, threads), arena_bytes_per_token, max_tokens) {}

int Program::value(int64_t offset, int64_t width, bool selected, bool logits) {
  values_.push_back({offset, width, selected, logits});
  if (logits) vocabulary_ = width;
  return static_cast<int>(values_.size()) - 1;
}

void Program::add(nb::handle_t<Operation> operation) {
  records_.push_back(nb::borrow(operation));
  nb::cast<const Operation&>(operation).add_to(*this);
}

NormRef Program::norm(const Normalization& record, const ValueRef& value) {
  const float* weight = data(record.weight);
  if (!weight) weight = ones_.emplace_back(std::max<int64_t>(record.run, 1), 1.0f).data();
  const int64_t count = record.weight ? length(*record.weight) : record.run;
  if (record.bias && length(*record.bias) != count)
    refuse("a norm's weight and bias differ in length");
  if (record.run < 1 || count < 1 || count % record.run)
    refuse("a norm's weight that is not whole runs");
  if (value.width % record.run || (count != record.run && count != value.width))
    refuse("a norm that does not fit its value");
  return {weight, data(record.bias), count, record.run, record.epsilon, record.kind};
}

const RotaryTable* Program::rotary(const Rotary& rotary) {
  for (const RotaryTable* table : rotaries_)
    if (table->rotary() == rotary) return table;
  auto table = std::make_unique<RotaryTable>(rotary, max_tokens);
  rotaries_.push_back(table.get());
  executor_.add(std::move(table));
  return rotaries_.back();
}

void Program::add_group(int group, int64_t blocks, bool recurrent) {
  if (group >= static_cast<int>(groups_.size())) groups_.resize(group + 1);
  groups_[group] = {blocks, recurrent};
}

// A step allocates nothing: arrays are looked at where they are. `tables` holds, for each
// sequence and in it each cache group, the block of each run of positions; `table_ends` where
// each of them ends.
double Program::run(nb::handle ids_array, nb::handle positions_array, nb::handle counts_array,
                    nb::handle tables_array, nb::handle table_ends_array, nb::handle outputs_array,
                    nb::handle types_array, nb::handle rows_array, nb::handle adapters_array,
                    nb::handle scales_array, nb::handle encoded_array, nb::handle expanded_array,
                    bool prompt, nb::handle logits_array, int threads) {
  const ArrayView<const int32_t> ids(ids_array, 1, "ids"),
      positions(positions_array, 1, "positions"), counts(counts_array, 1, "counts"),
      tables(tables_array, 1, "tables"), table_ends(table_ends_array, 1, "table_ends"),
      outputs(outputs_array, 1, "outputs");
  const ArrayView<float> logits(logits_array, 2, "logits");
  const bool typed = !types_array.is_none();
  const ArrayView<const int32_t> types(typed ? types_array : ids_array, 1, "types");
  const int64_t tokens = ids.size();
  if (rows_array.is_none() != !batch.taken_width) refuse("rows are for a program that takes them");
  std::optional<ArrayView<const float>> rows;
  if (batch.taken_width) {
    rows.emplace(rows_array, 2, "rows");
    if (rows->size(0) != tokens || rows->size(1) != batch.taken_width)
      refuse("rows have the wrong shape");
  }
  if (tokens < 1 || tokens > max_tokens) refuse(std::to_string(tokens) + " tokens in one step");
  if (threads < 1 || threads > executor_.threads()) refuse(std::to_string(threads) + " threads");
  if (!prompt && tokens > attend_buffers.max_tokens)
    refuse(std::to_string(tokens) + " tokens in one generation step");
  if (positions.size() != tokens) refuse("ids and positions differ in length");
  if (outputs.size() > tokens) refuse("more outputs than tokens");
  if (logits.size(0) != outputs.size() || logits.size(1) != vocabulary_)
    refuse("logits have the wrong shape");
  for (int64_t t = 0; t < tokens; ++t)
    if (batch.token_ids && (ids[t] < 0 || ids[t] >= batch.token_ids))
      refuse("token id " + std::to_string(ids[t]) + " is not in the vocabulary");
  for (int64_t i = 0; i < outputs.size(); ++i)
    if (outputs[i] < 0 || outputs[i] >= tokens) refuse("an output that is no token");
  if (typed && types.size() != tokens) refuse("ids and types differ in length");
  for (int64_t t = 0; typed && t < tokens; ++t)
    if (types[t] < 0 || types[t] >= batch.types)
      refuse("token type " + std::to_string(types[t]) + " of " + std::to_string(batch.types));
  place_runs(positions, counts, tables, table_ends);
  place_encoded(encoded_array, positions);
  place_expanded(expanded_array, prompt);
  const Batch inputs{static_cast<int32_t>(tokens),
                     ids.data(),
                     positions.data(),
                     typed ? types.data() : nullptr,
                     rows ? rows->data() : nullptr,
                     static_cast<int32_t>(runs_.size()),
                     runs_.data(),
                     static_cast<int32_t>(outputs.size()),
                     outputs.data(),
                     prompt ? Phase::kPrompt : Phase::kGeneration,
                     logits.data(),
                     sort_adapted(adapters_array, scales_array, outputs)};
  GilRelease unlocked;
  return executor_.run(inputs, kernels, threads);
}

// The rows of the sequences that use adapters; null: none does.
const AdaptedStep* Program::sort_adapted(nb::handle adapters_array, nb::handle scales_array,
                                         const Ints& outputs) {
  if (adapters_array.is_none()) return nullptr;
  const Ints adapters(adapters_array, 1, "adapters");
  const ArrayView<const float> scales(scales_array, 1, "adapter_scales");
  const int64_t sequences = static_cast<int64_t>(runs_.size());
  if (adapters.size() != sequences || scales.size() != sequences)
    refuse("a sequence needs an adapter and its scale");
  uses_.clear();
  for (int64_t s = 0; s < sequences; ++s) {
    if (adapters[s] >= slots_) refuse("adapter " + std::to_string(adapters[s]) + " is not there");
    uses_.insert(uses_.end(), runs_[s].count, {adapters[s], scales[s]});
  }
  adapted_.all.sort(static_cast<int64_t>(uses_.size()), [&](int32_t row) { return uses_[row]; });
  adapted_.selected.sort(outputs.size(), [&](int32_t row) { return uses_[outputs[row]]; });
  return &adapted_;
}

void Program::adapt(int slot, int op, int part, nb::handle weights) {
  AdaptableOp* target = adaptable_.at(op);
  if (slot < 0 || part < 0 || part >= target->parts()) refuse("a part that is not there");
  const std::array<int, 3> place{slot, op, part};
  if (weights.is_none()) {
    target->adapt(part, slot, std::nullopt);
    adapters_.erase(place);
    return;
  }
  const LowRankRecord& record = nb::cast<const LowRankRecord&>(weights);
  const WeightRef down = record.down.ref();
  const bool is_table = target->is_table();
  const int64_t stacked = target->stacked();
  const int64_t rank = is_table ? down.columns : down.rows / stacked;
  const LowRank added{down, record.up.ref(), rank, record.scale};
  for (const WeightRef* matrix : {&added.down, &added.up})
    if (matrix->type != TensorType::F32 && matrix->type != TensorType::F16 &&
        matrix->type != TensorType::BF16)
      refuse("an adapter is made of floats");
  const WeightRef& matrix = target->matrix(part);
  const int64_t outputs = is_table ? matrix.columns : target->outputs(part);
  const bool fits = (is_table ? down.rows == matrix.rows : down.columns == matrix.columns) &&
                    down.rows % stacked == 0 && added.up.columns == kUpPanel &&
                    added.up.rows == stacked * count_pieces(outputs, kUpPanel) * rank;
  if (!fits) refuse("an adapter that does not fit its matrix");
  target->adapt(part, slot, added);
  adapters_[place] = nb::borrow(weights);
  slots_ = std::max(slots_, slot + 1);
}

void Program::read(int value, int64_t tokens, nb::handle out_array) const {
  const ArrayView<float> out(out_array, 2, "out");
  const ValueRef ref = at(value);
  if (ref.logits) refuse("logits are not in the arena");
  if (tokens < 1 || tokens > max_tokens || out.size(0) > tokens || out.size(1) != ref.width)
    refuse("the rows of a value have another shape");
  const uint8_t* first = executor_.arena() + ref.offset * tokens;
  std::memcpy(out.data(), first, out.size(0) * ref.width * sizeof(float));
}

// Fills runs_ with the sequences of a batch, every block they may touch checked.
void Program::place_runs(const Ints& positions, const Ints& counts, const Ints& tables,
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
    if (!batch.causal && positions[first] != 0)
      refuse("tokens that see later ones cannot be added to a sequence");
    int64_t deepest = 0;
    for (int64_t t = first; t < first + count; ++t) {
      if (positions[t] < 0 || positions[t] >= max_positions)
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
                     table_pointers_.data() + s * groups, 0, false});
    first += count;
  }
  if (first != positions.size()) refuse("sequences do not add up to the tokens");
}

// Notes in runs_ how much of each sequence an encoder wrote, for a program that looks at it.
void Program::place_encoded(nb::handle encoded_array, const Ints& positions) {
  if (encoded_array.is_none() != !batch.encoded)
    refuse("encoded positions are for a program that looks at them");
  if (!batch.encoded) return;
  const Ints encoded(encoded_array, 1, "encoded");
  if (encoded.size() != static_cast<int64_t>(runs_.size()))
    refuse("a sequence needs the number of its encoded positions");
  for (int64_t s = 0; s < encoded.size(); ++s) {
    if (encoded[s] < 1 || encoded[s] > positions[runs_[s].first])
      refuse(std::to_string(encoded[s]) + " encoded positions before position " +
             std::to_string(positions[runs_[s].first]));
    runs_[s].encoded = encoded[s];
  }
}

// Notes in runs_ for which sequences latents are expanded.
void Program::place_expanded(nb::handle expanded_array, bool prompt) {
  if (expanded_array.is_none()) return;
  if (!prompt) refuse("latents are expanded for prompts alone");
  const Ints expanded(expanded_array, 1, "expanded");
  if (expanded.size() != static_cast<int64_t>(runs_.size()))
    refuse("a sequence needs a word on whether it is expanded");
  for (int64_t s = 0; s < expanded.size(); ++s) runs_[s].expanded = expanded[s] != 0;
}

}  // namespace ingot

using namespace ingot;

void bind_row_operations(nb::module_& module);
void bind_linear_operations(nb::module_& module);
void bind_attention_operations(nb::module_& module);
void bind_expert_operations(nb::module_& module);
void bind_recurrent_operations(nb::module_& module);
void bind_stream_operations(nb::module_& module);

void bind_program(nb::module_& module) {
  module.attr("KV_BLOCK_TOKENS") = kKvBlockTokens;
  module.attr("MAX_GENERATION_TOKENS") = kMaxGenerationTokens;
  module.attr("OPERATIONS") = nb::dict();
  module.attr("PARTS") = nb::dict();
  module.attr("UP_PANEL") = kUpPanel;
  module.def(
      "has_linear",
      [](uint32_t type) { return find_type(type) && active_kernels().generate[type] != nullptr; },
      nb::arg("type"), "Whether matrices of a type can be multiplied.");
  nb::class_<Operation>(module, "Operation");
  bind_part(module, "Matrix", Field{"data", &Matrix::data}, Field{"type", &Matrix::type},
            Field{"rows", &Matrix::rows}, Field{"columns", &Matrix::columns});
  bind_part(module, "LowRank", Field{"down", &LowRankRecord::down}, Field{"up", &LowRankRecord::up},
            Field{"scale", &LowRankRecord::scale});
  bind_part(module, "KvPlace", Field{"group", &KvPlace::group}, Field{"pool", &KvPlace::pool},
            Field{"block_bytes", &KvPlace::block_bytes}, Field{"offset", &KvPlace::offset},
            Field{"type", &KvPlace::type}, Field{"head_size", &KvPlace::head_size},
            Field{"shared_value", &KvPlace::shared_value});
  bind_part(module, "StatePlace", Field{"group", &StatePlace::group},
            Field{"pool", &StatePlace::pool}, Field{"block_bytes", &StatePlace::block_bytes},
            Field{"offset", &StatePlace::offset});
  bind_part(module, "Normalization", Field{"weight", &Normalization::weight},
            Field{"bias", &Normalization::bias}, Field{"kind", &Normalization::kind},
            Field{"epsilon", &Normalization::epsilon}, Field{"run", &Normalization::run});
  bind_row_operations(module);
  bind_linear_operations(module);
  bind_attention_operations(module);
  bind_expert_operations(module);
  bind_recurrent_operations(module);
  bind_stream_operations(module);
  nb::class_<Program>(module, "Program")
      .def(nb::init<int, const std::vector<Program::SeatRecord>&, Precision, int64_t, int64_t,
                    int64_t>(),
           nb::kw_only(), nb::arg("threads"), nb::arg("seats"), nb::arg("precision"),
           nb::arg("arena_bytes_per_token"), nb::arg("max_tokens"), nb::arg("max_positions"))
      .def("value", &Program::value, nb::kw_only(), nb::arg("offset"), nb::arg("width"),
           nb::arg("selected"), nb::arg("logits"))
      .def("add", nb::overload_cast<nb::handle_t<Operation>>(&Program::add), nb::arg("operation"))
      .def("run", &Program::run, nb::kw_only(), nb::arg("ids"), nb::arg("positions"),
           nb::arg("counts"), nb::arg("tables"), nb::arg("table_ends"), nb::arg("outputs"),
           nb::arg("types").none(), nb::arg("rows").none(), nb::arg("adapters").none(),
           nb::arg("adapter_scales").none(), nb::arg("encoded").none(), nb::arg("expanded").none(),
           nb::arg("prompt"), nb::arg("logits"), nb::arg("threads"))
      .def("adapt", &Program::adapt, nb::kw_only(), nb::arg("slot"), nb::arg("op"), nb::arg("part"),
           nb::arg("weights").none())
      .def("read", &Program::read, nb::kw_only(), nb::arg("value"), nb::arg("tokens"),
           nb::arg("out"))
      .def_prop_ro(
          "copied_bytes", [](const Program& program) { return program.copies.bytes(); },
          "Bytes of the copies that `copy_next` writes.")
      .def_prop_ro("copies_replace",
                   [](const Program& program) { return program.copies.replace_matrices(); })
      .def(
          "copy_next",
          [](Program& program) {
            GilRelease unlocked;
            return program.copies.write_next();
          },
          "Write the next copy of a matrix, while the program may run; False: all are written.");
}
