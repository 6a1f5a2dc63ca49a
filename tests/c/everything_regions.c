/* Regions, synchronous operations, fences, and the three kinds of local memory. */

#include "everything.h"

static void use_bytes(remora_region* region) {
  unsigned char out[4096], in[4096];
  remora_piece pieces[2];
  for (size_t i = 0; i < sizeof out; ++i) out[i] = (unsigned char)(i * 7);
  OK(remora_region_write(region, 4096, out, sizeof out, NULL, 0, &g_error));
  OK(remora_region_read(region, 4096, in, sizeof in, NULL, 0, &g_error));
  CHECK(memcmp(out, in, sizeof in) == 0);
  memset(in, 0, sizeof in);
  OK(remora_piece_init(&pieces[0], in + 1000, 1000, NULL));
  OK(remora_piece_init(&pieces[1], in, 1000, NULL));
  OK(remora_region_read_pieces(region, 4096, pieces, 2, 0, &g_error));
  CHECK(memcmp(in + 1000, out, 1000) == 0 && memcmp(in, out + 1000, 1000) == 0);
  OK(remora_region_write_pieces(region, 12288, pieces, 2, 0, &g_error));
  OK(remora_region_read(region, 12288, in, 2000, NULL, 0, &g_error));
  CHECK(memcmp(in, out, 2000) == 0);
  OK(remora_region_write_zeroes(region, 4096, 100, 0, &g_error));
  OK(remora_region_read(region, 4096, in, 4096, NULL, 0, &g_error));
  CHECK(in[0] == 0 && in[99] == 0 && memcmp(in + 100, out + 100, 3996) == 0);
  FAILS(REMORA_OUT_OF_RANGE,
        remora_region_read(region, 65536 - 10, in, sizeof in, NULL, 0, &g_error));
  CHECK(g_error.has_place == 1 && g_error.offset == 65526 && g_error.length == 4096);
  CHECK(strstr(remora_error_message(&g_error), "operations") != NULL);
  FAILS(REMORA_INVALID_ARGUMENT, remora_region_read(region, 0, in, 0, NULL, 0, &g_error));
  FAILS(REMORA_INVALID_ARGUMENT, remora_region_read(region, 0, NULL, 8, NULL, 0, &g_error));
}

/* Many operations in one call, of which two are wrong. */
static void use_many(remora_region* region) {
  static unsigned char out[100][64], in[100][64];
  remora_pair pairs[100];
  remora_pair_outcome each[100];
  remora_add_pair adds[3] = {{0, 5, 0}, {8, 6, 0}, {16, 7, 0}};
  remora_swap_pair swaps[2] = {{0, 5, 50, 0}, {8, 5, 50, 0}};
  size_t i;
  memset(out, 77, sizeof out);
  for (i = 0; i < 100; ++i) {
    pairs[i].offset = 16384 + 128 * i;
    OK(remora_piece_init(&pairs[i].piece, out[i], 64, NULL));
    out[i][0] = (unsigned char)i;
  }
  OK(remora_region_write_many(region, pairs, 100, NULL, 0, &g_error));
  for (i = 0; i < 100; ++i) OK(remora_piece_init(&pairs[i].piece, in[i], 64, NULL));
  OK(remora_region_read_many(region, pairs, 100, each, 0, &g_error));
  CHECK(memcmp(out, in, sizeof in) == 0);
  for (i = 0; i < 100; ++i) CHECK(each[i].code == REMORA_OK && each[i].reason == 0);
  pairs[40].offset = 65536 - 63;
  pairs[60].piece.length = 0;
  FAILS(REMORA_OUT_OF_RANGE, remora_region_read_many(region, pairs, 100, each, 0, &g_error));
  CHECK(strstr(remora_error_message(&g_error), "pair 40") != NULL);
  CHECK(g_error.has_place == 1 && g_error.offset == 65473 && g_error.length == 64);
  for (i = 0; i < 100; ++i)
    CHECK(each[i].code == (i == 40   ? REMORA_OUT_OF_RANGE
                           : i == 60 ? REMORA_INVALID_ARGUMENT
                                     : REMORA_OK));
  CHECK(each[60].reason == REMORA_REASON_ZERO_LENGTH);
  OK(remora_region_read_many(region, NULL, 0, NULL, 0, &g_error));
  FAILS(REMORA_LIMIT_EXCEEDED,
        remora_region_read_many(region, pairs, REMORA_PAIRS_MAX + 1, each, 0, &g_error));
  CHECK(each[0].code == REMORA_OK);
  OK(remora_region_write_zeroes(region, 0, 24, 0, &g_error));
  OK(remora_region_fetch_add_many(region, adds, 3, NULL, 0, &g_error));
  OK(remora_region_fetch_add_many(region, adds, 3, each, 0, &g_error));
  CHECK(adds[0].before == 5 && adds[1].before == 6 && adds[2].before == 7);
  swaps[0].expected = 10;
  OK(remora_region_compare_swap_many(region, swaps, 2, each, 0, &g_error));
  CHECK(swaps[0].before == 10 && swaps[1].before == 12);
  adds[1].offset = 12;
  FAILS(REMORA_MISALIGNED, remora_region_fetch_add_many(region, adds, 3, each, 0, &g_error));
  CHECK(each[0].code == REMORA_OK && each[1].code == REMORA_MISALIGNED && adds[0].before == 50);
  OK(remora_region_write_zeroes(region, 0, 24, 0, &g_error));
}

static void use_memory(const struct world* world, remora_region* region) {
  static unsigned char own[8192];
  remora_memory* memory = NULL;
  remora_slots* slots = NULL;
  remora_piece piece;
  unsigned char* slot;
  unsigned char* other;
  OK(remora_engine_register_memory(world->engine, own, sizeof own, &memory, &g_error));
  memset(own, 3, 100);
  OK(remora_region_write(region, 0, own, 100, memory, 0, &g_error));
  OK(remora_region_read(region, 0, own + 8000, 100, memory, 0, &g_error));
  CHECK(own[8099] == 3);
  FAILS(REMORA_OUT_OF_RANGE, remora_region_read(region, 0, own + 8100, 100, memory, 0, &g_error));
  CHECK(g_error.reason == REMORA_REASON_OUTSIDE_MEMORY);
  OK(remora_piece_init(&piece, own + 100, 50, memory));
  OK(remora_region_read_pieces(region, 0, &piece, 1, 0, &g_error));
  CHECK(own[149] == 3);
  CHECK(remora_piece_init(&piece, own + 8100, 100, memory) == REMORA_OUT_OF_RANGE);
  remora_memory_free(memory);

  OK(remora_engine_allocate_slots(world->engine, 2, 100, &slots, &g_error));
  slot = remora_slots_take(slots);
  other = remora_slots_take(slots);
  CHECK(slot != NULL && other != NULL && slot != other && remora_slots_take(slots) == NULL);
  CHECK((uintptr_t)slot % 64 == 0);
  memset(slot, 9, 100);
  OK(remora_region_write(region, 200, slot, 100, remora_slots_memory(slots), 0, &g_error));
  OK(remora_region_read(region, 200, other, 100, remora_slots_memory(slots), 0, &g_error));
  CHECK(other[99] == 9);
  OK(remora_slots_return(slots, slot));
  CHECK(remora_slots_return(slots, slot) == REMORA_INVALID_ARGUMENT);
  CHECK(remora_slots_return(slots, other + 1) == REMORA_INVALID_ARGUMENT);
  CHECK(remora_slots_return(slots, NULL) == REMORA_INVALID_ARGUMENT);
  CHECK(remora_slots_take(slots) == slot);
  remora_slots_free(slots);
}

static void use_atomics(remora_region* region) {
  uint64_t before = 1;
  OK(remora_region_write_zeroes(region, 64, 8, 0, &g_error));
  OK(remora_region_fetch_add(region, 64, 5, &before, 0, &g_error));
  CHECK(before == 0);
  OK(remora_region_compare_swap(region, 64, 5, 77, &before, 0, &g_error));
  CHECK(before == 5);
  OK(remora_region_compare_swap(region, 64, 5, 78, &before, 0, &g_error));
  CHECK(before == 77);
  FAILS(REMORA_MISALIGNED, remora_region_fetch_add(region, 65, 1, &before, 0, &g_error));
  OK(remora_region_flush_visible(region, 0, &g_error));
}

static void use_fences(const struct world* world, remora_region* region) {
  remora_region* fenced = NULL;
  remora_region* again = NULL;
  remora_region* newest = NULL;
  unsigned char byte = 1;
  int same = 0;
  OK(remora_region_fence(region, &fenced, &g_error));
  FAILS(REMORA_ACCESS_REFUSED, remora_region_write(region, 0, &byte, 1, NULL, 0, &g_error));
  CHECK(g_error.reason == REMORA_REASON_FENCED);
  OK(remora_region_write(fenced, 0, &byte, 1, NULL, 0, &g_error));
  OK(remora_region_reopen(region, &again, &same, &g_error));
  CHECK(same == 1);
  OK(remora_region_read(again, 0, &byte, 1, NULL, 0, &g_error));
  OK(remora_engine_fence_region(world->engine, region_uri(world, "operations"), REMORA_RIGHT_READ,
                                &newest, &g_error));
  CHECK(remora_region_rights(newest) == REMORA_RIGHT_READ);
  FAILS(REMORA_NO_RIGHT, remora_region_write(newest, 0, &byte, 1, NULL, 0, &g_error));
  FAILS(REMORA_ACCESS_REFUSED, remora_region_read(again, 0, &byte, 1, NULL, 0, &g_error));
  remora_region_free(newest);
  remora_region_free(again);
  remora_region_free(fenced);
}

void use_regions(struct world* world) {
  remora_region* region = make_region(world, "operations");
  remora_region_info info = {.size = sizeof info};
  remora_region* missing = NULL;
  OK(remora_region_info_of(region, &info, &g_error));
  CHECK(strcmp(info.name, "operations") == 0 && info.size_bytes == 65536);
  CHECK(remora_region_size_bytes(region) == 65536);
  CHECK(remora_region_rights(region) == REMORA_RIGHT_ALL);
  CHECK(remora_region_transport(region) == world->kind && remora_region_connected(region) == 1);
  CHECK(strlen(remora_region_transport_reason(region)) > 0);
  OK(remora_region_settled(region, 1000000000, &g_error));
  FAILS(REMORA_UNKNOWN_REGION, remora_engine_open_region(world->engine, region_uri(world, "none"),
                                                         REMORA_RIGHT_READ, &missing, &g_error));
  CHECK(missing == NULL && strcmp(g_error.subject, "none") == 0 && g_error.server[0] != 0);
  use_bytes(region);
  use_many(region);
  use_memory(world, region);
  use_atomics(region);
  OK(remora_region_write_notify(region, 512, "hello", 5, NULL, 42, 0, &g_error));
  CHECK(came(&world->notices, 1) && world->notice == 42 && world->notice_offset == 512);
  use_fences(world, region);
  remora_region_free(region);
}
