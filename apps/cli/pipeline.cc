#include "cli/pipeline.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include <remora/mutex.h>
#include <remora/start_thread.h>

#include "cli/interrupt.h"
#include "cli/opened_store.h"
#include "cli/pipeline_ring.h"

namespace remora::apps {
namespace {

/// The state that the streams of one transfer share.
class SharedTransfer {
 public:
  explicit SharedTransfer(const TransferJob& job) : job_{job}, next_{job.first}, done_{job.first} {}

  [[nodiscard]] const TransferJob& job() const noexcept { return job_; }
  [[nodiscard]] bool stopped() const noexcept { return stopped_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::uint64_t done() const noexcept {
    return done_.load(std::memory_order_relaxed);
  }
  void count(const Piece& piece) {
    done_.fetch_add(piece.length, std::memory_order_relaxed);
    if (job_.moved) job_.moved(piece);
  }

  /// Makes the streams end soon; the first error is that of the transfer.
  void stop(const Error& error) {
    {
      const detail::MutexLock lock{mutex_};
      if (status_) status_ = error;
    }
    stopped_.store(true, std::memory_order_relaxed);
    stop_summing();
  }
  /// The source has become shorter: bytes behind its end are not in the sum.
  void cut() {
    cut_.store(true, std::memory_order_relaxed);
    stop_summing();
  }
  [[nodiscard]] bool was_cut() const noexcept { return cut_.load(std::memory_order_relaxed); }
  [[nodiscard]] Status status() {
    const detail::MutexLock lock{mutex_};
    return status_;
  }

  /// Blocks until every byte before `end` has been summed, so that its memory can be used again.
  /// False: the transfer has failed or the source has become shorter.
  [[nodiscard]] bool await_summed(std::uint64_t end) {
    return job_.checksum == nullptr || end == 0 || job_.checksum->await(end);
  }

  Result<Piece> next_of(UploadSource& source, std::span<std::byte> into) {
    const detail::MutexLock lock{source_mutex_};
    return source.next(into);
  }
  /// The next piece of a download.
  Piece claim() noexcept {
    const std::uint64_t at = next_.fetch_add(kPieceBytes, std::memory_order_relaxed);
    if (at >= job_.length) return {};
    return {at, std::min<std::uint64_t>(kPieceBytes, job_.length - at), false};
  }

  void begin_stream() {
    const detail::MutexLock lock{mutex_};
    ++running_;
  }
  void end_stream() {
    const detail::MutexLock lock{mutex_};
    --running_;
    stream_ended_.notify_all();
  }
  /// Waits for the streams that have their own threads.
  void await_streams() {
    detail::MutexLock lock{mutex_};
    while (running_ > 0) {
      stream_ended_.wait_for(lock, std::chrono::milliseconds{100});
      lock.unlock();
      if (job_.progress) job_.progress(done());
      lock.lock();
    }
  }

 private:
  void stop_summing() {
    if (job_.checksum != nullptr) job_.checksum->stop();
  }

  const TransferJob& job_;
  std::atomic<std::uint64_t> next_;
  std::atomic<std::uint64_t> done_;
  std::atomic<bool> stopped_{false};
  std::atomic<bool> cut_{false};
  detail::Mutex source_mutex_;
  detail::Mutex mutex_;
  detail::Condition stream_ended_;
  std::size_t running_ REMORA_GUARDED_BY(mutex_) = 0;
  Status status_ REMORA_GUARDED_BY(mutex_);
};

/// One stream of an upload.
class UploadStream {
 public:
  UploadStream(SharedTransfer& shared, PipelineRing& ring, UploadSource& source, bool leads)
      : shared_{shared},
        job_{shared.job()},
        ring_{ring},
        source_{source},
        leads_{leads},
        pieces_(ring.depth()) {
    for (std::size_t i = ring.depth(); i > 0; --i) free_pieces_.push_back(i - 1);
  }

  void run() {
    while (!ended_ || ring_.queue().size() > 0) {
      if (!ended_ && interrupted() != 0) shared_.stop(interruption());
      if (shared_.stopped()) ended_ = true;
      if (!ended_ && !free_pieces_.empty())
        send_next();
      else if (collect(1) == 0)
        break;  // the others were never submitted
    }
    if (job_.visible && !shared_.stopped()) make_visible();
  }

 private:
  std::size_t collect(std::size_t at_least) {
    const std::size_t found =
        ring_.queue().wait(at_least, [this](std::uint64_t tag, const Status& status) {
          free_pieces_.push_back(tag);
          if (status)
            shared_.count(pieces_[tag]);
          else
            shared_.stop(status.error());
        });
    if (leads_ && job_.progress) job_.progress(shared_.done());
    return found;
  }

  void send_next() {
    // A source may be silent for long; no operation of this stream waits meanwhile.
    if (ring_.queue().size() > 0 && !source_.ready()) collect(ring_.queue().size());
    if (shared_.stopped()) return;  // the source may be silent for ever
    const std::size_t index = free_pieces_.back();
    Piece& piece = pieces_[index];
    ended_ = !shared_.await_summed(piece.at + piece.length);
    if (ended_) return;
    const std::span<std::byte> into = ring_.piece(index);
    const Result<Piece> next = shared_.next_of(source_, into);
    if (!next) return shared_.stop(next.error());
    if (next->length == 0) {
      ended_ = true;
      return;
    }
    if (next->at > job_.length || next->length > job_.length - next->at)
      return shared_.stop(Error{Code::kLimitExceeded, "write beyond the room"}.with_limit(
          next->at + next->length, job_.length));
    piece = *next;
    if (!piece.hole && !fill(piece, into)) return;
    free_pieces_.pop_back();
    send(piece, index);
  }

  /// False: there are no bytes to send.
  bool fill(Piece& piece, std::span<std::byte> into) {
    const Result<std::size_t> got = source_.fill(piece, into.first(piece.length));
    if (got && *got == piece.length) return true;
    ended_ = true;
    if (got)
      shared_.cut();
    else
      shared_.stop(got.error());
    piece.length = got ? *got : 0;
    return piece.length > 0;
  }

  void send(const Piece& piece, std::size_t index) {
    if (job_.checksum != nullptr) {
      if (piece.hole)
        job_.checksum->add_zeroes(piece.at, piece.length);
      else
        job_.checksum->add(piece.at, ring_.piece(index).first(piece.length));
    }
    const std::uint64_t to = job_.offset + piece.at;
    const Status sent = piece.hole ? ring_.write_zeroes(to, index, piece.length)
                                   : ring_.write(to, index, piece.length);
    if (!sent) shared_.stop(sent.error());
  }

  void make_visible() {
    if (const Status sent = ring_.queue().flush_visible(0); !sent) shared_.stop(sent.error());
    ring_.queue().wait(1, [this](std::uint64_t /*tag*/, const Status& status) {
      if (!status) shared_.stop(status.error());
    });
  }

  SharedTransfer& shared_;
  const TransferJob& job_;
  PipelineRing& ring_;
  UploadSource& source_;
  bool leads_;  ///< its thread is that of the caller
  bool ended_ = false;
  std::vector<Piece> pieces_;  ///< by index: in flight, or the last one
  std::vector<std::size_t> free_pieces_;
};

/// One stream of a download. It passes its pieces to the target in the order in which it has
/// requested them.
class DownloadStream {
 public:
  DownloadStream(SharedTransfer& shared, PipelineRing& ring, DownloadTarget& target, bool leads)
      : shared_{shared},
        job_{shared.job()},
        ring_{ring},
        target_{target},
        leads_{leads},
        pieces_(ring.depth()),
        arrived_(ring.depth()) {}

  void run() {
    while (!shared_.stopped()) {
      if (interrupted() != 0) return shared_.stop(interruption());
      while (asked_ - consumed_ < ring_.depth() && ask()) {
      }
      if (shared_.stopped() || asked_ == consumed_) return;
      // One piece in each round, so that the next read is requested before the piece after it is
      // consumed.
      if (await_head()) consume_head();
    }
  }

 private:
  /// False: no piece is left to request.
  bool ask() {
    const std::size_t index = asked_ % ring_.depth();
    Piece& piece = pieces_[index];
    if (shared_.stopped() || !shared_.await_summed(piece.at + piece.length)) return false;
    const Piece next = shared_.claim();
    if (next.length == 0) return false;
    piece = next;
    arrived_[index] = false;
    const Status sent = ring_.read(job_.offset + piece.at, index, piece.length);
    if (!sent) shared_.stop(sent.error());
    ++asked_;
    return sent.ok();
  }

  bool await_head() {
    const std::size_t head = consumed_ % ring_.depth();
    const std::size_t found =
        ring_.queue().wait(arrived_[head] ? 0 : 1, [this](std::uint64_t tag, const Status& status) {
          arrived_[tag] = status.ok();
          if (!status) shared_.stop(status.error());
        });
    if (found == 0 && !arrived_[head])
      shared_.stop(Error{Code::kInternal, "read that was not submitted"});
    return arrived_[head] && !shared_.stopped();
  }

  void consume_head() {
    const std::size_t head = consumed_ % ring_.depth();
    const Piece& piece = pieces_[head];
    const std::span<const std::byte> bytes = ring_.piece(head).first(piece.length);
    if (job_.checksum != nullptr) job_.checksum->add(piece.at, bytes);
    if (const Status written = target_.write(piece.at, bytes); !written)
      return shared_.stop(written.error());
    shared_.count(piece);
    ++consumed_;
    if (leads_ && job_.progress) job_.progress(shared_.done());
  }

  SharedTransfer& shared_;
  const TransferJob& job_;
  PipelineRing& ring_;
  DownloadTarget& target_;
  bool leads_;  ///< its thread is that of the caller
  std::vector<Piece> pieces_;
  std::vector<bool> arrived_;
  std::uint64_t asked_ = 0;
  std::uint64_t consumed_ = 0;
};

/// The rings of all streams. Until it is destroyed, the checksum may read their memory.
class StreamRings {
 public:
  explicit StreamRings(ChecksumThread* checksum) : checksum_{checksum} {}
  ~StreamRings() {
    if (checksum_ != nullptr && !summed_) checksum_->halt();
  }
  StreamRings(const StreamRings&) = delete;
  StreamRings& operator=(const StreamRings&) = delete;

  Status open(const TransferJob& job) {
    const std::size_t usual = job.streams == 1 ? kPiecesInFlight : kPiecesOfStreams;
    const auto of_row = static_cast<std::size_t>(job.store.row_bytes() / kPieceBytes);
    const std::size_t depth = std::clamp(of_row, usual, kPiecesMax) / job.streams;
    rings_.reserve(job.streams);
    for (unsigned i = 0; i < job.streams; ++i) {
      auto ring = PipelineRing::open(job.store, depth);
      if (!ring) return ring.error();
      rings_.push_back(std::move(*ring));
    }
    return ok_status();
  }
  [[nodiscard]] std::vector<PipelineRing>& rings() noexcept { return rings_; }
  /// Waits until all bytes before `end` have been summed; false: they will not be.
  bool await_summed(std::uint64_t end) {
    summed_ = checksum_ == nullptr || checksum_->await(end);
    return summed_;
  }

 private:
  ChecksumThread* checksum_;
  bool summed_ = false;
  std::vector<PipelineRing> rings_;
};

template <typename Run>
void run_in_stream(SharedTransfer& shared, const Run& run) noexcept {
  try {
    run();
  } catch (const std::exception&) {
    shared.stop(Error{Code::kOutOfMemory, "transfer"});
  }
}

/// Runs `run(ring, leads)` for each ring: for the first in this thread, for the others in their own
/// threads; a ring without a thread is not used.
template <typename Run>
void run_streams(SharedTransfer& shared, std::vector<PipelineRing>& rings, const Run& run) {
  std::vector<std::thread> threads;
  threads.reserve(rings.size());
  for (std::size_t i = 1; i < rings.size(); ++i) {
    shared.begin_stream();
    auto thread = detail::start_thread("remora-stream", [&shared, &run, &ring = rings[i]] {
      run_in_stream(shared, [&] { run(ring, false); });
      shared.end_stream();
    });
    if (!thread) {
      shared.end_stream();
      break;
    }
    threads.push_back(std::move(*thread));
  }
  run_in_stream(shared, [&] { run(rings.front(), true); });
  shared.await_streams();
  for (std::thread& thread : threads) thread.join();
}

/// The same for both directions: `run(shared, ring, leads)` is the work of a stream.
template <typename Run>
Transferred transfer(const TransferJob& job, const Run& run) {
  StreamRings rings{job.checksum};
  if (const Status opened = rings.open(job); !opened) return {.bytes = 0, .status = opened};
  SharedTransfer shared{job};
  run_streams(shared, rings.rings(),
              [&](PipelineRing& ring, bool leads) { run(shared, ring, leads); });
  Transferred outcome{.bytes = shared.done() - job.first, .status = shared.status()};
  if (outcome.status && !shared.was_cut() && !rings.await_summed(shared.done()))
    outcome.status = Error{Code::kInternal, "checksum"};
  return outcome;
}

/// Passes the bytes of a download to a consumer.
class ConsumerTarget final : public DownloadTarget {
 public:
  explicit ConsumerTarget(const Consumer& consumer) : consumer_{consumer} {}
  Status write(std::uint64_t /*at*/, std::span<const std::byte> bytes) override {
    return consumer_(bytes);
  }

 private:
  const Consumer& consumer_;
};

}  // namespace

Transferred upload(const TransferJob& job, UploadSource& source) {
  return transfer(job, [&](SharedTransfer& shared, PipelineRing& ring, bool leads) {
    UploadStream{shared, ring, source, leads}.run();
  });
}

Transferred download(const TransferJob& job, DownloadTarget& target) {
  return transfer(job, [&](SharedTransfer& shared, PipelineRing& ring, bool leads) {
    DownloadStream{shared, ring, target, leads}.run();
  });
}

Transferred upload(const OpenedStore& store, std::uint64_t offset, std::uint64_t limit_bytes,
                   const Producer& producer) {
  ProducerSource source{producer};
  return upload({.store = store, .offset = offset, .length = limit_bytes}, source);
}

Transferred download(const OpenedStore& store, std::uint64_t offset, std::uint64_t length,
                     const Consumer& consumer) {
  ConsumerTarget target{consumer};
  return download({.store = store, .offset = offset, .length = length}, target);
}

}  // namespace remora::apps
