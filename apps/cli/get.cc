/// remora get: copies a region or a volume into a file or a stream.

#include <atomic>
#include <chrono>
#include <iostream>
#include <memory>
#include <utility>

#include <remora/config/printable.h>

#include "cli/interrupt.h"
#include "cli/opened_store.h"
#include "cli/output.h"
#include "cli/pipeline.h"
#include "cli/progress.h"
#include "cli/transfer.h"

namespace remora::apps {
namespace {

/// The options that exclude each other; empty: none.
std::string get_complaint(const Globals& globals, const TransferOptions& options) {
  const bool to_stdout = options.file == "-";
  if (globals.json && to_stdout) return "the bytes and --json both want standard output";
  if (options.resume && to_stdout)
    return "--resume needs a regular file: standard output cannot be written from the middle";
  if (options.resume && options.checksum == ChecksumKind::kNone)
    return "--resume tells by the checksum whether what is there is that of before; leave out "
           "--checksum none";
  return {};
}

/// The options that do not fit the output; empty: all do.
std::string output_complaint(const TransferOptions& options, const Output& output) {
  if (output.is_file()) return {};
  if (options.resume)
    return "--resume needs a regular file: " + output.name() + " cannot be written from the middle";
  if (options.verify && options.checksum == ChecksumKind::kNone)
    return "--verify compares a stream by its checksum; leave out --checksum none";
  return {};
}

/// Writes to the output of a get.
class OutputTarget final : public DownloadTarget {
 public:
  /// `sparse`: zeroes become holes.
  OutputTarget(Output& output, bool sparse) : output_{output}, sparse_{sparse} {}

  Status write(std::uint64_t at, std::span<const std::byte> bytes) override {
    if (!output_.is_file()) return output_.write(bytes);
    if (!sparse_) return output_.write_at(at, bytes);
    std::uint64_t skipped = 0;
    const Status written = output_.write_sparse(at, bytes, skipped);
    hole_bytes_.fetch_add(skipped, std::memory_order_relaxed);
    return written;
  }
  [[nodiscard]] std::uint64_t hole_bytes() const noexcept {
    return hole_bytes_.load(std::memory_order_relaxed);
  }

 private:
  Output& output_;
  bool sparse_;
  std::atomic<std::uint64_t> hole_bytes_{0};
};

/// One get, once everything is open.
class GetRun {
 public:
  GetRun(const Globals& globals, const TransferOptions& options, const OpenedStore& store,
         Output& output, std::uint64_t length, unsigned streams)
      : globals_{globals},
        options_{options},
        store_{store},
        output_{output},
        length_{length},
        streams_{streams},
        what_{"get " + options.file} {}

  Outcome run() {
    auto start = begin();
    if (!start) return tl::make_unexpected(std::move(start.error()));
    start_ = std::move(*start);
    // Bytes that an earlier run has written behind its last checkpoint may be older than those of
    // the store.
    if (output_.is_file())
      if (const Status cut = output_.resize(start_.first, length_); !cut)
        return failed(cut.error());
    auto checksum = start_checksum(start_);
    if (!checksum) return failed(checksum.error());
    checksum_ = std::move(*checksum);

    const auto began = Clock::now();
    OutputTarget target{output_, !options_.dense};
    const Transferred moved = transfer(target);
    if (!moved.status) return failed(moved.status.error());
    seconds_ = std::chrono::duration<double>(Clock::now() - began).count();
    if (checksum_ != nullptr) digest_ = checksum_->digest();
    if (auto same = compare(); !same) {
      const bool differs = same.error().exit_code == ExitCode::kDifferent;
      if (start_.journal != nullptr) settle(!differs);
      return tl::make_unexpected(std::move(same.error()));
    }
    if (const Status committed = output_.commit(); !committed) return failed(committed.error());
    if (start_.journal != nullptr) start_.journal->remove();
    conclude(target.hole_bytes());
    return ExitCode::kOk;
  }

 private:
  using Clock = std::chrono::steady_clock;

  tl::expected<TransferStart, Failure> begin() {
    if (!options_.resume) return start_anew(options_);
    Json identity = journal_identity(options_, store_, length_);
    identity["length"] = length_;
    auto start = start_resumed(
        options_, journal_names(options_, "get", output_.part_name()), identity,
        [this](std::uint64_t at, std::span<std::byte> into) { return output_.read_at(at, into); },
        what_);
    if (start) output_.keep(start->first > 0);
    return start;
  }

  Transferred transfer(OutputTarget& target) {
    Progress progress{config::printable("get " + output_.name()), length_, start_.first};
    TransferJob job{.store = store_};
    job.offset = options_.offset;
    job.first = start_.first;
    job.length = length_;
    job.streams = streams_;
    job.checksum = checksum_.get();
    job.progress = [&progress](std::uint64_t done) { progress.update(done); };
    if (start_.journal != nullptr)
      job.moved = [journal = start_.journal.get()](const Piece& piece) { journal->moved(piece); };
    return download(job, target);
  }

  /// The end of a get that has failed: with --resume, the fetched bytes stay.
  Outcome failed(const Error& error) {
    Failure failure{error, what_};
    if (start_.journal == nullptr) return tl::make_unexpected(std::move(failure));
    const std::uint64_t done = start_.journal->done();
    settle(done > 0);
    if (done > 0)
      failure.text += "; the first " + std::to_string(done) + " bytes are in " +
                      output_.part_name() + ", and the same command goes on from there (state in " +
                      start_.journal->path() + ")";
    else
      failure.text += "; the same command begins at the first byte";
    return tl::make_unexpected(std::move(failure));
  }

  /// Decides whether the next run continues from the bytes that this one has fetched.
  void settle(bool stays) {
    output_.keep(stays);
    if (!stays) start_.journal->remove();
  }

  tl::expected<void, Failure> compare() {
    if (!options_.verify) return {};
    Verification job{.store = store_};
    job.offset = options_.offset;
    job.length = length_;
    job.streams = streams_;
    if (output_.is_file())
      job.read_at = [this](std::uint64_t at, std::span<std::byte> into) {
        return output_.read_at(at, into);
      };
    job.checksum = options_.checksum;
    job.digest = digest_;
    job.what = what_;
    job.remedy = "another client writes to the " + std::string{store_.kind()} +
                 ", or memory or the disk is at fault" +
                 (output_.is_file() ? "; the file was not made" : "");
    return verify(job);
  }

  void conclude(std::uint64_t hole_bytes) const {
    TransferReport report{.verb = "got", .store = store_};
    report.bytes = length_;
    report.resumed_bytes = start_.first;
    report.hole_bytes = hole_bytes;
    report.seconds = seconds_;
    report.streams = streams_;
    report.checksum = options_.checksum;
    report.digest = digest_;
    report.verified = options_.verify;
    print_report(output_.is_stdout() ? std::cerr : std::cout, globals_, report);
    if (globals_.json || options_.length) return;
    std::cerr << "remora: note: this is all of the " << store_.kind()
              << " from there; --length fetches as many bytes as 'put' has stored"
              << (digest_.empty() ? "" : ", and only these have its ")
              << (digest_.empty() ? std::string_view{} : to_string(options_.checksum)) << '\n';
  }

  const Globals& globals_;
  const TransferOptions& options_;
  const OpenedStore& store_;
  Output& output_;
  std::uint64_t length_;
  unsigned streams_;
  std::string what_;
  TransferStart start_;  // outlives the checksum, whose thread writes to its journal
  std::unique_ptr<ChecksumThread> checksum_;
  double seconds_ = 0;
  std::string digest_;
};

/// The number of bytes to fetch, or why they do not exist.
tl::expected<std::uint64_t, Failure> length_of_get(const TransferOptions& options,
                                                   const OpenedStore& store) {
  const std::string what = "get " + options.file + ": ";
  if (const std::string fault = offset_fault(store, options.offset); !fault.empty())
    return fail(ExitCode::kRefused, what + fault);
  const std::uint64_t there = store.size_bytes() - options.offset;
  const std::uint64_t length = options.length.value_or(there);
  if (length > there)
    return fail(ExitCode::kRefused, what + std::to_string(length) + " bytes are more than " +
                                        bytes_of(store, options.offset));
  return length;
}

}  // namespace

Outcome get(const Globals& globals, const TransferOptions& options) {
  if (auto checked = check_store_uri(options.uri); !checked)
    return tl::make_unexpected(std::move(checked.error()));
  if (options.file.empty())
    return fail(ExitCode::kUsage, "get: the name of FILE is empty; nothing was fetched");
  const std::string what = "get " + options.file;
  if (const std::string text = get_complaint(globals, options); !text.empty())
    return fail(ExitCode::kUsage, what + ": " + text);
  const unsigned lanes = options.file == "-" ? 1 : options.streams.value_or(1);
  const auto open = [&](unsigned streams) {
    return OpenedStore::open(globals, options.uri, Rights::kRead, what,
                             engine_for_streams(streams));
  };
  auto first = open(lanes);
  if (!first) return tl::make_unexpected(std::move(first.error()));
  std::unique_ptr<OpenedStore> opened = std::move(*first);
  auto length = length_of_get(options, *opened);
  if (!length) return tl::make_unexpected(std::move(length.error()));
  auto output =
      Output::open(options.file, options.resume ? Output::Kind::kResumable : Output::Kind::kWhole);
  if (!output) return fail(output.error(), what);
  if (const std::string text = output_complaint(options, *output); !text.empty())
    return fail(ExitCode::kUsage, what + ": " + text);
  unsigned streams = output->is_file() ? streams_for(options, *length) : 1;
  if (streams > lanes && !opened->mapped()) {
    // The size was not known before. Over shm every queue uses the one lane.
    // Where the server or this process has no room for a second session, one lane will do.
    auto again = open(streams);
    if (!again && options.streams) return tl::make_unexpected(std::move(again.error()));
    if (again) {
      opened = std::move(*again);
      length = length_of_get(options, *opened);
      if (!length) return tl::make_unexpected(std::move(length.error()));
    } else {
      streams = 1;
    }
  }
  catch_interrupts();
  return GetRun{globals, options, *opened, *output, *length, streams}.run();
}

}  // namespace remora::apps
