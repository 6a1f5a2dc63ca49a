#include "helpers.h"

#include <atomic>
#include <chrono>
#include <cstdint>
#include <filesystem>
#include <poll.h>
#include <string>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <vector>

#include <remora/remora.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

/// Of one connection: what becomes of it is what its user sees.
Engine patient_engine() {
  EngineOptions options;
  options.reconnect_for = std::chrono::seconds{0};
  options.control_deadline = std::chrono::seconds{30};
  options.operation_deadline = std::chrono::seconds{30};
  return Engine::open(options).value();
}

/// Adds 1 by compare-and-swap, as often as it takes.
void swap_in_next(const Region& region, ByteOffset at) {
  std::uint64_t expected = 0;
  for (;;) {
    const std::uint64_t seen = region.compare_swap(at, expected, expected + 1).value();
    if (seen == expected) return;
    expected = seen;
  }
}

bool parent_spoke() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  return ::poll(&input, 1, 0) != 0;
}

}  // namespace

int contend(const HelperArguments& arguments) {
  const std::uint64_t count = arguments.number("count");
  const Engine engine = patient_engine();
  const Region region = engine.open_region(arguments.text("uri"), Rights::kAtomic).value();
  say("ready");
  if (!hear()) return 1;
  std::uint64_t sum = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    sum += region.fetch_add(ByteOffset{0}, 1).value();
    swap_in_next(region, ByteOffset{64});
  }
  say(std::to_string(sum));
  return 0;
}

int hold(const HelperArguments& arguments) {
  const Engine engine = patient_engine();
  const Region region = engine.open_region(arguments.text("uri"), Rights::kAll).value();
  const ByteOffset at{arguments.number("offset")};
  say("ready");
  while (!parent_spoke()) {
    const auto added = region.fetch_add(at, 1);
    if (added.ok()) continue;
    say("ended " + std::string{to_string(added.error().code())});
    return 0;
  }
  say("ended ok");
  return 0;
}

int endure(const HelperArguments& arguments) {
  std::atomic<std::uint64_t> resumed{0};
  std::atomic<Reason> ended{Reason::kNone};
  EngineOptions options;
  options.operation_deadline = options.control_deadline = std::chrono::seconds{30};
  const bool tells = arguments.text("tell") == "resumed";
  options.handlers.on_resumed = [&](const SessionEvent& /*event*/) {
    ++resumed;
    if (tells) say("resumed");
  };
  options.handlers.on_lost = [&](const SessionEvent& event) { ended = event.reason; };
  const Engine engine = Engine::open(options).value();
  const Region region = engine.open_region(arguments.text("uri"), Rights::kAll).value();
  const ByteOffset at{arguments.number("offset")};
  std::uint64_t sure = 0;
  std::uint64_t uncertain = 0;
  std::uint64_t lost = 0;
  say("ready");
  while (!parent_spoke() && ended.load() == Reason::kNone) {
    const auto added = region.fetch_add(at, 1);
    if (added.ok()) {
      ++sure;
      continue;
    }
    ++(added.error().code() == Code::kIndeterminate ? uncertain : lost);
    if (added.error().code() == Code::kIndeterminate)
      (void)region.settled(std::chrono::seconds{30});
    else
      std::this_thread::sleep_for(std::chrono::milliseconds{5});
  }
  const std::string text =
      ended.load() == Reason::kNone ? "no" : std::string{to_string(ended.load())};
  say("ok " + std::to_string(sure) + " uncertain " + std::to_string(uncertain) + " lost " +
      std::to_string(lost) + " resumed " + std::to_string(resumed.load()) + " ended " + text);
  return 0;
}

/// `comes_back=1`: its session is kept when it goes without a word.
int write_late(const HelperArguments& arguments) {
  const Engine engine = arguments.number("comes_back") != 0 ? open_engine() : patient_engine();
  const Region region = engine.open_region(arguments.text("uri"), Rights::kAll).value();
  const std::vector<std::byte> bytes(region.block_bytes(), std::byte{0xff});
  say("ready");
  if (!hear()) return 1;
  const Status written = region.write(Block{0}, bytes);
  say(written.ok() ? "ok"
                   : std::string{to_string(written.error().code())} + ": " +
                         std::string{to_string(written.error().reason())});
  return 0;
}

int inherited(const HelperArguments& /*arguments*/) {
  int found = 0;
  std::error_code failed;
  for (std::filesystem::directory_iterator it{"/proc/self/fd", failed}, end; !failed && it != end;
       it.increment(failed)) {
    std::error_code gone;
    const std::string link = std::filesystem::read_symlink(it->path(), gone).string();
    for (const char* kind : {"memfd:", "/dev/infiniband", "socket:", "anon_inode:"})
      if (link.find(kind) != std::string::npos &&
          std::stoi(it->path().filename().string()) > STDERR_FILENO)
        ++found;
  }
  say(std::to_string(found));
  return 0;
}

}  // namespace remora::test
