#include "daemon/writer/dump_job.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "absl/strings/escaping.h"
#include "absl/strings/str_format.h"
#include "daemon/writer/dump_plan.h"
#include "lib/base/file.h"
#include "lib/store/rotated_files.h"

namespace aitrace {
namespace {

constexpr size_t kCopyBytes = 4 * 1024 * 1024;
// A file is named when it starts, and may reach this far: rotation.period_s's
// largest value.
constexpr uint64_t kLongestFileNs = 3600 * kNsPerSecond;

struct BootWindow {
  uint64_t from_ns = 0;
  uint64_t to_ns = UINT64_MAX;
};

class DumpRun {
 public:
  DumpRun(const WriterRequest::Dump& request, const DumpContext& context)
      : request_(request),
        context_(context),
        now_(context.clock.Read()),
        boot_id_(context.boot_id),
        realtime_offset_ns_(now_.realtime_ns - now_.boot_ns) {}

  absl::StatusOr<FinishedDump> Run() {
    RETURN_IF_ERROR(Plan());
    if (plan_.segments == 0) {
      return absl::NotFoundError("nothing of that window was kept (see aitracectl status)");
    }
    ASSIGN_OR_RETURN(SnapshotWriter snapshot,
                     context_.snapshots.Create(now_.realtime_ns, request_.reason()));
    RETURN_IF_ERROR(CopyFiles(snapshot.fd()));
    RETURN_IF_ERROR(CopyRecords(snapshot.fd()));
    SnapshotInfo info = Describe(snapshot.id());
    RETURN_IF_ERROR(snapshot.Publish(info));
    return FinishedDump{.info = std::move(info), .snapshot = std::move(snapshot)};
  }

 private:
  absl::Status Plan() {
    std::vector<RingRecord> records = RingRecords();
    ASSIGN_OR_RETURN(std::vector<PlannedFile> files, FilesOfThisBoot(records));
    SetWindow(files);
    plan_ = PlanDump(files, records, window_.from_ns, window_.to_ns);
    if (plan_.segments == 0 && request_.window().has_from_realtime_ns()) PlanEarlierBoot();
    return absl::OkStatus();
  }

  // A window from before the machine was started again: only files have it, and
  // only those of one boot share a clock; the newest boot in the window counts.
  void PlanEarlierBoot() {
    auto files = ListRotatedFiles(context_.trace_directory);
    if (!files.ok()) return;  // Nothing is found, then.
    const Window& window = request_.window();
    uint64_t to_ns = window.has_to_realtime_ns() ? window.to_realtime_ns() : now_.realtime_ns;
    std::erase_if(*files, [&](const RotatedFile& file) {
      return file.start_realtime_ns > to_ns || file.start_realtime_ns < EarliestNs();
    });
    if (files->empty()) return;
    boot_id_ = BootIdOf(PathOf(files->back()));
    std::vector<PlannedFile> planned;
    for (const RotatedFile& file : *files) AddFile(PathOf(file), planned);
    if (planned.empty()) return;
    const trace::SegmentInfo& first = planned[0].segments[0].info;
    realtime_offset_ns_ = first.begin_realtime_ns() - first.begin_ns();
    SetWindow(planned);
    plan_ = PlanDump(planned, {}, window_.from_ns, window_.to_ns);
  }

  std::string PathOf(const RotatedFile& file) const {
    return absl::StrCat(context_.trace_directory, "/", file.name);
  }

  static std::string BootIdOf(const std::string& path) {
    std::string boot_id;
    absl::StatusOr<UniqueFd> fd = OpenFile(path, O_RDONLY | O_NOFOLLOW);
    if (!fd.ok()) return boot_id;
    // Without a whole segment it stays empty, and no file has that.
    ForEachSegment(fd->get(), [&](const FileSegment& segment) {
      boot_id = segment.info.boot_id();
      return false;
    }).IgnoreError();
    return boot_id;
  }

  // Between the clocks of the boot that is dumped, as they stood then, or stand
  // now; a wall clock that was stepped since is off by that step.
  uint64_t BootOf(uint64_t realtime_ns) const {
    return realtime_ns > realtime_offset_ns_ ? realtime_ns - realtime_offset_ns_ : 0;
  }
  uint64_t RealtimeOf(uint64_t boot_ns) const { return boot_ns + realtime_offset_ns_; }

  std::vector<RingRecord> RingRecords() const {
    std::vector<RingRecord> records;
    context_.ring.ForEach([&](const RingRecord& record) {
      if (record.sequence > request_.through_sequence()) return false;
      records.push_back(record);
      return true;
    });
    return records;
  }

  void SetWindow(const std::vector<PlannedFile>& files) {
    const Window& window = request_.window();
    if (window.has_files()) {
      size_t count = std::min<size_t>(window.files(), files.size());
      if (count > 0) window_.from_ns = files[files.size() - count].segments[0].info.begin_ns();
      return;
    }
    if (window.has_from_realtime_ns()) {
      window_.from_ns = BootOf(window.from_realtime_ns());
      if (window.has_to_realtime_ns()) window_.to_ns = BootOf(window.to_realtime_ns());
      return;
    }
    window_.from_ns = now_.boot_ns > window.last_ns() ? now_.boot_ns - window.last_ns() : 0;
  }

  // The earliest wall-clock time that the window asks for, to pass over files
  // that cannot matter.
  uint64_t EarliestNs() const {
    const Window& window = request_.window();
    if (window.has_files()) return 0;
    uint64_t from_ns = window.has_from_realtime_ns()
                           ? window.from_realtime_ns()
                           : now_.realtime_ns - std::min(now_.realtime_ns, window.last_ns());
    return from_ns - std::min(from_ns, kLongestFileNs);
  }

  // Oldest first, the one being written last. No files are needed where the
  // ring has it all; a directory that cannot be read is then no error either.
  absl::StatusOr<std::vector<PlannedFile>> FilesOfThisBoot(
      const std::vector<RingRecord>& records) const {
    std::vector<PlannedFile> planned;
    absl::StatusOr<std::vector<RotatedFile>> files = ListRotatedFiles(context_.trace_directory);
    if (!files.ok()) {
      if (records.empty()) return files.status();
      return planned;
    }
    uint64_t earliest_ns = EarliestNs();
    for (const RotatedFile& file : *files) {
      if (file.start_realtime_ns < earliest_ns) continue;
      AddFile(PathOf(file), planned);
    }
    if (!context_.partial_path.empty()) AddFile(context_.partial_path, planned);
    return planned;
  }

  // A file that cannot be read is left out; the hole shows in what is covered.
  void AddFile(const std::string& path, std::vector<PlannedFile>& planned) const {
    absl::StatusOr<UniqueFd> fd = OpenFile(path, O_RDONLY | O_NOFOLLOW);
    if (!fd.ok()) return;
    PlannedFile file{.path = path};
    auto end = ForEachSegment(fd->get(), [&](const FileSegment& segment) {
      if (segment.info.boot_id() != boot_id_) return false;
      file.segments.push_back(segment);
      return true;
    });
    if (end.ok() && !file.segments.empty()) planned.push_back(std::move(file));
  }

  absl::Status CopyFiles(int to) {
    for (const FilePiece& piece : plan_.files) {
      ASSIGN_OR_RETURN(UniqueFd from, OpenFile(piece.path, O_RDONLY | O_NOFOLLOW));
      uint64_t done = 0;
      while (done < piece.size) {
        uint64_t want = std::min<uint64_t>(piece.size - done, kCopyBytes);
        ASSIGN_OR_RETURN(uint64_t copied, CopySome(from.get(), piece.offset + done, to, want));
        if (copied == 0) return absl::DataLossError(piece.path + " became shorter");
        done += copied;
        Advance(copied);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyRecords(int to) {
    std::string segment;
    for (const RingRecord& record : plan_.records) {
      if (!context_.ring.Copy(record, segment).ok()) {
        ++missing_;  // Evicted while older ones were copied.
        continue;
      }
      RETURN_IF_ERROR(Annotate(WriteAll(to, absl::MakeConstSpan(segment.data(), segment.size())),
                               "write the snapshot"));
      Advance(segment.size());
    }
    return absl::OkStatus();
  }

  void Advance(uint64_t bytes) {
    done_bytes_ += bytes;
    since_progress_ += bytes;
    if (since_progress_ < kCopyBytes) return;
    since_progress_ = 0;
    context_.on_progress(done_bytes_, plan_.bytes);
  }

  void FillRange(uint64_t begin_ns, uint64_t end_ns, TimeRange& range) const {
    range.set_begin_ns(begin_ns);
    range.set_end_ns(end_ns);
    range.set_begin_realtime_ns(RealtimeOf(begin_ns));
    range.set_end_realtime_ns(RealtimeOf(end_ns));
  }

  void FillCoverage(SnapshotInfo& info) const {
    // Until now, unless the window says otherwise.
    uint64_t asked_end = window_.to_ns == UINT64_MAX ? now_.boot_ns : window_.to_ns;
    FillRange(window_.from_ns, asked_end, *info.mutable_asked());
    FillRange(plan_.begin_ns, plan_.end_ns, *info.mutable_covered());
    std::string note;
    if (plan_.begin_ns > window_.from_ns) {
      note =
          absl::StrFormat("the first %.1f s of the window were not recorded or are no longer kept",
                          static_cast<double>(plan_.begin_ns - window_.from_ns) / kNsPerSecond);
    }
    if (plan_.has_hole) {
      absl::StrAppend(&note, note.empty() ? "" : "; ",
                      "between the newest file and the ring some time is missing");
    }
    if (missing_ > 0) {
      absl::StrAppend(&note, note.empty() ? "" : "; ", missing_,
                      " segments left the ring while it was copied");
    }
    if (note.empty()) return;
    info.set_covered_less(true);
    info.set_covered_note(note);
  }

  // What the window has lost, added up by source, cause and CPU.
  void FillLoss(SnapshotInfo& info) const {
    std::map<std::tuple<std::string, int, int64_t>, trace::Loss> sums;
    for (const trace::Loss& loss : request_.loss()) {
      if (loss.end_ns() < plan_.begin_ns || loss.begin_ns() > plan_.end_ns) continue;
      int64_t cpu = loss.has_cpu() ? loss.cpu() : -1;
      auto [found, is_new] = sums.try_emplace({loss.source(), loss.cause(), cpu}, loss);
      if (is_new) continue;
      found->second.set_end_ns(std::max<uint64_t>(found->second.end_ns(), loss.end_ns()));
      found->second.set_count(found->second.count() + loss.count());
    }
    for (const auto& [key, loss] : sums) *info.add_loss() = loss;
  }

  SnapshotInfo Describe(const std::string& id) const {
    SnapshotInfo info;
    info.set_id(id);
    info.set_reason(request_.reason());
    info.set_text(request_.text());
    info.set_requested_by(request_.requested_by());
    info.set_created_realtime_ns(now_.realtime_ns);
    FillCoverage(info);
    FillLoss(info);
    info.set_trace_bytes(done_bytes_);
    info.set_segments(static_cast<uint32_t>(plan_.segments - missing_));
    info.set_config_digest(context_.config_digest);
    utsname names{};
    uname(&names);  // Cannot fail with a valid buffer.
    info.set_host(names.nodename);
    info.set_kernel(names.release);
    info.set_version(AITRACE_VERSION);
    info.set_boot_id(absl::BytesToHexString(boot_id_));
    return info;
  }

  const WriterRequest::Dump& request_;
  const DumpContext& context_;
  const ClockReading now_;
  std::string boot_id_;          // Whose segments are dumped.
  uint64_t realtime_offset_ns_;  // Of its wall clock over its boot clock.
  BootWindow window_;
  DumpPlan plan_;
  uint64_t done_bytes_ = 0;
  uint64_t since_progress_ = 0;
  uint64_t missing_ = 0;
};

}  // namespace

absl::StatusOr<FinishedDump> RunDump(const WriterRequest::Dump& request,
                                     const DumpContext& context) {
  return DumpRun(request, context).Run();
}

}  // namespace aitrace
