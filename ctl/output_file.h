// Where a trace goes that the daemon handed over: with the caller's rights, and
// never half under the final name.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "lib/base/status.h"

namespace aitrace {

// Copies all of `trace` (a file, read from its start) to `path`; "-" is
// standard output, unless that is a terminal. A regular file appears when it
// is whole, replacing what was there; devices and FIFOs are written to.
// `on_progress` may be empty.
absl::StatusOr<uint64_t> CopyTrace(
    int trace, const std::string& path,
    const std::function<void(uint64_t done_bytes, uint64_t total_bytes)>& on_progress);

}  // namespace aitrace
