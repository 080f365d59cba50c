// Encoders that know an importance matrix: the error of a weight counts as much as its column.
#pragma once

#include <cstdint>

namespace ingot {

bool has_weighted_encoder(uint32_t type);

// Encodes rows of whole blocks; importance has a number for each column, none of them negative.
void encode_weighted(uint32_t type, const float* values, const float* importance, int64_t rows,
                     int64_t columns, uint8_t* out);

}  // namespace ingot
