#pragma once

/// What every program that is measured has in common: it reads jobs from stdin, one a line, works
/// on each for its time, and answers one number a line. So all mappings, connections and daemons
/// stay warm while `compare.sh` lets two programs take turns.
///
///   OP SIZE DEPTH UNIT MILLISECONDS      read 4096 32 ops/s 200   ->   701234.5
///
/// UNIT is `ops/s` (operations over the whole time), `steady/s` (the upper decile of the rates of
/// its two hundred parts: what the two do while no other program has their processors), or `ns`
/// (the median time of one operation; depth 1). A job that the program cannot do is answered
/// `unsupported`, and a fault ends the program with a line on stderr.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <sys/types.h>

namespace remora::bench {

enum class Op : std::uint8_t { kRead, kWrite, kFetchAdd, kCompareSwap };

enum class Unit : std::uint8_t { kRate, kSteadyRate, kNanoseconds };

struct Job {
  Op op = Op::kRead;
  std::size_t block_bytes = 4096;
  std::size_t depth = 1;
  Unit unit = Unit::kRate;
  double milliseconds = 100;
};

class Arguments;

/// Restricts the calling thread, and those it starts, to one processor; -1: no restriction.
void pin_to_core(int core);

/// Memory of its own, every page of which is there, shared with processes that are forked later.
std::byte* populated_pages(std::size_t bytes);

/// Random blocks of a region, for all programs alike: SplitMix64, and a multiplication instead of a
/// division.
class RandomBlocks {
 public:
  /// `seed`: which order; threads that work at once have one each.
  RandomBlocks(std::size_t region_bytes, std::size_t block_bytes, std::uint64_t seed = 1)
      : count_{region_bytes / block_bytes}, block_bytes_{block_bytes}, state_{seed} {}
  /// Byte offset of the next one.
  std::uint64_t next() noexcept {
    std::uint64_t mixed = state_ += 0x9e3779b97f4a7c15ULL;
    mixed = (mixed ^ (mixed >> 30U)) * 0xbf58476d1ce4e5b9ULL;
    mixed = (mixed ^ (mixed >> 27U)) * 0x94d049bb133111ebULL;
    mixed ^= mixed >> 31U;
    __extension__ using Wide = unsigned __int128;
    return static_cast<std::uint64_t>((static_cast<Wide>(mixed) * count_) >> 64U) * block_bytes_;
  }

 private:
  std::uint64_t count_;
  std::uint64_t block_bytes_;
  std::uint64_t state_;
};

/// One way to reach remote memory.
class Client {
 public:
  Client() = default;
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  virtual ~Client() = default;

  /// Nothing is in flight. False: it cannot do that.
  virtual bool prepare(const Job& job) = 0;
  /// Hands over operations until `depth` are in flight and returns how many have completed: at
  /// least one, but for a client that is still filling up.
  virtual std::size_t advance() = 0;
  /// Waits for all that is in flight, starting nothing; returns how many have completed.
  virtual std::size_t drain() = 0;
};

/// A client that hands over single operations and keeps `depth` of them in flight.
class PipelinedClient : public Client {
 public:
  std::size_t drain() override {
    std::size_t done = 0;
    while (in_flight_ > 0) done += collect();
    return done;
  }

 protected:
  /// For prepare(): a new job with blocks of a region of so many bytes.
  void begin(const Job& job, std::size_t region_bytes) {
    job_ = job;
    blocks_ = std::make_unique<RandomBlocks>(region_bytes, job.block_bytes);
  }
  /// Takes off in_flight_ what has completed, and returns how many that were.
  virtual std::size_t collect() = 0;

  Job job_;
  std::unique_ptr<RandomBlocks> blocks_;
  std::size_t in_flight_ = 0;
  std::size_t place_ = 0;  ///< in the client's own buffers
};

/// A process of our own that serves. It is stopped (SIGSTOP) between jobs, so that its polling
/// takes nothing from the other program, and killed with its parent.
class ServerProcess {
 public:
  /// Runs `serve` in a child on `core`; it must not return, and writes what the client has to know
  /// with tell() when it is ready.
  static std::unique_ptr<ServerProcess> start(int core, const std::function<void(int)>& serve);
  /// The same on the core `--server-core`; then restricts the caller to the core `--core`.
  static std::unique_ptr<ServerProcess> start(const Arguments& arguments,
                                              const std::function<void(int)>& serve);
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  /// In the child.
  static void tell(int where, std::string_view text);
  /// In the parent: all of what the child has told.
  [[nodiscard]] const std::string& told() const noexcept { return told_; }
  void stop() const noexcept;
  void go_on() const noexcept;

 private:
  ServerProcess(pid_t child, std::string told) : child_{child}, told_{std::move(told)} {}
  pid_t child_;
  std::string told_;
};

/// Answers jobs until stdin ends. `server` may be null; else it is stopped between jobs.
/// Returns the exit status.
int answer_jobs(Client& client, const ServerProcess* server);

/// The words after the program's name, as `--name value` pairs.
class Arguments {
 public:
  Arguments(int argc, char** argv) : argc_{argc}, argv_{argv} {}
  [[nodiscard]] std::string text(std::string_view name, std::string_view otherwise) const;
  [[nodiscard]] int number(std::string_view name, int otherwise) const;
  /// `--region-mib`, 1024 without it.
  [[nodiscard]] std::size_t region_bytes() const;
  /// `--mode polling`, as without it, not `--mode blocking`.
  [[nodiscard]] bool polling() const;
  /// Ends the program, naming all there are, where an argument is none of `names` or has no value.
  void expect(std::initializer_list<std::string_view> names) const;

 private:
  int argc_;
  char** argv_;
};

/// Says what went wrong, and ends the program with status 1.
[[noreturn]] void give_up(const std::string& what);
/// `good`, or the end of the program with `what` and errno's text.
void require(bool good, const char* what);

}  // namespace remora::bench
