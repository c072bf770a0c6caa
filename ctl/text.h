// How values are shown to people.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace aitrace {

// Names and reasons come from anywhere: control characters and bytes that are
// not printable ASCII or UTF-8 are shown as \xNN, and colour nobody's terminal.
std::string Printable(absl::string_view text);

std::string FormatBytes(uint64_t bytes);            // "1.4 MiB"
std::string FormatDurationNs(uint64_t ns);          // "4 min 12 s"
std::string FormatLocalTime(uint64_t realtime_ns);  // "2026-12-01 14:00:03"
std::string FormatCount(uint64_t count);            // "1,234,567"

// Columns aligned on their widest cell, two blanks between, right-aligned
// where `right` says so; a line each.
std::string FormatTable(const std::vector<std::vector<std::string>>& rows,
                        const std::vector<bool>& right);

}  // namespace aitrace
