// aitraced: reads the configuration, takes the lock, builds the parts, runs the
// loop. What each part does is said in its header.
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <cstdlib>
#include <iostream>

#include "daemon/daemon.h"
#include "daemon/writer/writer_client.h"
#include "lib/config/config.h"

namespace aitrace {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;
constexpr char kDefaultConfig[] = "/etc/aitrace/aitraced.pbtxt";
constexpr int kWriterFd = 3;

struct Arguments {
  std::string config_path = kDefaultConfig;
  bool check_config = false;
  bool print_config = false;
};

int PrintConfigErrors(const absl::Status& status) {
  std::cerr << status.message() << '\n';
  return kExitUsage;
}

// Standard output is for what was asked for; the log goes beside it.
void LogToStandardError() {
  spdlog::set_default_logger(spdlog::stderr_logger_mt("aitraced"));
  // The journal has its own time stamps.
  if (getenv("JOURNAL_STREAM") != nullptr) spdlog::set_pattern("%l: %v");
}

int Run(const Arguments& arguments, bool is_default_path) {
  absl::StatusOr<LoadedConfig> config = LoadConfig(arguments.config_path, is_default_path);
  if (!config.ok()) return PrintConfigErrors(config.status());
  if (arguments.print_config) {
    std::cout << PrintConfig(config->config);
    return 0;
  }
  if (arguments.check_config) {
    std::cout << arguments.config_path << ": ok\n";
    return 0;
  }
  LogToStandardError();
  absl::Status status = RunDaemon(*std::move(config));
  if (status.ok()) return 0;
  spdlog::critical("{}", std::string(status.message()));
  return kExitFailed;
}

int Main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == kWriterArgument) return RunWriter(UniqueFd(kWriterFd));
  Arguments arguments;
  CLI::App app("The flight recorder for AI servers.", "aitraced");
  auto* config = app.add_option("-c,--config", arguments.config_path, "Configuration file")
                     ->capture_default_str();
  app.add_flag("--check-config", arguments.check_config, "Check the configuration and exit");
  app.add_flag("--print-config", arguments.print_config, "Print it with all defaults and exit");
  app.set_version_flag("--version", "aitraced " AITRACE_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kExitUsage;
  }
  return Run(arguments, /*is_default_path=*/config->count() == 0);
}

}  // namespace
}  // namespace aitrace

int main(int argc, char** argv) { return aitrace::Main(argc, argv); }
