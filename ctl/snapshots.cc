#include <CLI/CLI.hpp>
#include <iostream>
#include <memory>

#include "absl/strings/str_format.h"
#include "ctl/commands.h"
#include "ctl/output_file.h"
#include "ctl/text.h"

namespace aitrace {
namespace {

std::string Range(const TimeRange& range) {
  uint64_t length_ns = range.end_ns() - range.begin_ns();
  return absl::StrFormat("%s to %s (%s)", FormatLocalTime(range.begin_realtime_ns()),
                         FormatLocalTime(range.end_realtime_ns()), FormatDurationNs(length_ns));
}

absl::StatusOr<control::Reply::Snapshots> Fetch(const Context& context,
                                                const control::Request& request) {
  control::Reply::Snapshots all;
  RETURN_IF_ERROR(context.Call(
      request, [&](const control::Reply& reply, UniqueFd) { all.MergeFrom(reply.snapshots()); }));
  return all;
}

int List(const Context& context) {
  control::Request request;
  request.mutable_snapshots_list();
  auto snapshots = Fetch(context, request);
  if (!snapshots.ok()) return Fail(snapshots.status());
  if (context.json) {
    std::cout << ToJson(*snapshots);
    return kExitDone;
  }
  std::vector<std::vector<std::string>> rows = {{"ID", "COVERS", "SIZE", "LOST", "REASON"}};
  for (const SnapshotInfo& info : snapshots->snapshot()) {
    uint64_t lost = 0;
    for (const auto& loss : info.loss()) lost += loss.count();
    uint64_t length_ns = info.covered().end_ns() - info.covered().begin_ns();
    rows.push_back({Printable(info.id()), FormatDurationNs(length_ns),
                    FormatBytes(info.trace_bytes()), FormatCount(lost), Printable(info.text())});
  }
  std::cout << FormatTable(rows, {false, true, true, true, false});
  return kExitDone;
}

int Show(const Context& context, const std::string& id) {
  control::Request request;
  request.mutable_snapshots_show()->set_id(id);
  auto snapshots = Fetch(context, request);
  if (!snapshots.ok()) return Fail(snapshots.status());
  for (const SnapshotInfo& info : snapshots->snapshot()) {
    std::cout << (context.json ? ToJson(info) : FormatSnapshot(info));
  }
  return kExitDone;
}

int Remove(const Context& context, const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    control::Request request;
    request.mutable_snapshots_remove()->set_id(id);
    absl::Status status = context.Call(request, [](const control::Reply&, UniqueFd) {});
    if (!status.ok()) return Fail(status);
  }
  return kExitDone;
}

int Export(const Context& context, const std::string& id, const std::string& output) {
  control::Request request;
  request.mutable_snapshots_export()->set_id(id);
  UniqueFd trace;
  absl::Status status =
      context.Call(request, [&](const control::Reply&, UniqueFd fd) { trace = std::move(fd); });
  if (!status.ok()) return Fail(status);
  Progress progress;
  auto copied = CopyTrace(trace.get(), output, [&](uint64_t done_bytes, uint64_t total_bytes) {
    progress.Show("writing", done_bytes, total_bytes);
  });
  return copied.ok() ? kExitDone : Fail(copied.status());
}

}  // namespace

std::string FormatSnapshot(const SnapshotInfo& info) {
  std::string out;
  auto line = [&](const char* name, const std::string& value) {
    if (!value.empty()) absl::StrAppendFormat(&out, "%10s: %s\n", name, value);
  };
  line("id", Printable(info.id()));
  line("reason", Printable(absl::StrCat(info.reason(), " (", info.requested_by(), ")")));
  line("text", Printable(info.text()));
  line("asked", Range(info.asked()));
  line("covered", Range(info.covered()));
  line("but", Printable(info.covered_note()));
  line("size",
       absl::StrFormat("%s in %d segments", FormatBytes(info.trace_bytes()), info.segments()));
  if (info.loss().empty()) line("lost", "0");
  for (const auto& loss : info.loss()) line("lost", FormatLoss(loss));
  return out;
}

void AddSnapshotsCommand(CLI::App& app, Action& action) {
  CLI::App* command = app.add_subcommand("snapshots", "The snapshots that were taken");
  command->require_subcommand(0, 1);
  auto ids = std::make_shared<std::vector<std::string>>();
  auto output = std::make_shared<std::string>();
  command->add_subcommand("list", "All of them, oldest first");
  CLI::App* show = command->add_subcommand("show", "One of them");
  show->add_option("ID", *ids)->required()->expected(1);
  CLI::App* remove = command->add_subcommand("rm", "Deletes them (root)");
  remove->add_option("ID", *ids)->required();
  CLI::App* copy = command->add_subcommand("export", "Copies one's trace to a file");
  copy->add_option("ID", *ids)->required()->expected(1);
  copy->add_option("-o,--output", *output, "The file; - is stdout")->required();
  command->callback([&action, ids, output, show, remove, copy] {
    action = [=](const Context& context) {
      if (show->parsed()) return Show(context, ids->front());
      if (remove->parsed()) return Remove(context, *ids);
      if (copy->parsed()) return Export(context, ids->front(), *output);
      return List(context);
    };
  });
}

}  // namespace aitrace
