#include "dtrun/base/terminal_rows.h"

#include <algorithm>

namespace dtrun::base {
namespace {

// Longer rows do not fit anywhere.
constexpr std::size_t kMostBytes = 4096;

// At least as many as it takes. Control codes that move the cursor elsewhere are not understood.
std::size_t columns_of(std::string_view text) {
  std::size_t columns = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte == 0x1b && at + 1 < text.size() && text[at + 1] == '[') {
      at += 2;
      while (at < text.size() && (text[at] < '@' || text[at] > '~')) ++at;
    } else if (byte == '\t') {
      columns += 8;
    } else if (byte >= 0x20 && (byte & 0xc0) != 0x80) {
      // East Asian letters and pictures are wide; the blocks of progress bars are not.
      columns += (byte >= 0xe3 && byte <= 0xef) || byte >= 0xf0 ? 2 : 1;
    }
  }
  return columns;
}

}  // namespace

std::string TerminalRows::put(Writer writer, std::string_view bytes, std::size_t columns) {
  const Writer before = shown_;
  std::string text;
  if (dangling_ || (before != nullptr && before != writer)) leave_row(text, columns);
  if (const auto own = rows_.find(writer); own != rows_.end() && before != writer)
    text += own->second;
  text += bytes;
  keep_row(writer, bytes);
  if (rows_.contains(writer)) {
    shown_ = writer;
    return text;
  }
  const auto back = rows_.find(before);
  shown_ = back == rows_.end() ? nullptr : before;
  if (shown_ != nullptr) text += back->second;
  return text;
}

void TerminalRows::leave_row(std::string& to, std::size_t columns) {
  const auto row = rows_.find(shown_);
  if (!dangling_ && row != rows_.end() && columns_of(row->second) < columns) {
    to += "\r\x1b[K";
    return;
  }
  // Only the last of several rows could be erased.
  to += '\n';
  if (!dangling_) rows_.erase(row);
  dangling_ = false;
}

void TerminalRows::keep_row(Writer writer, std::string_view bytes) {
  std::string& row = rows_[writer];
  const auto newline = bytes.rfind('\n');
  if (newline != bytes.npos) row.clear();
  row += bytes.substr(newline == bytes.npos ? 0 : newline + 1);
  // Text before a carriage return has been overwritten and need not be shown again.
  if (row.size() > 1)
    if (const auto back = row.rfind('\r', row.size() - 2); back != row.npos) row.erase(0, back + 1);
  row.resize(std::min(row.size(), kMostBytes));
  if (row.empty()) rows_.erase(writer);
}

std::string TerminalRows::end(Writer writer, std::size_t columns) {
  const auto own = rows_.find(writer);
  if (own == rows_.end()) return "";
  std::string text;
  if (shown_ == writer) {
    shown_ = nullptr;
    dangling_ = true;
  } else {
    if (shown_ != nullptr) leave_row(text, columns);
    text += own->second + "\n";
    const auto back = rows_.find(shown_);
    if (back == rows_.end()) {
      shown_ = nullptr;
    } else {
      text += back->second;
    }
  }
  rows_.erase(own);
  return text;
}

}  // namespace dtrun::base
