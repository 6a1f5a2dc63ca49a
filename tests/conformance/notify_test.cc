/// Writes with a notification to the application that embeds the server.

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include <remora/config/secret_key.h>
#include <remora/metrics/registry.h>

#include "conformance_test.h"

namespace remora::test {
namespace {

/// The notifications that a handler got, in order.
class Heard {
 public:
  NotificationHandler handler() {
    return [this](const Notification& told) {
      const std::lock_guard lock{mutex_};
      all_.push_back(told);
      changed_.notify_all();
    };
  }
  /// Waits until there are `count`, at most 20 s. Returns those that have come.
  std::vector<Notification> wait(std::size_t count) {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, std::chrono::seconds{20}, [&] { return all_.size() >= count; });
    return all_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Notification> all_;
};

class NotifyTest : public ConformanceTest {
 protected:
  [[nodiscard]] bool needs_own_server() const override { return true; }
  /// Removes the handler at the end of the test, since it uses the test's local variables.
  class Handling {
   public:
    Handling(Server& server, std::string region, NotificationHandler handler)
        : server_{server}, region_{std::move(region)} {
      EXPECT_TRUE(ok(server_.on_notify(region_, std::move(handler))));
    }
    ~Handling() { EXPECT_TRUE(ok(server_.on_notify(region_, {}))); }
    Handling(const Handling&) = delete;
    Handling& operator=(const Handling&) = delete;

   private:
    Server& server_;
    std::string region_;
  };
  /// Counts the notifications of `region` that come in order, but none while `gate` is held.
  struct GatedCount {
    GatedCount(Server& server, const Region& region)
        : handling{server, region.info().name, [this](const Notification& told) {
                     const std::lock_guard lock{gate};
                     if (told.tag == handled) ++handled;
                   }} {}
    std::mutex gate;
    std::atomic<std::uint32_t> handled{0};
    const Handling handling;  ///< ends first
  };
  [[nodiscard]] Handling handle(const Region& region, NotificationHandler handler) {
    return {server(), region.info().name, std::move(handler)};
  }
};

TEST_P(NotifyTest, HandlerSeesOffsetLengthTagAndTheBytes) {
  const Region region = make_region({.size_bytes = 4_MiB});
  const RegionView view = server().view(region.info().name).value();
  const std::vector<std::uint64_t> sizes{1, 8, 100, 4096, 70'001, 2_MiB + 3};
  Heard heard;
  std::atomic<std::size_t> right{0};
  std::vector<std::vector<std::byte>> pages;
  for (std::size_t i = 0; i < sizes.size(); ++i) pages.push_back(noise(sizes[i], 40 + i));
  const Handling handling = handle(region, [&, tell = heard.handler()](const Notification& told) {
    std::vector<std::byte> seen(told.length_bytes);
    EXPECT_TRUE(ok(view.read(told.offset, seen)));
    if (seen == pages[told.tag]) ++right;
    tell(told);
  });
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    ASSERT_TRUE(ok(region.write_notify(ByteOffset{7 + i}, pages[i], i)));
    ASSERT_EQ(heard.wait(i + 1).size(), i + 1);
  }
  const auto all = heard.wait(sizes.size());
  ASSERT_EQ(all.size(), sizes.size());
  for (std::uint32_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(all[i].region, region.info().name);
    EXPECT_EQ(all[i].offset, ByteOffset{7 + i});
    EXPECT_EQ(all[i].length_bytes, sizes[i]);
    EXPECT_EQ(all[i].tag, i) << "in order";
  }
  EXPECT_EQ(right, sizes.size()) << "the bytes were in place";
}

TEST_P(NotifyTest, ManyFromAQueueEachArriveOnce) {
  const Region region = make_region();
  Heard heard;
  const Handling handling = handle(region, heard.handler());
  Queue queue = region.queue({.depth = 32}).value();
  const auto count = static_cast<std::uint32_t>(steps(2000));
  const std::vector<std::byte> page = noise(512, 50);
  for (std::uint32_t sent = 0; sent < count;) {
    while (sent < count && !queue.full()) {
      queue.write_notify(ByteOffset{std::uint64_t{512} * (sent % 8)}, page, sent, sent);
      ++sent;
      if (!queue.full()) queue.write(Block{9}, page);  // writes without a notification between them
    }
    drain(queue);
  }
  const auto all = heard.wait(count);
  ASSERT_EQ(all.size(), count);
  for (std::uint32_t i = 0; i < count; ++i) ASSERT_EQ(all[i].tag, i);
}

TEST_P(NotifyTest, SlowHandlerHoldsUpItsClientAndLosesNothing) {
  const Region region = make_region();
  std::mutex gate;
  std::atomic<std::uint32_t> next{0};
  std::atomic<bool> in_order{true};
  const Handling handling = handle(region, [&](const Notification& told) {
    const std::lock_guard lock{gate};
    if (told.tag != next++) in_order = false;
  });
  std::vector<std::byte> word(8);
  std::atomic<std::uint32_t> sent{0};
  const std::uint32_t count = 600;  // more than may wait for the handler
  std::unique_lock closed{gate};
  std::thread writer{[&] {
    for (std::uint32_t i = 0; i < count; ++i) {
      EXPECT_TRUE(ok(region.write_notify(ByteOffset{8}, word, i, std::chrono::seconds{60})));
      sent = i + 1;
    }
  }};
  // The server serves other clients meanwhile, which have sessions of their own.
  Engine other = open_engine();
  const Region same = other.open_region(uri(region.info().name), Rights::kAll).value();
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(ok(same.write(ByteOffset{64}, word)));
  EXPECT_TRUE(eventually([&] { return sent >= 32; }));
  std::uint32_t before = 0;
  do {
    before = sent;
    std::this_thread::sleep_for(std::chrono::milliseconds{300});
  } while (sent != before);
  EXPECT_LT(sent, count) << "the writer is held up";
  EXPECT_GE(sent, 32U);
  closed.unlock();
  writer.join();
  EXPECT_TRUE(eventually([&] { return next == count; }));
  EXPECT_EQ(next, count);
  EXPECT_TRUE(in_order);
}

TEST_P(NotifyTest, NoticesOfAClientThatHasGoneAreDelivered) {
  const Region region = make_region();
  GatedCount notices{server(), region};
  // A lane takes more notifications than may wait for the application; the transport keeps those.
  const std::uint32_t count = over_shm() ? 200 : 400;
  {
    const std::lock_guard closed{notices.gate};
    Engine other = open_engine();
    const std::string name = region.info().name;
    std::optional<Region> same = other.open_region(uri(name), Rights::kAll).value();
    const std::vector<std::byte> word(8);
    for (std::uint32_t i = 0; i < count; ++i)
      ASSERT_TRUE(ok(same->write_notify(ByteOffset{0}, word, i, std::chrono::seconds{20})));
    same.reset();  // closes the grant, then ends the session
    std::this_thread::sleep_for(std::chrono::milliseconds{50});
  }
  EXPECT_TRUE(eventually([&] { return notices.handled == count; }));
  EXPECT_EQ(notices.handled, count);
}

TEST_P(NotifyTest, FloodOfOneClientHoldsUpNoOtherClient) {
  const Region region = make_region();  // without a handler
  std::atomic<bool> enough{false};
  std::thread flood{[&] {
    Engine own = open_engine();
    const Region same = own.open_region(uri(region.info().name), Rights::kAll).value();
    Queue queue = same.queue({.depth = 64}).value();
    const std::vector<std::byte> word(8);
    while (!enough) {
      while (!queue.full()) queue.write_notify(ByteOffset{0}, word, 1);
      EXPECT_TRUE(ok(queue.submit()));
      for (const Completion& completion : queue.wait(32)) EXPECT_TRUE(completion.ok());
    }
  }};
  for (std::size_t i = 0; i < steps(100); ++i) EXPECT_TRUE(open(region.info().name).connected());
  enough = true;
  flood.join();
}

TEST_P(NotifyTest, HandlerMayStopTheServer) {
  const Region region = make_region();
  Server& stopped = server();
  EXPECT_TRUE(
      ok(stopped.on_notify(region.info().name, [&](const Notification&) { stopped.stop(); })));
  const std::vector<std::byte> word(8);
  (void)region.write_notify(ByteOffset{0}, word, 1);
  EXPECT_TRUE(eventually([&] { return !region.connected(); }));
  EXPECT_FALSE(region.connected());
  forget(region.info().name);
  end_server();
}

TEST_P(NotifyTest, WithoutAHandlerTheyAreDroppedAndCounted) {
  const Region region = make_region();
  const std::vector<std::byte> word(8);
  for (std::uint32_t i = 0; i < 300; ++i)
    ASSERT_TRUE(ok(region.write_notify(ByteOffset{0}, word, i)));
  const auto unheard = [&] {
    return server().registry().sum("remora_server_notifications_total", {{"status", "unheard"}});
  };
  EXPECT_TRUE(eventually([&] { return unheard().value() >= 300; }));
  EXPECT_EQ(unheard().value(), 300);
}

TEST_P(NotifyTest, HandlerThatThrowsIsCountedAndTheNextIsCalled) {
  const Region region = make_region();
  Heard heard;
  const Handling handling = handle(region, [&, tell = heard.handler()](const Notification& told) {
    tell(told);
    if (told.tag == 0) throw std::runtime_error{"on purpose"};
  });
  const std::vector<std::byte> word(8);
  ASSERT_TRUE(ok(region.write_notify(ByteOffset{0}, word, 0)));
  ASSERT_TRUE(ok(region.write_notify(ByteOffset{0}, word, 1)));
  EXPECT_EQ(heard.wait(2).size(), 2U);
  EXPECT_EQ(
      server().registry().sum("remora_server_notifications_total", {{"status", "threw"}}).value(),
      1);
}

TEST_P(NotifyTest, MisuseIsThatOfAWrite) {
  const Region region = make_region({.size_bytes = 4096});
  std::vector<std::byte> page(4096);
  EXPECT_EQ(region.write_notify(ByteOffset{1}, page, 0).error().code(), Code::kOutOfRange);
  EXPECT_EQ(region.write_notify(ByteOffset{0}, std::span<const std::byte>{}, 0).error().code(),
            Code::kInvalidArgument);
  EXPECT_EQ(
      open(region.info().name, Rights::kRead).write_notify(ByteOffset{0}, page, 0).error().code(),
      Code::kNoRight);
}

TEST_P(NotifyTest, HandlerMayGoWhileNoticesCome) {
  const Region region = make_region();
  std::atomic<bool> enough{false};
  std::thread writer{[&] {
    const std::vector<std::byte> word(8);
    for (std::uint32_t i = 0; !enough; ++i)
      EXPECT_TRUE(ok(region.write_notify(ByteOffset{0}, word, i)));
  }};
  for (std::size_t i = 0; i < steps(50); ++i) {
    auto alive = std::make_unique<std::atomic<std::uint64_t>>(0);
    const Handling handling = handle(region, [raw = alive.get()](const Notification&) { ++*raw; });
    std::this_thread::sleep_for(std::chrono::milliseconds{1});
  }
  enough = true;
  writer.join();
}

REMORA_CONFORMANCE(NotifyTest);

/// The application removes a client from the server, which ends the client's session.
class NotifyEndTest : public NotifyTest {
 protected:
  void configure(config::ServerConfig& config) const override {
    config.auth = config::Auth::kKeys;
    config.clients = {client("stays", stays_), client("goes", goes_)};
  }
  void configure_engine(EngineOptions& options) const override {
    options.client_name = "stays";
    options.key = stays_;
  }
  [[nodiscard]] static config::ClientConfig client(const char* name, const config::SecretKey& key) {
    config::ClientConfig made;
    made.name = name;
    made.key = key;
    made.create = true;
    made.admin = true;
    return made;
  }
  const config::SecretKey stays_ = config::SecretKey::generate().value();
  const config::SecretKey goes_ = config::SecretKey::generate().value();
};

TEST_P(NotifyEndTest, NoticesOfASessionThatTheServerEndsAreDelivered) {
  const Region region = make_region();
  GatedCount notices{server(), region};
  // Over shm each notification is a request, which the server answers after it has taken it.
  const std::uint32_t count = over_shm() ? 50 : 400;
  EngineOptions options = patient_options();
  options.reconnect_for = std::chrono::seconds{0};
  options.client_name = "goes";
  options.key = goes_;
  const Engine other = Engine::open(options).value();
  const Region same = other.open_region(uri(region.info().name), Rights::kAll).value();
  {
    const std::lock_guard closed{notices.gate};
    const std::vector<std::byte> word(8);
    for (std::uint32_t i = 0; i < count; ++i)
      ASSERT_TRUE(ok(same.write_notify(ByteOffset{0}, word, i, std::chrono::seconds{20})));
    ASSERT_TRUE(ok(server().set_clients({client("stays", stays_)})));
    EXPECT_TRUE(eventually([&] { return !same.connected(); }));
    EXPECT_FALSE(same.connected());
  }
  EXPECT_TRUE(eventually([&] { return notices.handled == count; }));
  EXPECT_EQ(notices.handled, count);
}

REMORA_CONFORMANCE(NotifyEndTest);

}  // namespace
}  // namespace remora::test
