// When the next file starts: on multiples of the period of the wall clock,
// measured on the boot clock, so that a step of the wall clock makes one file
// shorter or longer by half a period at most, and never stops rotation.
#pragma once

#include <cstdint>

#include "lib/base/clock.h"

namespace aitrace {

class RotationSchedule {
 public:
  explicit RotationSchedule(uint64_t period_ns) : period_ns_(period_ns) {}

  // A file starts now; plans the next.
  void StartFile(const ClockReading& now) {
    uint64_t until_ns = period_ns_ - now.realtime_ns % period_ns_;
    if (until_ns < period_ns_ / 2 && has_started_) until_ns += period_ns_;
    next_boot_ns_ = now.boot_ns + until_ns;
    has_started_ = true;
  }
  bool IsDue(uint64_t boot_ns) const { return boot_ns >= next_boot_ns_; }
  uint64_t next_boot_ns() const { return next_boot_ns_; }

 private:
  uint64_t period_ns_;
  uint64_t next_boot_ns_ = 0;
  bool has_started_ = false;
};

}  // namespace aitrace
