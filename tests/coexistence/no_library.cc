// The program's functions of protobuf, oneTBB and spdlog are none: stand_ins.sh.

#include "beside.h"

namespace remora::test {

bool use_own() { return true; }

}  // namespace remora::test
