#include "daemon/recorder/event_encoder.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/string_view.h"

namespace aitrace {
namespace {

// What the code below needs to know of each event_type, in its order.
struct EventKind {
  const char* source;
  const char* name;
  uint32_t field;  // In Perfetto's FtraceEvent.
  size_t size;     // Of the record; of exec, the least.
};

constexpr EventKind kKinds[EVENT_TYPES] = {
    {"sched", "", 0, sizeof(event_header)},
    {"sched", "", 0, sizeof(slot_event)},
    {"task", "task_newtask", 235, sizeof(newtask_event)},
    {"task", "sched_wakeup_new", 114, sizeof(task_event)},
    {"task", "task_rename", 236, sizeof(rename_event)},
    {"task", "sched_process_fork", 239, sizeof(fork_event)},
    {"task", "sched_process_exec", 237, offsetof(exec_event, text)},
    {"task", "sched_process_exit", 238, sizeof(task_event)},
    {"task", "sched_process_free", 240, sizeof(task_event)},
    {"block", "block_io_start", 546, sizeof(block_submit_event)},
    {"block", "block_bio_queue", 119, sizeof(block_submit_event)},
    {"block", "block_rq_insert", 126, sizeof(block_submit_event)},
    {"block", "block_rq_issue", 45, sizeof(block_submit_event)},
    {"block", "block_rq_complete", 125, sizeof(block_event)},
    {"block", "block_io_done", 547, sizeof(block_event)},
    {"freq", "cpu_frequency", 11, sizeof(frequency_event)},
    {"kmem", "mm_page_alloc", 307, sizeof(page_alloc_event)},
};

constexpr uint32_t kSectorShift = 9;

template <typename Event>
const Event& As(const event_header& header) {
  return *reinterpret_cast<const Event*>(&header);
}

template <size_t kSize>
absl::string_view Text(const char (&text)[kSize]) {
  return {text, strnlen(text, kSize)};
}

// A device number as user space and Perfetto write it, from the kernel's own.
uint64_t UserDev(uint32_t dev) {
  uint64_t major = dev >> 20;
  uint64_t minor = dev & 0xfffff;
  return (minor & 0xff) | major << 8 | (minor & ~uint64_t{0xff}) << 12;
}

// The operation and flags of a request as blk_fill_rwbs() in the kernel's
// block/blk-core.c or kernel/trace/blktrace.c writes them.
class Rwbs {
 public:
  explicit Rwbs(uint32_t op_flags) {
    constexpr uint32_t kPreflush = 1u << 18;
    constexpr uint32_t kFua = 1u << 17;
    constexpr uint32_t kReadAhead = 1u << 19;
    constexpr uint32_t kSync = 1u << 11;
    constexpr uint32_t kMeta = 1u << 12;
    if ((op_flags & kPreflush) != 0) Add("F");
    Add(Operation(op_flags & 0xff));
    if ((op_flags & kFua) != 0) Add("F");
    if ((op_flags & kReadAhead) != 0) Add("A");
    if ((op_flags & kSync) != 0) Add("S");
    if ((op_flags & kMeta) != 0) Add("M");
  }
  absl::string_view view() const { return {text_, size_}; }

 private:
  static const char* Operation(uint32_t op) {
    switch (op) {
      case 0:
        return "R";
      case 1:
      case 7:
        return "W";
      case 2:
        return "F";
      case 3:
        return "D";
      case 5:
        return "DE";
      default:
        return "N";
    }
  }
  void Add(const char* text) {
    while (*text != '\0') text_[size_++] = *text++;
  }
  char text_[8];
  size_t size_ = 0;
};

// What the kernel's blk_status_to_errno() makes of a request's status.
int32_t BlockErrno(int32_t status) {
  constexpr int32_t kErrnos[] = {0,      -EOPNOTSUPP, -ETIMEDOUT, -ENOSPC, -ENOLINK, -EREMOTEIO,
                                 -EBADE, -ENODATA,    -EILSEQ,    -ENOMEM, -EIO};
  if (status <= 0) return status;
  if (static_cast<size_t>(status) < std::size(kErrnos)) return kErrnos[status];
  return -EIO;
}

void FillNewTask(const newtask_event& event, EventBody& body) {
  body.Int(1, event.tid)
      .Bytes(2, Text(event.comm))
      .Varint(3, event.clone_flags)
      .Int(4, event.oom_score_adj);
}

void FillWakeupNew(const task_event& event, EventBody& body) {
  body.Bytes(1, Text(event.comm)).Int(2, event.tid).Int(3, event.prio).Int(4, 1).Int(5, event.cpu);
}

void FillRename(const rename_event& event, EventBody& body) {
  body.Int(1, event.tid)
      .Bytes(2, Text(event.old_comm))
      .Bytes(3, Text(event.new_comm))
      .Int(4, event.oom_score_adj);
}

void FillFork(const fork_event& event, EventBody& body) {
  body.Bytes(1, Text(event.parent_comm))
      .Int(2, event.parent_tid)
      .Bytes(3, Text(event.child_comm))
      .Int(4, event.child_tid);
}

void FillExec(const exec_event& event, EventBody& body) {
  absl::string_view filename(event.text, strnlen(event.text, event.filename_bytes));
  body.Bytes(1, filename).Int(2, event.tid).Int(3, event.old_tid);
}

void FillExit(const task_event& event, EventBody& body) {
  body.Bytes(1, Text(event.comm)).Int(2, event.tid).Int(3, event.tgid).Int(4, event.prio);
}

void FillFree(const task_event& event, EventBody& body) {
  body.Bytes(1, Text(event.comm)).Int(2, event.tid).Int(3, event.prio);
}

// The fields that all block events have, at the same numbers.
void FillBlock(const block_event& event, EventBody& body) {
  body.Varint(1, UserDev(event.dev)).Varint(2, event.sector).Varint(3, event.bytes >> kSectorShift);
}

void FillIoDone(const block_event& event, EventBody& body) {
  FillBlock(event, body);
  body.Varint(4, event.bytes).Bytes(6, Rwbs(event.op_flags).view());
}

void FillIoStart(const block_submit_event& event, EventBody& body) {
  FillIoDone(event.block, body);
  body.Bytes(7, Text(event.comm));
}

void FillBioQueue(const block_submit_event& event, EventBody& body) {
  FillBlock(event.block, body);
  body.Bytes(4, Rwbs(event.block.op_flags).view()).Bytes(5, Text(event.comm));
}

void FillRequest(const block_submit_event& event, EventBody& body) {
  FillBlock(event.block, body);
  body.Varint(4, event.block.bytes)
      .Bytes(5, Rwbs(event.block.op_flags).view())
      .Bytes(6, Text(event.comm));
}

void FillComplete(const block_event& event, EventBody& body) {
  FillBlock(event, body);
  body.Bytes(5, Rwbs(event.op_flags).view()).Int(7, BlockErrno(event.error));
}

void FillFrequency(const frequency_event& event, EventBody& body) {
  body.Varint(1, event.khz).Varint(2, event.cpu);
}

void FillPageAlloc(const page_alloc_event& event, EventBody& body) {
  body.Varint(1, event.gfp_flags).Int(2, event.migratetype).Varint(3, event.order);
}

void FillBody(const event_header& header, EventBody& body) {
  switch (header.type) {
    case EVENT_NEWTASK:
      return FillNewTask(As<newtask_event>(header), body);
    case EVENT_WAKEUP_NEW:
      return FillWakeupNew(As<task_event>(header), body);
    case EVENT_RENAME:
      return FillRename(As<rename_event>(header), body);
    case EVENT_FORK:
      return FillFork(As<fork_event>(header), body);
    case EVENT_EXEC:
      return FillExec(As<exec_event>(header), body);
    case EVENT_EXIT:
      return FillExit(As<task_event>(header), body);
    case EVENT_FREE:
      return FillFree(As<task_event>(header), body);
    case EVENT_IO_START:
      return FillIoStart(As<block_submit_event>(header), body);
    case EVENT_IO_DONE:
      return FillIoDone(As<block_event>(header), body);
    case EVENT_BIO_QUEUE:
      return FillBioQueue(As<block_submit_event>(header), body);
    case EVENT_RQ_INSERT:
    case EVENT_RQ_ISSUE:
      return FillRequest(As<block_submit_event>(header), body);
    case EVENT_RQ_COMPLETE:
      return FillComplete(As<block_event>(header), body);
    case EVENT_FREQUENCY:
      return FillFrequency(As<frequency_event>(header), body);
    case EVENT_PAGE_ALLOC:
      return FillPageAlloc(As<page_alloc_event>(header), body);
    default:
      return;
  }
}

}  // namespace

const char* SourceOf(uint16_t type) { return type < EVENT_TYPES ? kKinds[type].source : ""; }
const char* EventName(uint16_t type) { return type < EVENT_TYPES ? kKinds[type].name : ""; }

bool IsWholeEvent(const event_header& header, size_t size) {
  if (header.type >= EVENT_TYPES || size < kKinds[header.type].size) return false;
  if (header.type != EVENT_EXEC) return true;
  const auto& exec = As<exec_event>(header);
  return exec.filename_bytes <= FILENAME_BYTES && exec.args_bytes <= ARGS_BYTES &&
         offsetof(exec_event, text) + exec.filename_bytes + exec.args_bytes <= size;
}

void EncodeEvent(const event_header& header, BundleEncoder& bundle) {
  EventBody body;
  FillBody(header, body);
  bundle.AddEvent(header.boot_ns, header.pid, kKinds[header.type].field, body);
}

std::vector<std::string> ExecArguments(const exec_event& event) {
  absl::string_view text(event.text + event.filename_bytes, event.args_bytes);
  std::vector<std::string> arguments;
  while (!text.empty()) {
    size_t end = std::min(text.find('\0'), text.size());
    arguments.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return arguments;
}

}  // namespace aitrace
