// All tables of a store under one numbering: a row of the store is its table's base plus its
// local row, a page likewise, so that caches and flight tables need no table index.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "config.h"
#include "table.h"

namespace rs {

struct RowPlace {
  const Table* table;
  uint64_t local;
};

class Catalog {
 public:
  static std::unique_ptr<Catalog> open(const Config& config);

  // The table of a layer and the store row of its first row; null when there is none.
  const Table* of_layer(uint32_t layer, uint32_t* base) const;
  RowPlace place(uint32_t row) const;
  uint64_t page_of(uint32_t row) const;
  const Table* table_of_page(uint64_t page, uint64_t* page_in_table) const;

  const std::vector<std::unique_ptr<Table>>& tables() const { return tables_; }
  const RowFormat& format() const { return tables_.front()->format(); }
  uint64_t rows() const { return row_bases_.back(); }
  uint64_t image_bytes() const;
  uint32_t slot_bytes() const;

 private:
  void add(std::unique_ptr<Table> table);

  std::vector<std::unique_ptr<Table>> tables_;
  std::vector<uint64_t> row_bases_{0};   // one more than there are tables
  std::vector<uint64_t> page_bases_{0};
};

}  // namespace rs
