// Loads and attaches the eBPF probes, one object a source, so that a kernel
// that lacks one of them still gives the others; says what is missing and why.
//
// Ownership: owns programs, links and the mapped slot rings; everything is
//   detached and freed on destruction.
// Threading: construction on any thread; slot rings are read by one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "daemon/source/bpf/event_shards.h"
#include "daemon/source/bpf/kernel_btf.h"
#include "lib/base/status.h"
#include "probes/record.h"
#include "proto/aitrace/config.pb.h"

struct bpf_object_skeleton;

namespace aitrace {

// One source as `aitracectl status` shows it.
struct SourceState {
  std::string name;  // "sched", "task", "block", "freq", "kmem".
  bool on = false;
  bool complete = true;  // All of its probes are attached.
  std::string detail;    // What is missing, why, and what takes its place.
};

// Times that the kernel skipped a program because it was running already.
struct RecursionMisses {
  std::string source;
  uint64_t count = 0;  // Since the program was loaded.
};

class ProbeSet {
 public:
  // Attaches all that the configuration asks for and the kernel has. Fails
  // only when not even "sched" and "task" can be had.
  static absl::StatusOr<std::unique_ptr<ProbeSet>> Attach(const Probes& config, uint32_t cpus,
                                                          const EventShards& shards);
  virtual ~ProbeSet() = default;

  virtual const std::vector<SourceState>& sources() const = 0;
  // One ring for each possible CPU; empty where slots come as EVENT_SLOT.
  virtual std::vector<const slot_ring*> slot_rings() const = 0;
  virtual uint64_t slots() const = 0;
  virtual uint64_t kernel_bytes() const = 0;
  virtual std::vector<RecursionMisses> recursion_misses() const = 0;
};

}  // namespace aitrace
