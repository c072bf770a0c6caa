#include "ctl/context.h"

#include <google/protobuf/util/json_util.h>
#include <unistd.h>

#include <iostream>

#include "absl/strings/str_format.h"
#include "ctl/text.h"
#include "lib/control/client.h"

namespace aitrace {
namespace {

// A dump that waits for its --post time says nothing for an hour at most.
constexpr unsigned kTimeoutS = 3700;

}  // namespace

absl::Status Context::Call(
    const control::Request& request,
    const std::function<void(const control::Reply&, UniqueFd)>& on_reply) const {
  ASSIGN_OR_RETURN(ControlClient client, ControlClient::Connect(socket));
  return client.Call(request, kTimeoutS, on_reply);
}

std::string ToJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.add_whitespace = true;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string json;
  // Fails only for messages that hold Any or invalid times; ours hold neither.
  auto status = google::protobuf::util::MessageToJsonString(message, &json, options);
  return status.ok() ? json : status.ToString();
}

int Fail(const absl::Status& status) {
  std::cerr << "aitracectl: " << Printable(std::string(status.message())) << '\n';
  if (absl::IsInvalidArgument(status)) return kExitUsage;
  return absl::IsUnavailable(status) ? kExitUnreachable : kExitFailed;
}

void Progress::Show(const std::string& stage, uint64_t done_bytes, uint64_t total_bytes) {
  if (!isatty(STDERR_FILENO) || total_bytes == 0) return;
  std::cerr << absl::StrFormat("\r%s %3d %%  %s of %s\033[K", stage, done_bytes * 100 / total_bytes,
                               FormatBytes(done_bytes), FormatBytes(total_bytes))
            << std::flush;
  is_shown_ = true;
}

Progress::~Progress() {
  if (is_shown_) std::cerr << "\r\033[K" << std::flush;
}

}  // namespace aitrace
