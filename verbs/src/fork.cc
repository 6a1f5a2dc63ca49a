#include <mutex>
#include <optional>

#include <remora/verbs/fork.h>

#include "errors.h"

namespace remora::verbs {

Status initialize_fork_safety(const Provider& provider) {
  if (&provider != &Provider::system()) {  // a test's table: nothing to remember
    const int result = provider.fork_init();
    if (result != 0) return detail::provider_error("ibv_fork_init", detail::errno_of(result));
    return {};
  }
  static std::once_flag once;
  static int first_errno = 0;
  std::call_once(once, [&] {
    const int result = provider.fork_init();
    if (result != 0) first_errno = detail::errno_of(result);
  });
  if (first_errno != 0) return detail::provider_error("ibv_fork_init", first_errno);
  return {};
}

}  // namespace remora::verbs
