#pragma once

/// Which sanitizer the code is compiled with, by GCC or clang: 1 or 0.

#if defined(__has_feature)
#define REMORA_HAS_FEATURE(name) __has_feature(name)
#else
#define REMORA_HAS_FEATURE(name) 0
#endif

#if defined(__SANITIZE_ADDRESS__) || REMORA_HAS_FEATURE(address_sanitizer)
#define REMORA_ADDRESS_SANITIZER 1
#else
#define REMORA_ADDRESS_SANITIZER 0
#endif

#if defined(__SANITIZE_THREAD__) || REMORA_HAS_FEATURE(thread_sanitizer)
#define REMORA_THREAD_SANITIZER 1
#else
#define REMORA_THREAD_SANITIZER 0
#endif
