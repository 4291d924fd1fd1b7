#include "dtrun/collectives/backend.h"

#include <algorithm>
#include <utility>

namespace dtrun::collectives {

std::uint64_t CollectiveView::bytes() const {
  std::uint64_t bytes = 0;
  for (const Buffer& buffer : outputs) bytes += buffer.bytes();
  for (const Buffer& buffer : inputs) {
    const bool is_output = std::ranges::any_of(
        outputs, [&](const Buffer& output) { return output.data == buffer.data; });
    if (!is_output) bytes += buffer.bytes();
  }
  return bytes;
}

std::vector<Work> Backend::exchange(std::vector<Message> messages) {
  std::vector<Work> works;
  works.reserve(messages.size());
  for (Message& message : messages) works.push_back(start(std::move(message)));
  return works;
}

}  // namespace dtrun::collectives
