// One thread's loop over sd-event: descriptors, timers, signals.
//
// Ownership: a source lives as long as the EventSource that Add...() returned;
//   dropping it, also from inside a callback, removes it.
// Threading: a loop belongs to the thread that runs it; only a
//   descriptor (an eventfd, a pipe) crosses threads.
#pragma once

#include <sys/epoll.h>
#include <systemd/sd-event.h>

#include <cstdint>
#include <functional>
#include <memory>

#include "lib/base/status.h"

namespace aitrace {

class EventSource {
 public:
  EventSource() = default;

 private:
  friend class EventLoop;
  // Shared with a callback that runs, so that it may drop its own source.
  struct State : std::enable_shared_from_this<State> {
    ~State();
    sd_event_source* source = nullptr;
    std::function<void(uint32_t)> on_event;
    uint64_t period_us = 0;  // 0: fires once.
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

class EventLoop {
 public:
  static absl::StatusOr<std::unique_ptr<EventLoop>> Create();
  ~EventLoop();
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // Runs until Exit(); returns its code.
  absl::StatusOr<int> Run();
  void Exit(int code);

  // `on_event` gets the EPOLL* bits. `fd` is not owned.
  absl::StatusOr<EventSource> AddIo(int fd, uint32_t events,
                                    std::function<void(uint32_t)> on_event);
  // Changes what an Io source waits for.
  absl::Status SetEvents(const EventSource& source, uint32_t events);
  // Fires every `period_ms`, first after one period; missed periods are skipped.
  absl::StatusOr<EventSource> AddPeriodic(uint64_t period_ms, std::function<void()> on_time);
  // Fires once, `delay_ms` from now.
  absl::StatusOr<EventSource> AddDelayed(uint64_t delay_ms, std::function<void()> on_time);
  // Blocks `signal` for the calling thread (call before starting others) and
  // delivers it here.
  absl::StatusOr<EventSource> AddSignal(int signal, std::function<void()> on_signal);

 private:
  explicit EventLoop(sd_event* event) : event_(event) {}
  absl::StatusOr<EventSource> AddTimer(uint64_t first_us, uint64_t period_us,
                                       std::function<void()> on_time);
  sd_event* const event_;
};

}  // namespace aitrace
