/* Queues: all operations, groups of pairs, errors, cancelling, and an event loop. */

#include <poll.h>

#include "everything.h"

enum { kDepth = 16 };

/* Waits for `count` operations and stores their completions by tag, which is below kDepth. */
static void collect(remora_queue* queue, size_t count, remora_completion* by_tag) {
  remora_completion found[3];
  while (count > 0) {
    size_t some = 0;
    OK(remora_queue_wait(queue, count, found, 3, &some, &g_error));
    CHECK(some > 0 && some <= count);
    for (size_t i = 0; i < some; ++i) by_tag[found[i].tag] = found[i];
    count -= some;
  }
}

static void use_operations(struct world* world, remora_queue* queue) {
  static unsigned char out[4096], in[4096];
  remora_completion by_tag[kDepth];
  remora_piece pieces[2], halves[2];
  uint64_t tickets[kDepth] = {0};
  memset(out, 5, sizeof out);
  OK(remora_piece_init(&halves[0], out, 10, NULL));
  OK(remora_piece_init(&halves[1], out + 20, 10, NULL));
  OK(remora_piece_init(&pieces[0], in, 100, NULL));
  OK(remora_piece_init(&pieces[1], in + 200, 100, NULL));
  tickets[0] = remora_queue_write(queue, 0, out, sizeof out, NULL, 0);
  CHECK(tickets[0] != 0);
  tickets[1] = remora_queue_write_zeroes(queue, 8192, 4096, 1);
  CHECK(tickets[1] != 0);
  OK(remora_queue_barrier(queue));
  CHECK(remora_queue_flush_visible(queue, 2) != 0);
  CHECK(remora_queue_fetch_add(queue, 8192, 10, 3) != 0);
  CHECK(remora_queue_read_pieces(queue, 0, pieces, 2, 4) != 0);
  CHECK(remora_queue_write_notify(queue, 4096, out, 10, NULL, 43, 5) != 0);
  CHECK(remora_queue_write_pieces(queue, 16384, halves, 2, 9) != 0);
  OK(remora_queue_barrier(queue));
  CHECK(remora_queue_compare_swap(queue, 8192, 10, 11, 6) != 0);
  CHECK(remora_queue_read(queue, 4096, in + 1000, 10, NULL, 7) != 0);
  tickets[8] = remora_queue_read(queue, 65536, in, 10, NULL, 8);
  CHECK(tickets[8] != 0);
  CHECK(remora_queue_read(queue, 16384, in + 2000, 20, NULL, 10) != 0);
  OK(remora_queue_submit(queue, &g_error));
  CHECK(tickets[0] != 0 && tickets[1] != tickets[0] && remora_queue_room(queue) == kDepth - 11);
  CHECK(remora_queue_next_deadline(queue) != UINT64_MAX);
  collect(queue, 11, by_tag);
  for (uint64_t tag = 0; tag < 11; ++tag) CHECK(tag == 8 || by_tag[tag].code == REMORA_OK);
  CHECK(by_tag[0].ticket == tickets[0]);
  CHECK(by_tag[3].old_value == 0 && by_tag[6].old_value == 10);
  CHECK(by_tag[8].code == REMORA_OUT_OF_RANGE && by_tag[8].ticket == tickets[8]);
  CHECK(in[99] == 5 && in[100] == 0 && in[299] == 5 && in[1009] == 5);
  CHECK(in[2000] == 5 && in[2019] == 5);
  CHECK(remora_queue_next_deadline(queue) == UINT64_MAX);
  CHECK(remora_queue_room(queue) == kDepth && remora_queue_depth(queue) == kDepth);
  (void)world;
}

static void use_errors(remora_queue* queue) {
  remora_completion found[kDepth];
  remora_completion stale;
  unsigned char byte = 0;
  uint64_t ticket = 0;
  size_t count = 0;
  CHECK(remora_queue_read(queue, 70000, &byte, 1, NULL, 1) != 0);
  OK(remora_queue_submit(queue, &g_error));
  OK(remora_queue_wait(queue, 1, found, kDepth, &count, &g_error));
  CHECK(count == 1 && found[0].code == REMORA_OUT_OF_RANGE);
  CHECK(remora_queue_completion_error(queue, &found[0], &g_error) == REMORA_OUT_OF_RANGE);
  CHECK(g_error.has_place == 1 && g_error.offset == 70000 && g_error.message[0] != 0);
  stale = found[0];

  ticket = remora_queue_read(queue, 0, &byte, 1, NULL, 2);
  CHECK(ticket != 0);
  OK(remora_queue_cancel(queue, ticket, &g_error));
  OK(remora_queue_poll(queue, found, kDepth, &count, &g_error));
  CHECK(count == 1 && found[0].code == REMORA_CANCELLED && found[0].ticket == ticket);
  CHECK(remora_queue_completion_error(queue, &stale, &g_error) == REMORA_NOT_FOUND);
  FAILS(REMORA_NOT_FOUND, remora_queue_cancel(queue, ticket, &g_error));
  FAILS(REMORA_INVALID_ARGUMENT, remora_queue_wait(queue, 1, found, 0, &count, &g_error));

  for (uint64_t tag = 0; tag < kDepth; ++tag)
    CHECK(remora_queue_read(queue, tag, &byte, 1, NULL, tag) != 0);
  CHECK(remora_queue_room(queue) == 0);
  CHECK(remora_queue_read(queue, 0, &byte, 1, NULL, 0) == 0);
  OK(remora_queue_submit(queue, &g_error));
  collect(queue, kDepth, found);
}

static void use_event_loop(remora_queue* queue) {
  static unsigned char in[kDepth][64];
  remora_completion found[4];
  int descriptor = -1;
  size_t done = 0;
  size_t count = 0;
  OK(remora_queue_event_fd(queue, &descriptor, &g_error));
  for (size_t i = 0; i < kDepth; ++i)
    CHECK(remora_queue_read(queue, 64 * i, in[i], 64, NULL, i) != 0);
  OK(remora_queue_submit(queue, &g_error));
  for (int turns = 0; done < kDepth && turns < 100; ++turns) {
    struct pollfd ready = {.fd = descriptor, .events = POLLIN, .revents = 0};
    CHECK(poll(&ready, 1, 10000) == 1);
    do {
      OK(remora_queue_progress(queue, found, 4, &count, &g_error));
      for (size_t i = 0; i < count; ++i) CHECK(found[i].code == REMORA_OK);
      done += count;
    } while (count == 4);
  }
  CHECK(done == kDepth);
}

/* The one completion of a group of pairs. */
static remora_completion end_of_group(remora_queue* queue) {
  remora_completion done[2];
  size_t count = 0;
  OK(remora_queue_submit(queue, &g_error));
  OK(remora_queue_wait(queue, 1, done, 2, &count, &g_error));
  CHECK(count == 1 && remora_queue_room(queue) == kDepth);
  return done[0];
}

/* Many pairs as one operation. */
static void use_groups(remora_queue* queue) {
  static unsigned char out[8][64], in[8][64];
  remora_pair pairs[8];
  remora_pair_outcome each[8];
  remora_add_pair adds[2] = {{40960, 5, 9}, {40968, 6, 9}};
  remora_swap_pair swaps[2] = {{40960, 5, 50, 9}, {40968, 1, 60, 9}};
  remora_completion done;
  uint64_t ticket;
  size_t i;
  memset(out, 66, sizeof out);
  for (i = 0; i < 8; ++i) {
    pairs[i].offset = 32768 + 128 * i;
    out[i][0] = (unsigned char)i;
    OK(remora_piece_init(&pairs[i].piece, out[i], 64, NULL));
  }
  ticket = remora_queue_write_many(queue, pairs, 8, NULL, 20);
  CHECK(ticket != 0 && remora_queue_room(queue) == kDepth - 8);
  done = end_of_group(queue);
  CHECK(done.code == REMORA_OK && done.tag == 20 && done.ticket == ticket);

  for (i = 0; i < 8; ++i) OK(remora_piece_init(&pairs[i].piece, in[i], 64, NULL));
  CHECK(remora_queue_read_many(queue, pairs, 8, each, 21) != 0);
  done = end_of_group(queue);
  CHECK(done.code == REMORA_OK && done.tag == 21 && memcmp(out, in, sizeof in) == 0);
  for (i = 0; i < 8; ++i) CHECK(each[i].code == REMORA_OK && each[i].reason == 0);
  pairs[3].offset = 65536;
  pairs[5].piece.length = 0;
  CHECK(remora_queue_read_many(queue, pairs, 8, each, 22) != 0);
  done = end_of_group(queue);
  CHECK(done.code == REMORA_OUT_OF_RANGE && done.tag == 22);
  CHECK(remora_queue_completion_error(queue, &done, &g_error) == REMORA_OUT_OF_RANGE);
  CHECK(strstr(g_error.message, "pair 3") != NULL && g_error.offset == 65536);
  for (i = 0; i < 8; ++i)
    CHECK(each[i].code == (i == 3   ? REMORA_OUT_OF_RANGE
                           : i == 5 ? REMORA_INVALID_ARGUMENT
                                    : REMORA_OK));
  CHECK(each[5].reason == REMORA_REASON_ZERO_LENGTH);

  CHECK(remora_queue_fetch_add_many(queue, adds, 2, NULL, 23) != 0);
  CHECK(end_of_group(queue).code == REMORA_OK && adds[0].before == 0 && adds[1].before == 0);
  CHECK(remora_queue_compare_swap_many(queue, swaps, 2, each, 24) != 0);
  CHECK(end_of_group(queue).code == REMORA_OK && swaps[0].before == 5 && swaps[1].before == 6);

  ticket = remora_queue_fetch_add_many(queue, adds, 2, each, 25);
  OK(remora_queue_cancel(queue, ticket, &g_error));
  CHECK(end_of_group(queue).code == REMORA_CANCELLED);
  CHECK(each[0].code == REMORA_CANCELLED && each[1].code == REMORA_CANCELLED);
  CHECK(remora_queue_read_many(queue, pairs, kDepth + 1, NULL, 0) == 0);
  CHECK(remora_queue_read_many(queue, pairs, 0, NULL, 0) == 0);
}

void use_queues(struct world* world) {
  remora_region* first = make_region(world, "first");
  remora_region* second = make_region(world, "second");
  remora_queue* queue = NULL;
  remora_queue* left = NULL;
  remora_completion found[2];
  uint64_t before = 0;
  size_t count = 0;
  unsigned char byte = 8;
  const remora_queue_options options = {.size = sizeof options, .depth = kDepth};
  OK(remora_queue_create(first, NULL, &left, &g_error));
  CHECK(remora_queue_depth(left) == 64);
  OK(remora_queue_create(first, &options, &queue, &g_error));
  use_operations(world, queue);
  use_errors(queue);
  use_groups(queue);
  use_event_loop(queue);
  OK(remora_queue_select(queue, second, &g_error));
  CHECK(remora_queue_write(queue, 3, &byte, 1, NULL, 0) != 0);
  CHECK(remora_queue_fetch_add(queue, 64, 4, 1) != 0);
  OK(remora_queue_submit(queue, &g_error));
  OK(remora_queue_wait(queue, 2, found, 2, &count, &g_error));
  CHECK(count == 2 && found[0].code == REMORA_OK && found[1].code == REMORA_OK);
  OK(remora_region_fetch_add(second, 64, 0, &before, 0, &g_error));
  CHECK(before == 4);
  /* What a queue was made from may go first. */
  remora_region_free(first);
  remora_region_free(second);
  CHECK(remora_queue_read(left, 0, &byte, 1, NULL, 0) != 0);
  OK(remora_queue_submit(left, &g_error));
  OK(remora_queue_wait(left, 1, found, 2, &count, &g_error));
  CHECK(count == 1 && found[0].code == REMORA_OK && byte == 5);
  remora_queue_free(queue);
  remora_queue_free(left);
}
