#include "ctl/text.h"

#include <algorithm>
#include <ctime>

#include "absl/strings/str_format.h"
#include "lib/base/clock.h"

namespace aitrace {
namespace {

// Bytes of the UTF-8 sequence at the start of `text`; 0 if there is none that
// a terminal may have (C1 controls are sequences, too).
size_t Utf8Length(absl::string_view text) {
  auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  size_t length = byte(0) >> 5 == 6 ? 2 : byte(0) >> 4 == 14 ? 3 : byte(0) >> 3 == 30 ? 4 : 0;
  if (length == 0 || length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return 0;
  }
  bool is_overlong = (length == 2 && byte(0) < 0xc2) ||
                     (length == 3 && byte(0) == 0xe0 && byte(1) < 0xa0) ||
                     (length == 4 && byte(0) == 0xf0 && byte(1) < 0x90);
  bool is_surrogate = length == 3 && byte(0) == 0xed && byte(1) >= 0xa0;
  bool is_control = length == 2 && byte(0) == 0xc2 && byte(1) < 0xa0;
  return is_overlong || is_surrogate || is_control ? 0 : length;
}

}  // namespace

std::string Printable(absl::string_view text) {
  std::string out;
  while (!text.empty()) {
    auto c = static_cast<unsigned char>(text[0]);
    size_t length = c >= 0x20 && c < 0x7f ? 1 : c < 0x80 ? 0 : Utf8Length(text);
    if (length == 0) {
      absl::StrAppendFormat(&out, "\\x%02x", c);
      length = 1;
    } else {
      out.append(text.data(), length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string FormatBytes(uint64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  while (value >= 1024 && unit + 1 < std::size(kUnits)) {
    value /= 1024;
    ++unit;
  }
  return unit == 0 ? absl::StrFormat("%d B", bytes)
                   : absl::StrFormat("%.1f %s", value, kUnits[unit]);
}

std::string FormatDurationNs(uint64_t ns) {
  uint64_t seconds = ns / kNsPerSecond;
  if (seconds < 60) return absl::StrFormat("%.1f s", static_cast<double>(ns) / kNsPerSecond);
  if (seconds < 3600) return absl::StrFormat("%d min %d s", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%d h %d min", seconds / 3600, seconds % 3600 / 60);
  return absl::StrFormat("%d d %d h", seconds / 86400, seconds % 86400 / 3600);
}

std::string FormatLocalTime(uint64_t realtime_ns) {
  auto seconds = static_cast<time_t>(realtime_ns / kNsPerSecond);
  tm parts{};
  localtime_r(&seconds, &parts);
  char text[32];
  strftime(text, sizeof(text), "%Y-%m-%d %H:%M:%S", &parts);
  return text;
}

std::string FormatCount(uint64_t count) {
  std::string digits = std::to_string(count);
  std::string out;
  for (size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) out += ',';
    out += digits[i];
  }
  return out;
}

std::string FormatTable(const std::vector<std::vector<std::string>>& rows,
                        const std::vector<bool>& right) {
  std::vector<size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string out;
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      std::string padding(widths[i] - row[i].size(), ' ');
      bool is_right = i < right.size() && right[i];
      line += i > 0 ? "  " : "";
      line += is_right ? padding + row[i] : row[i] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  }
  return out;
}

}  // namespace aitrace
