#include "daemon/recorder/cpu_stream.h"

#include <cstdio>

namespace aitrace {
namespace {

// Ids of idle threads' names, apart from those that TaskTable gives.
constexpr uint64_t kIdleNameIds = uint64_t{1} << 63;

}  // namespace

CpuStream::CpuStream(uint32_t cpu, const slot_ring* ring, uint64_t slots)
    : cpu_(cpu), bundle_(cpu) {
  if (ring != nullptr) cursor_.emplace(ring, slots);
  idle_name_.id = kIdleNameIds + cpu;
  snprintf(idle_name_.bytes, sizeof(idle_name_.bytes), "swapper/%u", cpu);
}

void CpuStream::Advance(uint64_t now_boot_ns) {
  now_boot_ns_ = now_boot_ns;
  if (cursor_.has_value()) cursor_->Advance(now_boot_ns);
}

const DecodedSlot* CpuStream::Peek() {
  if (cursor_.has_value()) return cursor_->Peek();
  if (queued_.empty() || queued_.front().boot_ns > now_boot_ns_) return nullptr;
  return &queued_.front();
}

uint64_t CpuStream::TakeLost() { return cursor_.has_value() ? cursor_->TakeLost() : 0; }

void CpuStream::SetRunning(const DecodedSlot& slot) {
  running_tid_ = slot.pid();
  running_prio_ = slot.prio();
}

void CpuStream::TakeSwitch(const DecodedSlot& slot, TaskTable& tasks) {
  int32_t prev_state = PrintedState(slot.raw_state(), slot.exit_state(), slot.preempted());
  if (running_tid_ > 0) {
    Task& prev = tasks.Get(running_tid_);
    prev.state = prev_state;
    prev.state_since_ns = slot.boot_ns;
  }
  SetRunning(slot);
  const TaskName* name = &idle_name_;
  if (running_tid_ > 0) {
    Task& next = tasks.Get(running_tid_);
    next.state = Task::kRunning;
    next.state_since_ns = slot.boot_ns;
    next.cpu = static_cast<int32_t>(cpu_);
    name = &next.name;
  }
  bundle_.AddSwitch(slot.boot_ns, prev_state, running_tid_, running_prio_, *name);
}

void CpuStream::TakeWaking(const DecodedSlot& slot, TaskTable& tasks) {
  Task& task = tasks.Get(slot.pid());
  if (task.state != Task::kRunning) {
    task.state = Task::kWoken;
    task.state_since_ns = slot.boot_ns;
    task.cpu = slot.target_cpu();
  }
  bundle_.AddWaking(slot.boot_ns, slot.pid(), slot.target_cpu(), slot.prio(), slot.flags(),
                    task.name);
}

void CpuStream::Take(TaskTable& tasks) {
  const DecodedSlot& slot = *Peek();
  last_ns_ = slot.boot_ns;
  if (slot.type == SLOT_SWITCH) {
    TakeSwitch(slot, tasks);
  } else if (slot.type == SLOT_WAKING) {
    TakeWaking(slot, tasks);
  } else if (running_tid_ < 0) {
    SetRunning(slot);
  }
  if (cursor_.has_value()) {
    cursor_->Pop();
  } else {
    queued_.pop_front();
  }
}

RunningThread CpuStream::Running(TaskTable& tasks) const {
  RunningThread running{.cpu = cpu_, .tid = running_tid_, .prio = running_prio_};
  if (running_tid_ == 0) running.name = idle_name_;
  if (running_tid_ > 0) running.name = tasks.Get(running_tid_).name;
  return running;
}

}  // namespace aitrace
