#include "catalog.h"

#include <algorithm>

#include "common.h"

namespace rs {

std::unique_ptr<Catalog> Catalog::open(const Config& config) {
  auto catalog = std::make_unique<Catalog>();
  for (size_t k = 0; k < config.tables.size(); ++k)
    catalog->add(Table::open_rws1(config.tables[k],
                                  k < config.replicas.size() ? config.replicas[k] : ""));
  for (const InplaceSpec& spec : config.inplace) catalog->add(Table::open_inplace(spec));
  return catalog;
}

void Catalog::add(std::unique_ptr<Table> table) {
  for (const auto& other : tables_) {
    if (other->layer() == table->layer())
      throw Failure(RS_CONFIG, "layer " + std::to_string(table->layer()) + " is given twice: " +
                                   other->path() + " and " + table->path());
    if (other->format().code_bytes != table->format().code_bytes ||
        other->format().scale_bytes != table->format().scale_bytes)
      throw Failure(RS_CONFIG, table->path() + " has another row format than " + other->path() +
                                   "; open them in separate stores");
  }
  row_bases_.push_back(row_bases_.back() + table->rows());
  page_bases_.push_back(page_bases_.back() + table->pages());
  if (row_bases_.back() >= UINT32_MAX)
    throw Failure(RS_CONFIG, "more than 2^32 rows in one store; open the layers separately");
  tables_.push_back(std::move(table));
}

const Table* Catalog::of_layer(uint32_t layer, uint32_t* base) const {
  for (size_t k = 0; k < tables_.size(); ++k) {
    if (tables_[k]->layer() != layer) continue;
    *base = uint32_t(row_bases_[k]);
    return tables_[k].get();
  }
  return nullptr;
}

RowPlace Catalog::place(uint32_t row) const {
  size_t k = 0;
  while (row >= row_bases_[k + 1]) ++k;
  return {tables_[k].get(), row - row_bases_[k]};
}

uint64_t Catalog::page_of(uint32_t row) const {
  size_t k = 0;
  while (row >= row_bases_[k + 1]) ++k;
  return page_bases_[k] + tables_[k]->page_of(row - row_bases_[k]);
}

const Table* Catalog::table_of_page(uint64_t page, uint64_t* page_in_table) const {
  size_t k = 0;
  while (page >= page_bases_[k + 1]) ++k;
  *page_in_table = page - page_bases_[k];
  return tables_[k].get();
}

uint64_t Catalog::image_bytes() const {
  uint64_t bytes = 0;
  for (const auto& table : tables_) bytes += table->image_end() - table->image_from();
  return bytes;
}

uint32_t Catalog::slot_bytes() const {
  uint32_t most = 0;
  for (const auto& table : tables_) most = std::max(most, table->read_bytes());
  return most;
}

}  // namespace rs
