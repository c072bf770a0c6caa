// What the running kernel's BTF says of its tracepoints: which exist, and how
// many arguments each has. Signatures are looked up, never guessed by version.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lib/base/status.h"

struct btf;

namespace aitrace {

class KernelBtf {
 public:
  // Fails, saying what is lost without it, where the kernel has no usable BTF.
  static absl::StatusOr<KernelBtf> Load();

  // Arguments of raw tracepoint `name`; -1 when this kernel has no such one.
  int TracepointArguments(const std::string& name) const;
  bool HasTracepoint(const std::string& name) const { return TracepointArguments(name) >= 0; }

  // Where variable `name` lies in every CPU's own memory; 0 if it is not there.
  uint64_t PerCpuOffset(const std::string& name) const;
  // That of x86's preemption count, which has lived in several places.
  uint64_t PreemptCountOffset() const;

 private:
  struct Free {
    void operator()(btf* vmlinux) const;
  };
  explicit KernelBtf(btf* vmlinux) : btf_(vmlinux) {}
  std::unique_ptr<btf, Free> btf_;
};

}  // namespace aitrace
