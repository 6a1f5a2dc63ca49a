/// One event loop and no other thread of the application's: a region is opened, used and, when the
/// server has new memory, opened again and filled anew. No call of the loop's thread blocks.
///
///   event_loop remora://localhost/demo [SECONDS]

#include <array>
#include <cstdlib>
#include <iostream>
#include <poll.h>

#include <remora/remora.h>

using remora::Region;
using remora::Status;
using remora::Task;

/// The condition that the application keeps in the region: here, the first word is not 0.
Task<Status> fill(Region region, remora::Resume resume) {
  auto queue = region.async_queue({.depth = 1}, resume);
  if (!queue) co_return queue.error();
  const auto before = co_await queue->async().compare_swap(remora::ByteOffset{0}, 0, 1);
  co_return before ? Status{} : Status{before.error()};
}

/// Counts in the region for as long as `on`; whenever its memory is new, fills it first.
Task<Status> work(const remora::Engine& engine, std::string uri, remora::ControlOptions options,
                  const bool& on) {
  auto opened = co_await engine.async_open_region(uri, remora::Rights::kAll, options);
  if (!opened) co_return opened.error();
  Region region = *opened;
  if (auto filled = co_await fill(region, options.resume); !filled) co_return filled;
  std::cout << "counting" << std::endl;
  while (on) {
    auto queue = region.async_queue({.depth = 1}, options.resume);
    Status counted = queue ? Status{} : Status{queue.error()};
    while (on && counted) {
      const auto before = co_await queue->async().fetch_add(remora::ByteOffset{8}, 1);
      if (!before) counted = before.error();
    }
    if (!on) break;
    std::cout << counted.error().message() << "\nopening it again" << std::endl;
    auto again = co_await region.async_reopen(options);
    if (!again) co_return again.error();
    region = again->region;
    if (again->same_contents) continue;
    std::cout << "its memory is new: zeros" << std::endl;
    if (auto filled = co_await fill(region, options.resume); !filled) co_return filled;
  }
  co_return Status{};
}

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: event_loop URI [SECONDS]\n", 2;
  const std::chrono::duration<double> time{argc > 2 ? std::atof(argv[2]) : 1.0};
  remora::EngineOptions options;
  options.connect_for = std::chrono::seconds{20};  // a server that is being started again
  auto ends = remora::ResumptionQueue::create().value();
  auto engine = remora::Engine::open(options).value();
  bool on = true;
  const Task<Status> task = work(engine, argv[1], {.resume = ends.resume()}, on);
  task.start();
  const auto until = std::chrono::steady_clock::now() + time;
  while (!task.done()) {  // the application's loop, with its other descriptors
    std::array<pollfd, 1> events{{{.fd = ends.event_fd(), .events = POLLIN, .revents = 0}}};
    ::poll(events.data(), events.size(), 100);
    (void)ends.progress();
    on = std::chrono::steady_clock::now() < until;
  }
  task.result().value();
  std::cout << "ended in order\n";
  return 0;
} catch (const std::exception& error) {  // from value(), the only throw in the library
  return std::cerr << error.what() << '\n', 1;
}
