// Turns the probes' event records into Perfetto's FtraceEvents.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "lib/format/bundle_encoder.h"
#include "probes/record.h"

namespace aitrace {

// Of record.h's event_type: the source that `aitracectl status` counts it
// under, and the tracepoint's name.
const char* SourceOf(uint16_t type);
const char* EventName(uint16_t type);

// Whether `size` bytes are a whole record of the header's type.
bool IsWholeEvent(const event_header& header, size_t size);

// Adds a whole event to its CPU's bundle.
void EncodeEvent(const event_header& header, BundleEncoder& bundle);

// The arguments of an exec event, as /proc/PID/cmdline would have them.
std::vector<std::string> ExecArguments(const exec_event& event);

}  // namespace aitrace
