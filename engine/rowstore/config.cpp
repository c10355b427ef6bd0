#include "config.h"

#include <algorithm>
#include <functional>
#include <map>
#include <sstream>

#include "common.h"

namespace rs {
namespace {

uint64_t number(const std::string& key, const std::string& text, uint64_t least, uint64_t most) {
  size_t used = 0;
  uint64_t value = 0;
  try {
    value = std::stoull(text, &used);
  } catch (const std::exception&) {
    used = 0;
  }
  if (used == 0 || used != text.size() || value < least || value > most)
    throw Failure(RS_CONFIG, key + "=" + text + " is not a number from " + std::to_string(least) +
                                 " to " + std::to_string(most));
  return value;
}

std::string choice(const std::string& key, const std::string& text,
                   const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), text) != allowed.end()) return text;
  std::string list;
  for (const auto& name : allowed) list += (list.empty() ? "" : ", ") + name;
  throw Failure(RS_CONFIG, key + "=" + text + " is not one of " + list);
}

// path;scales_path;layer;codes_at;scales_at;rows;code_bytes;scale_bytes
InplaceSpec parse_inplace(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream stream(text);
  for (std::string part; std::getline(stream, part, ';');) parts.push_back(part);
  if (parts.size() != 8) throw Failure(RS_CONFIG, "inplace needs 8 fields separated by ';'");
  const auto field = [&](size_t k) { return number("inplace", parts[k], 0, UINT64_MAX / 4); };
  InplaceSpec spec;
  spec.path = parts[0];
  spec.scales_path = parts[1];
  spec.layer = uint32_t(field(2));
  spec.codes_at = field(3);
  spec.scales_at = field(4);
  spec.rows = field(5);
  spec.format = {uint32_t(field(6)), uint32_t(field(7))};
  return spec;
}

size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t swap = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({swap, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

using Setter = std::function<void(Config&, const std::string& value)>;

Setter text(std::string Config::*field, std::vector<std::string> allowed, std::string key) {
  return [=](Config& c, const std::string& v) { c.*field = choice(key, v, allowed); };
}
Setter path(std::string Config::*field) {
  return [=](Config& c, const std::string& v) { c.*field = v; };
}
Setter u32(uint32_t Config::*field, uint64_t least, uint64_t most, std::string key) {
  return [=](Config& c, const std::string& v) { c.*field = uint32_t(number(key, v, least, most)); };
}
Setter u64(uint64_t Config::*field, std::string key) {
  return [=](Config& c, const std::string& v) { c.*field = number(key, v, 0, 1ull << 50); };
}

std::map<std::string, Setter> make_setters() {
  using C = Config;
  const uint64_t ms_max = 3'600'000;
  return {
      {"mode", text(&C::mode, {"auto", "nvme", "ram", "legacy"}, "mode")},
      {"table", [](C& c, const std::string& v) { c.tables.push_back(v); }},
      {"replica", [](C& c, const std::string& v) { c.replicas.push_back(v); }},
      {"inplace", [](C& c, const std::string& v) { c.inplace.push_back(parse_inplace(v)); }},
      {"io", text(&C::io, {"auto", "uring", "aio", "pool", "inline"}, "io")},
      {"depth", u32(&C::depth, 1, 256, "depth")},
      {"owners", u32(&C::owners, 0, 1, "owners")},
      {"lanes", u32(&C::lanes, 1, kLanesMax, "lanes")},
      {"lane_rows", u32(&C::lane_rows, 1, 1u << 22, "lane_rows")},
      {"pool_threads", u32(&C::pool_threads, 1, 256, "pool_threads")},
      {"cache_bytes", u64(&C::cache_bytes, "cache_bytes")},
      {"cache_policy",
       text(&C::cache_policy, {"auto", "s3", "clk3", "direct", "none"}, "cache_policy")},
      {"prefault", [](C& c, const std::string& v) {
         c.prefault = choice("prefault", v, {"yes", "no"}) == "yes";
       }},
      {"hugepages", text(&C::hugepages, {"auto", "hugetlb", "thp", "no"}, "hugepages")},
      {"soft_ms", u32(&C::soft_ms, 1, ms_max, "soft_ms")},
      {"warn_ms", u32(&C::warn_ms, 1, ms_max, "warn_ms")},
      {"hard_ms", u32(&C::hard_ms, 1, ms_max, "hard_ms")},
      {"hard_prefill_ms", u32(&C::hard_prefill_ms, 1, ms_max, "hard_prefill_ms")},
      {"prefill_rows", u32(&C::prefill_rows, 1, 1u << 22, "prefill_rows")},
      {"trip_hard", u32(&C::trip_hard, 1, 1000, "trip_hard")},
      {"trip_window_ms", u32(&C::trip_window_ms, 1, ms_max, "trip_window_ms")},
      {"on_deadline", text(&C::on_deadline, {"fail", "zero", "wait"}, "on_deadline")},
      {"hint_depth", u32(&C::hint_depth, 0, 64, "hint_depth")},
      {"verify", text(&C::verify, {"page", "row", "fill_only"}, "verify")},
      {"reserve_bytes", u64(&C::reserve_bytes, "reserve_bytes")},
      {"fill_threads", u32(&C::fill_threads, 1, 64, "fill_threads")},
      {"fill_share_percent", u32(&C::fill_share_percent, 1, 100, "fill_share_percent")},
      {"grace_ms", u32(&C::grace_ms, 0, ms_max, "grace_ms")},
      {"keeper", path(&C::keeper)},
      {"telemetry", path(&C::telemetry)},
      {"control", path(&C::control)},
      {"rank", u32(&C::rank, 0, 65535, "rank")},
      {"world", u32(&C::world, 1, 65536, "world")},
  };
}

const std::map<std::string, Setter>& setters() {
  static const std::map<std::string, Setter> all = make_setters();
  return all;
}

std::string nearest_key(const std::string& key) {
  std::string best;
  size_t least = key.size();
  for (const auto& [known, setter] : setters()) {
    const size_t distance = edit_distance(key, known);
    if (distance < least) {
      least = distance;
      best = known;
    }
  }
  return best.empty() ? "" : "; did you mean " + best + "?";
}

}  // namespace

Config Config::parse(const std::string& body) {
  Config config;
  std::stringstream stream(body);
  for (std::string line; std::getline(stream, line);) {
    if (line.empty()) continue;
    const size_t equals = line.find('=');
    const std::string key = line.substr(0, equals);
    const auto found = setters().find(key);
    if (equals == std::string::npos || found == setters().end())
      throw Failure(RS_CONFIG, key + " is not a setting" + nearest_key(key));
    found->second(config, line.substr(equals + 1));
  }
  if (config.tables.empty() && config.inplace.empty())
    throw Failure(RS_CONFIG, "no table is configured; give at least one table=PATH");
  if (config.soft_ms > config.hard_ms || config.warn_ms > config.hard_ms)
    throw Failure(RS_CONFIG, "soft_ms and warn_ms must not exceed hard_ms");
  return config;
}

std::string json_string(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += uint8_t(c) < 0x20 ? ' ' : c;
  }
  return out + "\"";
}

std::string Config::to_json() const {
  std::stringstream out;
  const auto put = [&](const char* key, const auto& value) {
    out << ",\"" << key << "\":" << value;
  };
  out << "{\"mode\":" << json_string(mode);
  put("io", json_string(io));
  put("depth", depth);
  put("owners", owners);
  put("lanes", lanes);
  put("lane_rows", lane_rows);
  put("cache_bytes", cache_bytes);
  put("cache_policy", json_string(cache_policy));
  put("prefault", prefault ? "true" : "false");
  put("hugepages", json_string(hugepages));
  put("soft_ms", soft_ms);
  put("warn_ms", warn_ms);
  put("hard_ms", hard_ms);
  put("hard_prefill_ms", hard_prefill_ms);
  put("on_deadline", json_string(on_deadline));
  put("hint_depth", hint_depth);
  put("verify", json_string(verify));
  put("reserve_bytes", reserve_bytes);
  put("grace_ms", grace_ms);
  put("keeper", json_string(keeper));
  put("telemetry", json_string(telemetry));
  out << "}";
  return out.str();
}

Verify Config::verify_level() const {
  if (verify == "page") return Verify::kPage;
  return verify == "row" ? Verify::kRow : Verify::kFillOnly;
}

uint32_t Config::policy() const {
  if (on_deadline == "zero") return RS_ZERO;
  return on_deadline == "wait" ? RS_WAIT : RS_FAIL;
}

}  // namespace rs
