// Operations in a loop, which callgrind counts: path_cost PATH FACE N. The remote side is memory of
// this process, or a provider that completes any request in 10 instructions.

#include <array>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <remora/remora.h>

#include "../verbs/fake_verbs.h"
#include "client/engine/engine_core.h"
#include "client/region/region_grant.h"
#include "client/session/session_core.h"
#include "fake_server.h"
#include "support/counted.h"
#include "transport/rdma/lane.h"

namespace {

namespace detail = remora::detail;
namespace test = remora::test;
namespace transport = remora::transport;
namespace verbs = remora::verbs;
using remora::Block;
using remora::ByteOffset;
using remora::Completion;
using remora::Queue;
using remora::Region;
using remora::RegisteredMemory;
using remora::Result;
using remora::Slot;
using remora::SlotPool;
using remora::Target;

// The requests that are posted to the only queue pair and not polled.
struct Hardware {
  std::uint64_t last_id = 0;
  bool pending = false;
} g_hardware;

int post_send(ibv_qp* /*pair*/, ibv_send_wr* chain, ibv_send_wr** /*bad*/) {
  while (chain->next != nullptr) chain = chain->next;
  g_hardware = {.last_id = chain->wr_id, .pending = true};
  return 0;
}

int poll_cq(ibv_cq* /*queue*/, int /*count*/, ibv_wc* completions) {
  if (!g_hardware.pending) return 0;
  g_hardware.pending = false;
  completions->wr_id = g_hardware.last_id;
  completions->status = IBV_WC_SUCCESS;
  return 1;
}

/// What a lane is made of. The lane owns it: the session's end may be in another thread than
/// main()'s.
struct FakeDevice {
  test::FakeVerbs fake;
  std::optional<test::FakeRig> rig;
  std::optional<verbs::QueuePair<verbs::Rc>> pair;

  FakeDevice() {
    fake.table.post_send = &post_send;
    fake.table.poll_cq = &poll_cq;
    rig.emplace(verbs::devices(fake.table).value().begin()->open().value());
    pair.emplace(rig->connected());
  }
};

struct FakeDomain final : transport::MemoryDomain {
  Result<std::unique_ptr<transport::Registration>> register_bytes(std::span<std::byte>) override {
    struct Fixed final : transport::Registration {
      [[nodiscard]] std::uint32_t local_key() const noexcept override { return 7; }
    };
    return std::unique_ptr<transport::Registration>{std::make_unique<Fixed>()};
  }
};

/// Neighbours in a batch are not neighbours in the region: else they would be joined to one
/// request.
Block scattered(std::uint64_t sent) { return Block{(sent * 37) & 63U}; }

/// `times` is a multiple of 32.
void run_batches(const Region& region, SlotPool& slots, std::uint64_t times) {
  Queue queue = region.queue({.depth = 32}).value();
  std::array<Slot, 32> taken;
  const test::Counted counted;
  for (std::uint64_t sent = 0, done = 0; done < times;) {
    if (slots.take(taken) != taken.size()) std::abort();
    for (Slot& slot : taken) queue.read(scattered(sent++), std::move(slot));
    queue.submit().value();
    for (Completion& completion : queue.wait(32)) {
      if (!completion.ok()) std::abort();
      ++done;
    }
  }
}

/// Reads into registered memory of the application, at offsets that it keeps: the loop is as short
/// as possible, so almost all counted instructions are the engine's.
void run_registered(const Region& region, const RegisteredMemory& memory, std::uint64_t times) {
  Queue queue = region.queue({.depth = 32}).value();
  std::vector<Target> targets;
  for (std::size_t i = 0; i < 32; ++i) targets.emplace_back(memory, 4096 * i, 4096);
  const test::Counted counted;
  for (std::uint64_t done = 0; done < times;) {
    for (const Target& target : targets) queue.read(ByteOffset{0}, target);
    queue.submit().value();
    for (const Completion& completion : queue.wait(32)) {
      if (!completion.ok()) std::abort();
      ++done;
    }
  }
}

void run_alone(const Region& region, Slot& slot, std::uint64_t times) {
  const test::Counted counted;
  for (std::uint64_t i = 0; i < times; ++i)
    if (!region.read(Block{i & 63U}, slot)) std::abort();
}

/// Calls of `count` pairs of 64 B, into memory that the application has registered: no queue, no
/// slots. Neighbours in the call are no neighbours in the region.
void run_many(const Region& region, const RegisteredMemory& memory, std::size_t count, bool writing,
              std::uint64_t times) {
  std::vector<remora::ReadPair> reads;
  std::vector<remora::WritePair> writes;
  for (std::size_t i = 0; i < count; ++i) {
    const ByteOffset at{scattered(i).index * 64};
    reads.push_back({at, Target{memory, 64 * i, 64}});
    writes.push_back({at, remora::Source{memory, 64 * i, 64}});
  }
  const auto call = [&] {
    if (!(writing ? region.write_many(writes) : region.read_many(reads))) std::abort();
  };
  call();  // the first one makes room for its pairs
  const test::Counted counted;
  for (std::uint64_t done = 0; done < times; done += count) call();
}

/// The loop that run_many() is compared with over mapped memory: the same copies by hand.
void run_memcpy(std::span<std::byte> remote, std::span<std::byte> own, std::size_t count,
                std::uint64_t times) {
  std::vector<std::size_t> offsets;
  for (std::size_t i = 0; i < count; ++i) offsets.push_back(scattered(i).index * 64);
  std::size_t length = 64;
  const test::Counted counted;
  for (std::uint64_t done = 0; done < times; done += count) {
    // The compiler knows neither the length nor that nothing is read afterwards.
    asm volatile("" : "+r"(length) : : "memory");
    for (std::size_t i = 0; i < count; ++i)
      std::memcpy(own.data() + 64 * i, remote.data() + offsets[i], length);
  }
}

/// One queue in batches of 32 over `count` regions of a session.
void run_over_regions(const std::shared_ptr<detail::SessionCore>& session,
                      std::span<std::byte> memory, std::size_t count, std::uint64_t times) {
  std::vector<Region> regions;
  for (std::uint64_t i = 0; i < count; ++i)
    regions.emplace_back(std::make_shared<detail::RegionGrant>(
        session, remora::RegionInfo{.name = "r", .size_bytes = memory.size(), .block_bytes = 64},
        remora::Rights::kAll, i + 1,
        transport::AttachedGrant{
            .extents = {{.start_bytes = 0,
                         .length_bytes = memory.size(),
                         .remote_address = reinterpret_cast<std::uintptr_t>(memory.data()),
                         .remote_key = 1}},
            .hold = nullptr},
        "fake"));
  {
    std::array<std::byte, 64> into{};
    Queue queue = regions[0].queue({.depth = 32}).value();
    for (const Region& region : regions) queue.select(region).value();  // allocates the first time
    const test::Counted counted;
    for (std::uint64_t sent = 0; sent < times;) {
      for (; sent < times && !queue.full(); ++sent) {
        queue.select(regions[sent % count]).value();
        queue.read(Block{sent & 63U}, into);
      }
      queue.submit().value();
      if (queue.wait(32).empty()) std::abort();
    }
  }
  session->fail(remora::Reason::kNone);  // no server takes the grants back
}

/// One queue in batches of 32 over a region of `count` extents, all of which are the same memory.
void run_over_extents(const std::shared_ptr<detail::SessionCore>& session,
                      std::span<std::byte> memory, std::size_t count, std::uint64_t times) {
  transport::AttachedGrant grant{};
  for (std::uint64_t i = 0; i < count; ++i)
    grant.extents.push_back({.start_bytes = i * memory.size(),
                             .length_bytes = memory.size(),
                             .remote_address = reinterpret_cast<std::uintptr_t>(memory.data()),
                             .remote_key = static_cast<std::uint32_t>(i + 1)});
  const Region region{std::make_shared<detail::RegionGrant>(
      session,
      remora::RegionInfo{.name = "r", .size_bytes = memory.size() * count, .block_bytes = 4096},
      remora::Rights::kAll, 1, std::move(grant), "fake")};
  {
    std::array<std::byte, 64> into{};
    Queue queue = region.queue({.depth = 32}).value();
    const std::size_t mask = count - 1;  // `count` is a power of two
    const test::Counted counted;
    for (std::uint64_t sent = 0; sent < times;) {
      for (; sent < times && !queue.full(); ++sent) queue.read(Block{(sent * 37) & mask}, into);
      queue.submit().value();
      if (queue.wait(32).empty()) std::abort();
    }
  }
  session->fail(remora::Reason::kNone);  // no server takes the grant back
}

/// Synchronous reads over `count` sessions in turn.
void run_over_sessions(const std::shared_ptr<detail::EngineCore>& engine,
                       std::span<std::byte> memory, std::size_t count, std::uint64_t times) {
  std::vector<Region> regions;
  for (std::size_t i = 0; i < count; ++i) {
    transport::FakeServerEndpoint::Offer offer{};
    offer.memory = memory;
    offer.direct = transport::DirectPath{};
    regions.push_back(transport::open_fake_region(engine, std::move(offer)));
  }
  std::array<std::byte, 64> into{};
  const test::Counted counted;
  for (std::uint64_t i = 0; i < times; ++i)
    if (!regions[i % count].read(Block{i & 63U}, into)) std::abort();
}

/// The faces "regions:N", "extents:N" and "sessions:N", over memory of this process. False: another
/// face.
bool run_over_many(const std::shared_ptr<detail::EngineCore>& engine, std::span<std::byte> memory,
                   const std::string& face, std::uint64_t times) {
  const std::size_t colon = face.find(':');
  if (colon == std::string::npos) return false;
  const std::size_t count = std::stoul(face.substr(colon + 1));
  transport::FakeServerEndpoint::Offer offer{};
  offer.memory = memory;
  offer.direct = transport::DirectPath{};
  if (face.starts_with("regions"))
    run_over_regions(transport::start_fake_session(engine, std::move(offer)), memory, count, times);
  else if (face.starts_with("extents"))
    run_over_extents(transport::start_fake_session(engine, std::move(offer)), memory, count, times);
  else
    run_over_sessions(engine, memory, count, times);
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return EXIT_FAILURE;
  const bool direct = std::string_view{argv[1]} == "direct";
  const bool tokens = std::string_view{argv[1]} == "tokens";
  const std::string face{argv[2]};
  const std::uint64_t times = std::strtoull(argv[3], nullptr, 10);

  std::vector<std::byte> memory(4096);
  const auto engine = detail::EngineCore::create({}).value();
  if (run_over_many(engine, memory, face, times)) return EXIT_SUCCESS;
  transport::FakeServerEndpoint::Offer offer{};
  offer.memory = memory;
  if (direct) {
    offer.direct = transport::DirectPath{};
  } else {
    const auto device = std::make_shared<FakeDevice>();
    offer.domain = std::make_shared<FakeDomain>();
    const transport::rdma::LanePair ends{
        .pair = &*device->pair, .to_error = [] {}, .destroy = [device] {}};
    if (tokens)
      offer.lane_of_keys = [device, ends](std::shared_ptr<transport::RkeyTable> keys) {
        return transport::rdma::make_token_lane(ends, device->rig->queue, 1U << 20U, 64,
                                                std::move(keys), 0)
            .value();
      };
    else
      offer.lane = transport::rdma::make_lane(ends, device->rig->queue, 1U << 20U, 64).value();
  }
  {
    const Region region = transport::open_fake_region(engine, std::move(offer));
    SlotPool slots{engine->memory().allocate_slots(64, 64).value()};
    Slot slot = slots.take();
    std::vector<std::byte> own(std::size_t{32} * 4096);
    if (face == "batched")
      run_batches(region, slots, times);
    else if (face == "registered")
      run_registered(region, RegisteredMemory{engine->memory().register_memory(own).value()},
                     times);
    else if (face == "read_many_32" || face == "write_many_32")
      run_many(region, RegisteredMemory{engine->memory().register_memory(own).value()}, 32,
               face == "write_many_32", times);
    else if (face == "read_many_1024")
      run_many(region, RegisteredMemory{engine->memory().register_memory(own).value()}, 1024, false,
               times);
    else if (face == "memcpy")
      run_memcpy(memory, own, 32, times);
    else
      run_alone(region, slot, times);
  }
  std::cout << "recorded " << engine->registry().sum("remora_client_operations_total").value()
            << '\n';
  return EXIT_SUCCESS;
}
