#include "daemon/recorder/loss_ledger.h"

#include <algorithm>

namespace aitrace {

void LossLedger::AddTo(std::map<Key, trace::Loss>& losses, const Key& key, uint64_t count,
                       uint64_t begin_ns, uint64_t end_ns) {
  auto [found, is_new] = losses.try_emplace(key);
  trace::Loss& loss = found->second;
  const auto& [source, cause, cpu] = key;
  if (is_new) {
    loss.set_source(source);
    loss.set_cause(cause);
    if (cpu != kNoCpu) loss.set_cpu(static_cast<uint32_t>(cpu));
    loss.set_begin_ns(begin_ns);
  }
  loss.set_begin_ns(std::min<uint64_t>(loss.begin_ns(), begin_ns));
  loss.set_end_ns(std::max<uint64_t>(loss.end_ns(), end_ns));
  loss.set_count(loss.count() + count);
}

void LossLedger::Add(const std::string& source, trace::Loss::Cause cause, int32_t cpu,
                     uint64_t count, uint64_t begin_ns, uint64_t end_ns) {
  if (count == 0) return;
  Key key(source, cause, cpu);
  AddTo(new_, key, count, begin_ns, end_ns);
  AddTo(total_, key, count, begin_ns, end_ns);
}

std::vector<trace::Loss> LossLedger::TakeNew() {
  std::vector<trace::Loss> losses;
  for (auto& [key, loss] : new_) losses.push_back(std::move(loss));
  new_.clear();
  recent_.insert(recent_.end(), losses.begin(), losses.end());
  while (recent_.size() > kMaxRecent) recent_.pop_front();
  return losses;
}

std::vector<trace::Loss> LossLedger::Total() const {
  std::vector<trace::Loss> losses;
  for (const auto& [key, loss] : total_) losses.push_back(loss);
  return losses;
}

uint64_t LossLedger::TotalOf(const std::string& source) const {
  uint64_t count = 0;
  for (const auto& [key, loss] : total_) {
    if (std::get<0>(key) == source) count += loss.count();
  }
  return count;
}

}  // namespace aitrace
