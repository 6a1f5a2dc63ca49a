#pragma once

/// libcurl for the stores of clusters in etcd. libremora.so.0 does not link it: the library is
/// loaded by the first volume whose cluster is in etcd, and stays loaded.

#include <remora/result.h>

namespace remora::c {

/// Loads libcurl, once a process. Errors: kUnsupported.
Status check_libcurl(Operation operation);

}  // namespace remora::c
