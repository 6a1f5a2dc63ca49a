// libremora.so.0 twice in one process, beside an application's own use of protobuf, oneTBB and
// spdlog.

#include <array>
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sstream>
#include <string>
#include <tbb/parallel_for.h>
#include <unistd.h>

#include <remora/remora_c.h>

#include "control.pb.h"
#include "support/c_error.h"
#include "support/runtime_dir.h"

namespace remora::test {
namespace {

/// A copy of the library, loaded for itself alone.
class Library {
 public:
  explicit Library(const std::string& file)
      : handle_{::dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL)} {
    if (handle_ == nullptr) ADD_FAILURE() << ::dlerror();
  }
  template <typename Function>
  [[nodiscard]] Function* get(const char* name) const {
    auto* const found = reinterpret_cast<Function*>(::dlsym(handle_.get(), name));
    if (found == nullptr) ADD_FAILURE() << name;
    return found;
  }

 private:
  struct Close {
    void operator()(void* handle) const noexcept { ::dlclose(handle); }
  };
  std::unique_ptr<void, Close> handle_;
};
#define GET(library, function) ((library).get<decltype(function)>(#function))

/// What the application does with the same third parties.
void use_own() {
  storage::control::Envelope message;
  message.set_id("the application's");
  storage::control::Envelope back;
  ASSERT_TRUE(back.ParseFromString(message.SerializeAsString()));
  EXPECT_EQ(back.id(), "the application's");
  std::atomic<int> sum{0};
  tbb::parallel_for(0, 1000, [&](int i) { sum += i; });
  EXPECT_EQ(sum, 499'500);
  std::ostringstream lines;
  spdlog::logger logger{"own", std::make_shared<spdlog::sinks::ostream_sink_st>(lines)};
  logger.set_pattern("%v");
  logger.warn("{} lines", 1);
  EXPECT_EQ(lines.str(), "1 lines\n");
}

remora_server* start(const Library& library) {
  remora_server* server = nullptr;
  remora_error error = no_error();
  EXPECT_EQ(GET(library, remora_server_start_text)(
                "listen: {port: 0}\ntransports: {rdma: off}\n"
                "pool: {size: 4MiB, huge_pages: never}\n"
                "regions:\n  - {name: demo, size: 64KiB, shm: true}\nauth: none\n",
                nullptr, &server, nullptr, &error),
            REMORA_OK)
      << error.message;
  return server;
}

/// Adds 1 to a word of the server's region; its value before.
std::uint64_t add(const Library& library, std::uint16_t port, const char* transport) {
  remora_error error = no_error();
  remora_engine* engine = nullptr;
  remora_region* region = nullptr;
  std::uint64_t before = 99;
  const std::string uri =
      "remora://127.0.0.1:" + std::to_string(port) + "/demo?transport=" + transport;
  EXPECT_EQ(GET(library, remora_engine_open)(nullptr, &engine, &error), REMORA_OK) << error.message;
  EXPECT_EQ(GET(library, remora_engine_open_region)(engine, uri.c_str(), REMORA_RIGHT_ALL, &region,
                                                    &error),
            REMORA_OK)
      << error.message;
  EXPECT_EQ(GET(library, remora_region_fetch_add)(region, 0, 1, &before, 0, &error), REMORA_OK)
      << error.message;
  GET(library, remora_region_free)(region);
  GET(library, remora_engine_free)(engine);
  return before;
}

class CCopiesTest : public testing::Test {
 protected:
  CCopiesTest() : second_file_{runtime_dir_.path() + "/libremora-copy.so"} {
    std::filesystem::copy_file(LIBREMORA, second_file_);
  }
  ~CCopiesTest() override { std::filesystem::remove(second_file_); }
  const RuntimeDir runtime_dir_;
  const std::string second_file_;
};

TEST_F(CCopiesTest, TwoServeAndUseEachOther) {
  use_own();
  const Library first{LIBREMORA};
  const Library second{second_file_};
  ASSERT_NE(reinterpret_cast<void*>(GET(first, remora_engine_open)),
            reinterpret_cast<void*>(GET(second, remora_engine_open)));
  remora_server* const of_first = start(first);
  remora_server* const of_second = start(second);
  const std::uint16_t first_port = GET(first, remora_server_port)(of_first);
  const std::uint16_t second_port = GET(second, remora_server_port)(of_second);
  std::uint64_t adds = 0;
  for (const char* transport : {"tcp", "shm"}) {
    EXPECT_EQ(add(first, second_port, transport), adds);
    EXPECT_EQ(add(second, first_port, transport), adds);
    use_own();
    ++adds;
  }
  GET(first, remora_server_free)(of_first);
  EXPECT_EQ(add(first, second_port, "tcp"), adds);
  GET(second, remora_server_free)(of_second);
  use_own();
}

// Nothing of it is the application's: neither its symbols nor its loggers.
TEST_F(CCopiesTest, ApplicationSeesNothingOfIt) {
  const Library library{LIBREMORA};
  EXPECT_EQ(::dlsym(RTLD_DEFAULT, "remora_engine_open"), nullptr);
  remora_server* const server = start(library);
  EXPECT_EQ(add(library, GET(library, remora_server_port)(server), "tcp"), 0U);
  spdlog::apply_all([](const std::shared_ptr<spdlog::logger>& logger) {
    EXPECT_EQ(logger->name().find("remora"), std::string::npos) << logger->name();
  });
  GET(library, remora_server_free)(server);
}

TEST_F(CCopiesTest, OneIsUnloadedAndLoadedAgain) {
  const Library first{LIBREMORA};
  remora_server* const server = start(first);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const Library second{second_file_};
    EXPECT_EQ(add(second, GET(first, remora_server_port)(server), "shm"), i);
    use_own();
  }
  GET(first, remora_server_free)(server);
}

}  // namespace
}  // namespace remora::test
