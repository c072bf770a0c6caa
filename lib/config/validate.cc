#include "lib/config/validate.h"

#include <algorithm>
#include <bit>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "lib/config/config.h"

namespace aitrace {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using google::protobuf::TextFormat;

constexpr size_t kMaxPathBytes = 4096;
constexpr size_t kMaxSocketBytes = 100;  // sun_path holds 108, the lock adds ".lock".
constexpr size_t kMaxNameBytes = 32;     // As useradd and groupadd have it.

const Rule& RuleOf(const FieldDescriptor& field) { return field.options().GetExtension(rule); }

uint64_t NumberOf(const Message& message, const FieldDescriptor& field) {
  const Reflection& reflection = *message.GetReflection();
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64) {
    return reflection.GetUInt64(message, &field);
  }
  return reflection.GetUInt32(message, &field);
}

bool IsNumber(const FieldDescriptor& field) {
  return field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32 ||
         field.cpp_type() == FieldDescriptor::CPPTYPE_UINT64;
}

// What is wrong with a value, in words; empty if nothing is.
std::string CheckNumber(uint64_t value, const Rule& rule) {
  if (rule.zero_ok() && value == 0) return "";
  bool is_too_small = value < rule.min();
  bool is_too_large = rule.has_max() && value > rule.max();
  if (is_too_small || is_too_large) {
    return absl::StrCat(value, " is out of range: ", rule.min(), " to ", rule.max());
  }
  if (rule.power_of_two() && !std::has_single_bit(value)) {
    return absl::StrCat(value, " is no power of two (try ", std::bit_floor(value), " or ",
                        std::bit_ceil(value), ")");
  }
  return "";
}

bool HasControlCharacter(const std::string& text) {
  return std::any_of(text.begin(), text.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

std::string CheckPath(const std::string& path, size_t max_bytes) {
  if (path.empty() || path[0] != '/') return "an absolute path was expected (\"/...\")";
  if (path.size() > max_bytes) return absl::StrCat("the path is longer than ", max_bytes, " bytes");
  std::vector<std::string> parts = absl::StrSplit(path, '/');
  if (std::find(parts.begin(), parts.end(), "..") != parts.end()) {
    return "the path must not contain \"..\"";
  }
  return "";
}

std::string CheckName(const std::string& name) {
  bool is_good = !name.empty() && name.size() <= kMaxNameBytes && name[0] != '-' &&
                 std::all_of(name.begin(), name.end(), [](char c) {
                   return isalnum(static_cast<unsigned char>(c)) || absl::StrContains("_.-", c);
                 });
  return is_good ? "" : "a name was expected: letters, digits, '_', '.' and '-'";
}

// protobuf only warns of strings that are not UTF-8.
bool IsUtf8(const std::string& text) {
  size_t i = 0;
  while (i < text.size()) {
    auto lead = static_cast<unsigned char>(text[i]);
    size_t extra = lead < 0x80       ? 0
                   : lead >> 5 == 6  ? 1
                   : lead >> 4 == 14 ? 2
                   : lead >> 3 == 30 ? 3
                                     : 9;
    if (i + extra >= text.size() && extra > 0) return false;
    for (size_t k = 1; k <= extra; ++k) {
      if ((static_cast<unsigned char>(text[i + k]) & 0xc0) != 0x80) return false;
    }
    i += extra + 1;
  }
  return true;
}

std::string CheckString(const std::string& text, const Rule& rule) {
  if (!IsUtf8(text)) return "the text is not UTF-8";
  if (HasControlCharacter(text)) return "the text has control characters";
  if (rule.socket_path()) return CheckPath(text, kMaxSocketBytes);
  if (rule.absolute_path()) return CheckPath(text, kMaxPathBytes);
  if (rule.name()) return CheckName(text);
  return "";
}

class Validator {
 public:
  void Check(const Message& message, const TextFormat::ParseInfoTree* locations) {
    const Reflection& reflection = *message.GetReflection();
    std::vector<const FieldDescriptor*> fields;
    reflection.ListFields(message, &fields);
    for (const FieldDescriptor* field : fields) {
      if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
        CheckMessage(message, *field, locations);
      } else {
        CheckValue(message, *field, locations);
      }
    }
  }
  std::vector<Violation> Take() { return std::move(violations_); }

 private:
  void CheckMessage(const Message& message, const FieldDescriptor& field,
                    const TextFormat::ParseInfoTree* locations) {
    const Reflection& reflection = *message.GetReflection();
    auto nested = [&](int index) {
      return locations == nullptr ? nullptr : locations->GetTreeForNested(&field, index);
    };
    if (!field.is_repeated()) return Check(reflection.GetMessage(message, &field), nested(-1));
    for (int i = 0; i < reflection.FieldSize(message, &field); ++i) {
      Check(reflection.GetRepeatedMessage(message, &field, i), nested(i));
    }
  }

  void CheckValue(const Message& message, const FieldDescriptor& field,
                  const TextFormat::ParseInfoTree* locations) {
    std::string wrong;
    if (IsNumber(field)) wrong = CheckNumber(NumberOf(message, field), RuleOf(field));
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      wrong = CheckString(message.GetReflection()->GetString(message, &field), RuleOf(field));
    }
    if (wrong.empty()) return;
    Violation violation{.message = absl::StrCat(field.name(), ": ", wrong)};
    if (locations != nullptr) {
      TextFormat::ParseLocation at = locations->GetLocation(&field, -1);
      violation.line = at.line;
      violation.column = at.column;
    }
    violations_.push_back(std::move(violation));
  }

  std::vector<Violation> violations_;
};

void FindChanges(const Message& before, const Message& after, const std::string& prefix,
                 std::vector<std::string>& changes) {
  const auto& type = *before.GetDescriptor();
  const Reflection& reflection = *before.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    std::string name = prefix + field.name();
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE && !field.is_repeated()) {
      FindChanges(reflection.GetMessage(before, &field), reflection.GetMessage(after, &field),
                  name + ".", changes);
      continue;
    }
    if (!RuleOf(field).needs_restart()) continue;
    std::string old_value;
    std::string new_value;
    TextFormat::PrintFieldValueToString(before, &field, -1, &old_value);
    TextFormat::PrintFieldValueToString(after, &field, -1, &new_value);
    if (old_value != new_value) changes.push_back(name);
  }
}

void SetDefault(const FieldDescriptor& field, Message& message) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, field.default_value_uint32());
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, field.default_value_uint64());
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, field.default_value_bool());
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, &field, field.default_value_string());
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnum(&message, &field, field.default_value_enum());
    default:
      return;  // No field of config.proto has another type.
  }
}

}  // namespace

std::vector<Violation> Validate(const Config& config, const TextFormat::ParseInfoTree& locations) {
  Validator validator;
  validator.Check(config, &locations);
  return validator.Take();
}

void SetAllDefaults(Message& message) {
  const auto& type = *message.GetDescriptor();
  const Reflection& reflection = *message.GetReflection();
  for (int i = 0; i < type.field_count(); ++i) {
    const FieldDescriptor& field = *type.field(i);
    if (field.is_repeated()) continue;
    if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      SetAllDefaults(*reflection.MutableMessage(&message, &field));
    } else if (!reflection.HasField(message, &field)) {
      SetDefault(field, message);
    }
  }
}

std::vector<std::string> RestartOnlyChanges(const Config& before, const Config& after) {
  std::vector<std::string> changes;
  FindChanges(before, after, "", changes);
  return changes;
}

}  // namespace aitrace
