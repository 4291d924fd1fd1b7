#include "checkpoint/rank_message.h"

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>

#include "dtrun/base/json.h"

namespace dtrun::dtensor::dcp {

namespace json = boost::json;
using tensors::Shape;

namespace {

json::array list_of(const Shape& sizes) {
  return json::array(sizes.begin(), sizes.end());
}

Shape sizes_in(const json::value& list) {
  Shape sizes;
  for (const json::value& size : list.as_array()) sizes.push_back(size.as_int64());
  return sizes;
}

std::string text_in(const json::value& value) {
  return std::string(value.as_string());
}

/// A letter for the kind, and the value.
json::array list_of(const Values& values) {
  json::array list;
  for (const auto& [name, value] : values) {
    if (const double* const number = std::get_if<double>(&value)) {
      list.push_back({name, "d", exact_text(*number)});
    } else if (const std::int64_t* const count = std::get_if<std::int64_t>(&value)) {
      list.push_back({name, "i", *count});
    } else if (const bool* const truth = std::get_if<bool>(&value)) {
      list.push_back({name, "b", *truth});
    } else {
      list.push_back({name, "s", std::get<std::string>(value)});
    }
  }
  return list;
}

Values values_in(const json::value& list) {
  Values values;
  for (const json::value& one : list.as_array()) {
    const json::array& fields = one.as_array();
    Value& value = values[text_in(fields.at(0))];
    const char kind = fields.at(1).as_string().at(0);
    if (kind == 'd') value = exact_number(text_in(fields.at(2))).value();
    if (kind == 'i') value = fields.at(2).as_int64();
    if (kind == 'b') value = fields.at(2).as_bool();
    if (kind == 's') value = text_in(fields.at(2));
  }
  return values;
}

}  // namespace

std::string to_text(const RankOffer& offer) {
  json::array parts;
  for (const TensorPart& part : offer.parts) {
    json::array line{part.name, static_cast<int>(part.dtype), list_of(part.shape)};
    line.push_back(part.box ? json::array{list_of(part.box->offsets), list_of(part.box->shape)}
                            : json::array{});
    line.push_back(json::array(part.mesh_shape.begin(), part.mesh_shape.end()));
    line.push_back(json::value(part.layout));
    parts.push_back(std::move(line));
  }
  return json::serialize(json::array{std::move(parts), list_of(offer.values),
                                     list_of(offer.rank_values), offer.split_above});
}

RankOffer parse_offer(const std::string& text) {
  const json::value parsed = base::parse_json(text, "a rank's offer");
  const json::array& all = parsed.as_array();
  RankOffer offer{
      {}, values_in(all.at(1)), values_in(all.at(2)), all.at(3).to_number<std::uint64_t>()};
  for (const json::value& one : all.at(0).as_array()) {
    const json::array& line = one.as_array();
    TensorPart part{text_in(line.at(0)),
                    static_cast<tensors::DType>(line.at(1).as_int64()),
                    sizes_in(line.at(2)),
                    std::nullopt,
                    {},
                    text_in(line.at(5))};
    const json::array& box = line.at(3).as_array();
    if (!box.empty()) part.box = Box{sizes_in(box.at(0)), sizes_in(box.at(1))};
    for (const json::value& size : line.at(4).as_array())
      part.mesh_shape.push_back(static_cast<int>(size.as_int64()));
    offer.parts.push_back(std::move(part));
  }
  return offer;
}

std::string to_text(const WrittenShard& shard) {
  json::array chunks;
  for (const SavedChunk& chunk : shard.chunks) {
    chunks.push_back(
        json::array{chunk.begin, json::array(chunk.checksums.begin(), chunk.checksums.end())});
  }
  return json::serialize(json::array{shard.file.name, shard.file.bytes, shard.file.header_bytes,
                                     shard.file.header_checksum, std::move(chunks)});
}

WrittenShard parse_shard(const std::string& text) {
  const json::value parsed = base::parse_json(text, "a rank's report");
  const json::array& all = parsed.as_array();
  const auto number = [](const json::value& value) { return value.to_number<std::uint64_t>(); };
  WrittenShard shard;
  shard.file = {text_in(all.at(0)), number(all.at(1)), number(all.at(2)), number(all.at(3))};
  for (const json::value& one : all.at(4).as_array()) {
    SavedChunk chunk;
    chunk.begin = number(one.as_array().at(0));
    for (const json::value& sum : one.as_array().at(1).as_array())
      chunk.checksums.push_back(number(sum));
    shard.chunks.push_back(std::move(chunk));
  }
  return shard;
}

std::string to_text(const std::vector<Wish>& wishes) {
  json::array list;
  for (const Wish& wish : wishes)
    list.push_back(json::array{wish.tensor, list_of(wish.box.offsets), list_of(wish.box.shape)});
  return json::serialize(list);
}

std::vector<Wish> parse_wishes(const std::string& text) {
  const json::value parsed = base::parse_json(text, "a rank's wishes");
  std::vector<Wish> wishes;
  for (const json::value& one : parsed.as_array()) {
    const json::array& wish = one.as_array();
    wishes.push_back(
        {wish.at(0).to_number<std::size_t>(), Box{sizes_in(wish.at(1)), sizes_in(wish.at(2))}});
  }
  return wishes;
}

}  // namespace dtrun::dtensor::dcp
