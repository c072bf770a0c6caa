// Counts what happened and is not in the trace, by source, cause and CPU, with
// the time: as it goes into the next segment, and in total for `status`.
//
// Bound: one entry for each source, cause and CPU; the newest kMaxRecent of
//   single ones.
// Threading: the drain thread only.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "proto/aitrace/trace.pb.h"

namespace aitrace {

class LossLedger {
 public:
  static constexpr int32_t kNoCpu = -1;
  static constexpr size_t kMaxRecent = 512;

  // `count` events were lost between the two times (BOOTTIME).
  void Add(const std::string& source, trace::Loss::Cause cause, int32_t cpu, uint64_t count,
           uint64_t begin_ns, uint64_t end_ns);

  // What was added since the last call.
  std::vector<trace::Loss> TakeNew();
  // What TakeNew() gave lately, oldest first: tells what a window has lost.
  const std::deque<trace::Loss>& recent() const { return recent_; }
  // Everything since the start, each with its first and last time.
  std::vector<trace::Loss> Total() const;
  uint64_t TotalOf(const std::string& source) const;

 private:
  using Key = std::tuple<std::string, trace::Loss::Cause, int32_t>;
  static void AddTo(std::map<Key, trace::Loss>& losses, const Key& key, uint64_t count,
                    uint64_t begin_ns, uint64_t end_ns);

  std::map<Key, trace::Loss> new_;
  std::map<Key, trace::Loss> total_;
  std::deque<trace::Loss> recent_;
};

}  // namespace aitrace
