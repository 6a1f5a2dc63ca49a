#include "protocol/transcript.h"

#include <cstddef>
#include <gtest/gtest.h>
#include <string>
#include <string_view>
#include <vector>

#include "key_texts.h"

namespace remora::control {
namespace {

using Side = Transcript::Side;

std::string hex(const Proof& proof) {
  std::string text;
  for (const std::byte byte : proof) {
    const auto value = std::to_integer<unsigned>(byte);
    text += "0123456789abcdef"[value >> 4U];
    text += "0123456789abcdef"[value & 15U];
  }
  return text;
}

// The constants are those of another implementation: Python's hmac and struct modules,
// hmac.new(key, b''.join(struct.pack('<I', len(p)) + p for p in parts), sha256), with the label
// as the first of the parts.
TEST(Transcript, ProofsAreThoseOfAnotherImplementation) {
  const config::SecretKey key = key_of(kKey);
  Transcript said;
  EXPECT_EQ(hex(said.proof(Side::kServer, key).value()),
            "184558b5c2e4a1ed45ee0744ffffc630c49ed6d05a95e08ea73e9e9668551bf0");
  said.add("hello");
  said.add("challenge");
  EXPECT_EQ(hex(said.proof(Side::kClient, key).value()),
            "1949d1c8a0265d7c0414a8d55b4aa37d114059c63853396cbd2a4012e5c0d6e6");
  said.add(std::string_view{"\0prove\xff", 7});
  said.add("");
  EXPECT_EQ(hex(said.proof(Side::kServer, key).value()),
            "544878dd88b74e7e1ed219561f950a063a14b035392527631c4e69939915327d");
  Transcript longest;
  std::vector<std::byte> big(16384);
  for (std::size_t i = 0; i < big.size(); ++i) big[i] = static_cast<std::byte>(i % 251);
  longest.add(big);
  EXPECT_EQ(hex(longest.proof(Side::kClient, key).value()),
            "cf6586f8210f4f6bcc9d5b45734a27b3158f725390e17104b806f1c0b49413d5");
}

TEST(Transcript, WhereAPartEndsCounts) {
  const config::SecretKey key = key_of(kKey);
  Transcript a;
  a.add("ab");
  a.add("c");
  Transcript b;
  b.add("a");
  b.add("bc");
  EXPECT_NE(a.proof(Side::kClient, key).value(), b.proof(Side::kClient, key).value());
  EXPECT_NE(a.proof(Side::kClient, key).value(), a.proof(Side::kServer, key).value());
  EXPECT_NE(a.proof(Side::kClient, key).value(), a.proof(Side::kClient, key_of(kOther)).value());
}

}  // namespace
}  // namespace remora::control
