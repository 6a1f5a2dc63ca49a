// Built with -fno-exceptions: value() of an error ends the program, and says which error it was.
#include <iostream>

#include <remora/remora.h>
#include <remora/verbs/verbs.h>

int main() {
  const auto engine = remora::Engine::open({}).value();
  std::cout << "opened" << std::endl;
  engine.open_region("no URI", remora::Rights::kRead).value();
  std::cout << "not reached" << std::endl;
}
