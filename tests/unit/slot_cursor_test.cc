#include "daemon/source/bpf/slot_cursor.h"

#include <atomic>
#include <thread>
#include <vector>

#include "tests/unit/catch.h"

namespace aitrace {
namespace {

constexpr uint64_t kSlots = 8;
constexpr int kLapShift = 3;

// A slot ring in plain memory, written as the kernel half writes it.
class FakeRing {
 public:
  explicit FakeRing(uint64_t slots = kSlots, int lap_shift = kLapShift)
      : slots_(slots), lap_shift_(lap_shift), memory_(sizeof(slot_ring) + slots * sizeof(slot)) {}

  slot_ring* ring() { return reinterpret_cast<slot_ring*>(memory_.data()); }
  uint64_t Take() { return std::atomic_ref(ring()->head).fetch_add(1); }
  void Publish(uint64_t index, uint64_t boot_ns, uint64_t body) {
    slot& slot = ring()->slots[index & (slots_ - 1)];
    std::atomic_ref(slot.body).store(body, std::memory_order_release);
    uint64_t stamp = (index >> lap_shift_ & SLOT_LAP_MASK) << SLOT_LAP_SHIFT |
                     uint64_t{SLOT_SWITCH} << SLOT_TYPE_SHIFT | (boot_ns & SLOT_TIME_MASK);
    std::atomic_ref(slot.stamp).store(stamp, std::memory_order_release);
  }
  void Put(uint64_t boot_ns, uint64_t body) { Publish(Take(), boot_ns, body); }

 private:
  const uint64_t slots_;
  const int lap_shift_;
  std::vector<char> memory_;
};

std::vector<int32_t> ReadPids(SlotCursor& cursor, uint64_t now_ns = 1000) {
  cursor.Advance(now_ns);
  std::vector<int32_t> pids;
  for (const DecodedSlot* slot = cursor.Peek(); slot != nullptr; slot = cursor.Peek()) {
    pids.push_back(slot->pid());
    cursor.Pop();
  }
  return pids;
}

TEST_CASE("Slots come out in order, each once") {
  FakeRing ring;
  SlotCursor cursor(ring.ring(), kSlots);
  ring.Put(10, 1);
  ring.Put(20, 2);
  CHECK(ReadPids(cursor) == std::vector<int32_t>{1, 2});
  ring.Put(30, 3);
  CHECK(ReadPids(cursor) == std::vector<int32_t>{3});
  CHECK(cursor.TakeLost() == 0);
}

TEST_CASE("A cursor sees no more than was there when it was told to advance") {
  FakeRing ring;
  SlotCursor cursor(ring.ring(), kSlots);
  ring.Put(10, 1);
  cursor.Advance(1000);
  ring.Put(20, 2);
  REQUIRE(cursor.Peek() != nullptr);
  cursor.Pop();
  CHECK(cursor.Peek() == nullptr);
}

TEST_CASE("What the kernel overwrote is counted exactly, and the rest is read") {
  FakeRing ring;
  SlotCursor cursor(ring.ring(), kSlots);
  for (int i = 1; i <= 21; ++i) ring.Put(static_cast<uint64_t>(i), static_cast<uint64_t>(i));
  CHECK(ReadPids(cursor) == std::vector<int32_t>{14, 15, 16, 17, 18, 19, 20, 21});
  CHECK(cursor.TakeLost() == 13);
  CHECK(cursor.TakeLost() == 0);
}

TEST_CASE("A slot taken and not yet published holds back those behind it") {
  FakeRing ring;
  SlotCursor cursor(ring.ring(), kSlots);
  ring.Put(10, 1);
  uint64_t outer = ring.Take();
  ring.Put(30, 3);
  CHECK(ReadPids(cursor) == std::vector<int32_t>{1});
  ring.Publish(outer, 20, 2);
  CHECK(ReadPids(cursor) == std::vector<int32_t>{2, 3});
  CHECK(cursor.TakeLost() == 0);
}

TEST_CASE("A slot of the lap before is not taken for a new one") {
  FakeRing ring;
  SlotCursor cursor(ring.ring(), kSlots);
  for (int i = 1; i <= 8; ++i) ring.Put(static_cast<uint64_t>(i), static_cast<uint64_t>(i));
  CHECK(ReadPids(cursor).size() == 8);
  ring.Take();
  CHECK(ReadPids(cursor).empty());
}

TEST_CASE("The time's upper bits come from the present") {
  slot slot{.stamp = uint64_t{SLOT_WAKING} << SLOT_TYPE_SHIFT | 5, .body = 0};
  uint64_t wrap = SLOT_TIME_MASK + 1;
  CHECK(DecodeSlot(slot, 100).boot_ns == 5);
  CHECK(DecodeSlot(slot, 3 * wrap + 100).boot_ns == 3 * wrap + 5);
  slot.stamp |= SLOT_TIME_MASK;  // Just before a wrap, read just after it.
  CHECK(DecodeSlot(slot, 3 * wrap + 100).boot_ns == 3 * wrap - 1 + 0);
}

TEST_CASE("prev_state comes out as the sched_switch event prints it") {
  CHECK(PrintedState(0, 0, false) == 0);           // R
  CHECK(PrintedState(0, 0, true) == 0x100);        // R+
  CHECK(PrintedState(1, 0, true) == 0x100);        // Preempted on its way to sleep.
  CHECK(PrintedState(1, 0, false) == 1);           // S
  CHECK(PrintedState(2, 0, false) == 2);           // D
  CHECK(PrintedState(0x102, 0, false) == 2);       // D, killable
  CHECK(PrintedState(0x402, 0, false) == 0x80);    // I
  CHECK(PrintedState(0x80, 0x20, false) == 0x20);  // Z
  CHECK(PrintedState(0x80, 0x10, false) == 0x10);  // X
  CHECK(PrintedState(0x40, 0, false) == 0x40);     // P
  CHECK(PrintedState(0x1000, 0, false) == 2);      // An rtlock waiter shows as D.
  CHECK(PrintedState(4, 0, false) == 4);           // T
  CHECK(PrintedState(8, 0, false) == 8);           // t
}

TEST_CASE("Priorities keep their sign") {
  DecodedSlot slot;
  slot.body = uint64_t{255} << SLOT_PRIO_SHIFT;
  CHECK(slot.prio() == -1);
  slot.body = uint64_t{139} << SLOT_PRIO_SHIFT;
  CHECK(slot.prio() == 139);
}

TEST_CASE("Against a writer at full speed, read plus lost is what was put, and nothing is torn") {
  constexpr uint64_t kPuts = 300'000;
  FakeRing ring(1024, 10);
  SlotCursor cursor(ring.ring(), 1024);
  std::thread writer([&] {
    for (uint64_t i = 1; i <= kPuts; ++i) ring.Put(i, i & SLOT_PID_MASK);
  });
  uint64_t read = 0;
  uint64_t lost = 0;
  uint64_t last = 0;
  bool is_torn = false;
  while (last != kPuts) {
    cursor.Advance(kPuts);
    for (const DecodedSlot* slot = cursor.Peek(); slot != nullptr; slot = cursor.Peek()) {
      is_torn |= (slot->boot_ns & SLOT_PID_MASK) != static_cast<uint64_t>(slot->pid());
      is_torn |= slot->boot_ns <= last;
      last = slot->boot_ns;
      ++read;
      cursor.Pop();
    }
    lost += cursor.TakeLost();
  }
  writer.join();
  CHECK_FALSE(is_torn);
  CHECK(read + lost == kPuts);
}

}  // namespace
}  // namespace aitrace
