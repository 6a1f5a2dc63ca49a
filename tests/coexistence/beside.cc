// libremora.so.0 in a program that has other third parties linked into it, and exports them:
//
//   beside_... LIBREMORA local|deep
//
// loads it by RTLD_LOCAL, or with RTLD_DEEPBIND as well, and starts and uses a server. Prints
// "works", or "refused: " and the library's message.

#include "beside.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <dlfcn.h>
#include <string>

#include <remora/remora_c.h>

#include "support/c_error.h"
#include "support/runtime_dir.h"

namespace remora::test {
namespace {

enum ExitStatus { kWorks = 0, kFails = 1, kUsage = 2, kRefused = 4 };

#define GET(library, function) (reinterpret_cast<decltype(function)*>(::dlsym(library, #function)))

int failed(const char* what, const remora_error& error) {
  std::printf("%s: %s\n", error.code == REMORA_UNSUPPORTED ? "refused" : what, error.message);
  return error.code == REMORA_UNSUPPORTED ? kRefused : kFails;
}

/// Adds 1 to a word of the server's region, which stood at `expected`.
int add(void* library, std::uint16_t port, const char* transport, std::uint64_t expected) {
  remora_error error = no_error();
  remora_engine* engine = nullptr;
  remora_region* region = nullptr;
  std::uint64_t before = 99;
  const std::string uri =
      "remora://127.0.0.1:" + std::to_string(port) + "/demo?transport=" + transport;
  if (GET(library, remora_engine_open)(nullptr, &engine, &error) != REMORA_OK)
    return failed("engine", error);
  if (GET(library, remora_engine_open_region)(engine, uri.c_str(), REMORA_RIGHT_ALL, &region,
                                              &error) != REMORA_OK)
    return failed("region", error);
  if (GET(library, remora_region_fetch_add)(region, 0, 1, &before, 0, &error) != REMORA_OK)
    return failed("operation", error);
  GET(library, remora_region_free)(region);
  GET(library, remora_engine_free)(engine);
  return before == expected ? kWorks : kFails;
}

int use(void* library) {
  remora_error error = no_error();
  remora_server* server = nullptr;
  if (GET(library, remora_server_start_text)(
          "listen: {address: 127.0.0.1, port: 0}\ntransports: {rdma: off}\n"
          "pool: {size: 4MiB, huge_pages: never}\n"
          "regions:\n  - {name: demo, size: 64KiB, shm: true}\nauth: none\n",
          nullptr, &server, nullptr, &error) != REMORA_OK)
    return failed("server", error);
  const std::uint16_t port = GET(library, remora_server_port)(server);
  int status = add(library, port, "tcp", 0);
  if (status == kWorks) status = add(library, port, "shm", 1);
  if (status == kWorks && !use_own()) status = kFails;
  GET(library, remora_server_free)(server);
  return status;
}

int run(const char* file, bool deep) {
  if (!use_own()) return kFails;
  const RuntimeDir runtime_dir;
  void* const library = ::dlopen(file, RTLD_NOW | RTLD_LOCAL | (deep ? RTLD_DEEPBIND : 0));
  if (library == nullptr) {
    std::printf("%s\n", ::dlerror());
    return kFails;
  }
  const int status = use(library);
  if (status != kWorks) return status;
  if (!use_own()) return kFails;
  std::puts("works");
  return kWorks;
}

}  // namespace
}  // namespace remora::test

int main(int argc, char** argv) {
  const bool deep = argc == 3 && std::strcmp(argv[2], "deep") == 0;
  if (argc != 3 || (!deep && std::strcmp(argv[2], "local") != 0)) {
    std::fprintf(stderr, "usage: %s LIBREMORA local|deep\n", argv[0]);
    return remora::test::kUsage;
  }
  return remora::test::run(argv[1], deep);
}
