// Errors of bpf(2), with what to do about the commonest.
#pragma once

#include <cerrno>

#include "lib/base/status.h"

namespace aitrace {

inline absl::Status BpfStatus(int error, absl::string_view what) {
  absl::Status status = ErrnoStatus(error, what);
  if (error != EPERM && error != EACCES) return status;
  return absl::Status(
      status.code(), absl::StrCat(status.message(),
                                  " (bpf(2) was refused: run as root, or give the process CAP_BPF, "
                                  "CAP_PERFMON and CAP_SYS_ADMIN; a container or a seccomp filter "
                                  "may withhold them)"));
}

}  // namespace aitrace
