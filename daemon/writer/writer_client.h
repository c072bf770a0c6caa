// The recorder's end of the writer process: starts it, restarts it when it
// dies, asks it for snapshots, and watches that it still answers. Never blocks:
// a writer stuck in a frozen file system costs the recorder nothing.
//
// Threading: the main loop's thread only. Callbacks run on it.
// Bound: at most kMaxJobs jobs wait; more are refused with ResourceExhausted.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lib/base/clock.h"
#include "lib/base/event_loop.h"
#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "proto/aitrace/config.pb.h"
#include "proto/aitrace/snapshot.pb.h"
#include "proto/aitrace/writer.pb.h"

namespace aitrace {

struct OpenedSnapshot {
  SnapshotInfo info;
  std::string path;  // Of its trace.
  UniqueFd trace;    // Read-only.
};

class WriterClient {
 public:
  static constexpr size_t kMaxJobs = 64;

  struct Options {
    Config config;
    std::string config_digest;
    std::function<absl::StatusOr<UniqueFd>()> open_ring;  // SegmentRing::OpenReadOnly.
  };

  using OnProgress = std::function<void(uint64_t done_bytes, uint64_t total_bytes)>;
  using OnOpened = std::function<void(absl::StatusOr<OpenedSnapshot>)>;
  using OnSnapshots = std::function<void(absl::StatusOr<std::vector<SnapshotInfo>>)>;
  using OnDone = std::function<void(absl::Status)>;

  // Starts the writer: /proc/self/exe with kWriterArgument and one end of a
  // socket pair as descriptor 3, nothing else inherited.
  static absl::StatusOr<std::unique_ptr<WriterClient>> Start(EventLoop& loop, const Clock& clock,
                                                             Options options);
  virtual ~WriterClient() = default;

  virtual void Configure(const Config& config, const std::string& config_digest) = 0;
  virtual void Dump(WriterRequest::Dump request, OnProgress on_progress, OnOpened on_opened) = 0;
  virtual void List(OnSnapshots on_snapshots) = 0;
  virtual void Show(const std::string& id, OnSnapshots on_snapshot) = 0;
  virtual void Remove(const std::string& id, OnDone on_done) = 0;
  virtual void Open(const std::string& id, OnOpened on_opened) = 0;

  // What the writer last said of itself, and how long ago.
  virtual WriterStatus status() const = 0;

  // Asks the writer to write what the ring holds and to exit; calls `on_done`
  // when it has, or with DeadlineExceeded after `timeout_ms` (it is then sent
  // SIGKILL, which acts when the file system lets go of it).
  virtual void Finish(uint64_t timeout_ms, OnDone on_done) = 0;
};

// argv[1] of the writer process; main() hands over to RunWriter() on it.
inline constexpr char kWriterArgument[] = "--internal-writer";

// The writer process: returns its exit code. `fd` is its end of the socket pair.
int RunWriter(UniqueFd fd);

}  // namespace aitrace
