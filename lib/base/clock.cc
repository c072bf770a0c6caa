#include "lib/base/clock.h"

#include <ctime>

namespace aitrace {
namespace {

uint64_t Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);  // Cannot fail with these clocks.
  return static_cast<uint64_t>(now.tv_sec) * kNsPerSecond + static_cast<uint64_t>(now.tv_nsec);
}

}  // namespace

ClockReading SystemClock::Read() const {
  return {.boot_ns = Now(CLOCK_BOOTTIME),
          .realtime_ns = Now(CLOCK_REALTIME),
          .monotonic_ns = Now(CLOCK_MONOTONIC),
          .monotonic_raw_ns = Now(CLOCK_MONOTONIC_RAW)};
}

uint64_t SystemClock::BootNs() const { return Now(CLOCK_BOOTTIME); }
uint64_t SystemClock::RealtimeNs() const { return Now(CLOCK_REALTIME); }

}  // namespace aitrace
