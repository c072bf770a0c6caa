#include "daemon/writer/file_rotator.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "lib/base/file.h"
#include "lib/store/retention.h"

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

// What the newest finished file has is not written again.
absl::Status FileRotator::FindNext() {
  ASSIGN_OR_RETURN(std::vector<RotatedFile> files, ListRotatedFiles(config_.directory()));
  if (files.empty()) return absl::OkStatus();
  std::string path = absl::StrCat(config_.directory(), "/", files.back().name);
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDONLY | O_NOFOLLOW));
  return ForEachSegment(fd.get(),
                        [&](const FileSegment& segment) {
                          if (segment.info.boot_id() != boot_id_) return false;
                          next_sequence_ = std::max(next_sequence_, segment.info.sequence() + 1);
                          return true;
                        })
      .status();
}

absl::Status FileRotator::AdoptPartials() {
  ASSIGN_OR_RETURN(std::vector<std::string> names, ListPartialFiles(config_.directory()));
  for (const std::string& name : names) {
    // One that is still held is its dying writer's, hung in the file system
    // until now: it is free with the next try, or another daemon writes here.
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
  if (next_sequence_ > 0 && record.sequence > next_sequence_ && file_.has_value()) {
    RETURN_IF_ERROR(CloseFile());
    lost_segments_ += record.sequence - next_sequence_;
    next_sequence_ = record.sequence;
  }
  if (is_keyframe && (record.starts_file || !file_.has_value())) return StartFile(record);
  if (is_keyframe) return absl::OkStatus();  // In the middle of a file.
  if (!file_.has_value()) {
    // Nothing says who is who: no file can start here.
    lost_segments_ += next_sequence_ > 0 ? 1 : 0;
    return absl::OkStatus();
  }
  return AppendRecord(record);
}

absl::Status FileRotator::StartFile(const RingRecord& record) {
  RETURN_IF_ERROR(CloseFile());
  RETURN_IF_ERROR(Retain());
  ClockReading now = clock_.Read();
  uint64_t start_ns = now.realtime_ns - (now.boot_ns - record.begin_ns);
  std::string name = RotatedFileName(host_, start_ns);
  ASSIGN_OR_RETURN(RotatedFileWriter file, RotatedFileWriter::Create(config_.directory(), name));
  file_ = std::move(file);
  synced_ns_ = now.boot_ns;
  return AppendRecord(record);
}

absl::Status FileRotator::CloseFile() {
  if (!file_.has_value()) return absl::OkStatus();
  if (file_->bytes() == 0) {
    RETURN_IF_ERROR(file_->FinishTruncated("empty"));
  } else {
    RETURN_IF_ERROR(file_->Finish());
  }
  file_.reset();
  return absl::OkStatus();
}

absl::Status FileRotator::AppendRecord(const RingRecord& record) {
  if (!ring_.Copy(record, segment_).ok()) {
    // Overwritten while it was copied: the next record shows the gap.
    ++lost_segments_;
    return CloseFile();
  }
  RETURN_IF_ERROR(file_->Append(segment_));
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
