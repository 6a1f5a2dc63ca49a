// Volumes through the C API, over tcp.

#include "volume_test.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gmock/gmock.h>
#include <poll.h>
#include <set>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace remora::test {
namespace {

using ::testing::HasSubstr;

TEST_F(VolumeTest, TellsWhatItIs) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  remora_volume_info info{};
  info.size = sizeof(info);
  ASSERT_EQ(remora_volume_info_of(volume_, &info, &error_), REMORA_OK);
  EXPECT_STREQ(info.name, "disk");
  EXPECT_EQ(info.size_bytes, kSize);
  EXPECT_EQ(info.block_bytes, 4096U);
  EXPECT_EQ(info.stripe_bytes, kStripe);
  EXPECT_EQ(info.group_bytes, kGroup);
  EXPECT_EQ(info.group_count, kServers);
  EXPECT_EQ(info.width, kServers);
  EXPECT_EQ(info.rights, unsigned{REMORA_RIGHT_ALL});
  EXPECT_EQ(info.transports, 1U << unsigned{REMORA_TRANSPORT_TCP});
  EXPECT_EQ(remora_volume_size_bytes(volume_), kSize);
  EXPECT_EQ(remora_volume_rights(volume_), unsigned{REMORA_RIGHT_ALL});
  EXPECT_EQ(remora_volume_connected(volume_), 1);
  EXPECT_EQ(remora_volume_settled(volume_, 1'000'000'000, &error_), REMORA_OK) << error_.message;

  std::size_t count = 0;
  ASSERT_EQ(remora_volume_groups(volume_, nullptr, 0, &count, &error_), REMORA_OK);
  ASSERT_EQ(count, kServers);
  std::array<remora_volume_group, 2> groups{};
  ASSERT_EQ(remora_volume_groups(volume_, groups.data(), 2, &count, &error_), REMORA_OK);
  EXPECT_EQ(count, kServers);
  std::set<std::string> servers;
  for (const remora_volume_group& group : groups) {
    EXPECT_EQ(group.transport, REMORA_TRANSPORT_TCP);
    EXPECT_EQ(group.connected, 1);
    EXPECT_STREQ(group.error, "");
    EXPECT_STRNE(group.region, "");
    servers.insert(group.server);
  }
  EXPECT_EQ(servers.size(), 2U);
}

TEST_F(VolumeTest, SynchronousOperationsCrossServers) {
  ASSERT_EQ(open(), REMORA_OK) << error_.message;
  const std::vector<unsigned char> written = pattern(10 * kStripe, 1);
  std::vector<unsigned char> found(written.size());
  ASSERT_EQ(remora_volume_write(volume_, 100, written.data(), written.size(), nullptr, 0, &error_),
            REMORA_OK)
      << error_.message;
  ASSERT_EQ(remora_volume_flush_visible(volume_, 0, &error_), REMORA_OK);
  ASSERT_EQ(remora_volume_read(volume_, 100, found.data(), found.size(), nullptr, 0, &error_),
            REMORA_OK);
  EXPECT_EQ(found, written);
  ASSERT_EQ(remora_volume_write_zeroes(volume_, 100, 3 * kStripe, 0, &error_), REMORA_OK);
  ASSERT_EQ(remora_volume_read(volume_, 100, found.data(), found.size(), nullptr, 0, &error_),
            REMORA_OK);
  std::vector<unsigned char> expected = written;
  std::memset(expected.data(), 0, 3 * kStripe);
  EXPECT_EQ(found, expected);

  std::uint64_t before = 7;
  ASSERT_EQ(remora_volume_fetch_add(volume_, 8 * kStripe * kServers, 5, &before, 0, &error_),
            REMORA_OK);
  EXPECT_EQ(before, 0U);
  ASSERT_EQ(remora_volume_compare_swap(volume_, 8 * kStripe * kServers, 5, 9, &before, 0, &error_),
            REMORA_OK);
  EXPECT_EQ(before, 5U);
  EXPECT_EQ(remora_volume_fetch_add(volume_, 4, 1, &before, 0, &error_), REMORA_MISALIGNED);
  EXPECT_EQ(remora_volume_read(volume_, kSize - 8, found.data(), 16, nullptr, 0, &error_),
            REMORA_OUT_OF_RANGE);
  EXPECT_EQ(error_.has_place, 1);
  EXPECT_EQ(error_.offset, kSize - 8);
}

TEST_F(VolumeTest, RegisteredMemoryIsTaken) {
  open_queue(4);
  std::vector<unsigned char> bytes = pattern(4 * kStripe, 3);
  remora_memory* memory = nullptr;
  ASSERT_EQ(remora_engine_register_memory(engine_, bytes.data(), bytes.size(), &memory, &error_),
            REMORA_OK)
      << error_.message;
  ASSERT_EQ(remora_volume_write(volume_, 0, bytes.data(), 2 * kStripe, memory, 0, &error_),
            REMORA_OK);
  ASSERT_NE(remora_queue_read(queue_, 0, bytes.data() + 2 * kStripe, 2 * kStripe, memory, 1), 0U);
  ASSERT_NE(remora_queue_read(queue_, 0, bytes.data(), bytes.size() + 1, memory, 2), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  for (const remora_completion& completion : all(2, 4))
    EXPECT_EQ(completion.code, completion.tag == 1 ? REMORA_OK : REMORA_OUT_OF_RANGE);
  EXPECT_EQ(std::memcmp(bytes.data(), bytes.data() + 2 * kStripe, 2 * kStripe), 0);
  remora_memory_free(memory);
}

/// More completions than fit into one call: each comes once, with the words of its operation.
TEST_F(VolumeTest, QueueHandsOutEachOperationOnce) {
  constexpr std::size_t kDepth = 8;
  open_queue(kDepth);
  EXPECT_EQ(remora_queue_depth(queue_), kDepth);
  std::vector<unsigned char> bytes = pattern(kDepth * kStripe, 5);
  std::vector<unsigned char> found(bytes.size());
  for (int round = 0; round < 3; ++round) {
    std::set<std::uint64_t> tickets;
    for (std::uint64_t i = 0; i < kDepth; ++i)
      tickets.insert(remora_queue_write(queue_, i * kStripe, bytes.data() + i * kStripe, kStripe,
                                        nullptr, 1000 + i));
    EXPECT_EQ(tickets.size(), kDepth);
    EXPECT_EQ(tickets.count(0), 0U);
    EXPECT_EQ(remora_queue_room(queue_), 0U);
    EXPECT_EQ(remora_queue_flush_visible(queue_, 0), 0U);
    ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
    std::set<std::uint64_t> tags;
    for (const remora_completion& completion : all(kDepth, 3)) {
      EXPECT_EQ(completion.code, REMORA_OK);
      EXPECT_EQ(tickets.erase(completion.ticket), 1U);
      tags.insert(completion.tag);
    }
    EXPECT_EQ(tags.size(), kDepth);
    EXPECT_EQ(*tags.begin(), 1000U);
    EXPECT_EQ(*tags.rbegin(), 1000U + kDepth - 1);
    EXPECT_EQ(remora_queue_room(queue_), kDepth);
  }
  ASSERT_EQ(remora_volume_read(volume_, 0, found.data(), found.size(), nullptr, 0, &error_),
            REMORA_OK);
  EXPECT_EQ(found, bytes);
}

TEST_F(VolumeTest, QueueHasAtomicsZeroesAndFlush) {
  open_queue(8);
  const std::vector<unsigned char> bytes = pattern(3 * kStripe, 9);
  std::vector<unsigned char> found(bytes.size(), 1);
  ASSERT_EQ(remora_volume_write(volume_, 0, bytes.data(), bytes.size(), nullptr, 0, &error_),
            REMORA_OK);
  ASSERT_NE(remora_queue_write_zeroes(queue_, 0, bytes.size(), 1), 0U);
  ASSERT_NE(remora_queue_flush_visible(queue_, 2), 0U);
  ASSERT_NE(remora_queue_fetch_add(queue_, 4 * kStripe, 6, 3), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  for (const remora_completion& completion : all(3, 8)) {
    EXPECT_EQ(completion.code, REMORA_OK) << completion.tag;
    EXPECT_EQ(completion.old_value, 0U);
  }
  ASSERT_NE(remora_queue_compare_swap(queue_, 4 * kStripe, 6, 1, 4), 0U);
  ASSERT_NE(remora_queue_read(queue_, 0, found.data(), found.size(), nullptr, 5), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  for (const remora_completion& completion : all(2, 8)) {
    EXPECT_EQ(completion.code, REMORA_OK) << completion.tag;
    EXPECT_EQ(completion.old_value, completion.tag == 4 ? 6U : 0U);
  }
  EXPECT_EQ(found, std::vector<unsigned char>(found.size(), 0));
}

TEST_F(VolumeTest, QueueLacksWhatVolumesCannotDo) {
  open_queue(8);
  std::array<unsigned char, 64> bytes{};
  const remora_piece piece{.data = bytes.data(), .length = bytes.size(), .registered = nullptr};
  const remora_pair pair{.offset = 0, .piece = piece};
  remora_add_pair addition{};
  EXPECT_EQ(remora_queue_read_pieces(queue_, 0, &piece, 1, 0), 0U);
  EXPECT_EQ(remora_queue_write_pieces(queue_, 0, &piece, 1, 0), 0U);
  EXPECT_EQ(remora_queue_write_notify(queue_, 0, bytes.data(), 8, nullptr, 1, 0), 0U);
  EXPECT_EQ(remora_queue_read_many(queue_, &pair, 1, nullptr, 0), 0U);
  EXPECT_EQ(remora_queue_fetch_add_many(queue_, &addition, 1, nullptr, 0), 0U);
  EXPECT_EQ(remora_queue_room(queue_), 8U);
  EXPECT_EQ(remora_queue_barrier(queue_), REMORA_UNSUPPORTED);
  EXPECT_EQ(remora_queue_cancel(queue_, 1, &error_), REMORA_UNSUPPORTED);
  EXPECT_THAT(error_.message, HasSubstr("the queue of a volume"));
  EXPECT_EQ(remora_queue_select(queue_, nullptr, &error_), REMORA_UNSUPPORTED);
}

TEST_F(VolumeTest, QueueReportsTheWholeErrorOfACompletion) {
  open_queue(4);
  std::array<unsigned char, 64> bytes{};
  ASSERT_NE(remora_queue_read(queue_, kSize, bytes.data(), bytes.size(), nullptr, 11), 0U);
  ASSERT_NE(remora_queue_read(queue_, 0, bytes.data(), bytes.size(), nullptr, 12), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  for (const remora_completion& completion : all(2, 4)) {
    const bool wrong = completion.tag == 11;
    EXPECT_EQ(completion.code, wrong ? REMORA_OUT_OF_RANGE : REMORA_OK);
    EXPECT_EQ(remora_queue_completion_error(queue_, &completion, &error_),
              wrong ? REMORA_OUT_OF_RANGE : REMORA_NOT_FOUND);
    if (wrong) {
      EXPECT_EQ(error_.offset, kSize);
    }
  }
  std::size_t count = 1;
  remora_completion none{};
  EXPECT_EQ(remora_queue_poll(queue_, &none, 0, &count, &error_), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(remora_queue_poll(queue_, &none, 1, &count, &error_), REMORA_OK);
  EXPECT_EQ(count, 0U);
}

TEST_F(VolumeTest, DescriptorTellsOfCompletions) {
  open_queue(4);
  int descriptor = -1;
  ASSERT_EQ(remora_queue_event_fd(queue_, &descriptor, &error_), REMORA_OK) << error_.message;
  EXPECT_EQ(remora_queue_next_deadline(queue_), UINT64_MAX);
  std::vector<unsigned char> bytes(2 * kStripe);
  remora_completion completion{};
  std::size_t count = 0;
  ASSERT_EQ(remora_queue_progress(queue_, &completion, 1, &count, &error_), REMORA_OK);
  ASSERT_NE(remora_queue_read(queue_, 0, bytes.data(), bytes.size(), nullptr, 21), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  while (count == 0) {
    ASSERT_NE(remora_queue_next_deadline(queue_), UINT64_MAX);
    pollfd wanted{.fd = descriptor, .events = POLLIN, .revents = 0};
    ASSERT_EQ(::poll(&wanted, 1, 30'000), 1);
    ASSERT_EQ(remora_queue_progress(queue_, &completion, 1, &count, &error_), REMORA_OK);
  }
  EXPECT_EQ(completion.tag, 21U);
  EXPECT_EQ(completion.code, REMORA_OK);
  EXPECT_EQ(remora_queue_next_deadline(queue_), UINT64_MAX);
}

TEST_F(VolumeTest, QueueKeepsTheVolumeOpen) {
  open_queue(4);
  remora_volume_free(volume_);
  EXPECT_EQ(remora_volume_settled(volume_, 0, &error_), REMORA_CLOSED);
  volume_ = nullptr;
  remora_engine_free(engine_);
  engine_ = nullptr;
  std::array<unsigned char, 8> bytes{};
  ASSERT_NE(remora_queue_read(queue_, 0, bytes.data(), bytes.size(), nullptr, 1), 0U);
  ASSERT_EQ(remora_queue_submit(queue_, &error_), REMORA_OK);
  const std::vector<remora_completion> found = all(1, 1);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].code, REMORA_OK);
  remora_queue_free(queue_);
  EXPECT_EQ(remora_queue_submit(queue_, &error_), REMORA_CLOSED);
  EXPECT_EQ(remora_queue_read(queue_, 0, bytes.data(), bytes.size(), nullptr, 1), 0U);
  EXPECT_EQ(remora_queue_depth(queue_), 0U);
  queue_ = nullptr;
}

TEST_F(VolumeTest, WrongArgumentsAreRefused) {
  const auto refused = [&](const std::string& text, const remora_volume_options* options) {
    return remora_engine_open_volume(engine_, text.c_str(), options, &volume_, &error_);
  };
  EXPECT_EQ(remora_engine_open_volume(nullptr, "", nullptr, &volume_, &error_),
            REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(remora_engine_open_volume(engine_, nullptr, nullptr, &volume_, &error_),
            REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(refused("remora://127.0.0.1/disk", nullptr), REMORA_INVALID_ARGUMENT);
  EXPECT_THAT(error_.message, HasSubstr("remora+file:///PATH/NAME.json"));
  EXPECT_EQ(refused(cluster_uri(), nullptr), REMORA_INVALID_ARGUMENT);
  EXPECT_EQ(refused(cluster_uri() + "/other", nullptr), REMORA_NOT_FOUND);
  EXPECT_THAT(error_.message, HasSubstr("remora volume ls"));
  remora_volume_options options{};
  EXPECT_EQ(refused(uri(), &options), REMORA_INVALID_ARGUMENT);  // no size
  options.size = sizeof(options);
  options.rights = REMORA_RIGHT_ALL + 1;
  EXPECT_EQ(refused(uri(), &options), REMORA_INVALID_ARGUMENT);
  options.rights = 0;
  options.partial = 2;
  EXPECT_EQ(refused(uri(), &options), REMORA_INVALID_ARGUMENT);
  options.partial = 0;
  options.transport = REMORA_TRANSPORT_TCP + 1;
  EXPECT_EQ(refused(uri(), &options), REMORA_INVALID_ARGUMENT);
  options.transport = REMORA_TRANSPORT_SHM;
  EXPECT_EQ(refused(uri(), &options), REMORA_UNSUPPORTED);
  EXPECT_EQ(volume_, nullptr);
  EXPECT_EQ(remora_volume_size_bytes(nullptr), 0U);
  EXPECT_EQ(remora_volume_connected(nullptr), 0);
  remora_volume_free(nullptr);
}

TEST_F(VolumeTest, RightsAreThoseThatWereAskedFor) {
  remora_volume_options options = no_options();
  options.rights = REMORA_RIGHT_READ;
  options.transport = REMORA_TRANSPORT_TCP;
  ASSERT_EQ(open(&options), REMORA_OK) << error_.message;
  std::array<unsigned char, 8> bytes{};
  EXPECT_EQ(remora_volume_write(volume_, 0, bytes.data(), bytes.size(), nullptr, 0, &error_),
            REMORA_NO_RIGHT);
  EXPECT_EQ(remora_volume_read(volume_, 0, bytes.data(), bytes.size(), nullptr, 0, &error_),
            REMORA_OK);
}

struct Events {
  int count = 0;
  int change = 0;
  std::string server;
};
void on_event(void* context, const remora_volume_event* event) {
  auto& events = *static_cast<Events*>(context);
  ++events.count;
  events.change = event->change;
  events.server = event->server;
}

TEST_F(VolumeTest, PartialOpensWhatIsThereAndReportsTheRest) {
  stop(1);
  EXPECT_NE(open(), REMORA_OK);
  EXPECT_THAT(error_.message, HasSubstr("member s1"));
  Events events;
  remora_volume_options options = no_options();
  options.on_event = on_event;
  options.event_context = &events;
  options.partial = 1;
  ASSERT_EQ(open(&options), REMORA_OK) << error_.message;
  EXPECT_EQ(events.count, 1);
  EXPECT_EQ(events.change, REMORA_VOLUME_GROUP_UNREACHABLE);
  EXPECT_EQ(events.server, "s1");
  EXPECT_EQ(remora_volume_connected(volume_), 0);
  std::array<remora_volume_group, kServers> groups{};
  std::size_t count = 0;
  ASSERT_EQ(remora_volume_groups(volume_, groups.data(), groups.size(), &count, &error_),
            REMORA_OK);
  std::array<unsigned char, 8> bytes{};
  for (const remora_volume_group& group : groups) {
    const bool absent = group.server == std::string{"s1"};
    EXPECT_EQ(group.transport, absent ? REMORA_TRANSPORT_AUTO : REMORA_TRANSPORT_TCP);
    EXPECT_EQ(group.error[0] != '\0', absent);
    const int code = remora_volume_read(volume_, group.index * kStripe, bytes.data(), bytes.size(),
                                        nullptr, 0, &error_);
    EXPECT_EQ(code != REMORA_OK, absent) << error_.message;
  }
}

TEST_F(VolumeTest, ChildOfForkIsRefused) {
  open_queue(4);
  const pid_t child = ::fork();
  if (child == 0) {
    std::array<unsigned char, 8> bytes{};
    remora_completion completion{};
    std::size_t count = 0;
    const bool refused =
        remora_volume_read(volume_, 0, bytes.data(), bytes.size(), nullptr, 0, &error_) ==
            REMORA_CLOSED &&
        error_.reason == REMORA_REASON_FORKED &&
        remora_queue_read(queue_, 0, bytes.data(), bytes.size(), nullptr, 0) == 0 &&
        remora_queue_submit(queue_, &error_) == REMORA_CLOSED &&
        remora_queue_wait(queue_, 1, &completion, 1, &count, &error_) == REMORA_CLOSED &&
        error_.reason == REMORA_REASON_FORKED;
    ::_exit(refused ? 0 : 1);
  }
  int status = 1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace remora::test
