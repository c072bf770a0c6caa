#include "lib/store/snapshot_store.h"

#include "lib/base/file.h"
#include "tests/unit/catch.h"
#include "tests/unit/temp_dir.h"

namespace aitrace {
namespace {

constexpr uint64_t kNoon = 1'796'133'600'000'000'000;

SnapshotInfo Publish(SnapshotStore& store, uint64_t at_ns, size_t bytes = 10) {
  auto writer = store.Create(at_ns, "command");
  REQUIRE(writer.ok());
  std::string trace(bytes, 't');
  REQUIRE(WriteAll(writer->fd(), absl::MakeConstSpan(trace.data(), trace.size())).ok());
  SnapshotInfo info;
  info.set_id(writer->id());
  info.set_text("why \"not\"");
  REQUIRE(writer->Publish(info).ok());
  return info;
}

TEST_CASE("A published snapshot can be listed, shown, read and removed") {
  TempDir dir;
  SnapshotStore store(dir.File("s"));
  REQUIRE(store.Init().ok());
  SnapshotInfo info = Publish(store, kNoon);
  CHECK(info.id() == "20261201T140000.000Z-command");

  auto list = store.List();
  REQUIRE(list.ok());
  REQUIRE(list->size() == 1);
  CHECK((*list)[0].text() == "why \"not\"");
  CHECK(ReadText(store.TracePath(info.id())) == std::string(10, 't'));
  REQUIRE(store.Remove(info.id()).ok());
  CHECK(store.List()->empty());
  CHECK(absl::IsNotFound(store.Remove(info.id())));
}

TEST_CASE("An unfinished snapshot leaves nothing, also after a crash") {
  TempDir dir;
  SnapshotStore store(dir.path());
  REQUIRE(store.Init().ok());
  { REQUIRE(store.Create(kNoon, "command").ok()); }
  CHECK(std::filesystem::is_empty(dir.path()));
  WriteText(dir.File(".partial-20261201T140000.000Z-command/trace.perfetto-trace"), "x");
  REQUIRE(store.Init().ok());
  CHECK(std::filesystem::is_empty(dir.path()));
}

TEST_CASE("Snapshots of one millisecond have names of their own") {
  TempDir dir;
  SnapshotStore store(dir.path());
  CHECK(Publish(store, kNoon).id() != Publish(store, kNoon).id());
}

TEST_CASE("What is no id reaches no file") {
  TempDir dir;
  WriteText(dir.File("outside"), "x");
  SnapshotStore store(dir.File("s"));
  REQUIRE(store.Init().ok());
  for (const std::string id : {"", "..", "../outside", "20261201T140000.000Z-../../outside", "/etc",
                               "20261201T140000.000Z-", "20261201T140000.000Z-a/b"}) {
    CHECK(absl::IsInvalidArgument(store.Remove(id)));
    CHECK(absl::IsInvalidArgument(store.Show(id).status()));
    CHECK(absl::IsInvalidArgument(store.OpenTrace(id).status()));
  }
  CHECK(std::filesystem::exists(dir.File("outside")));
}

TEST_CASE("A snapshot whose description is damaged is listed all the same") {
  TempDir dir;
  SnapshotStore store(dir.path());
  std::string id = Publish(store, kNoon).id();
  WriteText(dir.File(id + "/snapshot.json"), "{nonsense");
  auto list = store.List();
  REQUIRE(list.ok());
  REQUIRE(list->size() == 1);
  CHECK((*list)[0].id() == id);
  CHECK_FALSE((*list)[0].covered_note().empty());
}

TEST_CASE("The oldest snapshots go when there are too many, the newest never") {
  TempDir dir;
  SnapshotStore store(dir.path());
  for (uint64_t i = 0; i < 5; ++i) Publish(store, kNoon + i * 1'000'000'000, 100);
  CHECK(store.Enforce({.max_count = 3})->count == 3);
  CHECK(store.List()->front().id() == "20261201T140002.000Z-command");
  CHECK(store.Enforce({.max_bytes = 1})->count == 1);
  CHECK(store.List()->front().id() == "20261201T140004.000Z-command");
  CHECK(store.Enforce({})->count == 1);
}

TEST_CASE("Foreign things in the directory are neither listed nor removed") {
  TempDir dir;
  WriteText(dir.File("notes.txt"), "x");
  std::filesystem::create_directory(dir.File("other"));
  SnapshotStore store(dir.path());
  REQUIRE(store.Init().ok());
  CHECK(store.List()->empty());
  CHECK(store.Enforce({.max_count = 1})->count == 0);
  CHECK(std::filesystem::exists(dir.File("notes.txt")));
}

}  // namespace
}  // namespace aitrace
