// Holds a configuration against the rules in config.proto, by reflection: a
// new field needs its rule there and nothing here.
#pragma once

#include <google/protobuf/text_format.h>

#include <string>
#include <vector>

#include "proto/aitrace/config.pb.h"

namespace aitrace {

struct Violation {
  int line = -1;  // From 0; -1: the field is not in the file.
  int column = -1;
  std::string message;
};

std::vector<Violation> Validate(const Config& config,
                                const google::protobuf::TextFormat::ParseInfoTree& locations);

// Says every field that is unset with its default.
void SetAllDefaults(google::protobuf::Message& message);

}  // namespace aitrace
