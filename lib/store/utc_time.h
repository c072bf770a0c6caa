// Wall-clock times as names of files and snapshots have them: sortable UTC,
// 20261201T130500.123Z.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace aitrace {

inline constexpr size_t kUtcTimeBytes = 20;

std::string FormatUtcTime(uint64_t realtime_ns);
std::optional<uint64_t> ParseUtcTime(absl::string_view text);

}  // namespace aitrace
