// torch.distributed's collectives of objects: values of any type that can be written as bytes.
// Nothing that is received is executed. Strings and trivially copyable values are written as they
// are; another type specializes ObjectBytes, as dist_json.h does for JSON values.
//
//     std::vector<std::string> names;
//     dist::all_gather_object(names, my_name);       // names[r] is rank r's
#pragma once

#include <concepts>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "dtrun/base/error.h"
#include "dtrun/runtime/dist.h"

namespace dtrun::dist {

/// How values of a type travel: static std::string to_bytes(const T&) and
/// static T from_bytes(std::string_view), which throws Error kProtocol for bytes that are no T.
template <typename T>
struct ObjectBytes;

template <>
struct ObjectBytes<std::string> {
  static std::string to_bytes(const std::string& text) { return text; }
  static std::string from_bytes(std::string_view bytes) { return std::string(bytes); }
};

/// @throws Error kProtocol
[[noreturn]] void refuse_object_size(std::size_t found, std::size_t expected);

/// All ranks must run on machines of one byte order and compile T alike.
template <typename T>
requires std::is_trivially_copyable_v<T> &&(!std::is_pointer_v<T>)struct ObjectBytes<T> {
  static std::string to_bytes(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(T)};
  }
  static T from_bytes(std::string_view bytes) {
    if (bytes.size() != sizeof(T)) refuse_object_size(bytes.size(), sizeof(T));
    T value;
    std::memcpy(&value, bytes.data(), sizeof(T));
    return value;
  }
};

template <typename T>
concept Object = requires(const T& value, std::string_view bytes) {
  { ObjectBytes<T>::to_bytes(value) } -> std::same_as<std::string>;
  { ObjectBytes<T>::from_bytes(bytes) } -> std::same_as<T>;
};

struct ObjectOptions {
  ProcessGroup group = {};                                         ///< default: the world
  std::optional<base::Deadline::Duration> timeout = std::nullopt;  ///< default: the group's
};

// The same for values that are bytes already. Collective over the group.
using ObjectList = std::vector<std::string>;
ObjectList broadcast_bytes(const ObjectList& objects, int src, const ObjectOptions& options,
                           const Site& site);
ObjectList all_gather_bytes(const std::string& object, const ObjectOptions& options,
                            const Site& site);
ObjectList gather_bytes(const std::string& object, int dst, const ObjectOptions& options,
                        const Site& site);
std::string scatter_bytes(const ObjectList& objects, int src, const ObjectOptions& options,
                          const Site& site);
void send_bytes(const ObjectList& objects, int dst, const MessageOptions& options,
                const Site& site);
struct ReceivedBytes {
  ObjectList objects;
  int source;  ///< global rank
};
ReceivedBytes receive_bytes(std::size_t count, int src, const MessageOptions& options,
                            const Site& site);

template <Object T>
ObjectList to_bytes(const std::vector<T>& objects) {
  ObjectList bytes;
  for (const T& object : objects) bytes.push_back(ObjectBytes<T>::to_bytes(object));
  return bytes;
}
template <Object T>
std::vector<T> from_bytes(const ObjectList& bytes) {
  std::vector<T> objects;
  for (const std::string& one : bytes) objects.push_back(ObjectBytes<T>::from_bytes(one));
  return objects;
}

/// Rank src's objects on all ranks. All ranks give lists of one length.
template <Object T>
void broadcast_object_list(std::vector<T>& object_list, int src, ObjectOptions options = {},
                           Site site = Site::current()) {
  object_list = from_bytes<T>(broadcast_bytes(to_bytes(object_list), src, options, site));
}
/// object_list[r] becomes rank r's object.
template <Object T>
void all_gather_object(std::vector<T>& object_list, const T& object, ObjectOptions options = {},
                       Site site = Site::current()) {
  object_list = from_bytes<T>(all_gather_bytes(ObjectBytes<T>::to_bytes(object), options, site));
}
/// On rank dst object_list[r] becomes rank r's object; elsewhere the list becomes empty.
template <Object T>
void gather_object(const T& object, std::vector<T>& object_list, int dst,
                   ObjectOptions options = {}, Site site = Site::current()) {
  object_list = from_bytes<T>(gather_bytes(ObjectBytes<T>::to_bytes(object), dst, options, site));
}
/// Rank r's of rank src's objects, one for each rank; the other ranks' list is not looked at.
template <Object T>
T scatter_object_list(const std::vector<T>& object_list, int src, ObjectOptions options = {},
                      Site site = Site::current()) {
  const ObjectList bytes = get_rank() == src ? to_bytes(object_list) : ObjectList();
  return ObjectBytes<T>::from_bytes(scatter_bytes(bytes, src, options, site));
}
template <Object T>
void send_object_list(const std::vector<T>& object_list, int dst, MessageOptions options = {},
                      Site site = Site::current()) {
  send_bytes(to_bytes(object_list), dst, options, site);
}
/// As many objects as the list has, which is what the other rank sends. @param src -1: from any
/// rank @return the sender's global rank
template <Object T>
int recv_object_list(std::vector<T>& object_list, int src = -1, MessageOptions options = {},
                     Site site = Site::current()) {
  const ReceivedBytes received = receive_bytes(object_list.size(), src, options, site);
  object_list = from_bytes<T>(received.objects);
  return received.source;
}

}  // namespace dtrun::dist
