#include <unistd.h>

#include <CLI/CLI.hpp>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_format.h"
#include "ctl/commands.h"
#include "ctl/text.h"

namespace aitrace {
namespace {

constexpr char kGreen[] = "\033[32m";
constexpr char kRed[] = "\033[31m";
constexpr char kPlain[] = "\033[0m";
constexpr uint64_t kSilentNs = 3'000'000'000;

const char* StateName(control::Status::Source::State state) {
  switch (state) {
    case control::Status::Source::ON:
      return "on";
    case control::Status::Source::DEGRADED:
      return "degraded";
    default:
      return "off";
  }
}

std::string Sources(const control::Status& status) {
  std::vector<std::vector<std::string>> rows = {{"SOURCE", "STATE", "EVENTS", "PER S", "LOST", ""}};
  for (const auto& source : status.sources()) {
    rows.push_back({Printable(source.name()), StateName(source.state()),
                    FormatCount(source.events()), absl::StrFormat("%.0f", source.events_per_s()),
                    FormatCount(source.lost()), Printable(source.detail())});
  }
  return FormatTable(rows, {false, false, true, true, true, false});
}

std::string RingLine(const control::Status::Ring& ring) {
  std::string line = absl::StrFormat(
      "%s of %s in %s (%s), the last %s, %s segments", FormatBytes(ring.used_bytes()),
      FormatBytes(ring.size_bytes()), Printable(ring.path()), ring.file_system(),
      FormatDurationNs(ring.span_ns()), FormatCount(ring.segments()));
  if (ring.recovered_segments() > 0) {
    absl::StrAppend(&line, ", ", ring.recovered_segments(), " recovered at the start");
  }
  if (!ring.note().empty()) absl::StrAppend(&line, "\n             ", Printable(ring.note()));
  return line;
}

std::string FilesLine(const WriterStatus& writer) {
  std::string line =
      absl::StrFormat("%s files, %s in %s (%s free)", FormatCount(writer.files()),
                      FormatBytes(writer.files_bytes()), Printable(writer.directory()),
                      FormatBytes(writer.disk_free_bytes()));
  if (!writer.current_file().empty()) {
    absl::StrAppend(&line, "\n             writing ", Printable(writer.current_file()), " (",
                    FormatBytes(writer.current_bytes()), ")");
  }
  if (writer.lost_segments() > 0) {
    absl::StrAppend(&line, "\n             ", writer.lost_segments(),
                    " segments left the ring before a file had them");
  }
  return line;
}

// What is wrong with the disk, if anything.
std::string WriterTrouble(const WriterStatus& writer) {
  if (writer.silent_ns() > kSilentNs) {
    return absl::StrFormat("no answer for %s: %s", FormatDurationNs(writer.silent_ns()),
                           Printable(writer.stuck_in()));
  }
  if (writer.state() != WriterStatus::BLOCKED) return "";
  return absl::StrFormat("since %s: %s", FormatLocalTime(writer.error_since_realtime_ns()),
                         Printable(writer.error()));
}

std::string CostLine(const control::Status::Cost& cost) {
  return absl::StrFormat(
      "%.2f %% of one CPU, writer %.2f %%, %.0f ns an event; %s and %s of kernel buffers",
      cost.cpu_percent(), cost.writer_cpu_percent(), cost.cpu_ns_per_event(),
      FormatBytes(cost.rss_bytes()), FormatBytes(cost.kernel_buffer_bytes()));
}

uint64_t TotalLost(const control::Status& status) {
  uint64_t lost = 0;
  for (const auto& loss : status.loss()) lost += loss.count();
  return lost;
}

}  // namespace

std::string FormatLoss(const trace::Loss& loss) {
  std::string cause = absl::AsciiStrToLower(trace::Loss::Cause_Name(loss.cause()));
  std::string where = loss.has_cpu() ? absl::StrCat("cpu ", loss.cpu()) : "all cpus";
  return absl::StrFormat("%s %s of %s, %s, from %.3f s to %.3f s of the boot clock",
                         FormatCount(loss.count()), cause, Printable(loss.source()), where,
                         static_cast<double>(loss.begin_ns()) / 1e9,
                         static_cast<double>(loss.end_ns()) / 1e9);
}

std::string FormatStatus(const control::Status& status, bool is_color) {
  std::string trouble = WriterTrouble(status.writer());
  bool is_good = trouble.empty() && TotalLost(status) == 0;
  std::string out;
  absl::StrAppendFormat(&out, "%s\u25cf%s aitraced %s on %s, kernel %s, pid %d, up %s\n",
                        is_color ? (is_good ? kGreen : kRed) : "", is_color ? kPlain : "",
                        Printable(status.version()), Printable(status.host()),
                        Printable(status.kernel()), status.pid(),
                        FormatDurationNs(status.uptime_ns()));
  absl::StrAppendFormat(&out, "     config: %s (%s)\n", Printable(status.config_path()),
                        status.config_digest());
  if (!status.config_error().empty()) {
    absl::StrAppendFormat(&out, "             the last reload was refused: %s\n",
                          Printable(status.config_error()));
  }
  absl::StrAppendFormat(&out, "       ring: %s\n", RingLine(status.ring()));
  absl::StrAppendFormat(&out, "      files: %s\n", FilesLine(status.writer()));
  if (!trouble.empty()) absl::StrAppendFormat(&out, "    BLOCKED: %s\n", trouble);
  absl::StrAppendFormat(&out, "  snapshots: %s, %s\n", FormatCount(status.writer().snapshots()),
                        FormatBytes(status.writer().snapshots_bytes()));
  absl::StrAppendFormat(&out, "       cost: %s\n", CostLine(status.cost()));
  absl::StrAppendFormat(&out, "       lost: %s\n", FormatCount(TotalLost(status)));
  for (const auto& loss : status.loss()) {
    absl::StrAppendFormat(&out, "             %s\n", FormatLoss(loss));
  }
  for (const auto& note : status.notes()) {
    absl::StrAppendFormat(&out, "       note: %s\n", Printable(note));
  }
  return out + "\n" + Sources(status);
}

void AddStatusCommand(CLI::App& app, Action& action) {
  CLI::App* command =
      app.add_subcommand("status", "What is recorded, lost, kept, and at what cost");
  command->callback([&action] {
    action = [](const Context& context) {
      control::Request request;
      request.mutable_status();
      absl::Status status = context.Call(request, [&](const control::Reply& reply, UniqueFd) {
        bool is_color = !context.no_color && isatty(STDOUT_FILENO);
        std::cout << (context.json ? ToJson(reply.status())
                                   : FormatStatus(reply.status(), is_color));
      });
      return status.ok() ? kExitDone : Fail(status);
    };
  });
}

}  // namespace aitrace
