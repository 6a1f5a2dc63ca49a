// Parents and children in every order: destroyed, moved out of and moved into. The fake notes what
// a device would refuse, and what would hang.

#include <algorithm>
#include <numeric>
#include <optional>
#include <random>
#include <sstream>

#include "fake_verbs.h"
#include "support/forked.h"

namespace remora::test {
namespace {

using verbs::Access;
using verbs::Rc;
using verbs::Uc;
using verbs::Ud;

/// One of everything, each made from the others.
struct Everything {
  enum Member : std::size_t {
    kList,
    kEntry,
    kDevice,
    kDomain,
    kChannel,
    kQueue,
    kExtended,
    kPoll,
    kShared,
    kMemory,
    kPreparedRc,
    kPreparedUc,
    kPreparedUd,
    kRc,
    kUc,
    kUd,
    kWindow,
    kPeer,
    kEvents,
    kCache,
    kLease,
    kMembers,
  };
  static constexpr std::array<const char*, kMembers> kNames{
      "list", "entry",  "device", "domain",  "channel", "queue",   "extended",
      "poll", "shared", "memory", "prep-rc", "prep-uc", "prep-ud", "rc",
      "uc",   "ud",     "window", "peer",    "events",  "cache",   "lease"};

  explicit Everything(FakeVerbs& fake) {
    list = verbs::devices(fake.provider()).value();
    entry = list->find("fake0").value();
    device = entry->open().value();
    domain = device->allocate_domain().value();
    channel = device->create_completion_channel().value();
    queue = device->create_completion_queue({.channel = *channel}).value();
    extended =
        device->create_completion_queue({.fields = verbs::CompletionFields::kStandard}).value();
    fake.completions.assign(1, ibv_wc{});
    poll = extended->start_poll().value();
    shared = verbs::SharedReceiveQueue::create(*domain).value();
    memory = verbs::MemoryRegion::register_owned(*domain, std::vector<std::byte>(4096),
                                                 Access::kLocalWrite | Access::kWindowBind)
                 .value();
    make_pairs();
    verbs::AddressVector path;
    path.route = verbs::GlobalRoute{};
    peer.emplace(verbs::AddressHandle::create(*domain, path).value(), 1, 2);
    events = verbs::AsyncEvents::open(*device).value();
    cache =
        verbs::MrCache::create(*domain, {.invalidation = verbs::Invalidation::kExplicit}).value();
    lease = cache->acquire(cached, Access::kLocalWrite).value();
  }

  std::optional<verbs::DeviceList> list;
  std::optional<verbs::DeviceEntry> entry;
  std::optional<verbs::Device> device;
  std::optional<verbs::ProtectionDomain> domain;
  std::optional<verbs::CompletionChannel> channel;
  std::optional<verbs::CompletionQueue> queue;
  std::optional<verbs::CompletionQueue> extended;
  std::optional<verbs::ExtendedPoll> poll;
  std::optional<verbs::SharedReceiveQueue> shared;
  std::optional<verbs::MemoryRegion> memory;
  std::optional<verbs::PreparedQueuePair<Rc>> prepared_rc;
  std::optional<verbs::PreparedQueuePair<Uc>> prepared_uc;
  std::optional<verbs::PreparedQueuePair<Ud>> prepared_ud;
  std::optional<verbs::QueuePair<Rc>> rc;
  std::optional<verbs::QueuePair<Uc>> uc;
  std::optional<verbs::QueuePair<Ud>> ud;
  std::optional<verbs::MemoryWindow> window;
  std::optional<verbs::DatagramPeer> peer;
  std::optional<verbs::AsyncEvents> events;
  std::optional<verbs::MrCache> cache;
  std::optional<verbs::MrLease> lease;
  std::vector<std::byte> cached = std::vector<std::byte>(4096);

 private:
  void make_pairs() {
    const auto builder = [&]<typename T>(T) {
      verbs::QueuePairBuilder<T> made{*domain, *queue, *extended};
      made.shared_receive_queue(*shared);
      return made;
    };
    prepared_rc = builder(Rc{}).build().value();
    prepared_uc = builder(Uc{}).build().value();
    prepared_ud = builder(Ud{}).build().value();
    rc = builder(Rc{}).create().value();
    uc = builder(Uc{}).create().value();
    ud = builder(Ud{}).create().value();
    window = rc->allocate_window().value();
    auto batch = rc->start();
    batch.bind_window(1, *window, *memory, 0, 64, Access::kRemoteRead);
    batch.post().value();
  }
};

/// Calls `visit` with one member of `a` and the same member of `b`.
template <typename Visit>
void visit_member(Everything& a, Everything& b, std::size_t member, Visit&& visit) {
  using enum Everything::Member;
  switch (member) {
    case kList: return visit(a.list, b.list);
    case kEntry: return visit(a.entry, b.entry);
    case kDevice: return visit(a.device, b.device);
    case kDomain: return visit(a.domain, b.domain);
    case kChannel: return visit(a.channel, b.channel);
    case kQueue: return visit(a.queue, b.queue);
    case kExtended: return visit(a.extended, b.extended);
    case kPoll: return visit(a.poll, b.poll);
    case kShared: return visit(a.shared, b.shared);
    case kMemory: return visit(a.memory, b.memory);
    case kPreparedRc: return visit(a.prepared_rc, b.prepared_rc);
    case kPreparedUc: return visit(a.prepared_uc, b.prepared_uc);
    case kPreparedUd: return visit(a.prepared_ud, b.prepared_ud);
    case kRc: return visit(a.rc, b.rc);
    case kUc: return visit(a.uc, b.uc);
    case kUd: return visit(a.ud, b.ud);
    case kWindow: return visit(a.window, b.window);
    case kPeer: return visit(a.peer, b.peer);
    case kEvents: return visit(a.events, b.events);
    case kCache: return visit(a.cache, b.cache);
    case kLease: return visit(a.lease, b.lease);
    default: FAIL() << "no such member";
  }
}

// That a member still works: something is asked of it that needs its parents.
bool works(const verbs::DeviceList& list) { return list.find("fake0").ok(); }
bool works(const verbs::DeviceEntry& entry) { return entry.name() == "fake0" && entry.open().ok(); }
bool works(const verbs::Device& device) { return device.query_port(1).ok(); }
bool works(const verbs::ProtectionDomain& domain) {
  return verbs::AddressHandle::create(domain, {}).ok();
}
bool works(const verbs::CompletionChannel& channel) { return channel.next_event().ok(); }
bool works(const verbs::CompletionQueue& queue) {
  std::array<verbs::Completion, 1> storage;
  return queue.poll(storage).ok();
}
bool works(verbs::ExtendedPoll& poll) { return (*poll.begin()).ok(); }
bool works(const verbs::SharedReceiveQueue& shared) {
  return shared.post_receive(1, verbs::LocalSlice{}).ok();
}
bool works(const verbs::MemoryRegion& memory) {
  return verbs::MemoryRegion::register_at(memory.domain(), memory.bytes(), memory.address(),
                                          Access::kNone)
      .ok();
}
template <typename T>
bool works(const verbs::QueuePair<T>& pair) {
  return pair.query_state().ok() && works(pair.send_queue()) && works(pair.shared_receive_queue());
}
template <typename T>
bool works(verbs::PreparedQueuePair<T>& prepared) {
  return works(prepared.pair()) && prepared.endpoint().qp_number == prepared.pair().number();
}
bool works(const verbs::MemoryWindow& window) { return window.freed() || window.rkey() != 0; }
bool works(const verbs::DatagramPeer& peer) { return peer.handle().raw()->pd != nullptr; }
bool works(verbs::AsyncEvents& events) { return events.next_event().ok(); }
bool works(verbs::MrCache& cache) {
  static std::vector<std::byte> other(4096);
  return cache.acquire(other, Access::kLocalWrite).ok();
}
bool works(const verbs::MrLease& lease) { return lease.slice(0, 64).valid(); }

enum class TeardownStep : std::uint8_t { kDestroy, kMoveConstruct, kMoveAssign };
constexpr std::array kTeardownSteps{TeardownStep::kDestroy, TeardownStep::kMoveConstruct,
                                    TeardownStep::kMoveAssign};
const char* name_of(TeardownStep step) {
  if (step == TeardownStep::kDestroy) return "destroyed";
  return step == TeardownStep::kMoveConstruct ? "moved out of" : "moved into";
}

/// One step of `one`; `other` is what may be moved into it. What was moved out of goes before what
/// was made of it, or stays for later.
template <typename Optional>
void take_step(TeardownStep step, bool moved_from_stays, Optional& one, Optional& other) {
  if (step == TeardownStep::kDestroy) return one.reset();
  if (step == TeardownStep::kMoveAssign) {
    *one = std::move(*other);
    EXPECT_TRUE(works(*one));
    return;
  }
  Optional taken{std::move(*one)};
  if (!moved_from_stays) one.reset();
  EXPECT_TRUE(works(*taken));
}

std::string g_failed_teardown;

class TeardownOrder : public FakeTest {
 protected:
  void SetUp() override {
    g_failed_teardown.clear();
    before_ = verbs::set_teardown_failure_handler(
        [](const Error& error) noexcept { g_failed_teardown = error.operation(); });
  }
  void TearDown() override {
    verbs::set_teardown_failure_handler(before_);
    EXPECT_EQ(g_failed_teardown, "");
    EXPECT_EQ(fake_.open_polls, 0);
    FakeTest::TearDown();
  }
  verbs::TeardownFailureHandler before_ = nullptr;
};

struct TeardownFamily {
  Everything::Member parent;
  Everything::Member child;
};
// What each is made from, and what stands above that.
constexpr auto teardown_families() {
  using enum Everything::Member;
  return std::to_array<TeardownFamily>({
      {kList, kEntry},
      {kList, kDevice},
      {kEntry, kDevice},
      {kDevice, kDomain},
      {kDevice, kChannel},
      {kDevice, kQueue},
      {kDevice, kExtended},
      {kDevice, kPoll},
      {kDevice, kShared},
      {kDevice, kMemory},
      {kDevice, kPreparedRc},
      {kDevice, kPreparedUc},
      {kDevice, kPreparedUd},
      {kDevice, kRc},
      {kDevice, kUc},
      {kDevice, kUd},
      {kDevice, kWindow},
      {kDevice, kPeer},
      {kDevice, kEvents},
      {kDevice, kCache},
      {kDevice, kLease},
      {kDomain, kShared},
      {kDomain, kMemory},
      {kDomain, kPreparedRc},
      {kDomain, kPreparedUc},
      {kDomain, kPreparedUd},
      {kDomain, kRc},
      {kDomain, kUc},
      {kDomain, kUd},
      {kDomain, kWindow},
      {kDomain, kPeer},
      {kDomain, kCache},
      {kDomain, kLease},
      {kChannel, kQueue},
      {kChannel, kPreparedRc},
      {kChannel, kPreparedUc},
      {kChannel, kPreparedUd},
      {kChannel, kRc},
      {kChannel, kUc},
      {kChannel, kUd},
      {kQueue, kPreparedRc},
      {kQueue, kPreparedUc},
      {kQueue, kPreparedUd},
      {kQueue, kRc},
      {kQueue, kUc},
      {kQueue, kUd},
      {kExtended, kPoll},
      {kExtended, kPreparedRc},
      {kExtended, kPreparedUc},
      {kExtended, kPreparedUd},
      {kExtended, kRc},
      {kExtended, kUc},
      {kExtended, kUd},
      {kShared, kPreparedRc},
      {kShared, kPreparedUc},
      {kShared, kPreparedUd},
      {kShared, kRc},
      {kShared, kUc},
      {kShared, kUd},
      {kMemory, kWindow},
      {kRc, kWindow},
      {kCache, kLease},
  });
}

// Each family by itself: the parent's other handles and children go only at the end.
TEST_F(TeardownOrder, EveryParentAndChildByEveryPairOfSteps) {
  for (const TeardownFamily& family : teardown_families())
    for (const bool parent_first : {true, false})
      for (const bool moved_from_stays : {true, false})
        for (const TeardownStep of_parent : kTeardownSteps)
          for (const TeardownStep of_child : kTeardownSteps) {
            const auto either = [&](TeardownStep step) {
              return of_parent == step || of_child == step;
            };
            // Without a member that is moved out of, there is none that stays.
            if (!moved_from_stays && !either(TeardownStep::kMoveConstruct)) continue;
            Everything first{fake_};
            std::optional<Everything> second;
            if (either(TeardownStep::kMoveAssign)) second.emplace(fake_);
            Everything& source = second ? *second : first;  // of what is moved into `first`
            const auto go = [&](Everything::Member member, TeardownStep step) {
              visit_member(first, source, member, [&](auto& one, auto& other) {
                take_step(step, moved_from_stays, one, other);
              });
            };
            if (parent_first) {
              go(family.parent, of_parent);
              visit_member(first, source, family.child,
                           [](auto& child, auto&) { EXPECT_TRUE(works(*child)); });
            }
            go(family.child, of_child);
            if (!parent_first) go(family.parent, of_parent);
            if (!HasFailure()) continue;
            FAIL() << Everything::kNames[family.parent] << ' ' << name_of(of_parent) << ", "
                   << Everything::kNames[family.child] << ' ' << name_of(of_child)
                   << (parent_first ? ", the parent first" : ", the child first");
          }
}

// In a child of fork(2) no call is made for what the parent made, whether it is used or destroyed.
TEST_F(TeardownOrder, ChildOfForkIsRefusedAndTearsDownNothing) {
  std::optional<Everything> all{std::in_place, fake_};
  all->list.reset();  // memory and nothing else
  all->entry.reset();
  const std::string live = fake_.live();
  const auto uses = fake_.uses();
  Forked child{[&] {
    std::string wrong;
    wrong += not_refused("device", all->device->query_port(1));
    wrong += not_refused("domain", verbs::AddressHandle::create(*all->domain, {}));
    wrong += not_refused("allocate_domain", all->device->allocate_domain());
    wrong += not_refused("channel", all->channel->next_event());
    wrong += not_refused("register",
                         verbs::MemoryRegion::register_at(*all->domain, all->memory->bytes(),
                                                          all->memory->address(), Access::kNone));
    wrong += not_refused("query", all->rc->query_state());
    wrong += not_refused("to_error", all->rc->to_error());
    wrong += not_refused("window", all->rc->allocate_window());
    wrong += not_refused("events", all->events->next_event());
    wrong += not_refused("acquire", all->cache->acquire(all->cached, Access::kLocalWrite));
    if (!all->device->foreign()) wrong += "the device is not foreign\n";
    all.reset();
    if (fake_.live() != live) wrong += "left: " + fake_.live() + '\n';
    for (const auto& [call, count] : fake_.uses())
      if (const auto before = uses.find(call); before == uses.end() || before->second != count)
        wrong += call + " was called\n";
    return wrong;
  }};
  EXPECT_EQ(child.found(), "");
  EXPECT_EQ(fake_.live(), live);
  EXPECT_FALSE(all->device->foreign());
  EXPECT_TRUE(works(*all->device));
}

// The parents' other handles go before it, so that its own are the last.
TEST_F(TeardownOrder, EveryChildAloneKeepsWhatItNeeds) {
  for (std::size_t kept = 0; kept < Everything::kMembers; ++kept)
    for (const TeardownStep step : kTeardownSteps) {
      Everything first{fake_};
      Everything second{fake_};
      for (std::size_t member = 0; member < Everything::kMembers; ++member)
        if (member != kept)
          visit_member(first, second, member, [](auto& one, auto&) { one.reset(); });
      visit_member(first, second, kept, [&](auto& one, auto& other) {
        EXPECT_TRUE(works(*one));
        take_step(step, false, one, other);
      });
      if (HasFailure()) FAIL() << Everything::kNames[kept] << ' ' << name_of(step);
    }
}

// In 300 orders: each member is destroyed, moved out of or moved into, before or after any of its
// parents and children.
TEST_F(TeardownOrder, AnyOrderOfAllOfThemIsSafe) {
  for (unsigned seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random{seed};
    Everything first{fake_};
    Everything second{fake_};
    std::array<std::size_t, Everything::kMembers> order{};
    std::iota(order.begin(), order.end(), 0U);
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t member : order) {
      const TeardownStep step = kTeardownSteps[random() % kTeardownSteps.size()];
      const bool stays = random() % 2 == 0;
      visit_member(first, second, member,
                   [&](auto& one, auto& other) { take_step(step, stays, one, other); });
    }
    std::shuffle(order.begin(), order.end(), random);
    for (const std::size_t member : order)
      visit_member(second, first, member, [](auto& one, auto&) { one.reset(); });
    if (HasFailure()) return;
  }
}

}  // namespace
}  // namespace remora::test
