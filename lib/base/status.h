// Errors across functions: absl::Status made from errno, and its macros.
#pragma once

#include <cerrno>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace aitrace {

// "open /x: Permission denied", with the code that fits `error`.
absl::Status ErrnoStatus(int error, absl::string_view what);

// `status` with `context` in front of its message; OK stays OK.
absl::Status Annotate(const absl::Status& status, absl::string_view context);

}  // namespace aitrace

#define AITRACE_CONCAT_INNER(a, b) a##b
#define AITRACE_CONCAT(a, b) AITRACE_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expression)                                     \
  do {                                                                  \
    if (absl::Status status_or_ok = (expression); !status_or_ok.ok()) { \
      return status_or_ok;                                              \
    }                                                                   \
  } while (false)

#define ASSIGN_OR_RETURN(declaration, expression) \
  ASSIGN_OR_RETURN_INNER(AITRACE_CONCAT(status_or_, __LINE__), declaration, expression)
#define ASSIGN_OR_RETURN_INNER(temporary, declaration, expression) \
  auto temporary = (expression);                                   \
  if (!temporary.ok()) return std::move(temporary).status();       \
  declaration = *std::move(temporary)
