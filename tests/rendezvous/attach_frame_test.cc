// The frames of dtrun attach.
#include "dtrun/rendezvous/attach_frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "dtrun/base/error.h"

namespace dtrun::rendezvous {
namespace {

TEST(AttachFrameTest, HoweverTheBytesAreCutTheFramesAreTheSame) {
  const std::string all =
      frame_of(AttachKind::kOut, "a line\n") + frame_of(AttachKind::kError, "") +
      frame_of(AttachKind::kDropped, "123456789012") + frame_of(AttachKind::kEnd, "7");
  for (std::size_t cut = 0; cut <= all.size(); ++cut) {
    std::vector<AttachFrame> frames;
    std::string input = all.substr(0, cut);
    while (auto frame = take_attach_frame(input)) frames.push_back(std::move(*frame));
    input += all.substr(cut);
    while (auto frame = take_attach_frame(input)) frames.push_back(std::move(*frame));
    ASSERT_EQ(frames.size(), 4U);
    EXPECT_EQ(frames[0].text, "a line\n");
    EXPECT_EQ(frames[1].kind, AttachKind::kError);
    EXPECT_EQ(frames[2].number(), 123456789012U);
    EXPECT_EQ(frames[3].number(), 7U);
  }
}

TEST(AttachFrameTest, WhatIsNoneIsRefused) {
  for (std::string bytes : {std::string(5, '\0'), std::string("\x06\0\0\0\0", 5),
                            std::string("\x01\xff\xff\xff\xff", 5)})
    EXPECT_THROW(take_attach_frame(bytes), base::Error);
  EXPECT_EQ((AttachFrame{AttachKind::kEnd, "7x"}.number()), 0U);
}

}  // namespace
}  // namespace dtrun::rendezvous
