#include "gguf/scan.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <numeric>
#include <string_view>

#include "formats/types.h"
#include "gguf/text.h"

namespace ingot::gguf {
namespace {

static_assert(std::endian::native == std::endian::little, "values are read as they lie");

constexpr uint32_t kDefaultAlignment = 32;
constexpr uint32_t kMaxDimensions = 4;
// The least a key (length, one byte, type, value) and a tensor (length, one byte,
// dimension count, one dimension, type, offset) take: what bounds their counts.
constexpr uint64_t kLeastEntryBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kLeastTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;
// Reserved before the first element has been seen; more only as the bytes prove it.
constexpr uint64_t kMostReserved = 1 << 20;

struct NeedMore {};  // the header continues after the available bytes

// The bytes of one value of a fixed size, or 0 for strings, arrays and no type at all.
constexpr uint64_t fixed_size(ValueType type) {
  switch (type) {
    case ValueType::kUint8:
    case ValueType::kInt8:
    case ValueType::kBool:
      return 1;
    case ValueType::kUint16:
    case ValueType::kInt16:
      return 2;
    case ValueType::kUint32:
    case ValueType::kInt32:
    case ValueType::kFloat32:
      return 4;
    case ValueType::kUint64:
    case ValueType::kInt64:
    case ValueType::kFloat64:
      return 8;
    default:
      return 0;
  }
}

class Scanner {
 public:
  Scanner(const uint8_t* data, uint64_t available, uint64_t file_size)
      : data_(data), available_(std::min(available, file_size)), file_size_(file_size) {}

  Header run() {
    Header header{};
    const auto [tensor_count, entry_count] = read_preamble(header);
    for (uint64_t i = 0; i < entry_count; ++i) header.entries.push_back(read_entry());
    subject_ = {};
    reject_duplicates(header.entries, "key", [](const Entry& e) { return e.key; });
    header.alignment = find_alignment(header.entries);
    for (uint64_t i = 0; i < tensor_count; ++i) header.tensors.push_back(read_tensor());
    subject_ = {};
    reject_duplicates(header.tensors, "tensor_name", [](const Tensor& t) { return t.name; });
    header.end = at_;
    place_tensors(header);
    return header;
  }

 private:
  struct Counts {
    uint64_t tensors, entries;
  };

  [[noreturn]] void fail(const char* field, uint64_t offset, const std::string& reason) const {
    const bool named = subject_.data() != nullptr;
    throw ScanError(field, offset, named ? quote(subject_) + ": " + reason : reason);
  }

  // Makes sure that `size` bytes follow the current position.
  void require(uint64_t size, const char* field) const {
    if (size > file_size_ - at_) {
      fail(field, at_,
           "the file ends after " + std::to_string(file_size_ - at_) + " of " +
               std::to_string(size) + " bytes");
    }
    if (size > available_ - at_) throw NeedMore{};
  }

  template <class T>
  T peek(uint64_t at) const {
    T value;
    std::memcpy(&value, data_ + at, sizeof value);
    return value;
  }

  template <class T>
  T read(const char* field) {
    require(sizeof(T), field);
    const T value = peek<T>(at_);
    at_ += sizeof(T);
    return value;
  }

  std::string_view view(Text text) const {
    return {reinterpret_cast<const char*>(data_) + text.at, text.size};
  }

  // A length prefix and the bytes it promises; the bytes may be anything.
  Text read_bytes(const char* field) {
    const uint64_t prefix = at_;
    const uint64_t size = read<uint64_t>(field);
    if (size > file_size_ - at_) {
      fail(field, prefix,
           "a length of " + std::to_string(size) + " with " + std::to_string(file_size_ - at_) +
               " bytes left in the file");
    }
    require(size, field);
    const Text text{at_, size};
    at_ += size;
    return text;
  }

  // A key or a tensor's name: not empty, and UTF-8.
  Text read_name(const char* field) {
    const uint64_t prefix = at_;
    const Text text = read_bytes(field);
    if (text.size == 0) fail(field, prefix, "it is empty");
    const size_t invalid = find_invalid_utf8(view(text));
    if (invalid < text.size) fail(field, text.at + invalid, "it is not valid UTF-8");
    return text;
  }

  uint64_t read_count(const char* field, uint64_t least_bytes_each) {
    const uint64_t start = at_;
    const uint64_t count = read<uint64_t>(field);
    if (count > (file_size_ - at_) / least_bytes_each) {
      fail(field, start,
           std::to_string(count) + " cannot fit in the " + std::to_string(file_size_ - at_) +
               " bytes left in the file");
    }
    return count;
  }

  Counts read_preamble(Header& header) {
    const uint32_t magic = read<uint32_t>("magic");
    if (std::memcmp(&magic, "GGUF", 4) != 0) fail("magic", 0, "this is not a GGUF file");
    header.version = read<uint32_t>("version");
    if (header.version != 0 && (header.version & 0xFFFF) == 0) {
      fail("version", 4, "the file is big-endian; convert it to little-endian first");
    }
    if (header.version != 2 && header.version != 3) {
      fail("version", 4,
           "version " + std::to_string(header.version) + " is not supported, only 2 and 3 are");
    }
    const uint64_t tensors = read_count("tensor_count", kLeastTensorBytes);
    const uint64_t entries = read_count("metadata_kv_count", kLeastEntryBytes);
    return {tensors, entries};
  }

  ValueType read_value_type(const char* field) {
    const uint64_t start = at_;
    const uint32_t number = read<uint32_t>(field);
    if (number > static_cast<uint32_t>(ValueType::kFloat64)) {
      fail(field, start, "unknown value type " + std::to_string(number));
    }
    return static_cast<ValueType>(number);
  }

  Entry read_entry() {
    subject_ = {};
    Entry entry{};
    entry.key = read_name("key");
    subject_ = view(entry.key);
    entry.type = entry.element = read_value_type("value_type");
    entry.count = 1;
    if (entry.type == ValueType::kArray) {
      read_array(entry);
      return entry;
    }
    entry.value_at = at_;
    if (entry.type == ValueType::kString) {
      read_bytes("value");
    } else {
      skip_values(entry, "value");
    }
    return entry;
  }

  void read_array(Entry& entry) {
    const uint64_t start = at_;
    entry.element = read_value_type("array_type");
    if (entry.element == ValueType::kArray) {
      fail("array_type", start, "arrays of arrays are not part of the format");
    }
    const bool strings = entry.element == ValueType::kString;
    entry.count = read_count("array_length", strings ? 8 : fixed_size(entry.element));
    entry.value_at = at_;
    if (!strings) {
      skip_values(entry, "array");
      return;
    }
    entry.strings.reserve(std::min(entry.count, kMostReserved));
    walk_strings(entry);
    while (entry.strings.size() < entry.count) {
      entry.strings.push_back(at_);
      read_bytes("array");
    }
  }

  // What the loop above does, for as long as nothing is wrong. A vocabulary is most of a
  // header: Gemma 3's, with 262,144 entries, takes 1.3 ms to scan with this and 2.3 without.
  void walk_strings(Entry& entry) {
    uint64_t at = at_;
    for (uint64_t i = 0; i < entry.count && available_ - at >= 8; ++i) {
      const uint64_t size = peek<uint64_t>(at);
      if (size > available_ - at - 8) break;
      entry.strings.push_back(at);
      at += 8 + size;
    }
    at_ = at;
  }

  void skip_values(const Entry& entry, const char* field) {
    const uint64_t size = entry.count * fixed_size(entry.element);  // bounded by read_count
    require(size, field);
    if (entry.element == ValueType::kBool) {
      for (uint64_t i = at_; i < at_ + size; ++i) {
        if (data_[i] > 1) {
          fail(field, i, "a bool is 0 or 1, not " + std::to_string(data_[i]));
        }
      }
    }
    at_ += size;
  }

  uint32_t find_alignment(const std::vector<Entry>& entries) {
    for (const Entry& entry : entries) {
      if (view(entry.key) != "general.alignment") continue;
      if (entry.type != ValueType::kUint32) {
        fail("general.alignment", entry.key.at, "it must be a uint32");
      }
      const uint32_t alignment = peek<uint32_t>(entry.value_at);
      if (!std::has_single_bit(alignment)) {
        fail("general.alignment", entry.value_at,
             std::to_string(alignment) + " is not a power of two");
      }
      return alignment;
    }
    return kDefaultAlignment;
  }

  Tensor read_tensor() {
    subject_ = {};
    Tensor tensor{};
    tensor.name = read_name("tensor_name");
    subject_ = view(tensor.name);
    const uint64_t shape_at = at_;
    tensor.dimension_count = read<uint32_t>("n_dimensions");
    if (tensor.dimension_count == 0 || tensor.dimension_count > kMaxDimensions) {
      fail("n_dimensions", shape_at,
           std::to_string(tensor.dimension_count) + " dimensions; 1 to 4 are possible");
    }
    uint64_t elements = 1;
    for (uint32_t i = 0; i < tensor.dimension_count; ++i) {
      const uint64_t dimension_at = at_;
      tensor.dimensions[i] = read<uint64_t>("dimensions");
      if (tensor.dimensions[i] == 0) fail("dimensions", dimension_at, "a dimension is zero");
      if (__builtin_mul_overflow(elements, tensor.dimensions[i], &elements)) {
        fail("dimensions", dimension_at, "the number of elements overflows 64 bits");
      }
    }
    const uint64_t type_at = at_;
    tensor.type = read<uint32_t>("tensor_type");
    const TypeTraits* traits = find_type(tensor.type);
    if (!traits) fail("tensor_type", type_at, "unknown type " + std::to_string(tensor.type));
    if (tensor.dimensions[0] % traits->block_weights != 0) {
      fail("dimensions", shape_at + 4,
           "rows of " + std::to_string(tensor.dimensions[0]) + " are not whole blocks of " +
               std::to_string(traits->block_weights) + " (" + traits->name + ")");
    }
    const uint64_t blocks = elements / traits->block_weights;
    if (__builtin_mul_overflow(blocks, traits->block_bytes, &tensor.bytes)) {
      fail("dimensions", shape_at + 4, "the size in bytes overflows 64 bits");
    }
    tensor.offset_at = at_;
    tensor.at = read<uint64_t>("tensor_offset");  // from data_start until place_tensors
    return tensor;
  }

  // Turns offsets into positions in the file and checks that every tensor has bytes
  // of its own. Gaps between tensors and a file that ends with the last one are fine.
  void place_tensors(Header& header) {
    const uint64_t mask = header.alignment - 1;
    header.data_start = header.end + (-header.end & mask);  // far below 2^64: end is in the file
    for (Tensor& tensor : header.tensors) {
      subject_ = view(tensor.name);
      if (tensor.at & mask) {
        fail("tensor_offset", tensor.offset_at,
             std::to_string(tensor.at) + " is not a multiple of the alignment, " +
                 std::to_string(header.alignment));
      }
      uint64_t end;
      if (__builtin_add_overflow(tensor.at, header.data_start, &tensor.at) ||
          __builtin_add_overflow(tensor.at, tensor.bytes, &end) || end > file_size_) {
        fail("tensor_offset", tensor.offset_at,
             std::to_string(tensor.bytes) + " bytes of data go past the end of the file (" +
                 std::to_string(file_size_) + " bytes)");
      }
    }
    std::vector<const Tensor*> order;
    for (const Tensor& tensor : header.tensors) order.push_back(&tensor);
    std::sort(order.begin(), order.end(),
              [](const Tensor* a, const Tensor* b) { return a->at < b->at; });
    for (size_t i = 1; i < order.size(); ++i) {
      if (order[i - 1]->at + order[i - 1]->bytes <= order[i]->at) continue;
      subject_ = view(order[i]->name);
      fail("tensor_offset", order[i]->offset_at,
           "its data overlaps that of " + quote(view(order[i - 1]->name)));
    }
  }

  // By sorting: no choice of names makes it slow, as one can for a hash table.
  template <class T, class GetText>
  void reject_duplicates(const std::vector<T>& items, const char* field, GetText text) const {
    std::vector<size_t> order(items.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
      const int less = view(text(items[a])).compare(view(text(items[b])));
      return less != 0 ? less < 0 : a < b;
    });
    for (size_t i = 1; i < order.size(); ++i) {
      const Text one = text(items[order[i - 1]]), two = text(items[order[i]]);
      if (view(one) == view(two)) fail(field, two.at, quote(view(two)) + " appears twice");
    }
  }

  const uint8_t* data_;
  const uint64_t available_;
  const uint64_t file_size_;
  uint64_t at_ = 0;           // never beyond available_
  std::string_view subject_;  // the key or tensor being read, for error messages
};

}  // namespace

std::optional<Header> scan(const uint8_t* data, uint64_t available, uint64_t file_size) {
  try {
    return Scanner(data, available, file_size).run();
  } catch (const NeedMore&) {
    return std::nullopt;
  }
}

}  // namespace ingot::gguf
