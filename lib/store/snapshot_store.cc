#include "lib/store/snapshot_store.h"

#include <fcntl.h>
#include <google/protobuf/util/json_util.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "lib/base/file.h"
#include "lib/store/rotated_files.h"
#include "lib/store/utc_time.h"

namespace aitrace {
namespace {

constexpr char kHiddenPrefix[] = ".partial-";
constexpr char kTraceName[] = "trace.perfetto-trace";
constexpr char kInfoName[] = "snapshot.json";
constexpr mode_t kDirectoryMode = 0750;
constexpr mode_t kFileMode = 0640;
constexpr size_t kMaxInfoBytes = 1024 * 1024;
constexpr size_t kMaxIdBytes = 128;
constexpr int kMaxNameTries = 1000;

bool IsReasonChar(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-'; }

// <UTC>-<reason>, and so no path to anywhere else.
bool IsId(const std::string& id) {
  if (id.size() <= kUtcTimeBytes + 1 || id.size() > kMaxIdBytes || id[kUtcTimeBytes] != '-') {
    return false;
  }
  return ParseUtcTime(absl::string_view(id).substr(0, kUtcTimeBytes)).has_value() &&
         std::all_of(id.begin() + kUtcTimeBytes + 1, id.end(), IsReasonChar);
}

absl::Status CheckId(const std::string& id) {
  if (IsId(id)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "not a snapshot's id (they look like 20261201T130500.123Z-command; see aitracectl "
      "snapshots list)");
}

absl::Status RemoveTree(const std::string& path) {
  std::error_code error;
  std::filesystem::remove_all(path, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("remove ", path));
  return absl::OkStatus();
}

absl::StatusOr<std::string> ToJson(const SnapshotInfo& info) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  std::string json;
  auto status = google::protobuf::util::MessageToJsonString(info, &json, options);
  if (!status.ok()) return absl::InternalError(status.ToString());
  return json;
}

}  // namespace

SnapshotWriter::~SnapshotWriter() {
  // Unfinished: what cannot be removed now is swept at the next start.
  if (!hidden_.empty()) RemoveTree(hidden_).IgnoreError();
}

absl::Status SnapshotWriter::Publish(const SnapshotInfo& info) {
  ASSIGN_OR_RETURN(std::string json, ToJson(info));
  std::string path = absl::StrCat(hidden_, "/", kInfoName);
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_WRONLY | O_CREAT | O_EXCL, kFileMode));
  RETURN_IF_ERROR(
      Annotate(WriteAll(fd.get(), absl::MakeConstSpan(json.data(), json.size())), path));
  std::string final_path = absl::StrCat(directory_, "/", id_);
  if (rename(hidden_.c_str(), final_path.c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("rename to ", final_path));
  }
  hidden_.clear();
  return absl::OkStatus();
}

absl::Status SnapshotWriter::Sync() {
  std::string info_path = absl::StrCat(directory_, "/", id_, "/", kInfoName);
  ASSIGN_OR_RETURN(UniqueFd info, OpenFile(info_path, O_RDONLY));
  if (fsync(trace_.get()) != 0 || fsync(info.get()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("fsync ", id_));
  }
  RETURN_IF_ERROR(SyncDirectory(absl::StrCat(directory_, "/", id_)));
  return SyncDirectory(directory_);
}

absl::Status SnapshotStore::Init() {
  std::error_code error;
  std::filesystem::create_directories(directory_, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("mkdir ", directory_));
  std::filesystem::directory_iterator entries(directory_, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("open ", directory_));
  std::vector<std::string> left;
  for (const auto& entry : entries) {
    if (absl::StartsWith(entry.path().filename().string(), kHiddenPrefix)) {
      left.push_back(entry.path().string());
    }
  }
  for (const std::string& path : left) RETURN_IF_ERROR(RemoveTree(path));
  return absl::OkStatus();
}

absl::StatusOr<SnapshotWriter> SnapshotStore::Create(uint64_t realtime_ns,
                                                     const std::string& reason) {
  SnapshotWriter writer;
  writer.directory_ = directory_;
  for (int i = 0; i < kMaxNameTries; ++i, realtime_ns += 1'000'000) {
    writer.id_ = absl::StrCat(FormatUtcTime(realtime_ns), "-", reason);
    std::string hidden = absl::StrCat(directory_, "/", kHiddenPrefix, writer.id_);
    struct stat info {};
    if (lstat(absl::StrCat(directory_, "/", writer.id_).c_str(), &info) == 0) continue;
    if (mkdir(hidden.c_str(), kDirectoryMode) != 0) {
      if (errno == EEXIST) continue;
      return ErrnoStatus(errno, absl::StrCat("mkdir ", hidden));
    }
    writer.hidden_ = hidden;
    std::string path = absl::StrCat(hidden, "/", kTraceName);
    ASSIGN_OR_RETURN(writer.trace_, OpenFile(path, O_RDWR | O_CREAT | O_EXCL, kFileMode));
    return writer;
  }
  return absl::AlreadyExistsError("too many snapshots of the same millisecond");
}

std::string SnapshotStore::TracePath(const std::string& id) const {
  return absl::StrCat(directory_, "/", id, "/", kTraceName);
}

absl::StatusOr<std::vector<std::string>> SnapshotStore::Ids() const {
  std::error_code error;
  std::filesystem::directory_iterator entries(directory_, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("open ", directory_));
  std::vector<std::string> ids;
  for (const auto& entry : entries) {
    std::string name = entry.path().filename().string();
    if (IsId(name) && entry.symlink_status(error).type() == std::filesystem::file_type::directory) {
      ids.push_back(std::move(name));
    }
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

absl::StatusOr<std::vector<SnapshotInfo>> SnapshotStore::List() const {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, Ids());
  std::vector<SnapshotInfo> snapshots;
  for (const std::string& id : ids) {
    absl::StatusOr<SnapshotInfo> info = Show(id);
    if (info.ok()) {
      snapshots.push_back(*std::move(info));
      continue;
    }
    // Listed all the same: it takes space, and its trace may be good.
    snapshots.emplace_back().set_id(id);
    snapshots.back().set_covered_note(std::string(info.status().message()));
  }
  return snapshots;
}

absl::StatusOr<SnapshotInfo> SnapshotStore::Show(const std::string& id) const {
  RETURN_IF_ERROR(CheckId(id));
  ASSIGN_OR_RETURN(std::string json,
                   ReadFile(absl::StrCat(directory_, "/", id, "/", kInfoName), kMaxInfoBytes));
  SnapshotInfo info;
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  auto status = google::protobuf::util::JsonStringToMessage(json, &info, options);
  if (!status.ok()) return absl::DataLossError(absl::StrCat(kInfoName, ": ", status.ToString()));
  info.set_id(id);
  return info;
}

absl::StatusOr<UniqueFd> SnapshotStore::OpenTrace(const std::string& id) const {
  RETURN_IF_ERROR(CheckId(id));
  return OpenFile(TracePath(id), O_RDONLY | O_NOFOLLOW);
}

absl::Status SnapshotStore::Remove(const std::string& id) {
  RETURN_IF_ERROR(CheckId(id));
  std::string path = absl::StrCat(directory_, "/", id);
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return ErrnoStatus(errno, absl::StrCat("snapshot ", id));
  return RemoveTree(path);
}

absl::StatusOr<SnapshotStore::Usage> SnapshotStore::Enforce(const Limits& limits) {
  ASSIGN_OR_RETURN(std::vector<std::string> ids, Ids());
  std::vector<uint64_t> sizes;
  Usage usage;
  for (const std::string& id : ids) {
    std::error_code error;
    uint64_t bytes = std::filesystem::file_size(TracePath(id), error);
    sizes.push_back(error ? 0 : bytes);
    ++usage.count;
    usage.bytes += sizes.back();
  }
  for (size_t i = 0; i + 1 < ids.size(); ++i) {
    bool is_too_much = (limits.max_count > 0 && usage.count > limits.max_count) ||
                       (limits.max_bytes > 0 && usage.bytes > limits.max_bytes);
    if (!is_too_much) break;
    RETURN_IF_ERROR(Remove(ids[i]));
    --usage.count;
    usage.bytes -= sizes[i];
  }
  return usage;
}

}  // namespace aitrace
