// Rotated files: their names, how one is written, and what is done with one
// that was left unfinished.
//
//   aitrace-<host>-<UTC start>.perfetto-trace            finished, never touched again
//   aitrace-<host>-<UTC start>.perfetto-trace.partial    being written, and locked
//
// A file is a KEYFRAME segment and the DATA segments after it, byte for byte
// as in the ring. Whatever ends the process, a finished name holds whole
// segments, and a .partial holds whole segments up to where it was cut.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "proto/aitrace/trace.pb.h"

namespace aitrace {

inline constexpr char kTraceSuffix[] = ".perfetto-trace";
inline constexpr char kPartialSuffix[] = ".partial";

std::string RotatedFileName(const std::string& host, uint64_t start_realtime_ns);
// `host` as it stands in names.
std::string HostInFileName(const std::string& host);
// The host in a name that ParseRotatedFileName() takes.
std::string HostOfFileName(absl::string_view name);
// When the file of this name was started; nullopt for names that
// RotatedFileName() does not make.
std::optional<uint64_t> ParseRotatedFileName(absl::string_view name);

struct RotatedFile {
  std::string name;
  uint64_t start_realtime_ns = 0;  // From the name: modification times lie.
  uint64_t bytes = 0;
};

// The finished files of `directory`, oldest first: regular files with names of
// ours, and nothing else.
absl::StatusOr<std::vector<RotatedFile>> ListRotatedFiles(const std::string& directory);
// The unfinished ones, oldest first, as names.
absl::StatusOr<std::vector<std::string>> ListPartialFiles(const std::string& directory);

// A segment as it stands in a file.
struct FileSegment {
  trace::SegmentInfo info;
  uint64_t offset = 0;
  uint64_t size = 0;
};

// Calls `visit` for each whole segment of an open file until it returns false.
// Ends quietly where the file does or where no whole segment stands; returns
// the offset of that place.
absl::StatusOr<uint64_t> ForEachSegment(int fd,
                                        const std::function<bool(const FileSegment&)>& visit);

// One file in the making.
class RotatedFileWriter {
 public:
  // Makes `directory`/`name`.partial; AlreadyExists if that or `name` is there.
  static absl::StatusOr<RotatedFileWriter> Create(const std::string& directory,
                                                  const std::string& name);
  // Opens a .partial that was left; Unavailable when another process is still at
  // it. Nothing is changed yet: continue with CutToSegments(), or end it with
  // FinishTruncated().
  static absl::StatusOr<RotatedFileWriter> Resume(const std::string& directory,
                                                  const std::string& partial_name);

  // Of a resumed file: cuts it behind its last whole segment, to go on there.
  absl::Status CutToSegments();
  // Appends whole segments. On an error nothing of them is in the file.
  absl::Status Append(absl::string_view segments);
  // What was appended survives a power cut.
  absl::Status Sync();
  // Syncs, and gives the file its final name; it never replaces another.
  absl::Status Finish();
  // As Finish(), cut behind the last whole packet, with one more that says that
  // the end is missing. Removes the file instead if not even a keyframe is in it.
  absl::Status FinishTruncated(const std::string& reason);

  const std::string& name() const { return name_; }
  std::string partial_path() const;
  uint64_t bytes() const { return bytes_; }
  int fd() const { return fd_.get(); }
  // Of a resumed file: its newest whole segment.
  const std::optional<trace::SegmentInfo>& last_segment() const { return last_segment_; }

 private:
  RotatedFileWriter() = default;
  absl::Status CutTo(uint64_t bytes);
  absl::StatusOr<uint64_t> WholePackets(uint64_t file_bytes) const;

  std::string directory_;
  std::string name_;  // The final one.
  UniqueFd fd_;
  uint64_t bytes_ = 0;
  std::optional<trace::SegmentInfo> last_segment_;
};

// Makes what was done to names in `directory` survive a power cut.
absl::Status SyncDirectory(const std::string& directory);

}  // namespace aitrace
