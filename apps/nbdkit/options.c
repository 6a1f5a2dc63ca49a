#include "options.h"

#include <ctype.h>
#include <inttypes.h>
#include <nbdkit-plugin.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef struct Range {
  uint64_t least_ms;
  uint64_t most_ms;
  const char* text;
} Range;

/// A number with its unit.
static int parse_duration(const char* key, const char* value, Range range, uint64_t* ns) {
  static const struct {
    const char* name;
    uint64_t ms;
  } units[] = {{"ms", 1}, {"s", 1000}, {"m", 60000}, {"h", 3600000}};
  char* unit = NULL;
  const uint64_t count = isdigit((unsigned char)value[0]) ? strtoumax(value, &unit, 10) : 0;
  for (size_t i = 0; unit != NULL && i < sizeof units / sizeof units[0]; ++i) {
    if (strcmp(unit, units[i].name) != 0) continue;
    if (count > range.most_ms / units[i].ms || count * units[i].ms < range.least_ms) {
      nbdkit_error("%s=%s: has to be %s", key, value, range.text);
      return -1;
    }
    *ns = count * units[i].ms * 1000000;
    return 0;
  }
  nbdkit_error("%s=%s: is not a duration such as 500ms, 10s, 2m or 1h", key, value);
  return -1;
}

/// A number from 1 to `most`.
static int parse_count(const char* key, const char* value, unsigned most, unsigned* count) {
  char* end = NULL;
  const uint64_t found = isdigit((unsigned char)value[0]) ? strtoumax(value, &end, 10) : 0;
  if (end == NULL || *end != '\0' || found < 1 || found > most) {
    nbdkit_error("%s=%s: has to be 1 to %u", key, value, most);
    return -1;
  }
  *count = (unsigned)found;
  return 0;
}

/// A number of bytes as nbdkit itself takes it: 100M.
static int parse_bytes(const char* key, const char* value, uint64_t* bytes) {
  const int64_t found = nbdkit_parse_size(value);
  if (found == -1) return -1;
  if (found == 0) {
    nbdkit_error("%s=%s: has to be at least 1; without %s= there is no limit", key, value, key);
    return -1;
  }
  *bytes = (uint64_t)found;
  return 0;
}

static int set_key_file(Options* options, const char* value) {
  char* const path = nbdkit_absolute_path(value);  // nbdkit changes its folder later
  if (path == NULL) return -1;
  free(options->key_file);
  options->key_file = path;
  return 0;
}

static int parse_flag(const char* value, bool* flag) {
  const int found = nbdkit_parse_bool(value);
  if (found == -1) return -1;
  *flag = found != 0;
  return 0;
}

int set_option(Options* options, const char* key, const char* value) {
  enum { kMaxDepth = 65536, kMaxLanes = 8 };
  static const Range deadline = {1, 3600000, "1ms to 1h"};
  static const Range reconnect_for = {0, 86400000, "0s to 24h"};
  if (strcmp(key, "uri") == 0) {
    options->uri = value;
    return 0;
  }
  if (strcmp(key, "client") == 0) {
    options->client = value;
    return 0;
  }
  if (strcmp(key, "key-file") == 0) return set_key_file(options, value);
  if (strcmp(key, "depth") == 0) return parse_count(key, value, kMaxDepth, &options->depth);
  if (strcmp(key, "lanes") == 0) return parse_count(key, value, kMaxLanes, &options->lanes);
  if (strcmp(key, "deadline") == 0)
    return parse_duration(key, value, deadline, &options->deadline_ns);
  if (strcmp(key, "reconnect-for") == 0)
    return parse_duration(key, value, reconnect_for, &options->reconnect_for_ns);
  if (strcmp(key, "readonly") == 0) return parse_flag(value, &options->readonly);
  if (strcmp(key, "steal") == 0) return parse_flag(value, &options->steal);
  if (strcmp(key, "exclusive") == 0) return parse_flag(value, &options->exclusive);
  if (strcmp(key, "repair") == 0) return parse_flag(value, &options->repair);
  if (strcmp(key, "repair-bandwidth") == 0)
    return parse_bytes(key, value, &options->repair_bytes_per_second);
  nbdkit_error("unknown parameter '%s': see nbdkit remora --help", key);
  return -1;
}

int check_options(const Options* options) {
  if (options->uri == NULL) {
    nbdkit_error("the parameter uri=remora://HOST/REGION is missing, or that of a volume");
    return -1;
  }
  const bool limited = options->repair_bytes_per_second != 0;
  if (options->readonly && (options->steal || options->exclusive || limited)) {
    nbdkit_error(
        "readonly=true claims nothing: leave out steal=, exclusive= and repair-bandwidth=");
    return -1;
  }
  if (limited && !options->repair) {
    nbdkit_error("repair-bandwidth= is the limit of repair=true, and repair=false is given");
    return -1;
  }
  return 0;
}

void free_options(Options* options) {
  free(options->key_file);
  options->key_file = NULL;
}
