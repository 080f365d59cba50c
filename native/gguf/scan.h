// Reads the header of a GGUF file: bytes come in, positions go out.
//
// scan() walks the whole header once and checks everything it says against the size
// of the file. It copies no text and no values: keys, names, strings and arrays stay
// where they are and are described by byte positions. It knows nothing of files,
// memory maps or Python, and nothing of what a key means except general.alignment.
#pragma once

#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

namespace ingot::gguf {

enum class ValueType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

struct Text {
  uint64_t at;  // position of the first byte, after the length prefix
  uint64_t size;
};

struct Entry {
  Text key;
  ValueType type;
  ValueType element;              // of an array; else the same as type
  uint64_t count;                 // elements of an array; else 1
  uint64_t value_at;              // first byte of the value; of a string: its length prefix
  std::vector<uint64_t> strings;  // of an array of strings: each entry's length prefix
};

struct Tensor {
  Text name;
  uint32_t type;
  uint32_t dimension_count;
  uint64_t dimensions[4];  // as in the file: the contiguous dimension first
  uint64_t at;             // first byte of the data, from the start of the file
  uint64_t bytes;
  uint64_t offset_at;  // where the header states the offset, for error messages
};

struct Header {
  uint32_t version;
  uint32_t alignment;
  uint64_t end;         // first byte after the header
  uint64_t data_start;  // end, rounded up to the alignment
  std::vector<Entry> entries;
  std::vector<Tensor> tensors;
};

struct ScanError : std::runtime_error {
  ScanError(std::string field, uint64_t offset, const std::string& reason)
      : std::runtime_error(reason), field(std::move(field)), offset(offset) {}

  std::string field;
  uint64_t offset;
};

// Scans a header of which the first `available` bytes are at `data`, in a file of
// `file_size` bytes. Returns nothing if the header continues after `available`:
// read more of the file and call again. Throws ScanError for a bad file.
std::optional<Header> scan(const uint8_t* data, uint64_t available, uint64_t file_size);

}  // namespace ingot::gguf
