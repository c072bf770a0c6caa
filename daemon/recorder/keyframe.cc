#include "daemon/recorder/keyframe.h"

#include <sys/utsname.h>
#include <unistd.h>

#include "google/protobuf/descriptor.pb.h"
#include "proto/perfetto/trace.pb.h"

namespace aitrace {
namespace {

constexpr uint32_t kSequenceId = 1;

void FillSystemInfo(perfetto::SystemInfo& info) {
  utsname names{};
  uname(&names);  // Cannot fail with a valid buffer.
  info.mutable_utsname()->set_sysname(names.sysname);
  info.mutable_utsname()->set_version(names.version);
  info.mutable_utsname()->set_release(names.release);
  info.mutable_utsname()->set_machine(names.machine);
  info.set_hz(sysconf(_SC_CLK_TCK));
  info.set_num_cpus(static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
  info.set_tracing_service_version("aitrace " AITRACE_VERSION);
}

// Our own message as other readers need it described: an extension of theirs.
std::string ExtensionSet() {
  google::protobuf::FileDescriptorSet set;
  auto& file = *set.add_file();
  trace::AitracePacket::descriptor()->file()->CopyTo(&file);
  file.clear_dependency();
  file.mutable_extension(0)->set_extendee(".perfetto.protos.TracePacket");
  return set.SerializeAsString();
}

// As a full sched_switch from the thread to itself: a reader of a compact one
// would know the thread only from the next switch on.
void FillRunning(const RunningThread& running, uint64_t at_ns,
                 perfetto::FtraceEventBundle& bundle) {
  bundle.set_cpu(running.cpu);
  bundle.set_previous_bundle_end_timestamp(at_ns);
  if (running.tid < 0) return;
  auto& event = *bundle.add_event();
  event.set_timestamp(at_ns);
  event.set_pid(static_cast<uint32_t>(running.tid));
  auto& sched_switch = *event.mutable_sched_switch();
  sched_switch.set_prev_comm(running.name.bytes);
  sched_switch.set_prev_pid(running.tid);
  sched_switch.set_prev_prio(running.prio);
  sched_switch.set_prev_state(0);
  sched_switch.set_next_comm(running.name.bytes);
  sched_switch.set_next_pid(running.tid);
  sched_switch.set_next_prio(running.prio);
}

}  // namespace

std::string BuildKeyframe(const TaskTable& tasks, const KeyframeInput& input) {
  perfetto::Trace out;
  auto add_packet = [&]() -> perfetto::TracePacket& {
    auto& packet = *out.add_packet();
    packet.set_trusted_packet_sequence_id(kSequenceId);
    packet.set_timestamp(input.at_ns);
    return packet;
  };
  FillSystemInfo(*add_packet().mutable_system_info());
  add_packet().mutable_extension_descriptor()->set_extension_set(ExtensionSet());
  auto& tree = *add_packet().mutable_process_tree();
  tasks.FillProcessTree(tree);
  tree.set_collection_end_timestamp(input.at_ns);
  for (const RunningThread& running : input.running) {
    FillRunning(running, input.at_ns, *add_packet().mutable_ftrace_events());
  }
  auto& own = *add_packet().MutableExtension(trace::aitrace);
  tasks.FillThreadStates(*own.mutable_thread_states());
  *own.mutable_capture() = input.capture;
  if (input.gap.has_value()) *own.mutable_gap() = *input.gap;
  return out.SerializeAsString();
}

}  // namespace aitrace
