#include "lib/store/ring_memory.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include <algorithm>
#include <filesystem>

#include "absl/strings/str_replace.h"
#include "lib/base/file.h"
#include "lib/store/segment_ring.h"

namespace aitrace {
namespace {

constexpr mode_t kDirectoryMode = 0700;
constexpr mode_t kFileMode = 0600;
constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t kFreeShare = 4;  // A quarter of the tmpfs stays free.

uint64_t MiB(uint64_t bytes) { return bytes >> 20; }

absl::StatusOr<MemoryProbe::Space> SpaceOf(const std::string& directory) {
  struct statfs info {};
  if (statfs(directory.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("statfs ", directory));
  }
  auto block = static_cast<uint64_t>(info.f_bsize);
  return MemoryProbe::Space{.is_tmpfs = info.f_type == TMPFS_MAGIC,
                            .total_bytes = info.f_blocks * block,
                            .free_bytes = info.f_bavail * block};
}

std::string DirectoryOf(const std::string& path) {
  return std::filesystem::path(path).parent_path().string();
}

// The file below /dev/shm that stands in for `path`.
std::string StandIn(const std::string& path, const MemoryProbe& probe) {
  std::string name = absl::StrReplaceAll(path, {{"/", "-"}});
  return absl::StrCat(probe.shm_directory, "/aitrace", name, "/ring");
}

// A directory that is ours alone: /dev/shm is open to all, and somebody may
// have put something else there.
absl::Status MakePrivateDirectory(const std::string& directory) {
  if (mkdir(directory.c_str(), kDirectoryMode) != 0 && errno != EEXIST) {
    return ErrnoStatus(errno, absl::StrCat("mkdir ", directory));
  }
  struct stat info {};
  if (lstat(directory.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("stat ", directory));
  }
  if (!S_ISDIR(info.st_mode) || info.st_uid != geteuid() || (info.st_mode & 077) != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory, " is not a directory of this user alone (remove it, or set ring.path)"));
  }
  return absl::OkStatus();
}

// The configured directory may be shared (/run/aitrace is 0755); it need only
// be one that nobody else can write.
absl::Status MakeDirectory(const std::string& directory) {
  std::error_code error;
  std::filesystem::create_directories(directory, error);
  if (error) return ErrnoStatus(error.value(), absl::StrCat("mkdir ", directory));
  struct stat info {};
  if (stat(directory.c_str(), &info) != 0) {
    return ErrnoStatus(errno, absl::StrCat("stat ", directory));
  }
  bool is_safe = info.st_uid == geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
  if (is_safe) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(directory, " can be written by others (set ring.path to a private directory)"));
}

// How much of `asked` the tmpfs can give with a quarter left free; `own` bytes
// of it are taken by the ring already.
absl::StatusOr<uint64_t> Fit(uint64_t asked, uint64_t own, const MemoryProbe::Space& space,
                             const std::string& directory) {
  uint64_t available = space.free_bytes + own;
  uint64_t reserve = space.total_bytes / kFreeShare;
  uint64_t most = available > reserve ? available - reserve : 0;
  uint64_t size = std::min(asked, most) / kPageBytes * kPageBytes;
  if (size >= kMinRingBytes) return size;
  return absl::ResourceExhaustedError(
      absl::StrCat("the ring needs at least ", MiB(kMinRingBytes), " MiB and a quarter of ",
                   directory, " free: it has ", MiB(space.free_bytes), " of ",
                   MiB(space.total_bytes), " MiB free (make it larger, or set ring.path)"));
}

absl::Status Allocate(int fd, uint64_t size_bytes, const std::string& path) {
  if (ftruncate(fd, static_cast<off_t>(size_bytes)) != 0) {
    return ErrnoStatus(errno, absl::StrCat("size ", path));
  }
  // All of it now: a page that is missing later is a SIGBUS.
  if (int error = posix_fallocate(fd, 0, static_cast<off_t>(size_bytes)); error != 0) {
    return ErrnoStatus(error, absl::StrCat("allocate ", MiB(size_bytes), " MiB for ", path));
  }
  return absl::OkStatus();
}

void AddNote(const std::string& text, std::string& note) {
  absl::StrAppend(&note, note.empty() ? "" : "; ", text);
}

absl::StatusOr<RingMemory> OpenAt(const std::string& path, uint64_t asked,
                                  const MemoryProbe::Space& space) {
  RingMemory memory{.path = path, .file_system = "tmpfs"};
  ASSIGN_OR_RETURN(memory.fd, OpenFile(path, O_RDWR | O_CREAT | O_NOFOLLOW, kFileMode));
  struct stat info {};
  if (fstat(memory.fd.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    return absl::FailedPreconditionError(absl::StrCat(path, " is not a regular file"));
  }
  auto present = static_cast<uint64_t>(info.st_size);
  absl::StatusOr<uint64_t> fit = Fit(asked, present, space, DirectoryOf(path));
  // What is allocated already stays, however full the tmpfs has become since.
  bool is_kept = present >= kMinRingBytes && present <= asked && present % kPageBytes == 0 &&
                 (!fit.ok() || *fit <= present);
  if (!is_kept && !fit.ok()) return fit.status();
  memory.size_bytes = is_kept ? present : *fit;
  if (memory.size_bytes < asked) {
    AddNote(absl::StrCat("shrunk from ", MiB(asked), " to ", MiB(memory.size_bytes),
                         " MiB, to leave a quarter of ", DirectoryOf(path), " free"),
            memory.note);
  }
  memory.is_new = present != memory.size_bytes;
  if (!memory.is_new) return memory;
  if (present > 0) {
    AddNote(absl::StrCat("an earlier ring of ", MiB(present), " MiB was discarded"), memory.note);
    if (ftruncate(memory.fd.get(), 0) != 0) return ErrnoStatus(errno, absl::StrCat("size ", path));
  }
  if (absl::Status status = Allocate(memory.fd.get(), memory.size_bytes, path); !status.ok()) {
    unlink(path.c_str());
    return status;
  }
  return memory;
}

absl::StatusOr<RingMemory> OpenMemfd(uint64_t size_bytes) {
  RingMemory memory{.path = "memfd:aitrace-ring",
                    .file_system = "memfd",
                    .size_bytes = size_bytes / kPageBytes * kPageBytes,
                    .is_new = true};
  memory.fd.reset(memfd_create("aitrace-ring", MFD_CLOEXEC));
  if (!memory.fd) return ErrnoStatus(errno, "memfd_create");
  RETURN_IF_ERROR(Allocate(memory.fd.get(), memory.size_bytes, memory.path));
  return memory;
}

absl::StatusOr<RingMemory> OpenConfigured(const std::string& path, uint64_t size_bytes,
                                          const MemoryProbe& probe) {
  std::string directory = DirectoryOf(path);
  RETURN_IF_ERROR(MakeDirectory(directory));
  ASSIGN_OR_RETURN(MemoryProbe::Space space, probe.space_of(directory));
  if (!space.is_tmpfs) {
    return absl::UnavailableError(absl::StrCat(directory, " is not memory (no tmpfs)"));
  }
  return OpenAt(path, size_bytes, space);
}

absl::StatusOr<RingMemory> OpenStandIn(const std::string& path, uint64_t size_bytes,
                                       const MemoryProbe& probe) {
  ASSIGN_OR_RETURN(MemoryProbe::Space space, probe.space_of(probe.shm_directory));
  if (!space.is_tmpfs) {
    return absl::UnavailableError(absl::StrCat(probe.shm_directory, " is not memory"));
  }
  RETURN_IF_ERROR(MakePrivateDirectory(DirectoryOf(path)));
  return OpenAt(path, size_bytes, space);
}

}  // namespace

MemoryProbe MemoryProbe::System() { return {.space_of = SpaceOf}; }

absl::StatusOr<RingMemory> OpenRingMemory(const std::string& path, uint64_t size_bytes,
                                          const MemoryProbe& probe) {
  absl::StatusOr<RingMemory> configured = OpenConfigured(path, size_bytes, probe);
  // What is wrong with a place that is memory is for a person to mend.
  if (configured.ok() || !absl::IsUnavailable(configured.status())) return configured;
  std::string stand_in = StandIn(path, probe);
  absl::StatusOr<RingMemory> memory = OpenStandIn(stand_in, size_bytes, probe);
  bool has_no_shm = absl::IsUnavailable(memory.status()) || absl::IsNotFound(memory.status());
  if (!memory.ok() && has_no_shm) memory = OpenMemfd(size_bytes);
  if (!memory.ok()) return memory;
  std::string why =
      absl::StrCat(configured.status().message(), ", so the ring is at ", memory->path);
  if (memory->file_system == "memfd") why += " and does not outlive this process";
  AddNote(why, memory->note);
  return memory;
}

}  // namespace aitrace
