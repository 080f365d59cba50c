// The parts of an instruction set's table: each file of isa/ fills in its own kernels.
#pragma once

#include "isa/table.h"

namespace ingot::INGOT_ISA {

void add_formats(KernelTable& table) noexcept;
void add_linear(KernelTable& table, Precision precision) noexcept;
void add_rows(KernelTable& table) noexcept;

}  // namespace ingot::INGOT_ISA
