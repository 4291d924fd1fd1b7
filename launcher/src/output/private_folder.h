// PrivateFolder: the temporary folder of a run that keeps no files: dtrun_ and 16 hexadecimal
// digits, the user's alone (0700). The process that made it holds a lock on it while it lives, so
// that the next dtrun recognises a folder that was left behind when all processes were killed.
#pragma once

#include <string>
#include <vector>

#include "dtrun/base/unique_fd.h"

namespace dtrun::launcher {

/// Where folders that are kept lie: $TMPDIR where that can be written to, else /tmp.
struct TemporaryFolder {
  std::string path;
  std::string unusable;      ///< $TMPDIR, where it is not taken; empty: it is, or is not set
  std::string why_unusable;  ///< "Read-only file system"
};
TemporaryFolder temporary_folder();
/// Where private folders lie: the new ones in the first, abandoned ones in all. That is the place
/// above, but before it, where $TMPDIR is not set, /dev/shm if that is memory: a disk that is
/// mounted with `discard` takes 0.2 to 4 ms to forget a folder.
std::vector<std::string> places_of_private_folders();
std::string private_folder_name();

/// The user's alone, without what makes it a private folder of a run: it may be kept. Nothing
/// happens where it is there. @throws Error kSystem, also where it is another user's
/// @param remedy for the error
void make_own_folder(const std::string& path,
                     const char* remedy =
                         "set TMPDIR to a folder that can be written to, or use "
                         "--log_dir");
/// Makes it, where it is not there any more or yet. @return what holds the lock; nothing where the
/// file system knows no locks. @throws Error kSystem
base::UniqueFd make_private_folder(const std::string& path);
/// With all that is in it; nothing happens when it is gone.
void remove_private_folder(const std::string& path);

/// Removes this user's folders in `parent` whose makers are dead. A folder that is just being made
/// shows no lock yet, and stays. So does one whose maker ran on another machine, or before this one
/// was booted: in a shared folder nobody knows whether it lives.
void remove_abandoned_folders(const std::string& parent);

}  // namespace dtrun::launcher
