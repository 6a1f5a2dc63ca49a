// A program that has another protobuf linked into it, and exports its functions, gives them to
// every library that it loads without RTLD_DEEPBIND. Of the same version they are as good as ours.

#include "libraries.h"

#include <dlfcn.h>
#include <google/protobuf/stubs/common.h>
#if __has_include(<google/protobuf/stubs/logging.h>)
#include <google/protobuf/stubs/logging.h>
#define REMORA_PROTOBUF_THROWS 1
#endif

namespace remora::c {
namespace {

/// The file that a function was loaded with, by its address.
template <typename Function>
const void* file_of(Function* function) noexcept {
  Dl_info info{};
  return ::dladdr(reinterpret_cast<const void*>(function), &info) != 0 ? info.dli_fbase : nullptr;
}

bool is_our_protobuf() noexcept {
#ifdef REMORA_PROTOBUF_THROWS
  using google::protobuf::SetLogHandler;
  using google::protobuf::internal::VerifyVersion;
  // Versions from 22 on have no SetLogHandler, and end the process instead of throwing an
  // exception.
  if (file_of(&SetLogHandler) != file_of(&VerifyVersion)) return false;
  try {
    VerifyVersion(GOOGLE_PROTOBUF_VERSION, GOOGLE_PROTOBUF_MIN_LIBRARY_VERSION, "libremora.so.0");
  } catch (...) {
    return false;
  }
#endif
  return true;
}

}  // namespace

Status check_libraries(Operation operation) noexcept {
  static const bool fits = is_our_protobuf();
  if (fits) return {};
  return Error{Code::kUnsupported, operation}.with_subject(
      "another protobuf in this process: load libremora.so.0 with RTLD_DEEPBIND");
}

}  // namespace remora::c
