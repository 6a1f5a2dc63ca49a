// What a transport cannot do does not compile: each line here is a program that must be refused.
#include "fake_verbs.h"

namespace remora::test {
namespace {

using verbs::Batch;
using verbs::LocalSlice;
using verbs::PreparedQueuePair;
using verbs::QueuePair;
using verbs::QueuePairBuilder;
using verbs::Rc;
using verbs::RemoteSlice;
using verbs::Uc;
using verbs::Ud;

template <typename T>
concept Sends = requires(Batch<T> batch, LocalSlice local) {
  batch.send(1, local);
};
template <typename T>
concept SendsTo = requires(Batch<T> batch, LocalSlice local, const verbs::DatagramPeer& peer) {
  batch.send(1, local, peer);
};
template <typename T>
concept Writes = requires(Batch<T> batch, LocalSlice local, RemoteSlice remote) {
  batch.write(1, local, remote);
  batch.write_with_immediate(1, local, remote, 2);
};
template <typename T>
concept Reads = requires(Batch<T> batch, LocalSlice local, RemoteSlice remote) {
  batch.read(1, local, remote);
};
template <typename T>
concept Swaps = requires(Batch<T> batch, LocalSlice local, RemoteSlice remote) {
  batch.compare_swap(1, local, remote, 2, 3);
};
template <typename T>
concept Adds = requires(Batch<T> batch, LocalSlice local, RemoteSlice remote) {
  batch.fetch_add(1, local, remote, 2);
};
template <typename T>
concept Binds = requires(QueuePair<T> pair) {
  pair.allocate_window();
};
template <typename T>
concept Connects = requires(PreparedQueuePair<T> prepared, verbs::Endpoint peer) {
  std::move(prepared).connect(peer);
};
template <typename T>
concept Activates = requires(PreparedQueuePair<T> prepared) {
  std::move(prepared).activate();
};
template <typename T>
concept TimesOut = requires(QueuePairBuilder<T> builder) {
  builder.timeout(18);
};
template <typename T>
concept Retries = requires(QueuePairBuilder<T> builder) {
  builder.retry_count(7);
};
template <typename T>
concept LimitsReads = requires(QueuePairBuilder<T> builder) {
  builder.initiator_depth(4);
};
template <typename T>
concept HasKey = requires(QueuePairBuilder<T> builder) {
  builder.qkey(4);
};

static_assert(Sends<Rc> && Sends<Uc> && !Sends<Ud>);
static_assert(!SendsTo<Rc> && !SendsTo<Uc> && SendsTo<Ud>);
static_assert(Writes<Rc> && Writes<Uc> && !Writes<Ud>);
static_assert(Reads<Rc> && !Reads<Uc> && !Reads<Ud>);
static_assert(Swaps<Rc> && !Swaps<Uc> && !Swaps<Ud>);
static_assert(Adds<Rc> && !Adds<Uc> && !Adds<Ud>);
static_assert(Binds<Rc> && Binds<Uc> && !Binds<Ud>);
static_assert(Connects<Rc> && Connects<Uc> && !Connects<Ud>);
static_assert(!Activates<Rc> && !Activates<Uc> && Activates<Ud>);
static_assert(TimesOut<Rc> && !TimesOut<Uc> && !TimesOut<Ud>);
static_assert(Retries<Rc> && !Retries<Uc> && !Retries<Ud>);
static_assert(LimitsReads<Rc> && !LimitsReads<Uc> && !LimitsReads<Ud>);
static_assert(!HasKey<Rc> && !HasKey<Uc> && HasKey<Ud>);

// A connected pair cannot be connected again, a prepared one cannot post sends, a builder's parts
// cannot be swapped, and local is not remote.
template <typename T>
concept ConnectsAgain = requires(QueuePair<T> pair, verbs::Endpoint peer) {
  pair.connect(peer);
};
template <typename T>
concept PreparedPosts = requires(PreparedQueuePair<T> prepared) {
  prepared.start();
};
template <typename T>
concept ConnectsInPlace = requires(PreparedQueuePair<T>& prepared, verbs::Endpoint peer) {
  prepared.connect(peer);
};
template <typename T>
concept WritesToLocal = requires(Batch<T> batch, LocalSlice local) {
  batch.write(1, local, local);
};
template <typename T>
concept WritesFromRemote = requires(Batch<T> batch, RemoteSlice remote) {
  batch.write(1, remote, remote);
};
static_assert(!ConnectsAgain<Rc> && !PreparedPosts<Rc> && !ConnectsInPlace<Rc>);
static_assert(!WritesToLocal<Rc> && !WritesFromRemote<Rc>);
static_assert(!std::is_constructible_v<QueuePairBuilder<Rc>, verbs::CompletionQueue,
                                       verbs::ProtectionDomain, verbs::CompletionQueue>);
static_assert(!std::is_copy_constructible_v<verbs::MemoryRegion>);
static_assert(!std::is_copy_constructible_v<QueuePair<Rc>>);
static_assert(!std::is_copy_constructible_v<verbs::MemoryWindow>);
static_assert(!std::is_copy_constructible_v<verbs::AddressHandle>);

// A container that another owner keeps cannot be owned, nor one whose elements move.
template <typename Container>
concept Owned = requires(verbs::ProtectionDomain domain, Container container) {
  verbs::MemoryRegion::register_owned(domain, std::forward<Container>(container),
                                      verbs::Access::kNone);
};
static_assert(Owned<std::vector<int>> && !Owned<std::vector<int>&>);
static_assert(!Owned<std::vector<std::string>>);

TEST(Transport, TypesAreThoseOfVerbs) {
  EXPECT_EQ(Rc::kType, IBV_QPT_RC);
  EXPECT_EQ(Uc::kType, IBV_QPT_UC);
  EXPECT_EQ(Ud::kType, IBV_QPT_UD);
}

}  // namespace
}  // namespace remora::test
