// Asks the keeper process for the sealed memory file that holds a table.
#pragma once
#include <atomic>
#include <functional>
#include <string>

#include "memory.h"
#include "table.h"

namespace rs {

// Waits while the keeper still fills, until *stop. Throws Failure when the keeper refuses, cannot
// be reached, or hands over memory that is not sealed or is not this table.
Region region_from_keeper(const std::string& socket_path, const Table& table,
                          const std::atomic<bool>& stop,
                          const std::function<void(uint64_t done)>& on_progress);

}  // namespace rs
