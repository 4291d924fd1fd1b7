#include "striped_channel.h"

#include <algorithm>

namespace dtrun::collectives::cpu {
namespace {

/// @param connections null where one has not come, or is not made yet
bool any_broken(const auto& connections) {
  return std::ranges::any_of(
      connections, [](const auto& connection) { return connection && connection->broken(); });
}

}  // namespace

StripedSendChannel::StripedSendChannel(std::size_t connections, Connect connect)
    : connect_(std::move(connect)), connections_(connections), stripes_(connections) {
  connections_[0] = connect_(0);
}

std::size_t StripedSendChannel::write(Bytes first, Bytes second) {
  if (!stripes_.active()) return connections_[0]->write(first, second);
  const std::size_t of_header = first.empty() ? 0 : connections_[0]->write(first, {});
  if (of_header < first.size()) return of_header;
  return of_header + stripes_.pass(second, [this](std::size_t connection, Bytes stripe) {
    if (!connections_[connection]) connections_[connection] = connect_(connection);
    return connections_[connection]->write({}, stripe);
  });
}

bool StripedSendChannel::broken() const {
  return any_broken(connections_);
}

std::size_t StripedReceiveChannel::read(std::span<std::byte> target) {
  const auto read_from = [this](std::size_t connection, std::span<std::byte> bytes) {
    return connections_[connection] ? connections_[connection]->read(bytes) : 0;
  };
  if (!stripes_.active()) return read_from(0, target);
  return stripes_.pass(target, read_from);
}

bool StripedReceiveChannel::broken() const {
  return any_broken(connections_);
}

}  // namespace dtrun::collectives::cpu
