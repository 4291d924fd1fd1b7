#include "dtrun/collectives/backend.h"

#include <utility>

namespace dtrun::collectives {

std::vector<Work> Backend::exchange(std::vector<Message> messages) {
  std::vector<Work> works;
  works.reserve(messages.size());
  for (Message& message : messages)
    works.push_back(
        message.kind == OpKind::send
            ? send(message.buffer, message.peer, message.tag, std::move(message.call))
            : receive(message.buffer, message.peer, message.tag, std::move(message.call)));
  return works;
}

}  // namespace dtrun::collectives
