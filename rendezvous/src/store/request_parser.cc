#include "store/request_parser.h"

#include <fmt/core.h>

#include <algorithm>

namespace dtrun::rendezvous {
namespace {

template <typename Number>
Number number_at(const char* bytes) {
  Number number;
  std::memcpy(&number, bytes, sizeof number);
  return number;
}

// A list that one big request has stretched is not kept for the small ones after it.
constexpr std::size_t kKeptCapacity = 1024;

void clear(std::vector<std::string_view>& texts) {
  if (texts.capacity() > kKeptCapacity) {
    std::vector<std::string_view>().swap(texts);
  } else {
    texts.clear();
  }
}

}  // namespace

// Takes from the front of `more` what the field that is being read still needs; of a list, whose
// fields may be many and short, all. Twice the room is taken when there is too little, but no more
// than the request needs as far as that is known; of a list that is little, and then it is an
// eighth: else each read would move all that came before.
void RequestParser::keep(std::string_view& more) {
  if (!half_) half_ = std::make_unique<Half>(memory_);
  StoreBytes& bytes = half_->bytes;
  const bool is_list = repeats_left_ > 0;
  const std::size_t taken = is_list ? more.size() : std::min(more.size(), needed_ - bytes.size());
  const std::size_t size = bytes.size() + taken, capacity = bytes.capacity();
  if (size > capacity) {
    const std::size_t known = is_list ? std::max(needed_, capacity + capacity / 8) : needed_;
    bytes.reserve(std::max(size, std::min(2 * capacity, known)),
                  adds_to_the_store(op_) ? StoreMemory::Use::kKept : StoreMemory::Use::kPassing);
  }
  bytes.append(more.substr(0, taken));
  more.remove_prefix(taken);
}

bool RequestParser::fail(std::string why) {
  failure_ = std::move(why);
  return false;
}

bool RequestParser::begin(unsigned char code) {
  const std::optional<StoreOp> op = store_op(dialect_, code);
  if (!op) return fail(fmt::format("there is no operation {}", code));
  op_ = *op;
  field_ = store_op_fields(*op);
  repeated_ = nullptr;
  repeats_left_ = 0;
  at_ = 1;
  return true;
}

bool RequestParser::scan_text(std::uint64_t size) {
  const bool is_key = *field_ == 'k';
  const std::size_t most = is_key ? limits_.key_bytes : limits_.value_bytes;
  if (size > most)
    return fail(fmt::format("{} with a {} of {} bytes, at most {} are taken", store_op_name(op_),
                            is_key ? "key" : "value", size, most));
  if (at_ + sizeof size + size > limits_.request_bytes)
    return fail(fmt::format("{} of more than {} bytes", store_op_name(op_), limits_.request_bytes));
  return true;
}

bool RequestParser::scan_count(std::uint64_t count) {
  if (count <= limits_.keys) return true;
  return fail(
      fmt::format("{} of {} keys, at most {} are taken", store_op_name(op_), count, limits_.keys));
}

// False: the request is whole.
bool RequestParser::next_field() {
  if (*field_ != '\0') return true;
  if (repeats_left_ <= 1) return false;
  --repeats_left_;
  field_ = repeated_;
  return true;
}

// `bytes` are all of the request that has come, and perhaps of others after it.
RequestParser::Status RequestParser::scan(std::string_view bytes) {
  if (field_ == nullptr && !begin(static_cast<unsigned char>(bytes.front()))) return Status::kBad;
  while (next_field()) {
    const std::size_t width = *field_ == 'u' ? 4 : 8;
    const std::size_t left = bytes.size() - at_;
    // Little-endian: what is still to come of a length can only make it longer.
    std::uint64_t scalar = 0;
    std::memcpy(&scalar, bytes.data() + at_, std::min(width, left));
    const bool is_text = *field_ == 'k' || *field_ == 'v';
    if (is_text && !scan_text(scalar)) return Status::kBad;
    if (*field_ == '*' && !scan_count(scalar)) return Status::kBad;
    needed_ = at_ + width + (is_text ? scalar : 0);
    if (bytes.size() < needed_) return Status::kNeedsMore;
    at_ = needed_;
    if (*field_ == '*') {
      repeats_left_ = scalar;
      repeated_ = field_ + 1;
      if (scalar == 0) repeated_ = "";
      field_ = repeated_;
    } else {
      ++field_;
    }
  }
  return Status::kComplete;
}

// The fields of a whole request.
void RequestParser::show(std::string_view bytes) {
  request_.op = op_;
  clear(request_.keys);
  clear(request_.values);
  request_.number = 0;
  request_.bytes = bytes.size();
  const char* field = store_op_fields(op_);
  const char* at = bytes.data() + 1;
  const char* const end = bytes.data() + bytes.size();
  const char* repeated = nullptr;
  while (at < end) {
    if (*field == '\0') field = repeated;
    switch (*field++) {
      case 'k':
      case 'v': {
        const auto size = number_at<std::uint64_t>(at);
        (field[-1] == 'k' ? request_.keys : request_.values).emplace_back(at + 8, size);
        at += 8 + size;
        break;
      }
      case '*':
        repeated = field;
        at += 8;
        break;
      case 'u':
        request_.number = number_at<std::uint32_t>(at);
        at += 4;
        break;
      default:
        request_.number = number_at<std::int64_t>(at);
        at += 8;
    }
  }
}

RequestParser::Status RequestParser::parse(std::string_view& input) {
  forget_request();
  if (input.empty()) return Status::kNeedsMore;
  const std::size_t before = half_ ? half_->bytes.size() : 0;
  std::string_view left = input;
  while (true) {
    if (half_) keep(left);
    const std::string_view bytes = half_ ? half_->bytes.view() : input;
    switch (const Status status = scan(bytes)) {
      case Status::kBad:
        return status;
      case Status::kComplete:
        show(bytes.substr(0, at_));
        if (half_) half_->is_whole = true;
        input.remove_prefix(at_ - before);
        field_ = nullptr;
        return status;
      case Status::kNeedsMore:
        if (!half_) keep(left);
        if (!left.empty()) continue;
        input = {};
        return status;
    }
  }
}

}  // namespace dtrun::rendezvous
