// Codes, the whole error, and how a call handles exceptions and wrong arguments.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <string>

#include <remora/volume/remedy.h>

#include "call.h"

namespace remora::c {

static_assert(to_code(Code::kInvalidArgument) == REMORA_INVALID_ARGUMENT);
static_assert(to_code(Code::kInternal) == REMORA_INTERNAL);
static_assert(to_reason(Reason::kNone) == REMORA_REASON_NONE);
static_assert(to_reason(kReasonLast) == REMORA_REASON_FORKED);

namespace {

constexpr std::size_t kRetiredMax = 256;
constinit std::array<std::atomic<void*>, kRetiredMax> g_retired{};
constinit std::atomic<std::uint32_t> g_next_retired{0};

/// Frees them when the library is unloaded.
struct Sweep {
  ~Sweep() {
    for (auto& each : g_retired) ::operator delete(each.exchange(nullptr));
  }
};
const Sweep g_sweep;

/// The texts of an enum in static memory, each with a final 0.
template <typename Enum, std::size_t N>
std::array<std::string_view, N> names_of() {
  std::array<std::string_view, N> names;
  for (std::size_t i = 0; i < N; ++i) names[i] = to_string(static_cast<Enum>(i));
  return names;
}

}  // namespace

void retire(void* memory) noexcept {
  const std::uint32_t place = g_next_retired.fetch_add(1, std::memory_order_relaxed);
  ::operator delete(g_retired[place % kRetiredMax].exchange(memory));
}

namespace {

/// A struct up to `message` is filled, also where a later version of the library has more fields: a
/// program that was compiled with an earlier version has a smaller struct.
constexpr std::size_t kFillableBytes =
    offsetof(remora_error, message) + sizeof(remora_error::message);
static_assert(kFillableBytes == sizeof(remora_error),
              "a field behind `message` is one that hand_over() fills only where the size has it");

bool is_fillable(const remora_error* error) noexcept {
  return error != nullptr && is_aligned(error) && error->size >= kFillableBytes;
}

}  // namespace

void replace_message(std::string_view message, remora_error* to) noexcept {
  if (is_fillable(to)) copy_text(to->message, message);
}

int hand_over(const Error& error, remora_error* to) noexcept {
  const int code = to_code(error.code());
  if (!is_fillable(to)) return code;
  to->code = code;
  to->reason = to_reason(error.reason());
  to->system_errno = error.system_errno();
  to->completion_status = static_cast<std::int32_t>(error.completion_status());
  to->vendor_error = error.vendor_error();
  to->has_limit = error.has_limit() ? 1 : 0;
  to->has_place = error.has_place() ? 1 : 0;
  to->reserved[0] = to->reserved[1] = 0;
  to->asked = error.asked();
  to->allowed = error.allowed();
  to->offset = error.offset_bytes();
  to->length = error.length_bytes();
  copy_text(to->operation, error.operation());
  copy_text(to->subject, error.subject());
  copy_text(to->server, error.server());
  try {
    std::string text = error.message();
    if (const auto remedy = volume::remedy(error); !remedy.empty())
      text.append("; ").append(remedy);
    copy_text(to->message, text);
  } catch (const std::exception&) {  // no memory for the text
    copy_text(to->message, to_string(error.code()));
  }
  return code;
}

void Call::refuse_handle(const void* handle, bool aligned, Operation name) noexcept {
  if (code_ != REMORA_OK) return;
  Error error = Error{Code::kInvalidArgument, operation_};
  if (handle == nullptr)
    error = error.with_reason(Reason::kNullPointer).with_subject(name.text());
  else if (!aligned)
    error = error.with_subject("a handle that is not aligned");
  else if (static_cast<const Handle*>(handle)->kind == Kind::kFreed)
    error = Error{Code::kClosed, operation_}.with_subject("this handle was freed");
  else
    error = error.with_subject("a handle of another kind, or none");
  fail(error);
}

void Call::refuse_pointer(const void* pointer, Operation name) noexcept {
  if (code_ != REMORA_OK) return;
  const Error error = Error{Code::kInvalidArgument, operation_}.with_subject(name.text());
  fail(pointer == nullptr ? error.with_reason(Reason::kNullPointer)
                          : Error{Code::kInvalidArgument, operation_}.with_subject(
                                "a pointer that is not aligned"));
}

void Call::refuse_size(std::size_t size, std::size_t known, Operation name) noexcept {
  if (code_ != REMORA_OK) return;
  fail(Error{Code::kInvalidArgument, operation_}.with_subject(name.text()).with_limit(size, known));
}

int Call::fail_with_exception() noexcept {
  try {
    throw;
  } catch (const Exception& exception) {
    return fail(exception.error());
  } catch (const std::bad_alloc&) {
    return fail(Error{Code::kOutOfMemory, operation_});
  } catch (const std::exception& exception) {
    return fail(Error{Code::kInternal, operation_}.with_subject(exception.what()));
  } catch (...) {
    return fail(Error{Code::kInternal, operation_}.with_subject("an exception of unknown type"));
  }
}

}  // namespace remora::c

using namespace remora::c;  // NOLINT(google-build-using-namespace): this is its C face

const char* remora_error_message(const remora_error* error) noexcept {
  return is_fillable(error) ? error->message : "";
}

const char* remora_code_name(int code) noexcept {
  constexpr std::size_t kCodes = REMORA_INTERNAL;
  static const auto names = names_of<remora::Code, kCodes>();
  if (code == REMORA_OK) return "ok";
  if (code < 0 || code > REMORA_INTERNAL) return "unknown code";
  return names[static_cast<std::size_t>(code) - 1].data();  // of a literal: with a final 0
}

const char* remora_reason_name(int reason) noexcept {
  constexpr std::size_t kReasons = REMORA_REASON_FORKED + 1;
  static const auto names = names_of<remora::Reason, kReasons>();
  if (reason < 0 || reason > REMORA_REASON_FORKED) return "unknown reason";
  return names[static_cast<std::size_t>(reason)].data();
}

const char* remora_version() noexcept { return REMORA_VERSION; }

int remora_require_api(int api, remora_error* error) noexcept {
  if (api <= REMORA_C_API) return REMORA_OK;
  return hand_over(
      remora::Error{remora::Code::kUnsupported, "remora_require_api"}
          .with_subject("libremora.so.0 is older than the program's <remora/remora_c.h>")
          .with_limit(static_cast<std::uint64_t>(api), REMORA_C_API),
      error);
}

void remora_free(void* text) noexcept { std::free(text); }
