#include "daemon/service/instance_lock.h"

#include <fcntl.h>
#include <sys/file.h>

#include <filesystem>

#include "absl/strings/strip.h"
#include "lib/base/file.h"

namespace aitrace {
namespace {

constexpr mode_t kFileMode = 0600;
constexpr size_t kMaxPidBytes = 32;

std::string Holder(int fd) {
  absl::StatusOr<std::string> pid = ReadAll(fd, kMaxPidBytes);
  if (!pid.ok() || pid->empty()) return "another process";
  return absl::StrCat("process ", absl::StripSuffix(*pid, "\n"));
}

}  // namespace

absl::StatusOr<InstanceLock> InstanceLock::Acquire(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDWR | O_CREAT | O_NOFOLLOW, kFileMode));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return ErrnoStatus(errno, absl::StrCat("lock ", path));
    return absl::FailedPreconditionError(absl::StrCat(
        "aitraced is running already: ", Holder(fd.get()), " holds ", path,
        " (stop it first: systemctl stop aitraced; or give this one its own control.socket)"));
  }
  std::string pid = absl::StrCat(getpid(), "\n");
  if (ftruncate(fd.get(), 0) != 0) return ErrnoStatus(errno, absl::StrCat("write ", path));
  RETURN_IF_ERROR(WriteAll(fd.get(), absl::MakeConstSpan(pid.data(), pid.size())));
  return InstanceLock(std::move(fd));
}

}  // namespace aitrace
