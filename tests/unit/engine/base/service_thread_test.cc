#include "base/service_thread.h"

#include <array>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <pthread.h>
#include <string>
#include <sys/epoll.h>
#include <unistd.h>

namespace remora {
namespace {

/// Sleeps until the state's wake ends the sleep, and takes it.
void sleep_until_woken(ServiceState& state) {
  epoll_event event{};
  while (::epoll_wait(state.epoll(), &event, 1, -1) != 1) {
  }
  const std::uint64_t data = event.data.u64;  // packed there: no reference may be bound to it
  EXPECT_EQ(data, 0U);
  state.clear_wake();
}

TEST(ServiceThread, DestructorWakesTheThreadAndWaitsForItsEnd) {
  ServiceState state;
  ASSERT_TRUE(state.open());
  bool ended = false;
  {
    const ServiceThread thread = ServiceThread::start("test", state, [&] {
                                   while (!state.stop_requested()) sleep_until_woken(state);
                                   ended = true;
                                 }).value();
  }
  EXPECT_TRUE(ended);
}

TEST(ServiceThread, RunsUnderItsNameAndKnowsItself) {
  ServiceState state;
  ASSERT_TRUE(state.open());
  std::promise<bool> knows_itself;
  std::promise<void> named;
  std::promise<std::string> name;
  ServiceThread thread = ServiceThread::start("remora-test", state, [&] {
                           knows_itself.set_value(state.is_this_thread());
                           named.get_future().wait();
                           std::array<char, 16> text{};
                           ::pthread_getname_np(::pthread_self(), text.data(), text.size());
                           name.set_value(text.data());
                         }).value();
  named.set_value();  // start() has set the name
  EXPECT_TRUE(knows_itself.get_future().get());
  EXPECT_EQ(name.get_future().get(), "remora-test");
  EXPECT_FALSE(state.is_this_thread());
}

TEST(ServiceThread, WakeBeforeTheSleepEndsIt) {
  ServiceState state;
  ASSERT_TRUE(state.open());
  state.wake();
  state.wake();
  std::promise<void> woken;
  const ServiceThread thread = ServiceThread::start("test", state, [&] {
                                 sleep_until_woken(state);
                                 woken.set_value();
                               }).value();
  woken.get_future().wait();
}

TEST(ServiceThread, StopIsIdempotent) {
  ServiceState state;
  ASSERT_TRUE(state.open());
  ServiceThread thread = ServiceThread::start("test", state, [&] {
                           while (!state.stop_requested()) sleep_until_woken(state);
                         }).value();
  thread.stop();
  thread.stop();
  ServiceThread{}.stop();
}

/// The thread is the last owner of its own ServiceThread: it must not wait for itself.
TEST(ServiceThread, StopOnTheThreadItselfDoesNotWait) {
  struct Service {
    ServiceState state;
    ServiceThread thread;
  };
  auto service = std::make_shared<Service>();
  ASSERT_TRUE(service->state.open());
  std::promise<void> complete;
  std::promise<void> ended;
  service->thread = ServiceThread::start("test", service->state, [&, service] {
                      complete.get_future().wait();
                      service->thread.stop();
                      ended.set_value();
                    }).value();
  service.reset();
  complete.set_value();
  ended.get_future().wait();
}

TEST(ServiceThread, ReleasedThreadIsNotStopped) {
  ServiceState state;
  ASSERT_TRUE(state.open());
  std::thread released;
  {
    ServiceThread thread = ServiceThread::start("test", state, [&] {
                             while (!state.stop_requested()) sleep_until_woken(state);
                           }).value();
    released = thread.release();
  }
  EXPECT_FALSE(state.stop_requested());
  state.request_stop();
  released.join();
}

}  // namespace
}  // namespace remora
