#include "lib/format/bundle_encoder.h"

#include "proto/perfetto/trace.pb.h"
#include "tests/unit/catch.h"

namespace aitrace {
namespace {

TaskName Name(uint64_t id, const char* text) {
  TaskName name;
  name.id = id;
  snprintf(name.bytes, sizeof(name.bytes), "%s", text);
  return name;
}

perfetto::FtraceEventBundle Finish(BundleEncoder& encoder) {
  std::string bytes;
  encoder.Finish(bytes);
  perfetto::Trace trace;
  REQUIRE(trace.ParseFromString(bytes));
  REQUIRE(trace.packet_size() == 1);
  return trace.packet(0).ftrace_events();
}

TEST_CASE("Switches come out as compact_sched columns with delta times") {
  BundleEncoder encoder(3);
  encoder.AddSwitch(1000, 1, 42, 120, Name(1, "worker"));
  encoder.AddSwitch(1500, 0x100, 0, 120, Name(2, "swapper"));
  encoder.AddSwitch(1700, 0, 42, -1, Name(1, "worker"));

  auto bundle = Finish(encoder);

  CHECK(bundle.cpu() == 3);
  const auto& sched = bundle.compact_sched();
  REQUIRE(sched.switch_timestamp_size() == 3);
  CHECK(sched.switch_timestamp(0) == 1000);
  CHECK(sched.switch_timestamp(1) == 500);
  CHECK(sched.switch_prev_state(1) == 0x100);
  CHECK(sched.switch_next_pid(0) == 42);
  CHECK(sched.switch_next_prio(2) == -1);
  CHECK(sched.switch_next_comm_index(0) == sched.switch_next_comm_index(2));
  CHECK(sched.intern_table(static_cast<int>(sched.switch_next_comm_index(1))) == "swapper");
}

TEST_CASE("Wakings carry target, priority and the interrupt flag") {
  BundleEncoder encoder(0);
  encoder.AddWaking(2000, 7, 255, 98, 0x08, Name(1, "irqed"));

  auto bundle = Finish(encoder);

  const auto& sched = bundle.compact_sched();
  REQUIRE(sched.waking_timestamp_size() == 1);
  CHECK(sched.waking_pid(0) == 7);
  CHECK(sched.waking_target_cpu(0) == 255);
  CHECK(sched.waking_prio(0) == 98);
  CHECK(sched.waking_common_flags(0) == 0x08);
}

TEST_CASE("A waking that nested in another never goes back in time") {
  BundleEncoder encoder(0);
  encoder.AddWaking(2000, 7, 0, 120, 0, Name(1, "a"));
  encoder.AddWaking(1990, 8, 0, 120, 0, Name(2, "b"));
  CHECK(Finish(encoder).compact_sched().waking_timestamp(1) == 0);
}

TEST_CASE("Each bundle starts its own times and names and says where the last one ended") {
  BundleEncoder encoder(0);
  encoder.AddSwitch(1000, 1, 42, 120, Name(1, "worker"));
  Finish(encoder);
  encoder.AddSwitch(1800, 1, 42, 120, Name(1, "worker"));

  auto bundle = Finish(encoder);

  CHECK(bundle.previous_bundle_end_timestamp() == 1000);
  CHECK(bundle.compact_sched().switch_timestamp(0) == 1800);
  REQUIRE(bundle.compact_sched().intern_table_size() == 1);
  CHECK(bundle.compact_sched().intern_table(0) == "worker");
}

TEST_CASE("More names than the cache holds are still right") {
  BundleEncoder encoder(0);
  for (uint64_t i = 0; i < 1000; ++i) {
    encoder.AddSwitch(1000 + i, 0, 1, 120, Name(i, std::to_string(i % 500).c_str()));
  }
  auto bundle = Finish(encoder);
  for (int i = 0; i < 1000; ++i) {
    auto index = static_cast<int>(bundle.compact_sched().switch_next_comm_index(i));
    REQUIRE(bundle.compact_sched().intern_table(index) == std::to_string(i % 500));
  }
}

TEST_CASE("Loss marks the bundle that follows it, once") {
  BundleEncoder encoder(0);
  encoder.MarkLost();
  encoder.AddSwitch(1, 0, 1, 120, Name(1, "a"));
  CHECK(Finish(encoder).lost_events());
  encoder.AddSwitch(2, 0, 1, 120, Name(1, "a"));
  CHECK_FALSE(Finish(encoder).lost_events());
}

TEST_CASE("Hostile names reach the intern table byte for byte") {
  BundleEncoder encoder(0);
  encoder.AddSwitch(1, 0, 1, 120, Name(1, "ev\xffil\n\x1b[31m"));
  CHECK(Finish(encoder).compact_sched().intern_table(0) == "ev\xffil\n\x1b[31m");
}

TEST_CASE("Other events keep their own time and current thread") {
  BundleEncoder encoder(1);
  EventBody body;
  body.Varint(1, 7).Bytes(2, "name").Int(4, -1000);
  encoder.AddEvent(5000, 99, 235, body);

  auto bundle = Finish(encoder);

  REQUIRE(bundle.event_size() == 1);
  CHECK(bundle.event(0).timestamp() == 5000);
  CHECK(bundle.event(0).pid() == 99);
  CHECK(bundle.event(0).task_newtask().comm() == "name");
  CHECK(bundle.event(0).task_newtask().oom_score_adj() == -1000);
  CHECK_FALSE(bundle.has_compact_sched());
}

TEST_CASE("A full encoder says so before anything is lost") {
  BundleEncoder encoder(0);
  size_t added = 0;
  while (!encoder.full()) {
    ++added;
    encoder.AddSwitch(added, 0x100, 4'000'000, -1, Name(added, "x"));
  }
  CHECK(added == BundleEncoder::kMaxBundleEvents);
  CHECK(Finish(encoder).compact_sched().switch_next_pid_size() == static_cast<int>(added));
}

}  // namespace
}  // namespace aitrace
