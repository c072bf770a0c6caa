// Snapshots on disk: one directory each, made under a hidden name and renamed
// when it is whole.
//
//   <directory>/<UTC>-<reason>/trace.perfetto-trace
//                              snapshot.json          SnapshotInfo, as protobuf's JSON
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "proto/aitrace/snapshot.pb.h"

namespace aitrace {

// One snapshot in the making. Dropped unfinished, it leaves nothing.
class SnapshotWriter {
 public:
  ~SnapshotWriter();
  SnapshotWriter(SnapshotWriter&& other) noexcept = default;
  SnapshotWriter& operator=(SnapshotWriter&&) = delete;

  int fd() const { return trace_.get(); }
  const std::string& id() const { return id_; }
  // Writes snapshot.json and gives the directory its name.
  absl::Status Publish(const SnapshotInfo& info);
  // What was published survives a power cut.
  absl::Status Sync();

 private:
  friend class SnapshotStore;
  SnapshotWriter() = default;

  std::string directory_;
  std::string id_;
  std::string hidden_;  // Path while unfinished; empty afterwards.
  UniqueFd trace_;
};

class SnapshotStore {
 public:
  struct Limits {
    uint64_t max_count = 0;  // 0: no limit.
    uint64_t max_bytes = 0;
  };
  struct Usage {
    uint64_t count = 0;
    uint64_t bytes = 0;
  };

  explicit SnapshotStore(std::string directory) : directory_(std::move(directory)) {}

  // Makes the directory, and removes what was left unfinished in it.
  absl::Status Init();
  absl::StatusOr<SnapshotWriter> Create(uint64_t realtime_ns, const std::string& reason);
  // Oldest first.
  absl::StatusOr<std::vector<SnapshotInfo>> List() const;
  // InvalidArgument for what can be no id, NotFound for one that is not there.
  absl::StatusOr<SnapshotInfo> Show(const std::string& id) const;
  absl::StatusOr<UniqueFd> OpenTrace(const std::string& id) const;
  absl::Status Remove(const std::string& id);
  // Removes the oldest until the rest is within the limits; never the newest.
  // Returns what is left.
  absl::StatusOr<Usage> Enforce(const Limits& limits);

  std::string TracePath(const std::string& id) const;

 private:
  absl::StatusOr<std::vector<std::string>> Ids() const;

  const std::string directory_;
};

}  // namespace aitrace
