#include "mirror_processes.h"

#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <unistd.h>
#include <utility>

#include <remora/volume/maintenance.h>
#include <remora/volume/open_store.h>
#include <remora/volume/volume.h>

#include "engine_member_opener.h"
#include "mirror_layout.h"
#include "mirror_writer.h"
#include "step_opener.h"

namespace remora::fault {
namespace {

using volume::detail::MirrorWriter;

TransportKind member_transport(const test::HelperArguments& arguments) {
  return arguments.text("transport") == "rdma" ? TransportKind::kRdma : TransportKind::kTcp;
}

/// What the parent has said so far. Lines are read by a thread, so that one is heard while the
/// program is at a step.
class Orders {
 public:
  explicit Orders(const test::HelperArguments& arguments)
      : hold_{arguments.text("action") == "hold"} {
    std::thread{[this] {
      while (const auto line = test::hear()) told(*line);
      told("finish");
    }}.detach();
  }
  Orders(const Orders&) = delete;
  Orders& operator=(const Orders&) = delete;

  /// At the step that the parent asked for.
  void at_step() {
    if (!hold_) {
      ::kill(::getpid(), SIGKILL);
      return;
    }
    test::say("at");
    await("go");
  }
  /// Waits until one of these came, and takes it.
  std::string await(const std::string& first, const std::string& second = {}) {
    std::unique_lock lock{mutex_};
    while (true) {
      for (auto line = lines_.begin(); line != lines_.end(); ++line)
        if (*line == first || *line == second) {
          const std::string taken = *line;
          lines_.erase(line);
          return taken;
        }
      came_.wait(lock);
    }
  }

 private:
  void told(const std::string& line) {
    const std::lock_guard lock{mutex_};
    lines_.push_back(line);
    came_.notify_all();
  }

  const bool hold_;
  std::mutex mutex_;
  std::condition_variable came_;
  std::vector<std::string> lines_;
};

MirrorLoadOptions load_options(const test::HelperArguments& arguments) {
  MirrorLoadOptions options;
  options.session = arguments.number("session", options.session);
  options.seed = arguments.number("seed", options.seed);
  options.threads = static_cast<std::uint32_t>(arguments.number("threads", options.threads));
  options.words_only = arguments.number("words_only") != 0;
  options.deadline = std::chrono::milliseconds{arguments.number("deadline_ms", 20'000)};
  options.pause = std::chrono::microseconds{arguments.number("pause_us")};
  return options;
}

int refused(const std::string& message) {
  std::string line = "refused " + message;
  for (char& each : line)
    if (each == '\n') each = ';';
  test::say(line);
  return 0;
}

/// By the classes below Volume, since these take another opener.
int write_by_steps(const test::HelperArguments& arguments, const Engine& engine,
                   const volume::Cluster& cluster, Orders& orders) {
  const auto layout = cluster.layout(kMirrorName);
  if (!layout) return refused(layout.error().message());
  const std::uint64_t group_bytes = layout->volume.group_bytes;
  volume::detail::MirrorOptions options;
  options.steal = arguments.number("steal") != 0;
  options.transport = member_transport(arguments);
  options.member_limit = std::chrono::milliseconds{
      arguments.number("member_limit_ms", static_cast<std::uint64_t>(kMemberLimit.count()))};
  StepOpener::Options steps;
  steps.data_offset = volume::detail::mirror_data_offset(group_bytes);
  steps.primary_region = layout->groups.front().members.front().region;
  auto hook = std::make_shared<StepHook>(arguments.text("step"), arguments.number("nth", 1),
                                         [&orders] { orders.at_step(); });
  auto inner = std::make_shared<volume::detail::EngineMemberOpener>(
      engine, cluster, options.transport, Rights::kReadWrite,
      volume::detail::mirror_region_bytes(group_bytes), options.member_limit);
  auto writer =
      MirrorWriter::claim(std::make_shared<StepOpener>(std::move(inner), steps, std::move(hook)),
                          cluster, kMirrorName, options);
  if (!writer) return refused(writer.error().message());
  test::say("claimed");
  LoadPage page = LoadPage::open(arguments.text("page"));
  MirrorLoad load{(*writer)->group(0), page, load_options(arguments)};
  orders.await("finish");
  test::say(load.finish().line());
  static_cast<void>((*writer)->release());
  return 0;
}

void rebuild(const test::HelperArguments& arguments, const Engine& engine,
             const volume::Cluster& cluster, const volume::Volume& disk) {
  volume::MaintenanceOptions options;
  options.bytes_per_second_max = arguments.number("rebuild");
  options.zones_at_once = 2;
  std::uint64_t zones = 0;
  options.progress = [&zones](const volume::MaintenanceProgress&) {
    test::say("zones " + std::to_string(++zones));
  };
  const auto report = volume::repair_claimed(cluster, engine, disk, options);
  std::string line = "repaired ";
  if (report) {
    line += std::to_string(report->left.size());
    for (const std::string& each : report->left) line += " " + each + ";";
  } else {
    line += "1 " + report.error().error.message() + " " + report.error().detail;
  }
  for (char& each : line)
    if (each == '\n') each = ';';
  test::say(line);
}

int write_and_rebuild(const test::HelperArguments& arguments, const Engine& engine,
                      const volume::Cluster& cluster, Orders& orders) {
  volume::VolumeOptions options;
  options.transport = member_transport(arguments);
  const auto disk = volume::Volume::open(engine, cluster, kMirrorName, options);
  if (!disk) return refused(disk.error().message());
  volume::ClaimOptions claim;
  claim.steal = arguments.number("steal") != 0;
  if (const Status claimed = disk->claim(claim); !claimed)
    return refused(claimed.error().message());
  test::say("claimed");
  const auto writer = volume::detail::mirror_writer_of(*disk);
  LoadPage page = LoadPage::open(arguments.text("page"));
  MirrorLoad load{writer->group(0), page, load_options(arguments)};
  while (orders.await("repair", "finish") == "repair") rebuild(arguments, engine, cluster, *disk);
  test::say(load.finish().line());
  static_cast<void>(disk->release());
  return 0;
}

}  // namespace

volume::Cluster mirror_cluster(const std::string& endpoints, std::chrono::nanoseconds limit) {
  volume::VolumeUri uri;
  uri.store = volume::StoreKind::kEtcd;
  std::istringstream all{endpoints};
  for (std::string one; std::getline(all, one, ',');) uri.endpoints.push_back(one);
  return volume::Cluster{volume::open_store(uri).value(), "lab", limit};
}

Engine mirror_engine() {
  EngineOptions options;
  options.client_name = "volume-fault";
  options.reconnect_for = std::chrono::seconds{0};
  options.operation_deadline = options.control_deadline = kMemberLimit;
  return Engine::open(options).value();
}

int mirror_writer(const test::HelperArguments& arguments) {
  // For the thread that reads lines: it ends with the process.
  Orders& orders = *new Orders{arguments};
  const Engine engine = mirror_engine();
  const volume::Cluster cluster = mirror_cluster(
      arguments.text("store"), std::chrono::milliseconds{arguments.number("store_limit_ms", 5000)});
  return arguments.number("rebuild") != 0 ? write_and_rebuild(arguments, engine, cluster, orders)
                                          : write_by_steps(arguments, engine, cluster, orders);
}

bool MirrorWriterProcess::expect(const std::string& word, std::string* rest) {
  const auto line = child_.read_line(std::chrono::minutes{2});
  if (rest != nullptr) *rest = line.value_or("no line");
  if (!line || line->rfind(word, 0) != 0) return false;
  if (rest != nullptr) *rest = line->size() > word.size() ? line->substr(word.size() + 1) : "";
  return true;
}

bool MirrorWriterProcess::claimed(std::string* why) {
  std::string rest;
  const bool there = expect("claimed", &rest);
  if (why != nullptr) *why = rest;
  return there;
}

bool MirrorWriterProcess::at_step() {
  while (const auto line = child_.read_line(std::chrono::minutes{2}))
    if (*line == "at") return true;
  return false;
}

std::optional<MirrorLoadReport> MirrorWriterProcess::finish() {
  child_.write_line("finish");
  while (const auto line = child_.read_line(std::chrono::minutes{2}))
    if (auto report = MirrorLoadReport::of_line(*line)) {
      if (wait() != 0) return std::nullopt;
      return report;
    }
  return std::nullopt;
}

}  // namespace remora::fault
