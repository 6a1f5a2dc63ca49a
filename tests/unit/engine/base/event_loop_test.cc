#include "base/event_loop.h"

#include <atomic>
#include <chrono>
#include <future>
#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <sys/eventfd.h>
#include <vector>

namespace remora {
namespace {

struct Owner {
  std::unique_ptr<EventLoop> loop;
};

TEST(EventLoop, CallsTheHandlerOfAReadableDescriptor) {
  auto loop = EventLoop::start("test").value();
  const UniqueFd event{::eventfd(0, EFD_NONBLOCK)};
  std::promise<void> called;
  ASSERT_TRUE(loop->watch(event.get(), [&] {
    eventfd_t value = 0;
    if (::eventfd_read(event.get(), &value) == 0) called.set_value();
  }));
  ::eventfd_write(event.get(), 1);
  called.get_future().wait();
}

TEST(EventLoop, HandlersThatComeLastRunAfterTheOthers) {
  const UniqueFd start{::eventfd(0, EFD_NONBLOCK)};
  std::vector<UniqueFd> events;
  for (int i = 0; i < 3; ++i) events.emplace_back(::eventfd(0, EFD_NONBLOCK));
  std::string ran;
  std::promise<void> done;
  auto loop = EventLoop::start("test").value();
  const auto take = [](const UniqueFd& event) {
    eventfd_t value = 0;
    ::eventfd_read(event.get(), &value);
  };
  const auto watch = [&](std::size_t i, const char* name, EventLoop::Turn turn) {
    ASSERT_TRUE(loop->watch(
        events[i].get(),
        [&, i, name] {
          take(events[i]);
          ran += name;
          if (ran.size() == 3) done.set_value();
        },
        turn));
  };
  // They become readable in this order, while the loop's thread is in another handler.
  watch(0, "L", EventLoop::Turn::kLast);
  watch(1, "1", EventLoop::Turn::kAny);
  watch(2, "2", EventLoop::Turn::kAny);
  ASSERT_TRUE(loop->watch(start.get(), [&] {
    take(start);
    for (const UniqueFd& event : events) ::eventfd_write(event.get(), 1);
  }));
  ::eventfd_write(start.get(), 1);
  done.get_future().wait();
  EXPECT_EQ(ran, "12L");
}

TEST(EventLoop, ForgottenHandlerIsNotRunningAndNeverCalledAgain) {
  auto loop = EventLoop::start("test").value();
  const UniqueFd event{::eventfd(1, EFD_NONBLOCK)};  // stays readable
  std::atomic<int> calls{0};
  const auto token = loop->watch(event.get(), [&] { ++calls; }).value();
  while (calls == 0) std::this_thread::yield();
  loop->forget(token);
  const int seen = calls;
  std::this_thread::sleep_for(std::chrono::milliseconds{20});
  EXPECT_EQ(calls, seen);
}

TEST(EventLoop, HandlerMayForgetItself) {
  auto loop = EventLoop::start("test").value();
  const UniqueFd event{::eventfd(1, EFD_NONBLOCK)};
  std::promise<void> done;
  std::atomic<EventLoop::Token> token{0};
  token = loop->watch(event.get(),
                      [&] {
                        while (token == 0) std::this_thread::yield();
                        loop->forget(token);
                        done.set_value();
                      })
              .value();
  done.get_future().wait();
}

TEST(EventLoop, LastOwnerMayBeAHandler) {
  auto owner = std::make_shared<Owner>();
  owner->loop = EventLoop::start("test").value();
  const UniqueFd event{::eventfd(1, EFD_NONBLOCK)};
  std::promise<void> done;
  auto kept = std::make_shared<std::shared_ptr<Owner>>(owner);
  EventLoop& loop = *owner->loop;
  ASSERT_TRUE(loop.watch(event.get(), [kept, &done] {
    if (*kept == nullptr) return;
    kept->reset();
    done.set_value();
  }));
  owner.reset();
  done.get_future().wait();
}

TEST(EventLoop, PartingWaitsForTheHandlerThatOwnsItAndForItsThread) {
  auto owner = std::make_shared<Owner>();
  owner->loop = EventLoop::start("test").value();
  const UniqueFd event{::eventfd(1, EFD_NONBLOCK)};
  std::promise<void> has_it;
  std::promise<void> go_on;
  std::atomic<bool> gone{false};
  struct Mark {
    std::atomic<bool>& set;
    ~Mark() { set = true; }
  };
  std::atomic<bool> thread_ended{false};
  ASSERT_TRUE(owner->loop->watch(event.get(), [&, weak = std::weak_ptr{owner}] {
    auto alive = weak.lock();
    if (alive == nullptr) return;
    thread_local const Mark t_mark{thread_ended};
    has_it.set_value();
    go_on.get_future().wait();
    alive.reset();
    gone = true;
  }));
  has_it.get_future().wait();
  std::thread later;
  {
    const EventLoop::Parting parting{*owner->loop};
    owner.reset();
    later = std::thread{[&] {
      std::this_thread::sleep_for(std::chrono::milliseconds{20});
      go_on.set_value();
    }};
  }
  EXPECT_TRUE(gone);
  EXPECT_TRUE(thread_ended);
  later.join();
}

TEST(EventLoop, PartingWithALoopThatOthersHaveWaitsForWhatWasAsked) {
  auto loop = EventLoop::start("test").value();
  std::atomic<int> runs{0};
  {
    const EventLoop::Parting parting{*loop};
    for (int i = 0; i < 100; ++i) loop->run_soon([&] { ++runs; });
  }
  EXPECT_EQ(runs, 100);
  loop->stop();
  const EventLoop::Parting ended{*loop};  // of a loop that has ended: does not wait for ever
}

TEST(EventLoop, PartingOnItsOwnThreadDoesNotWait) {
  auto loop = EventLoop::start("test").value();
  std::promise<void> done;
  auto kept = std::make_shared<std::unique_ptr<EventLoop>>(std::move(loop));
  EventLoop& raw = **kept;
  raw.run_soon([kept, &done] {
    {
      const EventLoop::Parting parting{**kept};
      kept->reset();
    }
    done.set_value();
  });
  kept.reset();
  done.get_future().wait();
}

TEST(EventLoop, PeriodicTaskRuns) {
  auto loop = EventLoop::start("test").value();
  std::promise<void> twice;
  int calls = 0;
  loop->every(std::chrono::milliseconds{1}, [&] {
    if (++calls == 2) twice.set_value();
  });
  twice.get_future().wait();
}

TEST(EventLoop, WhatIsToRunSoonRunsOnceOnItsThreadAndIsLetGoOfThere) {
  auto loop = EventLoop::start("test").value();
  struct Held {
    Held(EventLoop& its_loop, std::promise<bool>& promise) : loop(its_loop), gone(promise) {}
    ~Held() { gone.set_value(loop.is_loop_thread()); }
    EventLoop& loop;
    std::promise<bool>& gone;
  };
  std::promise<bool> gone;
  std::atomic<int> runs = 0;
  auto held = std::make_shared<Held>(*loop, gone);
  loop->run_soon([held = std::move(held), &runs] { ++runs; });
  auto at = gone.get_future();
  ASSERT_EQ(at.wait_for(std::chrono::seconds{10}), std::future_status::ready);
  EXPECT_TRUE(at.get());
  EXPECT_EQ(runs, 1);
}

}  // namespace
}  // namespace remora
