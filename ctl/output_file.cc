#include "ctl/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "lib/base/file.h"

namespace aitrace {
namespace {

constexpr size_t kChunkBytes = 4 * 1024 * 1024;
constexpr mode_t kFileMode = 0666;  // Less the umask, as any program's output.

class Copy {
 public:
  Copy(int from, int to, const std::function<void(uint64_t, uint64_t)>& on_progress)
      : from_(from), to_(to), on_progress_(on_progress) {}

  absl::StatusOr<uint64_t> Run() {
    struct stat info {};
    if (fstat(from_, &info) != 0) return ErrnoStatus(errno, "stat the trace");
    total_bytes_ = static_cast<uint64_t>(info.st_size);
    while (done_bytes_ < total_bytes_) {
      uint64_t want = std::min<uint64_t>(kChunkBytes, total_bytes_ - done_bytes_);
      ASSIGN_OR_RETURN(uint64_t copied, CopySome(from_, done_bytes_, to_, want));
      if (copied == 0) return absl::DataLossError("the trace became shorter while it was copied");
      done_bytes_ += copied;
      if (on_progress_) on_progress_(done_bytes_, total_bytes_);
    }
    return done_bytes_;
  }

 private:
  const int from_;
  const int to_;
  const std::function<void(uint64_t, uint64_t)>& on_progress_;
  uint64_t total_bytes_ = 0;
  uint64_t done_bytes_ = 0;
};

// A file that is not there yet, or a plain one, is replaced as a whole.
bool IsReplaceable(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) != 0 || S_ISREG(info.st_mode);
}

absl::StatusOr<uint64_t> CopyBeside(int trace, const std::string& path,
                                    const std::function<void(uint64_t, uint64_t)>& on_progress) {
  std::string partial = absl::StrCat(path, ".partial-", getpid());
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(partial, O_RDWR | O_CREAT | O_EXCL, kFileMode));
  absl::StatusOr<uint64_t> copied = Copy(trace, fd.get(), on_progress).Run();
  if (copied.ok() && rename(partial.c_str(), path.c_str()) != 0) {
    copied = ErrnoStatus(errno, absl::StrCat("rename to ", path));
  }
  if (!copied.ok()) unlink(partial.c_str());
  return copied;
}

}  // namespace

absl::StatusOr<uint64_t> CopyTrace(int trace, const std::string& path,
                                   const std::function<void(uint64_t, uint64_t)>& on_progress) {
  absl::StatusOr<uint64_t> copied = 0;
  if (path == "-") {
    if (isatty(STDOUT_FILENO)) {
      return absl::InvalidArgumentError("a trace is not for a terminal (use -o FILE, or a pipe)");
    }
    copied = Copy(trace, STDOUT_FILENO, on_progress).Run();
  } else if (IsReplaceable(path)) {
    copied = CopyBeside(trace, path, on_progress);
  } else {
    ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_WRONLY));
    copied = Copy(trace, fd.get(), on_progress).Run();
  }
  if (!copied.ok()) return Annotate(copied.status(), path);
  return copied;
}

}  // namespace aitrace
