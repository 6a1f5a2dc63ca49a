// Writes the seeds of control_fuzz, authentication_fuzz and tcp_frames_fuzz: whole conversations of
// the kind that clients and servers have, as their inputs spell them. And those of
// volume_records_fuzz: records as clients write them.
//
//   build/fuzz/tests/fuzz/make_corpus tests/fuzz/corpus

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <utility>

#include <remora/volume/cluster.h>
#include <remora/volume/records.h>

#include "file_contents.h"
#include "protocol/messages.h"
#include "script.h"

namespace remora::fuzz {
namespace {

using control::Envelope;
using control::Request;

std::string asked(const std::function<void(Request&)>& fill) {
  Envelope envelope;
  envelope.set_magic(control::kMagic);
  fill(*envelope.mutable_request());
  return envelope.SerializeAsString();
}
std::string answered(const std::function<void(control::Reply&)>& fill) {
  Envelope envelope;
  envelope.set_magic(control::kMagic);
  envelope.set_id(1);
  fill(*envelope.mutable_reply());
  return envelope.SerializeAsString();
}

std::string hello(std::uint32_t newest = 2, std::uint64_t resumes = 0) {
  return asked([&](Request& request) {
    control::Hello& hello = *request.mutable_hello();
    hello.set_version_oldest(1);
    hello.set_version_newest(newest);
    hello.set_auth(control::AUTH_NONE);
    hello.set_client_name("client");
    hello.set_comes_back(newest >= 2);
    if (resumes != 0) hello.mutable_resume()->set_session_id(resumes);
  });
}
std::string create(const std::string& name, std::uint64_t size,
                   control::Lifetime lifetime = control::LIFETIME_PERSISTENT) {
  return asked([&](Request& request) {
    control::Region& region = *request.mutable_create()->mutable_region();
    region.set_name(name);
    region.set_size_bytes(size);
    region.set_block_bytes(4096);
    region.set_rights(7);
    region.set_atomic_domain("auto");
    region.set_lifetime(lifetime);
  });
}
std::string open(const std::string& name) {
  return asked([&](Request& request) {
    request.mutable_open()->set_name(name);
    request.mutable_open()->set_rights(7);
  });
}
std::string fence(const std::string& name) {
  return asked([&](Request& request) {
    request.mutable_fence()->set_name(name);
    request.mutable_fence()->set_rights(7);
  });
}
std::string remove(const std::string& name, control::Removal removal) {
  return asked([&](Request& request) {
    request.mutable_remove()->set_name(name);
    request.mutable_remove()->set_removal(removal);
  });
}
std::string acknowledge(std::uint64_t event) {
  return asked([&](Request& request) { request.mutable_event_ack()->set_event_id(event); });
}
std::string close(std::uint64_t grant) {
  return asked([&](Request& request) { request.mutable_close()->set_grant_id(grant); });
}
/// One request of each other kind.
std::vector<std::string> others() {
  return {asked([](Request& r) { r.mutable_ping(); }),
          asked([](Request& r) { r.mutable_usage(); }),
          asked([](Request& r) { r.mutable_list(); }),
          asked([](Request& r) { r.mutable_stat()->set_name("r"); }),
          asked([](Request& r) { r.mutable_extents()->set_grant_id(1); }),
          asked([](Request& r) { r.mutable_grant_state()->set_grant_id(1); }),
          asked([](Request& r) {
            r.mutable_notify()->set_grant_id(1);
            r.mutable_notify()->set_length_bytes(8);
          }),
          asked([](Request& r) {
            r.mutable_resize()->set_name("r");
            r.mutable_resize()->set_size_bytes(16384);
          }),
          asked([](Request& r) { r.mutable_sessions(); }),
          asked([](Request& r) { r.mutable_end_session()->set_session_id(1); }),
          asked([](Request& r) { r.mutable_drain()->set_drain(control::DRAIN_BEGIN); }),
          asked([](Request& r) { r.mutable_drain()->set_drain(control::DRAIN_END); }),
          asked([](Request& r) { r.mutable_goodbye(); })};
}

/// A step of the client `number`: 4 is any kind of step but its hanging up.
Step by(unsigned number, std::string bytes) {
  return {.what = static_cast<std::uint8_t>(4 + number), .bytes = std::move(bytes)};
}
Step hangs_up(unsigned number) { return {.what = static_cast<std::uint8_t>(number), .bytes = {}}; }

class Corpus {
 public:
  explicit Corpus(std::filesystem::path folder) : folder_{std::move(folder)} {}

  void put(const std::string& fuzzer, const std::string& name, const std::string& bytes) {
    const auto folder = folder_ / fuzzer;
    std::filesystem::create_directories(folder);
    std::ofstream file{folder / ("seed-" + name), std::ios::binary};
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    if (!file) failed_ = true;
  }
  void put(const std::string& fuzzer, const std::string& name, const Script& script) {
    put(fuzzer, name, script.text());
  }
  [[nodiscard]] bool failed() const noexcept { return failed_; }

 private:
  std::filesystem::path folder_;
  bool failed_ = false;
};

void server_seeds(Corpus& corpus) {
  const char* const fuzzer = "control_fuzz";
  Script each{.mode = 0, .flags = 0, .steps = {by(0, hello()), by(0, create("r", 300000))}};
  each.steps.push_back(by(0, open("r")));
  for (std::string& other : others()) each.steps.push_back(by(0, std::move(other)));
  corpus.put(fuzzer, "server-each-request", each);
  corpus.put(fuzzer, "server-version-1",
             {.mode = 0,
              .flags = 0,
              .steps = {by(0, hello(1)), by(0, create("r", 8192)), by(0, open("r")),
                        by(0, close(1)), by(0, remove("r", control::REMOVAL_IF_UNUSED))}});
  corpus.put(fuzzer, "server-fence",
             {.mode = 0,
              .flags = 0,
              .steps = {by(0, hello()), by(1, hello()), by(0, create("r", 8192)), by(0, open("r")),
                        by(1, open("r")), by(0, fence("r")), by(1, open("r")),
                        by(0, acknowledge(1)), by(1, acknowledge(1)), by(1, fence("r"))}});
  corpus.put(
      fuzzer, "server-fence-and-leave",
      {.mode = 0,
       .flags = 0,
       .steps = {by(0, hello()), by(1, hello()), by(0, create("r", 8192)), by(0, open("r")),
                 by(1, fence("r")), by(2, hello()), by(2, fence("r")), hangs_up(1), hangs_up(0)}});
  corpus.put(
      fuzzer, "server-removals",
      {.mode = 0,
       .flags = 0,
       .steps = {by(0, hello()), by(0, create("r", 8192)),
                 by(0, create("s", 8192, control::LIFETIME_SESSION)),
                 by(0, create("t", 8192, control::LIFETIME_TTL)), by(0, open("r")), by(1, hello()),
                 by(1, open("s")), by(1, remove("r", control::REMOVAL_WHEN_UNUSED)),
                 by(1, create("r", 4096)), by(1, remove("r", control::REMOVAL_NOW)), hangs_up(0)}});
  corpus.put(fuzzer, "server-resume",
             {.mode = 0,
              .flags = 0,
              .steps = {by(0, hello()), by(0, create("r", 8192)), by(0, open("r")), hangs_up(0),
                        by(1, hello(2, 1)), by(1, close(1)), by(2, hello(2, 1))}});
  corpus.put(fuzzer, "server-resume-amid-fence",
             {.mode = 0,
              .flags = 0,
              .steps = {by(0, hello()), by(1, hello()), by(0, create("r", 8192)), by(0, open("r")),
                        by(1, fence("r")), by(2, hello(2, 1)), by(2, acknowledge(1))}});
  corpus.put(fuzzer, "server-too-many",
             {.mode = 0,
              .flags = 0,
              .steps = {by(0, hello()), by(1, hello()), by(2, hello()), by(3, hello()),
                        by(0, create("r", std::uint64_t{1} << 40U)), by(0, create("a/b", 4096)),
                        by(0, create("r", 2097152)), by(1, create("s", 4096))}});
}

void client_seeds(Corpus& corpus) {
  const char* const fuzzer = "control_fuzz";
  for (std::uint8_t first = 0; first < 8; ++first)
    corpus.put(fuzzer, "client-calls-" + std::to_string(first),
               {.mode = static_cast<std::uint8_t>(2 + 4 * first), .flags = 0, .steps = {}});
  const std::string paged = answered([](control::Reply& reply) {
    reply.mutable_open()->mutable_region()->set_extent_count(4);
    reply.mutable_open()->mutable_region()->set_size_bytes(16384);
  });
  const std::string nothing = answered([](control::Reply& reply) { reply.mutable_hello(); });
  corpus.put(fuzzer, "client-extents-in-pages",
             {.mode = 2, .flags = 0, .steps = {{2, nothing}, {2, paged}}});
  // Lengths that come to the region's size by going round.
  const std::string round = answered([](control::Reply& reply) {
    control::OpenReply& open = *reply.mutable_open();
    open.mutable_region()->set_extent_count(4);
    for (int i = 0; i < 2; ++i) open.add_extents()->set_length_bytes(std::uint64_t{1} << 63U);
  });
  corpus.put(fuzzer, "client-extents-round",
             {.mode = 2, .flags = 0, .steps = {{2, nothing}, {2, round}}});
  Envelope event;
  event.set_magic(control::kMagic);
  event.set_id(1);
  event.mutable_event()->set_id(1);
  event.mutable_event()->mutable_revoking()->set_grant_id(3);
  event.mutable_event()->mutable_revoking()->set_reason(1);
  corpus.put(fuzzer, "client-revoked",
             {.mode = 2, .flags = 0, .steps = {{2, nothing}, {5, event.SerializeAsString()}}});
  const std::string failure = answered([](control::Reply& reply) {
    reply.mutable_failure()->set_code(8);
    reply.mutable_failure()->set_subject("r");
  });
  corpus.put(fuzzer, "client-comes-back",
             {.mode = 2, .flags = 1, .steps = {{2, nothing}, {4, failure}, {0, nothing}}});
  corpus.put(fuzzer, "messages", {.mode = 3, .flags = 0, .steps = {{0, paged}, {0, failure}}});
}

void authentication_seeds(Corpus& corpus) {
  const char* const fuzzer = "authentication_fuzz";
  for (std::uint8_t key = 0; key < 4; ++key)
    corpus.put(fuzzer, "between-key-" + std::to_string(key),
               {.mode = 0, .flags = key, .steps = {}});
  const std::string old = asked([](Request& request) {
    request.mutable_hello()->set_version_newest(1);
    request.mutable_hello()->set_auth(control::AUTH_NONE);
  });
  for (std::size_t at = 0; at < 4; ++at)
    for (const unsigned what : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 9U, 10U}) {
      Script script{.mode = 0, .flags = 0, .steps = std::vector<Step>(at)};
      script.steps.push_back({static_cast<std::uint8_t>(what), what == 10 ? old : "\x11\x00\x01"});
      corpus.put(fuzzer, "between-" + std::to_string(at) + "-" + std::to_string(what), script);
    }
  for (std::uint8_t flags = 0; flags < 8; ++flags) {
    Script script{.mode = 2, .flags = flags, .steps = {}};
    script.steps.push_back({static_cast<std::uint8_t>(flags == 2 ? 10 : 2), hello()});
    script.steps.push_back({0, ""});
    corpus.put(fuzzer, "stranger-" + std::to_string(flags), script);
  }
  for (const unsigned flags : {0U, 1U, 5U, 4U})
    corpus.put(fuzzer, "false-server-" + std::to_string(flags),
               {.mode = 3, .flags = static_cast<std::uint8_t>(flags), .steps = {{1, ""}, {1, ""}}});
  corpus.put(fuzzer, "false-server-own-nonce",
             {.mode = 3, .flags = 0, .steps = {{7, ""}, {1, ""}}});
  corpus.put(fuzzer, "false-server-own-proof",
             {.mode = 3, .flags = 0, .steps = {{1, ""}, {17, ""}}});
}

/// Little-endian, as Input reads it.
class Tape {
 public:
  explicit Tape(std::initializer_list<unsigned> bytes) { add(bytes); }
  Tape& add(std::initializer_list<unsigned> bytes) {
    for (const unsigned byte : bytes) text_ += static_cast<char>(byte);
    return *this;
  }
  /// A request of tcp_server_lane.cc: which extent, how spoilt, opcode, place, length / 33.
  Tape& request(unsigned extent, unsigned how, unsigned code, unsigned into, unsigned length) {
    return add({0, extent, how, code, into & 255U, into >> 8U, length, 1, 2, 3});
  }
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

void tcp_seeds(Corpus& corpus) {
  const char* const fuzzer = "tcp_frames_fuzz";
  for (unsigned flags = 0; flags < 4; ++flags) {
    Tape server{6, flags};
    for (unsigned code = 0; code < 6; ++code) server.request(0, 0, code, 64 * code, 3 + code);
    server.add({5, 0, 4, 7, 4}).request(1, 1, 1, 40, 1).request(0, 0, 0, 0, 200).add({7, 1});
    server.request(0, 0, 0x81, 8, 100).request(2, 0, 0, 16, 4).add({6, 40, 7, 0, 8, 0, 1});
    server.request(3, 0, 1, 0, 9).add({9, 1, 2}).request(2, 0, 1, 0, 1);
    corpus.put(fuzzer, "server-" + std::to_string(flags), server.text());
    Tape client{4, flags};
    client.add({0, 3, 0, 9, 0, 0, 0, 7, 1, 9, 0, 0, 0, 7, 2, 0, 0, 0, 0, 3, 0, 0, 0, 0});
    client.add({8, 255, 1, 3, 0, 6, 255, 0, 2, 3, 8, 6, 99, 0, 2, 4, 16, 6, 255, 0, 2});
    client.add({0, 1, 0x80, 200, 40, 0, 0, 0, 7, 0x81, 200, 40, 0, 0, 0, 7, 8, 255, 255});
    client.add({3, 8, 6, 255, 255, 2, 3, 1, 5, 0, 6, 255, 255, 2});
    corpus.put(fuzzer, "client-" + std::to_string(flags), client.text());
  }
  corpus.put(fuzzer, "control-channel",
             Tape{3, 0, 20, 0, 7, 4, 1, 2, 3, 4, 99, 0, 2, 60, 0, 3, 0, 0, 1, 9, 0, 200, 0, 3}
                 .add({2, 255, 255, 3})
                 .text());
  corpus.put(fuzzer, "introduction",
             Tape{0, 'R', 'M', 'R', 'T', 1, 1, 1, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9}.text());
  corpus.put(fuzzer, "welcome", Tape{1, 'R', 'M', 'R', 'T', 1, 0, 0, 0}.text());
}

void volume_seeds(Corpus& corpus) {
  const char* const fuzzer = "volume_records_fuzz";
  volume::ServerRecord server{.name = "s1",
                              .addresses = {"192.0.2.7:7471", "[2001:db8::7]:7471"},
                              .boot_id = 1,
                              .memory_id = 2,
                              .pool_bytes = std::uint64_t{1} << 40U,
                              .pool_free_bytes = std::uint64_t{1} << 30U,
                              .failure_domain = "rack1",
                              .software = "0.1.0"};
  corpus.put(fuzzer, "server", volume::to_json(server));
  volume::VolumeRecord striped;
  striped.name = "disk";
  striped.id = 3;
  striped.size_bytes = std::uint64_t{6} << 20U;
  striped.block_bytes = 4096;
  striped.group_bytes = std::uint64_t{1} << 20U;
  striped.width = 3;
  striped.nonce = 4;
  corpus.put(fuzzer, "striped", volume::to_json(striped));
  volume::VolumeRecord mirror = striped;
  mirror.kind = volume::Kind::kMirror;
  mirror.copies = 2;
  mirror.state = volume::VolumeState::kCreating;
  mirror.writer_epoch = 7;
  mirror.writer = "client-1";
  mirror.exclusive = mirror.allow_same_domain = true;
  corpus.put(fuzzer, "mirror", volume::to_json(mirror));
  volume::GroupRecord group;
  group.index = 5;
  group.generation = 6;
  group.members = {
      {"s1", server.addresses, 2, volume::region_name(3, 5, 8), 9, volume::MemberState::kInSync},
      {"s2", {"host:1"}, 10, volume::region_name(3, 5, 11), 12, volume::MemberState::kSyncing}};
  group.nonce = 13;
  corpus.put(fuzzer, "group", volume::to_json(group));
  group.members.clear();
  group.promoting = group.lost = group.restored = true;
  corpus.put(fuzzer, "group-lost", volume::to_json(group));
  corpus.put(fuzzer, "generation", volume::generation_json(6));
  volume::FileContents file;
  file.revision = 2;
  file.entries["/remora/local/generation"] = {volume::generation_json(6), 1, volume::kNoLease};
  file.entries["/remora/local/servers/s1"] = {volume::to_json(server), 2, 14};
  file.leases[14] = {10, 1000, "boot"};
  corpus.put(fuzzer, "file", file.to_json());
}

}  // namespace
}  // namespace remora::fuzz

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_corpus FOLDER\n");
    return 2;
  }
  remora::fuzz::Corpus corpus{argv[1]};
  remora::fuzz::server_seeds(corpus);
  remora::fuzz::client_seeds(corpus);
  remora::fuzz::authentication_seeds(corpus);
  remora::fuzz::tcp_seeds(corpus);
  remora::fuzz::volume_seeds(corpus);
  if (corpus.failed()) std::fprintf(stderr, "make_corpus: cannot write below %s\n", argv[1]);
  return corpus.failed() ? 1 : 0;
}
