// Copies the ring's segments into rotated files, and keeps the files within
// their limits. Whatever the disk does, segments wait in the ring and writing
// goes on from where it stopped; what left the ring meanwhile is counted.
//
// Threading: the writer process's one thread. Calls may hang in the file
//   system for as long as that pleases to.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "lib/base/clock.h"
#include "lib/store/rotated_files.h"
#include "lib/store/segment_ring.h"
#include "proto/aitrace/config.pb.h"
#include "proto/aitrace/writer.pb.h"

namespace aitrace {

class FileRotator {
 public:
  FileRotator(const Clock& clock, const SegmentRingReader& ring, std::string host,
              std::string boot_id);

  // A changed directory is used from the next file on.
  void Configure(const Rotation& config);
  // Writes all that is new in the ring; errors show in the status, and are
  // tried again, first after one second, at last every 10.
  void Poll();
  // Writes what is left and closes the file.
  void Finish();

  void FillStatus(WriterStatus& status) const;
  const std::string& directory() const { return config_.directory(); }
  // Of the unfinished file, which dumps read too; empty if there is none.
  std::string partial_path() const;

 private:
  absl::Status Start();
  absl::Status AdoptPartials();
  absl::Status AdoptPartial(const std::string& name, bool is_newest);
  absl::Status FindNext();
  absl::Status WriteNew();
  absl::Status WriteRecord(const RingRecord& record);
  bool HasFile() const { return file_.has_value() && file_->bytes() > 0; }
  absl::Status StartFile(const RingRecord& record);
  absl::StatusOr<RotatedFileWriter> CreateFile(uint64_t start_realtime_ns);
  absl::Status AppendGap(uint64_t gap_begin_ns, const RingRecord& record);
  absl::Status CloseFile();
  absl::Status AppendRecord(const RingRecord& record);
  absl::Status SyncIfDue();
  absl::Status Retain();
  absl::Status CheckSpace();
  void Block(const absl::Status& status);

  const Clock& clock_;
  const SegmentRingReader& ring_;
  const std::string host_;
  const std::string boot_id_;
  Rotation config_;
  bool is_started_ = false;
  std::optional<RotatedFileWriter> file_;
  uint64_t next_sequence_ = 0;
  uint64_t synced_ns_ = 0;
  uint64_t written_end_ns_ = 0;  // Of the newest segment in a file, BOOTTIME.
  bool has_gap_ = false;         // Since then, segments are in no file.
  std::string segment_;          // Scratch.

  absl::Status error_;
  uint64_t error_since_ns_ = 0;
  uint64_t retry_at_ns_ = 0;
  uint64_t retry_delay_ns_ = 0;

  uint64_t lost_segments_ = 0;
  uint64_t salvaged_files_ = 0;
  uint64_t removed_files_ = 0;
  uint64_t files_ = 0;
  uint64_t files_bytes_ = 0;
  uint64_t oldest_ns_ = 0;
  uint64_t free_bytes_ = 0;
};

}  // namespace aitrace
