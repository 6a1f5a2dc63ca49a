#pragma once

/// The addresses of this machine that a configured address resolves to: looked up once, before the
/// server listens, so that a wrong address fails the start on every transport.

#include <stop_token>
#include <string>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/address.h>

namespace remora::detail {

/// Every address of this machine that `host` resolves to, without ports, each once; at least one.
/// If a name also resolves to other addresses, they are left out with a warning. **Blocks** while a
/// name is looked up, at most 10 s, and ends early at `stop`. `key`: the key of the configuration
/// that has `host`. Errors, with `host` as subject: kNotFound (the name does not resolve);
/// kUnreachable (no address of this machine); kTimedOut; kCancelled (`stop`); kLimitExceeded,
/// kSystem (no thread).
Result<std::vector<verbs::Address>> own_addresses(Operation key, const std::string& host,
                                                  const std::stop_token& stop = {});

}  // namespace remora::detail
