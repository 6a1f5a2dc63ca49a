#pragma once

/// Keys for the tests of the handshake.

#include <remora/config/secret_key.h>

namespace remora::control {

inline constexpr const char* kKey =
    "00112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f";
inline constexpr const char* kOther =
    "f0112233445566778899aabbccddeeff102132435465768798a9bacbdcedfe0f";

inline config::SecretKey key_of(const char* text) { return config::SecretKey::parse(text).value(); }

}  // namespace remora::control
