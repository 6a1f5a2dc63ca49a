#include "helpers.h"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <poll.h>
#include <string>
#include <system_error>
#include <unistd.h>

#include <remora/remora.h>

namespace remora::test {
namespace {

Engine patient_engine() {
  EngineOptions options;
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

int write_late(const HelperArguments& arguments) {
  const Engine engine = patient_engine();
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
