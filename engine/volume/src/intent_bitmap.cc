#include "intent_bitmap.h"

#include <utility>

#include <remora/assert.h>

namespace remora::volume::detail {

using remora::detail::MutexLock;

namespace {

Error too_late() { return Error{Code::kTimedOut, "mark of a zone"}; }

}  // namespace

IntentBitmap::IntentBitmap(std::uint32_t zones, WriteWord write_word)
    : marked_{zones},
      words_{std::make_unique<Word[]>(marked_.word_count())},
      write_word_{std::move(write_word)} {}

std::uint64_t IntentBitmap::begin(std::uint32_t index, Word& word, std::uint64_t cleared) {
  REMORA_ASSERT(!word.in_flight, "one write of a word is in flight at a time");
  word.in_flight = true;
  marked_.set_word(index, marked_.word(index) & ~cleared);
  return marked_.word(index) | word.wanted;
}

void IntentBitmap::end(std::uint32_t index, Word& word, std::uint64_t value, bool written) {
  REMORA_ASSERT(word.in_flight, "a write of a word ends once");
  word.in_flight = false;
  if (written) {
    marked_.set_word(index, value);
    word.wanted &= ~value;
  }
  word.changed.notify_all();
}

Status IntentBitmap::mark_now(std::uint32_t zone, Time until) {
  const std::uint32_t index = zone / kZonesOfWord;
  Word& word = words_[index];
  MutexLock lock{word.mutex};
  while (!marked_.has(zone)) {
    word.wanted |= ZoneFlags::bit(zone);
    if (word.in_flight) {
      if (word.changed.wait_until(lock, until) == std::cv_status::timeout) return too_late();
      continue;
    }
    // The write of a word has a time of its own, which can be long.
    if (Time::clock::now() >= until) return too_late();
    const std::uint64_t value = begin(index, word, 0);
    lock.unlock();
    const Status written = write_word_(index, value);
    lock.lock();
    end(index, word, value, written.ok());
    if (!written) return written;
  }
  return {};
}

Status IntentBitmap::clear(std::uint32_t index, std::uint64_t mask, Time until) {
  Word& word = words_[index];
  MutexLock lock{word.mutex};
  while (word.in_flight)
    if (word.changed.wait_until(lock, until) == std::cv_status::timeout) return too_late();
  const std::uint64_t value = begin(index, word, mask);
  lock.unlock();
  const Status written = write_word_(index, value);
  lock.lock();
  end(index, word, value, written.ok());
  return written;
}

Status IntentBitmap::repeat(std::uint32_t index, Time until) { return clear(index, 0, until); }

}  // namespace remora::volume::detail
