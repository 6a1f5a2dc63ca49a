#pragma once

/// The addresses of this machine that a configured address stands for: looked up once, before
/// anything listens, so that a wrong address is a failed start on every transport.

#include <stop_token>
#include <string>
#include <vector>

#include <remora/result.h>
#include <remora/verbs/address.h>

namespace remora::detail {

/// Every address of this machine that `host` stands for, without ports, each once; one at least. A
/// name may stand for other addresses too: they are left out, with a warning. **Blocks** while a
/// name is looked up, 10 s at most, and ends early at `stop`. `key`: where `host` is configured.
/// Errors, with `host` as subject: kNotFound (the name does not resolve); kUnreachable (no address
/// of this machine); kTimedOut; kCancelled (`stop`); kLimitExceeded, kSystem (no thread).
Result<std::vector<verbs::Address>> own_addresses(Operation key, const std::string& host,
                                                  const std::stop_token& stop = {});

}  // namespace remora::detail
