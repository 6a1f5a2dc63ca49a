// Two plugins in one process, each with the whole library linked statically.

#include <array>
#include <dlfcn.h>
#include <filesystem>
#include <gtest/gtest.h>
#include <memory>
#include <string>

#include "copy.h"
#include "support/runtime_dir.h"

namespace remora::test {
namespace {

class Plugin {
 public:
  /// `flags`: of dlopen(3).
  Plugin(const std::string& file, int flags) : file_{file} {
    handle_.reset(::dlopen(file.c_str(), RTLD_NOW | flags));
    if (handle_ == nullptr) ADD_FAILURE() << ::dlerror();
  }

  [[nodiscard]] const std::string& file() const noexcept { return file_; }
  template <typename Function>
  [[nodiscard]] Function* call(const char* name) const {
    return reinterpret_cast<Function*>(::dlsym(handle_.get(), name));
  }

 private:
  struct Close {
    void operator()(void* handle) const noexcept { ::dlclose(handle); }
  };
  std::string file_;
  std::unique_ptr<void, Close> handle_;
};

std::string text(const char* error) { return error == nullptr ? "ok" : error; }

class CopiesTest : public testing::TestWithParam<int> {
 protected:
  const RuntimeDir runtime_dir_;
};

TEST_P(CopiesTest, EachOpensSessionsWithOneServer) {
  const Plugin first{COPY_FIRST, GetParam()};
  const Plugin second{COPY_SECOND, GetParam()};
  unsigned short port = 0;
  ASSERT_EQ(text(first.call<decltype(copy_start_server)>("copy_start_server")(&port)), "ok");
  for (const char* transport : {"tcp", "shm"}) {
    SCOPED_TRACE(transport);
    EXPECT_EQ(text(first.call<decltype(copy_exchange)>("copy_exchange")(port, transport, 1, 0)),
              "ok");
    EXPECT_EQ(text(second.call<decltype(copy_exchange)>("copy_exchange")(port, transport, 2, 1)),
              "ok");
    EXPECT_EQ(text(first.call<decltype(copy_exchange)>("copy_exchange")(port, transport, 3, 2)),
              "ok");
  }
  first.call<decltype(copy_stop_server)>("copy_stop_server")();
}

TEST_P(CopiesTest, EachServes) {
  const Plugin first{COPY_FIRST, GetParam()};
  const Plugin second{COPY_SECOND, GetParam()};
  const std::array plugins{&first, &second};
  std::array<unsigned short, 2> ports{};
  for (std::size_t i = 0; i < 2; ++i)
    ASSERT_EQ(text(plugins[i]->call<decltype(copy_start_server)>("copy_start_server")(&ports[i])),
              "ok");
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(
        text(plugins[i]->call<decltype(copy_exchange)>("copy_exchange")(ports[1 - i], "shm", 1, 0)),
        "ok");
  for (const Plugin* plugin : plugins)
    plugin->call<decltype(copy_stop_server)>("copy_stop_server")();
}

// They may be of two versions of the library: neither runs the other's code.
TEST_P(CopiesTest, EachRunsItsOwnCode) {
  const Plugin first{COPY_FIRST, GetParam()};
  const Plugin second{COPY_SECOND, GetParam()};
  for (const Plugin* plugin : {&first, &second})
    EXPECT_TRUE(std::filesystem::equivalent(plugin->call<decltype(copy_file)>("copy_file")(),
                                            plugin->file()))
        << plugin->file();
}

// A plugin can be used, unloaded, and loaded again.
TEST_P(CopiesTest, OneIsUnloadedWhileTheOtherServes) {
  const Plugin first{COPY_FIRST, GetParam()};
  unsigned short port = 0;
  ASSERT_EQ(text(first.call<decltype(copy_start_server)>("copy_start_server")(&port)), "ok");
  for (int i = 0; i < 3; ++i) {
    const Plugin second{COPY_SECOND, GetParam()};
    for (const char* transport : {"tcp", "shm"})
      EXPECT_EQ(text(second.call<decltype(copy_exchange)>("copy_exchange")(port, transport, 2, 0)),
                "ok");
  }
  EXPECT_EQ(text(first.call<decltype(copy_exchange)>("copy_exchange")(port, "shm", 1, 2)), "ok");
  first.call<decltype(copy_stop_server)>("copy_stop_server")();
}

INSTANTIATE_TEST_SUITE_P(All, CopiesTest, testing::Values(RTLD_LOCAL, RTLD_GLOBAL),
                         [](const testing::TestParamInfo<int>& flags) {
                           return std::string{flags.param == RTLD_LOCAL ? "Local" : "Global"};
                         });

}  // namespace
}  // namespace remora::test
