#include "daemon/recorder/loss_ledger.h"

#include "tests/unit/catch.h"

namespace aitrace {
namespace {

TEST_CASE("Losses add up by source, cause and CPU, with their first and last time") {
  LossLedger ledger;
  ledger.Add("sched", trace::Loss::OVERWRITTEN, 1, 5, 100, 200);
  ledger.Add("sched", trace::Loss::OVERWRITTEN, 1, 7, 300, 400);
  ledger.Add("sched", trace::Loss::OVERWRITTEN, 2, 1, 300, 400);
  ledger.Add("task", trace::Loss::RECURSION, LossLedger::kNoCpu, 2, 1, 2);
  ledger.Add("task", trace::Loss::BUFFER_FULL, 0, 0, 1, 2);  // Nothing.

  auto losses = ledger.TakeNew();

  REQUIRE(losses.size() == 3);
  CHECK(losses[0].count() == 12);
  CHECK(losses[0].begin_ns() == 100);
  CHECK(losses[0].end_ns() == 400);
  CHECK_FALSE(losses[2].has_cpu());
  CHECK(ledger.TakeNew().empty());
  CHECK(ledger.TotalOf("sched") == 13);
  CHECK(ledger.Total().size() == 3);
}

TEST_CASE("The newest losses are kept one by one, up to a bound") {
  LossLedger ledger;
  for (uint64_t i = 0; i < 1000; ++i) {
    ledger.Add("sched", trace::Loss::OVERWRITTEN, 0, 1, i, i + 1);
    ledger.TakeNew();
  }
  CHECK(ledger.recent().size() == LossLedger::kMaxRecent);
  CHECK(ledger.recent().back().end_ns() == 1000);
  CHECK(ledger.TotalOf("sched") == 1000);
}

}  // namespace
}  // namespace aitrace
