#include "daemon/recorder/event_encoder.h"

#include "proto/perfetto/trace.pb.h"
#include "tests/unit/catch.h"

namespace aitrace {
namespace {

perfetto::FtraceEvent Encode(const event_header& header) {
  BundleEncoder encoder(0);
  EncodeEvent(header, encoder);
  std::string bytes;
  encoder.Finish(bytes);
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(bytes));
  REQUIRE(trace.packet(0).ftrace_events().event_size() == 1);
  return trace.packet(0).ftrace_events().event(0);
}

exec_event Exec(const std::string& filename, const std::string& arguments) {
  exec_event event{};
  event.header.type = EVENT_EXEC;
  event.tid = event.tgid = event.old_tid = 5;
  event.filename_bytes = static_cast<uint16_t>(filename.size() + 1);
  event.args_bytes = static_cast<uint16_t>(arguments.size());
  memcpy(event.text, filename.c_str(), filename.size() + 1);
  memcpy(event.text + filename.size() + 1, arguments.data(), arguments.size());
  return event;
}

TEST_CASE("A block request says device, size and operation as ftrace does") {
  block_submit_event event{};
  event.block.header = {.boot_ns = 77, .type = EVENT_RQ_ISSUE, .cpu = 0, .pid = 3};
  event.block.sector = 4096;
  event.block.dev = 254u << 20 | 3;
  event.block.bytes = 8192;
  event.block.op_flags = 1 | 1u << 11 | 1u << 17;  // A synchronous write with FUA.
  memcpy(event.comm, "fio", 4);

  auto encoded = Encode(event.block.header);

  CHECK(encoded.timestamp() == 77);
  CHECK(encoded.pid() == 3);
  CHECK(encoded.block_rq_issue().dev() == (254u << 8 | 3));
  CHECK(encoded.block_rq_issue().nr_sector() == 16);
  CHECK(encoded.block_rq_issue().rwbs() == "WFS");
  CHECK(encoded.block_rq_issue().comm() == "fio");
}

TEST_CASE("A completion's status comes out as an errno") {
  block_event event{};
  event.header.type = EVENT_RQ_COMPLETE;
  event.error = 10;  // BLK_STS_IOERR
  CHECK(Encode(event.header).block_rq_complete().error() == -EIO);
  event.error = -28;
  CHECK(Encode(event.header).block_rq_complete().error() == -28);
  event.error = 9999;
  CHECK(Encode(event.header).block_rq_complete().error() == -EIO);
}

TEST_CASE("A comm without its NUL is read no further than it goes") {
  task_event event{};
  event.header.type = EVENT_EXIT;
  memset(event.comm, 'x', sizeof(event.comm));
  CHECK(Encode(event.header).sched_process_exit().comm() == std::string(16, 'x'));
}

TEST_CASE("Exec arguments are split as /proc/PID/cmdline splits them") {
  exec_event event = Exec("/bin/x", std::string("x\0--a b\0\0last", 13));
  CHECK(ExecArguments(event) == std::vector<std::string>{"x", "--a b", "", "last"});
  CHECK(Encode(event.header).sched_process_exec().filename() == "/bin/x");
}

TEST_CASE("Records shorter than they say are refused") {
  exec_event exec = Exec("/bin/x", "abc");
  size_t size = offsetof(exec_event, text) + 7 + 3;
  CHECK(IsWholeEvent(exec.header, size));
  CHECK_FALSE(IsWholeEvent(exec.header, size - 1));
  exec.args_bytes = 60000;
  CHECK_FALSE(IsWholeEvent(exec.header, sizeof(exec)));
  event_header unknown{.type = EVENT_TYPES};
  CHECK_FALSE(IsWholeEvent(unknown, 4096));
  newtask_event newtask{};
  newtask.header.type = EVENT_NEWTASK;
  CHECK_FALSE(IsWholeEvent(newtask.header, sizeof(newtask) - 1));
}

TEST_CASE("The longest file name fits an event") {
  exec_event event = Exec(std::string(FILENAME_BYTES - 1, 'f'), "");
  CHECK(Encode(event.header).sched_process_exec().filename().size() == FILENAME_BYTES - 1);
}

}  // namespace
}  // namespace aitrace
