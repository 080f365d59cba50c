// The encoders of IQ2 and IQ3 (points of magnitudes, and signs) and of IQ1 (points of -1, 0 and 1,
// and a shift of an eighth). The layouts are drawn in formats/iq*.h.
#pragma once

#include <cstdint>

#include "kernels/encode_search.h"

namespace ingot::INGOT_ISA {

using GridEncoder = void(const float* values, const Important& counts, uint8_t* block,
                         int64_t count);

GridEncoder encode_iq2_xxs, encode_iq2_xs, encode_iq2_s, encode_iq3_xxs, encode_iq3_s;
GridEncoder encode_iq1_s, encode_iq1_m;

}  // namespace ingot::INGOT_ISA
