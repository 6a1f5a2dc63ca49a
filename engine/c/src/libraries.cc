// A program that is linked with another protobuf, and exports its functions, passes them to every
// library that it loads without RTLD_DEEPBIND. Functions of the same version are no problem.

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
  // Protobuf from version 22 on has no SetLogHandler, and ends the process instead of throwing an
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
