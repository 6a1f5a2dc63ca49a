// The program has a libprotobuf.a of its own.

#include <google/protobuf/util/message_differencer.h>

#include "beside.h"
#include "control.pb.h"

namespace remora::test {

bool use_own() {
  storage::control::Envelope message;
  message.set_id("the application's");
  storage::control::Envelope back;
  return back.ParseFromString(message.SerializeAsString()) &&
         google::protobuf::util::MessageDifferencer::Equals(message, back);
}

}  // namespace remora::test
