// The program has a protobuf of another version, which says so.

#include <stdexcept>
#include <string>

#include "beside.h"

namespace google::protobuf {

enum LogLevel : int;
using LogHandler = void(LogLevel level, const char* file, int line, const std::string& message);

namespace internal {
[[gnu::visibility("default"), gnu::used]] void VerifyVersion(int /*header*/, int /*minimum*/,
                                                             const char* /*file*/) {
  throw std::runtime_error{"another version"};
}
}  // namespace internal

[[gnu::visibility("default"), gnu::used]] LogHandler* SetLogHandler(LogHandler* /*handler*/) {
  return nullptr;
}

}  // namespace google::protobuf

namespace remora::test {

bool use_own() { return true; }

}  // namespace remora::test
