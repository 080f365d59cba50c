// The headers of all formats, once more: here only their sizes are read.
#define INGOT_ISA type_table

#include "formats/types.h"

#include <algorithm>
#include <array>

#include "formats/all.h"

namespace ingot {

namespace {

using namespace type_table;

constexpr auto kTable = [] {
  std::array table{
#define INGOT_ENTRY(Name, Value) \
  TypeTraits{#Name, static_cast<uint32_t>(TensorType::Name), 1, sizeof(Value)},
      INGOT_PLAIN_TYPES(INGOT_ENTRY)
#undef INGOT_ENTRY
#define INGOT_ENTRY(F) TypeTraits{#F, static_cast<uint32_t>(F::kType), F::kWeights, F::kBytes},
          INGOT_BLOCK_FORMATS(INGOT_ENTRY)
#undef INGOT_ENTRY
  };
  std::ranges::sort(table, {}, &TypeTraits::id);
  return table;
}();

static_assert(std::ranges::adjacent_find(kTable, {}, &TypeTraits::id) == kTable.end(),
              "two formats have the same type number");
static_assert(kTable.back().id < kMaxTypes);

// Where each number is in the table.
constexpr auto kPlaces = [] {
  std::array<const TypeTraits*, kMaxTypes> places{};
  for (const TypeTraits& traits : kTable) places[traits.id] = &traits;
  return places;
}();

}  // namespace

constinit const std::span<const TypeTraits> kTypeTraits = kTable;

const TypeTraits* find_type(uint32_t id) { return id < kMaxTypes ? kPlaces[id] : nullptr; }

}  // namespace ingot
