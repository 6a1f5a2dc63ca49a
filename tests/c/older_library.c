/* Preloaded into a program: the libremora.so.0 that it loads answers as an older one does. */

#define _GNU_SOURCE

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include <remora/c/error.h>

int remora_require_api(int api, remora_error* error) {
  void* const library = dlopen("libremora.so.0", RTLD_LAZY | RTLD_NOLOAD);
  void* const found = library == NULL ? NULL : dlsym(library, "remora_require_api");
  int (*require)(int, remora_error*) = NULL;
  if (found == NULL) abort();
  memcpy(&require, &found, sizeof require);
  /* A program that was compiled with the next library. */
  return require(api + 1, error);
}
