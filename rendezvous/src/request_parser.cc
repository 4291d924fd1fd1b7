#include "request_parser.h"

#include <fmt/core.h>

#include <algorithm>

namespace dtrun::rendezvous {
namespace {

// A list that one big request has stretched is not kept for the small ones after it.
constexpr std::size_t kKeptCapacity = 64;

void clear(std::vector<std::string>& texts) {
  if (texts.capacity() > kKeptCapacity) {
    std::vector<std::string>().swap(texts);
  } else {
    texts.clear();
  }
}

}  // namespace

bool RequestParser::fail(std::string why) {
  failure_ = std::move(why);
  return false;
}

bool RequestParser::begin(unsigned char code) {
  const std::optional<StoreOp> op = store_op(dialect_, code);
  if (!op) return fail(fmt::format("there is no operation {}", code));
  request_.op = *op;
  clear(request_.keys);
  clear(request_.values);
  field_ = store_op_fields(*op);
  repeated_ = nullptr;
  repeats_left_ = 0;
  request_bytes_ = 0;
  scalar_have_ = 0;
  return true;
}

// True once `width` bytes have come; they are then in scalar_.
bool RequestParser::take_scalar(std::string_view& input, std::size_t width) {
  if (scalar_have_ == 0) scalar_ = 0;
  const std::size_t taken = std::min(width - scalar_have_, input.size());
  std::memcpy(reinterpret_cast<char*>(&scalar_) + scalar_have_, input.data(), taken);
  input.remove_prefix(taken);
  scalar_have_ += taken;
  if (scalar_have_ < width) return false;
  scalar_have_ = 0;
  return true;
}

// True once the text is whole.
bool RequestParser::take_text(std::string_view& input) {
  const std::size_t taken = std::min<std::uint64_t>(text_left_, input.size());
  text_->append(input.substr(0, taken));
  input.remove_prefix(taken);
  text_left_ -= taken;
  if (text_left_ > 0) return false;
  text_ = nullptr;
  return true;
}

// Whether what has come of a length may be taken. The first bytes are the low ones, so that a
// length can only grow: one that is too long is refused before it is whole, as five bytes of a
// wrong magic are.
bool RequestParser::length_fits() {
  if (*field_ == '*' && scalar_ > limits_.keys)
    return fail(fmt::format("{} of {} keys, at most {} are taken", store_op_name(request_.op),
                            scalar_, limits_.keys));
  const bool is_key = *field_ == 'k';
  if (!is_key && *field_ != 'v') return true;
  const std::size_t most = is_key ? limits_.key_bytes : limits_.value_bytes;
  if (scalar_ > most)
    return fail(fmt::format("{} with a {} of {} bytes, at most {} are taken",
                            store_op_name(request_.op), is_key ? "key" : "value", scalar_, most));
  return true;
}

bool RequestParser::begin_text(std::vector<std::string>& texts) {
  request_bytes_ += scalar_ + sizeof scalar_;
  if (request_bytes_ > kMaxRequestBytes)
    return fail(
        fmt::format("{} of more than {} bytes", store_op_name(request_.op), kMaxRequestBytes));
  text_ = &texts.emplace_back();
  text_left_ = scalar_;
  ++field_;
  return true;
}

void RequestParser::begin_repeats() {
  repeated_ = ++field_;
  repeats_left_ = scalar_;
  if (scalar_ == 0) field_ = "";
}

RequestParser::Status RequestParser::parse(std::string_view& input) {
  if (field_ == nullptr) {
    if (input.empty()) return Status::kNeedsMore;
    const unsigned char code = static_cast<unsigned char>(input.front());
    input.remove_prefix(1);
    if (!begin(code)) return Status::kBad;
  }
  while (true) {
    if (text_ != nullptr && !take_text(input)) return Status::kNeedsMore;
    if (*field_ == '\0') {
      if (repeats_left_ > 1) {
        --repeats_left_;
        field_ = repeated_;
      } else {
        field_ = nullptr;
        return Status::kComplete;
      }
    }
    const bool whole = take_scalar(input, *field_ == 'u' ? 4 : 8);
    if (!length_fits()) return Status::kBad;
    if (!whole) return Status::kNeedsMore;
    bool taken = true;
    if (*field_ == 'k') {
      taken = begin_text(request_.keys);
    } else if (*field_ == 'v') {
      taken = begin_text(request_.values);
    } else if (*field_ == '*') {
      begin_repeats();
    } else {
      request_.number = static_cast<std::int64_t>(scalar_);
      ++field_;
    }
    if (!taken) return Status::kBad;
  }
}

}  // namespace dtrun::rendezvous
