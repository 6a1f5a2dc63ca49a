#include "cli/transfer.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <iostream>
#include <unistd.h>
#include <vector>

#include <remora/config/printable.h>

#include "cli/commands.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/pipeline.h"
#include "cli/progress.h"

namespace remora::apps {

unsigned streams_for(const TransferOptions& options, std::uint64_t bytes) noexcept {
  if (options.streams) return *options.streams;
  // Another stream costs a connection and a thread, which is too much for a small file.
  const unsigned wanted = bytes < std::uint64_t{64} << 20U  ? 1U
                          : bytes < std::uint64_t{1} << 30U ? 2U
                                                            : 4U;
  const long processors = ::sysconf(_SC_NPROCESSORS_ONLN);  // NOLINT(google-runtime-int): its type
  return std::min(wanted, static_cast<unsigned>(std::max(processors, 1L)));
}

EngineOptions engine_for_streams(unsigned streams) {
  EngineOptions options;
  options.lanes = streams;
  return options;
}

std::string bytes_of(const OpenedStore& store, std::uint64_t offset) {
  return "the " + std::to_string(store.size_bytes() - offset) + " bytes of " + store.name() +
         " from offset " + std::to_string(offset);
}

std::string offset_fault(const OpenedStore& store, std::uint64_t offset) {
  if (offset <= store.size_bytes()) return {};
  return "offset " + std::to_string(offset) + " is beyond the end of " + store.name() +
         ", which has " + std::to_string(store.size_bytes()) + " bytes";
}

Json journal_names(const TransferOptions& options, std::string_view command,
                   const std::string& file) {
  std::error_code failed;
  const auto whole = std::filesystem::weakly_canonical(file, failed);
  Json names{{"command", command}, {"file", failed ? file : whole.string()}};
  names.update(store_names(options.uri));
  names["offset"] = options.offset;
  return names;
}

Json journal_identity(const TransferOptions& options, const OpenedStore& store,
                      std::uint64_t length) {
  Json identity{{"checksum", to_string(options.checksum)}};
  identity.update(store.identity(options.offset, length));
  return identity;
}

tl::expected<TransferStart, Failure> start_anew(const TransferOptions& options) {
  TransferStart start;
  if (options.checksum == ChecksumKind::kNone) return start;
  auto sum = Checksum::make(options.checksum);
  if (!sum) return fail(sum.error(), "--checksum");
  start.sum.emplace(std::move(*sum));
  return start;
}

namespace {

/// Adds the first `length` local bytes to `sum`; false: there are fewer. Errors: those of
/// `read_at`; kCancelled after a signal.
Result<bool> sum_local(Checksum& sum, std::uint64_t length, const ReadAt& read_at,
                       const std::string& what) {
  Progress progress{config::printable("checking " + what), length};
  std::vector<std::byte> buffer(kPieceBytes);
  for (std::uint64_t at = 0; at < length;) {
    if (interrupted() != 0) return interruption();
    const std::size_t wanted = std::min<std::uint64_t>(buffer.size(), length - at);
    const auto got = read_at(at, std::span{buffer}.first(wanted));
    if (!got) return got.error();
    if (*got < wanted) return false;
    sum.update(std::span{buffer}.first(wanted));
    at += wanted;
    progress.update(at);
  }
  return true;
}

/// The reason why the transfer cannot continue; empty: `start` has the checksum of the existing
/// bytes.
tl::expected<std::string, Failure> take_up(TransferStart& start, const Json& identity,
                                           const ReadAt& read_at, const std::string& what) {
  for (const char* const number : {"memory_id", "incarnation"})
    if (identity.contains(number) && identity[number] == 0)
      return std::string{"the server does not say whether the region is that of before"};
  if (std::string clause = start.journal->mismatch(identity); !clause.empty()) return clause;
  const TransferJournal::Left& left = *start.journal->left();
  const auto whole = sum_local(*start.sum, left.done, read_at, what);
  if (!whole) return tl::make_unexpected(Failure{whole.error(), what});
  if (!*whole || start.sum->digest() != left.digest)
    return "the first " + std::to_string(left.done) +
           " bytes of the file are not those that were transferred";
  return std::string{};
}

}  // namespace

tl::expected<TransferStart, Failure> start_resumed(const TransferOptions& options,
                                                   const Json& names, const Json& identity,
                                                   const ReadAt& read_at, const std::string& what) {
  auto start = start_anew(options);
  if (!start) return start;
  auto journal = TransferJournal::open(names);
  if (!journal) return tl::make_unexpected(std::move(journal.error()));
  start->journal = std::move(*journal);
  if (start->journal->left()) {
    const auto clause = take_up(*start, identity, read_at, what);
    if (!clause) return tl::make_unexpected(clause.error());
    if (clause->empty()) {
      start->first = start->journal->left()->done;
      start->journal->go_on();
      return start;
    }
    std::cerr << "remora: note: " << config::printable(what)
              << ": --resume begins at the first byte: " << *clause << '\n';
    auto sum = Checksum::make(options.checksum);
    if (!sum) return fail(sum.error(), "--checksum");
    start->sum.emplace(std::move(*sum));
  }
  if (auto begun = start->journal->begin(identity); !begun)
    return tl::make_unexpected(std::move(begun.error()));
  return start;
}

Result<std::unique_ptr<ChecksumThread>> start_checksum(TransferStart& start) {
  if (!start.sum) return std::unique_ptr<ChecksumThread>{};
  ChecksumThread::Checkpoints checkpoints;
  if (start.journal != nullptr) {
    checkpoints.step_bytes = kCheckpointBytes;
    checkpoints.reached = [journal = start.journal.get()](std::uint64_t end,
                                                          const std::string& digest) {
      journal->summed(end, digest);
    };
  }
  Checksum sum = std::move(*start.sum);
  start.sum.reset();
  return ChecksumThread::start(std::move(sum), start.first, std::move(checkpoints));
}

namespace {

Json report_json(const TransferReport& report) {
  Json document{{"bytes", report.bytes},
                {"seconds", report.seconds},
                {"transport", report.store.transport()},
                {"streams", report.streams},
                {"hole_bytes", report.hole_bytes},
                {"resumed_bytes", report.resumed_bytes},
                {"verified", report.verified},
                {"checksum", to_string(report.checksum)}};
  if (report.checksum != ChecksumKind::kNone)
    document[std::string{to_string(report.checksum)}] = report.digest;
  return document;
}

}  // namespace

void print_report(std::ostream& out, const Globals& globals, const TransferReport& report) {
  if (globals.json) return print_json(report_json(report));
  out << report.verb << ' ' << report.bytes << " bytes over " << report.store.transport() << " in "
      << report.seconds << " s";
  const auto fresh = static_cast<double>(report.bytes - report.resumed_bytes);
  if (report.seconds > 0) out << " (" << human_rate(fresh / report.seconds) << ")";
  out << '\n';
  if (report.resumed_bytes > 0)
    out << "resumed " << report.resumed_bytes << " bytes were there already\n";
  if (report.hole_bytes > 0) out << "holes " << report.hole_bytes << " bytes\n";
  if (report.checksum != ChecksumKind::kNone)
    out << to_string(report.checksum) << ' ' << report.digest << '\n';
  if (report.verified) out << "verified " << report.bytes << " bytes\n";
}

namespace {

void add_common_options(CLI::App* command, TransferOptions& options) {
  add_size(command, "--offset", options.offset, "Where in the region or volume to begin (0)");
  command
      ->add_option_function<unsigned>(
          "--streams", [&options](const unsigned& count) { options.streams = count; },
          "Queues, each with a lane, that share a file (1, of a large file up to 4)")
      ->check(CLI::Range(1U, kMaxStreams))
      ->type_name("N");
  command
      ->add_option_function<std::string>(
          "--checksum",
          [&options](const std::string& text) {
            const auto kind = parse_checksum_kind(text);
            if (!kind)
              throw CLI::ValidationError("--checksum",
                                         "'" + text +
                                             "' is no checksum; expected sha256, sha512, "
                                             "blake2b or none");
            options.checksum = *kind;
          },
          "sha256, sha512, blake2b or none (sha256)")
      ->type_name("ALGORITHM");
  command->add_flag("--resume", options.resume,
                    "Go on where the same command with --resume was interrupted");
}

}  // namespace

void add_transfer_commands(Commands& commands) {
  const auto to_region = std::make_shared<TransferOptions>();
  CLI::App* command = commands.add(
      "put", "Store a file in a region or volume; prints the bytes and their checksum");
  command->add_option("FILE", to_region->file, "File to store; - is standard input")
      ->type_name("")
      ->required();
  add_store_uri(command, to_region->uri);
  add_common_options(command, *to_region);
  command->add_flag("--verify", to_region->verify,
                    "Read the bytes back and compare them with the file");
  Commands::on_run(command, [&commands, to_region] { return put(commands.globals(), *to_region); });

  const auto from_region = std::make_shared<TransferOptions>();
  const auto length = std::make_shared<std::uint64_t>();
  command = commands.add(
      "get", "Fetch a region or volume into a file; prints the bytes and their checksum");
  add_store_uri(command, from_region->uri);
  command
      ->add_option("FILE", from_region->file,
                   "File to write; it appears when it is complete. - is standard output")
      ->type_name("")
      ->required();
  CLI::Option* const given =
      add_size(command, "--length", *length, "How much to fetch (to the end)");
  add_common_options(command, *from_region);
  command->add_flag("--verify", from_region->verify,
                    "Read the bytes a second time and compare them with the file");
  command->add_flag("--dense", from_region->dense, "Write zeroes, too, instead of holes");
  Commands::on_run(command, [&commands, from_region, length, given] {
    if (given->count() > 0) from_region->length = *length;
    return get(commands.globals(), *from_region);
  });
}

}  // namespace remora::apps
