// Operations in a loop, which callgrind counts: volume_cost PATH FACE N. The servers' memory is
// memory of this process. PATH: "region"; "volume" of one group on each of three servers;
// "volume_rows" of two groups on each, so that a lane changes its region. FACE: "queue" for reads
// in batches of 32, "alone" for synchronous ones; "queue_write" and "alone_write" for writes.

#include <array>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <remora/remora.h>

#include "../../engine/fake_server.h"
#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "support/counted.h"
#include "volume_core.h"
#include "volume_queue_core.h"

namespace {

using remora::ByteOffset;
using remora::Region;
using remora::volume::Volume;
namespace transport = remora::transport;

constexpr std::uint64_t kGroupBytes = 64 * 1024;
constexpr std::size_t kBytes = 64;

/// Neighbours in a batch are in different groups, and no neighbours in one.
std::uint64_t scattered(std::uint64_t sent, std::uint64_t size) { return sent * 37 * 4096 % size; }

template <bool kWrites, typename Store>
void run_queue(const Store& store, std::uint64_t size, std::span<std::byte> bytes,
               std::uint64_t times) {
  auto queue = store.queue({.depth = 32}).value();
  const remora::test::Counted counted;
  for (std::uint64_t sent = 0, done = 0; done < times;) {
    for (; sent < times && !queue.full(); ++sent)
      if constexpr (kWrites)
        queue.write(ByteOffset{scattered(sent, size)}, bytes, sent);
      else
        queue.read(ByteOffset{scattered(sent, size)}, bytes, sent);
    queue.submit().value();
    for (const auto& completion : queue.wait(32)) {
      if (!completion.ok()) std::abort();
      done += completion.tag() < times ? 1U : 0U;
    }
  }
}

template <bool kWrites, typename Store>
void run_alone(const Store& store, std::uint64_t size, std::span<std::byte> bytes,
               std::uint64_t times) {
  const remora::test::Counted counted;
  for (std::uint64_t i = 0; i < times; ++i) {
    const ByteOffset at{scattered(i, size)};
    if constexpr (kWrites) {
      if (!store.write(at, bytes)) std::abort();
    } else {
      if (!store.read(at, bytes)) std::abort();
    }
  }
}

template <typename Store>
void run(std::string_view face, const Store& store, std::uint64_t size, std::uint64_t times) {
  std::array<std::byte, kBytes> bytes{};
  if (face == "queue")
    run_queue<false>(store, size, bytes, times);
  else if (face == "queue_write")
    run_queue<true>(store, size, bytes, times);
  else if (face == "alone")
    run_alone<false>(store, size, bytes, times);
  else if (face == "alone_write")
    run_alone<true>(store, size, bytes, times);
  else
    std::abort();
}

/// `regions` regions on each of `sessions` servers.
std::vector<Region> open_regions(const std::shared_ptr<remora::detail::EngineCore>& engine,
                                 std::span<std::byte> memory, std::size_t sessions,
                                 std::size_t regions) {
  std::vector<Region> made;
  for (std::size_t s = 0; s < sessions; ++s) {
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory;
    offer.direct = transport::DirectPath{};
    const auto session = transport::start_fake_session(engine, std::move(offer));
    for (std::size_t r = 0; r < regions; ++r)
      made.emplace_back(std::make_shared<remora::detail::RegionGrant>(
          session, remora::RegionInfo{.name = "r", .size_bytes = memory.size(), .block_bytes = 64},
          remora::Rights::kAll, r + 1,
          transport::AttachedGrant{
              .extents = {{.start_bytes = 0,
                           .length_bytes = memory.size(),
                           .remote_address = reinterpret_cast<std::uintptr_t>(memory.data()),
                           .remote_key = 1}},
              .hold = nullptr},
          "fake"));
  }
  return made;
}

Volume make_volume(std::vector<Region> regions, std::size_t sessions) {
  remora::volume::VolumeRecord record;
  record.name = "v";
  record.block_bytes = record.stripe_bytes = 4096;
  record.group_bytes = kGroupBytes;
  record.width = 3;
  record.size_bytes = regions.size() * kGroupBytes;
  std::vector<remora::volume::detail::OpenMember> members(regions.size());
  for (std::size_t i = 0; i < members.size(); ++i)
    members[i].server = std::to_string(i / (regions.size() / sessions));
  return Volume{std::make_shared<remora::volume::detail::VolumeCore>(
      record, remora::volume::detail::StripeMap::of(record).value(), std::move(regions),
      std::move(members), remora::volume::VolumeOptions{})};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return EXIT_FAILURE;
  const std::string_view path{argv[1]};
  const std::string_view face{argv[2]};
  const std::uint64_t times = std::strtoull(argv[3], nullptr, 10);
  std::vector<std::byte> memory(kGroupBytes);
  const auto engine = remora::detail::EngineCore::create({}).value();
  constexpr std::size_t kSessions = 3;
  const std::size_t rows = path == "volume_rows" ? 2 : 1;
  const std::vector<Region> regions = open_regions(engine, memory, kSessions, rows);
  if (path == "region") {
    run(face, regions[0], kGroupBytes, times);
  } else {
    const Volume volume = make_volume(regions, kSessions);
    run(face, volume, volume.size_bytes(), times);
  }
  std::_Exit(EXIT_SUCCESS);  // no server takes the grants back
}
