#include "lib/store/rotated_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "lib/base/file.h"
#include "lib/format/segment.h"
#include "lib/format/wire.h"
#include "lib/store/utc_time.h"
#include "proto/perfetto/trace.pb.h"

namespace aitrace {
namespace {

constexpr char kPrefix[] = "aitrace-";
constexpr mode_t kFileMode = 0640;
constexpr uint32_t kTracePacket = 1;
constexpr uint32_t kSequenceId = 1;

struct CloseDirectory {
  void operator()(DIR* directory) const { closedir(directory); }
};

absl::Status ForEachName(const std::string& directory,
                         const std::function<void(const std::string&)>& visit) {
  std::unique_ptr<DIR, CloseDirectory> entries(opendir(directory.c_str()));
  if (entries == nullptr) return ErrnoStatus(errno, absl::StrCat("open ", directory));
  while (const dirent* entry = readdir(entries.get())) visit(entry->d_name);
  return absl::OkStatus();
}

std::string PathOf(const std::string& directory, const std::string& name) {
  return absl::StrCat(directory, "/", name);
}

std::string TruncationPacket(uint64_t cut_bytes, const std::string& reason) {
  perfetto::TracePacket packet;
  packet.set_trusted_packet_sequence_id(kSequenceId);
  auto& truncation = *packet.MutableExtension(trace::aitrace)->mutable_truncation();
  truncation.set_cut_bytes(cut_bytes);
  truncation.set_reason(reason);
  std::string bytes;
  wire::AppendLengthDelimited(kTracePacket, packet.SerializeAsString(), bytes);
  return bytes;
}

absl::Status Lock(int fd, const std::string& path) {
  if (flock(fd, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  if (errno == EWOULDBLOCK) {
    return absl::UnavailableError(absl::StrCat(path, " is in use by another writer"));
  }
  return ErrnoStatus(errno, absl::StrCat("lock ", path));
}

}  // namespace

std::string HostInFileName(const std::string& host) {
  // A host may be called anything, "../x" too.
  std::string safe = host.empty() ? "host" : host;
  for (char& c : safe) {
    bool is_safe = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.';
    if (!is_safe) c = '_';
  }
  return safe;
}

std::string RotatedFileName(const std::string& host, uint64_t start_realtime_ns) {
  return absl::StrCat(kPrefix, HostInFileName(host), "-", FormatUtcTime(start_realtime_ns),
                      kTraceSuffix);
}

std::string HostOfFileName(absl::string_view name) {
  size_t around = sizeof(kPrefix) - 1 + 1 + kUtcTimeBytes + sizeof(kTraceSuffix) - 1;
  return std::string(name.substr(sizeof(kPrefix) - 1, name.size() - around));
}

std::optional<uint64_t> ParseRotatedFileName(absl::string_view name) {
  // aitrace-<host>-<time>.perfetto-trace; a host's name may have dashes.
  if (!absl::StartsWith(name, kPrefix) || !absl::EndsWith(name, kTraceSuffix)) return std::nullopt;
  name.remove_prefix(sizeof(kPrefix) - 1);
  name.remove_suffix(sizeof(kTraceSuffix) - 1);
  if (name.size() < kUtcTimeBytes + 2 || name[name.size() - kUtcTimeBytes - 1] != '-') {
    return std::nullopt;
  }
  return ParseUtcTime(name.substr(name.size() - kUtcTimeBytes));
}

absl::StatusOr<std::vector<RotatedFile>> ListRotatedFiles(const std::string& directory) {
  std::vector<RotatedFile> files;
  RETURN_IF_ERROR(ForEachName(directory, [&](const std::string& name) {
    std::optional<uint64_t> start_ns = ParseRotatedFileName(name);
    struct stat info {};
    if (!start_ns.has_value() || lstat(PathOf(directory, name).c_str(), &info) != 0) return;
    if (!S_ISREG(info.st_mode)) return;
    files.push_back({name, *start_ns, static_cast<uint64_t>(info.st_size)});
  }));
  std::sort(files.begin(), files.end(), [](const RotatedFile& a, const RotatedFile& b) {
    return std::tie(a.start_realtime_ns, a.name) < std::tie(b.start_realtime_ns, b.name);
  });
  return files;
}

absl::StatusOr<std::vector<std::string>> ListPartialFiles(const std::string& directory) {
  std::vector<std::string> names;
  RETURN_IF_ERROR(ForEachName(directory, [&](const std::string& name) {
    absl::string_view stem = name;
    if (!absl::ConsumeSuffix(&stem, kPartialSuffix)) return;
    struct stat info {};
    bool is_file = lstat(PathOf(directory, name).c_str(), &info) == 0 && S_ISREG(info.st_mode);
    if (is_file && ParseRotatedFileName(stem).has_value()) names.push_back(name);
  }));
  std::sort(names.begin(), names.end());
  return names;
}

absl::StatusOr<uint64_t> ForEachSegment(int fd,
                                        const std::function<bool(const FileSegment&)>& visit) {
  struct stat info {};
  if (fstat(fd, &info) != 0) return ErrnoStatus(errno, "stat");
  auto size = static_cast<uint64_t>(info.st_size);
  char buffer[kMaxSegmentInfoBytes];
  uint64_t offset = 0;
  while (offset < size) {
    ssize_t got = pread(fd, buffer, sizeof(buffer), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoStatus(errno, "read");
    auto view = ParseSegmentInfo(absl::string_view(buffer, static_cast<size_t>(got)), 0);
    if (!view.ok() || view->size > size - offset) break;
    FileSegment segment{.info = std::move(view->info), .offset = offset, .size = view->size};
    offset += segment.size;
    if (!visit(segment)) break;
  }
  return offset;
}

absl::Status SyncDirectory(const std::string& directory) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(directory, O_RDONLY | O_DIRECTORY));
  if (fsync(fd.get()) != 0) return ErrnoStatus(errno, absl::StrCat("fsync ", directory));
  return absl::OkStatus();
}

std::string RotatedFileWriter::partial_path() const {
  return absl::StrCat(directory_, "/", name_, kPartialSuffix);
}

absl::StatusOr<RotatedFileWriter> RotatedFileWriter::Create(const std::string& directory,
                                                            const std::string& name) {
  RotatedFileWriter file;
  file.directory_ = directory;
  file.name_ = name;
  struct stat info {};
  if (lstat(PathOf(directory, name).c_str(), &info) == 0) {
    return absl::AlreadyExistsError(absl::StrCat(name, " exists"));
  }
  constexpr int kFlags = O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW;
  ASSIGN_OR_RETURN(file.fd_, OpenFile(file.partial_path(), kFlags, kFileMode));
  RETURN_IF_ERROR(Lock(file.fd_.get(), file.partial_path()));
  return file;
}

absl::StatusOr<RotatedFileWriter> RotatedFileWriter::Resume(const std::string& directory,
                                                            const std::string& partial_name) {
  RotatedFileWriter file;
  file.directory_ = directory;
  file.name_ = partial_name.substr(0, partial_name.size() - (sizeof(kPartialSuffix) - 1));
  ASSIGN_OR_RETURN(file.fd_, OpenFile(file.partial_path(), O_RDWR | O_NOFOLLOW));
  RETURN_IF_ERROR(Lock(file.fd_.get(), file.partial_path()));
  ASSIGN_OR_RETURN(file.bytes_, ForEachSegment(file.fd_.get(), [&](const FileSegment& segment) {
                     file.last_segment_ = segment.info;
                     return true;
                   }));
  return file;
}

absl::Status RotatedFileWriter::CutTo(uint64_t bytes) {
  bool is_cut = ftruncate(fd_.get(), static_cast<off_t>(bytes)) == 0 &&
                lseek(fd_.get(), static_cast<off_t>(bytes), SEEK_SET) >= 0;
  if (!is_cut) return ErrnoStatus(errno, absl::StrCat("truncate ", partial_path()));
  bytes_ = bytes;
  return absl::OkStatus();
}

absl::Status RotatedFileWriter::CutToSegments() { return CutTo(bytes_); }

// Where the last whole packet ends: behind the whole segments, those of one
// that was cut off count too, if any of its events are there.
absl::StatusOr<uint64_t> RotatedFileWriter::WholePackets(uint64_t file_bytes) const {
  uint64_t tail_bytes = std::min<uint64_t>(file_bytes - bytes_, kMaxSegmentBytes);
  std::string tail(tail_bytes, '\0');
  ssize_t got = pread(fd_.get(), tail.data(), tail.size(), static_cast<off_t>(bytes_));
  if (got < 0) return ErrnoStatus(errno, absl::StrCat("read ", partial_path()));
  tail.resize(static_cast<size_t>(got));
  auto info = ParseSegmentInfo(tail, 0);
  if (!info.ok() || bytes_ == 0) return bytes_;
  size_t whole = WholePacketsPrefix(tail);
  size_t info_bytes = info->size - info->info.body_bytes();
  return whole > info_bytes ? bytes_ + whole : bytes_;
}

absl::Status RotatedFileWriter::Append(absl::string_view segments) {
  absl::Status status = WriteAll(fd_.get(), absl::MakeConstSpan(segments.data(), segments.size()));
  if (!status.ok()) {
    CutTo(bytes_).IgnoreError();  // The first error is the one to tell; it is cut again later.
    return Annotate(status, partial_path());
  }
  bytes_ += segments.size();
  return absl::OkStatus();
}

absl::Status RotatedFileWriter::Sync() {
  if (fdatasync(fd_.get()) == 0) return absl::OkStatus();
  return ErrnoStatus(errno, absl::StrCat("fdatasync ", partial_path()));
}

absl::Status RotatedFileWriter::Finish() {
  if (fsync(fd_.get()) != 0) return ErrnoStatus(errno, absl::StrCat("fsync ", partial_path()));
  std::string path = PathOf(directory_, name_);
  int renamed =
      renameat2(AT_FDCWD, partial_path().c_str(), AT_FDCWD, path.c_str(), RENAME_NOREPLACE);
  // Not every file system has that; a link does not replace either.
  if (renamed != 0 && errno == EINVAL) {
    renamed = link(partial_path().c_str(), path.c_str());
    if (renamed == 0) unlink(partial_path().c_str());
  }
  if (renamed != 0) return ErrnoStatus(errno, absl::StrCat("rename to ", path));
  return SyncDirectory(directory_);
}

absl::Status RotatedFileWriter::FinishTruncated(const std::string& reason) {
  struct stat info {};
  if (fstat(fd_.get(), &info) != 0) return ErrnoStatus(errno, "stat");
  auto file_bytes = static_cast<uint64_t>(info.st_size);
  ASSIGN_OR_RETURN(uint64_t whole_bytes, WholePackets(file_bytes));
  if (whole_bytes == 0) {
    if (unlink(partial_path().c_str()) == 0) return absl::OkStatus();
    return ErrnoStatus(errno, absl::StrCat("remove ", partial_path()));
  }
  RETURN_IF_ERROR(CutTo(whole_bytes));
  RETURN_IF_ERROR(Append(TruncationPacket(file_bytes - whole_bytes, reason)));
  return Finish();
}

}  // namespace aitrace
