// This boot's identity: boot clocks compare only within one.
#pragma once

#include <string>

#include "lib/base/status.h"

namespace aitrace {

inline constexpr size_t kBootIdBytes = 16;

// 16 bytes, from /proc/sys/kernel/random/boot_id.
absl::StatusOr<std::string> ReadBootId();

}  // namespace aitrace
