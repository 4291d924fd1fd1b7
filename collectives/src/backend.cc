#include "dtrun/collectives/backend.h"

#include <algorithm>
#include <utility>

namespace dtrun::collectives {

std::uint64_t CollectiveView::bytes() const {
  std::int64_t elements = 0;
  for (const Buffer& output : outputs) elements += output.count;
  for (const Buffer& input : inputs) {
    const auto is_input = [&](const Buffer& output) { return output.data == input.data; };
    if (std::ranges::none_of(outputs, is_input)) elements += input.count;
  }
  // All buffers are of one dtype.
  return static_cast<std::uint64_t>(elements) * tensors::item_size(fingerprint.dtype);
}

std::vector<Work> Backend::exchange(std::vector<Message> messages) {
  std::vector<Work> works;
  works.reserve(messages.size());
  for (Message& message : messages) works.push_back(start(std::move(message)));
  return works;
}

}  // namespace dtrun::collectives
