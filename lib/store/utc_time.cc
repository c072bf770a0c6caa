#include "lib/store/utc_time.h"

#include <ctime>

#include "absl/strings/str_format.h"
#include "lib/base/clock.h"

namespace aitrace {

std::string FormatUtcTime(uint64_t realtime_ns) {
  auto seconds = static_cast<time_t>(realtime_ns / kNsPerSecond);
  tm parts{};
  gmtime_r(&seconds, &parts);
  return absl::StrFormat("%04d%02d%02dT%02d%02d%02d.%03dZ", parts.tm_year + 1900, parts.tm_mon + 1,
                         parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                         realtime_ns % kNsPerSecond / kNsPerMs);
}

std::optional<uint64_t> ParseUtcTime(absl::string_view text) {
  if (text.size() != kUtcTimeBytes) return std::nullopt;
  tm parts{};
  int millis = 0;
  int used = 0;
  int fields =
      sscanf(std::string(text).c_str(), "%4d%2d%2dT%2d%2d%2d.%3dZ%n", &parts.tm_year, &parts.tm_mon,
             &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &millis, &used);
  if (fields != 7 || used != static_cast<int>(kUtcTimeBytes)) return std::nullopt;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  time_t seconds = timegm(&parts);
  uint64_t realtime_ns =
      static_cast<uint64_t>(seconds) * kNsPerSecond + static_cast<uint64_t>(millis) * kNsPerMs;
  // Numbers that are no date (month 13, " 1" for "01") do not come back the same.
  if (seconds < 0 || FormatUtcTime(realtime_ns) != text) return std::nullopt;
  return realtime_ns;
}

}  // namespace aitrace
