#pragma once

/// What the parts of everything.c share. C99: the program proves that C can use all of the library.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <remora/remora_c.h>

/// Ends the program where `condition` is false, with the place and the last error.
#define CHECK(condition)                                                                   \
  do {                                                                                     \
    if (!(condition)) {                                                                    \
      fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #condition, g_error.message); \
      exit(1);                                                                             \
    }                                                                                      \
  } while (0)
/// The call must succeed, or end with `code`.
#define OK(call) CHECK((call) == REMORA_OK)
#define FAILS(expected, call) CHECK((call) == (expected) && g_error.code == (expected))

extern remora_error g_error;

/// The environment of a run.
struct world {
  const char* transport;  ///< shm, tcp or rdma
  int kind;               ///< the same, of remora_transport
  char address[64];
  char uri[128];  ///< of the server, without a region
  remora_server* server;
  remora_engine* engine;
  remora_session* session;
  volatile int changes[6];  ///< of sessions, by remora_session_change
  volatile int stops;       ///< 1: the server is about to stop
  volatile int notices;     ///< how many came
  volatile unsigned notice;
  volatile uint64_t notice_offset;
};

/// "remora://HOST:PORT/REGION?transport=..." in memory that the next call uses again.
const char* region_uri(const struct world* world, const char* region);
/// Makes a region of 64 KiB that the transport can reach, and opens it.
remora_region* make_region(const struct world* world, const char* name);
/// Waits until `*value` is at least `wanted`, for 10 s.
int came(volatile int* value, int wanted);

void use_regions(struct world* world);  ///< synchronous operations, fences, memory
void use_queues(struct world* world);
