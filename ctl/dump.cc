#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "absl/strings/str_format.h"
#include "ctl/commands.h"
#include "ctl/output_file.h"
#include "ctl/text.h"
#include "ctl/time_args.h"
#include "lib/base/clock.h"

namespace aitrace {
namespace {

struct DumpOptions {
  std::string last;
  uint32_t files = 0;
  std::string from;
  std::string to;
  std::string post;
  std::string text;
  std::string output;
};

absl::StatusOr<control::Request> MakeRequest(const DumpOptions& options) {
  control::Request request;
  control::Request::Dump& dump = *request.mutable_dump();
  uint64_t now_ns = SystemClock().RealtimeNs();
  if (!options.last.empty()) {
    ASSIGN_OR_RETURN(uint64_t last_ns, ParseDuration(options.last));
    dump.mutable_window()->set_last_ns(last_ns);
  }
  if (options.files > 0) dump.mutable_window()->set_files(options.files);
  if (!options.from.empty()) {
    ASSIGN_OR_RETURN(uint64_t from_ns, ParseTime(options.from, now_ns));
    dump.mutable_window()->set_from_realtime_ns(from_ns);
  }
  if (!options.to.empty()) {
    ASSIGN_OR_RETURN(uint64_t to_ns, ParseTime(options.to, now_ns));
    if (to_ns <= dump.window().from_realtime_ns()) {
      return absl::InvalidArgumentError("--to is not after --from");
    }
    dump.mutable_window()->set_to_realtime_ns(to_ns);
  }
  if (!options.post.empty()) {
    ASSIGN_OR_RETURN(uint64_t post_ns, ParseDuration(options.post));
    dump.set_post_ns(post_ns);
  }
  dump.set_text(options.text);
  return request;
}

// Waits for the snapshot, and copies it where it was asked for.
absl::Status Dump(const DumpOptions& options, const Context& context, control::Reply::Trace& done) {
  ASSIGN_OR_RETURN(control::Request request, MakeRequest(options));
  Progress progress;
  UniqueFd trace;
  RETURN_IF_ERROR(context.Call(request, [&](const control::Reply& reply, UniqueFd fd) {
    if (reply.has_progress()) {
      progress.Show(reply.progress().stage(), reply.progress().done_bytes(),
                    reply.progress().total_bytes());
    } else if (reply.has_trace()) {
      done = reply.trace();
      trace = std::move(fd);
    }
  }));
  if (options.output.empty()) return absl::OkStatus();
  auto show = [&](uint64_t done_bytes, uint64_t total_bytes) {
    progress.Show("writing", done_bytes, total_bytes);
  };
  return CopyTrace(trace.get(), options.output, show).status();
}

int RunDump(const DumpOptions& options, const Context& context) {
  control::Reply::Trace done;
  if (absl::Status status = Dump(options, context, done); !status.ok()) return Fail(status);
  // Standard output may be the trace itself.
  std::ostream& out = options.output == "-" ? std::cerr : std::cout;
  if (context.json) {
    out << ToJson(done.info());
    return kExitDone;
  }
  std::string where =
      options.output.empty() || options.output == "-" ? done.path() : options.output;
  out << Printable(where) << "\n" << FormatSnapshot(done.info());
  return kExitDone;
}

}  // namespace

void AddDumpCommand(CLI::App& app, Action& action) {
  auto options = std::make_shared<DumpOptions>();
  CLI::App* command =
      app.add_subcommand("dump", "Writes what was recorded lately as a Perfetto trace");
  auto* last = command->add_option("--last", options->last, "The last DURATION (90s, 15m, 2h)");
  auto* files = command->add_option("--files", options->files, "The newest N files, and until now")
                    ->check(CLI::PositiveNumber);
  auto* from = command->add_option("--from", options->from,
                                   "From this time (13:58, 2026-12-01T13:58:00Z, @SECONDS)");
  command->add_option("--to", options->to, "To this time; until now without it")->needs(from);
  last->excludes(files)->excludes(from);
  files->excludes(from);
  command->add_option("--post", options->post, "Wait so long first; the window ends then");
  command->add_option("--reason", options->text, "Kept with the snapshot");
  command->add_option("-o,--output", options->output, "Also copy the trace to FILE; - is stdout");
  command->callback([&action, options] {
    action = [options](const Context& context) { return RunDump(*options, context); };
  });
}

}  // namespace aitrace
