#include "daemon/service/service_manager.h"

#include <fcntl.h>
#include <systemd/sd-daemon.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "lib/base/clock.h"

namespace aitrace {

ServiceManager::ServiceManager() { sd_watchdog_enabled(/*unset_environment=*/0, &watchdog_us_); }

// Each returns an error only when the service manager is gone, which nobody
// here could help.
void ServiceManager::Ready() const { sd_notify(0, "READY=1"); }
void ServiceManager::Stopping() const { sd_notify(0, "STOPPING=1"); }
void ServiceManager::FeedWatchdog() const { sd_notify(0, "WATCHDOG=1"); }

void ServiceManager::Reloading() const {
  uint64_t monotonic_us = SystemClock().Read().monotonic_ns / kNsPerUs;
  sd_notify(0, absl::StrCat("RELOADING=1\nMONOTONIC_USEC=", monotonic_us).c_str());
}

void ServiceManager::Status(const std::string& line) const {
  sd_notify(0, absl::StrCat("STATUS=", line).c_str());
}

UniqueFd ServiceManager::TakeSocket(const std::string& name) {
  char** names = nullptr;
  int count = sd_listen_fds_with_names(/*unset_environment=*/0, &names);
  UniqueFd taken;
  for (int i = 0; i < count; ++i) {
    bool is_ours = !taken && name == names[i];
    if (is_ours) taken.reset(SD_LISTEN_FDS_START + i);
    free(names[i]);
  }
  free(names);
  if (taken) fcntl(taken.get(), F_SETFL, fcntl(taken.get(), F_GETFL) | O_NONBLOCK);
  return taken;
}

}  // namespace aitrace
