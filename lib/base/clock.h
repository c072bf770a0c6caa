// The clocks of a trace. Every stamp is BOOTTIME; REALTIME is for people.
#pragma once

#include <cstdint>

namespace aitrace {

inline constexpr uint64_t kNsPerSecond = 1'000'000'000;
inline constexpr uint64_t kNsPerMs = 1'000'000;
inline constexpr uint64_t kNsPerUs = 1'000;

// One reading of all clocks, in ns, taken within a few hundred ns.
struct ClockReading {
  uint64_t boot_ns = 0;
  uint64_t realtime_ns = 0;
  uint64_t monotonic_ns = 0;
  uint64_t monotonic_raw_ns = 0;
};

// Passed in wherever time is read, so that a test can hand over its own.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual ClockReading Read() const = 0;
  virtual uint64_t BootNs() const { return Read().boot_ns; }
  virtual uint64_t RealtimeNs() const { return Read().realtime_ns; }
};

class SystemClock final : public Clock {
 public:
  ClockReading Read() const override;
  uint64_t BootNs() const override;
  uint64_t RealtimeNs() const override;
};

class FakeClock final : public Clock {
 public:
  ClockReading Read() const override { return now; }
  ClockReading now;
};

}  // namespace aitrace
