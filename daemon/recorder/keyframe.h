// The packets of a keyframe: all that a trace must say before its first event,
// so that any reader knows every thread's name, process and state, and who
// runs where, from its first moment on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "daemon/recorder/task_table.h"
#include "proto/aitrace/trace.pb.h"

namespace aitrace {

// Who runs on a CPU at the keyframe.
struct RunningThread {
  uint32_t cpu = 0;
  int32_t tid = -1;  // -1: not known.
  int32_t prio = 0;
  TaskName name;
};

struct KeyframeInput {
  uint64_t at_ns = 0;  // BOOTTIME
  std::vector<RunningThread> running;
  std::optional<trace::Gap> gap;  // Before the keyframe nothing was recorded.
  trace::CaptureInfo capture;
};

// `tasks` is as of `at_ns`.
std::string BuildKeyframe(const TaskTable& tasks, const KeyframeInput& input);

}  // namespace aitrace
