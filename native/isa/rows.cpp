// The passes over rows of logits of one instruction set (see isa/kernels.cpp).
#include "isa/families.h"
#include "sampling/row.h"

namespace ingot::INGOT_ISA {

void add_rows(KernelTable& table) noexcept {
  table.row = {row_maxima, row_exponentials, row_moments, exp_values, log_values};
}

}  // namespace ingot::INGOT_ISA
