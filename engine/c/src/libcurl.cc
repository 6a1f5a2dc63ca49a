// The functions of libcurl that remora::volume calls: each calls the one of the library that
// check_libcurl() has loaded. They are defined here, so the linker takes them and not libcurl.

#include "libcurl.h"

#include <cstdarg>
#include <cstring>
#include <dlfcn.h>
#include <string>

#define CURL_DISABLE_TYPECHECK  // the macros that check arguments hide two of the functions
#include <curl/curl.h>
#undef curl_easy_getinfo
#undef curl_easy_setopt

#ifdef __clang__
#pragma clang diagnostic ignored "-Wvarargs"  // libcurl's enumerations have the size of an int
#endif

namespace remora::c {
namespace {

struct Libcurl {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) easy_init = nullptr;
  decltype(&::curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&::curl_easy_setopt) easy_setopt = nullptr;
  decltype(&::curl_easy_perform) easy_perform = nullptr;
  decltype(&::curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&::curl_easy_strerror) easy_strerror = nullptr;
  decltype(&::curl_slist_append) slist_append = nullptr;
  decltype(&::curl_slist_free_all) slist_free_all = nullptr;
  std::string fault{};  ///< why there is none; empty: all functions are there
};

template <typename Function>
void look_up(Libcurl& loaded, void* library, const char* name, Function& to) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr)
    loaded.fault = std::string{"libcurl.so.4 has no "} + name;
  else
    std::memcpy(&to, &found, sizeof(to));
}

Libcurl load() {
  Libcurl loaded;
  void* const library = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    loaded.fault = why == nullptr ? "libcurl.so.4 cannot be loaded" : why;
    return loaded;
  }
  look_up(loaded, library, "curl_global_init", loaded.global_init);
  look_up(loaded, library, "curl_easy_init", loaded.easy_init);
  look_up(loaded, library, "curl_easy_cleanup", loaded.easy_cleanup);
  look_up(loaded, library, "curl_easy_setopt", loaded.easy_setopt);
  look_up(loaded, library, "curl_easy_perform", loaded.easy_perform);
  look_up(loaded, library, "curl_easy_getinfo", loaded.easy_getinfo);
  look_up(loaded, library, "curl_easy_strerror", loaded.easy_strerror);
  look_up(loaded, library, "curl_slist_append", loaded.slist_append);
  look_up(loaded, library, "curl_slist_free_all", loaded.slist_free_all);
  return loaded;
}

const Libcurl& libcurl() {
  static const Libcurl loaded = load();
  return loaded;
}

}  // namespace

Status check_libcurl(Operation operation) {
  if (libcurl().fault.empty()) return {};
  return Error{Code::kUnsupported, operation}.with_subject("a cluster in etcd needs libcurl4: " +
                                                           libcurl().fault);
}

}  // namespace remora::c

using remora::c::libcurl;

// NOLINTBEGIN(readability-identifier-naming,google-runtime-int,cert-dcl50-cpp): those of libcurl

CURLcode curl_global_init(long flags) { return libcurl().global_init(flags); }

CURL* curl_easy_init() { return libcurl().easy_init(); }

void curl_easy_cleanup(CURL* curl) { libcurl().easy_cleanup(curl); }

/// The number of an option tells the type of its argument.
CURLcode curl_easy_setopt(CURL* curl, CURLoption option, ...) {
  std::va_list arguments;
  va_start(arguments, option);
  CURLcode code = CURLE_OK;
  // NOLINTBEGIN(bugprone-branch-clone): each takes an argument of another type
  if (option < CURLOPTTYPE_OBJECTPOINT)
    code = libcurl().easy_setopt(curl, option, va_arg(arguments, long));
  else if (option >= CURLOPTTYPE_OFF_T && option < CURLOPTTYPE_BLOB)
    code = libcurl().easy_setopt(curl, option, va_arg(arguments, curl_off_t));
  else  // of an object or a function
    code = libcurl().easy_setopt(curl, option, va_arg(arguments, void*));
  // NOLINTEND(bugprone-branch-clone)
  va_end(arguments);
  return code;
}

CURLcode curl_easy_perform(CURL* curl) { return libcurl().easy_perform(curl); }

/// The argument is a pointer to the place of the value.
CURLcode curl_easy_getinfo(CURL* curl, CURLINFO info, ...) {
  std::va_list arguments;
  va_start(arguments, info);
  const CURLcode code = libcurl().easy_getinfo(curl, info, va_arg(arguments, void*));
  va_end(arguments);
  return code;
}

const char* curl_easy_strerror(CURLcode code) { return libcurl().easy_strerror(code); }

curl_slist* curl_slist_append(curl_slist* list, const char* text) {
  return libcurl().slist_append(list, text);
}

void curl_slist_free_all(curl_slist* list) { libcurl().slist_free_all(list); }

// NOLINTEND(readability-identifier-naming,google-runtime-int,cert-dcl50-cpp)
