#include "lib/base/file.h"

#include <fcntl.h>

#include <algorithm>

namespace aitrace {
namespace {

constexpr size_t kReadChunkBytes = 64 * 1024;
constexpr size_t kCopyBytes = 1024 * 1024;

}  // namespace

absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags, unsigned mode) {
  int fd = -1;
  do {
    fd = open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  if (fd < 0) return ErrnoStatus(errno, absl::StrCat("open ", path));
  return UniqueFd(fd);
}

absl::StatusOr<std::string> ReadAll(int fd, size_t max_bytes) {
  std::string bytes;
  while (true) {
    size_t used = bytes.size();
    bytes.resize(used + kReadChunkBytes);
    ssize_t got = read(fd, bytes.data() + used, kReadChunkBytes);
    if (got < 0 && errno == EINTR)
      got = 0;
    else if (got < 0)
      return ErrnoStatus(errno, "read");
    else if (got == 0) {
      bytes.resize(used);
      return bytes;
    }
    bytes.resize(used + static_cast<size_t>(got));
    if (bytes.size() > max_bytes) {
      return absl::ResourceExhaustedError(absl::StrCat("larger than ", max_bytes, " bytes"));
    }
  }
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenFile(path, O_RDONLY));
  absl::StatusOr<std::string> bytes = ReadAll(fd.get(), max_bytes);
  if (!bytes.ok()) return Annotate(bytes.status(), path);
  return bytes;
}

absl::Status WriteAll(int fd, absl::Span<const char> bytes) {
  while (!bytes.empty()) {
    ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return ErrnoStatus(errno, "write");
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> CopySome(int from, uint64_t offset, int to, uint64_t bytes) {
  auto at = static_cast<off_t>(offset);
  ssize_t copied = copy_file_range(from, &at, to, nullptr, bytes, 0);
  if (copied > 0) return static_cast<uint64_t>(copied);
  std::string buffer(std::min<uint64_t>(bytes, kCopyBytes), '\0');
  ssize_t got = -1;
  do {
    got = pread(from, buffer.data(), buffer.size(), static_cast<off_t>(offset));
  } while (got < 0 && errno == EINTR);
  if (got < 0) return ErrnoStatus(errno, "read");
  RETURN_IF_ERROR(WriteAll(to, absl::MakeConstSpan(buffer.data(), static_cast<size_t>(got))));
  return static_cast<uint64_t>(got);
}

}  // namespace aitrace
