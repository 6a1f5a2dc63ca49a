/// Other processes of the suite that use each kind of handle: those that fork, and those that have
/// closed their standard descriptors. They have the C++ client only.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "conformance_test.h"
#include "helpers.h"
#include "support/server.h"
#include "support/transport.h"

namespace remora::test {
namespace {

/// What a process has counted under load.
struct Load {
  std::atomic<bool> stop{false};
  std::atomic<std::uint64_t> wrong{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> interrupted{0};
};

/// Writes and reads at one place until it is stopped, and counts what is not as it was written.
void load_and_verify(const Region& region, Load& load) {
  std::vector<std::byte> bytes(4096);
  std::vector<std::byte> got(4096);
  for (std::uint8_t value = 1; !load.stop; ++value) {
    std::fill(bytes.begin(), bytes.end(), std::byte{value});
    if (!region.write(Block{1}, bytes) || !region.read(Block{1}, got))
      ++load.refused;
    else if (got != bytes)
      ++load.wrong;
  }
}

/// Reads at once by each face; how many answered otherwise than to a child.
int use_in_child(const Region& region, Queue& queue, CallbackQueue& callbacks) {
  const auto is_refused = [](const Status& status) {
    return !status && status.error().reason() == Reason::kForked;
  };
  std::vector<std::byte> bytes(4096);
  int wrong = 0;
  for (int i = 0; i < 3; ++i) {
    wrong += is_refused(region.read(Block{0}, bytes)) ? 0 : 1;
    wrong += is_refused(region.write(Block{1}, bytes)) ? 0 : 1;
    wrong += queue.read(Block{0}, Target{bytes}) ? 1 : 0;
    wrong += is_refused(queue.wait(1).status()) ? 0 : 1;
    wrong += is_refused(callbacks.read(Block{0}, Target{bytes}, [](Completion&) {})) ? 0 : 1;
  }
  return wrong;
}

}  // namespace

int fork_under_load(const HelperArguments& arguments) {
  static Load load;
  EngineOptions options = patient_options();
  options.handlers.on_interrupted = [](const SessionEvent&) { ++load.interrupted; };
  const Engine engine = Engine::open(options).value();
  const Region region = engine.open_region(arguments.text("uri"), Rights::kAll).value();
  Queue queue = region.queue().value();
  queue.event_fd().value();
  CallbackQueue callbacks = region.callback_queue().value();
  const AsyncQueue asynchronous = region.async_queue().value();
  SlotPool slots = engine.allocate_slots(4, 4096).value();
  const Slot slot = slots.take();
  const Lock lock = Lock::open(region, ByteOffset{0}).value();
  const Held held = lock.acquire(10s).value();
  // Not destroyed in a child, where its thread does not exist.
  static auto* const loader = new std::thread{[&] { load_and_verify(region, load); }};
  say("ready");
  for (std::uint64_t round = arguments.number("rounds"); round != 0; --round) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(120);
      return use_in_child(region, queue, callbacks);
    }
    int status = 0;
    if (child < 0 || ::waitpid(child, &status, 0) != child || status != 0) {
      std::fprintf(stderr, "a child ended with status %x\n", static_cast<unsigned>(status));
      ++load.refused;
    }
  }
  load.stop = true;
  loader->join();
  say("wrong " + std::to_string(load.wrong) + " refused " + std::to_string(load.refused) +
      " interrupted " + std::to_string(load.interrupted));
  return 0;
}

namespace {

/// What 0, 1 and 2 are now, those that are open: "1 socket:[4711] ".
std::string open_standard() {
  std::string found;
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(fd, F_GETFD) < 0) continue;
    std::error_code gone;
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    found += std::to_string(fd) + " " + std::filesystem::read_symlink(path, gone).string() + " ";
  }
  return found;
}

/// Server, session, region, and each kind of queue, with an operation on it.
std::string use_everything(TransportKind transport) {
  Server server = Server::start(server_config(transport)).value();
  const Engine engine = open_engine();
  const std::string uri = make_uri({listen_address(transport), server.port()}, transport, "made");
  const Session session = engine.connect(uri).value();
  RegionSpec spec;
  spec.name = "made";
  spec.size_bytes = 1U << 20U;
  spec.shm = transport == TransportKind::kShm;
  session.create_region(spec).value();
  const Region region = engine.open_region(uri, Rights::kAll).value();
  std::vector<std::byte> bytes(4096);
  Queue queue = region.queue().value();
  queue.event_fd().value();
  queue.read(ByteOffset{0}, Target{bytes});
  queue.submit().value();
  if (queue.wait(1).size() != 1) return "no completion";
  std::atomic<bool> called{false};
  const auto note = [&called](Completion&) { called = true; };
  CallbackQueue callbacks = region.callback_queue().value();
  callbacks.write(ByteOffset{0}, Source{bytes}, note).value();
  const Region fenced = transport == TransportKind::kShm ? region : region.fence().value();
  fenced.read(ByteOffset{0}, Target{bytes}).value();
  { const CallbackQueue ends{std::move(callbacks)}; }
  return called ? open_standard() : "no callback";
}

}  // namespace

int closed_standard(const HelperArguments& arguments) {
  TransportKind transport = TransportKind::kShm;
  for (const TransportKind kind : {TransportKind::kRdma, TransportKind::kTcp})
    if (arguments.text("transport") == to_string(kind)) transport = kind;
  constexpr int kAside = 100;  // where it keeps what it speaks to its parent with
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::dup3(fd, kAside + fd, O_CLOEXEC) < 0) return 1;
    ::close(fd);
  }
  std::string found;
  try {
    found = use_everything(transport);
  } catch (const std::exception& thrown) {
    found = thrown.what();
  }
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(kAside + fd, fd);
  say("found " + found);
  return 0;
}

}  // namespace remora::test
