/* Everything that the C API offers, over one transport: everything shm|tcp|rdma. Exit status 77:
 * there is no device. The server runs in this process. */

#define _POSIX_C_SOURCE 200809L

#include "everything.h"

#include <time.h>
#include <unistd.h>

remora_error g_error = {.size = sizeof(remora_error)};

static void on_session(void* context, const remora_session_event* event) {
  struct world* world = context;
  if (event->size < sizeof *event || event->transport != world->kind) exit(1);
  world->changes[event->change]++;
  /* The server need not wait for this session to leave by itself. */
  if (event->change == REMORA_SESSION_DRAIN && world->stops &&
      remora_server_expedite_stop(world->server))
    exit(1);
}

static void on_notice(void* context, const remora_notice* notice) {
  struct world* world = context;
  if (notice->size < sizeof *notice || strcmp(notice->region, "operations") != 0) exit(1);
  world->notice = notice->notice;
  world->notice_offset = notice->offset;
  world->notices++;
}

static void on_line(void* context, int level, uint64_t at_ns, const char* text, size_t length) {
  (void)level;
  (void)at_ns;
  if (strlen(text) == length) ++*(volatile int*)context;
}

static void on_log_line(void* context, const remora_log_line* line) {
  if (line->size < sizeof *line || line->event[0] == 0 || line->at_ns == 0 || line->level < 0)
    exit(1);
  if (strlen(line->text) != line->text_length || strlen(line->json) != line->json_length) exit(1);
  if (line->json[0] != '{' || line->json[line->json_length - 1] != '}') exit(1);
  if (strstr(line->json, line->event) == NULL) exit(1);
  ++*(volatile int*)context;
}

int came(volatile int* value, int wanted) {
  const struct timespec pause = {0, 10000000};
  for (int i = 0; i < 1000 && *value < wanted; ++i) nanosleep(&pause, NULL);
  return *value >= wanted;
}

const char* region_uri(const struct world* world, const char* region) {
  static char uri[256];
  snprintf(uri, sizeof uri, "remora://%s:%u/%s?transport=%s", world->address,
           remora_server_port(world->server), region, world->transport);
  return uri;
}

remora_region* make_region(const struct world* world, const char* name) {
  remora_region* region = NULL;
  const remora_region_spec spec = {.size = sizeof spec,
                                   .name = name,
                                   .size_bytes = 65536,
                                   .shm = world->kind == REMORA_TRANSPORT_SHM};
  OK(remora_session_create_region(world->session, &spec, NULL, &g_error));
  OK(remora_engine_open_region(world->engine, region_uri(world, name), REMORA_RIGHT_ALL, &region,
                               &g_error));
  return region;
}

static void say_versions(void) {
  CHECK(strchr(remora_version(), '.') != NULL);
  OK(remora_require_api(REMORA_C_API, &g_error));
  FAILS(REMORA_UNSUPPORTED, remora_require_api(REMORA_C_API + 1, &g_error));
  CHECK(g_error.has_limit == 1 && g_error.asked == REMORA_C_API + 1);
  CHECK(strcmp(remora_code_name(REMORA_OUT_OF_RANGE), "out of range") == 0);
  CHECK(strcmp(remora_reason_name(REMORA_REASON_FENCED), "fenced by a newer grant") == 0);
}

static void configuration(const struct world* world, char* text, size_t size) {
  snprintf(text, size,
           "listen: {address: \"%s\", port: 0}\n"
           "transports: {rdma: %s, shm: %s, tcp: %s}\n"
           "pool: {size: 8MiB, piece: 256KiB, huge_pages: never}\n"
           "regions:\n  - {name: fixed, size: 64KiB}\n"
           "limits: {drain_timeout: 20s, revoke_grace: 10s}\n"

           "auth: none\n",
           world->address, world->kind == REMORA_TRANSPORT_RDMA ? "required" : "off",
           world->kind == REMORA_TRANSPORT_SHM ? "required" : "off",
           world->kind == REMORA_TRANSPORT_RDMA ? "off" : "required");
}

static void start_server(struct world* world) {
  char text[1024];
  char* diagnostics = NULL;
  FAILS(REMORA_INVALID_ARGUMENT,
        remora_server_start_text("pool: {size: many}\nlisen: {}\n", "a.yaml", &world->server,
                                 &diagnostics, &g_error));
  CHECK(world->server == NULL && strstr(diagnostics, "a.yaml:1:") != NULL);
  CHECK(strstr(diagnostics, "lisen") != NULL && strstr(g_error.message, "a.yaml:") != NULL);
  remora_free(diagnostics);
  configuration(world, text, sizeof text);
  OK(remora_server_start_text(text, NULL, &world->server, &diagnostics, &g_error));
  CHECK(diagnostics == NULL && remora_server_port(world->server) != 0);
  snprintf(world->uri, sizeof world->uri, "%s", region_uri(world, ""));
}

static void start_from_file(const struct world* world) {
  char path[] = "/tmp/remora-everything.XXXXXX";
  char text[1024];
  remora_server* server = NULL;
  const int file = mkstemp(path);
  CHECK(file >= 0);
  configuration(world, text, sizeof text);
  CHECK(write(file, text, strlen(text)) == (ssize_t)strlen(text));
  close(file);
  OK(remora_server_start_file(path, &server, NULL, &g_error));
  CHECK(remora_server_port(server) != remora_server_port(world->server));
  OK(remora_server_expedite_stop(server));
  OK(remora_server_stop(server, &g_error));
  OK(remora_server_stop(server, &g_error));
  remora_server_free(server);
  unlink(path);
  FAILS(REMORA_INVALID_ARGUMENT, remora_server_start_file(path, &server, NULL, &g_error));
}

static void use_server(struct world* world) {
  remora_server* server = world->server;
  remora_region_info info = {.size = sizeof info};
  remora_server_counts counts = {.size = sizeof counts};
  remora_region_list* list = NULL;
  remora_view* view = NULL;
  remora_extent extents[2];
  size_t count = 0;
  char* text = NULL;
  unsigned char bytes[16] = {7};
  const remora_region_spec spec = {.size = sizeof spec, .name = "served", .size_bytes = 16384};
  OK(remora_server_create_region(server, &spec, &info, &g_error));
  CHECK(strcmp(info.name, "served") == 0 && info.rights == REMORA_RIGHT_ALL && info.shm == 0);
  OK(remora_server_resize_region(server, "served", 32768, &info, &g_error));
  CHECK(info.size_bytes == 32768);
  OK(remora_server_regions(server, &list, &g_error));
  CHECK(remora_region_list_count(list) == 2);
  OK(remora_region_list_get(list, 1, &info, &g_error));
  CHECK(strcmp(info.name, "served") == 0);
  FAILS(REMORA_OUT_OF_RANGE, remora_region_list_get(list, 2, &info, &g_error));
  remora_region_list_free(list);
  OK(remora_server_view(server, "served", &view, &g_error));
  CHECK(remora_view_size_bytes(view) == 32768);
  OK(remora_view_write(view, 100, bytes, sizeof bytes, &g_error));
  memset(bytes, 0, sizeof bytes);
  OK(remora_view_read(view, 100, bytes, sizeof bytes, &g_error));
  CHECK(bytes[0] == 7);
  FAILS(REMORA_OUT_OF_RANGE, remora_view_read(view, 32760, bytes, sizeof bytes, &g_error));
  OK(remora_view_extents(view, NULL, 0, &count, &g_error));
  CHECK(count >= 1);
  OK(remora_view_extents(view, extents, 2, &count, &g_error));
  CHECK(((unsigned char*)extents[0].data)[100] == 7);
  remora_view_free(view);
  OK(remora_server_remove_region(server, "served", REMORA_REMOVE_NOW, &g_error));
  FAILS(REMORA_UNKNOWN_REGION, remora_server_view(server, "served", &view, &g_error));
  OK(remora_server_status(server, &counts, &g_error));
  CHECK(counts.regions == 1 && counts.pool_bytes == 8U << 20);
  OK(remora_server_status_json(server, &text, &count, &g_error));
  CHECK(text[0] == '{' && strlen(text) == count);
  remora_free(text);
  OK(remora_server_metrics(server, &text, NULL, &g_error));
  CHECK(strstr(text, "remora_server_") != NULL);
  remora_free(text);
  OK(remora_server_metrics_address(server, &text, &g_error));
  CHECK(text[0] == 0); /* the configuration has none */
  remora_free(text);
  OK(remora_server_listening(server, &text, &g_error));
  CHECK(strstr(text, world->transport) != NULL);
  remora_free(text);
  OK(remora_server_on_notice(server, "operations", on_notice, world, &g_error));
}

static void open_engine(struct world* world, const char* client_name) {
  remora_engine_options options;
  char* text = NULL;
  size_t length = 0;
  OK(remora_engine_options_init(&options, sizeof options));
  options.client_name = client_name;
  options.operation_deadline_ns = 60000000000U; /* an emulated device is slow */
  options.control_deadline_ns = 60000000000U;
  options.connect_for_ns = 20000000000U;
  options.on_session = on_session;
  options.session_context = world;
  OK(remora_engine_open(&options, &world->engine, &g_error));
  OK(remora_engine_status_json(world->engine, &text, &length, &g_error));
  CHECK(text[0] == '{' && strlen(text) == length);
  remora_free(text);
  OK(remora_engine_metrics(world->engine, &text, &length, &g_error));
  CHECK(strstr(text, "# TYPE remora_") != NULL);
  remora_free(text);
}

static void use_session(struct world* world) {
  remora_server_info told = {.size = sizeof told};
  remora_region_info info = {.size = sizeof info};
  remora_usage usage = {.size = sizeof usage};
  remora_region_list* list = NULL;
  remora_session* session = NULL;
  size_t count = 1;
  const remora_region_spec spec = {.size = sizeof spec,
                                   .name = "made",
                                   .size_bytes = 16384,
                                   .block_bytes = 512,
                                   .lifetime = REMORA_LIFETIME_SESSION};
  OK(remora_engine_connect(world->engine, world->uri, &session, &g_error));
  world->session = session;
  OK(remora_session_server(session, &told, &g_error));
  CHECK(told.pool_bytes == 8U << 20 && (told.transports & (1U << world->kind)) != 0);
  CHECK(remora_session_transport(session) == world->kind && remora_session_connected(session) == 1);
  OK(remora_session_settled(session, 1000000000, &g_error));
  OK(remora_session_create_region(session, &spec, &info, &g_error));
  CHECK(info.block_bytes == 512 && info.lifetime == REMORA_LIFETIME_SESSION);
  FAILS(REMORA_ALREADY_EXISTS, remora_session_create_region(session, &spec, NULL, &g_error));
  OK(remora_session_stat(session, "made", &info, &g_error));
  CHECK(info.size_bytes == 16384 && info.incarnation != 0);
  OK(remora_session_access(session, "made", NULL, 0, &count, &g_error));
  CHECK(count == 0);
  OK(remora_session_resize_region(session, "made", 8192, &info, &g_error));
  CHECK(info.size_bytes == 8192);
  OK(remora_session_regions(session, &list, &g_error));
  CHECK(remora_region_list_count(list) == 2);
  remora_region_list_free(list);
  OK(remora_session_usage(session, &usage, &g_error));
  CHECK(usage.sessions == 1 && usage.pool_used_bytes >= 8192);
  OK(remora_session_remove_region(session, "made", REMORA_REMOVE_IF_UNUSED, &g_error));
  FAILS(REMORA_UNKNOWN_REGION, remora_session_stat(session, "made", &info, &g_error));
}

static void find_session(const remora_session_list* list, const char* name,
                         remora_session_info* info) {
  for (size_t i = 0; i < remora_session_list_count(list); ++i) {
    OK(remora_session_list_get(list, i, info, &g_error));
    if (strcmp(info->client_name, name) == 0) return;
  }
  CHECK(0); /* it is not in the list */
}

/* A second client, which the first one and the server's application list, end and tell to leave. */
static void administer(struct world* world) {
  static struct world other; /* counts the changes of the other client */
  remora_session_info info = {.size = sizeof info};
  remora_drain_state state = {.size = sizeof state};
  remora_session_list* list = NULL;
  remora_region *region, *again = NULL;
  remora_session* session = NULL;
  uint64_t took_ns = 0;
  int before;
  other = *world;
  for (int i = 0; i < 6; ++i) other.changes[i] = 0;
  open_engine(&other, "other");
  OK(remora_engine_connect(other.engine, world->uri, &session, &g_error));
  OK(remora_session_ping(world->session, &took_ns, &g_error));
  CHECK(took_ns > 0);
  OK(remora_session_ping(world->session, NULL, &g_error));

  OK(remora_session_sessions(world->session, &list, &g_error));
  CHECK(remora_session_list_count(list) == 2);
  FAILS(REMORA_OUT_OF_RANGE, remora_session_list_get(list, 2, &info, &g_error));
  find_session(list, "everything", &info);
  CHECK(info.own == 1 && info.lost == 0 && info.client_proven == 0);
  FAILS(REMORA_INVALID_ARGUMENT, remora_session_end_session(world->session, info.id, &g_error));
  find_session(list, "other", &info);
  CHECK(info.own == 0 && (int)info.transport == world->kind && info.peer[0] != 0);
  remora_session_list_free(list);
  OK(remora_session_end_session(world->session, info.id, &g_error));
  FAILS(REMORA_NOT_FOUND, remora_session_end_session(world->session, info.id, &g_error));
  CHECK(came(&other.changes[REMORA_SESSION_LOST], 1));
  remora_session_free(session);

  OK(remora_engine_connect(other.engine, world->uri, &session, &g_error));
  region = make_region(world, "administered");
  before = world->changes[REMORA_SESSION_DRAIN];
  OK(remora_session_drain(world->session, &state, &g_error));
  CHECK(state.draining == 1 && state.remaining_ms > 0 && state.sessions == 1);
  CHECK(came(&other.changes[REMORA_SESSION_DRAIN], 1));
  CHECK(came(&world->changes[REMORA_SESSION_DRAIN], before + 1));
  FAILS(REMORA_BUSY, remora_engine_open_region(world->engine, region_uri(world, "administered"),
                                               REMORA_RIGHT_ALL, &again, &g_error));
  CHECK(g_error.reason == REMORA_REASON_DRAINING);
  OK(remora_server_drain_state(world->server, &state, &g_error));
  CHECK(state.draining == 1 && state.sessions == 2 && state.lost_sessions == 0);
  OK(remora_session_end_drain(world->session, NULL, &g_error));
  OK(remora_session_drain_state(world->session, &state, &g_error));
  CHECK(state.draining == 0 && state.remaining_ms == 0);

  OK(remora_server_drain(world->server, NULL, &g_error));
  CHECK(came(&other.changes[REMORA_SESSION_DRAIN], 2));
  OK(remora_server_end_drain(world->server, &state, &g_error));
  CHECK(state.draining == 0);
  OK(remora_server_sessions(world->server, &list, &g_error));
  find_session(list, "other", &info);
  CHECK(info.own == 0 && info.open_regions == 0);
  remora_session_list_free(list);
  OK(remora_server_end_session(world->server, info.id, &g_error));
  CHECK(came(&other.changes[REMORA_SESSION_LOST], 2));
  FAILS(REMORA_NOT_FOUND, remora_server_end_session(world->server, info.id, &g_error));
  OK(remora_server_alive(world->server, &g_error));
  remora_region_free(region);
  remora_session_free(session);
  remora_engine_free(other.engine);
}

int main(int argc, char** argv) {
  static struct world world;
  static char folder[] = "/tmp/remora-everything.XXXXXX";
  volatile int lines = 0;
  volatile int events = 0;
  const char* device = getenv("REMORA_VM_ADDRESS");
  CHECK(argc == 2);
  world.transport = argv[1];
  world.kind = strcmp(argv[1], "shm") == 0   ? REMORA_TRANSPORT_SHM
               : strcmp(argv[1], "tcp") == 0 ? REMORA_TRANSPORT_TCP
                                             : REMORA_TRANSPORT_RDMA;
  snprintf(world.address, sizeof world.address, "127.0.0.1");
  if (world.kind == REMORA_TRANSPORT_RDMA) {
    const char* required = getenv("REMORA_REQUIRE_DEVICE");
    if (device == NULL) return required != NULL && strcmp(required, "1") == 0 ? 1 : 77;
    snprintf(world.address, sizeof world.address, "%s", device);
  }
  CHECK(mkdtemp(folder) != NULL && setenv("REMORA_RUNTIME_DIR", folder, 1) == 0);
  OK(remora_set_log_handler(on_line, (void*)&lines, REMORA_LOG_DEBUG, &g_error));
  say_versions();
  start_server(&world);
  start_from_file(&world);
  use_server(&world);
  open_engine(&world, "everything");
  use_session(&world);
  use_regions(&world);
  CHECK(came(&lines, 1)); /* the handler below takes its place */
  FAILS(REMORA_INVALID_ARGUMENT,
        remora_set_log_line_handler(on_log_line, NULL, REMORA_LOG_WARNING + 1, &g_error));
  OK(remora_set_log_line_handler(on_log_line, (void*)&events, REMORA_LOG_DEBUG, &g_error));
  use_queues(&world);
  administer(&world);
  world.stops = 1;
  OK(remora_server_stop(world.server, &g_error));
  CHECK(came(&world.changes[REMORA_SESSION_DRAIN], 3)); /* two drains and the stop */
  FAILS(REMORA_CLOSED, remora_server_drain(world.server, NULL, &g_error));
  FAILS(REMORA_CLOSED, remora_server_on_notice(world.server, "fixed", on_notice, NULL, &g_error));
  remora_session_free(world.session);
  remora_engine_free(world.engine);
  remora_server_free(world.server);
  CHECK(came(&lines, 1) && came(&events, 1));
  OK(remora_set_log_line_handler(NULL, NULL, REMORA_LOG_WARNING, &g_error));
  rmdir(folder);
  printf("everything over %s\n", world.transport);
  return 0;
}
