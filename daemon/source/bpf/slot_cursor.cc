#include "daemon/source/bpf/slot_cursor.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <utility>

namespace aitrace {
namespace {

// The kernel's task states, and what sched_switch makes of them.
constexpr uint32_t kTaskReport = 0x7f;
constexpr uint32_t kTaskUninterruptible = 0x02;
constexpr uint32_t kTaskNoLoad = 0x400;
constexpr uint32_t kTaskIdle = kTaskUninterruptible | kTaskNoLoad;
constexpr uint32_t kTaskRtLockWait = 0x1000;
constexpr uint32_t kTaskFrozen = 0x8000;
constexpr int32_t kPrintedIdle = 0x80;
constexpr int32_t kPrintedPreempted = 0x100;

// A clock read on another CPU may be this much ahead of ours.
constexpr uint64_t kClockSlackNs = 1'000'000'000;

uint64_t Load(const __u64& value) {
  return std::atomic_ref<const unsigned long long>(value).load(std::memory_order_acquire);
}

}  // namespace

DecodedSlot DecodeSlot(const slot& slot, uint64_t now_boot_ns) {
  DecodedSlot decoded;
  uint64_t low = slot.stamp & SLOT_TIME_MASK;
  uint64_t latest = now_boot_ns + kClockSlackNs;
  decoded.boot_ns = (latest & ~SLOT_TIME_MASK) | low;
  if (decoded.boot_ns > latest && decoded.boot_ns > SLOT_TIME_MASK) {
    decoded.boot_ns -= SLOT_TIME_MASK + 1;
  }
  decoded.type = static_cast<slot_type>(slot.stamp >> SLOT_TYPE_SHIFT & 3);
  decoded.body = slot.body;
  return decoded;
}

int32_t PrintedState(uint32_t raw_state, uint32_t exit_state, bool preempted) {
  if (preempted) return kPrintedPreempted;
  if ((raw_state & kTaskIdle) == kTaskIdle) return kPrintedIdle;
  if ((raw_state & (kTaskRtLockWait | kTaskFrozen)) != 0) return kTaskUninterruptible;
  return static_cast<int32_t>(std::bit_floor((raw_state | exit_state) & kTaskReport));
}

SlotCursor::SlotCursor(const slot_ring* ring, uint64_t slots)
    : ring_(ring), slots_(slots), lap_shift_(std::countr_zero(slots)) {}

void SlotCursor::Advance(uint64_t now_boot_ns) {
  now_boot_ns_ = now_boot_ns;
  limit_ = Load(ring_->head);
}

void SlotCursor::SkipOverwritten(uint64_t head) {
  if (head <= slots_ || position_ >= head - slots_) return;
  lost_ += head - slots_ - position_;
  position_ = head - slots_;
  limit_ = std::max(limit_, position_);
}

// Copies `count` slots from position_ on. One that its writer has taken and not
// yet published comes out as SLOT_NONE.
void SlotCursor::CopyPublished(size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const slot& source = ring_->slots[(position_ + i) & (slots_ - 1)];
    slot copy;
    copy.stamp = Load(source.stamp);
    copy.body = Load(source.body);
    uint64_t lap = (position_ + i) >> lap_shift_ & SLOT_LAP_MASK;
    bool is_published =
        copy.stamp >> SLOT_LAP_SHIFT == lap && (copy.stamp >> SLOT_TYPE_SHIFT & 3) != SLOT_NONE;
    chunk_[i] = DecodeSlot(copy, now_boot_ns_);
    if (!is_published) chunk_[i].type = SLOT_NONE;
  }
}

const DecodedSlot* SlotCursor::Refill() {
  while (true) {
    SkipOverwritten(Load(ring_->head));
    if (position_ >= limit_) return nullptr;
    size_t count = std::min<uint64_t>(kChunk, limit_ - position_);
    CopyPublished(count);
    // Whatever a writer may have begun on by now was perhaps torn.
    uint64_t first = position_;
    std::atomic_thread_fence(std::memory_order_acquire);
    SkipOverwritten(Load(ring_->head));
    uint64_t torn = std::min<uint64_t>(position_ - first, count);
    next_ = torn;
    filled_ = torn;
    while (filled_ < count && chunk_[filled_].type != SLOT_NONE) ++filled_;
    if (position_ - first < count) position_ = first + filled_;
    if (next_ < filled_) return &chunk_[next_];
    // Nothing readable: all torn (try again), or the first is not published yet.
    if (torn == 0) {
      limit_ = position_;
      return nullptr;
    }
  }
}

uint64_t SlotCursor::TakeLost() { return std::exchange(lost_, 0); }

}  // namespace aitrace
