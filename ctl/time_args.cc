#include "ctl/time_args.h"

#include <cmath>
#include <ctime>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "lib/base/clock.h"

namespace aitrace {
namespace {

constexpr double kMaxSeconds = 1e9;
constexpr uint64_t kMaxEpochSeconds = 4'000'000'000;

struct Unit {
  const char* name;
  double seconds;
};
// Longer names first: "ms" also ends in "s".
constexpr Unit kUnits[] = {{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};

absl::Status DurationError(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text, "' is no duration: expected a number and ms, s, m, h or d (90s, 15m)"));
}

absl::Status TimeError(const std::string& text) {
  return absl::InvalidArgumentError(absl::StrCat(
      "'", text,
      "' is no time: expected 13:58, 2026-12-01 13:58:00, 2026-12-01T13:58:00Z or @SECONDS"));
}

// strptime() of all of `text`; what follows the format is returned in `rest`.
bool Matches(const std::string& text, const char* format, tm& parts, std::string& rest) {
  tm parsed = parts;
  const char* end = strptime(text.c_str(), format, &parsed);
  if (end == nullptr) return false;
  parts = parsed;
  rest = end;
  return true;
}

// Seconds east of UTC for "Z", "+01:00", "+0100", "+01"; false for others.
bool ParseZone(std::string zone, int& seconds) {
  seconds = 0;
  if (zone == "Z" || zone == "z") return true;
  if (zone.empty() || (zone[0] != '+' && zone[0] != '-')) return false;
  int sign = zone[0] == '-' ? -1 : 1;
  zone.erase(0, 1);
  if (zone.size() > 2 && zone[2] == ':') zone.erase(2, 1);
  int number = 0;
  if ((zone.size() != 2 && zone.size() != 4) || !absl::SimpleAtoi(zone, &number)) return false;
  int hours = zone.size() == 4 ? number / 100 : number;
  int minutes = zone.size() == 4 ? number % 100 : 0;
  if (hours > 14 || minutes > 59) return false;
  seconds = sign * (hours * 3600 + minutes * 60);
  return true;
}

// ".25" at the start of `rest` becomes nanoseconds, and is taken off.
uint64_t TakeFraction(std::string& rest) {
  if (rest.empty() || rest[0] != '.') return 0;
  size_t end = rest.find_first_not_of("0123456789", 1);
  std::string digits = rest.substr(1, end == std::string::npos ? end : end - 1);
  rest = end == std::string::npos ? "" : rest.substr(end);
  digits.resize(9, '0');
  uint64_t ns = 0;
  return absl::SimpleAtoi(digits, &ns) ? ns : 0;
}

absl::StatusOr<uint64_t> ParseEpoch(const std::string& text) {
  std::string rest = text.substr(1);
  size_t dot = std::min(rest.find('.'), rest.size());
  uint64_t seconds = 0;
  if (!absl::SimpleAtoi(rest.substr(0, dot), &seconds) || seconds > kMaxEpochSeconds) {
    return TimeError(text);
  }
  rest = rest.substr(dot);
  uint64_t ns = TakeFraction(rest);
  if (!rest.empty()) return TimeError(text);
  return seconds * kNsPerSecond + ns;
}

}  // namespace

absl::StatusOr<uint64_t> ParseDuration(const std::string& text) {
  for (const Unit& unit : kUnits) {
    absl::string_view number = text;
    if (!absl::ConsumeSuffix(&number, unit.name)) continue;
    double value = 0;
    // Digits and a point only: no sign, no blanks, no "nan", no hexadecimals.
    bool is_plain = number.find_first_not_of("0123456789.") == absl::string_view::npos;
    if (!is_plain || !absl::SimpleAtod(number, &value)) return DurationError(text);
    double seconds = value * unit.seconds;
    if (!std::isfinite(seconds) || seconds > kMaxSeconds) return DurationError(text);
    return static_cast<uint64_t>(std::llround(seconds * 1e9));
  }
  return DurationError(text);
}

absl::StatusOr<uint64_t> ParseTime(const std::string& text, uint64_t now_ns) {
  if (!text.empty() && text[0] == '@') return ParseEpoch(text);
  auto now_s = static_cast<time_t>(now_ns / kNsPerSecond);
  tm today{};
  localtime_r(&now_s, &today);
  today.tm_sec = 0;
  constexpr const char* kFormats[] = {"%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S", "%Y-%m-%dT%H:%M",
                                      "%Y-%m-%d %H:%M",    "%H:%M:%S",          "%H:%M"};
  for (const char* format : kFormats) {
    tm parts = today;
    std::string rest;
    if (!Matches(text, format, parts, rest)) continue;
    uint64_t fraction_ns = TakeFraction(rest);
    parts.tm_isdst = -1;
    int zone_s = 0;
    bool has_zone = ParseZone(rest, zone_s);
    if (!has_zone && !rest.empty()) return TimeError(text);
    time_t seconds = has_zone ? timegm(&parts) - zone_s : mktime(&parts);
    if (seconds < 0) return TimeError(text);
    return static_cast<uint64_t>(seconds) * kNsPerSecond + fraction_ns;
  }
  return TimeError(text);
}

}  // namespace aitrace
