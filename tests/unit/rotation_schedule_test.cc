#include "daemon/recorder/rotation_schedule.h"

#include "tests/unit/catch.h"

namespace aitrace {
namespace {

constexpr uint64_t kMinute = 60 * kNsPerSecond;

ClockReading At(uint64_t boot_s, uint64_t realtime_s) {
  return {.boot_ns = boot_s * kNsPerSecond, .realtime_ns = realtime_s * kNsPerSecond};
}

TEST_CASE("Files start on the wall clock's minute") {
  RotationSchedule schedule(kMinute);
  schedule.StartFile(At(1000, 45));
  CHECK_FALSE(schedule.IsDue(1014 * kNsPerSecond));
  CHECK(schedule.IsDue(1015 * kNsPerSecond));
  schedule.StartFile(At(1015, 60));
  CHECK(schedule.next_boot_ns() == 1075 * kNsPerSecond);
}

TEST_CASE("A file that started a little late does not make the next one tiny") {
  RotationSchedule schedule(kMinute);
  schedule.StartFile(At(1000, 0));
  schedule.StartFile(At(1059, 59));  // Woken before the minute was quite over.
  CHECK(schedule.next_boot_ns() == 1120 * kNsPerSecond);
}

TEST_CASE("A step of the wall clock changes one file by half a period at most") {
  for (uint64_t step_s = 0; step_s < 7200; step_s += 7) {
    RotationSchedule schedule(kMinute);
    schedule.StartFile(At(1000, 0));
    schedule.StartFile(At(1060, 60 + step_s));
    uint64_t length_ns = schedule.next_boot_ns() - 1060 * kNsPerSecond;
    CHECK(length_ns >= kMinute / 2);
    CHECK(length_ns <= kMinute * 3 / 2);
  }
}

}  // namespace
}  // namespace aitrace
