// Reads one CPU's slot ring in place: the reading half of probes/record.h's
// protocol. The kernel overwrites and never waits; what it overwrote before it
// was read is counted, exactly.
//
// Threading: one reader. The ring's memory is written by the kernel meanwhile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "probes/record.h"

namespace aitrace {

// A slot, taken apart. What `pid`.. mean depends on the type; see record.h.
struct DecodedSlot {
  uint64_t boot_ns = 0;
  slot_type type = SLOT_NONE;
  uint64_t body = 0;

  int32_t pid() const { return static_cast<int32_t>(body & SLOT_PID_MASK); }
  // Kernel priorities are -1 (deadline) to 140 (idle).
  int32_t prio() const {
    auto prio = static_cast<uint8_t>(body >> SLOT_PRIO_SHIFT);
    return prio > 140 ? static_cast<int8_t>(prio) : prio;
  }
  uint32_t raw_state() const { return static_cast<uint16_t>(body >> SLOT_STATE_SHIFT); }
  bool preempted() const { return (body >> SLOT_PREEMPT_SHIFT & 1) != 0; }
  uint32_t exit_state() const { return static_cast<uint8_t>(body >> SLOT_EXIT_STATE_SHIFT); }
  int32_t target_cpu() const { return static_cast<uint16_t>(body >> SLOT_CPU_SHIFT); }
  uint32_t flags() const { return static_cast<uint8_t>(body >> SLOT_FLAGS_SHIFT); }
};

// Takes a slot apart; `now_boot_ns` gives the bits of the time that it lacks.
DecodedSlot DecodeSlot(const slot& slot, uint64_t now_boot_ns);

// prev_state as the sched_switch event prints it, from the raw task state.
// Source: __trace_sched_switch_state() and __task_state_index() in the kernel's
// include/trace/events/sched.h and include/linux/sched.h.
int32_t PrintedState(uint32_t raw_state, uint32_t exit_state, bool preempted);

class SlotCursor {
 public:
  // `ring` has `slots` slots, a power of two, and outlives this. Starts with the
  // first slot that was ever put.
  SlotCursor(const slot_ring* ring, uint64_t slots);

  // Lets the cursor see what has been put until now, and no more.
  void Advance(uint64_t now_boot_ns);

  // The next slot; nullptr when all that Advance() saw is read.
  const DecodedSlot* Peek() {
    if (next_ < filled_) return &chunk_[next_];
    return Refill();
  }
  void Pop() { ++next_; }

  // Slots lost since the last call.
  uint64_t TakeLost();

 private:
  static constexpr size_t kChunk = 256;

  const DecodedSlot* Refill();
  void SkipOverwritten(uint64_t head);
  void CopyPublished(size_t count);

  const slot_ring* const ring_;
  const uint64_t slots_;
  const int lap_shift_;
  uint64_t now_boot_ns_ = 0;
  uint64_t position_ = 0;  // Of the next slot to copy.
  uint64_t limit_ = 0;
  uint64_t lost_ = 0;
  size_t next_ = 0;
  size_t filled_ = 0;
  std::array<DecodedSlot, kChunk> chunk_;
};

}  // namespace aitrace
