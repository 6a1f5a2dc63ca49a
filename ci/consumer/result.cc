// remora::result alone: header-only.
#include <iostream>

#include <remora/result.h>

int main() {
  const remora::Result<int> answer = 42;
  std::cout << "result: " << answer.value() << '\n';
  return answer ? 0 : 1;
}
