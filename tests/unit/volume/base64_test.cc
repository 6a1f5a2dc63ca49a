// Base64 as RFC 4648 has it.

#include "base64.h"

#include <gtest/gtest.h>
#include <string>

namespace remora::volume {
namespace {

TEST(Base64, TextsOfTheStandardAreThere) {
  for (const auto& [plain, text] : {std::pair{"", ""},
                                    {"f", "Zg=="},
                                    {"fo", "Zm8="},
                                    {"foo", "Zm9v"},
                                    {"foob", "Zm9vYg=="},
                                    {"foobar", "Zm9vYmFy"}}) {
    EXPECT_EQ(to_base64(plain), text);
    EXPECT_EQ(from_base64(text), plain);
  }
}

TEST(Base64, EveryByteComesBack) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  EXPECT_EQ(from_base64(to_base64(all)), all);
}

TEST(Base64, OtherTextsAreRefused) {
  for (const char* const wrong : {"A", "Zg=", "Z===", "Zm9v!", "Zm 9", "Zm9v=mFy", "====",
                                  "    Zm9v", "Zm9v\n\n\n\n", "Zm9v----", "Zm9v    ", "Zm\n9v==="})
    EXPECT_FALSE(from_base64(wrong)) << wrong;
}

}  // namespace
}  // namespace remora::volume
