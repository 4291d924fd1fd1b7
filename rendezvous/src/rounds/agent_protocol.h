// What the agents of a job and their head say to each other once the handshake (agent_handshake.h)
// is over, as it lies on the wire. Version 6: peers of another version are turned away there, so
// that the kinds and fields below are all there is, and whatever is not exactly them is refused.
//
//   frame     u32 length of what follows, u8 kind, fields; integers little-endian, a string is u32
//             length and bytes (8 KiB at the most), a time u64 nanoseconds, an enum u8
//   kinds     the place of the message in AgentMessage or in HeadMessage (round_messages.h)
//   fields    in the order of agent_protocol.cc's fields()
//
// Messages carry the number of the round that they are about. What is out of date is ignored by the
// state machines, not here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "dtrun/rendezvous/round_messages.h"

namespace dtrun::rendezvous {

inline constexpr std::uint32_t kMostFrameBytes = 64 << 10;
inline constexpr std::size_t kMostStringBytes = 8 << 10;
inline constexpr int kMostNodes = 1 << 20;

/// Appends the frame. Longer strings are cut off.
void encode(const rounds::AgentMessage& message, std::string& bytes);
void encode(const rounds::HeadMessage& message, std::string& bytes);

/// Takes the first whole frame off the front of `bytes`; nullopt while it is incomplete, and where
/// it is no message: then `failure` says why. Message is AgentMessage or HeadMessage.
template <typename Message>
std::optional<Message> take_message(std::string_view& bytes, std::string& failure);
template <>
std::optional<rounds::AgentMessage> take_message(std::string_view& bytes, std::string& failure);
template <>
std::optional<rounds::HeadMessage> take_message(std::string_view& bytes, std::string& failure);

}  // namespace dtrun::rendezvous
