#include "checkpoint/agreement_of.h"

#include "checkpoint/open_file.h"
#include "dtrun/base/error.h"
#include "dtrun/collectives/default_group.h"

namespace dtrun::dtensor::dcp {

std::unique_ptr<Agreement> agreement_of(const std::optional<collectives::ProcessGroup>& group,
                                        const Agreement* given) {
  if (given != nullptr) return nullptr;
  if (group) return std::make_unique<GroupAgreement>(*group);
  if (collectives::has_default_group())
    return std::make_unique<GroupAgreement>(collectives::default_group());
  return std::make_unique<AloneAgreement>();
}

std::string checked_folder(const std::string& path) {
  std::string folder = path;
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::string name = name_of(folder);
  if (name.empty() || name == "." || name == "..")
    throw base::Error(base::ErrorCode::kInvalidArgument,
                      "\"" + path + "\" does not name a checkpoint's folder", "",
                      "the folder's own name at the end: runs/step-100");
  return folder;
}

}  // namespace dtrun::dtensor::dcp
