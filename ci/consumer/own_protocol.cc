// An application with a control.proto of its own, on the full protobuf run time, beside Remora.
#include <google/protobuf/descriptor.h>
#include <iostream>

#include <remora/remora.h>

#include "control.pb.h"

int main() {
  const auto engine = remora::Engine::open({}).value();
  storage::control::Envelope envelope;
  envelope.set_id("mine");
  const auto* const pool = google::protobuf::DescriptorPool::generated_pool();
  const auto* const file = pool->FindFileByName("control.proto");
  std::cout << envelope.ShortDebugString() << " of " << file->package() << '\n';
  // Nothing is to be had there: it is Remora's library that is called.
  const auto session = engine.open_region("remora://127.0.0.1:1/r?transport=tcp", remora::Rights{});
  return !session && file->package() == "storage.control" ? 0 : 1;
}
