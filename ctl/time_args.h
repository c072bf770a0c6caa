// Times as people type them on the command line.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/status.h"

namespace aitrace {

// "500ms", "90s", "15m", "2h", "1d", also with a fraction: nanoseconds.
absl::StatusOr<uint64_t> ParseDuration(const std::string& text);

// Nanoseconds since the epoch of "13:58", "13:58:30" (today), "2026-12-01
// 13:58[:30]" (local), ISO 8601 with a zone ("...T13:58:30Z", "+01:00"), or
// "@1764597480.25". `now_ns` says which day today is.
absl::StatusOr<uint64_t> ParseTime(const std::string& text, uint64_t now_ns);

}  // namespace aitrace
