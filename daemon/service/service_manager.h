// The service manager's side of the daemon: what it is told, the watchdog that
// it keeps, the sockets that it opened. Does nothing where there is none.
//
// Threading: the main loop's thread only.
#pragma once

#include <cstdint>
#include <string>

#include "lib/base/unique_fd.h"

namespace aitrace {

class ServiceManager {
 public:
  ServiceManager();

  void Ready() const;
  void Reloading() const;
  void Stopping() const;
  // One line for `systemctl status`.
  void Status(const std::string& line) const;

  // A listening socket of this name that was passed in; empty if none was.
  UniqueFd TakeSocket(const std::string& name);

  bool has_watchdog() const { return watchdog_us_ > 0; }
  void FeedWatchdog() const;

 private:
  uint64_t watchdog_us_ = 0;
};

}  // namespace aitrace
