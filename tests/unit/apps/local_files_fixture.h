#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <unistd.h>

#include "cli/input.h"

namespace remora::apps {

namespace fs = std::filesystem;

/// Files in a temporary folder of the test.
class LocalFilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "remora-io.XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }

  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }
  void put(const std::string& name, const std::string& text) const {
    std::ofstream{path(name), std::ios::binary | std::ios::trunc} << text;
  }
  [[nodiscard]] std::string text(const std::string& name) const {
    std::ifstream file{path(name)};
    return {std::istreambuf_iterator<char>{file}, {}};
  }
  [[nodiscard]] std::ptrdiff_t file_count() const {
    return std::distance(fs::directory_iterator{folder_}, {});
  }
  static std::uint64_t read_to_end(Input& input) {
    std::array<std::byte, 64> buffer{};
    std::uint64_t bytes = 0;
    while (true) {
      const std::size_t got = input.read(buffer).value();
      if (got == 0) return bytes;
      bytes += got;
    }
  }
  static std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span{text});
  }

 private:
  fs::path folder_;
};

}  // namespace remora::apps
