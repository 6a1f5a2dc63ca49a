#pragma once

/// A server and a client of the C API, for tests that give it wrong arguments.

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <gtest/gtest.h>
#include <string>

#include <remora/remora_c.h>

#include "support/c_error.h"
#include "support/runtime_dir.h"

namespace remora::test {

inline constexpr const char* kServer =
    "listen: {address: 127.0.0.1, port: 0}\n"
    "transports: {rdma: off}\n"
    "pool: {size: 4MiB, huge_pages: never}\n"
    "regions:\n  - {name: demo, size: 64KiB, shm: true}\n  - {name: fixed, size: 4KiB, rights: "
    "[read]}\n"
    "auth: none\n";

/// A pointer that no handle has.
template <typename T>
T* misaligned() {
  static std::array<char, 64> place{};
  return reinterpret_cast<T*>(place.data() + 1);
}

/// A struct of a newer library, whose additional bytes are `tail`.
template <typename T>
struct Newer {
  T known{};
  std::array<unsigned char, 32> tail{};
};

class BadInputTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(remora_server_start_text(kServer, nullptr, &server_, nullptr, &error_), REMORA_OK)
        << error_.message;
    ASSERT_EQ(remora_engine_open(nullptr, &engine_, &error_), REMORA_OK) << error_.message;
    ASSERT_EQ(remora_engine_connect(engine_, uri("").c_str(), &session_, &error_), REMORA_OK);
    ASSERT_EQ(remora_engine_open_region(engine_, uri("demo").c_str(), REMORA_RIGHT_ALL, &region_,
                                        &error_),
              REMORA_OK)
        << error_.message;
    ASSERT_EQ(remora_queue_create(region_, nullptr, &queue_, &error_), REMORA_OK);
  }
  void TearDown() override {
    remora_queue_free(queue_);
    remora_region_free(region_);
    remora_session_free(session_);
    remora_engine_free(engine_);
    remora_server_free(server_);
  }
  [[nodiscard]] std::string uri(const std::string& region) const {
    return "remora://127.0.0.1:" + std::to_string(remora_server_port(server_)) + "/" + region +
           "?transport=tcp";
  }
  /// The call ended with `code`, and its message has `words`.
  void expect(int code, int returned, const char* words) {
    EXPECT_EQ(returned, code) << error_.message;
    EXPECT_EQ(error_.code, code);
    EXPECT_NE(std::strstr(error_.message, words), nullptr) << error_.message;
    EXPECT_STREQ(remora_error_message(&error_), error_.message);
    error_ = no_error();
  }
  int open(const std::string& text, std::uint32_t rights = REMORA_RIGHT_ALL) {
    remora_region* opened = nullptr;
    const int code = remora_engine_open_region(engine_, text.c_str(), rights, &opened, &error_);
    EXPECT_EQ(opened, nullptr);
    return code;
  }
  int write(const remora_region* region) {
    return remora_region_write(region, 0, "x", 1, nullptr, 0, &error_);
  }
  int open_engine(const remora_engine_options& options) {
    remora_engine* opened = nullptr;
    const int code = remora_engine_open(&options, &opened, &error_);
    EXPECT_EQ(opened, nullptr);
    return code;
  }

  const RuntimeDir runtime_dir_;
  remora_server* server_ = nullptr;
  remora_engine* engine_ = nullptr;
  remora_session* session_ = nullptr;
  remora_region* region_ = nullptr;
  remora_queue* queue_ = nullptr;
  remora_error error_ = no_error();
};

}  // namespace remora::test
