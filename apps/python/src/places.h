/* Part of the extension module remora._remora: places that own what a function of the C API puts
 * into them. cffi calls these functions when a place is dropped; no Python code runs between a
 * function that makes a handle and the place that owns it, so no signal handler can raise there. */

#include <remora/remora_c.h>

static void remora_py_end_engine(remora_engine** place) { remora_engine_free(*place); }
static void remora_py_end_session(remora_session** place) { remora_session_free(*place); }
static void remora_py_end_region(remora_region** place) { remora_region_free(*place); }
static void remora_py_end_region_list(remora_region_list** place) {
  remora_region_list_free(*place);
}
static void remora_py_end_session_list(remora_session_list** place) {
  remora_session_list_free(*place);
}
static void remora_py_end_volume(remora_volume** place) { remora_volume_free(*place); }
static void remora_py_end_queue(remora_queue** place) { remora_queue_free(*place); }
static void remora_py_end_text(char** place) { remora_free(*place); }
