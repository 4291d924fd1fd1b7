// OwnPort: a TCP port of this machine for a program that a test starts. As long as the object lives
// nobody else gets it: it is not of those that the kernel hands out to whoever asks for any port or
// connects, and no other test has it.
#pragma once

#include <cstdint>
#include <string>

namespace dtrun::testing_support {

class OwnPort {
 public:
  OwnPort();
  ~OwnPort();
  OwnPort(OwnPort&& other) noexcept;
  OwnPort& operator=(OwnPort&& other) noexcept;

  std::uint16_t number() const { return number_; }
  std::string text() const { return std::to_string(number_); }

 private:
  std::uint16_t number_ = 0;
  int claim_ = -1;
};

}  // namespace dtrun::testing_support
