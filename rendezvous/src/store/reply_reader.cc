#include "store/reply_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "dtrun/base/error.h"
#include "store/store_protocol.h"

namespace dtrun::rendezvous {
namespace {

using base::Deadline;

base::Error absurd(const std::string& store, std::string what) {
  return base::Error(base::ErrorCode::kProtocol,
                     fmt::format("the store at {} {}", store, std::move(what)),
                     "no store sends that; another program may listen there",
                     "check the address and the port (MASTER_ADDR, MASTER_PORT)");
}

}  // namespace

ReplyReader::ReplyReader(Source source, std::string store)
    : source_(std::move(source)), store_(std::move(store)) {}

void ReplyReader::read(char* data, std::size_t size, Deadline deadline) {
  while (size > 0) {
    std::size_t taken = std::min(size, end_ - begin_);
    if (taken > 0) {
      std::memcpy(data, buffer_ + begin_, taken);
      begin_ += taken;
    } else if (size >= sizeof buffer_) {
      taken = source_(data, size, deadline);
    } else {
      end_ = source_(buffer_, sizeof buffer_, deadline);
      begin_ = 0;
    }
    data += taken;
    size -= taken;
  }
}

std::uint32_t ReplyReader::read_u32(Deadline deadline) {
  std::uint32_t value = 0;
  read(reinterpret_cast<char*>(&value), sizeof value, deadline);
  return value;
}

std::uint8_t ReplyReader::read_flag(Deadline deadline) {
  char value = 0;
  read(&value, sizeof value, deadline);
  if (value != 0 && value != 1)
    throw absurd(store_, fmt::format("answers {} where 0 or 1 is due",
                                     static_cast<int>(static_cast<unsigned char>(value))));
  return static_cast<std::uint8_t>(value);
}

std::int64_t ReplyReader::read_i64(Deadline deadline) {
  std::int64_t value = 0;
  read(reinterpret_cast<char*>(&value), sizeof value, deadline);
  return value;
}

std::int64_t ReplyReader::read_count(Deadline deadline) {
  const std::int64_t count = read_i64(deadline);
  if (count < 0) throw absurd(store_, fmt::format("counts {} things", count));
  return count;
}

std::string ReplyReader::read_text(Deadline deadline) {
  auto left = static_cast<std::uint64_t>(read_i64(deadline));
  if (left > kMaxReplyBytes)
    throw absurd(store_, fmt::format("announces a value of {} bytes", left));
  std::string text;
  while (left > 0) {
    const std::size_t have = text.size();
    const std::size_t step = std::min(left, std::max<std::uint64_t>(have, sizeof buffer_));
    text.resize(have + step);
    read(text.data() + have, step, deadline);
    left -= step;
  }
  return text;
}

std::vector<std::string> ReplyReader::read_list(Deadline deadline) {
  std::vector<std::string> texts;
  std::uint64_t bytes = 0;
  for (std::int64_t left = read_count(deadline); left > 0; --left) {
    texts.push_back(read_text(deadline));
    bytes += texts.back().size() + sizeof(std::uint64_t);
    if (bytes > kMaxReplyBytes)
      throw absurd(store_, fmt::format("sends a list of more than {} bytes", kMaxReplyBytes));
  }
  return texts;
}

}  // namespace dtrun::rendezvous
