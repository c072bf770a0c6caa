// aitracectl: how people reach the recorder. One file a command.
#include <CLI/CLI.hpp>

#include "ctl/commands.h"

namespace aitrace {
namespace {

int Main(int argc, char** argv) {
  CLI::App app("Talks to aitraced, the flight recorder for AI servers.", "aitracectl");
  Context context;
  app.add_option("--socket", context.socket, "The daemon's control socket")->capture_default_str();
  app.add_flag("--json", context.json, "Print JSON");
  app.add_flag("--no-color", context.no_color, "Never colour the output");
  app.set_version_flag("--version", "aitracectl " AITRACE_VERSION);
  app.require_subcommand(1);
  app.fallthrough();
  Action action;
  AddStatusCommand(app, action);
  AddDumpCommand(app, action);
  AddSnapshotsCommand(app, action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitUsage;
  }
  return action(context);
}

}  // namespace
}  // namespace aitrace

int main(int argc, char** argv) { return aitrace::Main(argc, argv); }
