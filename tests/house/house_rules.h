// The house rules that a program can see, as pure functions over file names and texts.
// house_test.cc applies them to the tree, and tests each rule on a text that breaks it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace dtrun::house {

struct SourceFile {
  std::string path;  ///< relative to the repository, with '/'
  std::string text;
};

/// One line each, "path:line: what is wrong". Empty: nothing to say.
using Findings = std::vector<std::string>;

/// An include of a layer that stands above (or beside) the including file's own, or of another's
/// private header.
Findings climbing_includes(const SourceFile& file);
/// Of the launcher's rooms, the folders in launcher/src, the lower ones know nothing of the higher.
Findings climbing_rooms(const SourceFile& file);
/// A private header that has, together with its source, fewer than 50 lines, and that one other
/// file alone includes: both are always read together. Kernels stay units of their own, because
/// they are compiled with options of their own. @param tree all files
Findings parts_of_one_file(const std::vector<SourceFile>& tree);
/// More than 700 lines.
Findings long_files(const SourceFile& file);
/// A function body of more than 70 lines.
Findings long_functions(const SourceFile& file);
/// A file or folder whose name says nothing: util, common, helper, misc, manager.
Findings empty_names(const SourceFile& file);
/// <boost/asio.hpp>, sleeping outside bench and examples, a third-party type's header in a public
/// one, work left open, a path of one machine.
Findings banned_texts(const SourceFile& file);
/// In README.md and docs/, a table cell of more than 220 characters: a paragraph.
Findings long_cells(const SourceFile& file);
/// In README.md and docs/, but for docs/benchmarks.md and the output of programs, a figure that was
/// measured: it would stay when a later measurement changes the one in docs/benchmarks.md.
Findings figures_outside_benchmarks(const SourceFile& file);
/// A README.md of more than 60 lines.
Findings long_readme(const SourceFile& file);

/// A name of the list that stands in no table row of docs/dist.md as a word. @param names one a
/// line; '#' begins a comment
Findings unexplained_names(std::string_view names, const SourceFile& file);

/// The text with comments and the insides of strings and characters blanked; lines stay where they
/// are.
std::string without_comments_and_strings(std::string_view text);

}  // namespace dtrun::house
