// The commands: each adds its options to the command line, and what it runs.
#pragma once

#include <CLI/App.hpp>
#include <functional>

#include "ctl/context.h"
#include "proto/aitrace/control.pb.h"

namespace aitrace {

// Set by the command that was asked for; main() runs it and exits with its
// result.
using Action = std::function<int(const Context&)>;

void AddStatusCommand(CLI::App& app, Action& action);
void AddDumpCommand(CLI::App& app, Action& action);
void AddSnapshotsCommand(CLI::App& app, Action& action);

// What `status` prints without --json.
std::string FormatStatus(const control::Status& status, bool is_color);
// What `dump` and `snapshots show` print of a snapshot.
std::string FormatSnapshot(const SnapshotInfo& info);
// A loss in one line.
std::string FormatLoss(const trace::Loss& loss);

}  // namespace aitrace
