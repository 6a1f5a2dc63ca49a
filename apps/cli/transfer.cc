/// remora put, get: whole files into and out of a region.

#include <CLI/CLI.hpp>
#include <chrono>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>

#include <remora/config/printable.h>

#include "cli/command.h"
#include "cli/human.h"
#include "cli/interrupt.h"
#include "cli/io.h"
#include "cli/pipeline.h"
#include "cli/progress.h"
#include "cli/sha256.h"

namespace remora::apps {
namespace {

using Clock = std::chrono::steady_clock;

struct TransferOptions {
  std::string uri;
  std::string file;
  std::uint64_t offset = 0;
  std::optional<std::uint64_t> length;
};

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

void report(std::ostream& out, const Globals& globals, std::string_view verb, std::uint64_t bytes,
            double seconds, const Region& region, const std::string& sha256) {
  if (globals.json) {
    print_json(Json{{"bytes", bytes},
                    {"seconds", seconds},
                    {"sha256", sha256},
                    {"transport", to_string(region.transport())}});
    return;
  }
  out << verb << ' ' << bytes << " bytes over " << to_string(region.transport()) << " in "
      << seconds << " s";
  if (seconds > 0) out << " (" << human_rate(static_cast<double>(bytes) / seconds) << ")";
  out << "\nsha256 " << sha256 << '\n';
}

std::string bytes_of(const Region& region, std::uint64_t offset) {
  return "the " + std::to_string(region.size_bytes() - offset) + " bytes of region " +
         region.info().name + " from offset " + std::to_string(offset);
}

/// Empty when `offset` lies in the region.
std::string offset_fault(const Region& region, std::uint64_t offset) {
  if (offset <= region.size_bytes()) return {};
  return "offset " + std::to_string(offset) + " is beyond the end of region " + region.info().name +
         ", which has " + std::to_string(region.size_bytes()) + " bytes";
}

Outcome put(const Globals& globals, const TransferOptions& options) {
  if (const auto uri = parse_uri(options.uri, true); !uri) return tl::make_unexpected(uri.error());
  if (options.file.empty()) return fail(ExitCode::kUsage, "put: the name of FILE is empty");
  const std::string what = "put " + options.file;
  auto input = Input::open(options.file);
  if (!input) return fail(input.error(), what);
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error(), what);
  const auto region = engine->open_region(options.uri, Rights::kWrite);
  if (!region) return fail(region.error(), what);
  if (const std::string fault = offset_fault(*region, options.offset); !fault.empty())
    return fail(ExitCode::kRefused, what + ": " + fault);
  const std::uint64_t room = region->size_bytes() - options.offset;
  const std::optional<std::uint64_t> size = input->size_bytes();
  if (size && *size > room)
    return fail(ExitCode::kRefused, what + ": " + std::to_string(*size) +
                                        " bytes do not fit into " +
                                        bytes_of(*region, options.offset) +
                                        "; nothing was written: create a larger region");

  catch_interrupts();
  const auto start = Clock::now();
  Sha256 sum;
  Progress progress{config::printable("put " + input->name()), size};
  const Producer producer{[&](std::span<std::byte> into) {
                            auto got = input->read(into);
                            if (got) sum.update(into.first(*got));
                            return got;
                          },
                          [&] { return input->ready(); }};
  const Transferred moved = upload(*engine, *region, options.offset, room, producer,
                                   [&](std::uint64_t done) { progress.update(done); });
  progress.finish();
  if (!moved.status) {
    const std::string written = "; " + std::to_string(moved.bytes) + " bytes were written";
    if (moved.status.error().code() == Code::kLimitExceeded)
      return fail(ExitCode::kRefused, what + ": there is more than " +
                                          bytes_of(*region, options.offset) + " can hold" +
                                          written);
    Failure failure{moved.status.error(), what};
    failure.text += written;
    return tl::make_unexpected(std::move(failure));
  }
  const std::string change = input->change_since_open(moved.bytes);
  if (size && moved.bytes < *size)
    return fail(ExitCode::kLocal,
                what + ": " + change + "; the region has these, and behind them " +
                    std::to_string(*size - moved.bytes) + " bytes as they were before");
  if (!change.empty())
    std::cerr << "remora: warning: " << config::printable(what) << ": " << change << '\n';
  const double seconds = seconds_since(start);
  report(std::cout, globals, "put", moved.bytes, seconds, *region, sum.finish());
  if (!globals.json && moved.bytes < room)
    std::cerr << "remora: note: the region is larger; 'get' with"
              << (options.offset == 0 ? "" : " --offset " + std::to_string(options.offset))
              << " --length " << moved.bytes << " fetches these bytes alone, with this sha256\n";
  return ExitCode::kOk;
}

Outcome get(const Globals& globals, const TransferOptions& options) {
  if (const auto uri = parse_uri(options.uri, true); !uri) return tl::make_unexpected(uri.error());
  if (options.file.empty())
    return fail(ExitCode::kUsage, "get: the name of FILE is empty; nothing was fetched");
  const std::string what = "get " + options.file;
  if (globals.json && options.file == "-")
    return fail(ExitCode::kUsage, "get -: the bytes and --json both want standard output");
  const auto engine = open_engine(globals);
  if (!engine) return fail(engine.error(), what);
  const auto region = engine->open_region(options.uri, Rights::kRead);
  if (!region) return fail(region.error(), what);
  if (const std::string fault = offset_fault(*region, options.offset); !fault.empty())
    return fail(ExitCode::kRefused, what + ": " + fault);
  const std::uint64_t there = region->size_bytes() - options.offset;
  const std::uint64_t length = options.length.value_or(there);
  if (length > there)
    return fail(ExitCode::kRefused, what + ": " + std::to_string(length) + " bytes are more than " +
                                        bytes_of(*region, options.offset));
  auto output = Output::open(options.file);
  if (!output) return fail(output.error(), what);

  catch_interrupts();
  const auto start = Clock::now();
  Sha256 sum;
  std::uint64_t done = 0;
  Progress progress{config::printable("get " + output->name()), length};
  const Transferred moved = download(*engine, *region, options.offset, length,
                                     [&](std::span<const std::byte> bytes) -> Status {
                                       sum.update(bytes);
                                       done += bytes.size();
                                       progress.update(done);
                                       return output->write(bytes);
                                     });
  progress.finish();
  if (!moved.status) return fail(moved.status.error(), what);
  if (const Status committed = output->commit(); !committed) return fail(committed.error(), what);
  report(output->is_stdout() ? std::cerr : std::cout, globals, "got", moved.bytes,
         seconds_since(start), *region, sum.finish());
  if (!globals.json && !options.length)
    std::cerr << "remora: note: this is all of the region from there; --length fetches as many "
                 "bytes as 'put' has stored, and only these have its sha256\n";
  return ExitCode::kOk;
}

}  // namespace

void add_transfer_commands(Commands& commands) {
  const auto options = std::make_shared<TransferOptions>();
  CLI::App* command =
      commands.add("put", "Store a file in a region; prints the bytes and their SHA-256");
  command->add_option("FILE", options->file, "File to store; - is standard input")
      ->type_name("")
      ->required();
  add_uri(command, options->uri);
  add_size(command, "--offset", options->offset, "Where in the region to begin (0)");
  Commands::on_run(command, [&commands, options] { return put(commands.globals(), *options); });

  const auto length = std::make_shared<std::uint64_t>();
  command = commands.add("get", "Fetch a region into a file; prints the bytes and their SHA-256");
  add_uri(command, options->uri);
  command
      ->add_option("FILE", options->file,
                   "File to write; it appears when it is complete. - is standard output")
      ->type_name("")
      ->required();
  add_size(command, "--offset", options->offset, "Where in the region to begin (0)");
  CLI::Option* const given =
      add_size(command, "--length", *length, "How much to fetch (to the end of the region)");
  Commands::on_run(command, [&commands, options, length, given] {
    if (given->count() > 0) options->length = *length;
    return get(commands.globals(), *options);
  });
}

}  // namespace remora::apps
