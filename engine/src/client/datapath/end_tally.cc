#include "client/datapath/end_tally.h"

#include <cstddef>

namespace remora::detail {

void EndTally::add_failed(const OperationRecord& operation) noexcept {
  const auto op = ClientMetrics::kNameOf[static_cast<std::size_t>(operation.request.opcode)];
  recorder_.add(metrics_.operations_[op][ClientMetrics::ending(operation.outcome)]);
}

}  // namespace remora::detail
