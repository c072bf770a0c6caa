// What a process of the recorder costs: CPU time from its clock, memory from /proc.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/status.h"

namespace aitrace {

class CostMeter {
 public:
  explicit CostMeter(std::string proc_root = "/proc") : proc_root_(std::move(proc_root)) {}

  // Reads what `pid` has used; at `boot_ns`. A process that is not there, or
  // another one than last time, starts the count again.
  void Sample(int pid, uint64_t boot_ns);

  uint64_t cpu_ns() const { return cpu_ns_ - first_cpu_ns_; }  // Since the first sample.
  double cpu_percent() const { return cpu_percent_; }  // Of one CPU, between the last two samples.
  uint64_t rss_bytes() const { return rss_bytes_; }  // Without shared memory, so without the ring.

 private:
  static absl::StatusOr<uint64_t> ReadCpuNs(int pid);
  uint64_t ReadRssBytes(int pid) const;

  const std::string proc_root_;
  int pid_ = -1;
  uint64_t sampled_ns_ = 0;
  uint64_t first_cpu_ns_ = 0;
  uint64_t cpu_ns_ = 0;
  double cpu_percent_ = 0;
  uint64_t rss_bytes_ = 0;
};

}  // namespace aitrace
