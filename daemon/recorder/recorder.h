// The recorder: probes, the drain thread, and what goes into the ring. Its
// thread never touches a disk and waits for nobody.
//
// Threading: the methods are for the main loop's thread; callbacks run there.
// Ownership: owns the probes and the thread; Stop() or destruction seals what
//   was encoded, detaches the probes and joins.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/source/bpf/probe_set.h"
#include "lib/base/clock.h"
#include "lib/base/event_loop.h"
#include "lib/base/status.h"
#include "lib/store/segment_ring.h"
#include "proto/aitrace/config.pb.h"
#include "proto/aitrace/control.pb.h"

namespace aitrace {

class Recorder {
 public:
  struct Options {
    Config config;
    std::string boot_id;  // 16 bytes.
    std::string proc_root = "/proc";
  };

  // A consistent picture, renewed with every drain.
  struct Stats {
    std::vector<control::Status::Source> sources;
    std::vector<control::Status::EventCount> events;
    std::vector<trace::Loss> loss;         // Since the start, added up.
    std::vector<trace::Loss> recent_loss;  // The newest, one by one.
    SegmentRing::Stats ring;
    uint64_t total_events = 0;
    uint64_t kernel_buffer_bytes = 0;
    std::vector<std::string> notes;
  };

  // Returns when the probes are attached and the first keyframe is in the
  // ring. `loop`, `clock` and `ring` outlive the recorder; while it lives,
  // only it may push to `ring`.
  static absl::StatusOr<std::unique_ptr<Recorder>> Start(EventLoop& loop, const Clock& clock,
                                                         SegmentRing& ring, Options options);
  virtual ~Recorder() = default;

  // Seals all that happened until now; `on_sealed` gets the sequence of the
  // segment that holds the newest of it.
  virtual void Seal(std::function<void(uint64_t through_sequence)> on_sealed) = 0;
  // Takes over what may change while running: rotation's period, compression.
  virtual void Configure(const Config& config) = 0;
  virtual void Stop() = 0;
  virtual Stats stats() const = 0;
};

}  // namespace aitrace
