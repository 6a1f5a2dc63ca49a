/// Misuse has the same code on every transport and through both faces, and changes nothing.

#include <limits>
#include <optional>

#include "conformance_test.h"

namespace remora::test {
namespace {

constexpr std::uint64_t kMax = std::numeric_limits<std::uint64_t>::max();

class ErrorTest : public ConformanceTest {
 protected:
  [[nodiscard]] ServerOptions server_options() const override { return {.regions_max = 6}; }

  /// The code with which the operation that `take` queues completes; none: it is ok.
  template <typename Take>
  static std::optional<Code> queued(const Region& region, Take take) {
    Queue queue = region.queue({.depth = 1}).value();
    if (!take(queue)) return Code::kWouldBlock;
    queue.submit().value();
    const Completions found = queue.wait(1);
    EXPECT_EQ(found.size(), 1U);
    if (found.empty()) return Code::kInternal;
    if (found.begin()->ok()) return std::nullopt;
    EXPECT_FALSE(found.begin()->error().message().empty());
    return found.begin()->error().code();
  }

  static void expect_read_and_write_fail(const Region& region, std::uint64_t at, std::size_t length,
                                         Code code) {
    SCOPED_TRACE(std::to_string(length) + " bytes at " + std::to_string(at));
    std::vector<std::byte> bytes(length);
    EXPECT_TRUE(fails_with(region.read(ByteOffset{at}, bytes), code));
    EXPECT_TRUE(fails_with(region.write(ByteOffset{at}, bytes), code));
    EXPECT_EQ(queued(region, [&](Queue& q) { return q.read(ByteOffset{at}, bytes); }), code);
    EXPECT_EQ(queued(region, [&](Queue& q) { return q.write(ByteOffset{at}, bytes); }), code);
  }

  static void expect_atomics_fail(const Region& region, std::uint64_t at, Code code) {
    SCOPED_TRACE("atomic at " + std::to_string(at));
    EXPECT_TRUE(fails_with(region.fetch_add(ByteOffset{at}, 1), code));
    EXPECT_TRUE(fails_with(region.compare_swap(ByteOffset{at}, 0, 1), code));
    EXPECT_EQ(queued(region, [&](Queue& q) { return q.fetch_add(ByteOffset{at}, 1); }), code);
    EXPECT_EQ(queued(region, [&](Queue& q) { return q.compare_swap(ByteOffset{at}, 0, 1); }), code);
  }
};

TEST_P(ErrorTest, BytesOutsideTheRegionAreOutOfRange) {
  const Region region = make_region();
  const std::uint64_t end = region.size_bytes();
  for (const auto& [at, length] : {std::pair<std::uint64_t, std::size_t>{end, 1},
                                   {end - 1, 2},
                                   {end - 4096, 4097},
                                   {end + 1, 1},
                                   {0, end + 1},
                                   {kMax, 1},
                                   {kMax, 2},       // wraps to one byte
                                   {kMax - 7, 16},  // wraps into the region
                                   {kMax - end, end}})
    expect_read_and_write_fail(region, at, length, Code::kOutOfRange);
  std::vector<std::byte> last(1);
  EXPECT_TRUE(ok(region.read(ByteOffset{end - 1}, last)));
  EXPECT_EQ(read_all(region), std::vector<std::byte>(end));
}

TEST_P(ErrorTest, BlocksOutsideTheRegionAreOutOfRange) {
  const Region region = make_region();
  std::vector<std::byte> block(4096);
  for (const std::uint64_t index :
       {region.block_count(), region.block_count() + 1, kMax, kMax / 4096, kMax / 4096 + 1}) {
    SCOPED_TRACE(index);
    EXPECT_TRUE(fails_with(region.read(Block{index}, block), Code::kOutOfRange));
    EXPECT_TRUE(fails_with(region.write(Block{index}, block), Code::kOutOfRange));
    EXPECT_EQ(queued(region, [&](Queue& q) { return q.read(Block{index}, block); }),
              Code::kOutOfRange);
    EXPECT_EQ(queued(region, [&](Queue& q) { return q.write(Block{index}, block); }),
              Code::kOutOfRange);
  }
  EXPECT_EQ(read_all(region), std::vector<std::byte>(region.size_bytes()));
}

TEST_P(ErrorTest, AtomicsOutsideTheRegionAreOutOfRange) {
  const Region region = make_region();
  for (const std::uint64_t at : {region.size_bytes(), region.size_bytes() + 8, kMax - 7})
    expect_atomics_fail(region, at, Code::kOutOfRange);
  EXPECT_TRUE(ok(region.fetch_add(ByteOffset{region.size_bytes() - 8}, 0)));
}

TEST_P(ErrorTest, AtomicsThatAreNotAlignedAreMisaligned) {
  const Region region = make_region();
  for (const std::uint64_t at : {1U, 2U, 4U, 7U, 4095U, 4097U})
    expect_atomics_fail(region, at, Code::kMisaligned);
  EXPECT_EQ(read_all(region), std::vector<std::byte>(region.size_bytes()));
}

TEST_P(ErrorTest, RightsThatWereNotAskedForAreNotThere) {
  const RegionInfo made = create();
  std::vector<std::byte> bytes(64);
  const Region reader = open(made.name, Rights::kRead);
  EXPECT_EQ(reader.rights(), Rights::kRead);
  EXPECT_TRUE(ok(reader.read(ByteOffset{0}, bytes)));
  EXPECT_TRUE(fails_with(reader.write(ByteOffset{0}, bytes), Code::kNoRight));
  EXPECT_EQ(queued(reader, [&](Queue& q) { return q.write(ByteOffset{0}, bytes); }),
            Code::kNoRight);
  expect_atomics_fail(reader, 0, Code::kNoRight);

  const Region writer = open(made.name, Rights::kWrite);
  EXPECT_EQ(writer.rights(), Rights::kWrite);
  EXPECT_TRUE(ok(writer.write(ByteOffset{0}, bytes)));
  EXPECT_TRUE(fails_with(writer.read(ByteOffset{0}, bytes), Code::kNoRight));
  EXPECT_EQ(queued(writer, [&](Queue& q) { return q.read(ByteOffset{0}, bytes); }), Code::kNoRight);
  expect_atomics_fail(writer, 0, Code::kNoRight);

  const Region counter = open(made.name, Rights::kAtomic);
  EXPECT_EQ(counter.fetch_add(ByteOffset{0}, 1).value(), 0U);
  expect_read_and_write_fail(counter, 0, 64, Code::kNoRight);
}

TEST_P(ErrorTest, GrantBeyondTheRegionsRightsIsRefused) {
  const RegionInfo made = create({.rights = Rights::kRead});
  EXPECT_EQ(made.rights, Rights::kRead);
  for (const Rights asked : {Rights::kWrite, Rights::kReadWrite, Rights::kAtomic, Rights::kAll})
    EXPECT_TRUE(fails_with(engine().open_region(uri(made.name), asked), Code::kNoRight))
        << to_string(asked);
  EXPECT_TRUE(ok(engine().open_region(uri(made.name), Rights::kRead)));
}

TEST_P(ErrorTest, GrantWithoutRightsIsInvalid) {
  const RegionInfo made = create();
  EXPECT_TRUE(
      fails_with(engine().open_region(uri(made.name), Rights::kNone), Code::kInvalidArgument));
}

TEST_P(ErrorTest, RegionWithoutAtomicsRefusesThem) {
  const Region region = make_region({.rights = Rights::kReadWrite, .atomic_domain = "none"});
  EXPECT_EQ(region.info().atomic_domain, "none");
  const RegionInfo all = create({.atomic_domain = "none"});
  const auto opened = engine().open_region(uri(all.name), all.rights);
  ASSERT_TRUE(ok(opened));
  expect_atomics_fail(*opened, 0, Code::kWrongAtomicDomain);
}

TEST_P(ErrorTest, AtomicsOfAnotherDomainAreRefused) {
  // An atomic operation of the processor is not atomic with respect to those of a NIC.
  if (!over_rdma()) GTEST_SKIP() << "needs a device: the rdma side of it covers all";
  const Region region = make_region({.atomic_domain = "cpu"});
  EXPECT_EQ(region.info().atomic_domain, "cpu");
  expect_atomics_fail(region, 0, Code::kWrongAtomicDomain);
  std::vector<std::byte> bytes(8);
  EXPECT_TRUE(ok(region.write(ByteOffset{0}, bytes)));
}

TEST_P(ErrorTest, UnknownRegionIsSaidByEachRequest) {
  EXPECT_TRUE(fails_with(engine().open_region(uri("absent"), Rights::kRead), Code::kUnknownRegion));
  EXPECT_TRUE(fails_with(session().stat("absent"), Code::kUnknownRegion));
  EXPECT_TRUE(fails_with(session().remove_region("absent"), Code::kUnknownRegion));
  if (external()) return;
  EXPECT_TRUE(fails_with(server().view("absent"), Code::kUnknownRegion));
  EXPECT_TRUE(fails_with(server().remove_region("absent"), Code::kUnknownRegion));
}

TEST_P(ErrorTest, NameThatIsTakenAlreadyExists) {
  const RegionInfo made = create();
  EXPECT_TRUE(fails_with(session().create_region(spec(made.name)), Code::kAlreadyExists));
  if (external()) return;
  EXPECT_TRUE(fails_with(server().create_region(spec(made.name)), Code::kAlreadyExists));
}

TEST_P(ErrorTest, OpenRegionIsBusyUntilTheLastHandleIsGone) {
  const RegionInfo made = create();
  {
    std::optional<Region> first = open(made.name);
    const Region copy = *first;
    first.reset();
    EXPECT_TRUE(fails_with(session().remove_region(made.name), Code::kBusy));
    EXPECT_EQ(copy.size_bytes(), made.size_bytes);
    EXPECT_EQ(session().stat(made.name).value().open_count, 1U);
  }
  EXPECT_TRUE(ok(session().remove_region(made.name)));
  forget(made.name);
}

TEST_P(ErrorTest, RegionThatAQueueUsesIsBusy) {
  const RegionInfo made = create();
  std::optional<Queue> queue = open(made.name).queue({}).value();
  EXPECT_TRUE(fails_with(session().remove_region(made.name), Code::kBusy));
  queue.reset();
}

TEST_P(ErrorTest, EmptySpansAndSlotsAreInvalid) {
  const Region region = make_region();
  expect_read_and_write_fail(region, 0, 0, Code::kInvalidArgument);
  Slot empty;
  EXPECT_TRUE(fails_with(region.read(ByteOffset{0}, empty), Code::kInvalidArgument));
  EXPECT_TRUE(fails_with(region.write(ByteOffset{0}, empty), Code::kInvalidArgument));
  EXPECT_EQ(queued(region, [&](Queue& q) { return q.read(ByteOffset{0}, Slot{}); }),
            Code::kInvalidArgument);
  EXPECT_EQ(queued(region, [&](Queue& q) { return q.write(ByteOffset{0}, Slot{}); }),
            Code::kInvalidArgument);
}

TEST_P(ErrorTest, QueueDepthOutsideItsBoundsIsInvalid) {
  const Region region = make_region();
  if (!kThroughC) {  // there 0 stands for the default
    EXPECT_TRUE(fails_with(region.queue({.depth = 0}), Code::kInvalidArgument));
  }
  EXPECT_TRUE(fails_with(region.queue({.depth = kMaxQueueDepth + 1}), Code::kInvalidArgument));
  EXPECT_TRUE(ok(region.queue({.depth = 1})));
}

TEST_P(ErrorTest, MalformedUrisAreInvalid) {
  for (const char* text :
       {"", "remora", "remora:", "remora://", "http://localhost/r", "remora:///r",
        "remora://host:0/r", "remora://host:65536/r", "remora://host:port/r", "remora://host/.",
        "remora://host/a/b", "remora://host/r?transport", "remora://host/r?colour=blue",
        "remora://[::1/r", "remora://host/.."}) {
    EXPECT_TRUE(fails_with(engine().open_region(text, Rights::kRead), Code::kInvalidArgument))
        << text;
  }
  EXPECT_TRUE(fails_with(engine().connect("remora://host/r?transport=pigeon"), Code::kUnsupported));
  EXPECT_TRUE(fails_with(engine().open_region(uri(), Rights::kRead), Code::kInvalidArgument))
      << "a region has to be named";
}

TEST_P(ErrorTest, PortWithoutAServerRefusesTheConnection) {
  // The discard port: no process listens there.
  const std::string target =
      make_uri({over_shm() ? "127.0.0.1" : listen_address(transport()), 9}, transport(), "region");
  EXPECT_TRUE(fails_with(engine().connect(target), Code::kConnectionRefused));
  EXPECT_TRUE(fails_with(engine().open_region(target, Rights::kRead), Code::kConnectionRefused));
}

TEST_P(ErrorTest, MalformedSpecsAreInvalid) {
  const auto creating = [&](auto change) {
    RegionSpec wanted = spec(unique_name());
    change(wanted);
    auto result = session().create_region(wanted);
    if (result.ok()) session().remove_region(wanted.name).value();
    return result;
  };
  const auto invalid = [&](auto change) {
    return fails_with(creating(change), Code::kInvalidArgument);
  };
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.name.clear(); }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.name = "."; }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.name = ".."; }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.name = "a/b"; }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.name = std::string(65, 'x'); }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.size_bytes = 0; }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.size_bytes = 4097; }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.block_bytes = 32; }));
  EXPECT_TRUE(invalid([](RegionSpec& s) { s.block_bytes = 3000, s.size_bytes = 30'000; }));
  if (!kThroughC) {  // there 0 stands for the default, and the name would end
    EXPECT_TRUE(invalid([](RegionSpec& s) { s.name = std::string("a\0b", 3); }));
    EXPECT_TRUE(invalid([](RegionSpec& s) { s.block_bytes = 0; }));
    EXPECT_TRUE(invalid([](RegionSpec& s) { s.rights = Rights::kNone; }));
  }
  EXPECT_TRUE(
      fails_with(creating([](RegionSpec& s) { s.atomic_domain = "mars0"; }), Code::kUnsupported));
  EXPECT_TRUE(ok(creating([](RegionSpec& s) { s.name = std::string(64, 'x'); })));
}

TEST_P(ErrorTest, RegionsBeyondTheLimitAreRefused) {
  if (external()) GTEST_SKIP() << "needs a server with a small limit";
  for (int i = 0; i < 6; ++i) create({.size_bytes = 4096});
  const auto refused = session().create_region(spec("one-too-many", {.size_bytes = 4096}));
  EXPECT_TRUE(fails_with(refused, Code::kLimitExceeded));
}

TEST_P(ErrorTest, RegionThatDoesNotAllowShmIsUnsupportedThere) {
  if (!over_shm()) GTEST_SKIP() << "about shm only";
  RegionSpec wanted = spec(unique_name());
  wanted.shm = false;
  ASSERT_TRUE(ok(session().create_region(wanted)));
  EXPECT_TRUE(
      fails_with(engine().open_region(uri(wanted.name), Rights::kRead), Code::kUnsupported));
  // The server offers shm only. The client takes its answer as final, and does not retry for
  // connect_for.
  EngineOptions options = patient_options();
  options.connect_for = std::chrono::hours{1};
  const std::string any = uri(wanted.name).substr(0, uri(wanted.name).find('?'));
  EXPECT_TRUE(fails_with(Engine::open(options).value().open_region(any, Rights::kRead),
                         Code::kUnsupported));
  EXPECT_TRUE(ok(session().remove_region(wanted.name)));
}

TEST_P(ErrorTest, SecondServerOnTheSamePortFindsTheAddressInUse) {
  if (external()) GTEST_SKIP() << "needs a server in this process";
  config::ServerConfig second = server_config(transport());
  second.listen.port = server().port();
  EXPECT_TRUE(fails_with(Server::start(second), Code::kAddressInUse));
  EXPECT_TRUE(ok(session().regions())) << "the first one is not disturbed";
  EXPECT_TRUE(ok(engine().open_region(uri(create().name), Rights::kRead)));
}

REMORA_CONFORMANCE(ErrorTest);

}  // namespace
}  // namespace remora::test
