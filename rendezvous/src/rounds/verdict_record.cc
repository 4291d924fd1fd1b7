#include "dtrun/rendezvous/verdict_record.h"

#include <string_view>
#include <variant>

#include "dtrun/base/base64.h"
#include "rounds/agent_protocol.h"

namespace dtrun::rendezvous {

using rounds::Close;
using rounds::HeadMessage;

std::string write_verdict(const Close& verdict) {
  std::string frame;
  encode(HeadMessage(verdict), frame);
  return verdict.describe() + "\n" + base::to_base64(frame);
}

VerdictRecord read_verdict(const std::string& record) {
  const std::size_t line = record.rfind('\n');
  if (line == std::string::npos) return {record, std::nullopt};
  const auto frame = base::from_base64(std::string_view(record).substr(line + 1));
  if (!frame) return {record, std::nullopt};
  std::string_view bytes = *frame;
  std::string failure;
  const auto message = take_message<HeadMessage>(bytes, failure);
  const Close* const close = message ? std::get_if<Close>(&*message) : nullptr;
  if (close == nullptr || !bytes.empty()) return {record, std::nullopt};
  return {record.substr(0, line), *close};
}

}  // namespace dtrun::rendezvous
