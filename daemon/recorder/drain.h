// The drain: empties the kernel's buffers, puts what they hold in the order of
// time that names need, and encodes it. One step is
//
//   1. note the time (the horizon) and each CPU's head, all within microseconds
//   2. read the ring buffers: what changes names waits its turn, other events
//      are encoded at once, what is newer than the horizon waits for the next step
//   3. for each name change, oldest first: encode all CPUs' slots from before
//      it, then apply it; then the remaining slots
//
// so that a thread's name at each switch is the one it had at that time, at
// the cost of one comparison per CPU and name change.
//
// Threading: the drain thread only.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "daemon/recorder/cpu_stream.h"
#include "daemon/recorder/loss_ledger.h"
#include "daemon/recorder/segment_sealer.h"
#include "daemon/recorder/task_table.h"
#include "daemon/source/bpf/event_shards.h"
#include "daemon/source/bpf/probe_set.h"
#include "lib/base/clock.h"
#include "proto/aitrace/config.pb.h"

namespace aitrace {

class Drain {
 public:
  struct Counts {
    uint64_t switches = 0;
    uint64_t wakings = 0;
    std::array<uint64_t, EVENT_TYPES> events{};
    uint64_t malformed = 0;  // Records that were not what they said.
    uint64_t total() const;
  };

  Drain(const Clock& clock, Privacy::Cmdline privacy, SegmentSealer& sealer, TaskTable& tasks,
        LossLedger& losses);

  // Once, before the first step. All outlive this.
  void SetSources(EventShards& shards, const ProbeSet& probes);
  // Of the event shards; may be called from within Step() only.
  void OnEvent(const event_header& header, size_t size);

  // Reads all that happened until now; returns how many events that were.
  uint64_t Step();
  // Puts all open bundles into the sealer's body.
  void FlushBundles();
  // Up to here everything is encoded, and nothing beyond.
  uint64_t horizon_ns() const { return horizon_ns_; }

  // Adds what programs missed by recursion; costs a few system calls.
  void CountRecursionMisses();
  std::vector<RunningThread> Running();
  // A file starts at the horizon: its first bundles say so.
  void SetCoveredUntilHorizon();
  void ResetCounts();
  const Counts& counts() const { return counts_; }
  // Task events were lost since the last call: the table may be wrong.
  bool TakeTasksLost() { return std::exchange(tasks_lost_, false); }

 private:
  // An event kept until its turn, in arena_.
  struct Waiting {
    uint64_t boot_ns = 0;
    size_t offset = 0;
    size_t size = 0;
  };
  using Arena = std::vector<uint64_t>;  // Of words, so that records are aligned.

  static void Keep(const event_header& header, size_t size, Arena& arena,
                   std::vector<Waiting>& waiting);
  void Dispatch(const event_header& header, size_t size);
  void RetryDeferred();
  void ApplyOrdered();
  bool Apply(const event_header& header);
  void ApplyExec(const exec_event& exec);
  void EncodeSlotsUntil(uint64_t boot_ns);
  void EncodeSlots(CpuStream& stream, uint64_t until_ns);
  void NoteLostSlots(CpuStream& stream, uint64_t lost, uint64_t end_ns);
  void CountDrops();
  void Flush(CpuStream& stream);
  void Encode(const event_header& header);

  const Clock& clock_;
  const Privacy::Cmdline privacy_;
  SegmentSealer& sealer_;
  TaskTable& tasks_;
  LossLedger& losses_;
  EventShards* shards_ = nullptr;
  const ProbeSet* probes_ = nullptr;

  uint64_t horizon_ns_ = 0;
  uint64_t last_horizon_ns_ = 0;
  std::vector<std::unique_ptr<CpuStream>> streams_;
  Arena ordered_arena_;
  std::vector<Waiting> ordered_;
  Arena deferred_arena_;
  std::vector<Waiting> deferred_;
  std::vector<drop_counters> seen_drops_;
  std::map<std::string, uint64_t> seen_misses_;
  bool tasks_lost_ = false;
  Counts counts_;
};

}  // namespace aitrace
