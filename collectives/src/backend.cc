#include "dtrun/collectives/backend.h"

#include <utility>

#include "overlap.h"

namespace dtrun::collectives {

std::uint64_t CollectiveView::bytes() const {
  return bytes_of_all(*this);
}

std::vector<Work> Backend::exchange(std::vector<Message> messages) {
  std::vector<Work> works;
  works.reserve(messages.size());
  for (Message& message : messages) works.push_back(start(std::move(message)));
  return works;
}

}  // namespace dtrun::collectives
