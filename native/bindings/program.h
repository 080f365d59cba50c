// A program is built operation by operation from Python, then run.
//
// The program keeps every record that was added, and with it the arrays that its operations point
// into (weights, biases, cache pools).
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "bindings/array_view.h"
#include "bindings/record.h"
#include "executor/adapters.h"
#include "executor/choose_op.h"
#include "executor/delta_op.h"
#include "executor/executor.h"
#include "executor/expanded_attention.h"
#include "executor/expert_ops.h"
#include "executor/head_ops.h"
#include "executor/linear_op.h"
#include "executor/ops.h"
#include "executor/recurrent_ops.h"
#include "executor/weight_copy.h"

namespace ingot {

[[noreturn]] inline void refuse(const std::string& reason) { throw std::invalid_argument(reason); }

class Program;

// The record of an operation. `add_to` checks it against the program and adds what it stands for.
struct Operation {
  virtual ~Operation() = default;
  virtual void add_to(Program& program) const = 0;
};

// A tensor as the file stores it.
struct Matrix {
  Flat<const uint8_t> data;
  uint32_t type;
  int64_t rows, columns;

  WeightRef ref() const;
};

// Where a layer's keys and values lie: `offset` bytes into every block of a pool.
struct KvPlace {
  int group;
  Flat<uint8_t> pool;
  int64_t block_bytes, offset;
  KvType type;
  int64_t head_size, shared_value;

  CacheLayer layer(int64_t heads) const;
};

// Where the states of a recurrent operation lie.
struct StatePlace {
  int group;
  Flat<uint8_t> pool;
  int64_t block_bytes, offset;

  StateRef ref(int64_t floats) const;
};

// How a row, or each run of it, is normalized.
struct Normalization {
  std::optional<Floats> weight, bias;
  NormKind kind;
  float epsilon;
  int64_t run;
};

// What an adapter adds to a matrix.
struct LowRankRecord {
  Matrix down, up;  // up in panels, see LowRank
  float scale;
};

class Program {
 public:
  // The CPUs of a member of the team, its NUMA node and its replica of the weights' copies.
  using SeatRecord = std::tuple<std::vector<int>, int, int>;
  Program(int threads, const std::vector<SeatRecord>& seats, Precision precision,
          int64_t arena_bytes_per_token, int64_t max_tokens, int64_t max_positions);

  int value(int64_t offset, int64_t width, bool selected, bool logits);
  void add(nb::handle_t<Operation> operation);
  // Returns the seconds that one thread waited for others.
  double run(nb::handle ids, nb::handle positions, nb::handle counts, nb::handle tables,
             nb::handle table_ends, nb::handle outputs, nb::handle types, nb::handle rows,
             nb::handle adapters, nb::handle adapter_scales, nb::handle encoded,
             nb::handle expanded, bool prompt, nb::handle logits, int threads);
  // What the adapter of a slot adds to a part of an operation that can be adapted, by their
  // numbers; None: nothing.
  void adapt(int slot, int op, int part, nb::handle weights);
  // Copies rows of a value that a step of so many tokens left in the arena. Only a value that
  // lives to the end of the program is still there.
  void read(int value, int64_t tokens, nb::handle out) const;

  // For operations.
  void add(std::unique_ptr<Op> op) { executor_.add(std::move(op)); }
  void add_adaptable(std::unique_ptr<AdaptableOp> op) {
    adaptable_.push_back(op.get());
    add(std::move(op));
  }
  int threads() const { return executor_.threads(); }
  ValueRef at(int id) const { return values_.at(id); }
  std::optional<ValueRef> at(std::optional<int> id) const {
    return id ? std::optional(values_.at(*id)) : std::nullopt;
  }
  NormRef norm(const Normalization& record, const ValueRef& value);
  std::optional<NormRef> norm(const std::optional<Normalization>& record, const ValueRef& value) {
    return record ? std::optional(norm(*record, value)) : std::nullopt;
  }
  // The table of a rotary embedding; layers with the same numbers share one.
  const RotaryTable* rotary(const Rotary& rotary);
  // Remembers how many blocks a group of the cache has.
  void add_group(int group, int64_t blocks, bool recurrent);
  bool has_linear(TensorType type) const {
    const uint32_t number = static_cast<uint32_t>(type);
    return kernels.generate[number] && kernels.prompt[number];
  }

  const KernelTable& kernels;  // those in use when the program was made: buffers fit them
  const int64_t max_tokens, max_positions;
  LinearOp::Buffers linear_buffers;
  ExpertBuffers expert_buffers;
  AttendOp::Buffers attend_buffers;
  HeadLinearOp::Buffers head_buffers;
  ExpandedAttention::Buffers expanded_buffers;
  ChooseOp::Buffers choose_buffers;
  WeightCopies copies;
  // Of the latest route, whose groups the experts after it use.
  struct {
    int choice = -1;
    int64_t experts = 0;
  } route;
  // What a batch must bring along.
  struct {
    int64_t token_ids = 0;    // that the embedding has; 0: there is none
    int64_t types = 1;        // of tokens
    int64_t taken_width = 0;  // of the rows that the program begins with; 0: it takes none
    bool causal = true;       // else a sequence runs whole
    bool encoded = false;     // how much of each sequence an encoder wrote
  } batch;

 private:
  using Ints = ArrayView<const int32_t>;
  void place_runs(const Ints& positions, const Ints& counts, const Ints& tables,
                  const Ints& table_ends);
  void place_encoded(nb::handle encoded, const Ints& positions);
  void place_expanded(nb::handle expanded, bool prompt);
  const AdaptedStep* sort_adapted(nb::handle adapters, nb::handle scales, const Ints& outputs);

  Executor executor_;
  int64_t vocabulary_ = 0;
  struct Group {
    int64_t blocks = 0;
    bool recurrent = false;
  };
  std::vector<Group> groups_;  // of the cache
  std::vector<ValueRef> values_;
  std::vector<const RotaryTable*> rotaries_;
  std::list<std::vector<float>> ones_;  // of norms without a weight
  std::vector<nb::object> records_;
  std::vector<AdaptableOp*> adaptable_;
  // By slot, operation and part: a record lives as long as its arrays are in use.
  std::map<std::array<int, 3>, nb::object> adapters_;
  int slots_ = 0;  // that were ever used
  AdaptedStep adapted_;
  std::vector<AdaptedRows::Use> uses_;  // of each token
  std::vector<SequenceRun> runs_;
  std::vector<const int32_t*> table_pointers_;
};

inline bool has_selected(const ValueRef& value) { return value.selected || value.logits; }

inline void same_shape(std::initializer_list<ValueRef> values) {
  for (const ValueRef& value : values)
    if (value.width != values.begin()->width ||
        has_selected(value) != has_selected(*values.begin()))
      refuse("values of different shapes");
}

inline int64_t length(const Floats& floats) { return static_cast<int64_t>(floats.size()); }

inline const float* data(const std::optional<Floats>& floats) {
  return floats ? floats->data() : nullptr;
}

// Binds the record of an operation, under the name that it has in `ingot.graph.ops`.
template <class Record, class... Types>
void bind_operation(nb::module_& module, const char* name, Field<Record, Types>... fields) {
  bind_record<Record, Operation>(module, "OPERATIONS", name, fields...);
}

// Binds a part of such records.
template <class Record, class... Types>
void bind_part(nb::module_& module, const char* name, Field<Record, Types>... fields) {
  bind_record<Record>(module, "PARTS", name, fields...);
}

}  // namespace ingot
