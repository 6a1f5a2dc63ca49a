/* remora::c: a server and a client in one C99 program, over tcp. */
#include <stdio.h>
#include <string.h>

#include <remora/remora_c.h>

int main(void) {
  remora_error error = {.size = sizeof error};
  remora_server* server = NULL;
  remora_engine* engine = NULL;
  remora_region* region = NULL;
  char uri[128], in[16] = "";
  uint64_t before = 0;
  if (remora_require_api(REMORA_C_API, &error) ||
      remora_server_start_text("listen: {port: 0}\ntransports: {rdma: off}\n"
                               "pool: {size: 16MiB, huge_pages: never}\n"
                               "regions:\n  - {name: demo, size: 1MiB}\nauth: none\n",
                               NULL, &server, NULL, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  snprintf(uri, sizeof uri, "remora://127.0.0.1:%u/demo", remora_server_port(server));
  if (remora_engine_open(NULL, &engine, &error) ||
      remora_engine_open_region(engine, uri, REMORA_RIGHT_ALL, &region, &error) ||
      remora_region_write(region, 4096, "from C", 7, NULL, 0, &error) ||
      remora_region_read(region, 4096, in, 7, NULL, 0, &error) ||
      remora_region_fetch_add(region, 64, 1, &before, 0, &error))
    return fprintf(stderr, "%s\n", error.message), 1;
  printf("c: %s, Remora %s\n", in, remora_version());
  remora_region_free(region);
  remora_engine_free(engine);
  remora_server_free(server);
  return strcmp(in, "from C") == 0 && before == 0 ? 0 : 1;
}
