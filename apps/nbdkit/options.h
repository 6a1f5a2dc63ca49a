#pragma once

/// The parameters of `nbdkit remora KEY=VALUE ...`.

#include <stdbool.h>
#include <stdint.h>

typedef struct Options {
  const char* uri;     ///< NULL: not given
  const char* client;  ///< the client's name, told to the server
  char* key_file;      ///< an absolute path; NULL: none
  uint64_t deadline_ns;
  uint64_t reconnect_for_ns;
  unsigned depth;  ///< of the queue of a connection
  unsigned lanes;
  bool readonly;
  bool steal;                        ///< of a mirror: takes the claim of another client
  bool exclusive;                    ///< of a mirror: no other client reads it
  bool repair;                       ///< of a mirror: makes lost copies anew
  uint64_t repair_bytes_per_second;  ///< of all these copies together; 0: no limit
} Options;

/// Sets one parameter. `value` lives as long as the plugin. Returns 0, or -1: the value is wrong,
/// and nbdkit has the message.
int set_option(Options* options, const char* key, const char* value);

/// Called after the last parameter. Returns 0, or -1: the URI is missing, or parameters do not fit
/// each other, and nbdkit has the message.
int check_options(const Options* options);

/// Frees the memory that set_option() has allocated.
void free_options(Options* options);
