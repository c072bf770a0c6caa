// What the control socket and signals ask of the daemon, answered from the
// recorder and the writer.
//
// Threading: the main loop's thread only.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "daemon/control/control_server.h"
#include "daemon/recorder/recorder.h"
#include "daemon/service/own_cost.h"
#include "daemon/writer/writer_client.h"
#include "lib/base/clock.h"
#include "lib/base/event_loop.h"
#include "proto/aitrace/config.pb.h"
#include "proto/aitrace/control.pb.h"

namespace aitrace {

class Backend final : public ControlBackend {
 public:
  // Dumps that wait for their --post time; more are refused.
  static constexpr size_t kMaxDelayed = 16;

  struct Identity {
    std::string host;
    std::string kernel;
    std::string config_path;
  };

  // All outlive the backend.
  Backend(EventLoop& loop, const Clock& clock, Recorder& recorder, WriterClient& writer,
          Identity identity);

  void Handle(const control::Request& request, const Peer& peer,
              std::shared_ptr<ReplySink> sink) override;

  // SIGUSR1: a snapshot of the last dump.last_s.
  void DumpOnSignal();
  void SetConfig(const Config& config, const std::string& digest);
  void SetConfigError(const std::string& error) { config_error_ = error; }
  // Of the control server, which is made after its backend.
  void SetServer(const ControlServer* server) { server_ = server; }
  // Once a second: the cost shown is that of the time between two calls.
  void MeasureCost();
  // In one line, for the service manager.
  std::string Summary() const;

 private:
  void HandleDump(const control::Request::Dump& request, const Peer& peer,
                  const std::shared_ptr<ReplySink>& sink);
  void Dump(WriterRequest::Dump request, const std::shared_ptr<ReplySink>& sink);
  void DelayDump(uint64_t delay_ms, WriterRequest::Dump request,
                 const std::shared_ptr<ReplySink>& sink);
  control::Status BuildStatus() const;
  void FillRing(const Recorder::Stats& stats, control::Status& status) const;
  void FillCost(const Recorder::Stats& stats, control::Status& status) const;

  EventLoop& loop_;
  const Clock& clock_;
  Recorder& recorder_;
  WriterClient& writer_;
  const Identity identity_;
  const uint64_t started_ns_;
  Config config_;
  std::string config_digest_;
  std::string config_error_;
  const ControlServer* server_ = nullptr;
  CostMeter cost_;
  CostMeter writer_cost_;
  std::map<uint64_t, EventSource> delayed_;
  uint64_t next_delayed_ = 1;
};

}  // namespace aitrace
