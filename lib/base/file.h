// Whole-file reads and writes that loop over short calls and EINTR.
#pragma once

#include <cstdint>
#include <string>

#include "absl/types/span.h"
#include "lib/base/status.h"
#include "lib/base/unique_fd.h"

namespace aitrace {

// open(2) with O_CLOEXEC; the error names the path.
absl::StatusOr<UniqueFd> OpenFile(const std::string& path, int flags, unsigned mode = 0);

// Reads to the end of `fd`; ResourceExhausted when that is over `max_bytes`.
absl::StatusOr<std::string> ReadAll(int fd, size_t max_bytes);

// OpenFile and ReadAll.
absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes);

// Writes all of `bytes`. On an error some of them may have been written.
absl::Status WriteAll(int fd, absl::Span<const char> bytes);

// Copies at most `bytes` of file `from`, from `offset` on, to where `to` stands;
// in the kernel where that can, through memory elsewhere (other file systems,
// pipes). Returns how many; 0 at the file's end.
absl::StatusOr<uint64_t> CopySome(int from, uint64_t offset, int to, uint64_t bytes);

}  // namespace aitrace
