// One CPU's switches and wakings on their way from the kernel's slots into a
// bundle: follows who runs there, and so which thread each switch leaves.
//
// Threading: the drain thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>

#include "daemon/recorder/keyframe.h"
#include "daemon/recorder/task_table.h"
#include "daemon/source/bpf/slot_cursor.h"
#include "lib/format/bundle_encoder.h"

namespace aitrace {

class CpuStream {
 public:
  // `ring` is null where slots come as events instead.
  CpuStream(uint32_t cpu, const slot_ring* ring, uint64_t slots);

  void Advance(uint64_t now_boot_ns);
  void Queue(const slot& slot) { queued_.push_back(DecodeSlot(slot, now_boot_ns_)); }

  // The next slot; nullptr when there is none of before the last Advance().
  const DecodedSlot* Peek();
  // Encodes what Peek() gave and steps over it. Call with a bundle not full().
  void Take(TaskTable& tasks);

  // Slots lost since the last call, all of them before what Peek() gives.
  uint64_t TakeLost();
  // Nobody knows who runs here until the next switch.
  void ForgetRunning() { running_tid_ = -1; }

  RunningThread Running(TaskTable& tasks) const;
  BundleEncoder& bundle() { return bundle_; }
  uint32_t cpu() const { return cpu_; }
  uint64_t last_ns() const { return last_ns_; }

 private:
  void TakeSwitch(const DecodedSlot& slot, TaskTable& tasks);
  void TakeWaking(const DecodedSlot& slot, TaskTable& tasks);
  void SetRunning(const DecodedSlot& slot);

  const uint32_t cpu_;
  std::optional<SlotCursor> cursor_;
  std::deque<DecodedSlot> queued_;
  uint64_t now_boot_ns_ = 0;
  BundleEncoder bundle_;
  TaskName idle_name_;
  int32_t running_tid_ = -1;
  int32_t running_prio_ = 0;
  uint64_t last_ns_ = 0;
};

}  // namespace aitrace
