// One daemon per control socket: a lock that its holder's end releases,
// whatever that end was.
#pragma once

#include <string>

#include "lib/base/status.h"
#include "lib/base/unique_fd.h"

namespace aitrace {

class InstanceLock {
 public:
  InstanceLock() = default;

  // FailedPrecondition, naming the holder, when another process has it.
  static absl::StatusOr<InstanceLock> Acquire(const std::string& path);

 private:
  explicit InstanceLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace aitrace
