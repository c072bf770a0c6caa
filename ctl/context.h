// What all commands share: the global options, the daemon, and how a result
// becomes output and an exit code.
#pragma once

#include <google/protobuf/message.h>

#include <functional>
#include <string>

#include "lib/base/status.h"
#include "lib/base/unique_fd.h"
#include "proto/aitrace/control.pb.h"

namespace aitrace {

// The command line's contract.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitUnreachable = 3;

struct Context {
  std::string socket = "/run/aitrace/control.sock";
  bool json = false;
  bool no_color = false;

  // One request to the daemon; see ControlClient::Call.
  absl::Status Call(const control::Request& request,
                    const std::function<void(const control::Reply&, UniqueFd)>& on_reply) const;
};

// Of a message, with the names of its .proto.
std::string ToJson(const google::protobuf::Message& message);

// Says an error on standard error, and which exit code it is.
int Fail(const absl::Status& status);

// A line on standard error that is drawn anew; nothing where that is no
// terminal.
class Progress {
 public:
  ~Progress();
  void Show(const std::string& stage, uint64_t done_bytes, uint64_t total_bytes);

 private:
  bool is_shown_ = false;
};

}  // namespace aitrace
