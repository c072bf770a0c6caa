#include "daemon/writer/file_rotator.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/strip.h"
#include "lib/base/file.h"
#include "lib/format/segment.h"
#include "lib/store/retention.h"
#include "proto/perfetto/trace.pb.h"

namespace aitrace {
namespace {

constexpr uint64_t kSyncPeriodNs = 4 * kNsPerSecond;
constexpr uint64_t kFirstRetryNs = kNsPerSecond;
constexpr uint64_t kMaxRetryNs = 10 * kNsPerSecond;
constexpr uint64_t kNsPerHour = 3600 * kNsPerSecond;
constexpr mode_t kDirectoryMode = 0750;

absl::Status MakeDirectory(const std::string& directory) {
  std::error_code error;
  bool is_new = std::filesystem::create_directories(directory, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("mkdir ", directory));
  if (is_new && chmod(directory.c_str(), kDirectoryMode) != 0) {
    return ErrnoStatus(errno, absl::StrCat("chmod ", directory));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FreeBytes(const std::string& directory) {
  struct statfs info {};
  if (statfs(directory.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("statfs ", directory));
  }
  return info.f_bavail * static_cast<uint64_t>(info.f_bsize);
}

}  // namespace

FileRotator::FileRotator(const Clock& clock, const SegmentRingReader& ring, std::string host,
                         std::string boot_id)
    : clock_(clock), ring_(ring), host_(std::move(host)), boot_id_(std::move(boot_id)) {}

void FileRotator::Configure(const Rotation& config) {
  bool is_moving = is_started_ && config.directory() != config_.directory();
  config_ = config;
  if (!is_moving) return;
  // The present file is finished where it is; the next start looks into the
  // new directory.
  absl::Status status = CloseFile();
  if (!status.ok()) Block(status);
  is_started_ = false;
}

void FileRotator::Block(const absl::Status& status) {
  uint64_t now_ns = clock_.BootNs();
  if (error_.ok()) error_since_ns_ = clock_.RealtimeNs();
  error_ = status;
  retry_delay_ns_ = std::clamp(retry_delay_ns_ * 2, kFirstRetryNs, kMaxRetryNs);
  retry_at_ns_ = now_ns + retry_delay_ns_;
}

void FileRotator::Poll() {
  if (!error_.ok() && clock_.BootNs() < retry_at_ns_) return;
  absl::Status status = is_started_ ? absl::OkStatus() : Start();
  if (status.ok()) status = WriteNew();
  if (absl::IsNotFound(status)) {
    // Somebody removed the file, or the directory with it: made anew.
    file_.reset();
    is_started_ = false;
  }
  if (!status.ok()) return Block(status);
  error_ = absl::OkStatus();
  retry_delay_ns_ = 0;
}

absl::Status FileRotator::Start() {
  RETURN_IF_ERROR(MakeDirectory(config_.directory()));
  RETURN_IF_ERROR(AdoptPartials());
  RETURN_IF_ERROR(Retain());
  if (!file_.has_value()) RETURN_IF_ERROR(FindNext());
  is_started_ = true;
  return absl::OkStatus();
}

// What finished files have is not written again. The newest of this boot is
// the one with the highest sequence: names follow a clock that may be set back.
absl::Status FileRotator::FindNext() {
  ASSIGN_OR_RETURN(std::vector<RotatedFile> files, ListRotatedFiles(config_.directory()));
  std::string newest;
  uint64_t newest_sequence = 0;
  for (const RotatedFile& file : files) {
    std::string path = absl::StrCat(config_.directory(), "/", file.name);
    absl::StatusOr<UniqueFd> fd = OpenFile(path, O_RDONLY | O_NOFOLLOW);
    if (!fd.ok()) continue;  // Somebody else's, or just removed.
    auto end = ForEachSegment(fd->get(), [&](const FileSegment& first) {
      if (first.info.boot_id() == boot_id_ && first.info.sequence() > newest_sequence) {
        newest = path;
        newest_sequence = first.info.sequence();
      }
      return false;
    });
    RETURN_IF_ERROR(end.status());
  }
  if (newest.empty()) return absl::OkStatus();
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(newest, O_RDONLY | O_NOFOLLOW));
  return ForEachSegment(fd.get(),
                        [&](const FileSegment& segment) {
                          next_sequence_ = std::max(next_sequence_, segment.info.sequence() + 1);
                          written_end_ns_ = segment.info.end_ns();
                          return true;
                        })
      .status();
}

absl::Status FileRotator::AdoptPartials() {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListPartialFiles(config_.directory()));
  for (const std::string& name : names) {
    // One of this host that is still held is its dying writer's, hung in the
    // file system until now, and free with the next try. Another host's is its own.
    if (HostOfFileName(absl::StripSuffix(name, kPartialSuffix)) != HostInFileName(host_)) continue;
    RETURN_IF_ERROR(AdoptPartial(name, name == names.back()));
  }
  return absl::OkStatus();
}

// A file that was left goes on where the ring still has what follows it; else
// it ends here, and says so.
absl::Status FileRotator::AdoptPartial(const std::string& name, bool is_newest) {
  ASSIGN_OR_RETURN(RotatedFileWriter file, RotatedFileWriter::Resume(config_.directory(), name));
  ++salvaged_files_;
  if (is_newest && file.last_segment().has_value() && file.last_segment()->boot_id() == boot_id_) {
    uint64_t next = file.last_segment()->sequence() + 1;
    absl::StatusOr<RingRecord> record = ring_.Find(next);
    if (record.ok() && record->sequence == next) {
      RETURN_IF_ERROR(file.CutToSegments());
      next_sequence_ = next;
      file_ = std::move(file);
      return absl::OkStatus();
    }
  }
  return file.FinishTruncated("the recorder was killed while it wrote this file");
}

absl::Status FileRotator::WriteNew() {
  RETURN_IF_ERROR(CheckSpace());
  while (true) {
    absl::StatusOr<RingRecord> record = ring_.Find(next_sequence_);
    if (!record.ok()) return SyncIfDue();
    RETURN_IF_ERROR(WriteRecord(*record));
    next_sequence_ = record->sequence + 1;
  }
}

absl::Status FileRotator::WriteRecord(const RingRecord& record) {
  bool is_keyframe = record.kind == trace::SegmentInfo::KEYFRAME;
  if (next_sequence_ > 0 && record.sequence > next_sequence_) {
    RETURN_IF_ERROR(CloseFile());
    lost_segments_ += record.sequence - next_sequence_;
    has_gap_ = true;
    next_sequence_ = record.sequence;
  }
  if (is_keyframe && (record.starts_file || !HasFile())) return StartFile(record);
  if (is_keyframe) return absl::OkStatus();  // In the middle of a file.
  if (!HasFile()) {
    // Nothing says who is who: no file can start here.
    lost_segments_ += next_sequence_ > 0 ? 1 : 0;
    has_gap_ |= next_sequence_ > 0;
    return absl::OkStatus();
  }
  return AppendRecord(record);
}

absl::Status FileRotator::StartFile(const RingRecord& record) {
  RETURN_IF_ERROR(CloseFile());
  RETURN_IF_ERROR(Retain());
  ClockReading now = clock_.Read();
  ASSIGN_OR_RETURN(RotatedFileWriter file,
                   CreateFile(now.realtime_ns - (now.boot_ns - record.begin_ns)));
  file_ = std::move(file);
  synced_ns_ = now.boot_ns;
  uint64_t gap_begin_ns = written_end_ns_;
  RETURN_IF_ERROR(AppendRecord(record));
  return HasFile() && has_gap_ ? AppendGap(gap_begin_ns, record) : absl::OkStatus();
}

// After a clock was set back a name may be taken: the next millisecond is not.
absl::StatusOr<RotatedFileWriter> FileRotator::CreateFile(uint64_t start_realtime_ns) {
  constexpr int kMaxTries = 1000;
  absl::Status taken;
  for (int i = 0; i < kMaxTries; ++i, start_realtime_ns += kNsPerMs) {
    auto file =
        RotatedFileWriter::Create(config_.directory(), RotatedFileName(host_, start_realtime_ns));
    if (file.ok() || !absl::IsAlreadyExists(file.status())) return file;
    taken = file.status();
  }
  return taken;
}

// Says in the file that segments before it are in no file.
absl::Status FileRotator::AppendGap(uint64_t gap_begin_ns, const RingRecord& record) {
  perfetto::Trace packets;
  auto& gap = *packets.add_packet()->MutableExtension(trace::aitrace)->mutable_gap();
  gap.set_begin_ns(gap_begin_ns);
  gap.set_end_ns(record.begin_ns);
  gap.set_reason("segments left the memory ring before a file had them");
  trace::SegmentInfo info;
  info.set_kind(trace::SegmentInfo::DATA);
  info.set_sequence(record.sequence);
  info.set_begin_ns(record.begin_ns);
  info.set_end_ns(record.begin_ns);
  info.set_boot_id(boot_id_);
  RETURN_IF_ERROR(file_->Append(EncodeSegment(info, packets.SerializeAsString())));
  has_gap_ = false;
  return absl::OkStatus();
}

absl::Status FileRotator::CloseFile() {
  if (!file_.has_value()) return absl::OkStatus();
  absl::Status status = HasFile() ? file_->Finish() : file_->FinishTruncated("empty");
  if (status.ok()) file_.reset();
  return status;
}

absl::Status FileRotator::AppendRecord(const RingRecord& record) {
  if (!ring_.Copy(record, segment_).ok()) {
    // Overwritten while it was copied: the next record shows the gap.
    ++lost_segments_;
    has_gap_ = true;
    return CloseFile();
  }
  RETURN_IF_ERROR(file_->Append(segment_));
  written_end_ns_ = record.end_ns;
  // Started now, so that the sync later has little left to wait for.
  sync_file_range(file_->fd(), 0, 0, SYNC_FILE_RANGE_WRITE);
  return absl::OkStatus();
}

absl::Status FileRotator::SyncIfDue() {
  uint64_t now_ns = clock_.BootNs();
  if (!file_.has_value() || now_ns - synced_ns_ < kSyncPeriodNs) return absl::OkStatus();
  synced_ns_ = now_ns;
  return file_->Sync();
}

absl::Status FileRotator::Retain() {
  ASSIGN_OR_RETURN(std::vector<RotatedFile> files, ListRotatedFiles(config_.directory()));
  // In a shared directory, other hosts look after their own.
  std::erase_if(files, [this](const RotatedFile& file) {
    return HostOfFileName(file.name) != HostInFileName(host_);
  });
  ASSIGN_OR_RETURN(free_bytes_, FreeBytes(config_.directory()));
  RetentionLimits limits{.max_files = config_.keep_files(),
                         .max_bytes = config_.keep_mb() << 20,
                         .max_age_ns = config_.keep_hours() * kNsPerHour,
                         .min_free_bytes = config_.min_free_mb() << 20};
  size_t remove = FilesToRemove(files, limits, clock_.RealtimeNs(), free_bytes_);
  size_t kept = 0;
  for (size_t i = 0; i < remove; ++i) {
    std::string path = absl::StrCat(config_.directory(), "/", files[i].name);
    // One that cannot be removed stays, is counted, and stops nobody.
    if (unlink(path.c_str()) == 0) {
      ++removed_files_;
    } else {
      std::swap(files[kept++], files[i]);
    }
  }
  files.erase(files.begin() + static_cast<ptrdiff_t>(kept),
              files.begin() + static_cast<ptrdiff_t>(remove));
  files_ = files.size();
  files_bytes_ = 0;
  for (const RotatedFile& file : files) files_bytes_ += file.bytes;
  oldest_ns_ = files.empty() ? 0 : files.front().start_realtime_ns;
  return absl::OkStatus();
}

absl::Status FileRotator::CheckSpace() {
  ASSIGN_OR_RETURN(free_bytes_, FreeBytes(config_.directory()));
  uint64_t floor_bytes = config_.min_free_mb() << 20;
  if (free_bytes_ >= floor_bytes) return absl::OkStatus();
  RETURN_IF_ERROR(Retain());
  ASSIGN_OR_RETURN(free_bytes_, FreeBytes(config_.directory()));
  if (free_bytes_ >= floor_bytes) return absl::OkStatus();
  return absl::ResourceExhaustedError(absl::StrCat(config_.directory(), ": ", free_bytes_ >> 20,
                                                   " MiB free, and ", config_.min_free_mb(),
                                                   " are to stay free (rotation.min_free_mb)"));
}

void FileRotator::Finish() {
  Poll();
  absl::Status status = CloseFile();
  if (!status.ok()) Block(status);  // The next start adopts it.
}

std::string FileRotator::partial_path() const {
  return file_.has_value() ? file_->partial_path() : "";
}

void FileRotator::FillStatus(WriterStatus& status) const {
  status.set_state(!error_.ok()  ? WriterStatus::BLOCKED
                   : is_started_ ? WriterStatus::WRITING
                                 : WriterStatus::STARTING);
  if (!error_.ok()) {
    status.set_error(std::string(error_.message()));
    status.set_error_since_realtime_ns(error_since_ns_);
  }
  status.set_directory(config_.directory());
  if (file_.has_value()) {
    status.set_current_file(file_->name());
    status.set_current_bytes(file_->bytes());
  }
  status.set_files(files_);
  status.set_files_bytes(files_bytes_);
  status.set_oldest_realtime_ns(oldest_ns_);
  status.set_disk_free_bytes(free_bytes_);
  if (next_sequence_ > 0) status.set_written_sequence(next_sequence_ - 1);
  status.set_lost_segments(lost_segments_);
  status.set_salvaged_files(salvaged_files_);
  status.set_removed_files(removed_files_);
}

}  // namespace aitrace
