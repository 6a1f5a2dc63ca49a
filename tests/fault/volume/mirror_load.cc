#include "mirror_load.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include <remora/result.h>

namespace remora::fault {
namespace {

constexpr std::size_t kMirrorRecords = 100'000;

std::string in_one_word(std::string text) {
  for (char& each : text)
    if (each == '\n') each = ';';
  return text;
}

}  // namespace

LoadPage make_mirror_page(const std::string& path) {
  return LoadPage::create(path, kMirrorBlocks, kMirrorRecords);
}

std::string MirrorLoadReport::line() const {
  std::ostringstream out;
  out << "report " << operations << ' ' << ok << ' ' << indeterminate << ' ' << without_effect
      << ' ' << fenced << ' ' << longest_ms << ' ' << violations << ' ' << in_one_word(text);
  return out.str();
}

std::optional<MirrorLoadReport> MirrorLoadReport::of_line(const std::string& line) {
  std::istringstream in{line};
  std::string word;
  MirrorLoadReport made;
  in >> word >> made.operations >> made.ok >> made.indeterminate >> made.without_effect >>
      made.fenced >> made.longest_ms >> made.violations;
  if (!in || word != "report") return std::nullopt;
  std::getline(in, made.text);
  return made;
}

MirrorLoad::MirrorLoad(volume::detail::MirrorGroup& group, LoadPage& page,
                       const MirrorLoadOptions& options)
    : group_{group}, page_{page}, options_{options} {
  for (std::size_t i = 0; i < kMirrorBlocks; ++i)
    models_.emplace_back(options_.session, i * kMirrorStride);
  for (std::uint32_t i = 0; i < options_.threads; ++i)
    threads_.emplace_back([this, i] { work(i); });
}

MirrorLoad::~MirrorLoad() { static_cast<void>(finish()); }

MirrorLoadReport MirrorLoad::finish() {
  over_ = true;
  for (std::thread& each : threads_) each.join();
  threads_.clear();
  const std::lock_guard lock{mutex_};
  return report_;
}

void MirrorLoad::work(std::uint32_t thread) {
  test::Random random{options_.seed * 16 + thread};
  while (!over_) {
    step(thread, random);
    if (options_.pause.count() != 0) std::this_thread::sleep_for(options_.pause);
  }
}

void MirrorLoad::step(std::uint32_t thread, test::Random& random) {
  const std::uint64_t choice = options_.words_only ? 0 : random.below(20);
  const std::size_t mine = kMirrorBlocks / options_.threads;
  const std::size_t block = random.below(mine) * options_.threads + thread;
  const auto begun = std::chrono::steady_clock::now();
  Status done;
  if (choice < 5)
    done = add(thread, random);
  else if (choice < 8)
    done = read_block(models_[block]);
  else
    done = write_block(models_[block], page_.blocks()[block]);
  note(done, std::chrono::steady_clock::now() - begun);
}

Status MirrorLoad::write_block(BlockModel& model, BlockCell& cell) {
  std::vector<std::byte> bytes(kMirrorBlock);
  const Stamp stamp = model.begin_write();
  write_stamp(bytes, stamp);
  cell.session = stamp.session;
  cell.issued = stamp.sequence;
  Status done = group_.write(stamp.offset, bytes, until());
  if (done) {
    model.acknowledged(stamp.sequence);
    cell.acknowledged = stamp.sequence;
  } else if (done.error().code() == Code::kIndeterminate) {
    model.indeterminate(stamp.sequence);
  }
  return done;
}

Status MirrorLoad::read_block(BlockModel& model) {
  std::vector<std::byte> bytes(kMirrorBlock);
  Status done = group_.read(model.offset(), bytes, until());
  if (!done) return done;
  const BlockVerdict verdict = model.check(bytes);
  if (verdict != BlockVerdict::kIntact)
    violated(std::string{to_string(verdict)} + ": " + model.describe(bytes));
  return done;
}

Status MirrorLoad::add(std::uint32_t thread, test::Random& random) {
  const std::uint64_t word = mirror_word(random.below(kMirrorWords));
  WordOperation operation;
  operation.expected = 1 + random.below(1000);
  AtomicRecord* const record = page_.begin(kMirrorMemory, word, operation, thread);
  if (record == nullptr) return {};  // the page is full
  const auto found = group_.fetch_add(word, operation.expected, until());
  if (found) {
    LoadPage::end(*record, Effect::kDone, *found);
    return {};
  }
  LoadPage::end(*record,
                found.error().code() == Code::kIndeterminate ? Effect::kUnknown : Effect::kNone);
  return found.error();
}

void MirrorLoad::note(const Status& done, std::chrono::nanoseconds took) {
  const std::lock_guard lock{mutex_};
  ++report_.operations;
  report_.longest_ms = std::max(
      report_.longest_ms, static_cast<std::uint64_t>(
                              std::chrono::duration_cast<std::chrono::milliseconds>(took).count()));
  if (done) {
    ++report_.ok;
    return;
  }
  if (report_.text.empty()) report_.text = done.error().message();
  if (done.error().code() == Code::kIndeterminate)
    ++report_.indeterminate;
  else
    ++report_.without_effect;
  if (done.error().reason() != Reason::kFenced) return;
  ++report_.fenced;
  over_ = true;
}

void MirrorLoad::violated(const std::string& text) {
  const std::lock_guard lock{mutex_};
  ++report_.violations;
  if (report_.violations == 1) report_.text = text;
}

}  // namespace remora::fault
