#include "lib/base/event_loop.h"

#include <csignal>

namespace aitrace {
namespace {

constexpr uint64_t kUsPerMs = 1000;
constexpr uint64_t kTimerAccuracyUs = 1000;

}  // namespace

EventSource::State::~State() { sd_event_source_disable_unref(source); }

absl::StatusOr<std::unique_ptr<EventLoop>> EventLoop::Create() {
  sd_event* event = nullptr;
  if (int error = sd_event_new(&event); error < 0) return ErrnoStatus(-error, "sd_event_new");
  return std::unique_ptr<EventLoop>(new EventLoop(event));
}

EventLoop::~EventLoop() { sd_event_unref(event_); }

absl::StatusOr<int> EventLoop::Run() {
  int code = sd_event_loop(event_);
  if (code < 0) return ErrnoStatus(-code, "sd_event_loop");
  return code;
}

void EventLoop::Exit(int code) { sd_event_exit(event_, code); }

absl::StatusOr<EventSource> EventLoop::AddIo(int fd, uint32_t events,
                                             std::function<void(uint32_t)> on_event) {
  EventSource source;
  source.state_->on_event = std::move(on_event);
  auto handler = [](sd_event_source*, int, uint32_t revents, void* userdata) {
    auto state = static_cast<EventSource::State*>(userdata)->shared_from_this();
    state->on_event(revents);
    return 0;
  };
  int error =
      sd_event_add_io(event_, &source.state_->source, fd, events, handler, source.state_.get());
  if (error < 0) return ErrnoStatus(-error, "sd_event_add_io");
  return source;
}

absl::Status EventLoop::SetEvents(const EventSource& source, uint32_t events) {
  int error = sd_event_source_set_io_events(source.state_->source, events);
  return error < 0 ? ErrnoStatus(-error, "sd_event_source_set_io_events") : absl::OkStatus();
}

absl::StatusOr<EventSource> EventLoop::AddTimer(uint64_t first_us, uint64_t period_us,
                                                std::function<void()> on_time) {
  uint64_t now_us = 0;
  if (int error = sd_event_now(event_, CLOCK_MONOTONIC, &now_us); error < 0) {
    return ErrnoStatus(-error, "sd_event_now");
  }
  EventSource source;
  source.state_->on_event = [on_time = std::move(on_time)](uint32_t) { on_time(); };
  source.state_->period_us = period_us;
  auto handler = [](sd_event_source* timer, uint64_t, void* userdata) {
    auto state = static_cast<EventSource::State*>(userdata)->shared_from_this();
    if (state->period_us > 0) {
      sd_event_source_set_time_relative(timer, state->period_us);
      sd_event_source_set_enabled(timer, SD_EVENT_ONESHOT);
    }
    state->on_event(0);
    return 0;
  };
  int error = sd_event_add_time(event_, &source.state_->source, CLOCK_MONOTONIC, now_us + first_us,
                                kTimerAccuracyUs, handler, source.state_.get());
  if (error < 0) return ErrnoStatus(-error, "sd_event_add_time");
  return source;
}

absl::StatusOr<EventSource> EventLoop::AddPeriodic(uint64_t period_ms,
                                                   std::function<void()> on_time) {
  return AddTimer(period_ms * kUsPerMs, period_ms * kUsPerMs, std::move(on_time));
}

absl::StatusOr<EventSource> EventLoop::AddDelayed(uint64_t delay_ms,
                                                  std::function<void()> on_time) {
  return AddTimer(delay_ms * kUsPerMs, 0, std::move(on_time));
}

absl::StatusOr<EventSource> EventLoop::AddSignal(int signal, std::function<void()> on_signal) {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, signal);
  if (int error = pthread_sigmask(SIG_BLOCK, &set, nullptr); error != 0) {
    return ErrnoStatus(error, "pthread_sigmask");
  }
  EventSource source;
  source.state_->on_event = [on_signal = std::move(on_signal)](uint32_t) { on_signal(); };
  auto handler = [](sd_event_source*, const signalfd_siginfo*, void* userdata) {
    auto state = static_cast<EventSource::State*>(userdata)->shared_from_this();
    state->on_event(0);
    return 0;
  };
  int error =
      sd_event_add_signal(event_, &source.state_->source, signal, handler, source.state_.get());
  if (error < 0) return ErrnoStatus(-error, "sd_event_add_signal");
  return source;
}

}  // namespace aitrace
