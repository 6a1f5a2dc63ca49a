#include "word_reader.h"

#include <span>
#include <utility>

#include "mirror_load.h"

namespace remora::fault {

WordReader::WordReader(Read read, LoadPage& page, std::uint32_t thread,
                       std::chrono::microseconds pause)
    : read_{std::move(read)}, page_{page}, number_{thread}, pause_{pause}, thread_{[this] {
        work();
      }} {}

WordReader::~WordReader() { stop(); }

void WordReader::stop() {
  over_ = true;
  if (thread_.joinable()) thread_.join();
}

/// A read is an addition of 0. One that failed has returned nothing.
void WordReader::work() {
  for (std::size_t turn = 0; !over_; ++turn) {
    const std::uint64_t word = mirror_word(turn % kMirrorWords);
    AtomicRecord* const record = page_.begin(kMirrorMemory, word, WordOperation{}, number_);
    if (record == nullptr) return;  // the page is full
    std::uint64_t value = 0;
    const Status done = read_(word, Target{std::as_writable_bytes(std::span{&value, 1})});
    LoadPage::end(*record, done ? Effect::kDone : Effect::kNone, value);
    if (done) ++good_;
    ++ended_;
    std::this_thread::sleep_for(pause_);
  }
}

}  // namespace remora::fault
