// Philox4x32-10, the counter-based generator of Salmon et al. (2011): the number at a place is
// a function of the seed and the place, so no draw depends on how many others came before.
#pragma once

#include <array>
#include <cstdint>

namespace ingot::sampling {

using PhiloxBlock = std::array<uint32_t, 4>;

constexpr PhiloxBlock philox(PhiloxBlock counter, uint64_t key) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53, kMultiplier1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<uint32_t>(key);
  auto key1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = static_cast<uint64_t>(kMultiplier0) * counter[0];
    const uint64_t product1 = static_cast<uint64_t>(kMultiplier1) * counter[2];
    counter = {
        static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(product1),
        static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return counter;
}

// A number in [0, 1) with 53 random bits: one for every place and purpose under a seed.
constexpr double uniform_at(uint64_t seed, uint64_t place, uint32_t purpose) {
  const PhiloxBlock block =
      philox({static_cast<uint32_t>(place), static_cast<uint32_t>(place >> 32), purpose, 0}, seed);
  const uint64_t bits = static_cast<uint64_t>(block[0]) << 32 | block[1];
  return static_cast<double>(bits >> 11) * 0x1p-53;
}

}  // namespace ingot::sampling
