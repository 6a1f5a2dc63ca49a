#include "conformance_test.h"

#include <algorithm>
#include <chrono>
#include <gmock/gmock.h>
#include <thread>
#include <unistd.h>

#include "support/eventually.h"

namespace remora::test {
namespace {

/// What libraries make once and keep is made before the first baseline is taken.
void warm_up(const Engine& engine, const std::string& uri, const RegionSpec& spec) {
  const Session session = engine.connect(uri).value();
  session.create_region(spec).value();
  const std::size_t query = uri.find('?');
  {
    const Region region =
        engine.open_region(uri.substr(0, query) + "/" + spec.name + uri.substr(query), Rights::kAll)
            .value();
    std::vector<std::byte> bytes = noise(spec.size_bytes, 1);
    region.write(ByteOffset{0}, bytes).value();
    region.read(ByteOffset{0}, bytes).value();
    region.fetch_add(ByteOffset{0}, 1).value();
  }
  session.remove_region(spec.name).value();
}

}  // namespace

RuntimeDir& runtime_dir() {
  static RuntimeDir folder;
  return folder;
}

std::string make_uri(const ServerAddress& address, TransportKind transport,
                     std::string_view region) {
  std::string text = "remora://" + address.host + ":" + std::to_string(address.port);
  if (!region.empty()) text.append("/").append(region);
  return text.append("?transport=").append(to_string(transport));
}

EngineOptions patient_options() {
  EngineOptions options;
  options.client_name = "conformance";
  options.operation_deadline = 30s;
  options.control_deadline = 30s;
  return options;
}

Engine open_engine() { return Engine::open(patient_options()).value(); }

std::string transport_name(const testing::TestParamInfo<TransportKind>& info) {
  return std::string{to_string(info.param)};
}

std::vector<std::byte> read_all(const Region& region) {
  std::vector<std::byte> bytes(region.size_bytes());
  region.read(ByteOffset{0}, bytes).value();
  return bytes;
}

void ConformanceTest::SetUp() {
  if (is_left_out(transport())) return;
  const auto elsewhere = external_server();
  if (elsewhere && needs_own_server())
    GTEST_SKIP() << "needs a server in this process, the one under test runs elsewhere";
  runtime_dir();
  // Once for each transport and process.
  static std::vector<TransportKind> warm;
  if (std::find(warm.begin(), warm.end(), transport()) == warm.end()) {
    connect();
    warm_up(*engine_, uri(), spec("warm-up-" + std::to_string(::getpid())));
    end_server();
    warm.push_back(transport());
  }
  baseline_ = Resources::settled();
  connect();
}

void ConformanceTest::connect() {
  if (const auto elsewhere = external_server()) {
    address_ = *elsewhere;
  } else if (server_in_other_process()) {
    process_.emplace(transport(), server_options());
    address_ = {listen_address(transport()), process_->port()};
  } else {
    config::ServerConfig config = server_config(transport(), server_options());
    configure(config);
    server_ = Server::start(config).value();
    address_ = {listen_address(transport()), server_->port()};
  }
  EngineOptions options = patient_options();
  configure_engine(options);
  engine_ = Engine::open(options).value();
  session_ = engine_->connect(uri()).value();
}

void ConformanceTest::TearDown() {
  if (!baseline_) return;
  if (session_ && session_->connected()) {
    for (const std::string& name : created_) {
      Status removed = session_->remove_region(name);
      // Of another session, which the server is about to notice the end of.
      for (int i = 0; i < 6000 && !removed && removed.error().code() == Code::kBusy; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds{10});
        removed = session_->remove_region(name);
      }
      // The test has stopped its server, and the session is about to hear of it.
      if (!removed && removed.error().code() == Code::kConnectionLost &&
          eventually([&] { return !session_->connected(); }))
        break;
      EXPECT_TRUE(ok(removed)) << name;
    }
  }
  session_.reset();
  engine_.reset();
  if (server_) check_idle();
  end_server();
  EXPECT_TRUE(back_at(*baseline_));
  if (!killed_) {
    EXPECT_THAT(runtime_dir().entries(), testing::IsEmpty());
  }
  runtime_dir().clear();
}

/// The server notices clients that have gone by itself. A session that has ended is none any more
/// before its grants have been taken back.
void ConformanceTest::check_idle() {
  EXPECT_TRUE(eventually([&] { return server_->status().sessions == 0; }, 60s))
      << server_->status().sessions << " sessions are left";
  EXPECT_TRUE(eventually([&] { return server_->status().grants == 0; }, 60s))
      << server_->status().grants << " grants are left";
}

void ConformanceTest::end_session() {
  session_.reset();
  engine_.reset();
}

void ConformanceTest::end_server() {
  end_session();
  if (server_) server_->stop();
  server_.reset();
  if (process_ && !killed_) {
    EXPECT_EQ(process_->stop(), 0) << "the server process did not end well";
  }
  process_.reset();
}

std::vector<std::uint64_t> drain(Queue& queue) {
  std::vector<std::uint64_t> tags;
  EXPECT_TRUE(ok(queue.submit()));
  while (queue.size() != 0) {
    const Completions found = queue.wait(queue.size());
    EXPECT_FALSE(found.empty());
    if (found.empty()) break;
    for (const Completion& completion : found) {
      EXPECT_TRUE(completion.ok()) << completion.error();
      tags.push_back(completion.tag());
    }
  }
  return tags;
}

void ConformanceTest::kill_server() {
  killed_ = true;
  if (process_) return process_->kill();
  const char* command = std::getenv("REMORA_TEST_KILL");
  ASSERT_NE(command, nullptr);
  ASSERT_EQ(std::system(command), 0) << command;
}

void ConformanceTest::restart_server() {
  ServerOptions options = server_options();
  options.port = address_.port;
  process_.reset();
  process_.emplace(transport(), options);
  created_.clear();
  killed_ = false;
}

std::string ConformanceTest::uri(std::string_view region) const {
  return make_uri(address_, transport(), region);
}

std::string ConformanceTest::unique_name() {
  return "t" + std::to_string(::getpid()) + "." + std::to_string(names_++);
}

RegionSpec ConformanceTest::spec(std::string name, const RegionOptions& options) const {
  return {.name = std::move(name),
          .size_bytes = options.size_bytes,
          .block_bytes = options.block_bytes,
          .rights = options.rights,
          .atomic_domain = options.atomic_domain,
          .shm = over_shm()};
}

RegionInfo ConformanceTest::create(const RegionOptions& options) {
  RegionInfo made = session_->create_region(spec(unique_name(), options)).value();
  created_.push_back(made.name);
  return made;
}

Region ConformanceTest::open(const std::string& name, Rights rights) {
  return engine_->open_region(uri(name), rights).value();
}

Region ConformanceTest::make_region(const RegionOptions& options) {
  const RegionInfo made = create(options);
  return open(made.name, made.rights);
}

void ConformanceTest::forget(const std::string& name) {
  created_.erase(std::remove(created_.begin(), created_.end(), name), created_.end());
}

}  // namespace remora::test
