#include <remora/verbs/completion.h>

namespace remora::verbs {

static_assert(static_cast<int>(CompletionStatus::kGeneral) == IBV_WC_GENERAL_ERR);
static_assert(static_cast<int>(CompletionStatus::kFlushed) == IBV_WC_WR_FLUSH_ERR);
static_assert(static_cast<int>(CompletionStatus::kRemoteAccessError) == IBV_WC_REM_ACCESS_ERR);
static_assert(static_cast<int>(CompletionStatus::kRetryExceeded) == IBV_WC_RETRY_EXC_ERR);

std::string_view to_string(Opcode opcode) noexcept {
  switch (opcode) {
    case Opcode::kSend: return "send";
    case Opcode::kWrite: return "write";
    case Opcode::kRead: return "read";
    case Opcode::kCompareSwap: return "compare-swap";
    case Opcode::kFetchAdd: return "fetch-add";
    case Opcode::kBindWindow: return "bind-window";
    case Opcode::kLocalInvalidate: return "local-invalidate";
    case Opcode::kReceive: return "receive";
    case Opcode::kReceiveWriteImmediate: return "receive-write-immediate";
  }
  return "other";
}

CompletionStatus Completion::status() const noexcept {
  // Newer libraries may have more values; such a value must not become an undefined enumerator.
  if (static_cast<unsigned>(wc_.status) > static_cast<unsigned>(CompletionStatus::kGeneral))
    return CompletionStatus::kGeneral;
  return static_cast<CompletionStatus>(wc_.status);
}

Error Completion::error() const noexcept {
  const Code code = status() == CompletionStatus::kRemoteAccessError ||
                            status() == CompletionStatus::kRemoteInvalidRequest
                        ? Code::kAccessRefused
                        : Code::kProvider;
  return Error{code, "completion"}.with_completion(status(), vendor_error());
}

std::ostream& operator<<(std::ostream& out, const Completion& completion) {
  if (completion.ok())
    return out << to_string(completion.opcode()) << " id " << completion.id() << " ok";
  return out << "id " << completion.id() << " " << remora::to_string(completion.status())
             << " (vendor " << completion.vendor_error() << ")";
}

}  // namespace remora::verbs
