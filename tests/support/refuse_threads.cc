#include "support/refuse_threads.h"

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <pthread.h>

namespace {

std::atomic<std::size_t> g_asked{0};
std::atomic<std::size_t> g_first{SIZE_MAX};
std::atomic<std::size_t> g_end{SIZE_MAX};
std::atomic<std::size_t> g_refused{0};

[[gnu::constructor]] void read_environment() {
  std::size_t first = 0;
  std::size_t end = 0;
  const char* const text = std::getenv("REMORA_TEST_REFUSE_THREADS");
  if (text != nullptr && std::sscanf(text, "%zu-%zu", &first, &end) == 2)  // NOLINT(cert-err34-c)
    refuse_threads(first, end);
}

}  // namespace

void refuse_threads(std::size_t first, std::size_t end) {
  g_first = first;
  g_end = end;
  g_refused = 0;
  g_asked = 0;
}

std::size_t threads_refused() { return g_refused; }

extern "C" int pthread_create(pthread_t* thread, const pthread_attr_t* attributes,
                              void* (*start)(void*), void* argument) {
  using Create = int(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*);
  static auto* const create = reinterpret_cast<Create*>(::dlsym(RTLD_NEXT, "pthread_create"));
  const std::size_t number = g_asked.fetch_add(1);
  if (number >= g_first && number < g_end) {
    ++g_refused;
    return EAGAIN;
  }
  return create(thread, attributes, start, argument);
}
