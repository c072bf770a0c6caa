// The daemon: builds the parts in order, wires them, runs the loop until it is
// told to stop, and takes them down.
#pragma once

#include "lib/base/status.h"
#include "lib/config/config.h"

namespace aitrace {

// Returns when SIGTERM or SIGINT came; an error is one of the start.
absl::Status RunDaemon(LoadedConfig config);

}  // namespace aitrace
