#include "wire/printable.h"

namespace dtrun::rendezvous {

std::string printable(std::string_view text) {
  std::string result(text);
  char before = 0;
  for (char& c : result) {
    const auto byte = static_cast<unsigned char>(c);
    // The second of two bytes that are a control character of Latin-1 in UTF-8.
    const bool is_control_too = before == '\xc2' && byte >= 0x80 && byte < 0xa0;
    before = c;
    if (byte < 0x20 || byte == 0x7f || is_control_too) c = '?';
  }
  return result;
}

}  // namespace dtrun::rendezvous
