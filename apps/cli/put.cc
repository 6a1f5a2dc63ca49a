/// remora put: copies a file or a stream into a region or a volume.

#include <chrono>
#include <iostream>
#include <memory>

#include <remora/config/printable.h>

#include "cli/file_pieces.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/opened_store.h"
#include "cli/pipeline.h"
#include "cli/progress.h"
#include "cli/transfer.h"

namespace remora::apps {
namespace {

/// The options that do not fit the input; empty: all do.
std::string put_complaint(const TransferOptions& options, const Input& input) {
  if (options.resume && (!input.is_regular() || options.file == "-"))
    return "--resume needs a regular file: " + input.name() +
           " cannot be read again from the middle";
  if (options.resume && options.checksum == ChecksumKind::kNone)
    return "--resume tells by the checksum whether the file is that of before; leave out "
           "--checksum none";
  if (options.verify && !input.size_bytes() && options.checksum == ChecksumKind::kNone)
    return "--verify compares a stream by its checksum; leave out --checksum none";
  return {};
}

/// One put, once everything is open.
class PutRun {
 public:
  PutRun(const Globals& globals, const TransferOptions& options, const OpenedStore& store,
         Input& input, unsigned streams)
      : globals_{globals},
        options_{options},
        store_{store},
        input_{input},
        streams_{streams},
        what_{"put " + options.file},
        room_{store_.size_bytes() - options.offset} {}

  Outcome run() {
    auto start = begin();
    if (!start) return tl::make_unexpected(std::move(start.error()));
    start_ = std::move(*start);
    auto checksum = start_checksum(start_);
    if (!checksum) return fail(checksum.error(), what_);
    checksum_ = std::move(*checksum);

    const auto began = Clock::now();
    const Transferred moved = input_.size_bytes() ? put_file() : put_stream();
    bytes_ = start_.first + moved.bytes;
    if (auto wrong = fault(moved)) return tl::make_unexpected(std::move(*wrong));
    seconds_ = std::chrono::duration<double>(Clock::now() - began).count();
    if (checksum_ != nullptr) digest_ = checksum_->digest();
    if (auto same = compare(); !same) {
      if (start_.journal != nullptr && same.error().exit_code == ExitCode::kDifferent)
        start_.journal->remove();
      return tl::make_unexpected(std::move(same.error()));
    }
    if (start_.journal != nullptr) start_.journal->remove();
    conclude();
    return ExitCode::kOk;
  }

 private:
  using Clock = std::chrono::steady_clock;

  tl::expected<TransferStart, Failure> begin() {
    // An empty file is done before it could be interrupted.
    if (!options_.resume || !input_.size_bytes()) return start_anew(options_);
    const FileIdentity file = input_.identity();
    Json identity = journal_identity(options_, store_, file.size_bytes);
    identity["file"] = Json{{"inode", file.inode},
                            {"size", file.size_bytes},
                            {"modified_ns", file.modified_ns},
                            {"changed_ns", file.changed_ns}};
    return start_resumed(
        options_, journal_names(options_, "put", options_.file), identity,
        [this](std::uint64_t at, std::span<std::byte> into) { return input_.read_at(at, into); },
        what_);
  }

  TransferJob transfer_job(Progress& progress) {
    TransferJob job{.store = store_};
    job.offset = options_.offset;
    job.first = start_.first;
    job.length = room_;
    job.streams = streams_;
    job.visible = options_.verify;
    job.checksum = checksum_.get();
    job.progress = [&progress](std::uint64_t done) { progress.update(done); };
    if (start_.journal != nullptr)
      job.moved = [journal = start_.journal.get()](const Piece& piece) { journal->moved(piece); };
    return job;
  }

  Transferred put_file() {
    Progress progress{config::printable("put " + input_.name()), input_.size_bytes(), start_.first};
    FilePieces source{input_, start_.first, kCheckpointBytes};
    const Transferred moved = upload(transfer_job(progress), source);
    // With several streams, the bytes of a transfer that failed need not be the first ones.
    if (moved.status || streams_ == 1) input_.seek_behind(start_.first + moved.bytes);
    end_ = source.end();
    hole_bytes_ = source.hole_bytes();
    return moved;
  }

  Transferred put_stream() {
    Progress progress{config::printable("put " + input_.name()), std::nullopt};
    ProducerSource source{{[this](std::span<std::byte> into) { return input_.read(into); },
                           [this] { return input_.ready(); }}};
    return upload(transfer_job(progress), source);
  }

  /// The reason why this put has failed, if it has; prints warnings.
  std::optional<Failure> fault(const Transferred& moved) {
    if (!moved.status) {
      const std::string written = "; " + std::to_string(bytes_) + " bytes were written" + later();
      // Of upload() itself; the server's limits have other operations.
      if (moved.status.error().code() == Code::kLimitExceeded &&
          moved.status.error().operation() == kBeyondRoom)
        return Failure{ExitCode::kRefused, what_ + ": there is more than " +
                                               bytes_of(store_, options_.offset) + " can hold" +
                                               written};
      Failure failure{moved.status.error(), what_};
      failure.text += written;
      return failure;
    }
    const std::optional<std::uint64_t> size = input_.size_bytes();
    if (size && end_ < *size)
      return Failure{ExitCode::kLocal,
                     what_ + ": " + input_.change_since_open(end_) + "; the " +
                         std::string{store_.kind()} + " has these, and behind them " +
                         std::to_string(*size - end_) + " bytes as they were before" +
                         (streams_ > 1 ? " or as they were read" : "")};
    if (const std::string change = input_.change_since_open(bytes_); !change.empty())
      std::cerr << "remora: warning: " << config::printable(what_ + ": " + change) << '\n';
    return std::nullopt;
  }

  /// For a put that is interrupted: how to continue it.
  std::string later() {
    if (start_.journal == nullptr) return {};
    const std::uint64_t done = start_.journal->done();
    if (done == 0) {
      start_.journal->remove();
      return "; the same command begins at the first byte";
    }
    return "; the same command goes on from byte " + std::to_string(done) + " (state in " +
           start_.journal->path() + ")";
  }

  tl::expected<void, Failure> compare() {
    if (!options_.verify) return {};
    Verification job{.store = store_};
    job.offset = options_.offset;
    job.length = bytes_;
    job.streams = streams_;
    if (input_.size_bytes())
      job.read_at = [this](std::uint64_t at, std::span<std::byte> into) {
        return input_.read_at(at, into);
      };
    job.checksum = options_.checksum;
    job.digest = digest_;
    job.what = what_;
    job.remedy = "another client writes to the " + std::string{store_.kind()} +
                 ", the file has changed, or memory is at fault";
    return verify(job);
  }

  void conclude() const {
    TransferReport report{.verb = "put", .store = store_};
    report.bytes = bytes_;
    report.resumed_bytes = start_.first;
    report.hole_bytes = hole_bytes_;
    report.seconds = seconds_;
    report.streams = streams_;
    report.checksum = options_.checksum;
    report.digest = digest_;
    report.verified = options_.verify;
    print_report(std::cout, globals_, report);
    if (globals_.json || bytes_ >= room_) return;
    std::cerr << "remora: note: the " << store_.kind() << " is larger; 'get' with"
              << (options_.offset == 0 ? "" : " --offset " + std::to_string(options_.offset))
              << " --length " << bytes_ << " fetches these bytes alone"
              << (digest_.empty() ? "" : ", with this " + std::string{to_string(options_.checksum)})
              << '\n';
  }

  const Globals& globals_;
  const TransferOptions& options_;
  const OpenedStore& store_;
  Input& input_;
  unsigned streams_;
  std::string what_;
  std::uint64_t room_;
  TransferStart start_;  // outlives the checksum, whose thread writes to its journal
  std::unique_ptr<ChecksumThread> checksum_;
  std::uint64_t bytes_ = 0;
  std::uint64_t end_ = 0;  ///< the end of the file when it was opened
  std::uint64_t hole_bytes_ = 0;
  double seconds_ = 0;
  std::string digest_;
};

}  // namespace

Outcome put(const Globals& globals, const TransferOptions& options) {
  if (auto checked = check_store_uri(options.uri); !checked)
    return tl::make_unexpected(std::move(checked.error()));
  if (options.file.empty()) return fail(ExitCode::kUsage, "put: the name of FILE is empty");
  const std::string what = "put " + options.file;
  auto input = Input::open(options.file);
  if (!input) return fail(input.error(), what);
  if (const std::string text = put_complaint(options, *input); !text.empty())
    return fail(ExitCode::kUsage, what + ": " + text);
  const std::optional<std::uint64_t> size = input->size_bytes();
  const unsigned streams = size ? streams_for(options, *size) : 1;
  const Rights rights = options.verify ? Rights::kRead | Rights::kWrite : Rights::kWrite;
  const auto opened =
      OpenedStore::open(globals, options.uri, rights, what, engine_for_streams(streams));
  if (!opened) return tl::make_unexpected(opened.error());
  const OpenedStore& store = **opened;
  if (const std::string fault = offset_fault(store, options.offset); !fault.empty())
    return fail(ExitCode::kRefused, what + ": " + fault);
  if (size && *size > store.size_bytes() - options.offset)
    return fail(ExitCode::kRefused,
                what + ": " + std::to_string(*size) + " bytes do not fit into " +
                    bytes_of(store, options.offset) + "; nothing was written: create a larger " +
                    std::string{store.kind()});
  catch_interrupts();
  return PutRun{globals, options, store, *input, streams}.run();
}

}  // namespace remora::apps
