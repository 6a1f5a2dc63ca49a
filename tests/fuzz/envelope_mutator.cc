// libFuzzer's custom mutator for scripts: changes a field of a message, a step, or any bytes.

#include <algorithm>
#include <array>
#include <cstring>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <google/protobuf/stubs/logging.h>
#include <random>
#include <string>

#include "remora_control_full.pb.h"
#include "script.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

namespace remora::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;
using Random = std::minstd_rand;

constexpr std::size_t kMaxRepeated = 140;

std::size_t below(Random& random, std::size_t end) { return random() % end; }

std::uint64_t number(Random& random) {
  static constexpr std::array<std::uint64_t, 22> kOdd{0,          1,
                                                      2,          3,
                                                      4,          7,
                                                      8,          9,
                                                      15,         63,
                                                      64,         4096,
                                                      4097,       8192,
                                                      65536,      1 << 20,
                                                      0x7fffffff, 0x80000000,
                                                      UINT32_MAX, 1ULL << 63,
                                                      UINT64_MAX, UINT64_MAX - 4095};
  return below(random, 3) == 0 ? random() : kOdd[below(random, kOdd.size())];
}

std::string text(Random& random, const std::string& before) {
  static const std::array<std::string, 16> kWords{"r", "s", "client", "other", "*", "", "auto",
                                                  "none", "cpu", "mlx5_0", "a/b", "..",
                                                  std::string(64, 'n'), std::string(65, 'n'),
                                                  // Cut anywhere, these are no longer UTF-8.
                                                  [] {
                                                    std::string many;
                                                    for (int i = 0; i < 40; ++i)
                                                      many += "\xe2\x82\xac";
                                                    return many;
                                                  }(),
                                                  std::string(300, 'x')};
  if (below(random, 3) != 0) return kWords[below(random, kWords.size())];
  std::string changed = before;
  changed.resize(std::max<std::size_t>(64, before.size() + 16));
  changed.resize(LLVMFuzzerMutate(reinterpret_cast<std::uint8_t*>(changed.data()), before.size(),
                                  changed.size()));
  return changed;
}

void change(Message& message, Random& random);

void change_one(Message& message, const FieldDescriptor& field, Random& random) {
  const Reflection& reflection = *message.GetReflection();
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return change(*reflection.MutableMessage(&message, &field), random);
    case FieldDescriptor::CPPTYPE_STRING:
      return reflection.SetString(&message, &field,
                                  text(random, reflection.GetString(message, &field)));
    case FieldDescriptor::CPPTYPE_UINT64:
      return reflection.SetUInt64(&message, &field, number(random));
    case FieldDescriptor::CPPTYPE_UINT32:
      return reflection.SetUInt32(&message, &field, static_cast<std::uint32_t>(number(random)));
    case FieldDescriptor::CPPTYPE_INT32:
      return reflection.SetInt32(&message, &field, static_cast<std::int32_t>(number(random)));
    case FieldDescriptor::CPPTYPE_BOOL:
      return reflection.SetBool(&message, &field, below(random, 2) != 0);
    case FieldDescriptor::CPPTYPE_ENUM:
      return reflection.SetEnumValue(&message, &field, static_cast<int>(below(random, 5)) - 1);
    default: return;
  }
}

void change_list(Message& message, const FieldDescriptor& field, Random& random) {
  const Reflection& reflection = *message.GetReflection();
  const int size = reflection.FieldSize(message, &field);
  const bool is_message = field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
  if (size > 0 && below(random, 4) == 0) return reflection.RemoveLast(&message, &field);
  if (size > 0 && is_message && below(random, 2) == 0) {
    const auto at = static_cast<int>(below(random, static_cast<std::size_t>(size)));
    return change(*reflection.MutableRepeatedMessage(&message, &field, at), random);
  }
  // Often one more, now and then more than there may be.
  const std::size_t more = below(random, 16) == 0 ? kMaxRepeated : 1;
  for (std::size_t i = 0; i < more; ++i) {
    if (is_message)
      change(*reflection.AddMessage(&message, &field), random);
    else if (field.cpp_type() == FieldDescriptor::CPPTYPE_UINT32)
      reflection.AddUInt32(&message, &field, static_cast<std::uint32_t>(number(random)));
  }
}

/// Changes one field of `message`, or of a message within it.
void change(Message& message, Random& random) {
  const auto& type = *message.GetDescriptor();
  if (type.field_count() == 0) return;
  const FieldDescriptor& field =
      *type.field(static_cast<int>(below(random, static_cast<std::size_t>(type.field_count()))));
  const Reflection& reflection = *message.GetReflection();
  if (field.is_repeated()) return change_list(message, field, random);
  if (below(random, 8) == 0) return reflection.ClearField(&message, &field);
  // Of several kinds, mostly the one that it is.
  if (const auto* const oneof = field.containing_oneof(); oneof != nullptr && below(random, 4) != 0)
    if (const auto* const is = reflection.GetOneofFieldDescriptor(message, oneof); is != nullptr)
      return change_one(message, *is, random);
  change_one(message, field, random);
}

/// A message with a kind of every level, for one that is none yet.
control_full::Envelope fresh(Random& random) {
  control_full::Envelope envelope;
  envelope.set_magic(0x41524d52);
  envelope.set_id(1 + below(random, 9));
  Message* kind = envelope.mutable_request();
  if (below(random, 3) == 0) kind = envelope.mutable_reply();
  if (below(random, 6) == 0) kind = envelope.mutable_event();
  for (int i = 0; i < 4; ++i) change(*kind, random);
  return envelope;
}

void change_message(Step& step, Random& random) {
  control_full::Envelope envelope;
  if (!envelope.ParseFromString(step.bytes) || step.bytes.empty()) envelope = fresh(random);
  for (std::size_t i = below(random, 3); i < 3; ++i) {
    Message* inner = &envelope;
    if (envelope.has_request() && below(random, 8) != 0) inner = envelope.mutable_request();
    if (envelope.has_reply() && below(random, 8) != 0) inner = envelope.mutable_reply();
    change(*inner, random);
  }
  step.bytes = envelope.SerializePartialAsString();
}

void change_steps(Script& script, Random& random) {
  auto& steps = script.steps;
  const std::size_t at = steps.empty() ? 0 : below(random, steps.size());
  switch (steps.empty() ? 0 : below(random, 8)) {
    case 0: {
      Step made{.what = static_cast<std::uint8_t>(random()), .bytes = {}};
      made.bytes = fresh(random).SerializePartialAsString();
      steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), std::move(made));
      break;
    }
    case 1: steps.insert(steps.begin() + static_cast<std::ptrdiff_t>(at), Step{steps[at]}); break;
    case 2: steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(at)); break;
    case 3: std::swap(steps[at], steps[below(random, steps.size())]); break;
    case 4: steps[at].what = static_cast<std::uint8_t>(random()); break;
    default: change_message(steps[at], random);
  }
}

std::size_t mutate(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
  Random random{seed + 1};
  const google::protobuf::LogSilencer quiet;  // of text that is no longer UTF-8
  if (below(random, 5) == 0) return LLVMFuzzerMutate(data, size, most);
  Script script = Script::parse(data, size);
  if (below(random, 40) == 0) script.mode = static_cast<std::uint8_t>(random());
  if (below(random, 40) == 0) script.flags = static_cast<std::uint8_t>(random());
  for (std::size_t i = below(random, 3); i < 3; ++i) change_steps(script, random);
  const std::string text = script.text();
  const std::size_t length = std::min(text.size(), most);
  std::memcpy(data, text.data(), length);
  return length;
}

}  // namespace
}  // namespace remora::fuzz

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned seed) {
  return remora::fuzz::mutate(data, size, max_size, seed);
}
